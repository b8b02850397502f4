//! The queue of entries that are written to the fleet.
//!
//! No request waits for it. It has a maximum number of values and of bytes; further values are
//! dropped and counted, as the entry can be offered by another machine or at its next fill.

use std::sync::atomic::AtomicU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, Mutex, OwnedSemaphorePermit, Semaphore};

/// Maximum number of values in the queue.
const MAX_QUEUED_VALUES: usize = 256;

/// Maximum total length of the values in the queue and in flight, in bytes.
const MAX_QUEUED_BYTES: usize = 32 << 20;

/// Maximum number of values that are written at a time.
pub(super) const MAX_WRITES: usize = 8;

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
    pub(crate) dropped: AtomicU64,
    pub(crate) too_long: AtomicU64,
}

impl StoreQueue {
    /// Creates an empty queue.
    pub(crate) fn new() -> Self {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED_VALUES);
        Self {
            queue,
            waiting: Mutex::new(waiting),
            room: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)),
            dropped: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
        }
    }

    /// Total length of the values in the queue and in flight, in bytes.
    pub(crate) fn queued_bytes(&self) -> usize {
        MAX_QUEUED_BYTES.saturating_sub(self.room.available_permits())
    }
}
