//! One HTTP exchange: a sans-I/O state machine.
//!
//! A host drives it through [`drive`], which returns the next step; `docs/exchange.md` lists the
//! events and the steps. The machine is [`Exchange`]: it receives events and produces head edits
//! and bodies.
//!
//! The moves are in [`transitions`]; a call that the present state does not allow is an error of
//! the host and returns [`HostMisuse`]. No call panics on data from the network, and none loses a
//! byte: the original is kept until the response is decided.

mod cache;
pub mod drive;
mod machine;
mod request;
mod response;
mod ssz;

pub use crate::exchange::cache::lookup::request::{LookupAction, LookupRequest};
pub use cache::fill::CacheFill;
pub use cache::purge_request::PurgeHttpRequest;
#[cfg(not(target_family = "wasm"))]
pub use cache::status_request::StatusPageRequest;
pub use machine::actions::{BodyEndAction, BodyPieceAction, HostMisuse, ResponseHeadAction};
pub use machine::message_head::{HeadEdit, Header, RequestHead, ResponseHead};
pub use machine::{transitions, Exchange};
pub use response::stream_encoder::BodyStreamError;

use crate::{gzip, hash_keys};

/// Initializes the values that all exchanges of a process share, at a time when there is memory
/// for it.
pub fn initialize_process_globals() {
    hash_keys::create_hash_keys();
    gzip::open_codec_libraries();
}
