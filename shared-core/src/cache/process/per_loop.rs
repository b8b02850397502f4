//! A table with one copy for each event loop, so that event loops do not contend for a table that
//! they nearly always read.
//!
//! A lock that only one thread takes costs little. A lock that all threads take, if only to read,
//! is a cache line that moves between processors at each hit.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::lock::lock_ignoring_poison;

thread_local! {
    /// Number of the thread, once it has one. It needs no memory of its own, and is not read with a
    /// single event loop.
    static THREAD_NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Number of threads that have a number.
static THREAD_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A table with a copy for each event loop, so that threads do not contend for one lock.
#[derive(Debug, Default)]
pub(super) struct PerEventLoopTable<T> {
    first: CacheLinePaddedTable<T>,
    others: OnceLock<Box<[CacheLinePaddedTable<T>]>>,
}

/// A table that shares no cache line, and no pair of prefetched lines, with another one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CacheLinePaddedTable<T>(Mutex<T>);

impl<T: Default> PerEventLoopTable<T> {
    /// Creates a table for each of `event_loops` event loops, which run on a thread each. Only the
    /// first call has an effect; without it all event loops share one table.
    pub(super) fn create_loop_tables(&self, event_loops: usize) {
        if event_loops > 1 {
            self.others.get_or_init(|| {
                (1..event_loops)
                    .map(|_| CacheLinePaddedTable::default())
                    .collect()
            });
        }
    }

    /// Locks the table of the event loop that runs on the calling thread.
    pub(super) fn lock_own_loop_table(&self) -> MutexGuard<'_, T> {
        let Some(others) = self.others.get() else {
            return lock_ignoring_poison(&self.first.0);
        };
        let at = thread_number() % (others.len() + 1);
        lock_ignoring_poison(&others.get(at).unwrap_or(&self.first).0)
    }

    /// Applies a change to all tables, one after another.
    pub(super) fn for_each_loop_table(&self, mut change: impl FnMut(&mut T)) {
        let others = self.others.get().into_iter().flatten();
        for table in others.chain([&self.first]) {
            change(&mut lock_ignoring_poison(&table.0));
        }
    }
}

/// Returns the number of the calling thread, which it gets at its first call.
fn thread_number() -> usize {
    THREAD_NUMBER.get().unwrap_or_else(|| {
        let number = THREAD_COUNT.fetch_add(1, Ordering::Relaxed);
        THREAD_NUMBER.set(Some(number));
        number
    })
}

#[cfg(test)]
mod tests {
    use super::PerEventLoopTable;

    #[test]
    fn event_loops_lock_different_tables() {
        let own = PerEventLoopTable::<usize>::default();
        own.create_loop_tables(4);
        let own = &own;
        let here = super::thread_number() % 4;
        let guard = own.lock_own_loop_table();
        let locks_another = || {
            let is_another = super::thread_number() % 4 != here;
            is_another
                .then(|| drop(own.lock_own_loop_table()))
                .is_some()
        };
        // threads of other tests have numbers too, and the next one may share this thread's table
        let locked = || std::thread::scope(|scope| scope.spawn(locks_another).join().unwrap());
        while !locked() {}
        drop(guard);
    }

    #[test]
    fn change_of_all_tables_is_visible_to_all_threads() {
        for event_loops in [0, 1, 3] {
            let own = PerEventLoopTable::<Vec<usize>>::default();
            own.create_loop_tables(event_loops);
            own.create_loop_tables(7);
            let mut tables = 0;
            own.for_each_loop_table(|table| {
                table.push(5);
                tables += 1;
            });
            // only the first call with several event loops has an effect
            let expected = if event_loops > 1 { event_loops } else { 7 };
            assert_eq!(tables, expected);
            std::thread::scope(|scope| {
                for _ in 0..2 * tables {
                    scope.spawn(|| assert_eq!(*own.lock_own_loop_table(), [5]));
                }
            });
        }
    }
}
