//! A connection that carries frames: one process, one session.
//!
//! ```text
//!  read ──▶ handle all frames ──▶ take the output, one vectored write ──▶ wait
//!   ▲                               bytes, room, completed tasks, events, time │
//!   └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A process that does not read delays no other: its requests are not read while its output waits, and
//! its connection is closed after the idle timeout.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{Error, ErrorKind};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use sszip_core::cache::owner::session::SessionEnded;
use sszip_core::cache::owner::session_tasks::SessionEnd;
use sszip_core::cache::owner_protocol::connection_output::ConnectionOutput;
use sszip_core::cache::owner_protocol::frame::{
    check_preface, FrameDecoder, MAX_CONNECTION_FRAME_BYTES, MAX_FRAME_MESSAGES, PREFACE,
    SOFT_FRAME_BYTES,
};
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::{OwnerMessage, RefusalReason};
use sszip_core::cache::owner_protocol::process_message::ProcessMessage;
use sszip_core::cache::owner_protocol::protocol_error::ProtocolError;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::{sleep, Instant};

use super::open_session::OpenSession;
use super::socket::{FrameSocket, SocketRoom};
use super::tasks::{CompletedTask, SessionTasks};
use crate::clock::read_clocks;
use crate::operations::OwnerOperations;
use crate::stop::wait_for_stop;

/// Maximum bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// Bytes from which on no further frame is added to a write.
const WRITE_BYTES: usize = 256 << 10;

/// Memory of a session's replies, without the parts of long ones, from which on no further requests of
/// it are handled, in bytes.
const MAX_WAITING_OUTPUT_BYTES: usize = 1 << 20;

/// Minimum time between two send leases, in milliseconds.
const MIN_LEASE_PAUSE_MS: u64 = 10;

/// Length of the part of the preface that all versions of frames have.
const MAGIC_LENGTH: usize = 3;

thread_local! {
    /// The buffer of all reads of a thread: a connection that waits has none.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Whether the first bytes of a connection show that it carries frames, of any version.
pub fn is_frame_connection(first_bytes: &[u8]) -> bool {
    first_bytes.len() >= MAGIC_LENGTH
        && check_preface(first_bytes) != Err(ProtocolError::UnknownPreface)
}

/// Serves a connection that carries frames until either side ends it, or until `stop` is true.
/// `first_bytes` were read from it already.
pub async fn serve_frame_connection(
    socket: UnixStream,
    first_bytes: &[u8],
    operations: &Arc<OwnerOperations>,
    idle: Duration,
    mut stop: watch::Receiver<bool>,
) {
    // an error is the system's, and the client connects again
    let Ok(socket) = FrameSocket::new(socket) else {
        return;
    };
    let mut connection = FrameConnection::new(socket, operations, idle);
    let stopped = pin!(wait_for_stop(&mut stop));
    let served = async {
        connection.decoder.receive_bytes(first_bytes)?;
        connection.serve().await
    };
    tokio::select! {
        // its errors are the client's, except for memory, which its next connection may have
        _ = served => {}
        () = stopped => {}
    }
    // what the socket accepts: the rest is lost with the connection
    let _ = connection.socket.write_output(&mut connection.output);
}

/// The reason why the owner closes a connection.
#[derive(Debug, thiserror::Error)]
enum ConnectionEnd {
    #[error("the client has closed the connection: {0}")]
    Socket(#[from] Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Session(#[from] SessionEnd),
    #[error(transparent)]
    Lost(#[from] SessionEnded),
    #[error("the session is refused: {0:?}")]
    Refused(RefusalReason),
    #[error("the first message is no request for a session")]
    NoSession,
    #[error("the client has made no progress in time")]
    Idle,
    #[error("a task has failed: {0}")]
    Task(#[from] JoinError),
}

/// A connection, and the session of its process once it is open.
struct FrameConnection<'a> {
    socket: FrameSocket,
    /// Waits for room in the socket, if output is left.
    room: Option<SocketRoom>,
    operations: &'a Arc<OwnerOperations>,
    decoder: FrameDecoder,
    session: Option<OpenSession>,
    tasks: SessionTasks,
    output: ConnectionOutput,
    /// Maximum time without progress, in milliseconds.
    idle: u64,
    /// Times in monotonic milliseconds. The beginning of the incomplete frame, or of the connection
    /// if it has no session.
    incomplete_since: Option<u64>,
    /// Time of the last write, if output is left.
    blocked_since: Option<u64>,
    /// Time at which the next send lease is due, or before.
    lease_due: u64,
    /// Whether events may wait.
    has_events: bool,
    /// Whether received frames wait until there is less output.
    has_unhandled_frames: bool,
}

/// The event for which a connection has waited.
enum Wakeup {
    /// Bytes were received, output can be written, or a time has come.
    Continue,
    /// Events wait.
    Events,
    /// Tasks are complete.
    Completed(Vec<CompletedTask>),
}

impl<'a> FrameConnection<'a> {
    fn new(socket: FrameSocket, operations: &'a Arc<OwnerOperations>, idle: Duration) -> Self {
        Self {
            socket,
            room: None,
            operations,
            decoder: FrameDecoder::new(MAX_CONNECTION_FRAME_BYTES),
            session: None,
            tasks: SessionTasks::default(),
            output: ConnectionOutput::default(),
            idle: u64::try_from(idle.as_millis()).unwrap_or(u64::MAX),
            incomplete_since: Some(read_clocks().monotonic),
            blocked_since: None,
            lease_due: u64::MAX,
            has_events: false,
            has_unhandled_frames: false,
        }
    }

    /// Serves the connection until it ends.
    async fn serve(&mut self) -> Result<(), ConnectionEnd> {
        let mut timer = pin!(sleep(Duration::ZERO));
        let mut timer_end = u64::MAX;
        loop {
            let handled = self.handle_frames();
            // the replies to the messages before an invalid one, and the preface
            self.write_output()?;
            handled?;
            if self.has_unhandled_frames && self.accepts_requests() {
                continue;
            }
            let now = read_clocks().monotonic;
            let deadline = self.next_deadline();
            if self.is_past_idle_time(now) {
                return Err(ConnectionEnd::Idle);
            }
            if deadline < timer_end {
                let wait = Duration::from_millis(deadline.saturating_sub(now));
                timer.as_mut().reset(Instant::now() + wait);
                timer_end = deadline;
            }
            let is_timer_set = timer_end != u64::MAX;
            let wakeup = self.wait(timer.as_mut(), is_timer_set).await?;
            if timer.is_elapsed() {
                timer_end = u64::MAX;
            }
            match (wakeup, &mut self.session) {
                (Wakeup::Completed(completed), Some(open)) => {
                    open.complete_tasks(completed, read_clocks());
                    open.finish_messages(&mut self.tasks);
                }
                (Wakeup::Events, _) => self.has_events = true,
                _ => {}
            }
        }
    }

    /// Waits until there is something to do.
    async fn wait(
        &mut self,
        timer: Pin<&mut tokio::time::Sleep>,
        is_timer_set: bool,
    ) -> Result<Wakeup, ConnectionEnd> {
        let reads = self.accepts_requests();
        let Self {
            socket,
            decoder,
            session,
            tasks,
            room,
            ..
        } = self;
        let waker = session.as_ref().map(|open| &open.waker);
        let woken = poll_fn(|context| match waker {
            Some(waker) => waker.poll_woken(context),
            None => Poll::Pending,
        });
        tokio::select! {
            // one read for each write: neither long entries nor a client that always sends delay others
            biased;
            Some(completed) = tasks.next_completed_tasks(), if !tasks.is_empty() => {
                Ok(Wakeup::Completed(completed?))
            }
            () = woken => Ok(Wakeup::Events),
            () = timer, if is_timer_set => Ok(Wakeup::Continue),
            received = poll_fn(|context| poll_receive(socket, decoder, context)), if reads => {
                received?;
                Ok(Wakeup::Continue)
            }
            Some(has_room) = wait_for_room(room.as_ref()) => {
                has_room?;
                Ok(Wakeup::Continue)
            }
        }
    }

    /// Whether requests are read and handled: little output waits.
    fn accepts_requests(&self) -> bool {
        let queued = self
            .session
            .as_ref()
            .map_or(0, |open| open.session.queued_output_bytes());
        queued.saturating_add(self.output.byte_length()) < MAX_WAITING_OUTPUT_BYTES
    }

    /// Handles the received frames.
    fn handle_frames(&mut self) -> Result<(), ConnectionEnd> {
        let mut has_handled = false;
        let result = loop {
            self.has_unhandled_frames = !self.accepts_requests();
            if self.has_unhandled_frames {
                break Ok(());
            }
            match self.handle_next_frame() {
                Ok(true) => has_handled = true,
                Ok(false) => break Ok(()),
                Err(error) => {
                    has_handled = true;
                    break Err(error);
                }
            }
        };
        if let (true, Some(open)) = (has_handled, &mut self.session) {
            open.finish_messages(&mut self.tasks);
        }
        let is_complete =
            self.session.is_some() && (self.has_unhandled_frames || self.decoder.is_at_frame_end());
        if is_complete {
            self.incomplete_since = None;
        } else if self.incomplete_since.is_none() || has_handled {
            self.incomplete_since = Some(read_clocks().monotonic);
        }
        result
    }

    /// Handles the next frame. Returns whether it is complete.
    fn handle_next_frame(&mut self) -> Result<bool, ConnectionEnd> {
        let Some(messages) = self.decoder.next_frame()? else {
            return Ok(false);
        };
        let now = read_clocks();
        for message in messages {
            let Some(message) = ProcessMessage::decode_message(&message?)? else {
                continue;
            };
            if let Some(open) = &mut self.session {
                open.receive_message(message, now)?;
                continue;
            }
            let ProcessMessage::Hello(request) = message else {
                return Err(ConnectionEnd::NoSession);
            };
            match OpenSession::open(self.operations, &request, now) {
                Ok(open) => {
                    self.session = Some(open);
                    self.lease_due = 0;
                }
                Err(reason) => {
                    self.push_refusal(reason);
                    return Err(ConnectionEnd::Refused(reason));
                }
            }
        }
        Ok(true)
    }

    /// Adds a frame which reports that the session is refused.
    fn push_refusal(&mut self, reason: RefusalReason) {
        // without memory the connection is closed all the same
        let Some(mut frame) = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES) else {
            return;
        };
        let refusal = OwnerMessage::Refused(reason);
        if refusal.append_to_frame(&mut frame).is_ok() {
            self.output.push_frame(frame);
        }
    }

    /// Takes and writes the output that waits, as much as the socket accepts.
    fn write_output(&mut self) -> Result<(), ConnectionEnd> {
        loop {
            self.take_frames()?;
            let written = self.socket.write_output(&mut self.output)?;
            if !self.output.is_empty() {
                if self.room.is_none() {
                    // registered after the write: room in the meantime is reported
                    self.room = Some(self.socket.watch_room()?);
                }
                if written > 0 || self.blocked_since.is_none() {
                    self.blocked_since = Some(read_clocks().monotonic);
                }
                return Ok(());
            }
            (self.blocked_since, self.room) = (None, None);
            let has_replies = |open: &OpenSession| open.session.has_replies();
            if written == 0 || !self.session.as_ref().is_some_and(has_replies) {
                return Ok(());
            }
        }
    }

    /// Takes frames of the session for one write, if the last one is complete.
    fn take_frames(&mut self) -> Result<(), ConnectionEnd> {
        let Some(open) = &mut self.session else {
            return Ok(());
        };
        // a frame that waits would delay the send lease in it
        if self.output.byte_length() > PREFACE.len() {
            return Ok(());
        }
        let now = read_clocks();
        let is_lease_due = now.monotonic >= self.lease_due;
        if !self.has_events && !is_lease_due && !open.session.has_replies() {
            return Ok(());
        }
        let owner = &self.operations.engine.owner;
        while self.output.byte_length() < WRITE_BYTES {
            // without memory it is tried again at the next send lease
            let Some(frame) = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES) else {
                break;
            };
            let from = open.session.last_sent_event();
            let frame = owner.take_session_frame(&mut open.session, from, false, frame, now)?;
            let is_last = frame.message_count() < MAX_FRAME_MESSAGES
                && frame.byte_length() < SOFT_FRAME_BYTES
                && !open.session.has_replies();
            if frame.message_count() > 0 {
                self.output.push_frame(frame);
            }
            if is_last {
                self.has_events = false;
                break;
            }
        }
        if is_lease_due {
            let due = owner.next_send_lease_due(&open.session);
            let retry = now.monotonic.saturating_add(MIN_LEASE_PAUSE_MS);
            self.lease_due = due.unwrap_or(u64::MAX).max(retry);
        }
        Ok(())
    }

    /// Time of the next action that no event causes, in monotonic milliseconds.
    fn next_deadline(&self) -> u64 {
        let idle = [self.incomplete_since, self.blocked_since]
            .into_iter()
            .flatten()
            .map(|since| since.saturating_add(self.idle));
        let lease = self.output.is_empty().then_some(self.lease_due);
        idle.chain(lease).min().unwrap_or(u64::MAX)
    }

    /// Whether the client has neither completed a frame nor read for the idle timeout.
    fn is_past_idle_time(&self, now: u64) -> bool {
        [self.incomplete_since, self.blocked_since]
            .into_iter()
            .flatten()
            .any(|since| now.saturating_sub(since) >= self.idle)
    }
}

/// Waits until the socket has room; not at all if no output is left.
async fn wait_for_room(room: Option<&SocketRoom>) -> Option<Result<(), Error>> {
    match room {
        Some(room) => Some(room.wait_for_room().await),
        None => None,
    }
}

/// Reads bytes into the decoder.
fn poll_receive(
    socket: &FrameSocket,
    decoder: &mut FrameDecoder,
    context: &mut Context<'_>,
) -> Poll<Result<(), ConnectionEnd>> {
    READ_BUFFER.with_borrow_mut(|buffer| {
        let length = ready!(socket.poll_read(context, buffer))?;
        match buffer.get(..length) {
            None | Some([]) => Poll::Ready(Err(Error::from(ErrorKind::UnexpectedEof).into())),
            Some(received) => Poll::Ready(Ok(decoder.receive_bytes(received)?)),
        }
    })
}
