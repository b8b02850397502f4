//! Large pages for what is long.
//!
//! A page that is first written costs a fault, and zeros: with pages of 4 KiB
//! more than what is written into them (docs/decisions/027).

/// Shorter memory is not worth a call, and mostly comes from pages that were
/// written before. Bytes.
const LONG: usize = 4 << 20;

/// The most usual size of a large page, and a multiple of all small ones. Bytes.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

/// Asks the system to take large pages for what a vector has reserved and not
/// written yet, where that is long and the system leaves it to programs
/// (`madvise` in `/sys/kernel/mm/transparent_hugepage/enabled`). To be called
/// when it has grown.
#[inline]
pub(crate) fn advise(bytes: &mut Vec<u8>) {
    if bytes.capacity() >= LONG {
        advise_long(bytes);
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
#[cold]
fn advise_long(bytes: &mut Vec<u8>) {
    use rustix::mm::{madvise, Advice};

    let before = bytes.as_ptr().align_offset(LARGE_PAGE);
    let len = bytes.capacity().saturating_sub(before) / LARGE_PAGE * LARGE_PAGE;
    let begin = bytes.as_mut_ptr().wrapping_add(before);
    // SAFETY: the range is the vector's own, and whatever the system makes of
    // this advice, its bytes stay what they are.
    // A refusal is no loss: the pages are small then.
    let _ = unsafe { madvise(begin.cast(), len, Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn advise_long(_: &mut Vec<u8>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_what_they_are() {
        for len in [0, LONG - 1, LONG, 3 * LONG + 12345] {
            let mut bytes = Vec::with_capacity(len);
            bytes.extend((0..len / 2).map(|n| n as u8));
            advise(&mut bytes);
            bytes.extend((len / 2..len).map(|n| n as u8));
            assert!(bytes.iter().enumerate().all(|(n, byte)| *byte == n as u8));
        }
    }
}
