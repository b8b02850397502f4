//! The share of a sandbox in the memory for entries. Every worker has a sandbox of its own and
//! sandboxes share no memory, so that they count each other in shared data of the proxy.

use std::cell::Cell;

use crate::abi::{self, SharedDataValue};

/// Key of the shared data with the sandboxes that have a cache.
const REGISTRY_KEY: &str = "sszip.sandboxes";

/// Time after which a sandbox that was not seen any more does not count, in milliseconds.
const SEEN_MS: u64 = 5_000;

/// Maximum number of attempts to change the registry while other sandboxes change it.
const MAX_CHANGE_ATTEMPTS: u32 = 100;

/// Version that no value has: a change with this version succeeds only if the value is absent.
const ABSENT_VALUE_VERSION: u32 = u32::MAX;

/// Length of a sandbox's row in the registry in bytes: its number, and the time when it was seen.
const ROW_BYTES: usize = 16;

/// The number of a sandbox in the registry.
#[derive(Debug)]
pub struct SandboxRegistration {
    number: u64,
    /// Number of sandboxes when it was determined last.
    last_count: Cell<u64>,
}

impl SandboxRegistration {
    /// Creates a registration, which has no effect before the first
    /// [count](Self::count_sandboxes).
    pub fn new() -> Self {
        Self {
            number: abi::random_number(),
            last_count: Cell::new(1),
        }
    }

    /// Registers the sandbox as seen at `now`, in monotonic milliseconds, and returns the number of
    /// sandboxes that were seen of late.
    pub fn count_sandboxes(&self, now: u64) -> u64 {
        for _ in 0..MAX_CHANGE_ATTEMPTS {
            let (rows, version) = match abi::read_proxy_shared_data(REGISTRY_KEY) {
                SharedDataValue::Present(rows, version) => (rows, version),
                SharedDataValue::Absent => (Vec::new(), ABSENT_VALUE_VERSION),
                SharedDataValue::Unsupported => break,
            };
            let rows = update_rows(&rows, self.number, now);
            match abi::write_proxy_shared_data(REGISTRY_KEY, &rows, version) {
                Some(true) => {
                    self.last_count.set((rows.len() / ROW_BYTES) as u64);
                    break;
                }
                Some(false) => {}
                None => break,
            }
        }
        self.last_count.get()
    }
}

/// Returns the rows of the sandboxes that were seen of late, with one of `number` at `now`.
fn update_rows(rows: &[u8], number: u64, now: u64) -> Vec<u8> {
    let mut updated = Vec::with_capacity(rows.len() + ROW_BYTES);
    let (rows, _) = rows.as_chunks::<ROW_BYTES>();
    for row in rows {
        let (other, seen) = row.split_at(ROW_BYTES / 2);
        let parse = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let is_seen = parse(seen).saturating_add(SEEN_MS) >= now;
        if is_seen && parse(other) != number {
            updated.extend_from_slice(row);
        }
    }
    updated.extend_from_slice(&number.to_le_bytes());
    updated.extend_from_slice(&now.to_le_bytes());
    updated
}
