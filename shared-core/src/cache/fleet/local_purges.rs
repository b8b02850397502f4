//! Purges of the stream that are to be applied to the owner's own entries.
//!
//! One job at a time is executed, with all scopes that wait. The position of the owner moves to the
//! last record of a job when the job is complete: then no process of the machine can send an entry
//! that one of the records covers.

use std::collections::BTreeSet;

use super::stream_record::StreamMark;
use crate::cache::entry::store_attributes::PurgeScope;

/// Maximum number of scopes that wait; one more purges everything, as each purge is a durable write.
const MAX_SCOPES: usize = 256;

/// Minimum interval between purges of everything because of unreadable records, in milliseconds.
const UNREADABLE_INTERVAL_MS: u64 = 1_000;

/// Time until a job that has failed is tried again, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// Local purges that are to be executed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPurgeJob {
    /// Scopes to purge; none if the records are in effect already.
    pub scopes: Vec<PurgeScope>,
    /// The last record of the job, which is the owner's position afterwards; `None` if the stream
    /// was lost meanwhile.
    pub mark: Option<StreamMark>,
}

/// The queue of local purges.
#[derive(Debug, Default)]
pub struct LocalPurgeQueue {
    scopes: BTreeSet<PurgeScope>,
    mark: Option<StreamMark>,
    not_before: u64,
    next_unreadable: u64,
    /// The job that is executed.
    running: Option<LocalPurgeJob>,
}

impl LocalPurgeQueue {
    /// Adds a scope to purge.
    pub fn add_scope(&mut self, scope: &PurgeScope) {
        if self.scopes.contains(&PurgeScope::Everything) {
            // executed after this call, so that it covers this scope too
            return;
        }
        self.scopes.insert(scope.clone());
        if *scope == PurgeScope::Everything || self.scopes.len() > MAX_SCOPES {
            self.scopes = BTreeSet::from([PurgeScope::Everything]);
        }
    }

    /// Adds a purge of everything because of a record with an unknown scope, for once per second.
    pub fn add_unreadable(&mut self, now: u64) {
        let is_queued = self.scopes.contains(&PurgeScope::Everything);
        self.add_scope(&PurgeScope::Everything);
        if !is_queued {
            self.not_before = self.not_before.max(self.next_unreadable);
            self.next_unreadable = self.not_before.max(now) + UNREADABLE_INTERVAL_MS;
        }
    }

    /// Sets the record after which the scopes of all records are in the queue.
    pub fn set_mark(&mut self, mark: StreamMark) {
        self.mark = Some(mark);
    }

    /// Removes the record that the position would move to, as it is of a stream that was lost. The
    /// scopes stay.
    pub fn clear_mark(&mut self) {
        self.mark = None;
        if let Some(running) = &mut self.running {
            running.mark = None;
        }
    }

    /// Returns the next job, if there is one and none is executed.
    pub fn take_job(&mut self, now: u64) -> Option<LocalPurgeJob> {
        let is_idle = self.scopes.is_empty() && self.mark.is_none();
        if is_idle || self.running.is_some() || now < self.not_before {
            return None;
        }
        let job = LocalPurgeJob {
            scopes: std::mem::take(&mut self.scopes).into_iter().collect(),
            mark: self.mark.take(),
        };
        self.running = Some(job.clone());
        Some(job)
    }

    /// Ends the present job. Returns the position of the owner if it has moved. A failed job is tried
    /// again.
    pub fn complete_job(&mut self, is_done: bool, now: u64) -> Option<StreamMark> {
        let job = self.running.take()?;
        if is_done {
            return job.mark;
        }
        for scope in &job.scopes {
            self.add_scope(scope);
        }
        // a newer record is after the records of this job
        self.mark = self.mark.or(job.mark);
        self.not_before = self.not_before.max(now + RETRY_MS);
        None
    }

    /// Time at which [`take_job`](Self::take_job) returns a job; `None` if the queue is empty, or a
    /// job is executed.
    pub fn next_job_time(&self) -> Option<u64> {
        let is_idle = self.scopes.is_empty() && self.mark.is_none();
        (!is_idle && self.running.is_none()).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream_record::StreamId;
    use super::*;

    fn mark(position: u64) -> StreamMark {
        StreamMark {
            id: StreamId::from_position(position),
            fingerprint: [0; 16],
        }
    }

    fn key(n: u8) -> PurgeScope {
        PurgeScope::Key([n; 32])
    }

    #[test]
    fn position_moves_when_a_job_is_complete() {
        let mut queue = LocalPurgeQueue::default();
        assert_eq!(queue.take_job(0), None);
        queue.add_scope(&key(1));
        queue.add_scope(&key(1));
        queue.set_mark(mark(1));
        let job = queue.take_job(0).unwrap();
        assert_eq!((job.scopes, job.mark), (vec![key(1)], Some(mark(1))));
        queue.set_mark(mark(2));
        assert_eq!(queue.take_job(0), None, "one job at a time");
        assert_eq!(queue.complete_job(true, 5), Some(mark(1)));
        assert_eq!(queue.take_job(5).unwrap().scopes, []);
        assert_eq!(queue.complete_job(true, 5), Some(mark(2)));
        assert_eq!(queue.next_job_time(), None);
    }

    #[test]
    fn failed_job_is_repeated_with_all_scopes() {
        let mut queue = LocalPurgeQueue::default();
        queue.add_scope(&key(1));
        queue.set_mark(mark(1));
        queue.take_job(0).unwrap();
        queue.add_scope(&key(2));
        queue.set_mark(mark(2));
        assert_eq!(queue.complete_job(false, 10), None);
        assert_eq!(queue.take_job(10), None);
        let job = queue.take_job(queue.next_job_time().unwrap()).unwrap();
        assert_eq!(job.scopes, [key(1), key(2)]);
        assert_eq!(job.mark, Some(mark(2)));
    }

    #[test]
    fn queue_is_bounded_by_a_purge_of_everything() {
        let mut queue = LocalPurgeQueue::default();
        for block in 0..=MAX_SCOPES as u64 {
            queue.add_scope(&PurgeScope::Blocks {
                namespace: [0; 16],
                from: block,
                to: block,
            });
        }
        queue.add_scope(&key(1));
        assert_eq!(queue.take_job(0).unwrap().scopes, [PurgeScope::Everything]);
    }

    #[test]
    fn unreadable_records_purge_everything_once_per_second() {
        let mut queue = LocalPurgeQueue::default();
        let mut jobs = 0;
        for now in 0..10_000 {
            queue.add_unreadable(now);
            queue.set_mark(mark(now));
            if let Some(job) = queue.take_job(now) {
                assert_eq!(job.scopes, [PurgeScope::Everything]);
                assert_eq!(queue.complete_job(true, now), Some(mark(now)));
                jobs += 1;
            }
        }
        assert!((9..=11).contains(&jobs), "{jobs}");
    }

    #[test]
    fn position_stays_if_the_stream_was_lost_during_a_job() {
        let mut queue = LocalPurgeQueue::default();
        queue.add_scope(&key(1));
        queue.set_mark(mark(1));
        queue.take_job(0).unwrap();
        queue.clear_mark();
        assert_eq!(queue.complete_job(true, 0), None);
    }
}
