//! The owner's replies to lookups, purges and status queries.

use super::found_entries::{accept_received_entry, ReceivedEntry};
use super::jobs::{LookupJob, OwnerJob};
use super::session::SessionLoss;
use super::{LinkState, OwnerLink};
use crate::cache::owner_protocol::body_assembler::AssemblyProgress;
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::owner_message::{FoundEntry, LeaseReply, OwnerMessage};
use crate::cache::process::flights::FlightOutcome;
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;

impl OwnerLink {
    /// Handles a reply.
    ///
    /// # Errors
    /// [`SessionLoss`]: the owner does not follow the protocol.
    pub(super) fn handle_reply(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        mut reply: OwnerMessage,
        now: u64,
    ) -> Result<(), SessionLoss> {
        match reply {
            OwnerMessage::Missing { id, lease, .. } => {
                self.handle_missing(state, shared, id, lease);
                return Ok(());
            }
            OwnerMessage::BatchWait { id } => {
                self.handle_batch_wait(state, id, now);
                return Ok(());
            }
            OwnerMessage::BatchEnd { id, .. } => {
                self.handle_batch_end(state, shared, id);
                return Ok(());
            }
            OwnerMessage::Chunk { id, bytes } => {
                let progress = state.partial_replies.append_chunk(id, &bytes);
                return self.handle_reply_part(state, shared, id, progress, now);
            }
            _ => {}
        }
        let (id, first_part, total) = take_first_part(&mut reply).ok_or(SessionLoss)?;
        let mut dropped = Vec::new();
        let on_drop = |reply| dropped.push(reply);
        let replies = &mut state.partial_replies;
        let progress = replies.begin_body(id, reply, first_part, total, on_drop);
        for reply in dropped {
            self.handle_complete_reply(state, shared, reply, None, now);
        }
        self.handle_reply_part(state, shared, id, progress, now)
    }

    fn handle_reply_part(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        id: u32,
        progress: AssemblyProgress<OwnerMessage>,
        now: u64,
    ) -> Result<(), SessionLoss> {
        match progress {
            AssemblyProgress::Incomplete => {
                // a reply that has begun is not slower than the node's, as long as its parts arrive
                let due = self.lookup_deadline(now);
                if let Some(open) = state.jobs.open_job(id) {
                    open.due = open.due.max(due);
                }
            }
            AssemblyProgress::Complete(reply, body) => {
                self.handle_complete_reply(state, shared, reply, Some(body), now);
            }
            AssemblyProgress::Dropped(reply) => {
                self.handle_complete_reply(state, shared, reply, None, now);
            }
            AssemblyProgress::Excess(_) => return Err(SessionLoss),
            AssemblyProgress::Unknown => {}
        }
        Ok(())
    }

    /// Handles a reply with its body; `None` if memory was refused for it.
    fn handle_complete_reply(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        reply: OwnerMessage,
        body: Option<Vec<u8>>,
        now: u64,
    ) {
        match reply {
            OwnerMessage::Found {
                id,
                generation,
                entry,
            } => {
                let received = receive_entry(&entry, body);
                self.handle_found(state, shared, (id, generation), received, now);
            }
            OwnerMessage::BatchFound {
                id,
                generation,
                key,
                entry,
            } => {
                let received = receive_entry(&entry, body);
                self.handle_batch_entry(state, shared, (id, generation), &key, received, now);
            }
            OwnerMessage::AdminReply { id, status, .. } => {
                let waiter = match state.jobs.open_job(id).map(|open| &open.job) {
                    Some(OwnerJob::Purge { waiter, .. }) => *waiter,
                    Some(OwnerJob::Status { waiter }) => Some(*waiter),
                    _ => return,
                };
                state.jobs.remove_job(id);
                if let Some(waiter) = waiter {
                    if let Some(body) = body {
                        state.insert_admin_reply(waiter, (status, body));
                    }
                    shared.wake_waiters([waiter]);
                }
            }
            _ => {}
        }
    }

    fn handle_found(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        (id, generation): (u32, u64),
        received: Option<ReceivedEntry>,
        now: u64,
    ) {
        let Some((lookup, due)) = take_lookup(state, id) else {
            return;
        };
        // it may be what was purged in the meantime
        if generation < self.purge_generation() {
            return self.queue_lookup(state, shared, lookup, due);
        }
        let entry = received.and_then(|received| {
            accept_received_entry(
                shared,
                &self.chains,
                lookup.token.flight_key(),
                received,
                now,
            )
        });
        match entry {
            Some(entry) => {
                let answer = FlightOutcome::Answer(entry);
                shared.wake_flight_waiters(shared.flights.finish_flight(lookup.token, answer));
            }
            None => self.end_lookup_as_miss(state, shared, lookup),
        }
    }

    fn handle_missing(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        id: u32,
        lease: LeaseReply,
    ) {
        let is_granted = lease == LeaseReply::Granted;
        if let Some(OwnerJob::TimedOut(key)) = state.jobs.open_job(id).map(|open| &open.job) {
            let key = *key;
            state.jobs.remove_job(id);
            // it belongs to the flight of the key, if there is one
            if is_granted && !shared.flights.record_flight_lease(&key) {
                state.background.push_release(key);
            }
            return;
        }
        let Some((mut lookup, due)) = take_lookup(state, id) else {
            return;
        };
        match lease {
            LeaseReply::Granted => {
                shared
                    .flights
                    .record_flight_lease(lookup.token.flight_key());
                self.end_lookup_as_miss(state, shared, lookup);
            }
            LeaseReply::Pending if lookup.missed_event => {
                lookup.missed_event = false;
                self.queue_lookup(state, shared, lookup, due);
            }
            LeaseReply::Pending if state.pending.try_reserve(1).is_ok() => {
                state.pending.insert(*lookup.token.flight_key(), lookup);
            }
            LeaseReply::Pending | LeaseReply::NoLease | LeaseReply::Full => {
                self.end_lookup_as_miss(state, shared, lookup);
            }
        }
    }

    fn handle_batch_entry(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        (id, generation): (u32, u64),
        key: &CacheKey,
        received: Option<ReceivedEntry>,
        now: u64,
    ) {
        let Some(received) = received else {
            return;
        };
        let known = self.purge_generation();
        let Some(open) = state.jobs.open_job(id) else {
            return;
        };
        open.due = open.due.max(self.lookup_deadline(now));
        let OwnerJob::BatchLookup {
            entries,
            generation: first,
            ..
        } = &mut open.job
        else {
            return;
        };
        if generation < known || entries.try_reserve(1).is_err() {
            return;
        }
        first.get_or_insert(known);
        if let Some(entry) = accept_received_entry(shared, &self.chains, key, received, now) {
            entries.push((*key, entry));
        }
    }

    /// Extends the deadline of a batch lookup whose reply comes when other machines have fetched.
    fn handle_batch_wait(&self, state: &mut LinkState, id: u32, now: u64) {
        let deadline = self.lookup_deadline(now);
        let Some(open) = state.jobs.open_job(id) else {
            return;
        };
        if let OwnerJob::BatchLookup { lease_wait, .. } = &open.job {
            open.due = deadline.saturating_add(u64::from(*lease_wait));
        }
    }

    fn handle_batch_end(&self, state: &mut LinkState, shared: &ProcessCacheState, id: u32) {
        let is_batch = |job: &OwnerJob| matches!(job, OwnerJob::BatchLookup { .. });
        let open = state.jobs.remove_job_if(id, is_batch);
        if let Some(OwnerJob::BatchLookup {
            waiter,
            entries,
            generation,
            ..
        }) = open.map(|open| open.job)
        {
            if let (Some(generation), Ok(())) = (generation, state.batch_entries.try_reserve(1)) {
                state.batch_entries.insert(waiter, (entries, generation));
            }
            shared.wake_waiters([waiter]);
        }
    }
}

/// Takes the first part of a reply's body. Returns the number of its request, the part and the length
/// of the whole body; `None` if the message is no reply with a body.
fn take_first_part(reply: &mut OwnerMessage) -> Option<(u32, MessageBody, u64)> {
    let (id, part, total) = match reply {
        OwnerMessage::Found { id, entry, .. } | OwnerMessage::BatchFound { id, entry, .. } => {
            (id, &mut entry.bytes, entry.total)
        }
        OwnerMessage::AdminReply {
            id, total, body, ..
        } => (id, body, *total),
        _ => return None,
    };
    Some((*id, std::mem::take(part), total))
}

fn receive_entry(entry: &FoundEntry, body: Option<Vec<u8>>) -> Option<ReceivedEntry> {
    let FoundEntry { fresh, age, .. } = *entry;
    body.map(|bytes| ReceivedEntry { bytes, fresh, age })
}

/// Removes a lookup that was replied to. Returns it with the time at which it would have failed, or
/// `None` if it has timed out.
fn take_lookup(state: &mut LinkState, id: u32) -> Option<(LookupJob, u64)> {
    let is_lookup = |job: &OwnerJob| matches!(job, OwnerJob::Lookup(_));
    let open = state.jobs.remove_job_if(id, is_lookup)?;
    match open.job {
        OwnerJob::Lookup(lookup) => Some((lookup, open.due)),
        _ => None,
    }
}
