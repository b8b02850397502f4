//! Typed peers of `sszip_core::ssz`: containers of the specs for libssz,
//! ethereum_ssz and ssz_rs, with JSON through serde. Tests compare them with the
//! tables of the core, and `ssz-bench` their speed.

#[macro_use]
mod containers;
pub mod json;
pub mod peers;
pub mod sample;

use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

/// Whether the peers have the roots of a type, too: a witness has lists that are
/// progressive (EIP-7916), which none of them knows. The bytes are the same.
pub fn has_root(name: &str) -> bool {
    name != "ExecutionWitness"
}

/// Our table of a type that the peers have under that name.
///
/// # Panics
/// If there is none.
#[allow(clippy::panic)]
pub fn table_of(name: &str) -> (&'static Schema, TypeId) {
    let (fork, name) = match name.strip_suffix("Phase0") {
        Some(name) => (Fork::Phase0, name),
        None if name == "PendingAttestation" => (Fork::Phase0, name),
        None => (Fork::Deneb, name),
    };
    let schema = Schema::of(fork, Preset::Mainnet);
    match schema.find(name) {
        Some(ty) => (schema, ty),
        None => panic!("{fork} has no {name}"),
    }
}
