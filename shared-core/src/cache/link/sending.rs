//! What is sent over which connection, and until when it is waited for.

use std::collections::VecDeque;

use super::channel::Outgoing;
use super::job::{Job, LookUp};
use super::{Link, Need, Slot, State, EVENTS, PURGE, SILENCE};
use crate::cache::process::Shared;

/// So many requests go over one connection at a time: what is to be sent when
/// one is free goes there together, since waking the owner costs more than most
/// requests do.
pub(super) const TOGETHER: usize = 8;

impl Link {
    /// Puts jobs on connections that have none.
    pub(super) fn assign(&self, state: &mut State, shared: &Shared, now: u64) {
        if !state.up {
            return;
        }
        for slot in EVENTS + 1..state.slots.len() {
            let free = match &state.slots[slot] {
                Slot::Open(open) => open.jobs.is_empty(),
                Slot::Closed { retry_at } => *retry_at <= now,
                Slot::Connecting(_) => false,
            };
            if !free {
                continue;
            }
            // favours never take the last one from those who wait
            let is_last = slot + 1 == state.slots.len();
            let ready = state.ready();
            let is_asked = ready.is_some();
            if !is_asked && (is_last || state.favours_wait()) {
                return;
            }
            if matches!(state.slots[slot], Slot::Open(_)) {
                self.send(state, shared, slot, now);
                continue;
            }
            let Some(job) = state.next(ready) else {
                return;
            };
            state.slots[slot] = Slot::Connecting(job);
            state.needs.push_back(Need::Connect(slot));
        }
    }

    /// Sends over an open connection what is asked, and with it favours.
    fn send(&self, state: &mut State, shared: &Shared, slot: usize, now: u64) {
        let is_last = slot + 1 == state.slots.len();
        let mut jobs = VecDeque::new();
        let mut out = Outgoing::default();
        while jobs.len() < TOGETHER && out.has_room() {
            let ready = state.ready();
            if ready.is_none() && is_last {
                break;
            }
            // what takes long is sent alone; favours don't
            let is_alone = ready.is_some_and(|at| !state.asked[at].is_quick());
            if is_alone && !jobs.is_empty() || jobs.try_reserve(1).is_err() {
                break;
            }
            let Some(mut job) = state.next(ready) else {
                break;
            };
            job.begin(now);
            let message = job.message(&self.process, now);
            match message.and_then(|message| out.add(message)) {
                Some(()) => jobs.push_back(job),
                None => self.drop_unsent(state, shared, job),
            }
            if is_alone {
                break;
            }
        }
        if jobs.is_empty() {
            return;
        }
        if let Some(Slot::Open(open)) = state.slots.get_mut(slot) {
            open.out = out;
            open.jobs = jobs;
            open.since = now;
            state.needs.push_back(Need::Write(slot));
        }
    }

    /// Those whose time is over go on without the owner.
    pub(super) fn give_up_late(&self, state: &mut State, shared: &Shared, now: u64) {
        // once around: nothing is allocated
        for _ in 0..state.asked.len() {
            match state.asked.pop_front() {
                Some(job) if job.is_late(now) => self.fail(state, shared, job),
                Some(job) => state.asked.push_back(job),
                None => break,
            }
        }
        for slot in 0..state.slots.len() {
            while let Some(late) = state.slots[slot].take_late(now) {
                self.fail(state, shared, late);
            }
        }
    }

    /// It came too late, or never can be sent, or memory was refused for it.
    pub(super) fn drop_unsent(&self, state: &mut State, shared: &Shared, job: Job) {
        match job {
            Job::Store { key, .. } => state.favours.push(Job::GiveBack(key)),
            job => self.fail(state, shared, job),
        }
    }
}

/// An iterator has one type.
static NO_JOBS: &VecDeque<Job> = &VecDeque::new();

impl State {
    /// The next of those that somebody waits for. A purge takes its connection
    /// until it holds everywhere, and to hold it wants acknowledgements that need
    /// one as well: half of them are for the rest.
    fn ready(&self) -> Option<usize> {
        let is_purge = |job: &Job| matches!(job, Job::Purge { .. });
        if !is_purge(self.asked.front()?) {
            return Some(0);
        }
        let carry_purges = self.slots[EVENTS + 1..].iter().filter(|slot| match slot {
            Slot::Open(open) => open.jobs.iter().any(is_purge),
            Slot::Connecting(job) => is_purge(job),
            Slot::Closed { .. } => false,
        });
        let most = (self.slots.len() - 1) / 2;
        if carry_purges.count() < most.max(1) {
            return Some(0);
        }
        self.asked.iter().position(|job| !is_purge(job))
    }

    /// The one at that place, or else of the favours.
    fn next(&mut self, at: Option<usize>) -> Option<Job> {
        match at {
            Some(at) => self.asked.remove(at),
            None => self.favours.pop(),
        }
    }

    /// Whether favours are to wait for others that are under way: they go
    /// together then, and nobody waits for them.
    fn favours_wait(&self) -> bool {
        let is_favour = |job: &Job| matches!(job, Job::Store { .. } | Job::GiveBack(_));
        let are_under_way = self.slots[EVENTS + 1..].iter().any(|slot| match slot {
            // what is long may take long
            Slot::Open(open) => open.out.has_room() && open.jobs.back().is_some_and(is_favour),
            Slot::Connecting(_) | Slot::Closed { .. } => false,
        });
        are_under_way && self.favours.can_wait(TOGETHER)
    }

    pub(super) fn next_tick(&self, now: u64) -> u64 {
        let busy = self.slots.iter().flat_map(|slot| match slot {
            Slot::Open(open) => open.jobs.iter().chain(None),
            Slot::Connecting(job) => NO_JOBS.iter().chain(Some(job)),
            Slot::Closed { .. } => NO_JOBS.iter().chain(None),
        });
        let dues = self.asked.iter().chain(busy).filter_map(Job::due);
        let retry = match self.slots[EVENTS] {
            Slot::Closed { retry_at } => retry_at,
            _ => now + SILENCE / 2,
        };
        let next = dues.chain([retry]).min().unwrap_or(retry);
        next.saturating_sub(now).max(1)
    }
}

impl Slot {
    /// A job whose time is over; its answer still comes on that connection.
    fn take_late(&mut self, now: u64) -> Option<Job> {
        let job = self.jobs().find(|job| job.is_late(now))?;
        let key = match job {
            Job::LookUp(look_up) => Some(look_up.key),
            _ => None,
        };
        Some(std::mem::replace(job, Job::Late(key)))
    }

    pub(super) fn jobs(&mut self) -> impl Iterator<Item = &mut Job> {
        let (open, connecting) = match self {
            Self::Open(open) => (Some(&mut open.jobs), None),
            Self::Connecting(job) => (None, Some(job)),
            Self::Closed { .. } => (None, None),
        };
        open.into_iter().flatten().chain(connecting)
    }
}

impl Job {
    /// Whether the owner answers at once, with little, so that others may be
    /// sent before the answer has come.
    fn is_quick(&self) -> bool {
        matches!(
            self,
            Self::LookUp(_) | Self::Store { .. } | Self::GiveBack(_) | Self::Acknowledge(_)
        )
    }

    /// It is about to be sent.
    pub(super) fn begin(&mut self, now: u64) {
        if let Self::Purge { due, sent, .. } = self {
            if *sent == 0 {
                *due = now.saturating_add(PURGE);
            }
            *sent += 1;
        }
    }

    /// When whoever waits for it goes on without it.
    fn due(&self) -> Option<u64> {
        match self {
            Self::LookUp(look_up) => Some(look_up.due),
            Self::LookUps { due, .. } | Self::Purge { due, .. } => Some(*due),
            _ => None,
        }
    }

    fn is_late(&self, now: u64) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Makes that later for a look-up, never earlier.
    pub(super) fn put_off(&mut self, until: u64) {
        match self {
            Self::LookUp(LookUp { due, .. }) | Self::LookUps { due, .. } => {
                *due = until.max(*due);
            }
            _ => {}
        }
    }
}
