//! zstd (RFC 8878), with the C library.
//!
//! [`decode`] decompresses a complete body into a limited output, [`oneshot`] compresses one,
//! [`stream`] compresses one while it arrives. [`open_blocks`] compresses parts of bodies, so that
//! [`splice`] can assemble a frame from them and other parts. Errors are values: until the first
//! byte is sent the caller can fall back to the original.

mod context;
pub mod decode;
pub(crate) mod frame;
mod limits;
pub mod oneshot;
pub mod open_blocks;
mod pool;
pub mod splice;
pub mod stream;

pub use self::decode::{decompress_truncated_zstd, decompress_zstd};
pub use self::limits::{ZstdLevel, MAX_WINDOW_LOG, MAX_ZSTD_LEVEL};
