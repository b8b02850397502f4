//! What the owner says, and what comes of it.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::job::{Job, LookUp};
use super::message::Answer;
use super::{Found, Link, State, EVENTS};
use crate::bytes::push;
use crate::cache::chain::State as ChainState;
use crate::cache::entry::Entry;
use crate::cache::process::flights::Outcome;
use crate::cache::process::ownership::Owner;
use crate::cache::process::Shared;
use crate::cache::resource::other_form;
use crate::cache::told::Event;
use crate::cache::Key;
use crate::memory;

impl Link {
    /// The answer to a request.
    pub(super) fn answered(
        &self,
        state: &mut State,
        shared: &Shared,
        job: Job,
        response: Answer,
        now: u64,
    ) {
        match job {
            Job::LookUp(look_up) => self.looked_up(state, shared, look_up, response, now),
            Job::LookUps {
                waiter, generation, ..
            } => {
                if response.status == 200 && generation == self.generation() {
                    let entries = self.take_all(shared, &response, now);
                    if state.looked_up.try_reserve(1).is_ok() {
                        let found = Found {
                            entries,
                            generation,
                        };
                        state.looked_up.insert(waiter, found);
                    }
                }
                shared.wake([waiter]);
            }
            Job::Purge {
                waiter: Some(waiter),
                ..
            } => {
                state
                    .purged
                    .insert(waiter, (response.status, response.body));
                shared.wake([waiter]);
            }
            Job::Late(Some(key)) if response.granted == Some(true) => {
                // whoever asked may be fetching it
                if !shared.flights.lease(&key) {
                    state.favours.push(Job::GiveBack(key));
                }
            }
            Job::Purge { .. }
            | Job::Late(_)
            | Job::Store { .. }
            | Job::GiveBack(_)
            | Job::Acknowledge(_)
            | Job::Listen => {}
        }
    }

    fn looked_up(
        &self,
        state: &mut State,
        shared: &Shared,
        mut look_up: LookUp,
        response: Answer,
        now: u64,
    ) {
        if look_up.generation != self.generation() {
            // it may be what was purged meanwhile
            if response.granted == Some(true) {
                state.favours.push(Job::GiveBack(look_up.key));
            }
            look_up.generation = self.generation();
            self.ask_again(state, shared, look_up);
            return;
        }
        match (response.status, response.granted) {
            // while memory is short nothing is stored
            (200, _) if !memory::is_short() => {
                let entry = response.entry(now).map(|entry| self.tells(entry));
                // what was seen here may be on its way to the owner
                match entry.filter(Entry::holds) {
                    Some(entry) => {
                        let other = other_form(&look_up.key);
                        let hot = shared.hot();
                        let entry = match hot.and_then(|hot| hot.stale(&other)) {
                            Some(_) => entry.uncompared(),
                            None => entry,
                        };
                        let entry = Arc::new(entry);
                        if let Some(hot) = hot {
                            hot.insert(look_up.key, Arc::clone(&entry));
                        }
                        let answer = Outcome::Answer(entry);
                        shared.wake(shared.flights.finish(look_up.token, answer));
                    }
                    None => self.fail_open(state, shared, look_up),
                }
            }
            (404, Some(true)) => {
                shared.flights.lease(&look_up.key);
                self.fail_open(state, shared, look_up);
            }
            (404, Some(false)) if look_up.missed_event => {
                look_up.missed_event = false;
                self.ask_again(state, shared, look_up);
            }
            (404, Some(false)) if state.pending.try_reserve(1).is_ok() => {
                state.pending.insert(look_up.key, look_up);
            }
            _ => self.fail_open(state, shared, look_up),
        }
    }

    /// More of the event stream.
    pub(super) fn hear(&self, state: &mut State, shared: &Shared, data: &[u8], now: u64) {
        let mut heard = Vec::new();
        let mut events = std::mem::take(&mut state.events);
        let read = events.push(data, |event| heard.push(event));
        state.events = events;
        for event in heard {
            self.heed(state, shared, event, now);
            if state.open(EVENTS).is_none() {
                return;
            }
        }
        if read.is_err() {
            self.close(state, shared, EVENTS, now);
        }
    }

    fn heed(&self, state: &mut State, shared: &Shared, event: Event, now: u64) {
        match event {
            Event::Hello { generation, until } => {
                if !state.was_up || generation != self.generation() {
                    shared.drop_from_memory(None);
                }
                for (_, chain) in self.chains.all() {
                    chain.outdate();
                }
                state.was_up = true;
                state.is_alone = false;
                state.told = Some(Vec::new());
                state.up = true;
                state.failures = 0;
                self.generation.store(generation, Ordering::Release);
                self.until.store(until, Ordering::Release);
            }
            Event::Lease { until, .. } => {
                self.until.store(until, Ordering::Release);
                // all chains that it follows came before
                if let Some(told) = state.told.take() {
                    self.chains.retain(&told);
                }
            }
            Event::Purge { generation, key } => {
                // what is on its way is of before, from here on
                self.generation.store(generation, Ordering::Release);
                shared.drop_from_memory(key);
                if state.asked.try_reserve(1).is_ok() {
                    state.asked.push_front(Job::Acknowledge(generation));
                } else {
                    // the owner can tell that nobody is there, too
                    self.close(state, shared, EVENTS, now);
                }
            }
            Event::Filled(key) | Event::GivenUp(key) => {
                if let Some(mut look_up) = state.pending.remove(&key) {
                    // if nothing came of waiting, that is not done again: the
                    // next would be no better than all at once
                    look_up.waits_in_vain |= matches!(event, Event::GivenUp(_));
                    look_up.due = now.saturating_add(self.bounds.deadline);
                    look_up.generation = self.generation();
                    self.ask_again(state, shared, look_up);
                }
                let jobs = state.slots.iter_mut().flat_map(|slot| &mut slot.jobs);
                for job in jobs.chain(&mut state.asked) {
                    if let Job::LookUp(look_up) = job {
                        look_up.missed_event |= look_up.key == key;
                    }
                }
            }
            Event::Chain {
                namespace,
                state: news,
            } => {
                let unknown = || ChainState::unknown(news.heights, 0);
                self.chains.get_or_add(namespace, unknown).told(*news);
                if let Some(told) = &mut state.told {
                    told.push(namespace);
                }
            }
        }
    }

    /// An entry of the owner's may tell of a head that is news here.
    fn tells(&self, entry: Entry) -> Entry {
        let entry = entry.among(&self.chains);
        if let Some(stamp) = entry.stamp() {
            stamp.tell_of_owner();
        }
        entry
    }

    /// The entries of an answer to several look-ups.
    fn take_all(&self, shared: &Shared, response: &Answer, now: u64) -> Vec<(Key, Arc<Entry>)> {
        let mut entries = Vec::new();
        for (key, entry) in response.entries(now) {
            let entry = self.tells(entry);
            if entry.holds() && !memory::is_short() {
                let entry = Arc::new(entry);
                if let Some(hot) = shared.hot() {
                    hot.insert(key, Arc::clone(&entry));
                }
                // refused: it is not in hand then
                let _ = push(&mut entries, (key, entry));
            }
        }
        entries
    }
}
