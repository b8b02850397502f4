//! Deadlines of streams. Envoy has no timers for filters: one thread waits for
//! all deadlines, and notifies each stream on its own thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::envoy::EnvoyEventScheduler;

static TIMERS: LazyLock<Option<&'static StreamTimerQueue>> =
    LazyLock::new(StreamTimerQueue::start_thread);

/// A deadline in the queue: an event to send to a stream's scheduler.
struct StreamTimer {
    due: Instant,
    event: u64,
    scheduler: Arc<EnvoyEventScheduler>,
}

/// The deadlines of all streams, for the one thread that waits for them.
#[derive(Default)]
struct StreamTimerQueue {
    queue: Mutex<BinaryHeap<Reverse<StreamTimer>>>,
    first_changed: Condvar,
}

/// Schedules `event` for a stream in `ms` milliseconds. Returns whether it will be sent: without
/// the timer thread there are no deadlines.
pub fn set_stream_timer(scheduler: &Arc<EnvoyEventScheduler>, event: u64, ms: u64) -> bool {
    let Some(timers) = *TIMERS else {
        return false;
    };
    let timer = StreamTimer {
        due: Instant::now() + Duration::from_millis(ms),
        event,
        scheduler: Arc::clone(scheduler),
    };
    let mut queue = timers.queue.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = queue.peek().is_none_or(|first| timer.due < first.0.due);
    queue.push(Reverse(timer));
    drop(queue);
    if is_first {
        timers.first_changed.notify_one();
    }
    true
}

impl StreamTimerQueue {
    /// Starts the thread of the timers, which are never freed. Returns `None` if the system refuses
    /// it.
    fn start_thread() -> Option<&'static Self> {
        let timers: &'static Self = Box::leak(Box::default());
        let thread = std::thread::Builder::new().name("sszip-timers".into());
        let started = thread.spawn(|| timers.run_timer_loop());
        started.is_ok().then_some(timers)
    }

    /// Schedules the event of each timer that is due, and waits for the next one.
    fn run_timer_loop(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            let timeout = queue
                .peek()
                .map(|first| first.0.due.saturating_duration_since(now));
            match timeout {
                Some(Duration::ZERO) => {
                    let timer = queue.pop();
                    drop(queue);
                    if let Some(Reverse(timer)) = timer {
                        timer.scheduler.schedule_event(timer.event);
                    }
                    queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
                }
                Some(timeout) => {
                    let woken = self.first_changed.wait_timeout(queue, timeout);
                    queue = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    let woken = self.first_changed.wait(queue);
                    queue = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl PartialEq for StreamTimer {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for StreamTimer {}

impl PartialOrd for StreamTimer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StreamTimer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}
