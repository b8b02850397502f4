//! The circuit breaker of a connection to the fleet: it stops requests to a server that does not
//! reply or fails, so that they cost no time, and lets one through from time to time.

/// Number of time-outs in a row that open the breaker.
const MAX_TIMEOUTS: u32 = 5;

/// Minimum number of results within a second that open the breaker if half of them are failures.
const MIN_RESULTS: u32 = 20;

/// Shortest and longest time for which the breaker is open, in milliseconds. It doubles with each
/// failed probe.
const FIRST_OPEN_MS: u64 = 1_000;
const MAX_OPEN_MS: u64 = 30_000;

/// Number of doublings that exceed the longest time.
const MAX_DOUBLINGS: u32 = 5;

/// Time after which the breaker has been closed for so long that it opens for the shortest time
/// again, in milliseconds.
const STABLE_MS: u64 = 30_000;

/// Time after which a probe without a result counts as abandoned, in milliseconds.
const PROBE_MS: u64 = 5_000;

/// Interval in which results are counted, in milliseconds, and its parts.
const WINDOW_MS: u64 = 1_000;
const WINDOW_PARTS: usize = 10;
const WINDOW_PART_MS: u64 = WINDOW_MS / WINDOW_PARTS as u64;

/// Permission to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The request is sent: the breaker is closed.
    Closed,
    /// The request is sent as the probe whose result closes the breaker or opens it again.
    Probe,
    /// The request is not sent: the breaker is open.
    Open,
}

/// The result of a request, as far as it concerns the server's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has replied, if only that it has no such value.
    Success,
    /// The server has not replied in time.
    Timeout,
    /// The connection failed, or the server has replied that it cannot serve.
    Failure,
    /// The server refuses all such requests: the breaker opens at once.
    Refusal,
    /// The caller has abandoned the request before its result.
    Abandoned,
}

named_enum! {
    /// The state of a breaker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    BreakerState
    /// Requests are sent.
    Closed "closed",
    /// No request is sent.
    Open "open",
    /// One request is sent, the probe.
    HalfOpen "half-open",
}

named_enum! {
    /// The reason why a breaker opened. Its name has no counts: a reason that continues has one
    /// name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    OpenReason
    /// Several requests in a row timed out.
    Timeouts "no reply in time",
    /// At least every second request of a second failed.
    Failures "half of the requests fail",
    /// The server refused a request.
    Refusal "the server refuses requests",
    /// The probe failed.
    Probe "the probe failed",
}

/// A change of a breaker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// The breaker opened.
    Opened {
        /// Time until the next probe, in milliseconds.
        open_ms: u64,
        /// The reason why it opened. [`OpenReason::Probe`]: it was not closed in between.
        reason: OpenReason,
    },
    /// The breaker closed.
    Closed {
        /// Time since it opened, in milliseconds.
        after_ms: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    /// A probe is due at `until`.
    Open {
        until: u64,
    },
    /// A probe was sent, and counts as abandoned at `until`.
    Probing {
        until: u64,
    },
}

/// A circuit breaker. It reads no clock: times are in milliseconds of any clock that is not set
/// back.
///
/// Results of requests that were sent before the breaker opened must not be recorded once a probe
/// is permitted: they would be taken for its result.
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    state: State,
    /// Number of time-outs since the last success.
    timeouts: u32,
    /// Number of times that the breaker has opened without being stable in between.
    openings: u32,
    opened_at: u64,
    closed_at: u64,
    results: RecentResults,
    random: u64,
}

impl CircuitBreaker {
    /// Creates a closed breaker. `random` is the seed of the jitter of its times.
    pub fn new(random: u64) -> Self {
        Self {
            state: State::Closed,
            timeouts: 0,
            openings: 0,
            opened_at: 0,
            closed_at: 0,
            results: RecentResults::default(),
            // the generator has no state of zero
            random: random | 1,
        }
    }

    /// Returns whether a request may be sent at `now`. The result of a request that was sent has to
    /// be recorded.
    pub fn permit(&mut self, now: u64) -> Permit {
        match self.state {
            State::Closed => Permit::Closed,
            State::Open { until } | State::Probing { until } if now < until => Permit::Open,
            State::Open { .. } | State::Probing { .. } => {
                self.state = State::Probing {
                    until: now.saturating_add(PROBE_MS),
                };
                Permit::Probe
            }
        }
    }

    /// Returns the time until the next request is permitted at `now`, in milliseconds: 0 if one is.
    pub fn wait_ms(&self, now: u64) -> u64 {
        match self.state {
            State::Closed => 0,
            State::Open { until } | State::Probing { until } => until.saturating_sub(now),
        }
    }

    /// Records the result of a permitted request.
    pub fn record(&mut self, now: u64, outcome: Outcome) -> Option<BreakerChange> {
        match self.state {
            // of a request that was sent before
            State::Open { .. } => None,
            State::Probing { .. } => match outcome {
                Outcome::Success => Some(self.close(now)),
                Outcome::Abandoned => {
                    self.state = State::Open { until: now };
                    None
                }
                Outcome::Timeout | Outcome::Failure | Outcome::Refusal => {
                    Some(self.open(now, OpenReason::Probe))
                }
            },
            State::Closed => {
                let reason = self.count_result(now, outcome)?;
                if now.saturating_sub(self.closed_at) >= STABLE_MS {
                    self.openings = 0;
                }
                self.opened_at = now;
                Some(self.open(now, reason))
            }
        }
    }

    /// Returns the state. A breaker whose probe is due is open.
    pub fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::Probing { .. } => BreakerState::HalfOpen,
        }
    }

    /// Counts a result, and returns the reason to open if there is one.
    fn count_result(&mut self, now: u64, outcome: Outcome) -> Option<OpenReason> {
        match outcome {
            Outcome::Abandoned => return None,
            Outcome::Refusal => return Some(OpenReason::Refusal),
            Outcome::Success => self.timeouts = 0,
            Outcome::Timeout => self.timeouts = self.timeouts.saturating_add(1),
            Outcome::Failure => {}
        }
        self.results.add(now, outcome != Outcome::Success);
        if self.timeouts >= MAX_TIMEOUTS {
            return Some(OpenReason::Timeouts);
        }
        let (results, failures) = self.results.sum();
        (results >= MIN_RESULTS && failures.saturating_mul(2) >= results)
            .then_some(OpenReason::Failures)
    }

    fn open(&mut self, now: u64, reason: OpenReason) -> BreakerChange {
        let doublings = self.openings.min(MAX_DOUBLINGS);
        let open_ms = self.jitter((FIRST_OPEN_MS << doublings).min(MAX_OPEN_MS));
        self.openings = self.openings.saturating_add(1);
        self.state = State::Open {
            until: now.saturating_add(open_ms),
        };
        BreakerChange::Opened { open_ms, reason }
    }

    fn close(&mut self, now: u64) -> BreakerChange {
        self.state = State::Closed;
        self.closed_at = now;
        self.timeouts = 0;
        self.results = RecentResults::default();
        BreakerChange::Closed {
            after_ms: now.saturating_sub(self.opened_at),
        }
    }

    /// Returns a time of 80 to 120 percent of `time_ms`.
    fn jitter(&mut self, time_ms: u64) -> u64 {
        // xorshift
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        time_ms / 100 * (80 + self.random % 41)
    }
}

/// The results of the last second, by the part of a second in which they were recorded.
#[derive(Clone, Copy, Debug, Default)]
struct RecentResults {
    parts: [ResultCounts; WINDOW_PARTS],
    /// Number of the latest part since the beginning of the clock.
    latest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ResultCounts {
    results: u32,
    failures: u32,
}

impl RecentResults {
    fn add(&mut self, now: u64, is_failure: bool) {
        let part = (now / WINDOW_PART_MS).max(self.latest);
        let outdated = (part - self.latest).min(WINDOW_PARTS as u64);
        for offset in 0..outdated {
            *self.part_mut(part - offset) = ResultCounts::default();
        }
        self.latest = part;
        let counts = self.part_mut(part);
        counts.results = counts.results.saturating_add(1);
        counts.failures = counts.failures.saturating_add(is_failure.into());
    }

    fn part_mut(&mut self, part: u64) -> &mut ResultCounts {
        // the remainder is less than the number of parts
        &mut self.parts[(part % WINDOW_PARTS as u64) as usize]
    }

    /// Returns the number of results and of failures.
    fn sum(&self) -> (u32, u32) {
        self.parts.iter().fold((0, 0), |(results, failures), part| {
            (
                part.results.saturating_add(results),
                part.failures.saturating_add(failures),
            )
        })
    }
}

#[cfg(test)]
mod tests;
