//! Handling of the owner's replies and events.

use std::sync::atomic::Ordering;

use super::decode_response::{
    decode_entries, decode_entry, release_late_lease, resolve_lookup_as_miss,
};
use super::message::OwnerReply;
use super::owner_job::{LookupJob, QueuedOwnerRequest};
use super::{LinkState, OwnerLink, EVENTS};
use crate::cache::chain::ChainState;
use crate::cache::owner_event::OwnerEvent;
use crate::cache::process::flights::FlightOutcome;
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::ProcessCacheState;

impl OwnerLink {
    /// The answer to a request.
    pub(super) fn handle_reply(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        job: QueuedOwnerRequest,
        response: OwnerReply,
        now: u64,
    ) {
        match job {
            QueuedOwnerRequest::LookUp(look_up) => {
                self.looked_up(state, shared, look_up, response, now);
            }
            QueuedOwnerRequest::LookUps {
                waiter, generation, ..
            } => {
                if response.status == 200 && generation == self.purge_generation() {
                    let entries = decode_entries(shared, &self.chains, &response, now);
                    state
                        .claims
                        .insert_found_entries(waiter, entries, generation);
                }
                shared.wake_waiters([waiter]);
            }
            QueuedOwnerRequest::Purge {
                waiter: Some(waiter),
                ..
            }
            | QueuedOwnerRequest::Status { waiter, .. } => {
                let reply = (response.status, response.body);
                state.claims.insert_admin_reply(waiter, reply);
                shared.wake_waiters([waiter]);
            }
            QueuedOwnerRequest::Expired(Some(key)) if response.granted == Some(true) => {
                release_late_lease(&mut state.favours, shared, key);
            }
            QueuedOwnerRequest::Purge { .. }
            | QueuedOwnerRequest::Expired(_)
            | QueuedOwnerRequest::Store { .. }
            | QueuedOwnerRequest::ReleaseLease(_)
            | QueuedOwnerRequest::Acknowledge(_)
            | QueuedOwnerRequest::ShowBlock(..)
            | QueuedOwnerRequest::Listen => {}
        }
    }

    fn looked_up(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        mut look_up: LookupJob,
        response: OwnerReply,
        now: u64,
    ) {
        if look_up.generation != self.purge_generation() {
            // it may be what was purged meanwhile
            if response.granted == Some(true) {
                state
                    .favours
                    .push_owner_job(QueuedOwnerRequest::ReleaseLease(look_up.key));
            }
            look_up.generation = self.purge_generation();
            self.retry_lookup(state, shared, look_up);
            return;
        }
        match (response.status, response.granted) {
            (200, _) => match decode_entry(shared, &self.chains, &look_up.key, response, now) {
                Some(entry) => {
                    let answer = FlightOutcome::Answer(entry);
                    shared.wake_waiters(shared.flights.finish_flight(look_up.token, answer));
                }
                None => resolve_lookup_as_miss(&mut state.favours, shared, look_up),
            },
            (404, Some(true)) => {
                shared.flights.record_flight_lease(&look_up.key);
                resolve_lookup_as_miss(&mut state.favours, shared, look_up);
            }
            (404, Some(false)) if look_up.missed_event => {
                look_up.missed_event = false;
                self.retry_lookup(state, shared, look_up);
            }
            (404, Some(false)) if state.pending.try_reserve(1).is_ok() => {
                state.pending.insert(look_up.key, look_up);
            }
            _ => resolve_lookup_as_miss(&mut state.favours, shared, look_up),
        }
    }

    /// More of the event stream.
    pub(super) fn receive_owner_events(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        data: &[u8],
        now: u64,
    ) {
        let mut heard = Vec::new();
        let mut events = std::mem::take(&mut state.events);
        let read = events.parse_event_bytes(data, |event| heard.push(event));
        state.events = events;
        for event in heard {
            self.apply_event(state, shared, event, now);
            if state.find_open_connection(EVENTS).is_none() {
                return;
            }
        }
        if read.is_err() {
            self.close_connection(state, shared, EVENTS, now);
        }
    }

    fn apply_event(
        &self,
        state: &mut LinkState,
        shared: &ProcessCacheState,
        event: OwnerEvent,
        now: u64,
    ) {
        match event {
            OwnerEvent::Hello { generation, until } => {
                if !state.was_up || generation != self.purge_generation() {
                    shared.purge_hot_tier(None);
                }
                for (_, chain) in self.chains.snapshot_chains() {
                    chain.discard_owner_state();
                }
                state.was_up = true;
                state.is_alone = false;
                state.reported_chains = Some(Vec::new());
                state.up = true;
                state.failures = 0;
                self.generation.store(generation, Ordering::Release);
                self.until.store(until, Ordering::Release);
            }
            OwnerEvent::Lease { until, .. } => {
                self.until.store(until, Ordering::Release);
                // all chains that it follows came before
                if let Some(reported) = state.reported_chains.take() {
                    self.chains.retain_chains_of_namespaces(&reported);
                }
            }
            OwnerEvent::Purge { generation, key } => {
                // what is on its way is of before, from here on
                self.generation.store(generation, Ordering::Release);
                shared.purge_hot_tier(key);
                if state.requests.try_reserve(1).is_ok() {
                    state
                        .requests
                        .push_front(QueuedOwnerRequest::Acknowledge(generation));
                } else {
                    // the owner can tell that nobody is there, too
                    self.close_connection(state, shared, EVENTS, now);
                }
            }
            OwnerEvent::Filled(key) | OwnerEvent::LeaseReleased(key) => {
                if let Some(mut look_up) = state.pending.remove(&key) {
                    // if nothing came of waiting, that is not done again: the
                    // next would be no better than all at once
                    look_up.waits_in_vain |= matches!(event, OwnerEvent::LeaseReleased(_));
                    look_up.due = self.lookup_deadline(now);
                    look_up.generation = self.purge_generation();
                    self.retry_lookup(state, shared, look_up);
                }
                let jobs = state.slots.iter_mut().flat_map(|slot| &mut slot.jobs);
                for job in jobs.chain(&mut state.requests) {
                    if let QueuedOwnerRequest::LookUp(look_up) = job {
                        look_up.missed_event |= look_up.key == key;
                    }
                }
            }
            OwnerEvent::Chain {
                namespace,
                state: news,
            } => {
                let unknown = || ChainState::new_without_blocks(news.heights, 0);
                self.chains
                    .get_or_add_chain(namespace, unknown)
                    .apply_owner_state(*news);
                if let Some(reported) = &mut state.reported_chains {
                    reported.push(namespace);
                }
            }
        }
    }
}
