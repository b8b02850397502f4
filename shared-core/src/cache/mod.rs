//! Answers kept in the form in which they will be sent, so that a hit costs no
//! compression.
//!
//! [`entry`] is one answer without the id it was asked under, [`batch`] makes
//! a JSON-RPC batch of several, [`hot`] keeps them within a number of bytes,
//! [`flights`] lets one request fetch what many want, [`wake`] tells who waits to
//! go on, [`unkept`] says where waiting is of no use, and [`process`] holds what
//! the exchanges of a process share; [`ownership`] joins it to other processes, by a
//! [`link`] perhaps, for which [`wire`] writes entries as bytes. [`freshness`] says
//! what may be stored and for how long, [`http`] what its head says of that
//! (RFC 9111), [`scope`] what tells answers apart, [`memo`] which calls were
//! asked in the same words before, [`repeated`] which answers were given
//! before, [`changes`] what requests have changed. Nothing of that reads a clock or waits:
//! times are arguments, and who is to wake up is a result. `store` keeps
//! entries on disk (feature `store`), and may wait for it.

pub mod about;
pub mod batch;
pub mod chain;
pub mod changes;
mod check;
pub mod entry;
pub mod flights;
pub mod freshness;
pub mod hot;
pub mod http;
pub mod link;
pub mod memo;
mod own;
#[cfg(feature = "store")]
pub mod owner;
pub mod ownership;
pub mod process;
pub mod reason;
#[cfg(feature = "store")]
pub mod recompress;
pub mod repeated;
pub mod scope;
pub mod stale;
pub mod status;
#[cfg(feature = "store")]
pub mod store;
pub mod unkept;
pub mod wake;
pub mod wire;

/// A cryptographic hash of all that an answer depends on.
pub type Key = [u8; 32];

/// What answers of one chain, from one place, have in common: the first half of
/// the BLAKE3 hash of what it is made of.
pub type Namespace = [u8; 16];
