//! The interface of streaming encoders, which each library implements.

/// The part of its input that an encoder must emit before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// The encoder may hold input back to compress it better with the input that follows.
    None,
    /// All input can be decompressed from the output that was written.
    Sync,
    /// The body is complete, and the end of the gzip member or zstd frame is written.
    Finish,
}

/// The numbers of bytes that one step of an encoder read and wrote, and whether the step is
/// complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeProgress {
    /// Bytes of input that were consumed.
    pub consumed: usize,
    /// Bytes of output that were written.
    pub written: usize,
    /// Whether all input was consumed, and flushed as requested. If not, the output was full:
    /// call again with the rest and the same flush.
    pub complete: bool,
}

/// The error that a codec library reports in the middle of a stream, whose encoder can't be used
/// any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEncoderError;

/// A streaming encoder of one gzip member or zstd frame, which writes into buffers of the caller.
pub trait StreamEncoder: Send + std::fmt::Debug {
    /// Compresses `input` into `output`.
    ///
    /// # Errors
    /// [`StreamEncoderError`] if the library reports one; the stream must be aborted.
    fn compress_input(
        &mut self,
        input: &[u8],
        flush: FlushMode,
        output: &mut [u8],
    ) -> Result<EncodeProgress, StreamEncoderError>;
}

/// The compression level of a stream: 1 (fastest) to 3.
pub type StreamLevel = u8;
