//! Requests as messages of the next frame.

use super::jobs::{fleet_wait, LookupJob, OwnerJob};
use super::outgoing_store::OutgoingStore;
use super::session::SessionStage;
use super::{LinkState, OwnerLink};
use crate::cache::owner_protocol::frame::MAX_CONNECTION_FRAME_BYTES;
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use crate::cache::owner_protocol::process_message::{ProcessMessage, SessionRequest};
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::ProcessCacheState;
use crate::time_constants::purge_timeout;

/// Duration of the requested leases in milliseconds: some calls take a node that long. A lease ends
/// with the session of its process.
pub(super) const LEASE_MS: u32 = 60_000;

impl LinkState {
    /// Whether messages wait to be sent.
    pub(super) fn has_messages_to_send(&self) -> bool {
        self.has_urgent_messages() || self.has_background_messages()
    }

    /// Whether messages wait that are sent at once.
    pub(super) fn has_urgent_messages(&self) -> bool {
        let is_open = self.session.is_open();
        let has_jobs = self.session.is_open_or_requested()
            && self.jobs.next_unsent_position(is_open).is_some();
        let has_others = self.session.has_urgent_acknowledgement()
            || !self.shown_blocks.is_empty()
            || self.store_in_parts.is_some();
        self.session.stage == SessionStage::Unsent || has_jobs || is_open && has_others
    }

    /// Whether entries or releases wait that may wait for other messages.
    pub(super) fn has_background_messages(&self) -> bool {
        self.session.is_open() && !self.background.is_empty()
    }

    /// Appends a message to a frame that has room. Returns `false` if memory is refused or the
    /// message is too long.
    fn append(frame: &mut OutgoingFrame, message: &ProcessMessage) -> bool {
        message.append_to_frame(frame).is_ok()
    }
}

impl OwnerLink {
    /// Takes the next frame: the messages to be sent, first the ones on which clients' requests
    /// wait. Returns `None` if there are none, or memory is refused.
    pub(super) fn take_frame(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        now: u64,
    ) -> Option<OutgoingFrame> {
        if !state.has_messages_to_send() {
            return None;
        }
        let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES)?;
        self.append_session_request(state, &mut frame, now);
        if state.session.is_open() {
            self.append_acknowledgement(state, &mut frame);
            append_shown_blocks(state, &mut frame);
            append_releases(state, &mut frame);
        }
        if state.session.is_open_or_requested() {
            self.append_jobs(state, shared, &mut frame, now);
        }
        if state.session.is_open() {
            append_stores(state, &mut frame, now);
        }
        (frame.message_count() > 0).then_some(frame)
    }

    fn append_session_request(&self, state: &mut LinkState, frame: &mut OutgoingFrame, now: u64) {
        if state.session.take_session_request(now) {
            let request = SessionRequest {
                process: self.process.clone(),
                attempt: state.session.attempt,
                clock: now,
                polls: state.callouts.is_used,
            };
            LinkState::append(frame, &ProcessMessage::Hello(request));
        }
    }

    fn append_acknowledgement(&self, state: &mut LinkState, frame: &mut OutgoingFrame) {
        if let Some(event) = state.session.take_acknowledgement() {
            let generation = self.purge_generation();
            LinkState::append(frame, &ProcessMessage::Applied { event, generation });
        }
    }

    /// Appends the requests on which clients' requests wait. A request for which memory is refused
    /// fails.
    fn append_jobs(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        frame: &mut OutgoingFrame,
        now: u64,
    ) {
        while frame.has_room() {
            let is_session_open = state.session.is_open();
            let Some((id, open)) = state.jobs.next_unsent_job(is_session_open) else {
                return;
            };
            let remaining = open.due.saturating_sub(now);
            let message = match &mut open.job {
                OwnerJob::Lookup(lookup) => Some(lookup_message(id, lookup, remaining)),
                OwnerJob::BatchLookup {
                    keys,
                    call_kinds,
                    lease_wait,
                    ..
                } => Some(ProcessMessage::BatchLookup {
                    id,
                    keys: std::mem::take(keys),
                    fleet_wait: fleet_wait(remaining, !call_kinds.is_empty()),
                    call_kinds: std::mem::take(call_kinds),
                    lease_wait: *lease_wait,
                }),
                OwnerJob::Purge { scope, sent, .. } => {
                    if *sent == 0 {
                        open.due = now.saturating_add(purge_timeout());
                    }
                    *sent += 1;
                    MessageBody::try_copy_from(scope.as_bytes())
                        .map(|scope| ProcessMessage::Purge { id, scope })
                }
                OwnerJob::Status { .. } => Some(ProcessMessage::Status { id }),
                OwnerJob::TimedOut(_) => continue,
            };
            let is_appended = message.is_some_and(|message| LinkState::append(frame, &message));
            if !is_appended {
                if let Some(job) = state.jobs.remove_job(id) {
                    self.fail_job(state, shared, job);
                }
            }
        }
    }
}

impl LinkState {
    /// Takes the oldest entry to be stored. The leases of those that have expired are released.
    fn take_store(&mut self, now: u64) -> Option<OutgoingStore> {
        loop {
            let store = self.background.pop_store()?;
            let key = store.key;
            let outgoing = OutgoingStore::new(store, self.jobs.next_id(), now);
            if outgoing.is_some() {
                return outgoing;
            }
            self.background.push_release(key);
        }
    }
}

/// Returns the message of a lookup that fails in `remaining` milliseconds.
fn lookup_message(id: u32, lookup: &LookupJob, remaining: u64) -> ProcessMessage {
    let options = lookup.options;
    ProcessMessage::Lookup {
        id,
        key: *lookup.token.flight_key(),
        lease: options.requests_lease().then_some(LEASE_MS),
        fleet_wait: fleet_wait(remaining, options.is_shareable),
        call_kind: options.call_kind,
    }
}

fn append_shown_blocks(state: &mut LinkState, frame: &mut OutgoingFrame) {
    while frame.has_room() {
        let Some((namespace, sighting)) = state.shown_blocks.pop_front() else {
            return;
        };
        let message = ProcessMessage::ShowBlock {
            namespace,
            sighting,
        };
        LinkState::append(frame, &message);
    }
}

/// Appends the leases to be released. One for which memory is refused ends by its time.
fn append_releases(state: &mut LinkState, frame: &mut OutgoingFrame) {
    while frame.has_room() {
        let Some(key) = state.background.pop_release() else {
            return;
        };
        LinkState::append(frame, &ProcessMessage::Release(key));
    }
}

/// Appends the entries to be stored, up to the first one that is sent in parts: each frame has one
/// part, so that requests go between them. The lease of an entry that can't be sent is released, and
/// the owner drops what it has of it.
fn append_stores(state: &mut LinkState, frame: &mut OutgoingFrame, now: u64) {
    while frame.has_room() {
        let begun = state.store_in_parts.take();
        let Some(mut store) = begun.or_else(|| state.take_store(now)) else {
            return;
        };
        if !store.append_next(frame) {
            state.background.push_release(store.key);
        } else if !store.is_sent() {
            state.store_in_parts = Some(store);
            return;
        }
    }
}
