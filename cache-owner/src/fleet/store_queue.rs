//! The queue of entries that are written to the fleet.
//!
//! No request waits for it. It has a maximum number of values and of bytes; further values are
//! dropped and counted, as the entry can be offered by another machine or at its next fill.
//!
//! Entries that were read from the store have a queue before it: they may have to be checked, and
//! are found on threads that must not wait.

use std::sync::atomic::AtomicU64;
use std::sync::Arc;
use std::time::Duration;

use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::store::AdmissionFilter;
use sszip_core::cache::CacheKey;
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::{mpsc, Mutex, OwnedSemaphorePermit, Semaphore};

use crate::clock::read_clocks;

/// Maximum number of values in the queue.
const MAX_QUEUED_VALUES: usize = 256;

/// Maximum total length of the values in the queue and in flight, in bytes.
const MAX_QUEUED_BYTES: usize = 32 << 20;

/// Maximum number of values that are written at a time.
pub(super) const MAX_WRITES: usize = 8;

/// Maximum number of entries from the store that wait to be offered.
const MAX_DISK_ENTRIES: usize = 64;

/// Number of offered keys that are remembered at least, in 1 MB. An entry that memory has evicted is
/// read from the store again at its next request, and not offered again each time.
const REMEMBERED_KEYS: usize = 1 << 18;

/// Time for which an offered key is remembered at least, in milliseconds: after that the server may
/// have lost the value.
const OFFER_INTERVAL_MS: u64 = 3_600_000;

/// A value that waits to be written.
pub(super) struct QueuedValue {
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) ttl: Duration,
    /// Part of the queue's bytes that the value takes.
    pub(super) _bytes: OwnedSemaphorePermit,
}

/// The queue of values that are written to the fleet.
pub struct StoreQueue {
    pub(super) queue: mpsc::Sender<QueuedValue>,
    pub(super) waiting: Mutex<mpsc::Receiver<QueuedValue>>,
    pub(super) room: Arc<Semaphore>,
    pub(super) disk_entries: mpsc::Sender<(CacheKey, Arc<OwnerMemoryEntry>)>,
    pub(super) waiting_disk_entries: Mutex<mpsc::Receiver<(CacheKey, Arc<OwnerMemoryEntry>)>>,
    offered: std::sync::Mutex<AdmissionFilter>,
    pub(crate) dropped: AtomicU64,
    pub(crate) too_long: AtomicU64,
}

impl StoreQueue {
    /// Creates an empty queue.
    pub(crate) fn new() -> Self {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED_VALUES);
        let (disk_entries, waiting_disk_entries) = mpsc::channel(MAX_DISK_ENTRIES);
        let now = read_clocks().monotonic;
        let offered = AdmissionFilter::new(REMEMBERED_KEYS, OFFER_INTERVAL_MS, now);
        Self {
            queue,
            waiting: Mutex::new(waiting),
            room: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)),
            disk_entries,
            waiting_disk_entries: Mutex::new(waiting_disk_entries),
            offered: std::sync::Mutex::new(offered),
            dropped: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
        }
    }

    /// Records that the entry of a key is offered at `now`, in monotonic milliseconds. Returns
    /// whether one was offered before, within an hour or two.
    pub(super) fn record_offer(&self, key: &CacheKey, now: u64) -> bool {
        lock_ignoring_poison(&self.offered).record_key_request(key, now)
    }

    /// Whether the queue has no place for another value.
    pub(super) fn is_full(&self) -> bool {
        self.queue.capacity() == 0
    }

    /// Total length of the values in the queue and in flight, in bytes.
    pub(crate) fn queued_bytes(&self) -> usize {
        MAX_QUEUED_BYTES.saturating_sub(self.room.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_offered_again_after_some_hours() {
        let queue = StoreQueue::new();
        let (key, now) = ([1; 32], read_clocks().monotonic);
        assert!(!queue.record_offer(&key, now));
        assert!(queue.record_offer(&key, now + OFFER_INTERVAL_MS));
        assert!(!queue.record_offer(&[2; 32], now + OFFER_INTERVAL_MS));
        assert!(!queue.record_offer(&key, now + 5 * OFFER_INTERVAL_MS));
    }
}
