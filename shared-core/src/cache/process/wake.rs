//! Waiting requests, and the wakers that resume them.
//!
//! A process may have several event loops, each on a thread of its own, and any of them may receive
//! a response that requests of other event loops wait for. So a waiter names its event loop, and
//! each event loop has a waker, which any thread may call.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, RwLock};

use crate::lock::{lock_ignoring_poison, read_ignoring_poison, write_ignoring_poison};

/// The function of a host that resumes waiting requests of one event loop. It is called on any
/// thread while locks are taken: it queues the wakeup for its event loop, and must not call the
/// library.
pub trait EventLoopWaker: fmt::Debug + Send + Sync {
    /// Wakes the waiter that the event loop knows as `id`. The waiter may have resumed and ended
    /// meanwhile: a process with several event loops never reuses an id.
    fn wake(&self, id: usize);

    /// Cancels the wakeup of a waiter that no longer waits.
    fn cancel_wakeup(&self, id: usize);
}

/// The number of an event loop among those that the host has registered in this process; the
/// default is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventLoopId(usize);

impl EventLoopId {
    /// Returns the waiter for the request that this event loop knows as `id`.
    pub fn waiter_of_request(self, id: usize) -> WaitingRequestId {
        WaitingRequestId {
            event_loop: self,
            id,
        }
    }
}

/// A request that can be woken: its event loop, and its id there, which is unique among the waiting
/// requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitingRequestId {
    /// Event loop of the request.
    pub event_loop: EventLoopId,
    /// Id of the request in its host.
    pub id: usize,
}

impl WaitingRequestId {
    /// The waiter of a request that waits for no reply.
    pub const NONE: Self = Self {
        event_loop: EventLoopId(usize::MAX),
        id: usize::MAX,
    };
}

/// The wakers of all event loops of a process, by number.
#[derive(Debug, Default)]
pub struct EventLoopWakers(RwLock<Vec<Arc<dyn EventLoopWaker>>>);

impl EventLoopWakers {
    /// Registers an event loop with its waker, for as long as the process lasts.
    pub fn add_event_loop(&self, waker: Arc<dyn EventLoopWaker>) -> EventLoopId {
        let mut wakers = write_ignoring_poison(&self.0);
        wakers.push(waker);
        EventLoopId(wakers.len() - 1)
    }

    /// Wakes waiting requests on their event loops, in this order.
    pub fn wake(&self, waiters: impl IntoIterator<Item = WaitingRequestId>) {
        let mut waiters = waiters.into_iter().peekable();
        // most often there is none
        if waiters.peek().is_some() {
            let wakers = read_ignoring_poison(&self.0);
            for WaitingRequestId { event_loop, id } in waiters {
                if let Some(waker) = wakers.get(event_loop.0) {
                    waker.wake(id);
                }
            }
        }
    }

    /// Cancels the wakeup of a waiter, see [`EventLoopWaker::cancel_wakeup`].
    pub fn cancel_wakeup(&self, WaitingRequestId { event_loop, id }: WaitingRequestId) {
        let wakers = read_ignoring_poison(&self.0);
        if let Some(waker) = wakers.get(event_loop.0) {
            waker.cancel_wakeup(id);
        }
    }
}

/// A queue of woken requests for an event loop that polls it: their ids in order. A forgotten
/// waiter is not woken, so that ids may be addresses.
#[derive(Debug, Default)]
pub struct WokenRequestQueue(Mutex<VecDeque<usize>>);

impl WokenRequestQueue {
    /// Takes the id of the request that was woken first and not returned yet.
    pub fn next_woken_id(&self) -> Option<usize> {
        lock_ignoring_poison(&self.0).pop_front()
    }

    /// Whether a request was woken and not returned yet.
    pub fn has_woken_ids(&self) -> bool {
        !lock_ignoring_poison(&self.0).is_empty()
    }
}

impl EventLoopWaker for WokenRequestQueue {
    fn wake(&self, id: usize) {
        let mut woken = lock_ignoring_poison(&self.0);
        // a waiter that is not woken resumes by itself after its timeout
        if woken.try_reserve(1).is_ok() {
            woken.push_back(id);
        }
    }

    fn cancel_wakeup(&self, id: usize) {
        lock_ignoring_poison(&self.0).retain(|woken| *woken != id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{EventLoopId, EventLoopWakers, WokenRequestQueue};

    #[test]
    fn waiters_are_woken_on_their_own_event_loop() {
        let wakers = EventLoopWakers::default();
        let queues = [
            Arc::new(WokenRequestQueue::default()),
            Arc::new(WokenRequestQueue::default()),
        ];
        let [one, two] = queues
            .each_ref()
            .map(|queue| wakers.add_event_loop(queue.clone()));
        wakers.wake([
            two.waiter_of_request(7),
            one.waiter_of_request(7),
            two.waiter_of_request(5),
            two.waiter_of_request(6),
        ]);
        wakers.cancel_wakeup(one.waiter_of_request(6));
        wakers.cancel_wakeup(two.waiter_of_request(5));
        let woken =
            queues.map(|queue| std::iter::from_fn(|| queue.next_woken_id()).collect::<Vec<_>>());
        assert_eq!(woken, [vec![7], vec![7, 6]]);
        // an unknown event loop has no waker
        wakers.wake([EventLoopId(2).waiter_of_request(1)]);
        wakers.cancel_wakeup(EventLoopId(2).waiter_of_request(1));
    }
}
