//! One connection of the client: its circuit breaker and its state.

pub(super) mod link_call;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisConnectionInfo, RedisResult, ServerError, Value};
use sszip_core::cache::fleet::breaker::{
    BreakerChange, BreakerState, CircuitBreaker, OpenReason, Outcome, Permit,
};
use sszip_core::cache::fleet::reply_limit::{ReplyLimits, ReplyViolation};
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::{watch, Notify};
use tokio::time::{timeout, Instant};

use super::availability::AvailabilityLog;
use super::cluster::OpenCluster;
use super::error::FleetError;
use super::stream_opener::LinkTarget;
use crate::fleet::random_number;
use crate::fleet::reply_limit_stream::FleetTraffic;
use crate::log::{LogFunction, LogLevel};

/// Time after which the connection to a cluster is dropped, so that the next one begins with the
/// configured nodes, if commands were sent and none has succeeded, in milliseconds.
const MAX_CLUSTER_FAILURE_MS: u64 = 3_000;

/// The settings of a connection.
pub(super) struct LinkSettings {
    /// Beginning of the log lines.
    pub(super) subject: String,
    /// The effect of an unused connection, for log lines.
    pub(super) effect: &'static str,
    pub(super) limits: ReplyLimits,
    /// Maximum number of commands that wait to be written.
    pub(super) queue_length: usize,
    pub(super) connect_timeout: Duration,
    /// Time limit of a probe.
    pub(super) probe_timeout: Duration,
    /// Beginning of the names of values, for probes.
    pub(super) value_prefix: String,
    pub(super) info: RedisConnectionInfo,
}

/// An open connection; clones share it.
#[derive(Clone)]
pub(super) struct OpenConnection {
    pub(super) connection: FleetConnection,
    /// The limit that the server's bytes violated.
    pub(super) violation: Arc<OnceLock<ReplyViolation>>,
}

/// A connection to one server or to a cluster.
#[derive(Clone)]
pub(super) enum FleetConnection {
    Server(MultiplexedConnection),
    Cluster(OpenCluster),
}

impl FleetConnection {
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(connection) => connection.send_packed_command(command).await,
            // an error that the library has not resolved is a reply, as an error of one server
            Self::Cluster(cluster) => match cluster.send(command).await {
                Ok(value) => Ok(value),
                Err(error) => ServerError::try_from(error).map(Value::ServerError),
            },
        }
    }
}

/// The progress of the connector, for commands that wait for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkPhase {
    /// An attempt to connect is in progress.
    Connecting,
    /// The connection is open.
    Connected,
    /// The connection is closed, for this reason; the next attempt follows after a pause.
    Disconnected(String),
}

struct LinkState {
    open: Option<OpenConnection>,
    /// Number of connections up to now. Results of earlier ones are ignored.
    generation: u64,
    breaker: CircuitBreaker,
    /// Whether the server has replied to a command on the present connection.
    has_replied: bool,
    /// Time of the first failure since the last success on the present connection.
    failing_since: Option<u64>,
    log: AvailabilityLog,
}

/// One connection of the client. The connector opens it, and opens it again after it was lost or
/// its breaker opened; commands use it if it is open. A breaker that is not closed has no open
/// connection: the connector sends the probe before commands use a new one.
pub(super) struct FleetLink {
    pub(super) settings: LinkSettings,
    pub(super) target: LinkTarget,
    pub(super) traffic: Arc<FleetTraffic>,
    log: LogFunction,
    clock: Instant,
    state: Mutex<LinkState>,
    /// Whether there is an open connection. Written with the state.
    is_open: Arc<AtomicBool>,
    pub(super) phase: watch::Sender<LinkPhase>,
    /// Notified when a connection is to be dropped.
    pub(super) dropped: Notify,
}

impl FleetLink {
    pub(super) fn new(
        settings: LinkSettings,
        target: LinkTarget,
        traffic: Arc<FleetTraffic>,
        log: LogFunction,
    ) -> Self {
        let availability = AvailabilityLog::new(settings.subject.clone(), settings.effect);
        Self {
            settings,
            target,
            traffic,
            log,
            clock: Instant::now(),
            state: Mutex::new(LinkState {
                open: None,
                generation: 0,
                breaker: CircuitBreaker::new(random_number()),
                has_replied: false,
                failing_since: None,
                log: availability,
            }),
            is_open: Arc::default(),
            phase: watch::Sender::new(LinkPhase::Connecting),
            dropped: Notify::new(),
        }
    }

    /// Milliseconds of the client's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether a command would be sent: the connection is open, and the breaker closed.
    pub(super) fn is_connected(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Returns the flag of [`is_connected`](Self::is_connected).
    pub(super) fn connected_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_open)
    }

    pub(super) fn breaker_state(&self) -> BreakerState {
        lock_ignoring_poison(&self.state).breaker.state()
    }

    /// Returns the time until the breaker permits a command.
    pub(super) fn breaker_wait(&self) -> Duration {
        let now = self.now_ms();
        Duration::from_millis(lock_ignoring_poison(&self.state).breaker.wait_ms(now))
    }

    /// Waits for the end of an attempt to connect that is in progress.
    ///
    /// # Errors
    /// The connection could not be opened, for the reason in the error.
    pub(super) async fn wait_for_connection(&self, limit: Duration) -> Result<(), FleetError> {
        let mut phase = self.phase.subscribe();
        let ended = phase.wait_for(|phase| *phase != LinkPhase::Connecting);
        let ended = timeout(limit, ended).await;
        match ended {
            Err(_) => Err(FleetError::Timeout),
            // the sender is a part of this link
            Ok(Err(_)) => Err(FleetError::Open),
            Ok(Ok(phase)) => match &*phase {
                LinkPhase::Disconnected(reason) => Err(FleetError::Connection(reason.clone())),
                LinkPhase::Connected | LinkPhase::Connecting => Ok(()),
            },
        }
    }

    /// Begins the probe of a new connection. Returns `false` if the breaker is closed, so that none
    /// is needed.
    pub(super) fn begin_probe(&self) -> bool {
        let now = self.now_ms();
        lock_ignoring_poison(&self.state).breaker.permit(now) != Permit::Closed
    }

    /// Records the result of a probe, `detail`: the error. Returns whether the connection may be
    /// used.
    pub(super) fn record_probe(&self, outcome: Outcome, detail: Option<&str>) -> bool {
        let now = self.now_ms();
        let line = {
            let mut state = lock_ignoring_poison(&self.state);
            let (open_ms, reason) = match state.breaker.record(now, outcome) {
                Some(BreakerChange::Closed { .. }) => return true,
                Some(BreakerChange::Opened { open_ms, reason }) => (Some(open_ms), reason),
                None => (None, OpenReason::Probe),
            };
            let reason = format_open_reason(reason, detail);
            state.has_replied = false;
            self.phase
                .send_replace(LinkPhase::Disconnected(reason.clone()));
            state.log.line_when_unused(now, open_ms, &reason)
        };
        self.write_log(line);
        false
    }

    /// Uses a new connection from now on, and returns its generation. The breaker is closed.
    pub(super) fn set_connection(&self, open: OpenConnection, connect_time: Duration) -> u64 {
        let now = self.now_ms();
        let (generation, line) = {
            let mut state = lock_ignoring_poison(&self.state);
            self.set_open_connection(&mut state, Some(open));
            state.generation += 1;
            state.has_replied = false;
            state.failing_since = None;
            self.phase.send_replace(LinkPhase::Connected);
            let line = state.log.line_when_used(now, Some(connect_time));
            (state.generation, line)
        };
        self.write_log(line);
        generation
    }

    /// Whether commands use the connection of this generation.
    pub(super) fn is_current(&self, generation: u64) -> bool {
        let state = lock_ignoring_poison(&self.state);
        state.generation == generation && state.open.is_some()
    }

    /// Whether the server has replied to a command on the present connection, or on the last one.
    pub(super) fn has_replied(&self) -> bool {
        lock_ignoring_poison(&self.state).has_replied
    }

    /// Records that there is no connection, for this reason.
    pub(super) fn set_disconnected(&self, reason: &str) {
        let now = self.now_ms();
        let line = {
            let mut state = lock_ignoring_poison(&self.state);
            self.set_open_connection(&mut state, None);
            self.phase
                .send_replace(LinkPhase::Disconnected(reason.to_owned()));
            state.log.line_when_unused(now, None, reason)
        };
        self.write_log(line);
    }

    /// Records the result of a command on the connection of this generation. `detail`: the error.
    fn record(&self, generation: u64, outcome: Outcome, detail: Option<&str>) {
        let now = self.now_ms();
        let line = {
            let mut state = lock_ignoring_poison(&self.state);
            if state.generation != generation || state.open.is_none() {
                return;
            }
            state.has_replied |= outcome == Outcome::Success;
            match outcome {
                Outcome::Success => state.failing_since = None,
                Outcome::Timeout | Outcome::Failure => {
                    state.failing_since.get_or_insert(now);
                }
                Outcome::Refusal | Outcome::Abandoned => {}
            }
            let failure_ms = state
                .failing_since
                .map_or(0, |since| now.saturating_sub(since));
            match state.breaker.record(now, outcome) {
                None if self.is_cluster() && failure_ms >= MAX_CLUSTER_FAILURE_MS => {
                    let seconds = MAX_CLUSTER_FAILURE_MS / 1_000;
                    let reason = format!("no command has succeeded for {seconds} s");
                    self.drop_connection(&mut state, &reason);
                    state.log.line_when_unused(now, None, &reason)
                }
                None => return,
                Some(BreakerChange::Closed { .. }) => state.log.line_when_used(now, None),
                Some(BreakerChange::Opened { open_ms, reason }) => {
                    let reason = format_open_reason(reason, detail);
                    self.drop_connection(&mut state, &reason);
                    state.log.line_when_unused(now, Some(open_ms), &reason)
                }
            }
        };
        self.write_log(line);
    }

    /// Drops the connection of this generation, whose replies don't fit its commands.
    fn discard_connection(&self, generation: u64, reason: &str) {
        let now = self.now_ms();
        let line = {
            let mut state = lock_ignoring_poison(&self.state);
            if state.generation != generation || state.open.is_none() {
                return;
            }
            self.drop_connection(&mut state, reason);
            state.log.line_when_unused(now, None, reason)
        };
        self.write_log(line);
    }

    fn is_cluster(&self) -> bool {
        matches!(self.target, LinkTarget::Cluster(_))
    }

    /// Drops the connection to a server that was a primary and is none any more, so that Sentinels
    /// are queried again.
    pub(super) fn discard_replica(&self, error: &ServerError) {
        if error.code() != "READONLY" || !matches!(self.target, LinkTarget::Primary(_)) {
            return;
        }
        let generation = lock_ignoring_poison(&self.state).generation;
        self.discard_connection(generation, "the server is not the primary any more");
    }

    fn set_open_connection(&self, state: &mut LinkState, open: Option<OpenConnection>) {
        self.is_open.store(open.is_some(), Ordering::Relaxed);
        state.open = open;
    }

    fn drop_connection(&self, state: &mut LinkState, reason: &str) {
        self.set_open_connection(state, None);
        self.phase
            .send_replace(LinkPhase::Disconnected(reason.to_owned()));
        self.dropped.notify_one();
    }

    fn write_log(&self, line: Option<(LogLevel, String)>) {
        if let Some((level, line)) = line {
            (self.log)(level, &line);
        }
    }
}

/// Returns the reason for log lines. It is the same before and after a failed probe, so that it is
/// logged once.
fn format_open_reason(reason: OpenReason, detail: Option<&str>) -> String {
    let text = match (reason, detail) {
        // a time-out has no error of the server
        (OpenReason::Timeouts, _) | (OpenReason::Probe, None) => OpenReason::Timeouts.name(),
        (_, None) => reason.name(),
        (_, Some(detail)) => detail,
    };
    text.to_owned()
}
