//! Compression of response bodies in the content codings that sszip sends: the functions of
//! [`gzip`](crate::gzip) and [`zstd`](crate::zstd), by the coding that a client receives.

pub(crate) mod in_place;

use crate::content_coding::SupportedContentCoding;
use crate::gzip::oneshot::{
    compressed_bound, gzip_oneshot_into, off_loop_min_length, OneshotError,
};
use crate::gzip::stream::{fastest_encoder_size, new_fastest_encoder, StreamEncoder, StreamLevel};
use crate::zstd::oneshot::{zstd_compressed_bound, zstd_off_loop_min_length, zstd_oneshot_into};
use crate::zstd::stream::{zstd_encoder_size, ZstdEncoder};
use crate::zstd::ZstdLevel;

/// The levels at which the response bodies of a route are compressed in one content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyCompressor {
    /// gzip.
    Gzip {
        /// Level of complete bodies: libdeflate's, 0 to 12.
        level: u8,
        /// Level of bodies that are compressed while they arrive.
        stream_level: StreamLevel,
    },
    /// zstd.
    Zstd {
        /// Level of complete bodies.
        level: ZstdLevel,
        /// Level of bodies that are compressed while they arrive.
        stream_level: StreamLevel,
    },
}

impl BodyCompressor {
    /// Returns the content coding of the compressed bodies.
    pub fn content_coding(self) -> SupportedContentCoding {
        match self {
            BodyCompressor::Gzip { .. } => SupportedContentCoding::Gzip,
            BodyCompressor::Zstd { .. } => SupportedContentCoding::Zstd,
        }
    }

    /// Compresses a complete body to fewer than `limit` bytes in `output`, which is empty and may
    /// have capacity. Afterwards it owns exactly the memory of its length.
    ///
    /// # Errors
    /// [`OneshotError`]; the body is unchanged.
    pub fn compress_oneshot_into(
        self,
        body: &[u8],
        limit: usize,
        output: Vec<u8>,
    ) -> Result<Vec<u8>, OneshotError> {
        match self {
            BodyCompressor::Gzip { level, .. } => gzip_oneshot_into(body, level, limit, output),
            BodyCompressor::Zstd { level, .. } => zstd_oneshot_into(body, level, limit, output),
        }
    }

    /// Returns a limit for [`compress_oneshot_into`](Self::compress_oneshot_into) that every
    /// compressed form of `length` bytes stays below.
    pub fn compressed_bound(self, length: usize) -> usize {
        match self {
            BodyCompressor::Gzip { .. } => compressed_bound(length),
            BodyCompressor::Zstd { .. } => zstd_compressed_bound(length),
        }
    }

    /// Returns the length in bytes beyond which a body is compressed off the event loop.
    pub(crate) fn off_loop_min_length(self) -> usize {
        match self {
            BodyCompressor::Gzip { level, .. } => off_loop_min_length(level),
            BodyCompressor::Zstd { level, .. } => zstd_off_loop_min_length(level),
        }
    }

    /// Returns the memory that an encoder of a stream takes for its whole life, in bytes.
    pub fn stream_encoder_size(self) -> usize {
        match self {
            BodyCompressor::Gzip { stream_level, .. } => fastest_encoder_size(stream_level),
            BodyCompressor::Zstd { stream_level, .. } => zstd_encoder_size(stream_level),
        }
    }

    /// Allocates an encoder of a stream. `None` if memory is refused.
    pub fn new_stream_encoder(self) -> Option<Box<dyn StreamEncoder>> {
        match self {
            BodyCompressor::Gzip { stream_level, .. } => new_fastest_encoder(stream_level),
            BodyCompressor::Zstd { stream_level, .. } => {
                Some(Box::new(ZstdEncoder::new(stream_level)?))
            }
        }
    }
}
