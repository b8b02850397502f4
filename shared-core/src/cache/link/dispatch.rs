//! Assignment of requests to connections, and their timeouts.

use super::owner_job::{LookupJob, QueuedOwnerRequest};
use super::{
    ConnectionState, LinkConnectionAction, LinkState, OpenConnection, OwnerConnection, OwnerLink,
    PipelinedOwnerRequests, EVENTS, PURGE,
};
use crate::cache::process::ProcessCacheState;
use crate::time_constants::link_silence;

/// So many requests go over one connection at a time: what is to be sent when
/// one is free goes there together, since waking the owner costs more than most
/// requests do.
pub(super) const TOGETHER: usize = 8;

impl OwnerLink {
    /// Puts jobs on connections that have none.
    pub(super) fn assign_jobs_to_connections(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        now: u64,
    ) {
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
            let ready = state.next_sendable_request_index();
            let has_request = ready.is_some();
            if !has_request && (is_last || state.may_defer_background_jobs()) {
                return;
            }
            if state.find_open_connection(slot).is_some() {
                self.send_jobs_over_connection(state, shared, slot, now);
                continue;
            }
            let Some(job) = state.next(ready) else {
                return;
            };
            state.queue_connect_for_owner_request(slot, job);
        }
    }

    /// Sends over an open connection what is asked, and with it favours.
    fn send_jobs_over_connection(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        slot: usize,
        now: u64,
    ) {
        let is_last = slot + 1 == state.slots.len();
        let mut burst = PipelinedOwnerRequests::default();
        while burst.jobs.len() < TOGETHER && burst.out.has_room() {
            let ready = state.next_sendable_request_index();
            if ready.is_none() && is_last {
                break;
            }
            // what takes long is sent alone; favours don't
            let is_alone = ready.is_some_and(|at| !state.requests[at].has_prompt_reply());
            if is_alone && !burst.jobs.is_empty() || burst.jobs.try_reserve(1).is_err() {
                break;
            }
            let Some(job) = state.next(ready) else {
                break;
            };
            self.add_job_to_request_batch(state, shared, &mut burst, job, now);
            if is_alone {
                break;
            }
        }
        state.assign_batch_to_connection(slot, burst, now);
    }

    /// Puts a job among what is sent, unless that can't be.
    pub(super) fn add_job_to_request_batch(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        burst: &mut PipelinedOwnerRequests,
        mut job: QueuedOwnerRequest,
        now: u64,
    ) {
        job.record_owner_send_attempt(now);
        let message = job.to_owner_request(&self.process, now);
        match message.and_then(|message| burst.out.add_message(message)) {
            Some(()) => burst.jobs.push_back(job),
            // it came too late, or never can be sent, or memory was refused
            None => match job {
                QueuedOwnerRequest::Store { key, .. } => state
                    .favours
                    .push_owner_job(QueuedOwnerRequest::ReleaseLease(key)),
                job => self.fail_owner_job(state, shared, job),
            },
        }
    }

    /// Those whose time is over go on without the owner.
    pub(super) fn expire_late_owner_jobs(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        now: u64,
    ) {
        // once around: nothing is allocated
        for _ in 0..state.requests.len() {
            match state.requests.pop_front() {
                Some(job) if job.is_late(now) => self.fail_owner_job(state, shared, job),
                Some(job) => state.requests.push_back(job),
                None => break,
            }
        }
        for slot in 0..state.slots.len() {
            while let Some(late) = state.slots[slot].take_late_job(now) {
                self.fail_owner_job(state, shared, late);
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

    /// Marks the slot as connecting, with `job` as its first request, and has the host open the
    /// connection.
    pub(super) fn queue_connect_for_owner_request(&mut self, slot: usize, job: QueuedOwnerRequest) {
        if let Some(place) = self.slots.get_mut(slot) {
            place.stage = ConnectionState::Connecting;
            place.jobs.push_back(job);
            self.needs.push_back(LinkConnectionAction::Connect(slot));
        }
    }

    /// A connection that has nothing to do carries these.
    pub(super) fn assign_batch_to_connection(
        &mut self,
        slot: usize,
        PipelinedOwnerRequests { out, jobs }: PipelinedOwnerRequests,
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
    fn next_sendable_request_index(&self) -> Option<usize> {
        let is_purge = |job: &QueuedOwnerRequest| matches!(job, QueuedOwnerRequest::Purge { .. });
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
    fn next(&mut self, at: Option<usize>) -> Option<QueuedOwnerRequest> {
        match at {
            Some(at) => self.requests.remove(at),
            None => self.favours.pop_lease_or_oldest(),
        }
    }

    /// Whether favours are to wait for others that are under way: they go
    /// together then, and nobody waits for them.
    fn may_defer_background_jobs(&self) -> bool {
        let is_favour = |job: &QueuedOwnerRequest| {
            matches!(
                job,
                QueuedOwnerRequest::Store { .. } | QueuedOwnerRequest::ReleaseLease(_)
            )
        };
        let are_under_way = self.slots[EVENTS + 1..]
            .iter()
            .any(|slot| match &slot.stage {
                // what is long may take long
                ConnectionState::Open(open) => {
                    open.out.has_room() && slot.jobs.back().is_some_and(is_favour)
                }
                _ => false,
            });
        are_under_way && self.favours.has_only_few_entries(TOGETHER)
    }

    pub(super) fn next_tick(&self, now: u64) -> u64 {
        let busy = self.slots.iter().flat_map(|slot| &slot.jobs);
        let dues = self
            .requests
            .iter()
            .chain(busy)
            .filter_map(QueuedOwnerRequest::reply_deadline);
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
    fn take_late_job(&mut self, now: u64) -> Option<QueuedOwnerRequest> {
        let job = self.jobs.iter_mut().find(|job| job.is_late(now))?;
        let key = match job {
            QueuedOwnerRequest::LookUp(look_up) => Some(look_up.key),
            _ => None,
        };
        Some(std::mem::replace(job, QueuedOwnerRequest::Expired(key)))
    }
}

impl QueuedOwnerRequest {
    /// Whether the owner answers at once, with little, so that others may be
    /// sent before the answer has come.
    fn has_prompt_reply(&self) -> bool {
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
    pub(super) fn record_owner_send_attempt(&mut self, now: u64) {
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
    pub(super) fn extend_lookup_deadline(&mut self, until: u64) {
        match self {
            Self::LookUp(LookupJob { due, .. }) | Self::LookUps { due, .. } => {
                *due = until.max(*due);
            }
            _ => {}
        }
    }
}
