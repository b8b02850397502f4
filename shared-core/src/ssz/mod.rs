//! SSZ (consensus-specs, ssz/simple-serialize.md) as data: types are tables,
//! and four functions walk them. No type has code of its own, and nothing is
//! built in between: bytes in, bytes out.
//!
//! | module                   | concern                                         |
//! |--------------------------|-------------------------------------------------|
//! | [`schema`]               | the types of a fork and preset: `forks/*.types` |
//! | [`to_ssz`](mod@to_ssz)   | JSON to SSZ, while the pieces arrive            |
//! | [`to_json`](mod@to_json) | SSZ to JSON, piece by piece                     |
//! | [`check`](mod@check)     | whether bytes are a value of a type             |
//! | [`root`]                 | hash_tree_root                                  |
//! | [`path`]                 | one part of a value, without the rest           |
//! | `rlp`                    | what witnesses and transactions have of it      |
//! | [`error`]                | what is wrong with an input, and where          |

pub mod check;
pub mod error;
pub mod path;
mod rlp;
pub mod root;
pub mod schema;
pub mod to_json;
pub mod to_ssz;

pub use self::check::check;
pub use self::error::{Error, Problem};
pub use self::path::select;
pub use self::rlp::blob_hashes;
pub use self::root::hash_tree_root;
pub use self::schema::{Fork, Preset, Schema, TypeId};
pub use self::to_json::{to_json, ToJson};
pub use self::to_ssz::{to_ssz, version, Flags, Form, Parts, ToSsz};
