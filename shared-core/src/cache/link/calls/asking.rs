//! Requests of exchanges until the host takes them.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::{Calls, Job, LookUp, Work};
use crate::cache::chain::{Chains, Mark, Sighting};
use crate::cache::entry::about::About;
use crate::cache::entry::Entry;
use crate::cache::freshness::IfFinal;
use crate::cache::link::purge::{self, Said};
use crate::cache::process::flights::{Outcome, Token};
use crate::cache::process::ownership::{Landing, Owner};
use crate::cache::process::wake::Waiter;
use crate::cache::{Key, Namespace};
use crate::lock::locked;

impl Owner for Calls {
    fn is_up(&self) -> bool {
        locked(&self.state).pulse.may_ask()
    }

    /// What one fetches is for others when the owner has taken it.
    fn may_wait(&self) -> bool {
        self.is_up()
    }

    fn ask(
        &self,
        key: Key,
        token: Token,
        namespace: &Namespace,
        leases: bool,
        in_vain: bool,
        now: u64,
    ) -> Result<(), Token> {
        let mut state = locked(&self.state);
        state.pulse.at(now);
        if !state.pulse.may_ask() || !state.has_room(&self.bounds) {
            return Err(token);
        }
        state.pulse.asks();
        let due = now.saturating_add(self.bounds.deadline);
        let look_up = LookUp {
            key,
            token,
            leases,
            due,
            generation: self.generation(),
            waits_in_vain: in_vain,
            missed_event: false,
        };
        state.ask(Work::own(Job::LookUp(look_up), Some(*namespace)), due);
        Ok(())
    }

    fn ask_for_all(&self, keys: Vec<Key>, namespace: &Namespace, waiter: Waiter, now: u64) -> bool {
        let mut state = locked(&self.state);
        state.pulse.at(now);
        if !state.pulse.may_ask() || !state.has_room(&self.bounds) {
            return false;
        }
        state.pulse.asks();
        let due = now.saturating_add(self.bounds.deadline);
        let job = Job::LookUps {
            keys,
            waiter,
            due,
            generation: self.generation(),
        };
        state.ask(Work::own(job, Some(*namespace)), due);
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
        let mut state = locked(&self.state);
        if !state.pulse.is_down() {
            state.favours.push(Job::Store {
                key,
                entry,
                about,
                if_final,
            });
        }
    }

    fn lands(&self, landing: Landing) -> Result<(), (Token, Outcome)> {
        let key = *landing.token.key();
        let mut state = locked(&self.state);
        if state.pulse.is_down() || !state.has_room(&self.bounds) {
            return Err((landing.token, Outcome::Alone));
        }
        // that it is not stored is something to ask, too
        let job = state.favours.take(&key).unwrap_or(Job::GiveBack(key));
        let follows = landing.entry.meta().follows;
        let mut work = Work::favour(job);
        work.namespace = work.namespace.or(follows.map(|(namespace, _)| namespace));
        work.landing = Some(landing);
        state.asked.push_back(work);
        Ok(())
    }

    fn give_back(&self, key: Key) {
        let mut state = locked(&self.state);
        if !state.pulse.is_down() {
            state.favours.push(Job::GiveBack(key));
        }
    }

    fn shows(&self, namespace: &Namespace, sighting: Sighting) {
        let mut state = locked(&self.state);
        if !state.pulse.is_down() && state.asked.try_reserve(1).is_ok() {
            let work = Work::favour(Job::Shows(*namespace, sighting));
            // before look-ups: none is to find what is over
            state.asked.push_front(work);
        }
    }

    fn may_send(&self, _monotonic: u64) -> bool {
        false
    }

    /// What comes was asked for by then.
    fn may_share(&self, _monotonic: u64) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What lands was asked for after who waits for it had begun to. So who did when no
    /// purge was known, as a process that has just begun knows none, can have it.
    fn holds_since(&self, generation: u64) -> bool {
        generation == 0 || self.generation() == generation
    }

    fn chains(&self) -> &Chains {
        &self.chains
    }

    fn mark(&self, namespace: &Namespace, now: u64) -> Option<Mark> {
        locked(&self.state).known.mark(&self.chains, namespace, now)
    }

    fn ask_to_purge(
        &self,
        query: &[u8],
        own: Option<&[u8]>,
        waiter: Waiter,
        now: u64,
    ) -> Option<Said> {
        purge::ask(query, own, |body| {
            let mut state = locked(&self.state);
            let job = Job::Purge {
                body,
                waiter: Some(waiter),
                due: now.saturating_add(super::PURGE),
                sent: 0,
            };
            let has_memory = state.asked.try_reserve(1).is_ok();
            if has_memory {
                state.asked.push_back(Work::own(job, None));
            }
            has_memory
        })
    }

    fn claim_said(&self, waiter: Waiter) -> Option<Said> {
        let mut state = locked(&self.state);
        let purged = state.claims.claim_said(waiter);
        if purged.is_none() {
            state.forget(waiter);
        }
        purged
    }
}

impl super::State {
    /// Nobody waits under that name any more.
    fn forget(&mut self, gone: Waiter) {
        let under_way = self.under_way.values_mut().map(|it| &mut it.work);
        for work in under_way.chain(&mut self.asked) {
            work.job.forget(gone);
        }
        self.asked.retain(|work| !matches!(work.job, Job::Late(_)));
    }
}
