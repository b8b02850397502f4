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
mod answer;
mod body;
mod bound;
mod bounded;
mod cache;
mod called;
mod coding;
mod decoding;
pub mod drive;
mod head;
mod held;
mod inquiring;
mod inquiry;
mod judgement;
mod machine;
mod node;
mod phase;
mod policy;
mod policy_of_head;
mod query;
mod rewriting;
mod step;
mod stream;
mod streaming;
mod transcode;
mod transcoding;
pub mod transitions;
mod unjudged;
mod upstream;
mod upstream_errors;

pub use actions::{EndAction, HeadAction, Misuse, PieceAction};
pub use cache::asked::{Asked, LookUp};
pub use cache::fill::Fill;
pub use cache::purging::Purge;
#[cfg(not(target_family = "wasm"))]
pub use cache::telling::Tell;
pub use head::{Field, HeadEdit, RequestHead, ResponseHead};
pub use machine::Exchange;
pub use stream::StreamFailure;

use crate::gzip;
use crate::jsonrpc::ids;

/// Initializes the values that all exchanges of a process share, at a time when there is memory
/// for it.
pub fn prepare() {
    ids::prepare();
    gzip::prepare();
}
