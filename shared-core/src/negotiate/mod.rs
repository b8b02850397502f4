//! What the two sides of an exchange may be sent, by RFC 9110.
//!
//! Pure functions over field values. Nothing here fails: what can't be
//! understood is read in the way that changes least.

pub mod accept;
pub mod accept_encoding;
pub mod cache_control;
pub mod etag;
pub mod list;
pub mod media_type;
pub mod vary;
mod weight;
