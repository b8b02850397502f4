//! Streaming zstd compression, for bodies of unknown length.

use std::fmt;

use super::context::{stream_context_size, ZstdContext};
use crate::gzip::stream::{
    EncodeProgress, FlushMode, StreamEncoder, StreamEncoderError, StreamLevel,
};

/// Logarithm of the window in bytes. The windows that the library would choose, 512 KiB to 2 MiB,
/// take two to three times of the memory of an encoder, and as much of the client.
const STREAM_WINDOW_LOG: u32 = 16;

/// Returns the memory that an encoder takes for its whole life, in bytes.
pub fn zstd_encoder_size(level: StreamLevel) -> usize {
    stream_context_size(level, STREAM_WINDOW_LOG)
}

/// A streaming encoder of one zstd frame.
pub struct ZstdEncoder(ZstdContext);

impl ZstdEncoder {
    /// Allocates an encoder and all of its memory; `None` if memory is refused.
    pub fn new(level: StreamLevel) -> Option<Self> {
        let mut context = ZstdContext::new()?;
        context.start_stream(level, STREAM_WINDOW_LOG).ok()?;
        Some(Self(context))
    }
}

impl StreamEncoder for ZstdEncoder {
    fn compress_input(
        &mut self,
        input: &[u8],
        flush: FlushMode,
        output: &mut [u8],
    ) -> Result<EncodeProgress, StreamEncoderError> {
        self.0.compress_stream(input, flush, output)
    }
}

impl fmt::Debug for ZstdEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Zstd")
    }
}

#[cfg(test)]
mod tests {
    use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

    use super::{zstd_encoder_size, ZstdEncoder, STREAM_WINDOW_LOG};
    use crate::gzip::stream::{FlushMode, StreamEncoder};

    fn encoders() -> Vec<ZstdEncoder> {
        (1..=3)
            .map(|level| ZstdEncoder::new(level).expect("memory"))
            .collect()
    }

    fn body(length: usize) -> Vec<u8> {
        (0..length as u32 / 4)
            .flat_map(|n| (n / 5 * 7919).to_be_bytes())
            .collect()
    }

    /// Compresses `pieces` with output buffers of `room` bytes.
    fn encode_pieces(encoder: &mut ZstdEncoder, pieces: &[&[u8]], room: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            let flush = match n + 1 == pieces.len() {
                true => FlushMode::Finish,
                false => FlushMode::None,
            };
            let mut rest = *piece;
            loop {
                let mut output = vec![0; room];
                let progress = encoder.compress_input(rest, flush, &mut output).unwrap();
                frame.extend_from_slice(&output[..progress.written]);
                rest = &rest[progress.consumed..];
                if progress.complete {
                    break;
                }
                assert!(progress.consumed + progress.written > 0, "no progress");
            }
            assert!(rest.is_empty());
        }
        frame
    }

    /// Decompresses as much as possible of an incomplete frame, with the window of the encoder.
    fn decompress(frame: &[u8]) -> Vec<u8> {
        let mut context = DCtx::create();
        context
            .set_parameter(DParameter::WindowLogMax(STREAM_WINDOW_LOG))
            .unwrap();
        let mut input = InBuffer::around(frame);
        let mut body = Vec::new();
        loop {
            let mut buffer = [0_u8; 1024];
            let mut output = OutBuffer::around(&mut buffer[..]);
            context.decompress_stream(&mut output, &mut input).unwrap();
            let written = output.pos();
            body.extend_from_slice(&buffer[..written]);
            if written < buffer.len() && input.pos() == frame.len() {
                return body;
            }
        }
    }

    #[test]
    fn pieces_of_any_size_become_one_frame_with_any_room() {
        let body = body(300_000);
        for room in [1, 16, 100, 4096, 1 << 20] {
            for size in [1000, 16_384, 300_000] {
                for mut encoder in encoders() {
                    let pieces: Vec<&[u8]> = body.chunks(size).collect();
                    let frame = encode_pieces(&mut encoder, &pieces, room);
                    assert!(decompress(&frame) == body, "{size} in {room}");
                    assert_eq!(
                        zstd_safe::find_frame_compressed_size(&frame),
                        Ok(frame.len())
                    );
                }
            }
        }
    }

    #[test]
    fn flushed_input_can_be_decompressed() {
        let body = body(200_000);
        for mut encoder in encoders() {
            let mut frame = Vec::new();
            for (n, piece) in body.chunks(1000).enumerate() {
                let mut output = vec![0; 8192];
                let progress = encoder
                    .compress_input(piece, FlushMode::Sync, &mut output)
                    .unwrap();
                assert!(progress.complete);
                frame.extend_from_slice(&output[..progress.written]);
                assert!(
                    decompress(&frame) == body[..1000 * (n + 1)],
                    "after piece {n}"
                );
            }
        }
    }

    #[test]
    fn empty_body_becomes_a_frame() {
        for room in [1, 100] {
            for mut encoder in encoders() {
                let frame = encode_pieces(&mut encoder, &[b""], room);
                assert_eq!(
                    zstd_safe::find_frame_compressed_size(&frame),
                    Ok(frame.len())
                );
                assert!(decompress(&frame).is_empty());
            }
        }
    }

    #[test]
    fn encoder_takes_the_memory_that_is_reserved_for_it() {
        let body = body(1 << 20);
        for level in 1..=3 {
            let mut encoder = ZstdEncoder::new(level).expect("memory");
            let allocated = encoder.0.context_size();
            let reserved = zstd_encoder_size(level);
            assert!(
                allocated <= reserved + reserved / 10 && reserved <= allocated + allocated / 10,
                "level {level}: {allocated} of {reserved}"
            );
            encode_pieces(&mut encoder, &body.chunks(10_000).collect::<Vec<_>>(), 1000);
            assert_eq!(encoder.0.context_size(), allocated, "level {level}");
        }
    }
}
