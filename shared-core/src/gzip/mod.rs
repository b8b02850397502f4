//! gzip (RFC 1952), over libdeflate in one shot and over ISA-L or zlib-rs
//! piece by piece.
//!
//! [`oneshot`] codes a whole body, [`inflate`] decodes one under a cap,
//! [`stream`] codes one whose end nobody knows yet. Errors are values: up to
//! the first byte sent the caller has the original to fall back on.

pub mod inflate;
mod libdeflate;
pub mod oneshot;
mod pool;
pub mod stream;
