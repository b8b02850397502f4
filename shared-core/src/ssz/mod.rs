//! SSZ (consensus-specs, ssz/simple-serialize.md), driven by tables: types are data, and four
//! walkers read them. No type has code of its own, and no intermediate values are built: bytes in,
//! bytes out.
//!
//! | module                   | concern                                         |
//! |--------------------------|-------------------------------------------------|
//! | [`schema`]               | the types of a fork and preset: `forks/*.types` |
//! | [`to_ssz`](mod@to_ssz)   | JSON to SSZ, streaming                          |
//! | [`to_json`](mod@to_json) | SSZ to JSON, streaming                          |
//! | [`check`](mod@check)     | validation of SSZ                               |
//! | [`root`]                 | hash_tree_root                                  |
//! | [`path`]                 | selection of a part of a value by its path      |
//! | `rlp`                    | RLP of witnesses and transactions               |
//! | [`error`]                | errors with their position in the input         |

pub mod check;
pub mod error;
pub mod path;
mod rlp;
pub mod root;
pub mod schema;
pub mod to_json;
pub mod to_ssz;

pub use self::check::check_ssz;
pub use self::error::{SszError, SszErrorKind};
pub use self::path::locate_value_at_path;
pub use self::rlp::transaction_blob_hashes;
pub use self::root::hash_tree_root;
pub use self::schema::{Fork, Preset, Schema, TypeId};
pub use self::to_json::{ssz_to_json, SszToJson};
pub use self::to_ssz::{
    json_to_ssz, read_envelope_version, EnvelopeFlags, JsonEnvelopeForm, JsonToSsz,
    UnorderedSszParts,
};
