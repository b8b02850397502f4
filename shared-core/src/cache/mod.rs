//! Answers kept in the form in which they will be sent, so that a hit costs no
//! compression.
//!
//! [`entry`] is one answer without the id it was asked under, [`batch`] makes
//! a JSON-RPC batch of several, [`hot`] keeps them within a number of bytes,
//! [`flights`] lets one request fetch what many want, and [`process`] holds
//! what the exchanges of a process share. [`freshness`] says what may be
//! stored and for how long, [`http`] what its head says of that (RFC 9111),
//! [`scope`] what tells answers apart, [`memo`] which
//! calls were asked in the same words before. Nothing here reads a clock or waits: times are arguments, and who is to wake up is a
//! result.

pub mod batch;
mod check;
pub mod entry;
pub mod flights;
pub mod freshness;
pub mod hot;
pub mod http;
pub mod memo;
pub mod process;
pub mod scope;
pub mod status;

/// A cryptographic hash of all that an answer depends on.
pub type Key = [u8; 32];
