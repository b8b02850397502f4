//! What exchanges ask for, until it is sent.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::job::{Job, LookUp};
use super::{problem, purge_request, Link, Purged, State};
use crate::cache::chain::Chains;
use crate::cache::entry::about::About;
use crate::cache::entry::Entry;
use crate::cache::freshness::IfFinal;
use crate::cache::process::flights::Token;
use crate::cache::process::ownership::Owner;
use crate::cache::process::wake::Waiter;
use crate::cache::Key;
use crate::lock::locked;

impl Owner for Link {
    fn is_up(&self) -> bool {
        locked(&self.state).up
    }

    fn ask(
        &self,
        key: Key,
        token: Token,
        leases: bool,
        in_vain: bool,
        now: u64,
    ) -> Result<(), Token> {
        let mut state = locked(&self.state);
        if !state.up || state.asked.try_reserve(1).is_err() {
            return Err(token);
        }
        let job = LookUp {
            key,
            token,
            leases,
            due: now.saturating_add(self.bounds.deadline),
            generation: self.generation(),
            waits_in_vain: in_vain,
            missed_event: false,
        };
        state.asked.push_back(Job::LookUp(job));
        self.stir();
        Ok(())
    }

    fn ask_for_all(&self, keys: Vec<Key>, waiter: Waiter, now: u64) -> bool {
        let mut state = locked(&self.state);
        if !state.up || state.asked.try_reserve(1).is_err() {
            return false;
        }
        state.asked.push_back(Job::LookUps {
            keys,
            waiter,
            due: now.saturating_add(self.bounds.deadline),
            generation: self.generation(),
        });
        self.stir();
        true
    }

    fn claim_all(&self, waiter: Waiter) -> Vec<(Key, Arc<Entry>)> {
        let mut state = locked(&self.state);
        match state.looked_up.remove(&waiter) {
            Some(found) if found.generation == self.generation() => return found.entries,
            Some(_) => {}
            None => state.forget(waiter),
        }
        Vec::new()
    }

    fn store(&self, key: Key, entry: Arc<Entry>, about: About, if_final: Option<IfFinal>) {
        let about = Box::new(about);
        self.do_favour(Job::Store {
            key,
            entry,
            about,
            if_final,
        });
    }

    fn give_back(&self, key: Key) {
        self.do_favour(Job::GiveBack(key));
    }

    fn may_send(&self, monotonic: u64) -> bool {
        monotonic < self.until.load(Ordering::Acquire)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn chains(&self) -> &Chains {
        &self.chains
    }

    fn ask_to_purge(
        &self,
        query: &[u8],
        own: Option<&[u8]>,
        waiter: Waiter,
        now: u64,
    ) -> Option<Purged> {
        let refused = |status, detail: &str| Some((status, problem(status, detail).into()));
        match purge_request(query, own) {
            Err(bad) => refused(400, &bad.to_string()),
            Ok(body) => match self.purge(body, waiter, now) {
                true => None,
                false => refused(503, "memory is short: nothing is purged"),
            },
        }
    }

    fn claim_purged(&self, waiter: Waiter) -> Option<Purged> {
        let purged = self.claim_purge(waiter);
        if purged.is_none() {
            self.forget(waiter);
        }
        purged
    }
}

impl Link {
    fn do_favour(&self, job: Job) {
        let mut state = locked(&self.state);
        if !state.up {
            return;
        }
        state.favours.push(job);
        self.stir();
    }
}

impl State {
    /// Nobody waits under that name any more.
    pub(super) fn forget(&mut self, gone: Waiter) {
        let Self { slots, asked, .. } = self;
        let busy = slots.iter_mut().flat_map(|slot| &mut slot.jobs);
        for job in asked.iter_mut().chain(busy) {
            match job {
                Job::LookUps { waiter, .. } if *waiter == gone => *job = Job::Late(None),
                // it is done all the same
                Job::Purge { waiter, .. } if *waiter == Some(gone) => *waiter = None,
                _ => {}
            }
        }
        asked.retain(|job| !matches!(job, Job::Late(_)));
    }
}
