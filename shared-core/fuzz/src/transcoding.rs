//! A host in memory, and what holds of its exchanges.

use crate::ssz::{laws, naive};

#[path = "../../tests/support/driven.rs"]
mod driven;
#[path = "../../tests/transcoding/exchanges/mod.rs"]
pub mod exchanges;
#[allow(dead_code)] // the table's, which has more cases
#[path = "../../tests/table/fields.rs"]
mod fields;
#[allow(dead_code)]
#[path = "../../tests/table/host.rs"]
mod host;
