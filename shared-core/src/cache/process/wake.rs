//! Who waits, and how each is told to go on.
//!
//! A process may have several event loops, each on a thread of its own, and any
//! of them may land what requests of the others wait for. So a waiter says where
//! it is, and its event loop has a waker, which any thread may call.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, RwLock};

use crate::lock::{locked, read, write};

/// Wakes those who wait on an event loop. It is called on any thread, with locks
/// held: it puts the wake-up where its event loop will find it, and calls nothing
/// of the library.
pub trait Wake: fmt::Debug + Send + Sync {
    /// The waiter that the event loop knows as `id` is to go on. It may have done
    /// so meanwhile, and be gone: a process of several event loops gives no
    /// name twice.
    fn wake(&self, id: usize);

    /// It waits no longer: if it is still to be woken it need not be.
    fn forget(&self, id: usize);
}

/// An event loop of the process, by its number: the first, by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventLoop(usize);

impl EventLoop {
    /// One that waits here.
    pub fn waiter(self, id: usize) -> Waiter {
        Waiter {
            event_loop: self,
            id,
        }
    }
}

/// A request that can be woken: on which event loop, and by which name there,
/// unique among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter {
    /// Where it waits.
    pub event_loop: EventLoop,
    /// What its host calls it there.
    pub id: usize,
}

impl Waiter {
    /// Who asks, and waits for no answer.
    pub const NOBODY: Self = Self {
        event_loop: EventLoop(usize::MAX),
        id: usize::MAX,
    };
}

/// The wakers of a process's event loops.
#[derive(Debug, Default)]
pub struct Wakers(RwLock<Vec<Arc<dyn Wake>>>);

impl Wakers {
    /// One event loop more, which lasts as long as the process.
    pub fn add(&self, waker: Arc<dyn Wake>) -> EventLoop {
        let mut wakers = write(&self.0);
        wakers.push(waker);
        EventLoop(wakers.len() - 1)
    }

    /// Wakes these, in that order.
    pub fn wake(&self, waiters: impl IntoIterator<Item = Waiter>) {
        let mut waiters = waiters.into_iter().peekable();
        // most often there is nobody
        if waiters.peek().is_some() {
            let wakers = read(&self.0);
            for Waiter { event_loop, id } in waiters {
                if let Some(waker) = wakers.get(event_loop.0) {
                    waker.wake(id);
                }
            }
        }
    }

    /// It waits no longer: see [`Wake::forget`].
    pub fn forget(&self, Waiter { event_loop, id }: Waiter) {
        let wakers = read(&self.0);
        if let Some(waker) = wakers.get(event_loop.0) {
            waker.forget(id);
        }
    }
}

/// The waker of an event loop that asks for itself who is to go on: the woken,
/// in their order. Who is forgotten is not woken, so that names may be addresses.
#[derive(Debug, Default)]
pub struct Queue(Mutex<VecDeque<usize>>);

impl Queue {
    /// The next of the woken.
    pub fn next(&self) -> Option<usize> {
        locked(&self.0).pop_front()
    }
}

impl Wake for Queue {
    fn wake(&self, id: usize) {
        let mut woken = locked(&self.0);
        // who is not woken goes on by itself, some time later
        if woken.try_reserve(1).is_ok() {
            woken.push_back(id);
        }
    }

    fn forget(&self, id: usize) {
        locked(&self.0).retain(|woken| *woken != id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{EventLoop, Queue, Wakers};

    #[test]
    fn each_event_loop_wakes_its_own() {
        let wakers = Wakers::default();
        let queues = [Arc::new(Queue::default()), Arc::new(Queue::default())];
        let [one, two] = queues.each_ref().map(|queue| wakers.add(queue.clone()));
        wakers.wake([two.waiter(7), one.waiter(7), two.waiter(5), two.waiter(6)]);
        wakers.forget(one.waiter(6));
        wakers.forget(two.waiter(5));
        let woken = queues.map(|queue| std::iter::from_fn(|| queue.next()).collect::<Vec<_>>());
        assert_eq!(woken, [vec![7], vec![7, 6]]);
        // who is nowhere is woken by nobody
        wakers.wake([EventLoop(2).waiter(1)]);
        wakers.forget(EventLoop(2).waiter(1));
    }
}
