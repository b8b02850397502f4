//! What each event loop of a process has of a table for itself, so that none
//! waits for another where nearly all that they do is read.
//!
//! A lock that nobody else takes costs little; one that all take, if only to
//! read, is a line of memory that goes from processor to processor at each hit.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::lock::locked;

thread_local! {
    /// The thread's number, once it has one. It needs no memory of its own, and
    /// with one event loop it is not looked at.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Threads that have a number.
static NUMBERED: AtomicUsize = AtomicUsize::new(0);

/// One for each event loop.
#[derive(Debug, Default)]
pub(super) struct Own<T> {
    first: Table<T>,
    others: OnceLock<Box<[Table<T>]>>,
}

/// Two never share a line of memory, nor a pair of lines that is fetched.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Table<T>(Mutex<T>);

impl<T: Default> Own<T> {
    /// There are so many event loops, each on a thread. Without that, and from the
    /// second call on, some share one.
    pub(super) fn spread(&self, event_loops: usize) {
        if event_loops > 1 {
            self.others
                .get_or_init(|| (1..event_loops).map(|_| Table::default()).collect());
        }
    }

    /// That of the event loop on this thread.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        let Some(others) = self.others.get() else {
            return locked(&self.first.0);
        };
        let at = number() % (others.len() + 1);
        locked(&others.get(at).unwrap_or(&self.first).0)
    }

    /// All of them, one after the other.
    pub(super) fn each(&self, mut change: impl FnMut(&mut T)) {
        let others = self.others.get().into_iter().flatten();
        for table in others.chain([&self.first]) {
            change(&mut locked(&table.0));
        }
    }
}

fn number() -> usize {
    NUMBER.get().unwrap_or_else(|| {
        let number = NUMBERED.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

#[cfg(test)]
mod tests {
    use super::Own;

    #[test]
    fn event_loops_do_not_wait_for_one_another() {
        let own = Own::<usize>::default();
        own.spread(4);
        let own = &own;
        let here = super::number() % 4;
        let held = own.lock();
        let locks_another = || {
            let is_another = super::number() % 4 != here;
            is_another.then(|| drop(own.lock())).is_some()
        };
        // other tests' threads have numbers, too: the next may share this one's
        let locked = || std::thread::scope(|scope| scope.spawn(locks_another).join().unwrap());
        while !locked() {}
        drop(held);
    }

    #[test]
    fn what_all_are_told_each_knows() {
        for event_loops in [0, 1, 3] {
            let own = Own::<Vec<usize>>::default();
            own.spread(event_loops);
            own.spread(7);
            let mut tables = 0;
            own.each(|table| {
                table.push(5);
                tables += 1;
            });
            // a second call changes nothing, but the first was none
            let expected = if event_loops > 1 { event_loops } else { 7 };
            assert_eq!(tables, expected);
            std::thread::scope(|scope| {
                for _ in 0..2 * tables {
                    scope.spawn(|| assert_eq!(*own.lock(), [5]));
                }
            });
        }
    }
}
