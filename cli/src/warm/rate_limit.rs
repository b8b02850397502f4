//! The maximum rate of requests to the node.

use std::sync::Mutex;
use std::time::Duration;

use sszip_core::lock::lock_ignoring_poison;
use tokio::time::{sleep_until, Instant};

/// Spreads requests evenly, so that no second has more than a number of them.
pub struct RateLimiter {
    interval: Duration,
    /// The time of the next request.
    next: Mutex<Option<Instant>>,
}

impl RateLimiter {
    /// Limits requests to `rate` in a second.
    pub fn per_second(rate: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / rate.max(1),
            next: Mutex::new(None),
        }
    }

    /// Waits until a request may be sent.
    pub async fn wait(&self) {
        sleep_until(self.reserve(Instant::now())).await;
    }

    /// Returns the time at which a request may be sent, and reserves it.
    fn reserve(&self, now: Instant) -> Instant {
        let mut next = lock_ignoring_poison(&self.next);
        let time = next.map_or(now, |next| next.max(now));
        *next = Some(time + self.interval);
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_and_idle_time_is_not_saved() {
        let limiter = RateLimiter::per_second(10);
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        for expected in [0, 100, 200] {
            assert_eq!(limiter.reserve(start), after(expected));
        }
        assert_eq!(limiter.reserve(after(250)), after(300));
        assert_eq!(limiter.reserve(after(5_000)), after(5_000));
        assert_eq!(limiter.reserve(after(5_000)), after(5_100));
    }
}
