//! The circuit breaker of the owner.

/// So many failures, one after the other, and it is taken for gone.
const MOST: u32 = 3;

/// How long after that one is tried again. Milliseconds.
const PAUSE: u64 = 250;

#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    /// The last time that is known.
    now: u64,
    failures: u32,
    retry_at: u64,
    /// Something has answered last that is no owner.
    pub(super) is_another: bool,
    /// One is tried.
    is_trying: bool,
}

impl CircuitBreaker {
    pub(super) fn advance_clock(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    pub(super) fn is_open(&self) -> bool {
        self.failures >= MOST
    }

    /// When it failed last, if it has not answered since.
    pub(super) fn last_failure_at(&self) -> Option<u64> {
        (self.failures > 0).then(|| self.retry_at.saturating_sub(PAUSE))
    }

    /// Whether it may be asked.
    pub(super) fn allows_owner_request(&self) -> bool {
        !self.is_open() || self.now >= self.retry_at && !self.is_trying
    }

    /// It is asked.
    pub(super) fn record_owner_attempt(&mut self) {
        self.is_trying = self.is_open();
    }

    pub(super) fn record_success(&mut self) {
        self.failures = 0;
        self.is_another = false;
        self.is_trying = false;
    }

    /// It could not be seen whether it answers.
    pub(super) fn record_unknown_outcome(&mut self) {
        self.is_trying = false;
    }

    pub(super) fn record_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.is_trying = false;
        self.retry_at = self.now + PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use super::{CircuitBreaker, MOST, PAUSE};

    #[test]
    fn unreachable_owner_is_queried_once_per_pause() {
        let mut pulse = CircuitBreaker::default();
        pulse.advance_clock(1_000);
        for _ in 1..MOST {
            pulse.record_failure();
            assert!(pulse.allows_owner_request());
        }
        pulse.record_success();
        for _ in 0..MOST {
            assert!(pulse.allows_owner_request() && !pulse.is_open());
            pulse.record_failure();
        }
        assert!(pulse.is_open() && !pulse.allows_owner_request());
        pulse.advance_clock(1_000 + PAUSE - 1);
        assert!(!pulse.allows_owner_request());
        pulse.advance_clock(1_000 + PAUSE);
        assert!(pulse.allows_owner_request());
        pulse.record_owner_attempt();
        assert!(!pulse.allows_owner_request());
        pulse.record_failure();
        assert!(!pulse.allows_owner_request());
        pulse.advance_clock(1_000 + 2 * PAUSE);
        assert!(pulse.allows_owner_request());
        pulse.record_owner_attempt();
        pulse.record_success();
        assert!(pulse.allows_owner_request() && !pulse.is_open());
    }
}
