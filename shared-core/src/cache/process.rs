//! What the exchanges of a process share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::flights::{Flights, Waiter};
use super::hot::Hot;
use super::scope::Varying;
use crate::memory::Budget;

/// Memory, stored answers and answers on their way, of one process. Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// What held bodies may take.
    pub budget: Budget,
    /// What is stored and what is being fetched.
    pub tier: Arc<Tier>,
}

impl From<Budget> for Process {
    fn from(budget: Budget) -> Self {
        Self {
            budget,
            tier: Arc::default(),
        }
    }
}

/// The hot tier, and who waits for what will be in it.
#[derive(Debug, Default)]
pub struct Tier {
    hot: OnceLock<Hot>,
    /// One request at a time for the same thing.
    pub flights: Flights,
    /// What answers turned out to depend on.
    pub varying: Varying,
    woken: Mutex<VecDeque<Waiter>>,
}

impl Tier {
    /// Makes the hot tier, of at most `bytes`, for so many threads. A host
    /// that forks calls it after the fork; a second call changes nothing.
    pub fn start(&self, bytes: u64, threads: usize) {
        self.hot.get_or_init(|| Hot::new(bytes, bytes, threads));
    }

    /// The hot tier, once it is started.
    pub fn hot(&self) -> Option<&Hot> {
        self.hot.get()
    }

    /// These can be looked up again: an answer is there, or will never be.
    pub fn wake(&self, waiters: impl IntoIterator<Item = Waiter>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        for waiter in waiters {
            // who is not woken goes on by itself, some time later
            if woken.try_reserve(1).is_ok() {
                woken.push_back(waiter);
            }
        }
    }

    /// The next of the woken, in their order.
    pub fn next_woken(&self) -> Option<Waiter> {
        self.woken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }

    /// It waits no longer: it must not be woken.
    pub fn forget(&self, waiter: Waiter) {
        self.woken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|woken| *woken != waiter);
    }
}
