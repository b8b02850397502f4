//! The circuit breaker of the owner.

/// So many failures, one after the other, and it is taken for gone.
const MOST: u32 = 3;

/// How long after that one is tried again. Milliseconds.
const PAUSE: u64 = 250;

#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// The last time that is known.
    now: u64,
    failures: u32,
    retry_at: u64,
    /// Something has answered last that is no owner.
    pub(super) is_another: bool,
    /// One is tried.
    is_trying: bool,
}

impl Pulse {
    pub(super) fn at(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    pub(super) fn is_down(&self) -> bool {
        self.failures >= MOST
    }

    /// When it failed last, if it has not answered since.
    pub(super) fn failed_at(&self) -> Option<u64> {
        (self.failures > 0).then(|| self.retry_at.saturating_sub(PAUSE))
    }

    /// Whether it may be asked.
    pub(super) fn may_ask(&self) -> bool {
        !self.is_down() || self.now >= self.retry_at && !self.is_trying
    }

    /// It is asked.
    pub(super) fn asks(&mut self) {
        self.is_trying = self.is_down();
    }

    pub(super) fn answered(&mut self) {
        self.failures = 0;
        self.is_another = false;
        self.is_trying = false;
    }

    /// It could not be seen whether it answers.
    pub(super) fn ended(&mut self) {
        self.is_trying = false;
    }

    pub(super) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.is_trying = false;
        self.retry_at = self.now + PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use super::{Pulse, MOST, PAUSE};

    #[test]
    fn unreachable_owner_is_queried_once_per_pause() {
        let mut pulse = Pulse::default();
        pulse.at(1_000);
        for _ in 1..MOST {
            pulse.failed();
            assert!(pulse.may_ask());
        }
        pulse.answered();
        for _ in 0..MOST {
            assert!(pulse.may_ask() && !pulse.is_down());
            pulse.failed();
        }
        assert!(pulse.is_down() && !pulse.may_ask());
        pulse.at(1_000 + PAUSE - 1);
        assert!(!pulse.may_ask());
        pulse.at(1_000 + PAUSE);
        assert!(pulse.may_ask());
        pulse.asks();
        assert!(!pulse.may_ask());
        pulse.failed();
        assert!(!pulse.may_ask());
        pulse.at(1_000 + 2 * PAUSE);
        assert!(pulse.may_ask());
        pulse.asks();
        pulse.answered();
        assert!(pulse.may_ask() && !pulse.is_down());
    }
}
