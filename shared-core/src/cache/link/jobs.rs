//! Requests to the owner on which a client's request waits, until the owner replies or they time
//! out.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cache::entry::CacheEntry;
use crate::cache::process::flights::FlightLeadership;
use crate::cache::process::owner_client::OwnerLookupOptions;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::CacheKey;
use crate::hash_keys::HashMap;

/// Maximum number of open requests. Further requests fail at once.
const MAX_OPEN_JOBS: usize = 1_000;

/// Entries with their keys.
pub(super) type KeyedEntries = Vec<(CacheKey, Arc<CacheEntry>)>;

/// A request to the owner on which a client's request waits.
#[derive(Debug)]
pub(super) enum OwnerJob {
    /// A lookup, for a flight.
    Lookup(LookupJob),
    /// A lookup of several keys, for a batch.
    BatchLookup {
        /// The keys, until they are sent.
        keys: Vec<CacheKey>,
        /// Kinds of the calls of the first keys, whose responses may be shared between machines,
        /// until they are sent.
        call_kinds: Vec<u32>,
        /// Milliseconds for which the owner may wait while other machines fetch.
        lease_wait: u32,
        waiter: WaitingRequestId,
        /// Entries that were received.
        entries: KeyedEntries,
        /// Purge generation when the first of them was received.
        generation: Option<u64>,
    },
    /// A purge. It is executed even if its client is gone.
    Purge {
        scope: String,
        waiter: Option<WaitingRequestId>,
        /// Number of times that it was sent.
        sent: u8,
    },
    /// A query of the owner's status.
    Status { waiter: WaitingRequestId },
    /// A lookup of this key that has timed out. Its reply may still grant a lease.
    TimedOut(CacheKey),
}

/// A lookup for a flight.
#[derive(Debug)]
pub(super) struct LookupJob {
    pub(super) token: FlightLeadership,
    pub(super) options: OwnerLookupOptions,
    /// Whether an event of the key was received while the lookup was open. It may have overtaken the
    /// reply that it follows.
    pub(super) missed_event: bool,
}

/// An open request.
#[derive(Debug)]
pub(super) struct OpenJob {
    pub(super) job: OwnerJob,
    /// Time at which it fails, in milliseconds of the host's clock.
    pub(super) due: u64,
}

/// Returns the milliseconds for which a lookup that is due in `remaining` milliseconds waits for an
/// entry of another machine; 0 if the response is not shared between machines.
pub(super) fn fleet_wait(remaining: u64, is_shareable: bool) -> u16 {
    match is_shareable {
        true => u16::try_from(remaining).unwrap_or(u16::MAX),
        false => 0,
    }
}

/// The open requests by their numbers, and the order in which they have to be sent.
#[derive(Debug, Default)]
pub(super) struct OwnerJobTable {
    last_id: u32,
    open: HashMap<u32, OpenJob>,
    unsent: VecDeque<u32>,
}

impl OwnerJobTable {
    /// Returns the number of a new request. 0 is no number.
    pub(super) fn next_id(&mut self) -> u32 {
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        self.last_id
    }

    /// Adds a request, to be sent after those that were added before.
    ///
    /// # Errors
    /// Returns the request if there are too many, or memory is refused.
    pub(super) fn add_job(&mut self, job: OwnerJob, due: u64) -> Result<(), OwnerJob> {
        let is_full = self.open.len() >= MAX_OPEN_JOBS;
        if is_full || self.open.try_reserve(1).is_err() || self.unsent.try_reserve(1).is_err() {
            return Err(job);
        }
        let id = self.next_id();
        self.open.insert(id, OpenJob { job, due });
        self.unsent.push_back(id);
        Ok(())
    }

    /// Takes the next request that has to be sent; it stays open.
    pub(super) fn next_unsent_job(&mut self, is_session_open: bool) -> Option<(u32, &mut OpenJob)> {
        while let Some(position) = self.next_unsent_position(is_session_open) {
            let id = self.unsent.remove(position)?;
            // it may have ended before
            if self.open.contains_key(&id) {
                return self.open.get_mut(&id).map(|open| (id, open));
            }
        }
        None
    }

    /// Position of the next request that has to be sent. Purges wait for an open session: the outcome
    /// of one that was sent to no owner would be unknown.
    pub(super) fn next_unsent_position(&self, is_session_open: bool) -> Option<usize> {
        let is_purge = |id: &u32| {
            let job = self.open.get(id).map(|open| &open.job);
            matches!(job, Some(OwnerJob::Purge { .. }))
        };
        let mut unsent = self.unsent.iter();
        unsent.position(|id| is_session_open || !is_purge(id))
    }

    /// Returns an open request.
    pub(super) fn open_job(&mut self, id: u32) -> Option<&mut OpenJob> {
        self.open.get_mut(&id)
    }

    /// Removes a request that was replied to.
    pub(super) fn remove_job(&mut self, id: u32) -> Option<OwnerJob> {
        self.open.remove(&id).map(|open| open.job)
    }

    /// Removes a request that was replied to, if it has the kind of the reply.
    pub(super) fn remove_job_if(
        &mut self,
        id: u32,
        has_kind: impl FnOnce(&OwnerJob) -> bool,
    ) -> Option<OpenJob> {
        let is_kind = self.open.get(&id).is_some_and(|open| has_kind(&open.job));
        is_kind.then(|| self.open.remove(&id)).flatten()
    }

    /// Removes all requests, in no particular order.
    pub(super) fn remove_all_jobs(&mut self) -> impl Iterator<Item = OpenJob> {
        self.unsent.clear();
        std::mem::take(&mut self.open).into_values()
    }

    /// Removes a request that is late at `now`. A lookup that was sent leaves its key, because its
    /// reply may still grant a lease.
    pub(super) fn take_late_job(&mut self, now: u64) -> Option<OwnerJob> {
        let late = |open: &OpenJob| open.due <= now && !matches!(open.job, OwnerJob::TimedOut(_));
        let (id, open) = self.open.iter_mut().find(|(_, open)| late(open))?;
        let id = *id;
        if let OwnerJob::Lookup(lookup) = &open.job {
            let key = *lookup.token.flight_key();
            if !self.unsent.contains(&id) {
                return Some(std::mem::replace(&mut open.job, OwnerJob::TimedOut(key)));
            }
        }
        self.remove_job(id)
    }

    /// Earliest time at which a request fails.
    pub(super) fn next_due(&self) -> Option<u64> {
        let open = self.open.values();
        open.filter(|open| !matches!(open.job, OwnerJob::TimedOut(_)))
            .map(|open| open.due)
            .min()
    }

    /// Marks the open lookups of a key: an event of it was received before their replies.
    pub(super) fn mark_missed_event(&mut self, key: &CacheKey) {
        for open in self.open.values_mut() {
            if let OwnerJob::Lookup(lookup) = &mut open.job {
                lookup.missed_event |= lookup.token.leads_flight_of(key);
            }
        }
    }

    /// Removes a waiter that must not be woken any more.
    pub(super) fn forget_waiter(&mut self, gone: WaitingRequestId) {
        self.open.retain(|_, open| match &mut open.job {
            OwnerJob::BatchLookup { waiter, .. } | OwnerJob::Status { waiter } => *waiter != gone,
            OwnerJob::Purge { waiter, .. } => {
                *waiter = waiter.filter(|waiter| *waiter != gone);
                true
            }
            OwnerJob::Lookup(_) | OwnerJob::TimedOut(_) => true,
        });
    }
}
