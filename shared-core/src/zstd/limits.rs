//! Limits of levels and windows.

/// Level of the library, 1 to [`MAX_ZSTD_LEVEL`].
pub type ZstdLevel = u8;

/// Highest level: those above it would use windows beyond [`MAX_WINDOW_LOG`].
pub const MAX_ZSTD_LEVEL: ZstdLevel = 19;

/// Logarithm of the longest window in bytes that RFC 9659 allows in a content coding: 8 MiB.
pub const MAX_WINDOW_LOG: u32 = 23;
