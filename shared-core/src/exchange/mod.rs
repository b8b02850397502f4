//! One HTTP exchange: a sans-I/O state machine.
//!
//! A host drives it through [`drive`], which says what it is to do next;
//! `docs/exchange.md` has the events and the steps. The machine itself is
//! [`Exchange`]: what happened goes in, what there is to send comes out.
//!
//! The moves are in [`transitions`]; a call that is not a move from the
//! present state is the host's mistake and answered with [`Misuse`]. No call
//! panics on what comes from the network, none loses a byte: until the answer
//! has been decided the original is kept.

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

/// Makes what all exchanges of a process share, and opens what they use, before
/// there may be no memory for it.
pub fn prepare() {
    ids::prepare();
    gzip::prepare();
}
