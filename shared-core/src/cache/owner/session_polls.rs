//! Sessions of processes that poll: their callouts are lost, delayed and overtake each other.
//!
//! A *data* callout is answered at once, with the replies that are known; if its answer is lost, the
//! process releases the leases that it may have got. All other replies are late: they are numbered
//! among the events of the session, and each *poll* repeats them until the process has acknowledged
//! them. So a lost poll loses neither an event nor a granted lease, and two polls that overtake each
//! other deliver each of them once.

use super::polled_replies::{append_reply, SessionFrameEnd};
use super::session::{append_send_lease, OwnerSession, SessionEnded};
use super::state::Owner;
use crate::cache::clock::ClockReading;
use crate::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use crate::lock::lock_ignoring_poison;

impl OwnerSession {
    /// Whether the process polls for events.
    pub fn polls(&self) -> bool {
        self.polled.is_some()
    }

    /// Removes the late replies that the process has acknowledged.
    pub(super) fn remove_late_replies(&mut self, number: u64) {
        if let Some(polled) = &mut self.polled {
            let length = polled.remove_through(number);
            self.release_output_bytes(length);
        }
    }

    /// Appends the new replies, up to the first that does not fit.
    fn append_new_replies(&mut self, frame: &mut OutgoingFrame) -> Result<(), SessionFrameEnd> {
        while let Some(polled) = &mut self.polled {
            let Some(reply) = polled.new.front() else {
                break;
            };
            append_reply(reply, frame)?;
            let length = reply.body_bytes;
            polled.new.pop_front();
            self.release_output_bytes(length);
        }
        Ok(())
    }
}

impl Owner {
    /// Numbers the new replies of a session that polls among its events. The session is
    /// [notified](Self::take_notified_sessions) afterwards.
    pub(super) fn number_late_replies(&self, session: &mut OwnerSession) {
        let id = session.id();
        let Some(polled) = &mut session.polled else {
            return;
        };
        if polled.new.is_empty() {
            return;
        }
        let mut shared = lock_ignoring_poison(&self.shared);
        for reply in polled.new.drain(..) {
            // a session that was closed has no process that would read it
            let count = reply.messages.len();
            if let Some(number) = shared.processes.queue_late_reply(id, count) {
                polled.late.push_back((number, reply));
            }
        }
    }

    /// Takes the answer to a data callout: the replies that are known, and a send lease; in the
    /// first answer also that the session is open, and the states of all chains, before the
    /// replies. Replies that do not fit become late.
    ///
    /// # Errors
    /// [`SessionEnded`].
    pub fn take_data_answer(
        &self,
        session: &mut OwnerSession,
        mut frame: OutgoingFrame,
        now: ClockReading,
    ) -> Result<OutgoingFrame, SessionEnded> {
        let result = self.fill_data_answer(session, &mut frame, now);
        self.number_late_replies(session);
        match result {
            Err(SessionFrameEnd::Ended) => Err(SessionEnded),
            Ok(()) | Err(SessionFrameEnd::Full) => Ok(frame),
        }
    }

    fn fill_data_answer(
        &self,
        session: &mut OwnerSession,
        frame: &mut OutgoingFrame,
        now: ClockReading,
    ) -> Result<(), SessionFrameEnd> {
        if session.has_sent_state() {
            self.append_next_send_lease(session, frame, now)?;
        } else {
            self.append_state(session, frame, now)?;
        }
        session.append_new_replies(frame)
    }

    /// Takes the answer to a poll: a send lease, and the events and late replies after the number
    /// `applied`, as many as fit.
    ///
    /// # Errors
    /// [`SessionEnded`].
    pub fn take_poll_answer(
        &self,
        session: &mut OwnerSession,
        applied: u64,
        mut frame: OutgoingFrame,
        now: ClockReading,
    ) -> Result<OutgoingFrame, SessionEnded> {
        let mut fill = || {
            self.append_next_send_lease(session, &mut frame, now)?;
            self.append_events(session, applied, false, &mut frame, now)
        };
        match fill() {
            Err(SessionFrameEnd::Ended) => Err(SessionEnded),
            Ok(()) | Err(SessionFrameEnd::Full) => Ok(frame),
        }
    }

    /// Whether a poll of a session can be answered: it has events or late replies after the number
    /// `applied`, or was closed.
    pub fn has_output_after(&self, session: &OwnerSession, applied: u64) -> bool {
        let shared = lock_ignoring_poison(&self.shared);
        let processes = &shared.processes;
        !processes.is_session_open(session.id()) || processes.has_event_after(session.id(), applied)
    }

    fn append_next_send_lease(
        &self,
        session: &OwnerSession,
        frame: &mut OutgoingFrame,
        now: ClockReading,
    ) -> Result<(), SessionFrameEnd> {
        let mut shared = lock_ignoring_poison(&self.shared);
        if !shared.processes.is_session_open(session.id()) {
            return Err(SessionFrameEnd::Ended);
        }
        append_send_lease(&mut shared.processes, session, frame, now)
    }
}
