//! The background queue: requests that no exchange waits for.

use std::collections::VecDeque;

use super::job::Job;
use crate::cache::Key;

/// So many of them, and so many bytes of entries that they keep alive: beyond
/// it the oldest are dropped.
const MOST: usize = 256;
const MOST_BYTES: u64 = 64 << 20;
/// So many leases of entries for which there was no room.
const MOST_LEASES: usize = 4096;

#[derive(Debug)]
pub(super) struct Favours {
    /// Bytes of entries.
    most: u64,
    queue: VecDeque<Job>,
    /// To be given back. They go first: others may wait for them.
    leases: VecDeque<Key>,
}

impl Default for Favours {
    fn default() -> Self {
        Self::within(MOST_BYTES)
    }
}

/// Bytes that it keeps alive.
pub(super) fn weight(job: &Job) -> u64 {
    match job {
        Job::Store { entry, .. } => entry.weight(),
        _ => 0,
    }
}

impl Favours {
    /// With room for so many bytes of entries.
    pub(super) fn within(most: u64) -> Self {
        Self {
            most,
            queue: VecDeque::new(),
            leases: VecDeque::new(),
        }
    }

    /// Takes one, unless memory is refused. An entry for which there is no
    /// room leaves its lease to be given back.
    pub(super) fn push(&mut self, job: Job) {
        match job {
            Job::GiveBack(key) => return self.give_back(key),
            Job::Store { key, .. } if weight(&job) > self.most => return self.give_back(key),
            _ if self.queue.try_reserve(1).is_err() => return,
            _ => self.queue.push_back(job),
        }
        let bytes = |queue: &VecDeque<Job>| queue.iter().map(weight).sum::<u64>();
        while self.queue.len() > MOST || bytes(&self.queue) > self.most {
            if let Some(Job::Store { key, .. }) = self.queue.pop_front() {
                self.give_back(key);
            }
        }
    }

    /// Without the room for it the lease ends by its time.
    fn give_back(&mut self, key: Key) {
        if self.leases.len() < MOST_LEASES && self.leases.try_reserve(1).is_ok() {
            self.leases.push_back(key);
        }
    }

    /// A lease, then the oldest.
    pub(super) fn pop(&mut self) -> Option<Job> {
        let lease = self.leases.pop_front().map(Job::GiveBack);
        lease.or_else(|| self.queue.pop_front())
    }

    /// Whether there are only entries, and fewer than `many`.
    pub(super) fn can_wait(&self, many: usize) -> bool {
        let is_entry = |job: &Job| matches!(job, Job::Store { .. });
        self.leases.is_empty() && self.queue.len() < many && self.queue.iter().all(is_entry)
    }

    /// What was last given for that key, to be done by itself.
    pub(super) fn take(&mut self, key: &Key) -> Option<Job> {
        let is_of = |job: &Job| matches!(job, Job::Store { key: other, .. } if other == key);
        if let Some(at) = self.queue.iter().rposition(is_of) {
            return self.queue.remove(at);
        }
        let at = self.leases.iter().rposition(|other| other == key)?;
        self.leases.remove(at).map(Job::GiveBack)
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

    use super::{Favours, Job, MOST, MOST_BYTES, MOST_LEASES};
    use crate::cache::entry::about::About;
    use crate::cache::entry::{Entry, Envelope, Meta, Payload};

    fn store(n: u8, length: u64) -> Job {
        let bytes = vec![b'1'; usize::try_from(length).unwrap()];
        let payload = Payload::Raw(bytes.into());
        let entry = Arc::new(Entry::new(Envelope::none(), payload, Meta::default()));
        Job::Store {
            key: [n; 32],
            about: Box::new(About::of(&entry, [0; 16], None, 0).unwrap()),
            entry,
            if_final: None,
        }
    }

    fn keys(mut favours: Favours) -> Vec<u8> {
        std::iter::from_fn(|| favours.pop())
            .map(|job| match job {
                Job::Store { key, .. } | Job::GiveBack(key) => key[0],
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn oldest_entry_is_dropped_for_a_long_one() {
        let mut favours = Favours::default();
        for n in 0..3 {
            favours.push(store(n, MOST_BYTES / 3));
        }
        favours.push(Job::GiveBack([7; 32]));
        // the lease of the dropped entry is returned
        assert_eq!(keys(favours), [0, 7, 1, 2]);
    }

    #[test]
    fn oldest_entry_is_dropped_beyond_the_maximum_number() {
        let mut favours = Favours::default();
        for n in 0..=MOST {
            favours.push(store(u8::try_from(n % 256).unwrap(), 1));
        }
        let stored = std::iter::from_fn(|| favours.pop())
            .filter(|job| matches!(job, Job::Store { .. }))
            .count();
        assert_eq!(stored, MOST);
    }

    #[test]
    fn entry_longer_than_the_queue_is_dropped() {
        let mut favours = Favours::default();
        favours.push(store(1, 10));
        favours.push(store(2, MOST_BYTES));
        assert_eq!(keys(favours), [2, 1]);
    }

    #[test]
    fn entries_and_leases_are_limited_in_number() {
        let mut favours = Favours::default();
        for _ in 0..2 * MOST_LEASES {
            favours.push(store(0, 1));
        }
        assert_eq!(favours.queue.len(), MOST);
        assert_eq!(favours.leases.len(), MOST_LEASES);
        favours.clear();
        assert!(favours.pop().is_none());
    }
}
