//! The lookups of sessions: replies from memory, leases, and the tasks that complete the others.

use super::session::{EncodedHit, OwnerSession};
use super::session_tasks::{open_task, OwnerTask, SessionBatchLookup, SessionLookup};
use super::state::{Owner, OwnerHit, OwnerMemoryLookupResult};
use crate::cache::clock::ClockReading;
use crate::cache::owner_protocol::owner_message::{LeaseReply, OwnerMessage};
use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;

/// Total decompressed bytes of unchecked entries that are read strictly before a message returns.
const INLINE_CHECK_BYTES: u64 = 32 << 10;

/// An entry in memory, before it is sent.
pub(super) enum CheckedHit {
    /// A valid entry, which may be sent.
    Valid(OwnerHit),
    /// Bytes that are no response.
    Invalid,
    /// A long entry, whose check would delay other messages.
    Unchecked(OwnerHit),
}

impl Owner {
    /// Looks a key up. Returns the task that completes the lookup, if it needs one.
    pub(super) fn start_lookup(
        &self,
        session: &mut OwnerSession,
        lookup: SessionLookup,
        now: ClockReading,
    ) -> Vec<OwnerTask> {
        let checked = match self.lookup_without_disk_wait(&lookup.key, now) {
            OwnerMemoryLookupResult::Found(hit) => self.check_short_hit(&lookup.key, hit),
            OwnerMemoryLookupResult::Missing => CheckedHit::Invalid,
            OwnerMemoryLookupResult::QueryStore => {
                return open_task(session, OwnerTask::ReadStore(lookup));
            }
        };
        let task = match checked {
            CheckedHit::Valid(hit) => reply_to_hit(session, lookup, hit, now),
            CheckedHit::Invalid => self.reply_to_miss(session, lookup, now),
            CheckedHit::Unchecked(hit) => {
                return open_task(session, OwnerTask::CheckEntry(lookup, hit));
            }
        };
        task.into_iter().collect()
    }

    /// Reads an unchecked entry strictly if it is short.
    pub(super) fn check_short_hit(&self, key: &CacheKey, mut hit: OwnerHit) -> CheckedHit {
        match hit.kept.length_if_unchecked() {
            None => CheckedHit::Valid(hit),
            Some(length) if length > INLINE_CHECK_BYTES => CheckedHit::Unchecked(hit),
            Some(_) => match self.check_entry_strictly(key, &hit.kept) {
                Some(checked) => {
                    hit.kept = checked;
                    CheckedHit::Valid(hit)
                }
                None => CheckedHit::Invalid,
            },
        }
    }

    /// Completes the task of a lookup with the entry that was read and checked, or without one.
    /// Returns the task of writing the entry to the store.
    pub fn complete_lookup(
        &self,
        session: &mut OwnerSession,
        lookup: SessionLookup,
        hit: Option<OwnerHit>,
        now: ClockReading,
    ) -> Option<OwnerTask> {
        session.open_tasks = session.open_tasks.saturating_sub(1);
        let task = match hit {
            Some(hit) => reply_to_hit(session, lookup, hit, now),
            None => self.reply_to_miss(session, lookup, now),
        };
        self.number_late_replies(session);
        task
    }

    /// Replies that no entry was found, with the decision about the lease; or with an entry that was
    /// stored in the meantime; or returns the task of querying the fleet for it.
    fn reply_to_miss(
        &self,
        session: &mut OwnerSession,
        lookup: SessionLookup,
        now: ClockReading,
    ) -> Option<OwnerTask> {
        let lease = match lookup.lease {
            None => LeaseReply::NoLease,
            Some(time) => match self.acquire_session_lease(&lookup.key, session, time, now) {
                Ok(lease) => lease,
                Err(hit) => return reply_to_hit(session, lookup, hit, now),
            },
        };
        let query = self.begin_fleet_lookup(session, lookup, lease, now);
        if query.is_none() {
            session.queue_reply(OwnerMessage::Missing {
                id: lookup.id,
                generation: lookup.generation,
                lease,
            });
        }
        query
    }

    /// Requests a lease for the process of a session. A session that was closed or replaced gets
    /// none: nothing would end it before its time.
    fn acquire_session_lease(
        &self,
        key: &CacheKey,
        session: &OwnerSession,
        time: u64,
        now: ClockReading,
    ) -> Result<LeaseReply, OwnerHit> {
        let shared = &mut lock_ignoring_poison(&self.shared);
        match shared.processes.is_session_open(session.id()) {
            true => self.acquire_lease(shared, key, session.process(), time, now),
            false => Ok(LeaseReply::Full),
        }
    }

    /// Looks several keys up. Returns the task that completes the lookup, if it needs one.
    pub(super) fn start_batch_lookup(
        &self,
        session: &mut OwnerSession,
        batch: SessionBatchLookup,
        keys: Vec<CacheKey>,
        now: ClockReading,
    ) -> Vec<OwnerTask> {
        let mut found = Vec::new();
        let mut unknown = Vec::new();
        let mut room = INLINE_CHECK_BYTES;
        let mut needs_check = false;
        for key in keys {
            match self.lookup_without_disk_wait(&key, now) {
                OwnerMemoryLookupResult::Found(mut hit) => {
                    match hit.kept.length_if_unchecked() {
                        Some(length) if length > room => needs_check = true,
                        Some(length) => {
                            room -= length;
                            let Some(checked) = self.check_entry_strictly(&key, &hit.kept) else {
                                continue;
                            };
                            hit.kept = checked;
                        }
                        None => {}
                    }
                    found.push((key, hit));
                }
                OwnerMemoryLookupResult::Missing => {}
                OwnerMemoryLookupResult::QueryStore => unknown.push(key),
            }
        }
        if unknown.is_empty() && !needs_check {
            return self.reply_to_batch_or_query_fleet(session, batch, found, now);
        }
        let task = OwnerTask::ReadStoreBatch {
            batch,
            keys: unknown,
            found,
        };
        open_task(session, task)
    }

    /// Completes the task of a batch lookup with all entries that were found and checked. Returns
    /// the tasks that follow.
    pub fn complete_batch_lookup(
        &self,
        session: &mut OwnerSession,
        batch: SessionBatchLookup,
        found: Vec<(CacheKey, OwnerHit)>,
        now: ClockReading,
    ) -> Vec<OwnerTask> {
        session.open_tasks = session.open_tasks.saturating_sub(1);
        let tasks = self.reply_to_batch_or_query_fleet(session, batch, found, now);
        self.number_late_replies(session);
        tasks
    }

    fn reply_to_batch_or_query_fleet(
        &self,
        session: &mut OwnerSession,
        batch: SessionBatchLookup,
        found: Vec<(CacheKey, OwnerHit)>,
        now: ClockReading,
    ) -> Vec<OwnerTask> {
        let (id, generation) = (batch.id, batch.generation);
        match self.begin_fleet_batch_lookup(session, batch, found, now) {
            Ok(task) => vec![task],
            Err(found) => reply_to_batch(session, id, generation, found, now),
        }
    }
}

/// Replies with an entry, and returns the task of writing it to the store.
pub(super) fn reply_to_hit(
    session: &mut OwnerSession,
    lookup: SessionLookup,
    hit: OwnerHit,
    now: ClockReading,
) -> Option<OwnerTask> {
    session.queue_found_entry(lookup.id, lookup.generation, encoded_hit(&hit, now));
    hit.is_to_be_stored
        .then(|| OwnerTask::WriteEntry(lookup.key, hit.kept))
}

/// Replies with the entries of a batch lookup, and returns the tasks of writing them to the store.
pub(super) fn reply_to_batch(
    session: &mut OwnerSession,
    id: u32,
    generation: u64,
    found: Vec<(CacheKey, OwnerHit)>,
    now: ClockReading,
) -> Vec<OwnerTask> {
    let encoded = found.iter().map(|(key, hit)| (*key, encoded_hit(hit, now)));
    session.queue_batch_reply(id, generation, encoded);
    found
        .into_iter()
        .filter(|(_, hit)| hit.is_to_be_stored)
        .map(|(key, hit)| OwnerTask::WriteEntry(key, hit.kept))
        .collect()
}

fn encoded_hit(hit: &OwnerHit, now: ClockReading) -> EncodedHit<'_> {
    EncodedHit {
        bytes: hit.kept.encoded_bytes(),
        fresh: hit.kept.remaining_ttl(now),
        age: hit.kept.age_ms(now),
    }
}
