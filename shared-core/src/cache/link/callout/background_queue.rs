//! The background queue: requests that no exchange waits for.

use std::collections::VecDeque;

use super::owner_job::QueuedOwnerRequest;
use crate::cache::CacheKey;

/// Maximum number of requests, and of bytes of entries that they keep in memory;
/// beyond it the oldest are dropped.
const MOST: usize = 256;
const MOST_BYTES: u64 = 64 << 20;
/// Maximum number of leases to be released.
const MOST_LEASES: usize = 4096;

#[derive(Debug)]
pub(super) struct OwnerBackgroundQueue {
    /// Bytes of entries.
    most: u64,
    queue: VecDeque<QueuedOwnerRequest>,
    /// To be given back. They go first: others may wait for them.
    leases: VecDeque<CacheKey>,
}

impl Default for OwnerBackgroundQueue {
    fn default() -> Self {
        Self::with_capacity_bytes(MOST_BYTES)
    }
}

/// Bytes that it keeps alive.
pub(super) fn job_entry_weight(job: &QueuedOwnerRequest) -> u64 {
    match job {
        QueuedOwnerRequest::Store { entry, .. } => entry.memory_weight(),
        _ => 0,
    }
}

impl OwnerBackgroundQueue {
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
    pub(super) fn push_owner_job(&mut self, job: QueuedOwnerRequest) {
        match job {
            QueuedOwnerRequest::ReleaseLease(key) => return self.push_lease_release(key),
            QueuedOwnerRequest::Store { key, .. } if job_entry_weight(&job) > self.most => {
                return self.push_lease_release(key)
            }
            _ if self.queue.try_reserve(1).is_err() => return,
            _ => self.queue.push_back(job),
        }
        let bytes =
            |queue: &VecDeque<QueuedOwnerRequest>| queue.iter().map(job_entry_weight).sum::<u64>();
        while self.queue.len() > MOST || bytes(&self.queue) > self.most {
            if let Some(QueuedOwnerRequest::Store { key, .. }) = self.queue.pop_front() {
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
    pub(super) fn pop_lease_or_oldest(&mut self) -> Option<QueuedOwnerRequest> {
        let lease = self
            .leases
            .pop_front()
            .map(QueuedOwnerRequest::ReleaseLease);
        lease.or_else(|| self.queue.pop_front())
    }

    /// Removes the last request for that key.
    pub(super) fn take_for_key(&mut self, key: &CacheKey) -> Option<QueuedOwnerRequest> {
        let is_of = |job: &QueuedOwnerRequest| matches!(job, QueuedOwnerRequest::Store { key: other, .. } if other == key);
        if let Some(at) = self.queue.iter().rposition(is_of) {
            return self.queue.remove(at);
        }
        let at = self.leases.iter().rposition(|other| other == key)?;
        self.leases.remove(at).map(QueuedOwnerRequest::ReleaseLease)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{OwnerBackgroundQueue, QueuedOwnerRequest, MOST, MOST_BYTES, MOST_LEASES};
    use crate::cache::entry::store_attributes::StoredEntryAttributes;
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};

    fn store(n: u8, length: u64) -> QueuedOwnerRequest {
        let bytes = vec![b'1'; usize::try_from(length).unwrap()];
        let payload = EntryPayload::Raw(bytes.into());
        let entry = Arc::new(CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            payload,
            EntryMetadata::default(),
        ));
        QueuedOwnerRequest::Store {
            key: [n; 32],
            about: Box::new(
                StoredEntryAttributes::attributes_for_entry(&entry, [0; 16], None, 0).unwrap(),
            ),
            entry,
            if_final: None,
        }
    }

    fn keys(mut favours: OwnerBackgroundQueue) -> Vec<u8> {
        std::iter::from_fn(|| favours.pop_lease_or_oldest())
            .map(|job| match job {
                QueuedOwnerRequest::Store { key, .. } | QueuedOwnerRequest::ReleaseLease(key) => {
                    key[0]
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn oldest_entry_is_dropped_for_a_long_one() {
        let mut favours = OwnerBackgroundQueue::default();
        for n in 0..3 {
            favours.push_owner_job(store(n, MOST_BYTES / 3));
        }
        favours.push_owner_job(QueuedOwnerRequest::ReleaseLease([7; 32]));
        // the lease of the dropped entry is returned
        assert_eq!(keys(favours), [0, 7, 1, 2]);
    }

    #[test]
    fn oldest_entry_is_dropped_beyond_the_maximum_number() {
        let mut favours = OwnerBackgroundQueue::default();
        for n in 0..=MOST {
            favours.push_owner_job(store(u8::try_from(n % 256).unwrap(), 1));
        }
        let stored = std::iter::from_fn(|| favours.pop_lease_or_oldest())
            .filter(|job| matches!(job, QueuedOwnerRequest::Store { .. }))
            .count();
        assert_eq!(stored, MOST);
    }

    #[test]
    fn entry_longer_than_the_queue_is_dropped() {
        let mut favours = OwnerBackgroundQueue::default();
        favours.push_owner_job(store(1, 10));
        favours.push_owner_job(store(2, MOST_BYTES));
        assert_eq!(keys(favours), [2, 1]);
    }

    #[test]
    fn entries_and_leases_are_limited_in_number() {
        let mut favours = OwnerBackgroundQueue::default();
        for _ in 0..2 * MOST_LEASES {
            favours.push_owner_job(store(0, 1));
        }
        assert_eq!(favours.queue.len(), MOST);
        assert_eq!(favours.leases.len(), MOST_LEASES);
    }
}
