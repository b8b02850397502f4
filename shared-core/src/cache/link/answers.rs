//! Handling of the owner's replies and events.

use std::sync::atomic::Ordering;

use super::job::{Job, LookUp};
use super::message::Answer;
use super::taking::{fail_open, granted_late, take, take_all};
use super::{Link, State, EVENTS};
use crate::cache::chain::State as ChainState;
use crate::cache::process::flights::Outcome;
use crate::cache::process::ownership::Owner;
use crate::cache::process::Shared;
use crate::cache::told::Event;

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
                    let entries = take_all(shared, &self.chains, &response, now);
                    state.claims.found(waiter, entries, generation);
                }
                shared.wake([waiter]);
            }
            Job::Purge {
                waiter: Some(waiter),
                ..
            }
            | Job::Status { waiter, .. } => {
                let said = (response.status, response.body);
                state.claims.said(waiter, said);
                shared.wake([waiter]);
            }
            Job::Late(Some(key)) if response.granted == Some(true) => {
                granted_late(&mut state.favours, shared, key);
            }
            Job::Purge { .. }
            | Job::Late(_)
            | Job::Store { .. }
            | Job::GiveBack(_)
            | Job::Acknowledge(_)
            | Job::Shows(..)
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
            (200, _) => match take(shared, &self.chains, &look_up.key, response, now) {
                Some(entry) => {
                    let answer = Outcome::Answer(entry);
                    shared.wake(shared.flights.finish(look_up.token, answer));
                }
                None => fail_open(&mut state.favours, shared, look_up),
            },
            (404, Some(true)) => {
                shared.flights.lease(&look_up.key);
                fail_open(&mut state.favours, shared, look_up);
            }
            (404, Some(false)) if look_up.missed_event => {
                look_up.missed_event = false;
                self.ask_again(state, shared, look_up);
            }
            (404, Some(false)) if state.pending.try_reserve(1).is_ok() => {
                state.pending.insert(look_up.key, look_up);
            }
            _ => fail_open(&mut state.favours, shared, look_up),
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
                    look_up.due = self.due(now);
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
}
