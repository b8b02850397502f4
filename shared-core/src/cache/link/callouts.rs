//! The transport of a host without connections: frames are the bodies of HTTP callouts
//! (docs/owner-protocol.md, Callouts).
//!
//! At most two callouts are in flight: one *data* callout with the messages that wait, during which
//! further messages gather for the next one, and one *poll*, which the owner answers when the
//! session has events. A failed callout ends the session, as the loss of a connection does, and with
//! it the leases that an answer may have granted.

use std::sync::atomic::Ordering;

pub use super::callout_transport::CalloutId;
use super::connection::ConnectionState;
use super::{LinkState, OwnerLink};
use crate::cache::owner_protocol::callout_envelope::{
    decode_callout_answer, encode_callout_body, CalloutRole,
};
use crate::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use crate::cache::owner_protocol::owner_message::OwnerMessage;
use crate::cache::owner_protocol::protocol_error::ProtocolError;
use crate::cache::process::ProcessCacheState;
use crate::lock::lock_ignoring_poison;
use crate::time_constants::{callout_timeout, memory_lease_renewal};

/// Time for which entries to be stored wait for a data callout that is sent anyway, in milliseconds:
/// a callout costs more than the messages in it.
const MAX_STORE_DELAY_MS: u64 = 2;

/// A callout that the host has to make: `POST /v5/frames`.
#[derive(Debug)]
pub struct OwnerCallout {
    /// Identity of the callout.
    pub id: CalloutId,
    /// Body of the request.
    pub body: Vec<u8>,
    /// Timeout in milliseconds, after which the callout has failed.
    pub timeout: u64,
}

impl OwnerLink {
    /// Returns the path of all callouts.
    pub const CALLOUT_PATH: &'static str = "/v5/frames";

    /// Returns the media type of the bodies of callouts.
    pub const CALLOUT_MEDIA_TYPE: &'static str = "application/vnd.sszip.frames";

    /// Has a session requested by the next callout, so that lookups are accepted from now on. A host
    /// whose process may never have a request calls it at the first one.
    pub fn start_callouts(&self) {
        let state = &mut *lock_ignoring_poison(&self.state);
        if !state.callouts.is_used {
            state.callouts.is_used = true;
            state.connection.state = ConnectionState::Connecting;
            state.session.request_session();
        }
    }

    /// Ends the use of callouts, because the host can make none any more: lookups are misses from now
    /// on.
    pub fn end_callouts(&self, shared: &ProcessCacheState) {
        let state = &mut *lock_ignoring_poison(&self.state);
        state.callouts.forget_callouts();
        state.callouts.is_used = false;
        state.connection.close_until_retry(0);
        self.until.store(0, Ordering::Release);
        self.handle_session_lost(state, shared);
        // purges would be sent to the next owner
        let purges: Vec<_> = state.jobs.remove_all_jobs().collect();
        for purge in purges {
            self.fail_job(state, shared, purge.job);
        }
    }

    /// Whether a session was ever requested by callouts.
    pub fn has_started_callouts(&self) -> bool {
        lock_ignoring_poison(&self.state).callouts.is_used
    }

    /// Returns the next callout to be made. The host calls it until `None` after each other call and
    /// [`ms_until_next_callout`](Self::ms_until_next_callout). `now` is in milliseconds of
    /// `CLOCK_MONOTONIC`.
    pub fn next_callout(&self, shared: &ProcessCacheState, now: u64) -> Option<OwnerCallout> {
        let mut state = lock_ignoring_poison(&self.state);
        if !state.callouts.is_used {
            return None;
        }
        self.expire_late_jobs(&mut state, shared, now);
        if matches!(state.connection.state, ConnectionState::Closed { retry_at } if retry_at <= now)
        {
            state.connection.state = ConnectionState::Connecting;
            state.session.request_session();
        }
        self.take_poll(&mut state)
            .or_else(|| self.take_data_callout(&mut state, shared, now))
    }

    /// Whether a request was queued since the last call, so that a callout may be due.
    pub fn take_queued_mark(&self) -> bool {
        self.is_driver_woken.swap(false, Ordering::AcqRel)
    }

    /// Milliseconds until the next call of [`next_callout`](Self::next_callout) if nothing else
    /// happens; 0: it may have a callout. `None` if there is no such time.
    pub fn ms_until_next_callout(&self, now: u64) -> Option<u64> {
        let state = &mut *lock_ignoring_poison(&self.state);
        if !state.callouts.is_used {
            return None;
        }
        let poll_due = state.wants_poll().then_some(now);
        let due = [poll_due, state.callout_due(now), state.jobs.next_due()];
        let due = due.into_iter().flatten().min()?;
        Some(due.saturating_sub(now))
    }

    /// Handles the result of a callout: the status and the whole body of the response, which may be
    /// the proxy's or another program's, or `None` if the callout was not made, has timed out, or was
    /// canceled.
    pub fn handle_callout_result(
        &self,
        shared: &ProcessCacheState,
        id: CalloutId,
        response: Option<(u16, &[u8])>,
        now: u64,
    ) {
        let state = &mut *lock_ignoring_poison(&self.state);
        let callouts = &mut state.callouts;
        if callouts.data == Some(id) {
            callouts.data = None;
        } else if callouts.poll == Some(id) {
            callouts.poll = None;
        } else {
            return;
        }
        let handled = match response {
            Some((200, body)) => self.handle_callout_answer(state, shared, body, now),
            Some((404, _)) => {
                // an owner of a version without these callouts, or another program
                state
                    .session
                    .record_protocol_error(ProtocolError::UnknownPreface);
                None
            }
            _ => None,
        };
        if handled.is_none() {
            self.lose_session(state, shared, now);
        }
    }

    /// Handles the messages of an answer. Returns `None` if the session is lost.
    fn handle_callout_answer(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        body: &[u8],
        now: u64,
    ) -> Option<()> {
        state.session.repeated_messages = 0;
        let messages = decode_callout_answer(body);
        let messages = messages.map_err(|error| state.session.record_protocol_error(error));
        // without a frame, the owner has dropped the messages of the callout
        for message in messages.ok()?? {
            let message = message.and_then(|message| OwnerMessage::decode_message(&message));
            if let Some(message) = message.ok()? {
                self.handle_message(state, shared, message, now).ok()?;
            }
        }
        Some(())
    }

    fn lose_session(&self, state: &mut LinkState, shared: &ProcessCacheState, now: u64) {
        state.callouts.forget_callouts();
        state.callouts.background_since = None;
        state.connection.close_until_retry(now);
        self.handle_session_lost(state, shared);
    }

    fn take_poll(&self, state: &mut LinkState) -> Option<OwnerCallout> {
        if !state.wants_poll() {
            return None;
        }
        // the answer renews the send lease
        let wait = memory_lease_renewal() * 2;
        let role = CalloutRole::Poll {
            wait: u32::try_from(wait).unwrap_or(u32::MAX),
        };
        let body = self.encode_callout(state, role, None)?;
        let id = state.callouts.next_id();
        state.callouts.poll = Some(id);
        // the envelope acknowledges them
        state.session.take_acknowledgement();
        Some(OwnerCallout {
            id,
            body,
            timeout: wait + callout_timeout(),
        })
    }

    fn take_data_callout(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        now: u64,
    ) -> Option<OwnerCallout> {
        if state.callout_due(now)? > now {
            return None;
        }
        let frame = self.take_frame(state, shared, now)?;
        state.callouts.background_since = None;
        let number = state.callouts.last_data.checked_add(1)?;
        let role = CalloutRole::Data { number };
        let Some(body) = self.encode_callout(state, role, Some(&frame)) else {
            // the messages are lost: their requests fail at once, their leases end with the session
            self.lose_session(state, shared, now);
            return None;
        };
        state.callouts.last_data = number;
        let id = state.callouts.next_id();
        state.callouts.data = Some(id);
        Some(OwnerCallout {
            id,
            body,
            timeout: callout_timeout(),
        })
    }

    fn encode_callout(
        &self,
        state: &LinkState,
        role: CalloutRole,
        frame: Option<&OutgoingFrame>,
    ) -> Option<Vec<u8>> {
        let session = &state.session;
        // the events of a session that was lost are none of the next one
        let (number, applied) = match session.is_open() {
            true => (session.number, session.applied_event),
            false => (0, 0),
        };
        encode_callout_body(role, &self.process, number, applied, frame)
    }
}

impl LinkState {
    /// Whether the session has no poll in flight.
    fn wants_poll(&self) -> bool {
        self.session.is_open() && self.callouts.poll.is_none()
    }

    /// Time of the next data callout; `None` if nothing waits for it, or one is in flight.
    fn callout_due(&mut self, now: u64) -> Option<u64> {
        if let ConnectionState::Closed { retry_at } = self.connection.state {
            return Some(retry_at);
        }
        if self.callouts.data.is_some() {
            return None;
        }
        if self.has_urgent_messages() {
            return Some(now);
        }
        if !self.has_background_messages() {
            self.callouts.background_since = None;
            return None;
        }
        let since = *self.callouts.background_since.get_or_insert(now);
        Some(since.saturating_add(MAX_STORE_DELAY_MS))
    }
}
