//! Assignment of requests to connections, and their timeouts.

use super::owner_job::{LookupJob, OwnerJob};
use super::{
    ConnectionState, LinkConnectionAction, LinkState, OpenConnection, OwnerConnection, OwnerLink,
    RequestBatch, EVENTS, PURGE,
};
use crate::cache::process::ProcessState;
use crate::time_constants::link_silence;

/// So many requests go over one connection at a time: what is to be sent when
/// one is free goes there together, since waking the owner costs more than most
/// requests do.
pub(super) const TOGETHER: usize = 8;

impl OwnerLink {
    /// Puts jobs on connections that have none.
    pub(super) fn assign_jobs(&self, state: &mut LinkState, shared: &ProcessState, now: u64) {
        if !state.up {
            return;
        }
        for slot in EVENTS + 1..state.slots.len() {
            let free = match state.slots[slot].stage {
                ConnectionState::Open(_) => state.slots[slot].jobs.is_empty(),
                ConnectionState::Closed { retry_at } => retry_at <= now,
                ConnectionState::Connecting => false,
            };
            if !free {
                continue;
            }
            // favours never take the last one from those who wait
            let is_last = slot + 1 == state.slots.len();
            let ready = state.next_ready_index();
            let has_request = ready.is_some();
            if !has_request && (is_last || state.favours_wait()) {
                return;
            }
            if state.find_open_connection(slot).is_some() {
                self.send_jobs(state, shared, slot, now);
                continue;
            }
            let Some(job) = state.next(ready) else {
                return;
            };
            state.open_for_job(slot, job);
        }
    }

    /// Sends over an open connection what is asked, and with it favours.
    fn send_jobs(&self, state: &mut LinkState, shared: &ProcessState, slot: usize, now: u64) {
        let is_last = slot + 1 == state.slots.len();
        let mut burst = RequestBatch::default();
        while burst.jobs.len() < TOGETHER && burst.out.has_room() {
            let ready = state.next_ready_index();
            if ready.is_none() && is_last {
                break;
            }
            // what takes long is sent alone; favours don't
            let is_alone = ready.is_some_and(|at| !state.requests[at].is_quick());
            if is_alone && !burst.jobs.is_empty() || burst.jobs.try_reserve(1).is_err() {
                break;
            }
            let Some(job) = state.next(ready) else {
                break;
            };
            self.add_job_to_batch(state, shared, &mut burst, job, now);
            if is_alone {
                break;
            }
        }
        state.assign_batch(slot, burst, now);
    }

    /// Puts a job among what is sent, unless that can't be.
    pub(super) fn add_job_to_batch(
        &self,
        state: &mut LinkState,
        shared: &ProcessState,
        burst: &mut RequestBatch,
        mut job: OwnerJob,
        now: u64,
    ) {
        job.record_send_attempt(now);
        let message = job.to_owner_request(&self.process, now);
        match message.and_then(|message| burst.out.add_message(message)) {
            Some(()) => burst.jobs.push_back(job),
            // it came too late, or never can be sent, or memory was refused
            None => match job {
                OwnerJob::Store { key, .. } => state.favours.push(OwnerJob::ReleaseLease(key)),
                job => self.fail_job(state, shared, job),
            },
        }
    }

    /// Those whose time is over go on without the owner.
    pub(super) fn expire_late_jobs(&self, state: &mut LinkState, shared: &ProcessState, now: u64) {
        // once around: nothing is allocated
        for _ in 0..state.requests.len() {
            match state.requests.pop_front() {
                Some(job) if job.is_late(now) => self.fail_job(state, shared, job),
                Some(job) => state.requests.push_back(job),
                None => break,
            }
        }
        for slot in 0..state.slots.len() {
            while let Some(late) = state.slots[slot].take_late(now) {
                self.fail_job(state, shared, late);
            }
        }
    }
}

impl LinkState {
    pub(super) fn find_open_connection(&mut self, slot: usize) -> Option<&mut OpenConnection> {
        match &mut self.slots.get_mut(slot)?.stage {
            ConnectionState::Open(open) => Some(open),
            _ => None,
        }
    }

    /// A connection is to be opened for a job.
    pub(super) fn open_for_job(&mut self, slot: usize, job: OwnerJob) {
        if let Some(place) = self.slots.get_mut(slot) {
            place.stage = ConnectionState::Connecting;
            place.jobs.push_back(job);
            self.needs.push_back(LinkConnectionAction::Connect(slot));
        }
    }

    /// A connection that has nothing to do carries these.
    pub(super) fn assign_batch(
        &mut self,
        slot: usize,
        RequestBatch { out, jobs }: RequestBatch,
        now: u64,
    ) {
        if let (Some(open), false) = (self.find_open_connection(slot), jobs.is_empty()) {
            open.out = out;
            open.since = now;
            self.slots[slot].jobs = jobs;
            self.needs.push_back(LinkConnectionAction::Write(slot));
        }
    }

    /// The next of those that somebody waits for. A purge takes its connection
    /// until it holds everywhere, and to hold it wants acknowledgements that need
    /// one as well: half of them are for the rest.
    fn next_ready_index(&self) -> Option<usize> {
        let is_purge = |job: &OwnerJob| matches!(job, OwnerJob::Purge { .. });
        if !is_purge(self.requests.front()?) {
            return Some(0);
        }
        let others = self.slots[EVENTS + 1..].iter();
        let carry_purges = others.filter(|slot| slot.jobs.iter().any(is_purge));
        let most = (self.slots.len() - 1) / 2;
        if carry_purges.count() < most.max(1) {
            return Some(0);
        }
        self.requests.iter().position(|job| !is_purge(job))
    }

    /// The one at that place, or else of the favours.
    fn next(&mut self, at: Option<usize>) -> Option<OwnerJob> {
        match at {
            Some(at) => self.requests.remove(at),
            None => self.favours.pop(),
        }
    }

    /// Whether favours are to wait for others that are under way: they go
    /// together then, and nobody waits for them.
    fn favours_wait(&self) -> bool {
        let is_favour =
            |job: &OwnerJob| matches!(job, OwnerJob::Store { .. } | OwnerJob::ReleaseLease(_));
        let are_under_way = self.slots[EVENTS + 1..]
            .iter()
            .any(|slot| match &slot.stage {
                // what is long may take long
                ConnectionState::Open(open) => {
                    open.out.has_room() && slot.jobs.back().is_some_and(is_favour)
                }
                _ => false,
            });
        are_under_way && self.favours.can_wait(TOGETHER)
    }

    pub(super) fn next_tick(&self, now: u64) -> u64 {
        let busy = self.slots.iter().flat_map(|slot| &slot.jobs);
        let dues = self
            .requests
            .iter()
            .chain(busy)
            .filter_map(OwnerJob::reply_deadline);
        let retry = match self.slots[EVENTS].stage {
            ConnectionState::Closed { retry_at } => retry_at,
            _ => now + link_silence() / 2,
        };
        let next = dues.chain([retry]).min().unwrap_or(retry);
        next.saturating_sub(now).max(1)
    }
}

impl OwnerConnection {
    /// A job whose time is over; its answer still comes on that connection.
    fn take_late(&mut self, now: u64) -> Option<OwnerJob> {
        let job = self.jobs.iter_mut().find(|job| job.is_late(now))?;
        let key = match job {
            OwnerJob::LookUp(look_up) => Some(look_up.key),
            _ => None,
        };
        Some(std::mem::replace(job, OwnerJob::Expired(key)))
    }
}

impl OwnerJob {
    /// Whether the owner answers at once, with little, so that others may be
    /// sent before the answer has come.
    fn is_quick(&self) -> bool {
        matches!(
            self,
            Self::LookUp(_)
                | Self::Store { .. }
                | Self::ReleaseLease(_)
                | Self::Acknowledge(_)
                | Self::ShowBlock(..)
        )
    }

    /// It is about to be sent.
    pub(super) fn record_send_attempt(&mut self, now: u64) {
        if let Self::Purge { due, sent, .. } = self {
            if *sent == 0 {
                *due = now.saturating_add(PURGE);
            }
            *sent += 1;
        }
    }

    /// When whoever waits for it goes on without it.
    pub(super) fn reply_deadline(&self) -> Option<u64> {
        match self {
            Self::LookUp(look_up) => Some(look_up.due),
            Self::LookUps { due, .. } | Self::Purge { due, .. } | Self::Status { due, .. } => {
                Some(*due)
            }
            _ => None,
        }
    }

    pub(super) fn is_late(&self, now: u64) -> bool {
        self.reply_deadline().is_some_and(|due| due <= now)
    }

    /// Makes that later for a look-up, never earlier.
    pub(super) fn extend_deadline(&mut self, until: u64) {
        match self {
            Self::LookUp(LookupJob { due, .. }) | Self::LookUps { due, .. } => {
                *due = until.max(*due);
            }
            _ => {}
        }
    }
}
