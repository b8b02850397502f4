//! gzip (RFC 1952) in one shot, over libdeflate.
//!
//! [`oneshot`] codes a whole body, [`inflate`] decodes one under a cap. Both
//! return `None`-like errors rather than panic: the caller always has the
//! original to fall back on.

pub mod inflate;
mod libdeflate;
pub mod oneshot;
mod pool;
