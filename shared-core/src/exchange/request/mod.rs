//! The request of an exchange: the checks of its head and calls, and its body on the way to the
//! upstream.

mod block_range_policy;
pub(super) mod call_policy;
pub(super) mod decompression;
pub(super) mod engine_targets;
mod head_policy;
mod query;
pub(super) mod query_calls;
mod rewrite;
pub(super) mod unverifiable;
