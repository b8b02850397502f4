//! Waiting streams, and their wakeups.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use sszip_core::cache::process::wake::{EventLoopId, EventLoopWaker, WaitingRequestId};

use crate::envoy::EnvoyEventScheduler;
use crate::process::PROCESS;

/// The process's only event loop: every stream is notified on its own worker.
static EVENT_LOOP: LazyLock<EventLoopId> =
    LazyLock::new(|| PROCESS.shared.add_event_loop(Arc::new(StreamWaker)));
static NEXT_WAITER_ID: AtomicUsize = AtomicUsize::new(0);
static WAIT_SHARDS: [Mutex<Option<HashMap<usize, StreamWaitState>>>; 16] =
    [const { Mutex::new(None) }; 16];

/// Event for a stream whose lookup is to be repeated.
pub const WOKEN_EVENT: u64 = 1 << 59;

/// The state of a stream whose lookup may wait, by its waiter id.
#[derive(Debug)]
enum StreamWaitState {
    /// A lookup is in progress, after which the stream may wait.
    LooksUp,
    /// The wakeup arrived during the lookup.
    Woken,
    Waits(Arc<EnvoyEventScheduler>),
}

/// The id under which a stream waits for a wakeup from the core; its drop ends the wait.
#[derive(Debug)]
pub struct StreamWaitGuard(usize);

impl StreamWaitGuard {
    /// Creates a waiter id for a stream.
    pub fn new() -> Self {
        Self(NEXT_WAITER_ID.fetch_add(1, Ordering::Relaxed))
    }

    /// Marks the beginning of a lookup, which may be a repeated one.
    pub fn mark_lookup_start(&self) {
        modify_locked_wait_shard(self.0, |slots| {
            slots.insert(self.0, StreamWaitState::LooksUp)
        });
    }

    /// Returns the waiter that the driver passes to the lookup.
    pub fn core_waiter(&self) -> WaitingRequestId {
        EVENT_LOOP.waiter_of_request(self.0)
    }

    /// Marks the stream as waiting; if the wakeup arrived during the lookup, schedules its event at
    /// once.
    pub fn mark_waiting(&self, scheduler: &Arc<EnvoyEventScheduler>) {
        let waits = StreamWaitState::Waits(Arc::clone(scheduler));
        let before = modify_locked_wait_shard(self.0, |slots| slots.insert(self.0, waits));
        if let Some(StreamWaitState::Woken) = before {
            scheduler.schedule_event(WOKEN_EVENT);
        }
    }
}

impl Drop for StreamWaitGuard {
    fn drop(&mut self) {
        modify_locked_wait_shard(self.0, |slots| slots.remove(&self.0));
    }
}

/// The waker of the process's event loop, which sends each wakeup to the scheduler of its stream.
#[derive(Debug)]
struct StreamWaker;

impl EventLoopWaker for StreamWaker {
    fn wake(&self, id: usize) {
        modify_locked_wait_shard(id, |slots| match slots.get_mut(&id) {
            Some(StreamWaitState::Waits(scheduler)) => scheduler.schedule_event(WOKEN_EVENT),
            Some(slot) => *slot = StreamWaitState::Woken,
            None => {}
        });
    }

    /// Does nothing: the slot is removed when the stream drops its waiter.
    fn cancel_wakeup(&self, _id: usize) {}
}

/// Calls `call` with the locked table that contains the stream `id`.
fn modify_locked_wait_shard<T>(
    id: usize,
    call: impl FnOnce(&mut HashMap<usize, StreamWaitState>) -> T,
) -> T {
    let shard = &WAIT_SHARDS[id % WAIT_SHARDS.len()];
    let mut slots: MutexGuard<'_, _> = shard.lock().unwrap_or_else(PoisonError::into_inner);
    call(slots.get_or_insert_default())
}
