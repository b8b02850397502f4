//! Content negotiation between the two sides of an exchange (RFC 9110).
//!
//! Pure functions over header values. They do not fail: a value that can't be understood is read
//! in the way that changes least.

pub mod accept;
pub mod accept_encoding;
pub mod cache_control;
pub mod etag;
pub mod list_header;
pub mod media_type;
pub mod query_content;
pub mod vary;
mod weight;
