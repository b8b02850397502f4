//! Who waits for what others fetch, and how each is told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use sszip_core::cache::process::wake::{EventLoop, Waiter, Wake};

use crate::config::PROCESS;
use crate::envoy::Scheduler;

/// The process has one: every stream is told on its own worker.
static EVENT_LOOP: LazyLock<EventLoop> =
    LazyLock::new(|| PROCESS.shared.event_loop(Arc::new(Wakes)));
static NEXT: AtomicUsize = AtomicUsize::new(0);
static SHARDS: [Mutex<Option<HashMap<usize, Slot>>>; 16] = [const { Mutex::new(None) }; 16];

/// The event that a stream is told.
pub const WOKEN: u64 = 1 << 59;

#[derive(Debug)]
enum Slot {
    /// It is being looked up, and may come to wait.
    LooksUp,
    /// It was to be woken meanwhile.
    Woken,
    Waits(Arc<Scheduler>),
}

/// The name of a stream, for as long as it may wait.
#[derive(Debug)]
pub struct Waiting(usize);

impl Waiting {
    /// Of a stream that is about to be looked up.
    pub fn new() -> Self {
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// It is about to be looked up, perhaps once more.
    pub fn looks_up(&self) {
        with(self.0, |slots| slots.insert(self.0, Slot::LooksUp));
    }

    /// What the driver is told.
    pub fn waiter(&self) -> Waiter {
        EVENT_LOOP.waiter(self.0)
    }

    /// It has come to wait.
    pub fn wait(&self, scheduler: &Arc<Scheduler>) {
        let waits = Slot::Waits(Arc::clone(scheduler));
        let before = with(self.0, |slots| slots.insert(self.0, waits));
        if let Some(Slot::Woken) = before {
            scheduler.commit(WOKEN);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        with(self.0, |slots| slots.remove(&self.0));
    }
}

#[derive(Debug)]
struct Wakes;

impl Wake for Wakes {
    fn wake(&self, id: usize) {
        with(id, |slots| match slots.get_mut(&id) {
            Some(Slot::Waits(scheduler)) => scheduler.commit(WOKEN),
            Some(slot) => *slot = Slot::Woken,
            None => {}
        });
    }

    /// It has gone by itself then.
    fn forget(&self, _id: usize) {}
}

fn with<T>(id: usize, what: impl FnOnce(&mut HashMap<usize, Slot>) -> T) -> T {
    let shard = &SHARDS[id % SHARDS.len()];
    let mut slots: MutexGuard<'_, _> = shard.lock().unwrap_or_else(PoisonError::into_inner);
    what(slots.get_or_insert_default())
}
