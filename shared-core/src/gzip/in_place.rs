//! Compression of a long body to one gzip member, whose plain bytes are released while the
//! compressed ones are written: together they take little more memory than the body did.

use std::ops::Range;

use super::crc::{CrcShift, RunningCrc};
use super::format::{member_trailer, EMPTY_FINAL_BLOCK, MEMBER_HEADER};
use super::oneshot::compressed_bound;
use super::open_stream::open_stream_reusing_buffer;
use super::splice::SlicedBody;
use crate::faults::{is_fault_injected, panic_if_injected, InjectedTestFault};
use crate::memory::release_pages;

/// Number of plain bytes that are compressed at once.
const PIECE_LENGTH: usize = 1 << 20;

/// Number of plain bytes after which it is decided whether the compression is worth it. The last
/// part may be a hash.
const DECISION_LENGTH: usize = 64 << 10;

/// Maximum length of the end of an open stream, or of the member. Bytes.
const MAX_END_LENGTH: usize = 16;

/// The reason why [`gzip_in_place`] returns no gzip member in place of the plain bytes.
pub(crate) enum GzipInPlaceError {
    /// The member would not be shorter, or there is no memory for it. Contains the plain bytes,
    /// unchanged.
    Plain(Vec<u8>),
    /// Memory was refused after some of the plain bytes were released.
    Nothing,
}

/// A range of the plain bytes that is compressed at once, and the range of its compressed form.
#[derive(Clone, Default)]
struct InPlaceCompressedRange {
    plain: Range<usize>,
    coded: Range<usize>,
    crc: u32,
}

/// Compresses these parts of `plain` to one gzip member at a
/// [level](super::open_stream::compress_to_open_stream), and releases `plain` meanwhile.
///
/// The compression begins at the end of the memory and releases the bytes that were compressed,
/// so that at most one piece exists in both forms. It can be undone only for the first pieces:
/// these decide whether the member is shorter than the plain bytes, unless it may be of
/// `any_length`.
pub(crate) fn gzip_in_place(
    mut plain: Vec<u8>,
    parts: &[Range<usize>],
    level: u8,
    any_length: bool,
) -> Result<SlicedBody, GzipInPlaceError> {
    panic_if_injected(InjectedTestFault::PanicCompress);
    let Some((mut pieces, mut coded)) = plan_compressed_pieces(&plain, parts) else {
        return Err(GzipInPlaceError::Plain(plain));
    };
    coded.extend_from_slice(&MEMBER_HEADER);
    let (head, whole) = (0..coded.len(), plain.len());
    let mut from_the_end: Vec<&mut InPlaceCompressedRange> = pieces.iter_mut().collect();
    from_the_end.sort_unstable_by_key(|piece| std::cmp::Reverse(piece.plain.start));
    let mut room = Vec::new();
    let (mut tried, mut is_decided) = (0, any_length);
    let last = from_the_end.len().saturating_sub(1);
    for (number, piece) in from_the_end.into_iter().enumerate() {
        let open = open_stream_reusing_buffer(&plain[piece.plain.clone()], level, &mut room);
        let fits = |length| coded.capacity() - coded.len() >= length + MAX_END_LENGTH;
        let Some(open) = open.filter(|it| fits(it.bytes.len())) else {
            return Err(match plain.len() == whole {
                true => GzipInPlaceError::Plain(plain),
                false => GzipInPlaceError::Nothing,
            });
        };
        piece.coded = coded.len()..coded.len() + open.bytes.len();
        piece.crc = open.crc;
        coded.extend_from_slice(&open.bytes);
        tried += piece.plain.len();
        if !is_decided && (tried >= DECISION_LENGTH || number == last) {
            if coded.len() - head.len() >= tried {
                return Err(GzipInPlaceError::Plain(plain));
            }
            is_decided = true;
        }
        if is_decided {
            release_pages(&mut plain[piece.plain.clone()]);
            plain.truncate(piece.plain.start);
        }
    }
    assemble_member_from_pieces(coded, head, &pieces).ok_or(GzipInPlaceError::Nothing)
}

/// Returns the pieces, in order, and the buffer for their compressed forms. The buffer reserves
/// address space; memory is used as it is written.
fn plan_compressed_pieces(
    plain: &[u8],
    parts: &[Range<usize>],
) -> Option<(Vec<InPlaceCompressedRange>, Vec<u8>)> {
    if is_fault_injected(InjectedTestFault::FailCompress) {
        return None;
    }
    let count = parts
        .iter()
        .map(|part| part.len().div_ceil(PIECE_LENGTH))
        .sum();
    let mut pieces = Vec::new();
    pieces.try_reserve_exact(count).ok()?;
    for part in parts {
        pieces.extend(
            part.clone()
                .step_by(PIECE_LENGTH)
                .map(|start| InPlaceCompressedRange {
                    plain: start..part.end.min(start + PIECE_LENGTH),
                    ..InPlaceCompressedRange::default()
                }),
        );
    }
    let mut coded = Vec::new();
    coded
        .try_reserve_exact(compressed_bound(plain.len()).checked_add(MAX_END_LENGTH * (count + 1))?)
        .ok()?;
    Some((pieces, coded))
}

/// Assembles the member from the header, the compressed pieces in order, and the trailer. `None` if
/// memory is refused.
fn assemble_member_from_pieces(
    mut coded: Vec<u8>,
    head: Range<usize>,
    pieces: &[InPlaceCompressedRange],
) -> Option<SlicedBody> {
    let mut crc = RunningCrc::new();
    let mut order = Vec::new();
    order.try_reserve_exact(pieces.len() + 2).ok()?;
    order.push(head);
    for piece in pieces {
        let length = piece.plain.len() as u64;
        crc.combine_crc(piece.crc, length, CrcShift::for_appended_bytes(length));
        order.push(piece.coded.clone());
    }
    let end = coded.len();
    coded.extend_from_slice(&EMPTY_FINAL_BLOCK);
    coded.extend_from_slice(&member_trailer(&crc));
    order.push(end..coded.len());
    // the unused capacity was never written
    SlicedBody::from_buffer_ranges(coded, &order, true)
}

#[cfg(test)]
mod tests {
    use super::{gzip_in_place, GzipInPlaceError, PIECE_LENGTH};
    use crate::support::gunzip;

    fn text(length: usize) -> Vec<u8> {
        let words = (0u32..).flat_map(|n| (n / 3).to_be_bytes());
        words.take(length).collect()
    }

    #[test]
    fn parts_in_any_order_become_one_member() {
        let plain = text(3 * PIECE_LENGTH + 1000);
        let (a, b) = (PIECE_LENGTH + 7, 2 * PIECE_LENGTH + 20);
        let whole = 0..plain.len();
        for parts in [
            vec![whole.clone()],
            vec![b..plain.len(), 0..10, a..b, 10..a],
            vec![0..5, 5..6, a..b, 6..a, b..plain.len()],
        ] {
            let expected: Vec<u8> = parts
                .iter()
                .flat_map(|it| plain[it.clone()].to_vec())
                .collect();
            for level in [1, 6] {
                let Ok(body) = gzip_in_place(plain.clone(), &parts, level, false) else {
                    panic!("{parts:?} at level {level}");
                };
                let coded = body.to_vec();
                assert_eq!(coded.len() as u64, body.byte_length());
                assert!(coded.len() < plain.len());
                assert_eq!(body.plain_length(), plain.len() as u64);
                assert!(gunzip(&coded).unwrap() == expected, "{parts:?}");
            }
        }
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1u64;
        let random = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        });
        random.take(length).collect()
    }

    #[test]
    fn memory_of_a_drained_member_is_released() {
        let plain = noise(12 * PIECE_LENGTH);
        let whole = 0..plain.len();
        let Ok(mut body) = gzip_in_place(plain.clone(), std::slice::from_ref(&whole), 6, true)
        else {
            panic!("it is coded");
        };
        let mut drained = Vec::new();
        body.drain_body_into(|piece| drained.extend_from_slice(piece));
        assert!(gunzip(&drained).unwrap() == plain);
        // the reported lengths remain
        assert_eq!(body.byte_length(), drained.len() as u64);
        assert_eq!(body.plain_length(), plain.len() as u64);
        let left = body.to_vec().into_iter().filter(|byte| *byte != 0).count();
        assert!(
            !cfg!(target_os = "linux") || left < drained.len() / 50,
            "{left}"
        );
    }

    #[test]
    fn short_part_at_the_end_does_not_decide_the_compression() {
        let mut plain = text(2 * PIECE_LENGTH);
        plain.extend(noise(100));
        let parts = [
            2 * PIECE_LENGTH..plain.len(),
            0..PIECE_LENGTH,
            PIECE_LENGTH..2 * PIECE_LENGTH,
        ];
        for level in [1, 6] {
            let Ok(body) = gzip_in_place(plain.clone(), &parts, level, false) else {
                panic!("level {level}");
            };
            let expected = [&plain[2 * PIECE_LENGTH..], &plain[..2 * PIECE_LENGTH]].concat();
            assert!(gunzip(&body.to_vec()).unwrap() == expected);
            match gzip_in_place(plain.clone(), &parts[..1], level, false) {
                Err(GzipInPlaceError::Plain(unchanged)) => assert!(unchanged == plain),
                _ => panic!("100 bytes alone at level {level}"),
            }
        }
    }

    #[test]
    fn incompressible_body_is_refused_unless_any_length_is_allowed() {
        let plain = noise(2 * PIECE_LENGTH + 3);
        let whole = 0..plain.len();
        for level in [1, 6] {
            match gzip_in_place(plain.clone(), std::slice::from_ref(&whole), level, false) {
                Err(GzipInPlaceError::Plain(unchanged)) => assert!(unchanged == plain),
                _ => panic!("level {level}"),
            }
            let Ok(body) = gzip_in_place(plain.clone(), std::slice::from_ref(&whole), level, true)
            else {
                panic!("level {level}");
            };
            assert!(gunzip(&body.to_vec()).unwrap() == plain);
        }
    }
}
