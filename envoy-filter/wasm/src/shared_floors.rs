//! Tip floors that all sandboxes of a proxy share as values of the proxy, since
//! sandboxes share no memory.
//!
//! A hit about the head reads several numbers of its floor, and a batch does so for each call. The
//! row is read from the proxy once in each call of the proxy: a lookup may use the numbers at the
//! beginning of the call in which it runs.

use std::cell::{Cell, RefCell};

use sszip_core::cache::tip_floor::{HostTipFloorStore, TipFloorRow};
use sszip_core::cache::CacheNamespace;

use crate::abi::{self, SharedDataValue};

/// Maximum number of attempts to change a value that other sandboxes change at
/// the same time.
const MAX_CHANGE_ATTEMPTS: u32 = 1000;

/// Version that no value has: a change with this version succeeds only if the
/// value is absent.
const ABSENT_VALUE_VERSION: u32 = u32::MAX;

thread_local! {
    /// The rows of the namespaces that were used, a few.
    static KNOWN_ROWS: RefCell<Vec<KnownRow>> = const { RefCell::new(Vec::new()) };
    /// Number of the present call of the proxy.
    static PROXY_CALL: Cell<u64> = const { Cell::new(0) };
}

/// The key of a namespace's row, and the row when it was read or changed last.
struct KnownRow {
    namespace: CacheNamespace,
    key: String,
    /// The row, and the number of the call of the proxy in which it was read.
    last_read: Option<(u64, TipFloorRow)>,
}

/// Starts a call of the proxy: rows that were read before are read again when they are used.
pub fn expire_read_rows() {
    PROXY_CALL.set(PROXY_CALL.get().wrapping_add(1));
}

/// The tip floors of all sandboxes, in shared data of the proxy.
#[derive(Debug)]
pub struct SharedDataTipFloors;

impl HostTipFloorStore for SharedDataTipFloors {
    fn read_floor_row(&self, namespace: &CacheNamespace) -> Option<TipFloorRow> {
        let call = PROXY_CALL.get();
        use_known_row(namespace, |known| match known.last_read {
            Some((read_call, row)) if read_call == call => Some(row),
            _ => {
                let row = read_shared_row(&known.key).map(|(row, _)| row);
                known.last_read = row.map(|row| (call, row));
                row
            }
        })
    }

    fn update_floor_row(
        &self,
        namespace: &CacheNamespace,
        change: &dyn Fn(&mut TipFloorRow),
    ) -> bool {
        let call = PROXY_CALL.get();
        use_known_row(namespace, |known| {
            let row = change_shared_row(&known.key, change);
            known.last_read = row.map(|row| (call, row));
            row.is_some()
        })
    }
}

/// Calls `action` with the known row of a namespace, which is added if it is absent.
fn use_known_row<R>(namespace: &CacheNamespace, action: impl FnOnce(&mut KnownRow) -> R) -> R {
    KNOWN_ROWS.with_borrow_mut(|rows| {
        let at = rows.iter().position(|row| row.namespace == *namespace);
        let at = at.unwrap_or_else(|| {
            rows.push(KnownRow {
                namespace: *namespace,
                key: floor_value_key(namespace),
                last_read: None,
            });
            rows.len() - 1
        });
        action(&mut rows[at])
    })
}

/// Reads the row under a key, with its version for a later change. `None`: the proxy does not
/// support shared data.
fn read_shared_row(key: &str) -> Option<(TipFloorRow, u32)> {
    match abi::read_proxy_shared_data(key) {
        SharedDataValue::Present(value, version) => Some((parse_floor_row(&value), version)),
        SharedDataValue::Absent => Some((TipFloorRow::default(), ABSENT_VALUE_VERSION)),
        SharedDataValue::Unsupported => None,
    }
}

/// Changes the row under a key, and returns the changed row. `None`: the proxy does not support
/// shared data, or other sandboxes change the row all the time.
fn change_shared_row(key: &str, change: &dyn Fn(&mut TipFloorRow)) -> Option<TipFloorRow> {
    for _ in 0..MAX_CHANGE_ATTEMPTS {
        let (former, version) = read_shared_row(key)?;
        let mut row = former;
        change(&mut row);
        if row == former {
            return Some(row);
        }
        let value: Vec<u8> = row.iter().flat_map(|number| number.to_le_bytes()).collect();
        if abi::write_proxy_shared_data(key, &value, version)? {
            return Some(row);
        }
    }
    None
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
