//! The state of a body that is compressed while it arrives.

use std::fmt;

use crate::body_compressor::BodyCompressor;
use crate::config::RouteConfig;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::response::pipeline::BufferedBody;
use crate::faults::{is_fault_injected, InjectedTestFault};
use crate::gzip::stream::{EncodeProgress, FlushMode, StreamEncoder, StreamEncoderError};
use crate::memory;
use crate::response_mode::ResponseMode;

/// The reason why a response that is compressed while it arrives must be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStreamError {
    /// The body is not being streamed.
    Misuse(HostMisuse),
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

impl From<HostMisuse> for BodyStreamError {
    fn from(misuse: HostMisuse) -> Self {
        BodyStreamError::Misuse(misuse)
    }
}

impl From<StreamEncoderError> for BodyStreamError {
    fn from(StreamEncoderError: StreamEncoderError) -> Self {
        BodyStreamError::Encoder
    }
}

/// A response body that is compressed while it arrives: the encoder, and the buffered bytes that it
/// has not consumed.
#[derive(Debug)]
pub(in crate::exchange) struct CompressedBodyStream {
    pub(in crate::exchange) encoder: Box<dyn StreamEncoder>,
    /// Compressor from which the encoder was made.
    pub(in crate::exchange) compressor: BodyCompressor,
    /// Bytes that were buffered before the stream began.
    pub(in crate::exchange) buffered: BufferedBody,
    /// Number of buffered bytes that the encoder has consumed.
    pub(in crate::exchange) encoded: usize,
}

impl CompressedBodyStream {
    /// Returns a stream that begins with the buffered bytes, or the reason why there is none.
    pub(in crate::exchange) fn start_encoding(
        config: &RouteConfig,
        compressor: BodyCompressor,
        buffered: &mut BufferedBody,
    ) -> Result<Box<Self>, ResponseMode> {
        if memory::is_memory_short() || is_fault_injected(InjectedTestFault::FailAlloc) {
            return Err(ResponseMode::Memory);
        }
        buffered.reserve_body_and_output(
            config,
            buffered.body.len(),
            compressor.stream_encoder_size(),
        )?;
        let encoder = compressor
            .new_stream_encoder()
            .ok_or(ResponseMode::Memory)?;
        Ok(Box::new(Self {
            encoder,
            compressor,
            buffered: std::mem::take(buffered),
            encoded: 0,
        }))
    }

    /// Encodes buffered bytes that were not fed yet, as far as `output` has room. `complete` is
    /// set when all of them were fed.
    pub(in crate::exchange) fn encode_buffered_bytes(
        &mut self,
        output: &mut [u8],
    ) -> Result<EncodeProgress, StreamEncoderError> {
        let rest = &self.buffered.body[self.encoded..];
        if rest.is_empty() {
            return Ok(EncodeProgress {
                consumed: 0,
                written: 0,
                complete: true,
            });
        }
        // the buffered bytes are flushed with the rest
        let fed = self.encoder.compress_input(rest, FlushMode::None, output)?;
        self.encoded += fed.consumed;
        let complete = self.encoded == self.buffered.body.len();
        if complete {
            self.buffered.body = Vec::new();
            self.encoded = 0;
            self.buffered
                .shrink_reservation(self.compressor.stream_encoder_size());
        }
        Ok(EncodeProgress {
            consumed: 0,
            written: fed.written,
            complete,
        })
    }
}
