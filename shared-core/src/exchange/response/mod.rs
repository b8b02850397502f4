//! The response of an exchange: the plan for its body, buffering, compression in one piece and as a
//! stream, and its limits.

pub(super) mod body;
mod compress;
mod enforce_limit;
pub(super) mod limit;
pub(super) mod pipeline;
pub(super) mod plan;
pub(super) mod stream_encoder;
mod stream_pieces;
mod upstream_errors;
mod upstream_pieces;
mod withheld_body;
