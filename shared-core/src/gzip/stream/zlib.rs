//! Streaming compression with zlib-rs, which every target has.

use std::fmt;
use std::hint::black_box;

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Status};

use super::encoder::{EncodeProgress, FlushMode, StreamEncoder, StreamEncoderError, StreamLevel};

/// zlib's levels for the levels of a stream: at zlib-rs's level 1 hexadecimal text is 50 % longer.
const ZLIB_LEVELS: [i32; 3] = [2, 4, 6];

/// Window and memory level: 8 KiB of history and blocks of 2,048 symbols take 177 KiB instead of
/// 371, for a tenth of size (docs/decisions/009). 128 KiB are a hash table of fixed size.
const WINDOW_BITS: i32 = 13;
const MEM_LEVEL: i32 = 5;

/// Value that is added to the window's bits to request a gzip member.
const GZIP_WINDOW_FLAG: i32 = 16;

/// Memory of an encoder in bytes, measured with zlib-rs 0.6.
const ENCODER_SIZE: usize = 178 << 10;

/// Returns the memory that an encoder takes at any level, in bytes.
pub(super) fn zlib_encoder_size(_level: StreamLevel) -> usize {
    ENCODER_SIZE
}

/// A streaming encoder of zlib-rs.
pub(super) struct ZlibEncoder(Deflate);

impl ZlibEncoder {
    /// Allocates an encoder; `None` if memory is refused.
    pub(super) fn new(level: StreamLevel) -> Option<Self> {
        // zlib-rs would panic: allocate as much first
        let mut room = Vec::<u8>::new();
        black_box(&mut room).try_reserve_exact(ENCODER_SIZE).ok()?;
        drop(black_box(room));
        let level = usize::from(level).clamp(1, ZLIB_LEVELS.len()) - 1;
        Some(Self(Deflate::new_with_config(DeflateConfig {
            level: ZLIB_LEVELS[level],
            window_bits: WINDOW_BITS + GZIP_WINDOW_FLAG,
            mem_level: MEM_LEVEL,
            ..DeflateConfig::default()
        })))
    }
}

impl StreamEncoder for ZlibEncoder {
    fn compress_input(
        &mut self,
        input: &[u8],
        flush: FlushMode,
        output: &mut [u8],
    ) -> Result<EncodeProgress, StreamEncoderError> {
        let (taken, written) = (self.0.total_in(), self.0.total_out());
        let action = match flush {
            FlushMode::None => DeflateFlush::NoFlush,
            FlushMode::Sync => DeflateFlush::SyncFlush,
            FlushMode::Finish => DeflateFlush::Finish,
        };
        let status = self
            .0
            .compress(input, output, action)
            .map_err(|_| StreamEncoderError)?;
        let consumed = (self.0.total_in() - taken) as usize;
        let written = (self.0.total_out() - written) as usize;
        Ok(EncodeProgress {
            consumed,
            written,
            complete: match flush {
                FlushMode::Finish => status == Status::StreamEnd,
                _ => consumed == input.len() && written < output.len(),
            },
        })
    }
}

impl fmt::Debug for ZlibEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Zlib")
    }
}
