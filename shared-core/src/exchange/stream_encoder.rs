//! The state of a body that is compressed while it arrives.

use std::fmt;

use super::actions::Misuse;
use super::buffered::BufferedBody;
use crate::config::RouteConfig;
use crate::faults::{injected, Fault};
use crate::gzip::stream;
use crate::gzip::stream::{Encoder, Flush, Progress, StreamError};
use crate::memory;
use crate::mode::Mode;

/// The reason why a step of a stream failed. The stream must be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStreamError {
    /// The body is not being streamed.
    Misuse(Misuse),
    /// The encoder failed.
    Encoder,
    /// The body ended before its declared length.
    Short,
}

impl fmt::Display for BodyStreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyStreamError::Misuse(misuse) => misuse.fmt(f),
            BodyStreamError::Encoder => f.write_str("the stream encoder failed"),
            BodyStreamError::Short => f.write_str("the body ended before its length was reached"),
        }
    }
}

impl std::error::Error for BodyStreamError {}

impl From<Misuse> for BodyStreamError {
    fn from(misuse: Misuse) -> Self {
        BodyStreamError::Misuse(misuse)
    }
}

impl From<StreamError> for BodyStreamError {
    fn from(StreamError: StreamError) -> Self {
        BodyStreamError::Encoder
    }
}

/// The encoder of a body that is compressed while it arrives, and the bytes that it has not
/// consumed.
#[derive(Debug)]
pub(super) struct BodyStream {
    pub(super) encoder: Box<dyn Encoder>,
    /// Bytes that were buffered before the stream began.
    pub(super) buffered: BufferedBody,
    /// Number of buffered bytes that the encoder has consumed.
    pub(super) encoded: usize,
}

impl BodyStream {
    /// Returns a stream that begins with the buffered bytes, or the reason why there is none.
    pub(super) fn open(
        config: &RouteConfig,
        buffered: &mut BufferedBody,
    ) -> Result<Box<Self>, Mode> {
        if memory::is_short() || injected(Fault::FailAlloc) {
            return Err(Mode::Memory);
        }
        let level = config.stream_level;
        buffered.claim_memory(config, buffered.body.len(), stream::size(level))?;
        let encoder = stream::encoder(level).ok_or(Mode::Memory)?;
        Ok(Box::new(Self {
            encoder,
            buffered: std::mem::take(buffered),
            encoded: 0,
        }))
    }

    /// Encodes buffered bytes that were not fed yet, as far as `output` has room. `complete` is
    /// set when all of them were fed.
    pub(super) fn feed_buffered(
        &mut self,
        config: &RouteConfig,
        output: &mut [u8],
    ) -> Result<Progress, StreamError> {
        let rest = &self.buffered.body[self.encoded..];
        if rest.is_empty() {
            return Ok(Progress {
                consumed: 0,
                written: 0,
                complete: true,
            });
        }
        // the buffered bytes are flushed with the rest
        let fed = self.encoder.encode(rest, Flush::None, output)?;
        self.encoded += fed.consumed;
        let complete = self.encoded == self.buffered.body.len();
        if complete {
            self.buffered.body = Vec::new();
            self.encoded = 0;
            self.buffered.shrink_to(stream::size(config.stream_level));
        }
        Ok(Progress {
            consumed: 0,
            written: fed.written,
            complete,
        })
    }
}
