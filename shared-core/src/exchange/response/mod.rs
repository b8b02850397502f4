//! The response of an exchange: the plan for its body, buffering, compression in one piece and as a
//! stream, and its limits.

pub(super) mod body_stages;
mod buffering;
mod compress;
pub(super) mod length_limit;
pub(super) mod pipeline;
pub(super) mod plan;
mod query_head;
pub(super) mod ready_response;
pub(super) mod stream_encoder;
mod stream_pieces;
mod too_long;
mod upstream_errors;
mod upstream_pieces;
