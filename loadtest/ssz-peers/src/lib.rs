//! Typed peers of `sszip_core::ssz`: the containers of the specs for libssz, ethereum_ssz and
//! ssz_rs, with JSON through serde. Tests compare them with the type tables of the core, and
//! `ssz-bench` compares their speed.

#[macro_use]
mod containers;
pub mod json;
pub mod peers;
pub mod sample;

use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

/// Whether the peers also compute the root of a type: a witness has progressive lists (EIP-7916),
/// which no peer supports. Its bytes are the same.
pub fn has_peer_hash_root(name: &str) -> bool {
    name != "ExecutionWitness"
}

/// Returns the core's type table for a type of the peers.
///
/// # Panics
/// Panics if there is no such type.
#[allow(clippy::panic)]
pub fn resolve_peer_type(name: &str) -> (&'static Schema, TypeId) {
    let (fork, name) = match name.strip_suffix("Phase0") {
        Some(name) => (Fork::Phase0, name),
        None if name == "PendingAttestation" => (Fork::Phase0, name),
        None => (Fork::Deneb, name),
    };
    let schema = Schema::for_fork(fork, Preset::Mainnet);
    match schema.find_type(name) {
        Some(ty) => (schema, ty),
        None => panic!("fork {fork} has no type {name}"),
    }
}
