//! What is done from time to time.

use std::time::Duration;

use tokio::time::{sleep, timeout, Instant};

use crate::clock::now;
use crate::engine::Engine;
use crate::log::{Level, Log};

/// The owner's timer looks at least this often, in milliseconds.
const TICK: u64 = 1_000;

/// How often the store is asked whether it has something to say.
const LOOK: Duration = Duration::from_secs(1);

/// How often a disk that was full, or failed, is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How often the owner looks for what nobody has asked for: a sixteenth of
/// that time, but neither more often nor more seldom than this. Milliseconds.
const FORGET_OFTEN: u64 = 50;
const FORGET_SELDOM: u64 = 60_000;

impl Engine {
    /// Ends what ends with time. Never returns.
    pub async fn run_timer(&self) {
        loop {
            let now = now().monotonic;
            let next = self.owner.next_tick().unwrap_or(u64::MAX);
            let wait = next.saturating_sub(now).min(TICK);
            // sooner, if there is something new to wait for
            let _ = timeout(Duration::from_millis(wait), self.stirred.notified()).await;
            self.tick();
        }
    }

    /// Writes down at intervals what lies in the store's memory, and what it
    /// has to say into the log. Never returns.
    pub async fn run_flushes(&self, every: Duration, log: &Log) {
        let tell = || {
            while let Some(event) = self.owner.disk().next_event() {
                log(Level::Error, &event);
            }
        };
        let mut flushed_at = Instant::now();
        loop {
            sleep(every.min(LOOK)).await;
            // before a flush makes it good
            tell();
            let is_off = self.owner.disk().status().off.is_some();
            if flushed_at.elapsed() >= if is_off { every.min(RETRY) } else { every } {
                flushed_at = Instant::now();
                // an event says why, and the next flush tries again
                drop(self.writing(|owner| owner.disk().flush()).await);
            }
            tell();
        }
    }

    /// Lets go of what nobody has asked for in so many milliseconds. Never
    /// returns.
    pub async fn run_forgetting(&self, inactive: u64) {
        let every = Duration::from_millis((inactive / 16).clamp(FORGET_OFTEN, FORGET_SELDOM));
        loop {
            sleep(every).await;
            // it is tried again
            drop(self.writing(|owner| owner.forget_inactive(now())).await);
        }
    }
}
