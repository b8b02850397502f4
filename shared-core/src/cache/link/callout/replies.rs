//! Handling of the owner's replies.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::{
    CalloutState, InFlightCallout, LookupJob, OwnerCalloutClient, OwnerCalloutQuery,
    QueuedOwnerRequest, AGAIN,
};
use crate::cache::chain::ChainDependency;
use crate::cache::entry::CacheEntry;
use crate::cache::link::callout::decode_response::{
    decode_entries, decode_entry, release_late_lease, resolve_lookup_as_miss,
};
use crate::cache::link::callout::message::{ChainStateNumber, OwnerReply};
use crate::cache::process::flights::FlightLeadership;
use crate::cache::process::owner_client::{OwnerClient, PendingFlightResponse};
use crate::cache::process::ProcessCacheState;
use crate::cache::{CacheKey, CacheNamespace};

/// A look-up's question, for those who came too late for its answer.
#[derive(Clone, Copy)]
struct LateFollowerQuery {
    key: CacheKey,
    namespace: Option<CacheNamespace>,
    leases: bool,
    waits_in_vain: bool,
    again: u8,
}

impl OwnerCalloutClient {
    /// The answer to a call has come.
    pub(super) fn handle_reply(
        &self,
        state: &mut CalloutState,
        shared: &ProcessCacheState,
        under_way: InFlightCallout,
        mut answer: OwnerReply,
        now: u64,
    ) {
        let status = answer.status;
        let Some(reply_generation) = self.apply_reply_state(state, &under_way, &mut answer, now)
        else {
            // what a proxy says itself if it can't reach it
            state.pulse.is_another = !matches!(status, 502..=504);
            state.fail_query(shared, under_way.work);
            return;
        };
        state.pulse.record_success();
        let InFlightCallout {
            work, joined, sent, ..
        } = under_way;
        if let Some(landing) = work.landing {
            let is_stored =
                matches!(work.job, QueuedOwnerRequest::Store { .. }) && answer.status == 201;
            let may_hold =
                is_stored || answer.status != 409 && reply_generation == landing.generation;
            let may_hold = may_hold && self.purge_generation() == landing.generation;
            self.finish_flight_publish(
                state,
                shared,
                landing,
                (may_hold, joined),
                work.namespace,
                now,
            );
            return;
        }
        match work.job {
            QueuedOwnerRequest::LookUp(look_up) => {
                let question = LateFollowerQuery {
                    key: look_up.key,
                    namespace: work.namespace,
                    leases: look_up.leases,
                    waits_in_vain: look_up.waits_in_vain,
                    again: work.again,
                };
                if reply_generation != self.purge_generation() && work.again < AGAIN {
                    // it may be what was purged meanwhile
                    let again = work.again + 1;
                    let question = LateFollowerQuery { again, ..question };
                    self.retry_lookup(state, shared, look_up.token, question, now);
                    return;
                }
                let is_current = reply_generation == self.purge_generation();
                match (answer.status, answer.granted) {
                    (200, _) if is_current => {
                        match decode_entry(shared, &self.chains, &look_up.key, answer, now) {
                            Some(entry) => {
                                let token = look_up.token;
                                self.deliver_entry(
                                    state,
                                    shared,
                                    (token, joined),
                                    &entry,
                                    question,
                                    now,
                                );
                            }
                            None => resolve_lookup_as_miss(&mut state.favours, shared, look_up),
                        }
                    }
                    (404, Some(true)) => {
                        shared.flights.record_flight_lease(&look_up.key);
                        resolve_lookup_as_miss(&mut state.favours, shared, look_up);
                    }
                    (404, Some(false)) => {
                        // if nothing came of waiting, that is not done again
                        let in_vain = work.waits && now < sent + self.bounds.slice;
                        self.requeue_waiting_lookup(state, shared, look_up, question, in_vain);
                    }
                    _ => resolve_lookup_as_miss(&mut state.favours, shared, look_up),
                }
            }
            QueuedOwnerRequest::LookUps { waiter, .. } => {
                if answer.status == 200 && reply_generation == self.purge_generation() {
                    let entries = decode_entries(shared, &self.chains, &answer, now);
                    state
                        .claims
                        .insert_found_entries(waiter, entries, reply_generation);
                }
                shared.wake_waiters([waiter]);
            }
            QueuedOwnerRequest::Purge {
                waiter: Some(waiter),
                ..
            } => {
                state
                    .claims
                    .insert_admin_reply(waiter, (answer.status, answer.body));
                shared.wake_waiters([waiter]);
            }
            QueuedOwnerRequest::Expired(Some(key)) if answer.granted == Some(true) => {
                release_late_lease(&mut state.favours, shared, key);
            }
            QueuedOwnerRequest::Purge { .. }
            | QueuedOwnerRequest::Expired(_)
            | QueuedOwnerRequest::Store { .. }
            | QueuedOwnerRequest::ReleaseLease(_)
            | QueuedOwnerRequest::ShowBlock(..) => {}
        }
    }

    /// What an answer says beside what was asked. The last purge that was known
    /// when it was made; `None`: it is none of an owner's.
    fn apply_reply_state(
        &self,
        state: &mut CalloutState,
        under_way: &InFlightCallout,
        answer: &mut OwnerReply,
        now: u64,
    ) -> Option<u64> {
        let reply_generation = answer.generation?;
        if let Some(namespace) = under_way.work.namespace {
            let announcement = answer.chain?;
            let state_of = match answer.state.take() {
                Some((of, _)) if of != namespace => return None,
                of => of.map(|(_, state)| state),
            };
            let heard = &under_way.heard;
            let is_known = matches!(announcement, ChainStateNumber::NotFollowed)
                || heard.chain == Some(announcement);
            if state_of.is_none() && !is_known {
                return None;
            }
            // where the owner has waited that is about the time of its answer
            let at = match under_way.work.waits {
                true => now.min(under_way.sent + self.bounds.slice),
                false => under_way.sent,
            };
            let known = &mut state.known;
            known.merge_chain_announcement(
                &self.chains,
                namespace,
                (heard, at),
                announcement,
                state_of,
            );
        }
        let newest = under_way
            .heard
            .purge_generation_after_reply(self.purge_generation(), reply_generation);
        self.generation.store(newest, Ordering::Release);
        Some(reply_generation)
    }

    /// Another process fetches it.
    fn requeue_waiting_lookup(
        &self,
        state: &mut CalloutState,
        shared: &ProcessCacheState,
        look_up: LookupJob,
        question: LateFollowerQuery,
        in_vain: bool,
    ) {
        let waits = !in_vain
            && shared.flights.has_followers(&look_up.token)
            && state.waiting_lookup_count() < self.bounds.most_waits
            && state.has_query_room(&self.bounds);
        if !waits {
            resolve_lookup_as_miss(&mut state.favours, shared, look_up);
            return;
        }
        let mut work =
            OwnerCalloutQuery::new(QueuedOwnerRequest::LookUp(look_up), question.namespace);
        work.waits = true;
        state.queries.push_back(work);
    }

    /// An entry is theirs who joined before it was asked for.
    fn deliver_entry(
        &self,
        state: &mut CalloutState,
        shared: &ProcessCacheState,
        (token, joined): (FlightLeadership, u64),
        entry: &Arc<CacheEntry>,
        question: LateFollowerQuery,
        now: u64,
    ) {
        let (woken, later) = shared
            .flights
            .share_with_earlier_followers(token, entry, joined);
        shared.wake_waiters(woken);
        if let Some(token) = later {
            let question = LateFollowerQuery {
                again: 0,
                ..question
            };
            self.retry_lookup(state, shared, token, question, now);
        }
    }

    /// The owner knows of what was fetched for others.
    fn finish_flight_publish(
        &self,
        state: &mut CalloutState,
        shared: &ProcessCacheState,
        landing: PendingFlightResponse,
        (may_hold, joined): (bool, u64),
        namespace: Option<CacheNamespace>,
        now: u64,
    ) {
        let PendingFlightResponse { token, entry, .. } = landing;
        let question = LateFollowerQuery {
            key: *token.flight_key(),
            namespace,
            leases: true,
            waits_in_vain: false,
            again: 0,
        };
        if may_hold && self.is_still_valid(&entry, namespace) {
            self.deliver_entry(state, shared, (token, joined), &entry, question, now);
        } else {
            self.retry_lookup(state, shared, token, question, now);
        }
    }

    /// Whether that is as true as when it was asked for, by all that is known now.
    fn is_still_valid(&self, entry: &CacheEntry, namespace: Option<CacheNamespace>) -> bool {
        let chain = namespace.and_then(|namespace| self.chains.get(&namespace));
        chain.is_none_or(|chain| {
            let meta = entry.response_metadata();
            let epoch = meta.follows.map_or(0, |(_, epoch)| epoch);
            let stamp = ChainDependency::new(&chain, meta.class, epoch, meta.height);
            // whether it is of before what was shown here, its own stamp knows
            stamp.is_entry_valid() && entry.is_valid_on_chain()
        })
    }

    fn retry_lookup(
        &self,
        state: &mut CalloutState,
        shared: &ProcessCacheState,
        token: FlightLeadership,
        question: LateFollowerQuery,
        now: u64,
    ) {
        let due = now.saturating_add(self.bounds.deadline);
        let look_up = LookupJob {
            key: question.key,
            token,
            leases: question.leases,
            due,
            waits_in_vain: question.waits_in_vain,
        };
        let mut work =
            OwnerCalloutQuery::new(QueuedOwnerRequest::LookUp(look_up), question.namespace);
        work.again = question.again;
        match state.has_query_room(&self.bounds) {
            true => state.enqueue_query(work, due),
            false => state.release_query_waiters(shared, work),
        }
    }
}
