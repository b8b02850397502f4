//! The pause of stores while the server refuses writes: its memory is full, or it is a replica.
//! Lookups go on.

use std::sync::Mutex;

use sszip_core::cache::fleet::breaker::{
    BreakerChange, BreakerState, CircuitBreaker, Outcome, Permit,
};
use sszip_core::lock::lock_ignoring_poison;
use tokio::time::Instant;

use super::availability::AvailabilityLog;
use super::error::FleetError;
use crate::fleet::random_number;
use crate::log::LogFunction;

/// The circuit breaker of stores, which opens at the first refusal.
pub(super) struct StorePause {
    state: Mutex<PauseState>,
    log: LogFunction,
    clock: Instant,
}

struct PauseState {
    breaker: CircuitBreaker,
    log: AvailabilityLog,
}

impl StorePause {
    pub(super) fn new(subject: String, log: LogFunction) -> Self {
        let mut availability =
            AvailabilityLog::new(format!("{subject}: stores"), "lookups are not affected");
        // not paused at first, which needs no line
        let _ = availability.line_when_used(0, None);
        Self {
            state: Mutex::new(PauseState {
                breaker: CircuitBreaker::new(random_number()),
                log: availability,
            }),
            log,
            clock: Instant::now(),
        }
    }

    /// Whether the server refuses writes.
    pub(super) fn is_paused(&self) -> bool {
        lock_ignoring_poison(&self.state).breaker.state() != BreakerState::Closed
    }

    /// Begins a store.
    ///
    /// # Errors
    /// [`FleetError::Open`]: stores are paused.
    pub(super) fn begin_store(&self) -> Result<PermittedStore<'_>, FleetError> {
        let now = self.now_ms();
        let permit = lock_ignoring_poison(&self.state).breaker.permit(now);
        match permit {
            Permit::Open => Err(FleetError::Open),
            Permit::Closed | Permit::Probe => Ok(PermittedStore {
                pause: self,
                is_recorded: false,
            }),
        }
    }

    fn record(&self, outcome: Outcome, reason: &str) {
        let now = self.now_ms();
        let line = {
            let mut state = lock_ignoring_poison(&self.state);
            match state.breaker.record(now, outcome) {
                None => None,
                Some(BreakerChange::Closed { .. }) => state.log.line_when_used(now, None),
                Some(BreakerChange::Opened { open_ms, .. }) => {
                    state.log.line_when_unused(now, Some(open_ms), reason)
                }
            }
        };
        if let Some((level, line)) = line {
            (self.log)(level, &line);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A permitted store. A store without a recorded result does not change the pause.
pub(super) struct PermittedStore<'a> {
    pause: &'a StorePause,
    is_recorded: bool,
}

impl PermittedStore<'_> {
    /// Records that the server has stored the value.
    pub(super) fn record_success(mut self) {
        self.is_recorded = true;
        self.pause.record(Outcome::Success, "");
    }

    /// Records that the server refuses writes.
    pub(super) fn record_refusal(mut self, reason: &str) {
        self.is_recorded = true;
        self.pause.record(Outcome::Refusal, reason);
    }
}

impl Drop for PermittedStore<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.pause.record(Outcome::Abandoned, "");
        }
    }
}
