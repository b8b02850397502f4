//! Streaming compression with zlib-rs, which every target has.

use std::fmt;
use std::hint::black_box;

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Status};

use super::encoder::{Encoder, Flush, Level, Progress, StreamError};

/// zlib's levels for the levels of a stream: at zlib-rs's level 1 hexadecimal text is 50 % longer.
const LEVELS: [i32; 3] = [2, 4, 6];

/// Window and memory level: 8 KiB of history and blocks of 2,048 symbols take 177 KiB instead of
/// 371, for a tenth of size (docs/decisions/009). 128 KiB are a hash table of fixed size.
const WINDOW_BITS: i32 = 13;
const MEM_LEVEL: i32 = 5;

/// Value that is added to the window's bits to request a gzip member.
const GZIP: i32 = 16;

/// Memory of an encoder in bytes, measured with zlib-rs 0.6.
const SIZE: usize = 178 << 10;

/// Returns the memory that an encoder takes at any level, in bytes.
pub(super) fn size(_level: Level) -> usize {
    SIZE
}

/// A streaming encoder of zlib-rs.
pub(super) struct Zlib(Deflate);

impl Zlib {
    /// Allocates an encoder; `None` if memory is refused.
    pub(super) fn new(level: Level) -> Option<Self> {
        // zlib-rs would panic: allocate as much first
        let mut room = Vec::<u8>::new();
        black_box(&mut room).try_reserve_exact(SIZE).ok()?;
        drop(black_box(room));
        let level = usize::from(level).clamp(1, LEVELS.len()) - 1;
        Some(Self(Deflate::new_with_config(DeflateConfig {
            level: LEVELS[level],
            window_bits: WINDOW_BITS + GZIP,
            mem_level: MEM_LEVEL,
            ..DeflateConfig::default()
        })))
    }
}

impl Encoder for Zlib {
    fn encode(
        &mut self,
        input: &[u8],
        flush: Flush,
        output: &mut [u8],
    ) -> Result<Progress, StreamError> {
        let (taken, written) = (self.0.total_in(), self.0.total_out());
        let action = match flush {
            Flush::None => DeflateFlush::NoFlush,
            Flush::Sync => DeflateFlush::SyncFlush,
            Flush::Finish => DeflateFlush::Finish,
        };
        let status = self
            .0
            .compress(input, output, action)
            .map_err(|_| StreamError)?;
        let consumed = (self.0.total_in() - taken) as usize;
        let written = (self.0.total_out() - written) as usize;
        Ok(Progress {
            consumed,
            written,
            complete: match flush {
                Flush::Finish => status == Status::StreamEnd,
                _ => consumed == input.len() && written < output.len(),
            },
        })
    }
}

impl fmt::Debug for Zlib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Zlib")
    }
}
