//! Requests as messages of the next frame.

use super::background_queue::{QueuedStore, StoreInParts};
use super::jobs::{LookupJob, OwnerJob};
use super::{LinkState, OwnerLink};
use crate::cache::entry::wire::EncodedEntry;
use crate::cache::owner_protocol::frame::MAX_BODY_BYTES;
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use crate::cache::owner_protocol::process_message::{ProcessMessage, SessionRequest, StoreRequest};
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;
use crate::time_constants::purge_timeout;

/// Duration of the requested leases in milliseconds: some calls take a node that long. A lease ends
/// with the session of its process.
pub(super) const LEASE_MS: u32 = 60_000;

impl LinkState {
    /// Whether messages wait to be sent.
    pub(super) fn has_messages_to_send(&self) -> bool {
        if self.session.needs_session_request() {
            return true;
        }
        if !self.session.is_open() {
            return self.session.is_open_or_requested() && self.jobs.has_unsent_jobs();
        }
        self.session.has_urgent_acknowledgement()
            || !self.shown_blocks.is_empty()
            || self.jobs.has_unsent_jobs()
            || self.store_in_parts.is_some()
            || !self.background.is_empty()
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
        max_frame: usize,
        now: u64,
    ) -> Option<OutgoingFrame> {
        if !state.has_messages_to_send() {
            return None;
        }
        let mut frame = OutgoingFrame::new(max_frame)?;
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
            append_part(state, &mut frame);
            append_stores(state, &mut frame, now);
        }
        (frame.message_count() > 0).then_some(frame)
    }

    fn append_session_request(&self, state: &mut LinkState, frame: &mut OutgoingFrame, now: u64) {
        if state.session.take_session_request() {
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
            let Some((id, open)) = state.jobs.next_unsent_job() else {
                return;
            };
            let message = match &mut open.job {
                OwnerJob::Lookup(lookup) => Some(lookup_message(id, lookup)),
                OwnerJob::BatchLookup { keys, .. } => {
                    let keys = std::mem::take(keys);
                    Some(ProcessMessage::BatchLookup { id, keys })
                }
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

impl OwnerLink {
    /// Takes the frame of the next data callout: the messages that wait, without long entries.
    /// Returns `None` if there are none, or memory is refused.
    pub(super) fn take_callout_frame(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        now: u64,
    ) -> Option<OutgoingFrame> {
        let mut frame = OutgoingFrame::for_callout()?;
        self.append_session_request(state, &mut frame, now);
        if state.session.is_open() {
            append_shown_blocks(state, &mut frame);
            append_releases(state, &mut frame);
        }
        // a purge whose callout found no owner would be one whose outcome is unknown
        let delayed = match state.session.is_open() {
            true => Vec::new(),
            false => state.jobs.take_unsent_purges(),
        };
        self.append_jobs(state, shared, &mut frame, now);
        state.jobs.restore_unsent_jobs(delayed);
        while state.session.is_open() && frame.has_room() {
            let Some(store) = state.background.pop_store_of_length(false) else {
                break;
            };
            append_whole_store(state, &mut frame, store, now);
        }
        (frame.message_count() > 0).then_some(frame)
    }
}

/// A long entry that is sent in a callout of its own.
pub(super) struct BulkStore {
    pub(super) key: CacheKey,
    /// Messages of the entry; `None`: it has expired, or memory is refused.
    pub(super) frame: Option<OutgoingFrame>,
}

impl LinkState {
    /// Takes the oldest long entry.
    pub(super) fn take_bulk_store(&mut self, now: u64) -> Option<BulkStore> {
        let store = self.background.pop_store_of_length(true)?;
        let key = store.key;
        let frame = OutgoingFrame::for_callout().and_then(|mut frame| {
            let messages = store_message(store, self.jobs.next_id(), now)?;
            append_messages_of_store(&mut frame, messages).then_some(frame)
        });
        Some(BulkStore { key, frame })
    }
}

/// Appends all parts of an entry. The lease of one that can't be sent is released.
fn append_whole_store(
    state: &mut LinkState,
    frame: &mut OutgoingFrame,
    store: QueuedStore,
    now: u64,
) {
    let key = store.key;
    let messages = store_message(store, state.jobs.next_id(), now);
    if !messages.is_some_and(|messages| append_messages_of_store(frame, messages)) {
        state.background.push_release(key);
    }
}

fn append_messages_of_store(
    frame: &mut OutgoingFrame,
    (first, in_parts): (ProcessMessage, Option<StoreInParts>),
) -> bool {
    let mut is_appended = LinkState::append(frame, &first);
    if let Some(mut store) = in_parts {
        let total = store.body.byte_length();
        while is_appended && store.sent < total {
            let end = total.min(store.sent + MAX_BODY_BYTES);
            let part = store.body.slice_body(store.sent..end);
            is_appended = part.is_some_and(|bytes| {
                LinkState::append(
                    frame,
                    &ProcessMessage::Chunk {
                        id: store.id,
                        bytes,
                    },
                )
            });
            store.sent = end;
        }
    }
    is_appended
}

fn lookup_message(id: u32, lookup: &LookupJob) -> ProcessMessage {
    let requests_lease = lookup.leases && !lookup.skips_wait;
    ProcessMessage::Lookup {
        id,
        key: lookup.key,
        lease: requests_lease.then_some(LEASE_MS),
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

/// Appends the entries to be stored, up to the first one that has to be sent in parts. If an entry
/// can't be sent, its lease is released.
fn append_stores(state: &mut LinkState, frame: &mut OutgoingFrame, now: u64) {
    while frame.has_room() && state.store_in_parts.is_none() {
        let Some(store) = state.background.pop_store() else {
            return;
        };
        let key = store.key;
        let id = state.jobs.next_id();
        let is_appended = store_message(store, id, now).is_some_and(|(message, in_parts)| {
            state.store_in_parts = in_parts;
            LinkState::append(frame, &message)
        });
        if !is_appended {
            state.store_in_parts = None;
            state.background.push_release(key);
        }
    }
}

/// Returns the message that stores an entry, and what has to follow it. Returns `None` if the entry
/// has expired, or memory is refused.
fn store_message(
    store: QueuedStore,
    id: u32,
    now: u64,
) -> Option<(ProcessMessage, Option<StoreInParts>)> {
    let about_entry = store.entry.response_metadata();
    let fresh = about_entry.expires_at.checked_sub(now)?;
    let age = now.saturating_sub(about_entry.requested_at);
    let body = MessageBody::from(EncodedEntry::from_entry(&store.entry)?);
    let total = body.byte_length();
    let (id, entry, in_parts) = if total <= MAX_BODY_BYTES {
        (0, body, None)
    } else {
        let first = body.slice_body(0..MAX_BODY_BYTES)?;
        let rest = StoreInParts {
            id,
            key: store.key,
            body,
            sent: MAX_BODY_BYTES,
        };
        (id, first, Some(rest))
    };
    let message = ProcessMessage::Store(Box::new(StoreRequest {
        id,
        key: store.key,
        about: *store.about,
        fresh,
        age,
        if_final: store.if_final,
        total: total as u64,
        entry,
    }));
    Some((message, in_parts))
}

/// Appends the next part of a long entry. Each frame has one, so that requests go between them.
fn append_part(state: &mut LinkState, frame: &mut OutgoingFrame) {
    if !frame.has_room() {
        return;
    }
    let Some(store) = &mut state.store_in_parts else {
        return;
    };
    let end = store.body.byte_length().min(store.sent + MAX_BODY_BYTES);
    let part = store.body.slice_body(store.sent..end);
    let id = store.id;
    let is_appended =
        part.is_some_and(|bytes| LinkState::append(frame, &ProcessMessage::Chunk { id, bytes }));
    store.sent = end;
    if !is_appended {
        // the owner drops what it has of the entry when the lease is released
        let key = store.key;
        state.store_in_parts = None;
        state.background.push_release(key);
    } else if end == store.body.byte_length() {
        state.store_in_parts = None;
    }
}
