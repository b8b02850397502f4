//! A host in memory, and the properties of its exchanges.

use crate::ssz::{properties, reference};

#[path = "../../tests/support/driver_host.rs"]
mod driver_host;
#[path = "../../tests/transcoding/exchanges/mod.rs"]
pub mod exchanges;
#[allow(dead_code)] // the parity table uses the rest
#[path = "../../tests/table/fields.rs"]
mod fields;
#[allow(dead_code)]
#[path = "../../tests/table/host.rs"]
mod host;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../../tests/support/unzstd.rs"]
mod unzstd;
