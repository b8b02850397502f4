//! The background queue: requests that no exchange waits for.

use std::collections::VecDeque;

use super::owner_job::OwnerJob;
use crate::cache::CacheKey;

/// So many of them, and so many bytes of entries that they keep alive: beyond
/// it the oldest are dropped.
const MOST: usize = 256;
const MOST_BYTES: u64 = 64 << 20;
/// So many leases of entries for which there was no room.
const MOST_LEASES: usize = 4096;

#[derive(Debug)]
pub(super) struct BackgroundQueue {
    /// Bytes of entries.
    most: u64,
    queue: VecDeque<OwnerJob>,
    /// To be given back. They go first: others may wait for them.
    leases: VecDeque<CacheKey>,
}

impl Default for BackgroundQueue {
    fn default() -> Self {
        Self::with_capacity_bytes(MOST_BYTES)
    }
}

/// Bytes that it keeps alive.
pub(super) fn job_entry_weight(job: &OwnerJob) -> u64 {
    match job {
        OwnerJob::Store { entry, .. } => entry.memory_weight(),
        _ => 0,
    }
}

impl BackgroundQueue {
    /// With room for so many bytes of entries.
    pub(super) fn with_capacity_bytes(most: u64) -> Self {
        Self {
            most,
            queue: VecDeque::new(),
            leases: VecDeque::new(),
        }
    }

    /// Takes one, unless memory is refused. An entry for which there is no
    /// room leaves its lease to be given back.
    pub(super) fn push(&mut self, job: OwnerJob) {
        match job {
            OwnerJob::ReleaseLease(key) => return self.push_lease_release(key),
            OwnerJob::Store { key, .. } if job_entry_weight(&job) > self.most => {
                return self.push_lease_release(key)
            }
            _ if self.queue.try_reserve(1).is_err() => return,
            _ => self.queue.push_back(job),
        }
        let bytes = |queue: &VecDeque<OwnerJob>| queue.iter().map(job_entry_weight).sum::<u64>();
        while self.queue.len() > MOST || bytes(&self.queue) > self.most {
            if let Some(OwnerJob::Store { key, .. }) = self.queue.pop_front() {
                self.push_lease_release(key);
            }
        }
    }

    /// Without the room for it the lease ends by its time.
    fn push_lease_release(&mut self, key: CacheKey) {
        if self.leases.len() < MOST_LEASES && self.leases.try_reserve(1).is_ok() {
            self.leases.push_back(key);
        }
    }

    /// A lease, then the oldest.
    pub(super) fn pop(&mut self) -> Option<OwnerJob> {
        let lease = self.leases.pop_front().map(OwnerJob::ReleaseLease);
        lease.or_else(|| self.queue.pop_front())
    }

    /// Whether there are only entries, and fewer than `many`.
    pub(super) fn can_wait(&self, many: usize) -> bool {
        let is_entry = |job: &OwnerJob| matches!(job, OwnerJob::Store { .. });
        self.leases.is_empty() && self.queue.len() < many && self.queue.iter().all(is_entry)
    }

    /// What was last given for that key, to be done by itself.
    pub(super) fn take_for_key(&mut self, key: &CacheKey) -> Option<OwnerJob> {
        let is_of =
            |job: &OwnerJob| matches!(job, OwnerJob::Store { key: other, .. } if other == key);
        if let Some(at) = self.queue.iter().rposition(is_of) {
            return self.queue.remove(at);
        }
        let at = self.leases.iter().rposition(|other| other == key)?;
        self.leases.remove(at).map(OwnerJob::ReleaseLease)
    }

    /// None of them is done.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.leases.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{BackgroundQueue, OwnerJob, MOST, MOST_BYTES, MOST_LEASES};
    use crate::cache::entry::store_attributes::StoreAttributes;
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};

    fn store(n: u8, length: u64) -> OwnerJob {
        let bytes = vec![b'1'; usize::try_from(length).unwrap()];
        let payload = EntryPayload::Raw(bytes.into());
        let entry = Arc::new(CacheEntry::new(
            EnvelopeBytes::empty_envelope(),
            payload,
            EntryMetadata::default(),
        ));
        OwnerJob::Store {
            key: [n; 32],
            about: Box::new(StoreAttributes::for_entry(&entry, [0; 16], None, 0).unwrap()),
            entry,
            if_final: None,
        }
    }

    fn keys(mut favours: BackgroundQueue) -> Vec<u8> {
        std::iter::from_fn(|| favours.pop())
            .map(|job| match job {
                OwnerJob::Store { key, .. } | OwnerJob::ReleaseLease(key) => key[0],
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn oldest_entry_is_dropped_for_a_long_one() {
        let mut favours = BackgroundQueue::default();
        for n in 0..3 {
            favours.push(store(n, MOST_BYTES / 3));
        }
        favours.push(OwnerJob::ReleaseLease([7; 32]));
        // the lease of the dropped entry is returned
        assert_eq!(keys(favours), [0, 7, 1, 2]);
    }

    #[test]
    fn oldest_entry_is_dropped_beyond_the_maximum_number() {
        let mut favours = BackgroundQueue::default();
        for n in 0..=MOST {
            favours.push(store(u8::try_from(n % 256).unwrap(), 1));
        }
        let stored = std::iter::from_fn(|| favours.pop())
            .filter(|job| matches!(job, OwnerJob::Store { .. }))
            .count();
        assert_eq!(stored, MOST);
    }

    #[test]
    fn entry_longer_than_the_queue_is_dropped() {
        let mut favours = BackgroundQueue::default();
        favours.push(store(1, 10));
        favours.push(store(2, MOST_BYTES));
        assert_eq!(keys(favours), [2, 1]);
    }

    #[test]
    fn entries_and_leases_are_limited_in_number() {
        let mut favours = BackgroundQueue::default();
        for _ in 0..2 * MOST_LEASES {
            favours.push(store(0, 1));
        }
        assert_eq!(favours.queue.len(), MOST);
        assert_eq!(favours.leases.len(), MOST_LEASES);
        favours.clear();
        assert!(favours.pop().is_none());
    }
}
