//! One HTTP exchange: a sans-I/O state machine.
//!
//! A host drives it through [`drive`], which returns the next step; `docs/exchange.md` lists the
//! events and the steps. The machine is [`Exchange`]: it receives events and produces head edits
//! and bodies.
//!
//! The moves are in [`transitions`]; a call that the present state does not allow is an error of
//! the host and returns [`Misuse`]. No call panics on data from the network, and none loses a
//! byte: the original is kept until the response is decided.

mod actions;
mod body;
mod buffered;
mod cache;
mod compress;
mod conversion;
pub mod drive;
mod enforce_response_limit;
mod head;
mod head_policy;
mod machine;
mod phase;
mod policy;
mod probe;
mod probe_requests;
mod query_calls;
mod request_decompression;
mod request_rewrite;
mod response_body;
mod response_limit;
mod response_plan;
mod result_as_ssz;
mod step;
mod stream_encoder;
mod stream_steps;
mod transcode_steps;
pub mod transitions;
mod unverifiable;
mod upstream;
mod upstream_errors;
mod upstream_response;

pub use actions::{EndAction, HeadAction, Misuse, PieceAction};
pub use cache::fill::Fill;
pub use cache::lookup_request::{LookupAction, LookupRequest};
pub use cache::purge_request::PurgeRequest;
#[cfg(not(target_family = "wasm"))]
pub use cache::status_request::StatusRequest;
pub use head::{HeadEdit, Header, RequestHead, ResponseHead};
pub use machine::Exchange;
pub use stream_encoder::BodyStreamError;

use crate::{gzip, hash_keys};

/// Initializes the values that all exchanges of a process share, at a time when there is memory
/// for it.
pub fn prepare() {
    hash_keys::prepare();
    gzip::prepare();
}
