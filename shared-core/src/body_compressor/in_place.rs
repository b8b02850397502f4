//! Compression of a long body to one gzip member or zstd frame, whose plain bytes are released
//! while the compressed ones are written: together they take little more memory than the body did.

use std::ops::Range;

use super::BodyCompressor;
use crate::bytes::SharedBytes;
use crate::content_coding::SupportedContentCoding;
use crate::faults::{is_fault_injected, panic_if_injected, InjectedTestFault};
use crate::gzip::crc::{CrcShift, RunningCrc};
use crate::gzip::format::{member_trailer, EMPTY_FINAL_BLOCK, MEMBER_HEADER};
use crate::gzip::open_stream::open_stream_reusing_buffer;
use crate::gzip::splice::SlicedBody;
use crate::memory::release_pages;
use crate::zstd::frame::{frame_header, EMPTY_LAST_BLOCK};
use crate::zstd::open_blocks::open_blocks_reusing_buffer;

/// Number of plain bytes that are compressed at once.
const PIECE_LENGTH: usize = 1 << PIECE_LENGTH_LOG;
const PIECE_LENGTH_LOG: u32 = 20;

/// Number of plain bytes after which it is decided whether the compression is worth it. The last
/// part may be a hash.
const DECISION_LENGTH: usize = 64 << 10;

/// Maximum length of the end of a compressed piece, or of the body. Bytes.
const MAX_END_LENGTH: usize = 16;

/// The reason why [`BodyCompressor::compress_in_place`] returns no compressed body in place of the
/// plain bytes.
pub(crate) enum CompressInPlaceError {
    /// The body would not be shorter, or there is no memory for it. Contains the plain bytes,
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
    /// Checksum of the plain bytes, if the coding has one.
    crc: u32,
}

impl BodyCompressor {
    /// Compresses these parts of `plain` to one gzip member or zstd frame, and releases `plain`
    /// meanwhile.
    ///
    /// The compression begins at the end of the memory and releases the bytes that were compressed,
    /// so that at most one piece exists in both forms. It can be undone only for the first pieces:
    /// these decide whether the body becomes shorter than the plain bytes, unless it may be of
    /// `any_length`.
    pub(crate) fn compress_in_place(
        self,
        mut plain: Vec<u8>,
        parts: &[Range<usize>],
        any_length: bool,
    ) -> Result<SlicedBody, CompressInPlaceError> {
        panic_if_injected(InjectedTestFault::PanicCompress);
        let coding = self.content_coding();
        let plan = plan_compressed_pieces(&plain, parts, self);
        let Some(((mut pieces, mut coded), head)) = plan.zip(body_head(coding, parts)) else {
            return Err(CompressInPlaceError::Plain(plain));
        };
        coded.extend_from_slice(&head);
        let (head, whole) = (0..coded.len(), plain.len());
        let mut from_the_end: Vec<&mut InPlaceCompressedRange> = pieces.iter_mut().collect();
        from_the_end.sort_unstable_by_key(|piece| std::cmp::Reverse(piece.plain.start));
        let mut room = Vec::new();
        let (mut tried, mut is_decided) = (0, any_length);
        let last = from_the_end.len().saturating_sub(1);
        for (number, piece) in from_the_end.into_iter().enumerate() {
            let open = compress_piece(&plain[piece.plain.clone()], self, &mut room);
            let fits = |length| coded.capacity() - coded.len() >= length + MAX_END_LENGTH;
            let Some((bytes, crc)) = open.filter(|(bytes, _)| fits(bytes.len())) else {
                return Err(match plain.len() == whole {
                    true => CompressInPlaceError::Plain(plain),
                    false => CompressInPlaceError::Nothing,
                });
            };
            piece.coded = coded.len()..coded.len() + bytes.len();
            piece.crc = crc;
            coded.extend_from_slice(&bytes);
            tried += piece.plain.len();
            if !is_decided && (tried >= DECISION_LENGTH || number == last) {
                if coded.len() - head.len() >= tried {
                    return Err(CompressInPlaceError::Plain(plain));
                }
                is_decided = true;
            }
            if is_decided {
                release_pages(&mut plain[piece.plain.clone()]);
                plain.truncate(piece.plain.start);
            }
        }
        assemble_body_from_pieces(coding, coded, head, &pieces).ok_or(CompressInPlaceError::Nothing)
    }
}

/// Returns the bytes before the first piece. `None` if the parts are longer than a zstd frame can
/// be.
fn body_head(coding: SupportedContentCoding, parts: &[Range<usize>]) -> Option<[u8; 10]> {
    match coding {
        SupportedContentCoding::Gzip => Some(MEMBER_HEADER),
        SupportedContentCoding::Zstd => {
            let length = parts.iter().map(|part| part.len()).sum::<usize>();
            // no piece refers to bytes of another
            Some(frame_header(PIECE_LENGTH_LOG, u32::try_from(length).ok()?))
        }
    }
}

/// Compresses one piece so that others can follow it, and returns its bytes and its checksum.
/// `None` if memory is refused.
fn compress_piece(
    plain: &[u8],
    compressor: BodyCompressor,
    room: &mut Vec<u8>,
) -> Option<(SharedBytes, u32)> {
    match compressor {
        BodyCompressor::Gzip { level, .. } => {
            let open = open_stream_reusing_buffer(plain, level, room)?;
            Some((open.bytes, open.crc))
        }
        BodyCompressor::Zstd { level, .. } => {
            let open = open_blocks_reusing_buffer(plain, level, room)?;
            Some((open.bytes, 0))
        }
    }
}

/// Returns the pieces, in order, and the buffer for their compressed forms. The buffer reserves
/// address space; memory is used as it is written.
fn plan_compressed_pieces(
    plain: &[u8],
    parts: &[Range<usize>],
    compressor: BodyCompressor,
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
    let bound = compressor.compressed_bound(plain.len());
    coded
        .try_reserve_exact(bound.checked_add(MAX_END_LENGTH * (count + 1))?)
        .ok()?;
    Some((pieces, coded))
}

/// Assembles the body from its head, the compressed pieces in order, and its end. `None` if memory
/// is refused.
fn assemble_body_from_pieces(
    coding: SupportedContentCoding,
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
    match coding {
        SupportedContentCoding::Gzip => {
            coded.extend_from_slice(&EMPTY_FINAL_BLOCK);
            coded.extend_from_slice(&member_trailer(&crc));
        }
        SupportedContentCoding::Zstd => coded.extend_from_slice(&EMPTY_LAST_BLOCK),
    }
    order.push(end..coded.len());
    // the unused capacity was never written
    SlicedBody::from_buffer_ranges(coded, &order, Some((coding, crc.byte_count())))
}

#[cfg(test)]
mod tests {
    use super::{CompressInPlaceError, PIECE_LENGTH};
    use crate::body_compressor::BodyCompressor;
    use crate::content_coding::SupportedContentCoding;
    use crate::gzip::splice::SlicedBody;
    use crate::support::gunzip;

    /// Compressors of both codings, at a fast and at a thorough level.
    const COMPRESSORS: [BodyCompressor; 4] = [gzip(1), gzip(6), zstd(1), zstd(6)];

    const fn gzip(level: u8) -> BodyCompressor {
        BodyCompressor::Gzip {
            level,
            stream_level: 1,
        }
    }

    const fn zstd(level: u8) -> BodyCompressor {
        BodyCompressor::Zstd {
            level,
            stream_level: 1,
        }
    }

    /// Decompresses exactly one member or frame.
    fn decompress(compressor: BodyCompressor, coded: &[u8]) -> Vec<u8> {
        match compressor.content_coding() {
            SupportedContentCoding::Gzip => gunzip(coded).unwrap(),
            SupportedContentCoding::Zstd => {
                let length = zstd_safe::find_frame_compressed_size(coded);
                assert_eq!(length, Ok(coded.len()));
                zstd::decode_all(coded).unwrap()
            }
        }
    }

    fn decompress_body(compressor: BodyCompressor, body: &SlicedBody) -> Vec<u8> {
        assert_eq!(body.content_coding(), Some(compressor.content_coding()));
        decompress(compressor, &body.to_vec())
    }

    fn text(length: usize) -> Vec<u8> {
        let words = (0u32..).flat_map(|n| (n / 3).to_be_bytes());
        words.take(length).collect()
    }

    #[test]
    fn parts_in_any_order_become_one_body() {
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
            for compressor in COMPRESSORS {
                let Ok(body) = compressor.compress_in_place(plain.clone(), &parts, false) else {
                    panic!("{parts:?} with {compressor:?}");
                };
                assert_eq!(body.to_vec().len() as u64, body.byte_length());
                assert!(body.byte_length() < plain.len() as u64);
                assert_eq!(body.plain_length(), plain.len() as u64);
                assert!(
                    decompress_body(compressor, &body) == expected,
                    "{parts:?} with {compressor:?}"
                );
            }
        }
    }

    #[test]
    fn frame_declares_the_length_of_its_parts() {
        let plain = text(2 * PIECE_LENGTH);
        let parts = [PIECE_LENGTH..plain.len(), 10..20];
        let Ok(body) = zstd(1).compress_in_place(plain, &parts, false) else {
            panic!("it is compressed");
        };
        let length = PIECE_LENGTH as u64 + 10;
        assert_eq!(body.plain_length(), length);
        assert_eq!(
            zstd_safe::get_frame_content_size(&body.to_vec()).unwrap(),
            Some(length)
        );
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
    fn memory_of_a_drained_body_is_released() {
        let plain = noise(12 * PIECE_LENGTH);
        let whole = 0..plain.len();
        for compressor in [gzip(6), zstd(1)] {
            let parts = std::slice::from_ref(&whole);
            let Ok(mut body) = compressor.compress_in_place(plain.clone(), parts, true) else {
                panic!("it is compressed");
            };
            let mut drained = Vec::new();
            body.drain_body_into(|piece| drained.extend_from_slice(piece));
            assert!(decompress(compressor, &drained) == plain);
            // the reported lengths remain
            assert_eq!(body.byte_length(), drained.len() as u64);
            assert_eq!(body.plain_length(), plain.len() as u64);
            let left = body.to_vec().into_iter().filter(|byte| *byte != 0).count();
            assert!(
                !cfg!(target_os = "linux") || left < drained.len() / 50,
                "{left}"
            );
        }
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
        for compressor in COMPRESSORS {
            let Ok(body) = compressor.compress_in_place(plain.clone(), &parts, false) else {
                panic!("{compressor:?}");
            };
            let expected = [&plain[2 * PIECE_LENGTH..], &plain[..2 * PIECE_LENGTH]].concat();
            assert!(decompress_body(compressor, &body) == expected);
            match compressor.compress_in_place(plain.clone(), &parts[..1], false) {
                Err(CompressInPlaceError::Plain(unchanged)) => assert!(unchanged == plain),
                _ => panic!("100 bytes alone with {compressor:?}"),
            }
        }
    }

    #[test]
    fn incompressible_body_is_refused_unless_any_length_is_allowed() {
        let plain = noise(2 * PIECE_LENGTH + 3);
        let whole = 0..plain.len();
        let parts = std::slice::from_ref(&whole);
        for compressor in COMPRESSORS {
            match compressor.compress_in_place(plain.clone(), parts, false) {
                Err(CompressInPlaceError::Plain(unchanged)) => assert!(unchanged == plain),
                _ => panic!("{compressor:?}"),
            }
            let Ok(body) = compressor.compress_in_place(plain.clone(), parts, true) else {
                panic!("{compressor:?}");
            };
            assert!(decompress_body(compressor, &body) == plain);
        }
    }

    #[test]
    fn short_parts_of_any_length_become_one_body() {
        let plain = noise(5000);
        let parts: Vec<_> = (0..1000_usize).map(|n| 5 * n..5 * n + 5).rev().collect();
        let expected: Vec<u8> = parts
            .iter()
            .flat_map(|it| plain[it.clone()].to_vec())
            .collect();
        for compressor in COMPRESSORS {
            let Ok(body) = compressor.compress_in_place(plain.clone(), &parts, true) else {
                panic!("{compressor:?}");
            };
            assert!(decompress_body(compressor, &body) == expected);
        }
    }
}
