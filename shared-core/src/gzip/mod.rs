//! gzip (RFC 1952), over libdeflate in one shot and over ISA-L or zlib-rs
//! piece by piece.
//!
//! [`oneshot`] codes a whole body, [`inflate`] decodes one under a cap,
//! [`stream`] codes one whose end nobody knows yet. [`open`] codes what is
//! kept, so that [`splice`] can make a member of it with other parts. Errors
//! are values: up to the first byte sent the caller has the original to fall
//! back on.

#[cfg(target_arch = "x86_64")]
mod clmul;
pub mod crc;
#[cfg_attr(target_family = "wasm", path = "no_igzip_raw.rs")]
mod igzip_raw;
pub mod inflate;
#[cfg(not(target_family = "wasm"))]
mod isal;
mod libdeflate;
pub mod oneshot;
pub mod open;
mod pool;
pub(crate) mod shrinking;
pub mod splice;
pub mod stream;
mod walk;
#[cfg(target_family = "wasm")]
mod wasm_memory;

/// Whether this machine has ISA-L.
pub fn has_isal() -> bool {
    igzip_raw::is_available()
}

/// Opens the libraries of this machine now, not when they are needed first:
/// what can't be opened then, for want of memory, never is.
pub fn prepare() {
    igzip_raw::prepare();
    let _ = stream::Coder::fastest();
}
