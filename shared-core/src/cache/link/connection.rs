//! The connection to the owner, without I/O: its states, the bytes that are sent and received, and the
//! actions of the host.

use std::collections::VecDeque;

use crate::cache::owner_protocol::connection_output::ConnectionOutput;
use crate::cache::owner_protocol::frame::{FrameDecoder, MAX_CONNECTION_FRAME_BYTES};
use crate::time_constants::link_silence;

/// Time after a failure until the connection is retried, in milliseconds: an owner that is restarted
/// is back within moments.
const RETRY_MS: u64 = 20;

/// Number of failures in a row after which it is retried less often.
const QUICK_RETRIES: u32 = 50;

/// Time between these later retries, in milliseconds.
const SLOW_RETRY_MS: u64 = 250;

/// The next action that the host has to carry out on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// Open the connection, then call [`OwnerLink::handle_connection_opened`].
    Connect,
    /// Call [`OwnerLink::pass_unwritten_pieces`] until nothing is left.
    Write,
    /// Close the connection.
    Close,
    /// Call [`OwnerLink::tick`].
    Tick,
}

/// The connection, and the actions that the host has to carry out on it.
#[derive(Debug)]
pub(super) struct OwnerConnection {
    pub(super) state: ConnectionState,
    pub(super) actions: VecDeque<LinkAction>,
    /// Time at which the host will call `tick`, in milliseconds.
    pub(super) tick_at: u64,
    /// Whether the host has to call `tick` before.
    pub(super) needs_tick: bool,
    /// Number of connections that have failed in a row.
    failures: u32,
}

impl Default for OwnerConnection {
    fn default() -> Self {
        Self {
            state: ConnectionState::Closed { retry_at: 0 },
            actions: VecDeque::new(),
            tick_at: 0,
            // the first tick opens the connection
            needs_tick: true,
            failures: 0,
        }
    }
}

/// The state of the connection.
#[derive(Debug)]
pub(super) enum ConnectionState {
    Closed {
        /// Earliest time of the next attempt.
        retry_at: u64,
    },
    Connecting,
    Open(Box<OpenConnection>),
}

/// A connection that is open.
#[derive(Debug)]
pub(super) struct OpenConnection {
    /// The preface and the frame that are being written.
    pub(super) output: ConnectionOutput,
    /// Whether the host was requested to write, and has not written everything.
    pub(super) is_writing: bool,
    pub(super) decoder: FrameDecoder,
    /// Time at which the last bytes were received.
    pub(super) since: u64,
}

impl OwnerConnection {
    /// Returns the connection if it is open.
    pub(super) fn open_connection(&mut self) -> Option<&mut OpenConnection> {
        match &mut self.state {
            ConnectionState::Open(open) => Some(open),
            _ => None,
        }
    }

    /// Has the host call `tick` in time for something that is due.
    pub(super) fn schedule_tick(&mut self, due: u64) {
        self.needs_tick |= due < self.tick_at;
    }

    /// Records that the owner has opened a session.
    pub(super) fn record_session_opened(&mut self) {
        self.failures = 0;
        // the host logs that the owner responds again
        self.needs_tick = true;
    }

    /// Whether no connection has failed since the last session.
    pub(super) fn has_not_failed(&self) -> bool {
        self.failures == 0
    }

    /// Records that the connection is closed or could not be opened, and has it retried later.
    pub(super) fn close_until_retry(&mut self, now: u64) {
        self.failures = self.failures.saturating_add(1);
        // an absent owner is not polled all the time
        let wait = match self.failures {
            ..=QUICK_RETRIES => RETRY_MS,
            _ => SLOW_RETRY_MS,
        };
        let retry_at = now.saturating_add(wait);
        self.state = ConnectionState::Closed { retry_at };
        self.schedule_tick(retry_at);
    }

    /// Time at which the connection has to be retried, or whether it is silent to be checked.
    pub(super) fn next_due(&self, now: u64) -> u64 {
        match &self.state {
            ConnectionState::Closed { retry_at } => *retry_at,
            _ => now.saturating_add(link_silence() / 2),
        }
    }
}

impl OpenConnection {
    /// Creates a connection that was opened at `now`.
    pub(super) fn new(now: u64) -> Self {
        Self {
            output: ConnectionOutput::default(),
            is_writing: false,
            decoder: FrameDecoder::new(MAX_CONNECTION_FRAME_BYTES),
            since: now,
        }
    }
}
