//! Sessions: the owner's records of the processes that send frames.
//!
//! Sans-I/O: a server decodes the messages of a process, passes them to
//! [`Owner::receive_message`], runs the tasks that it returns, and sends the frames of
//! [`Owner::take_session_frame`]. A process has one session at a time.
//!
//! Three rules make the order of frames irrelevant: a reply has the generation from before the
//! lookup; events are numbered, and stay queued until they are acknowledged; a send lease names the
//! last event before it.

use std::collections::VecDeque;

use super::polled_replies::{append_late_reply, body_length, PolledReplies, SessionFrameEnd};
use super::processes::{
    GrantedSendLease, OwnerClientName, OwnerSessionId, ProcessTable, TooManyProcesses,
};
use super::state::Owner;
use crate::bytes::SharedBytes;
use crate::cache::clock::ClockReading;
use crate::cache::owner_protocol::body_assembler::BodyAssembler;
use crate::cache::owner_protocol::frame::{MAX_BODY_BYTES, MAX_CALLOUT_FRAME_BYTES};
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::outgoing_frame::{FrameAppendError, OutgoingFrame};
use crate::cache::owner_protocol::owner_message::{
    FoundEntry, LeaseReply, OwnerMessage, RefusalReason, SessionEvent,
};
use crate::cache::owner_protocol::process_message::{
    max_clock_difference, SessionRequest, StoreRequest,
};
use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;

/// Maximum number of bytes of entries that a session has to send. Further lookups find nothing.
const MAX_OUTPUT_BYTES: usize = 64 << 20;

/// Maximum length of an entry that is sent in a callout, in bytes: the frame has its parts, and a
/// send lease.
const MAX_POLLED_ENTRY_BYTES: usize = MAX_CALLOUT_FRAME_BYTES - (256 << 10);

/// Bytes by which a serialized entry may exceed the configured maximum: its head.
const ENTRY_HEAD_BYTES: u64 = 64 << 10;

/// A session: the lookups that are in flight, the output that was not sent, and the long entries
/// that arrive in several messages.
#[derive(Debug)]
pub struct OwnerSession {
    process: OwnerClientName,
    id: OwnerSessionId,
    /// The first message of the session, until it is put into a frame.
    welcome: Option<OwnerMessage>,
    /// Whether the states of all chains and a send lease were put into frames: the process must
    /// know them before it receives an entry.
    has_sent_state: bool,
    /// Messages that are sent in their order, before `bulk`.
    output: VecDeque<OwnerMessage>,
    /// Parts of long bodies, which are sent in their order when no other message waits.
    bulk: VecDeque<OwnerMessage>,
    /// Bytes of the bodies in both queues.
    output_bytes: usize,
    /// Bytes of the bodies in `bulk`.
    bulk_bytes: usize,
    /// The replies of a session that polls, in place of both queues.
    pub(super) polled: Option<PolledReplies>,
    /// Number of the last event that was put into a frame.
    sent_event: u64,
    /// Number of tasks that will complete a request.
    pub(super) open_tasks: usize,
    /// Number of batch lookups among them that wait while other machines fetch.
    pub(super) waiting_batches: usize,
    pub(super) stores: BodyAssembler<StoreRequest>,
}

impl OwnerSession {
    /// Name of the process.
    pub fn process(&self) -> &OwnerClientName {
        &self.process
    }

    /// Identity of the session.
    pub fn id(&self) -> OwnerSessionId {
        self.id
    }

    /// Number of the last event that was put into a frame: the cursor of a connection.
    pub fn last_sent_event(&self) -> u64 {
        self.sent_event
    }

    /// Whether the states of all chains and a send lease were put into frames.
    pub(super) fn has_sent_state(&self) -> bool {
        self.has_sent_state
    }

    /// Whether messages other than events and send leases wait to be sent.
    pub fn has_replies(&self) -> bool {
        self.welcome.is_some()
            || !self.output.is_empty()
            || !self.bulk.is_empty()
            || self
                .polled
                .as_ref()
                .is_some_and(PolledReplies::has_new_replies)
    }

    /// Number of bytes of memory that the queued messages occupy, approximately, without the parts of
    /// long bodies, which other messages overtake.
    pub fn queued_output_bytes(&self) -> usize {
        let bodies = self.output_bytes.saturating_sub(self.bulk_bytes);
        let count = self.output.len();
        bodies.saturating_add(count.saturating_mul(size_of::<OwnerMessage>()))
    }

    /// Queues a reply without an entry.
    pub(super) fn queue_reply(&mut self, reply: OwnerMessage) {
        self.queue_reply_parts(reply, Vec::new());
    }

    /// Queues a reply, and the chunks that follow it.
    fn queue_reply_parts(&mut self, reply: OwnerMessage, rest: Vec<OwnerMessage>) {
        if let Some(polled) = &mut self.polled {
            return polled.queue_new_reply(reply, rest);
        }
        self.output.push_back(reply);
        self.extend_bulk(rest);
    }

    /// Queues messages that other messages overtake.
    fn extend_bulk(&mut self, messages: Vec<OwnerMessage>) {
        self.bulk_bytes += messages.iter().map(body_length).sum::<usize>();
        self.bulk.extend(messages);
    }

    /// Queues the reply to a lookup that has found an entry, or that nothing was found if its bytes
    /// can't be buffered.
    pub(super) fn queue_found_entry(&mut self, id: u32, generation: u64, entry: EncodedHit<'_>) {
        let Some((entry, rest)) = self.buffer_entry(id, &entry) else {
            return self.queue_reply(OwnerMessage::Missing {
                id,
                generation,
                lease: LeaseReply::NoLease,
            });
        };
        let reply = OwnerMessage::Found {
            id,
            generation,
            entry,
        };
        self.queue_reply_parts(reply, rest);
    }

    /// Queues the reply to a batch lookup. Entries whose bytes can't be buffered are left out.
    pub(super) fn queue_batch_reply<'a>(
        &mut self,
        id: u32,
        generation: u64,
        found: impl Iterator<Item = (CacheKey, EncodedHit<'a>)>,
    ) {
        let mut reply = Vec::new();
        let mut has_chunks = false;
        for (key, entry) in found {
            let Some((entry, rest)) = self.buffer_entry(id, &entry) else {
                continue;
            };
            let found = OwnerMessage::BatchFound {
                id,
                generation,
                key,
                entry,
            };
            if let Some(polled) = &mut self.polled {
                polled.queue_new_reply(found, rest);
                continue;
            }
            reply.push(found);
            has_chunks |= !rest.is_empty();
            reply.extend(rest);
        }
        let end = OwnerMessage::BatchEnd { id, generation };
        if self.polled.is_some() {
            return self.queue_reply(end);
        }
        reply.push(end);
        // chunks name the lookup only: they must follow their own entry
        match has_chunks {
            true => self.extend_bulk(reply),
            false => self.output.extend(reply),
        }
    }

    /// Queues the reply to a purge or a query of the status.
    pub(super) fn queue_admin_reply(&mut self, id: u32, status: u16, body: Vec<u8>) {
        let length = body.len();
        let (body, rest) = split_body(id, SharedBytes::from(body));
        self.output_bytes = self.output_bytes.saturating_add(length);
        let reply = OwnerMessage::AdminReply {
            id,
            status,
            total: length as u64,
            body,
        };
        self.queue_reply_parts(reply, rest);
    }

    /// Records that messages with bodies of this length together are not buffered any more.
    pub(super) fn release_output_bytes(&mut self, length: usize) {
        self.output_bytes = self.output_bytes.saturating_sub(length);
    }

    /// Copies the bytes of an entry into a reply, and into the chunks that follow it. Returns `None`
    /// if the limit is reached or memory is refused.
    fn buffer_entry(
        &mut self,
        id: u32,
        entry: &EncodedHit<'_>,
    ) -> Option<(FoundEntry, Vec<OwnerMessage>)> {
        let length = entry.bytes.len();
        let output_bytes = self.output_bytes.checked_add(length)?;
        let is_too_long = self.polled.is_some() && length > MAX_POLLED_ENTRY_BYTES;
        if output_bytes > MAX_OUTPUT_BYTES || is_too_long {
            return None;
        }
        let (bytes, rest) = split_body(id, SharedBytes::try_copy_from(entry.bytes)?);
        self.output_bytes = output_bytes;
        let found = FoundEntry {
            fresh: entry.fresh,
            age: entry.age,
            total: length as u64,
            bytes,
        };
        Some((found, rest))
    }
}

/// The bytes and the times of an entry that a lookup has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodedHit<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) fresh: u64,
    pub(super) age: u64,
}

/// Splits a body into the part of its first message and the chunks that follow, without a copy.
fn split_body(id: u32, bytes: SharedBytes) -> (MessageBody, Vec<OwnerMessage>) {
    let length = bytes.len();
    let body = MessageBody::from_parts(Vec::new(), bytes);
    if length <= MAX_BODY_BYTES {
        return (body, Vec::new());
    }
    // no part has bytes of its own, so that no memory can be refused
    let part = |start| body.slice_body(start..start + MAX_BODY_BYTES);
    let chunks = (MAX_BODY_BYTES..length).step_by(MAX_BODY_BYTES);
    let chunks = chunks.map(|start| OwnerMessage::Chunk {
        id,
        bytes: part(start).unwrap_or_default(),
    });
    (part(0).unwrap_or_default(), chunks.collect())
}

impl Owner {
    /// Opens a session for a process, and closes its present one. `max_entry` is the configured
    /// maximum length of an entry in bytes. The first frame has the states of all chains.
    ///
    /// # Errors
    /// [`RefusalReason`].
    pub fn open_session(
        &self,
        request: &SessionRequest,
        max_entry: u64,
        now: ClockReading,
    ) -> Result<OwnerSession, RefusalReason> {
        let mut shared = lock_ignoring_poison(&self.shared);
        if !shared
            .processes
            .is_newer_attempt(&request.process, request.attempt)
        {
            return Err(RefusalReason::UnknownSession);
        }
        // send leases end by the clock of the process
        if request.clock.abs_diff(now.monotonic) > max_clock_difference() {
            return Err(RefusalReason::ClockDiffers);
        }
        let ended = match shared.processes.is_process_connected(&request.process) {
            true => shared.leases.release_process_leases(&request.process),
            false => Vec::new(),
        };
        let opened =
            shared
                .processes
                .open_session(&request.process, request.attempt, now.monotonic);
        self.notify_lease_waiters(&mut shared, ended, now);
        let id = opened.map_err(|TooManyProcesses| RefusalReason::TooManyProcesses)?;
        for (namespace, chain) in self.chains.snapshot_chains() {
            let state = Box::new(chain.copy_chain_state());
            let event = SessionEvent::Chain { namespace, state };
            shared
                .processes
                .queue_event_for_process(&request.process, event);
        }
        Ok(OwnerSession {
            process: request.process.clone(),
            id,
            welcome: Some(OwnerMessage::Welcome {
                session: self.session_number(id),
                generation: shared.processes.purge_generation(),
                event: 0,
            }),
            has_sent_state: false,
            output: VecDeque::new(),
            bulk: VecDeque::new(),
            output_bytes: 0,
            bulk_bytes: 0,
            polled: request.polls.then(PolledReplies::default),
            sent_event: 0,
            open_tasks: 0,
            waiting_batches: 0,
            stores: BodyAssembler::new(max_entry.saturating_add(ENTRY_HEAD_BYTES)),
        })
    }

    /// Closes a session, and releases the leases of its process, unless a newer session has replaced
    /// it. The send lease continues: the process may not have noticed.
    pub fn close_session(&self, session: &OwnerSession, now: ClockReading) {
        let mut shared = lock_ignoring_poison(&self.shared);
        if let Some(process) = shared.processes.close_session(session.id) {
            let ended = shared.leases.release_process_leases(&process);
            self.notify_lease_waiters(&mut shared, ended, now);
        }
    }

    /// Number of the session with this identity, which no session of another owner has.
    pub fn session_number(&self, id: OwnerSessionId) -> u64 {
        self.first_session_number.saturating_add(id.index())
    }

    /// Time at which the next send lease of a session is due, in monotonic milliseconds; `None` if
    /// the session was closed.
    pub fn next_send_lease_due(&self, session: &OwnerSession) -> Option<u64> {
        lock_ignoring_poison(&self.shared)
            .processes
            .next_send_lease_due(session.id)
    }

    /// Takes the next frame of a session: replies, then events after the number `from`, then a send
    /// lease if one is due or `always`, then parts of long bodies. In the first frame the events
    /// and the lease precede the replies. Call it until the frame has no message.
    ///
    /// # Errors
    /// [`SessionEnded`]: a newer session of the process has replaced this one, or the process is
    /// too far behind.
    pub fn take_session_frame(
        &self,
        session: &mut OwnerSession,
        from: u64,
        always: bool,
        mut frame: OutgoingFrame,
        now: ClockReading,
    ) -> Result<OutgoingFrame, SessionEnded> {
        let result = self.fill_session_frame(session, from, always, &mut frame, now);
        match result {
            Err(SessionFrameEnd::Ended) => Err(SessionEnded),
            Ok(()) | Err(SessionFrameEnd::Full) => Ok(frame),
        }
    }

    fn fill_session_frame(
        &self,
        session: &mut OwnerSession,
        from: u64,
        always: bool,
        frame: &mut OutgoingFrame,
        now: ClockReading,
    ) -> Result<(), SessionFrameEnd> {
        if session.has_sent_state {
            session.append_replies(frame)?;
            self.append_events(session, from, always, frame, now)?;
        } else {
            self.append_state(session, frame, now)?;
            session.append_replies(frame)?;
        }
        session.append_bulk(frame)
    }

    /// Appends the first messages of a session: that it is open, the states of all chains, and a
    /// send lease.
    pub(super) fn append_state(
        &self,
        session: &mut OwnerSession,
        frame: &mut OutgoingFrame,
        now: ClockReading,
    ) -> Result<(), SessionFrameEnd> {
        if let Some(welcome) = &session.welcome {
            welcome.append_to_frame(frame)?;
            session.welcome = None;
        }
        self.append_events(session, session.sent_event, true, frame, now)?;
        session.has_sent_state = true;
        Ok(())
    }

    /// Appends the events of a session and its next send lease.
    pub(super) fn append_events(
        &self,
        session: &mut OwnerSession,
        from: u64,
        always: bool,
        frame: &mut OutgoingFrame,
        now: ClockReading,
    ) -> Result<(), SessionFrameEnd> {
        let mut shared = lock_ignoring_poison(&self.shared);
        let processes = &mut shared.processes;
        if !processes.is_session_open(session.id) {
            return Err(SessionFrameEnd::Ended);
        }
        session.sent_event = from;
        while let Some((number, event)) =
            processes.session_event_after(session.id, session.sent_event)
        {
            match event {
                SessionEvent::LateReply { messages } => {
                    append_late_reply(session.polled.as_ref(), number, messages, frame)?;
                }
                event => OwnerMessage::Event { number, event }.append_to_frame(frame)?,
            }
            session.sent_event = number;
        }
        let due = processes.next_send_lease_due(session.id);
        if !always && due.is_none_or(|due| now.monotonic < due) {
            return Ok(());
        }
        append_send_lease(processes, session, frame, now)
    }
}

/// Grants a send lease to a session, and appends it.
pub(super) fn append_send_lease(
    processes: &mut ProcessTable,
    session: &OwnerSession,
    frame: &mut OutgoingFrame,
    now: ClockReading,
) -> Result<(), SessionFrameEnd> {
    let lease = processes.grant_send_lease(session.id, now.monotonic);
    if let Some(GrantedSendLease {
        until,
        after,
        generation,
    }) = lease
    {
        let message = OwnerMessage::SendLease {
            until,
            after,
            generation,
        };
        message.append_to_frame(frame)?;
    }
    Ok(())
}

/// The error of a session that was replaced or is too far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session has ended")]
pub struct SessionEnded;

impl OwnerSession {
    /// Appends the replies that wait.
    fn append_replies(&mut self, frame: &mut OutgoingFrame) -> Result<(), SessionFrameEnd> {
        append_queue(&mut self.output, &mut self.output_bytes, frame)
    }

    /// Appends parts of long bodies.
    fn append_bulk(&mut self, frame: &mut OutgoingFrame) -> Result<(), SessionFrameEnd> {
        let before = self.output_bytes;
        let result = append_queue(&mut self.bulk, &mut self.output_bytes, frame);
        self.bulk_bytes -= before - self.output_bytes;
        result
    }
}

/// Moves messages from a queue to a frame, up to the first that has to be sent in the next frame.
fn append_queue(
    queue: &mut VecDeque<OwnerMessage>,
    output_bytes: &mut usize,
    frame: &mut OutgoingFrame,
) -> Result<(), SessionFrameEnd> {
    while let Some(message) = queue.front() {
        match message.append_to_frame(frame) {
            // a message that no frame can carry is dropped: its lookup ends by its time
            Ok(()) | Err(FrameAppendError::TooLong) => {}
            Err(FrameAppendError::Full | FrameAppendError::OutOfMemory) => {
                return Err(SessionFrameEnd::Full);
            }
        }
        *output_bytes = output_bytes.saturating_sub(body_length(message));
        queue.pop_front();
    }
    Ok(())
}
