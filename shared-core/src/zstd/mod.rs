//! zstd (RFC 8878), with the C library.
//!
//! [`decode`] decompresses a complete body into a limited output, [`oneshot`] compresses one,
//! [`stream`] compresses one while it arrives. [`open_blocks`] compresses parts of bodies, so that
//! [`splice`] can assemble a frame from them and other parts. Errors are values: until the first
//! byte is sent the caller can fall back to the original.

mod context;
pub mod decode;
pub(crate) mod frame;
pub mod oneshot;
pub mod open_blocks;
mod pool;
pub mod splice;
pub mod stream;

pub use self::decode::{decompress_truncated_zstd, decompress_zstd};

/// Level of the library, 1 to [`MAX_ZSTD_LEVEL`].
pub type ZstdLevel = u8;

/// Highest level: those above it would use windows beyond [`MAX_WINDOW_LOG`].
pub const MAX_ZSTD_LEVEL: ZstdLevel = 19;

/// Logarithm of the longest window in bytes that RFC 9659 allows in a content coding: 8 MiB.
pub const MAX_WINDOW_LOG: u32 = 23;
