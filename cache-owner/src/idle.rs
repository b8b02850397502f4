//! Work for when nobody asks for anything: entries are made smaller.
//!
//! One thread does it, at the lowest priority, one entry at a time. It looks
//! before each entry whether a request is being served, or one was a moment
//! ago. While it codes it holds nothing of the owner's but the entry, so that
//! nobody waits for it, an end neither.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sszip_core::cache::owner::Owner;
use sszip_core::cache::recompress::recompress;

use crate::clock::now;

/// How long nobody must have asked for anything. Milliseconds.
const MOMENT: u64 = 100;

/// How often it looks whether there is something to do. Milliseconds.
const LOOK: u64 = 500;

/// The lowest priority that there is (nice).
const LOWEST: i32 = 19;

/// How busy the server is.
#[derive(Debug, Default)]
pub struct Activity {
    /// Requests that are being served, and entries that are being stored.
    running: AtomicUsize,
    /// When the last of them began or ended. Monotonic milliseconds.
    last: AtomicU64,
}

impl Activity {
    /// Something begins; it ends when what this gives is dropped.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.running.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// For how many milliseconds, at least, there is no [`MOMENT`] without
    /// requests at `now`; 0: this is one.
    fn busy_for(&self, now: u64) -> u64 {
        if self.running.load(Ordering::Relaxed) > 0 {
            return MOMENT;
        }
        let last = self.last.load(Ordering::Relaxed);
        MOMENT.saturating_sub(now.saturating_sub(last))
    }
}

/// A request is being served.
#[derive(Debug)]
pub struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.last.store(now().monotonic, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread.
#[derive(Debug)]
pub struct Idle(Arc<Gate>);

/// Held for as long as the thread has the owner: nobody ends it meanwhile, and
/// it does not end the owner.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    closed: Condvar,
}

impl Gate {
    fn enter(&self) -> MutexGuard<'_, bool> {
        self.is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    /// Starts it, for an owner that serves what `activity` counts.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(owner: &Arc<Owner>, activity: Arc<Activity>) -> Result<Self, std::io::Error> {
        let gate = Arc::new(Gate::default());
        let work = Work {
            owner: Arc::downgrade(owner),
            activity,
            gate: Arc::clone(&gate),
        };
        std::thread::Builder::new()
            .name("sszip-idle".into())
            .spawn(move || work.run())?;
        Ok(Self(gate))
    }

    /// From now on it touches nothing of the owner's. An entry that it codes
    /// may take it some time longer to notice.
    pub fn stop(&self) {
        *self.0.enter() = true;
        self.0.closed.notify_all();
    }
}

struct Work {
    owner: Weak<Owner>,
    activity: Arc<Activity>,
    gate: Arc<Gate>,
}

impl Work {
    fn run(&self) {
        // of this thread alone; where that is refused it has the usual one
        let _ = rustix::process::setpriority_process(None, LOWEST);
        while let Some(wait) = self.step() {
            let is_closed = self.gate.enter();
            let wait = Duration::from_millis(wait);
            let waited = self
                .gate
                .closed
                .wait_timeout_while(is_closed, wait, |is_closed| !*is_closed);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Makes one entry smaller, perhaps. In how many milliseconds to try
    /// again; `None`: never.
    fn step(&self) -> Option<u64> {
        let candidate = self.with(|owner| {
            if !owner.has_candidates() {
                return Err(LOOK);
            }
            match self.activity.busy_for(now().monotonic) {
                0 => owner.next_candidate(now()).ok_or(LOOK),
                busy => Err(busy),
            }
        })?;
        let (key, kept) = match candidate {
            Ok(candidate) => candidate,
            Err(wait) => return Some(wait),
        };
        let by = recompress(kept.body());
        self.with(|owner| owner.replace(&key, &kept, by, now()))?;
        Some(0)
    }

    /// `None` when it is over.
    fn with<T>(&self, work: impl FnOnce(&Owner) -> T) -> Option<T> {
        let is_closed = self.gate.enter();
        if *is_closed {
            return None;
        }
        self.owner.upgrade().map(|owner| work(&owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_without_requests_is_a_moment() {
        let activity = Arc::new(Activity::default());
        let long = 1 << 40;
        assert_eq!(activity.busy_for(long), 0);
        let busy = (activity.begin(), activity.begin());
        assert_eq!(activity.busy_for(long), MOMENT);
        drop(busy.0);
        assert_eq!(activity.busy_for(long), MOMENT);
        drop(busy.1);
        let last = activity.last.load(Ordering::Relaxed);
        assert_eq!(activity.busy_for(last), MOMENT);
        assert_eq!(activity.busy_for(last + MOMENT - 1), 1);
        assert_eq!(activity.busy_for(last + MOMENT), 0);
    }
}
