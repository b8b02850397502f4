//! Requests of exchanges until they are sent.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::job::{Job, LookUp};
use super::{purge, Link, Said, State};
use crate::cache::chain::{Chains, Sighting};
use crate::cache::entry::about::About;
use crate::cache::entry::Entry;
use crate::cache::freshness::IfFinal;
use crate::cache::process::flights::Token;
use crate::cache::process::ownership::Owner;
use crate::cache::process::wake::Waiter;
use crate::cache::{Key, Namespace};
use crate::lock::locked;

impl Owner for Link {
    fn is_up(&self) -> bool {
        locked(&self.state).up
    }

    fn ask(
        &self,
        key: Key,
        token: Token,
        _namespace: &Namespace,
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
            due: self.due(now),
            generation: self.generation(),
            waits_in_vain: in_vain,
            missed_event: false,
        };
        state.asked.push_back(Job::LookUp(job));
        self.stir();
        Ok(())
    }

    fn ask_for_all(&self, keys: Vec<Key>, _: &Namespace, waiter: Waiter, now: u64) -> bool {
        let mut state = locked(&self.state);
        if !state.up || state.asked.try_reserve(1).is_err() {
            return false;
        }
        state.asked.push_back(Job::LookUps {
            keys,
            waiter,
            due: self.due(now),
            generation: self.generation(),
        });
        self.stir();
        true
    }

    fn claim_all(&self, waiter: Waiter) -> Vec<(Key, Arc<Entry>)> {
        let mut state = locked(&self.state);
        let found = state.claims.claim_found(waiter, self.generation());
        found.unwrap_or_else(|| {
            state.forget(waiter);
            Vec::new()
        })
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

    fn shows(&self, namespace: &Namespace, sighting: Sighting) {
        let mut state = locked(&self.state);
        if state.up && state.asked.try_reserve(1).is_ok() {
            // before look-ups: none is to find what is over
            state.asked.push_front(Job::Shows(*namespace, sighting));
            self.stir();
        }
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
    ) -> Option<Said> {
        purge::ask(query, own, |body| self.purge(body, waiter, now))
    }

    fn ask_for_status(&self, waiter: Waiter, now: u64) -> bool {
        self.status(waiter, now)
    }

    fn claim_said(&self, waiter: Waiter) -> Option<Said> {
        let said = self.claim(waiter);
        if said.is_none() {
            self.forget(waiter);
        }
        said
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
            job.forget(gone);
        }
        asked.retain(|job| !matches!(job, Job::Late(_)));
    }
}
