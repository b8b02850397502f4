//! Pauses between attempts to connect.

use std::time::Duration;

/// First and longest pause, without jitter. It doubles with each failure.
const FIRST_PAUSE_MS: u64 = 100;
pub(super) const MAX_PAUSE_MS: u64 = 10_000;

/// Number of doublings that exceed the longest pause.
const MAX_DOUBLINGS: u32 = 7;

/// The pauses between attempts to connect, with a jitter that separates many clients of a server.
#[derive(Debug)]
pub(super) struct ReconnectBackoff {
    failures: u32,
}

impl ReconnectBackoff {
    pub(super) fn new() -> Self {
        Self { failures: 0 }
    }

    /// Returns the next pause: 80 to 120 percent of its nominal time.
    pub(super) fn next_pause(&mut self, random: u64) -> Duration {
        let doublings = self.failures.min(MAX_DOUBLINGS);
        self.failures = self.failures.saturating_add(1);
        let pause = (FIRST_PAUSE_MS << doublings).min(MAX_PAUSE_MS);
        Duration::from_millis(pause / 100 * (80 + random % 41))
    }

    /// Begins again with the first pause, after a connection that worked.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_with_a_jitter() {
        for (random, percent) in [(0, 80), (40, 120), (61, 100)] {
            let mut backoff = ReconnectBackoff::new();
            for nominal in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
                let pause = backoff.next_pause(random);
                assert_eq!(pause, Duration::from_millis(nominal / 100 * percent));
            }
            backoff.reset();
            assert_eq!(backoff.next_pause(random), Duration::from_millis(percent));
        }
    }
}
