//! The gate that lets the store be opened only while the host waits for it.
//!
//! RocksDB creates static objects while it opens a database, and a process that exits then
//! destroys them under the opening thread. A host whose main thread may exit at any moment opens
//! the store by polling: it waits here while the database is being opened.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use sszip_core::lock::lock_ignoring_poison;

use crate::open_store::{OpenStoreError, StoreOpener};

/// The state of the gate: whether an attempt to open the store may begin, is in progress, or
/// succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StoreOpenAttemptState {
    /// The host does not wait.
    #[default]
    Closed,
    /// An attempt may begin.
    Open,
    /// An attempt is in progress.
    Busy,
    /// The store is open: no more attempts are needed.
    Done,
}

/// The gate that permits one attempt to open the store each time that the host waits for it.
#[derive(Clone, Debug, Default)]
pub struct StoreOpenAttemptGate(Arc<(Mutex<StoreOpenAttemptState>, Condvar)>);

impl StoreOpenAttemptGate {
    /// Wraps `open` so that it runs only while the host waits for it.
    pub fn gate_store_opener(&self, mut open: StoreOpener) -> StoreOpener {
        let gate = self.clone();
        Box::new(move |now| {
            if !gate.enter_gate() {
                return Err(OpenStoreError::NotYet);
            }
            let opened = open(now);
            gate.leave_gate(if opened.is_ok() {
                StoreOpenAttemptState::Done
            } else {
                StoreOpenAttemptState::Closed
            });
            opened
        })
    }

    /// Waits for one attempt to open the store, for `limit` at most. Returns whether the store is
    /// open.
    pub fn wait_for_open_attempt(&self, limit: Duration) -> bool {
        let (_, changed) = &*self.0;
        let mut turn = lock_ignoring_poison(&self.0 .0);
        if *turn == StoreOpenAttemptState::Closed {
            *turn = StoreOpenAttemptState::Open;
        }
        let waited = changed
            .wait_timeout_while(turn, limit, |turn| {
                matches!(
                    turn,
                    StoreOpenAttemptState::Open | StoreOpenAttemptState::Busy
                )
            })
            .unwrap_or_else(PoisonError::into_inner);
        let mut turn = waited.0;
        if *turn == StoreOpenAttemptState::Open {
            *turn = StoreOpenAttemptState::Closed;
        }
        *turn == StoreOpenAttemptState::Done
    }

    fn enter_gate(&self) -> bool {
        let mut turn = lock_ignoring_poison(&self.0 .0);
        let is_open = *turn == StoreOpenAttemptState::Open;
        if is_open {
            *turn = StoreOpenAttemptState::Busy;
        }
        is_open
    }

    fn leave_gate(&self, next: StoreOpenAttemptState) {
        *lock_ignoring_poison(&self.0 .0) = next;
        self.0 .1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    use std::time::Duration;

    use super::StoreOpenAttemptGate;
    use crate::clock::read_clocks;
    use crate::open_store::OpenStoreError;

    #[test]
    fn attempt_is_made_only_while_the_host_waits() {
        let gate = StoreOpenAttemptGate::default();
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let mut open = gate.gate_store_opener(Box::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            Err(OpenStoreError::Locked)
        }));
        for _ in 0..10 {
            assert_eq!(open(read_clocks()).err(), Some(OpenStoreError::NotYet));
        }
        let thread = std::thread::spawn(move || {
            while open(read_clocks()).err() != Some(OpenStoreError::Locked) {
                std::thread::yield_now();
            }
            open
        });
        assert!(!gate.wait_for_open_attempt(Duration::from_secs(60)));
        let mut open = thread.join().unwrap();
        assert_eq!(tries.load(Ordering::SeqCst), 1);
        assert_eq!(open(read_clocks()).err(), Some(OpenStoreError::NotYet));
    }

    #[test]
    fn wait_ends_at_its_limit_when_the_attempt_hangs() {
        let gate = StoreOpenAttemptGate::default();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let mut open = gate.gate_store_opener(Box::new(move |_| {
            // a disk that hangs
            let _ = ended.recv();
            Err(OpenStoreError::Locked)
        }));
        let thread = std::thread::spawn(move || {
            while open(read_clocks()).err() == Some(OpenStoreError::NotYet) {
                std::thread::yield_now();
            }
        });
        let since = std::time::Instant::now();
        // the first wait lets the attempt begin, whenever that thread runs
        for _ in 0..5 {
            assert!(!gate.wait_for_open_attempt(Duration::from_millis(10)));
        }
        assert!(since.elapsed() < Duration::from_secs(20));
        end.send(()).unwrap();
        while !thread.is_finished() {
            gate.wait_for_open_attempt(Duration::from_millis(10));
        }
        thread.join().unwrap();
    }
}
