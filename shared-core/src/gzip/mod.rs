//! gzip (RFC 1952): one-shot compression with libdeflate, streaming compression with ISA-L or
//! zlib-rs.
//!
//! [`oneshot`] compresses a complete body, [`inflate`] decompresses one into a limited output,
//! [`stream`] compresses one while it arrives. [`open_stream`] compresses entries, so that
//! [`splice`] can assemble a member from them and other parts; `preset_block` compresses short texts
//! between them. Errors are values: until the first
//! byte is sent the caller can fall back to the original.

#[cfg(target_arch = "x86_64")]
mod clmul;
mod compressor_pool;
pub mod crc;
mod deflate_walk;
pub(crate) mod format;
#[cfg_attr(target_family = "wasm", path = "no_igzip_raw.rs")]
mod igzip_raw;
pub mod inflate;
#[cfg(not(target_family = "wasm"))]
mod isal;
mod libdeflate;
pub mod oneshot;
pub mod open_stream;
pub(crate) mod preset_block;
mod preset_codes;
pub mod splice;
pub mod stream;
#[cfg(target_family = "wasm")]
mod wasm_memory;

/// Whether ISA-L, the library of igzip, is installed on this machine.
pub fn has_isal() -> bool {
    igzip_raw::is_igzip_available()
}

/// Opens the libraries of this machine before they are needed: a library that can't be opened
/// later, because memory is short, would never be used.
pub fn open_codec_libraries() {
    igzip_raw::load_igzip_library();
    let _ = stream::CodecLibraryKind::fastest_library();
}
