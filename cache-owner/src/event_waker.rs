//! The waker of the task that sends events to a process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;

/// Wakes one task that sends the events of a process. A call while no task waits is not lost.
#[derive(Debug, Default)]
pub struct EventWaker {
    task: AtomicWaker,
    is_woken: AtomicBool,
}

impl EventWaker {
    /// Wakes the task.
    pub fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake();
    }

    /// Is ready after each [`wake`](Self::wake). The task that has called this last is woken.
    pub fn poll_woken(&self, context: &Context<'_>) -> Poll<()> {
        // first, so that a call in the meantime is not missed
        self.task.register(context.waker());
        match self.is_woken.swap(false, Ordering::AcqRel) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
