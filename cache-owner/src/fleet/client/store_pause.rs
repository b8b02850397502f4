//! The pause of stores while the server refuses writes: its memory is full, or it is a replica.
//! Lookups go on.

use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Time from which on a store is permitted, in milliseconds of the clock; 0: there is no pause.
    /// Written with the state.
    paused_until: AtomicU64,
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
            paused_until: AtomicU64::new(0),
            log,
            clock: Instant::now(),
        }
    }

    /// Whether the server refuses writes.
    pub(super) fn is_paused(&self) -> bool {
        self.paused_until.load(Ordering::Relaxed) != 0
    }

    /// Whether a store would be sent: there is no pause, or the next store is a probe.
    pub(super) fn permits_store(&self) -> bool {
        let until = self.paused_until.load(Ordering::Relaxed);
        until == 0 || until <= self.now_ms()
    }

    /// Begins a store.
    ///
    /// # Errors
    /// [`FleetError::Open`]: stores are paused.
    pub(super) fn begin_store(&self) -> Result<PermittedStore<'_>, FleetError> {
        let now = self.now_ms();
        let permit = {
            let mut state = lock_ignoring_poison(&self.state);
            let permit = state.breaker.permit(now);
            self.publish_pause(&state.breaker, now);
            permit
        };
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
            let change = state.breaker.record(now, outcome);
            self.publish_pause(&state.breaker, now);
            match change {
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

    fn publish_pause(&self, breaker: &CircuitBreaker, now: u64) {
        let until = match breaker.state() {
            BreakerState::Closed => 0,
            // not 0, which is no pause
            BreakerState::Open | BreakerState::HalfOpen => {
                now.saturating_add(breaker.wait_ms(now)).max(1)
            }
        };
        self.paused_until.store(until, Ordering::Relaxed);
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
