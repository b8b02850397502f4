//! One-shot compression with ISA-L's igzip, opened at run time: `igzip_lib.h` of ISA-L 2.
//!
//! The encoder of `stream` differs: it copies all input through its window and has the smallest
//! buffers, since each connection has one. Here one encoder serves the process, reads the body
//! in place, and collects 64 Ki tokens before it writes a block, so that there are fewer
//! headers.
#![allow(unsafe_code)]

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

use super::isal::{self, IsalFunctions, IsalStreamState, COMP_OK};
use crate::lock::lock_ignoring_poison;

/// Size in bytes of `struct isal_zstream` with a margin: it is 82,384 in 2.30 and 2.31, and
/// can't grow within a soname.
const STREAM_SIZE: usize = 84 << 10;
const FULL_FLUSH: u16 = 2;
const IGZIP_DEFLATE: u16 = 0;

/// Level of igzip. Levels 2 and 3 take up to four times as long for the same size.
const IGZIP_LEVEL: u32 = 1;

/// Size in bytes of the level buffer, `ISAL_DEF_LVL1_LARGE`: hash tables and room for 64 Ki
/// tokens.
const LEVEL_BUFFER_SIZE: usize = (4 << 10) + 2 * (8 << 10) + 4 * (64 << 10);

/// Returns the functions of the library, which is opened on first use; `None` if it is not
/// installed.
fn igzip_functions() -> Option<&'static IsalFunctions> {
    static FUNCTIONS: OnceLock<Option<IsalFunctions>> = OnceLock::new();
    FUNCTIONS
        .get_or_init(|| {
            isal::load_isal_functions(
                b"isal_deflate_stateless_init\0",
                b"isal_deflate_stateless\0",
            )
        })
        .as_ref()
}

/// Opens the library, if it is installed.
pub(super) fn load_igzip_library() {
    let _ = igzip_functions();
}

/// Whether the library is installed.
pub(super) fn is_igzip_available() -> bool {
    igzip_functions().is_some()
}

/// An encoder of igzip for one-shot compression: its stream and its level buffer, in one
/// allocation.
struct OneshotIgzipEncoder {
    functions: &'static IsalFunctions,
    stream: NonNull<IsalStreamState>,
}

// SAFETY: igzip_lib.h keeps all state in the stream; nothing in it belongs to
// the thread that made it.
unsafe impl Send for OneshotIgzipEncoder {}

const ENCODER_LAYOUT: Layout = match Layout::from_size_align(STREAM_SIZE + LEVEL_BUFFER_SIZE, 64) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

impl OneshotIgzipEncoder {
    /// Allocates an encoder; `None` without the library or the memory.
    fn new() -> Option<Self> {
        let functions = igzip_functions()?;
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(ENCODER_LAYOUT) })?;
        Some(Self {
            functions,
            stream: memory.cast(),
        })
    }

    /// Writes `input` as deflate blocks, none of them final, into the spare capacity of
    /// `output`, after its contents, aligned to a byte. `false`, with unchanged `output`, if it
    /// does not fit.
    fn write_deflate_blocks(&mut self, input: &[u8], output: &mut Vec<u8>) -> bool {
        let spare = output.spare_capacity_mut();
        let (Ok(input_length), Ok(room)) = (u32::try_from(input.len()), u32::try_from(spare.len()))
        else {
            return false;
        };
        // SAFETY: the memory is ours, zeroed, aligned, and larger than the
        // stream by the level buffer that follows it. Both other buffers are
        // passed with their own lengths and not kept.
        let (result, left, written) = unsafe {
            (self.functions.init)(self.stream.as_ptr());
            let state = &mut *self.stream.as_ptr();
            state.level = IGZIP_LEVEL;
            state.level_buf = self.stream.as_ptr().cast::<u8>().add(STREAM_SIZE);
            state.level_buf_size = LEVEL_BUFFER_SIZE as u32;
            state.gzip_flag = IGZIP_DEFLATE;
            state.end_of_stream = 0;
            state.flush = FULL_FLUSH;
            state.next_in = input.as_ptr();
            state.avail_in = input_length;
            state.next_out = spare.as_mut_ptr().cast();
            state.avail_out = room;
            let result = (self.functions.deflate)(state);
            (result, state.avail_in, (room - state.avail_out) as usize)
        };
        if result != COMP_OK || left > 0 {
            return false;
        }
        // SAFETY: igzip has written that many bytes, at most spare.len().
        unsafe { output.set_len(output.len() + written) };
        true
    }
}

impl Drop for OneshotIgzipEncoder {
    fn drop(&mut self) {
        // SAFETY: ours since `new`, of that layout, freed once.
        unsafe { dealloc(self.stream.as_ptr().cast(), ENCODER_LAYOUT) }
    }
}

/// The idle encoder; others are freed.
static IDLE_ENCODER: Mutex<Option<OneshotIgzipEncoder>> = Mutex::new(None);

/// Writes `plain` as deflate blocks, none of them final, into the spare capacity of `output`,
/// after its contents, aligned to a byte. `false`, with unchanged `output`, without the library
/// or the memory, beyond its 4 GiB, or if it does not fit.
pub(super) fn deflate_with_igzip(plain: &[u8], output: &mut Vec<u8>) -> bool {
    let idle = lock_ignoring_poison(&IDLE_ENCODER).take();
    let Some(mut coder) = idle.or_else(OneshotIgzipEncoder::new) else {
        return false;
    };
    let fits = coder.write_deflate_blocks(plain, output);
    let beyond = lock_ignoring_poison(&IDLE_ENCODER).replace(coder);
    drop(beyond);
    fits
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::oneshot::compressed_bound;
    use super::deflate_with_igzip;

    fn deflate_to_vec(plain: &[u8]) -> Option<Vec<u8>> {
        let mut output = Vec::with_capacity(compressed_bound(plain.len()));
        deflate_with_igzip(plain, &mut output).then_some(output)
    }

    /// Decompresses an open stream.
    fn inflate(stream: &[u8]) -> Vec<u8> {
        let finished = [stream, &[0x03, 0x00]].concat();
        let mut plain = Vec::new();
        flate2::read::DeflateDecoder::new(&finished[..])
            .read_to_end(&mut plain)
            .unwrap();
        plain
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1u64;
        std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(length)
        .collect()
    }

    #[test]
    fn incompressible_body_fits_into_its_bound() {
        // installed by the set-up: its absence is a failure
        for length in (0..300).chain([4096, 65_535, 65_536, 131_071, 1 << 20, 5_000_001]) {
            let plain = noise(length);
            let stream = deflate_to_vec(&plain).expect("libisal.so.2");
            assert!(inflate(&stream) == plain, "{length}");
        }
    }

    #[test]
    fn encoder_is_independent_of_the_body_before() {
        let first = deflate_to_vec(&[b'a'; 100_000]).expect("libisal.so.2");
        for other in [noise(1000), noise(200_000), vec![b'a'; 10]] {
            assert!(inflate(&deflate_to_vec(&other).unwrap()) == other);
        }
        assert_eq!(deflate_to_vec(&[b'a'; 100_000]).unwrap(), first);
    }

    #[test]
    fn bodies_of_concurrent_threads_are_compressed_independently() {
        std::thread::scope(|scope| {
            for n in 0..8 {
                scope.spawn(move || {
                    let plain = vec![n; 300_000];
                    for _ in 0..20 {
                        assert!(inflate(&deflate_to_vec(&plain).unwrap()) == plain);
                    }
                });
            }
        });
    }
}
