//! Callouts that carry frames (`POST /v5/frames`), of processes that cannot keep a connection.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use sszip_core::cache::owner::session_tasks::SessionEnd;
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::owner_protocol::callout_envelope::{
    CalloutAnswer, CalloutEnvelope, CalloutRole, EnvelopeError,
};
use sszip_core::cache::owner_protocol::frame::FrameMessages;
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::RefusalReason;
use sszip_core::cache::owner_protocol::process_message::ProcessMessage;
use sszip_core::cache::owner_protocol::protocol_error::ProtocolError;
use sszip_core::lock::lock_ignoring_poison;
use tokio::time::sleep;

use super::polled_session::{ActiveCallout, PolledSession, PolledSessionState, PolledSessions};
use crate::clock::read_clocks;
use crate::operations::OwnerOperations;
use crate::request::ProblemDetails;

/// Maximum time until the answer to a poll, in milliseconds.
const MAX_POLL_MS: u32 = 60_000;

/// The reason why a session ends in a callout.
enum CalloutEnd {
    /// The process ends it.
    Goodbye,
    /// A message is invalid.
    Invalid,
}

impl From<ProtocolError> for CalloutEnd {
    fn from(_: ProtocolError) -> Self {
        Self::Invalid
    }
}

impl From<SessionEnd> for CalloutEnd {
    fn from(end: SessionEnd) -> Self {
        match end {
            SessionEnd::Goodbye => Self::Goodbye,
            _ => Self::Invalid,
        }
    }
}

impl From<EnvelopeError> for ProblemDetails {
    fn from(error: EnvelopeError) -> Self {
        let status = match error {
            // as an owner that does not know callouts
            EnvelopeError::Protocol(ProtocolError::OtherVersion(_)) => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

/// Answers a callout, whose body is the preface, an envelope and a frame. Returns the preface, and a
/// frame in most cases.
///
/// # Errors
/// [`ProblemDetails`]: the body is invalid.
pub(crate) async fn answer_callout(
    operations: &Arc<OwnerOperations>,
    polled: &PolledSessions,
    body: &[u8],
) -> Result<Vec<u8>, ProblemDetails> {
    let envelope = CalloutEnvelope::decode_body(body)?;
    let answer = match (envelope.session, envelope.role) {
        (0, CalloutRole::Data { number }) => open_session(operations, polled, envelope, number)?,
        (session, role) => match polled.find_session(session, &envelope.process) {
            None => refusal(operations),
            Some(callout) => match role {
                CalloutRole::Poll { wait } => {
                    answer_poll(operations, callout, envelope.applied, wait).await
                }
                CalloutRole::Data { number } => {
                    answer_messages(operations, &callout, number, envelope)
                }
            },
        },
    };
    answer
        .encode()
        .ok_or_else(|| ProblemDetails::new(StatusCode::SERVICE_UNAVAILABLE, "out of memory"))
}

/// The refusal of a callout without an open session.
fn refusal(operations: &OwnerOperations) -> CalloutAnswer {
    CalloutAnswer::Refused(match operations.engine.is_stopping() {
        true => RefusalReason::Stopping,
        false => RefusalReason::UnknownSession,
    })
}

/// Opens the session that the first message requests, and handles the other messages.
fn open_session(
    operations: &Arc<OwnerOperations>,
    polled: &PolledSessions,
    mut envelope: CalloutEnvelope<'_>,
    number: u32,
) -> Result<CalloutAnswer, ProblemDetails> {
    let request = envelope.take_session_request()?;
    let messages = envelope.messages.ok_or(EnvelopeError::Frame)?;
    let now = read_clocks();
    Ok(
        match polled.open_session(operations, &request, number, now) {
            Ok(callout) => {
                let state = &mut *lock_ignoring_poison(&callout.0.state);
                handle_messages(operations, &callout, state, 0, messages, now)
            }
            Err(reason) => CalloutAnswer::Refused(reason),
        },
    )
}

/// Handles the messages of a callout, and answers it at once.
fn answer_messages(
    operations: &OwnerOperations,
    callout: &ActiveCallout,
    number: u32,
    envelope: CalloutEnvelope<'_>,
) -> CalloutAnswer {
    let state = &mut *lock_ignoring_poison(&callout.0.state);
    if number <= state.last_data {
        return CalloutAnswer::Empty;
    }
    state.last_data = number;
    match envelope.messages {
        Some(messages) => handle_messages(
            operations,
            callout,
            state,
            envelope.applied,
            messages,
            read_clocks(),
        ),
        None => CalloutAnswer::Empty,
    }
}

fn handle_messages(
    operations: &OwnerOperations,
    callout: &ActiveCallout,
    state: &mut PolledSessionState,
    applied: u64,
    messages: FrameMessages<'_>,
    now: ClockReading,
) -> CalloutAnswer {
    let handled = receive_messages(state, applied, messages, now);
    callout.0.finish_messages(state);
    let Some(open) = &mut state.open else {
        return refusal(operations);
    };
    let answer = match (handled, OutgoingFrame::for_callout()) {
        (Ok(()), Some(frame)) => operations
            .engine
            .owner
            .take_data_answer(&mut open.session, frame, now)
            .map_or_else(|_| refusal(operations), CalloutAnswer::Frame),
        // the process does not get its replies: as if the answer were lost
        (Ok(()), None) => return CalloutAnswer::Empty,
        (Err(CalloutEnd::Goodbye), _) => CalloutAnswer::Empty,
        (Err(CalloutEnd::Invalid), _) => refusal(operations),
    };
    if !matches!(answer, CalloutAnswer::Frame(_)) {
        callout.0.end_locked_session(state);
    }
    // late replies of this answer, and events of other sessions
    operations.engine.wake_sessions();
    answer
}

fn receive_messages(
    state: &mut PolledSessionState,
    applied: u64,
    messages: FrameMessages<'_>,
    now: ClockReading,
) -> Result<(), CalloutEnd> {
    let Some(open) = &mut state.open else {
        return Ok(());
    };
    open.acknowledge_events(applied)?;
    for message in messages {
        if let Some(message) = ProcessMessage::decode_message(&message?)? {
            open.receive_message(message, now)?;
        }
    }
    Ok(())
}

/// A poll that waits, for the owner's status.
struct WaitingPoll<'a>(&'a AtomicUsize);

impl<'a> WaitingPoll<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitingPoll<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers a poll when the session has events or late replies after the number `applied`, after a
/// time, or when another poll comes: the transport of this one may hang.
async fn answer_poll(
    operations: &OwnerOperations,
    callout: ActiveCallout,
    applied: u64,
    wait: u32,
) -> CalloutAnswer {
    let session = &callout.0;
    let turn = {
        let state = &mut *lock_ignoring_poison(&session.state);
        let acknowledged = match &mut state.open {
            Some(open) => open.acknowledge_events(applied),
            None => return refusal(operations),
        };
        session.finish_messages(state);
        if acknowledged.is_err() {
            session.end_locked_session(state);
            return refusal(operations);
        }
        state.poll_count += 1;
        session.changed.notify_waiters();
        state.poll_count
    };
    let _waiting = WaitingPoll::new(&operations.waiting_polls);
    let wait = Duration::from_millis(wait.min(MAX_POLL_MS).into());
    let mut timer = pin!(sleep(wait));
    loop {
        let mut changed = pin!(session.changed.notified());
        // a change after this is not missed
        changed.as_mut().enable();
        let is_elapsed = timer.is_elapsed();
        let is_over = |state: &PolledSessionState| is_elapsed || state.poll_count != turn;
        if let Some(answer) = take_poll_answer(operations, session, applied, is_over) {
            return answer;
        }
        tokio::select! {
            () = changed => {}
            () = timer.as_mut() => {}
        }
    }
}

/// Returns the answer to a poll if the session has output, the poll `is_over`, or the session has
/// ended.
fn take_poll_answer(
    operations: &OwnerOperations,
    session: &PolledSession,
    applied: u64,
    is_over: impl FnOnce(&PolledSessionState) -> bool,
) -> Option<CalloutAnswer> {
    let owner = &operations.engine.owner;
    let state = &mut *lock_ignoring_poison(&session.state);
    let is_over = is_over(state);
    let Some(open) = &mut state.open else {
        return Some(refusal(operations));
    };
    if !is_over && !owner.has_output_after(&open.session, applied) {
        return None;
    }
    let Some(frame) = OutgoingFrame::for_callout() else {
        return Some(CalloutAnswer::Empty);
    };
    let answer = owner.take_poll_answer(&mut open.session, applied, frame, read_clocks());
    Some(answer.map_or_else(
        |_| {
            session.end_locked_session(state);
            refusal(operations)
        },
        CalloutAnswer::Frame,
    ))
}
