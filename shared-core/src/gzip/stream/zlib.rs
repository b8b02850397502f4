//! zlib-rs, behind flate2: the coder that every target has.

use flate2::{Compress, Compression, FlushCompress, Status};

use super::{Encoder, Flush, Level, Progress, StreamError};

/// zlib's levels for ours: level 1 of zlib-rs makes hex half as large again.
const LEVELS: [u32; 3] = [2, 4, 6];

/// 16 KiB of history: half of zlib's memory, for a few per cent of size.
const WINDOW_BITS: u8 = 14;

/// What an encoder takes, in bytes: measured, with zlib-rs 0.6.
pub(super) const SIZE: usize = 320 << 10;

#[derive(Debug)]
pub(super) struct Zlib(Compress);

impl Zlib {
    pub(super) fn new(level: Level) -> Self {
        let level = usize::from(level).clamp(1, LEVELS.len()) - 1;
        let level = Compression::new(LEVELS[level]);
        Self(Compress::new_gzip(level, WINDOW_BITS))
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
            Flush::None => FlushCompress::None,
            Flush::Sync => FlushCompress::Sync,
            Flush::Finish => FlushCompress::Finish,
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
