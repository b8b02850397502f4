//! Tip floors that all sandboxes of a proxy share as values of the proxy, since
//! sandboxes share no memory.

use sszip_core::cache::tip_floor::{HostTipFloorStore, TipFloorRow};
use sszip_core::cache::CacheNamespace;

use crate::abi::{self, SharedDataValue};

/// Maximum number of attempts to change a value that other sandboxes change at
/// the same time.
const MAX_CHANGE_ATTEMPTS: u32 = 1000;

/// Version that no value has: a change with this version succeeds only if the
/// value is absent.
const ABSENT_VALUE_VERSION: u32 = u32::MAX;

/// The tip floors of all sandboxes, in shared data of the proxy.
#[derive(Debug)]
pub struct SharedDataTipFloors;

impl HostTipFloorStore for SharedDataTipFloors {
    fn read_floor_row(&self, namespace: &CacheNamespace) -> Option<TipFloorRow> {
        match abi::read_proxy_shared_data(&floor_value_key(namespace)) {
            SharedDataValue::Present(value, _) => Some(parse_floor_row(&value)),
            SharedDataValue::Absent => Some(TipFloorRow::default()),
            SharedDataValue::Unsupported => None,
        }
    }

    fn update_floor_row(
        &self,
        namespace: &CacheNamespace,
        change: &dyn Fn(&mut TipFloorRow),
    ) -> bool {
        let key = floor_value_key(namespace);
        for _ in 0..MAX_CHANGE_ATTEMPTS {
            let (mut row, version) = match abi::read_proxy_shared_data(&key) {
                SharedDataValue::Present(value, version) => (parse_floor_row(&value), version),
                SharedDataValue::Absent => (TipFloorRow::default(), ABSENT_VALUE_VERSION),
                SharedDataValue::Unsupported => return false,
            };
            change(&mut row);
            let value: Vec<u8> = row.iter().flat_map(|number| number.to_le_bytes()).collect();
            match abi::write_proxy_shared_data(&key, &value, version) {
                Some(true) => return true,
                Some(false) => {}
                None => return false,
            }
        }
        false
    }
}

fn floor_value_key(namespace: &CacheNamespace) -> String {
    let digits = namespace.iter().map(|byte| format!("{byte:02x}"));
    format!("sszip.heads.{}", digits.collect::<String>())
}

/// Parses the numbers of one namespace from a shared value. Missing or malformed numbers are zeros.
fn parse_floor_row(value: &[u8]) -> TipFloorRow {
    let mut row = TipFloorRow::default();
    for (number, bytes) in row.iter_mut().zip(value.chunks_exact(8)) {
        *number = bytes.try_into().map_or(0, u64::from_le_bytes);
    }
    row
}
