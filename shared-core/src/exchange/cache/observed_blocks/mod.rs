//! Blocks that a response shows to its client, while it is sent.

pub(in crate::exchange) mod observer;
mod response;
