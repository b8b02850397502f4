//! Coalesced requests: of the requests for one key one leads and fetches, the others follow.
//!
//! ```text
//!            join                    finish
//!  (none) ──────────▶ in flight ───────────────────▶ (none); followers claim
//!                      │      ▲                       the outcome
//!            hand over │      │ the next follower claims
//!                      ▼      │ the leadership
//!                   handed over ──── leave: to the next ──▶ … ──▶ (none)
//! ```
//!
//! A leader that fails, or whose client disconnects, fails no follower: it hands the leadership
//! over. No call blocks. The caller wakes the waiters that a call returns, and each of them
//! [claims](CoalescedFlights::claim_wakeup) its wakeup. The response is kept for the follower until then,
//! even if no tier had room for it. Each follower sends it under the id of its own call, as a
//! [`CacheEntry`] has no id.
//!
//! A batch may follow several flights at a time, but only if it has no other call to fetch, so that
//! it delays none. It is woken when the last of these flights has ended, and fetches the calls for
//! which no response arrived. A waiting request never leads and a leader never waits, so that no
//! two requests wait for each other. The one exception is a call for logs that is split, alone or in
//! a batch: it leads the flight of its range and no other, and waits for flights of shorter parts of
//! this range only.

use crate::hash_keys::HashMap;
use std::collections::hash_map;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::wake::WaitingRequestId;
use crate::cache::entry::CacheEntry;
use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;

/// The task of a request for a key that is not cached: it fetches the key, or waits for the request
/// that does.
#[derive(Debug)]
pub enum CoalescingRole {
    /// Fetch the key, then [finish](CoalescedFlights::finish_flight) or [hand over](CoalescedFlights::hand_over_leadership) the
    /// flight.
    Leader(FlightLeadership),
    /// Wait for a wakeup, then [claim](CoalescedFlights::claim_wakeup) it.
    Follower,
}

/// The right of one request to fetch the key of a flight while its followers wait. Each flight has
/// exactly one, and its holder must return it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "followers wait until it is finished or handed over"]
pub struct FlightLeadership(CacheKey);

impl FlightLeadership {
    /// Whether this is the leadership of the flight that fetches `key`.
    pub fn leads_flight_of(&self, key: &CacheKey) -> bool {
        self.0 == *key
    }

    /// Returns the key of the flight.
    pub fn flight_key(&self) -> &CacheKey {
        &self.0
    }
}

/// The result of a leader's fetch for the requests that have waited for it: a response that they
/// may send, or none.
#[derive(Clone, Debug)]
pub enum FlightOutcome {
    /// Followers may send this entry.
    Answer(Arc<CacheEntry>),
    /// The response must not be shared: each follower sends its own request to the node.
    NotShareable,
}

/// The action that a woken follower must take.
#[derive(Debug)]
pub enum FlightFollowerWakeup {
    /// Use the outcome of the flight, which has ended.
    Response(FlightOutcome),
    /// Lead: the leader has handed the flight over.
    Lead(FlightLeadership),
}

/// The effects of a flight that has ended or has a new leader, which the caller carries out.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "requests wait for it, perhaps in other processes, too"]
pub struct FlightChange {
    /// The follower that leads from now on, to be woken.
    pub next_leader: Option<WaitingRequestId>,
    /// Requests and batches that waited for the end of the flight, to be woken in this order.
    pub released: Vec<WaitingRequestId>,
    /// Key of the owner's lease, to be returned because the flight has ended without a response.
    pub ended_lease: Option<CacheKey>,
}

/// The table of all fetches that requests of this process have in flight, with their leaders and
/// followers.
#[derive(Debug, Default)]
pub struct CoalescedFlights(Mutex<FlightTable>);

/// The flights and the waiting requests of a process, behind one lock.
#[derive(Debug, Default)]
struct FlightTable {
    flights: HashMap<CacheKey, Flight>,
    /// Wakeups that were not claimed yet.
    turns: HashMap<WaitingRequestId, FlightFollowerWakeup>,
    /// Number of followers of all flights, without batches.
    following: usize,
    /// Batches that wait for several flights.
    batches: HashMap<WaitingRequestId, BatchFlightProgress>,
}

/// The fetch of one key, with the requests of this process that wait for it.
#[derive(Debug, Default)]
struct Flight {
    followers: VecDeque<WaitingRequestId>,
    /// Batches that follow this and other flights, and lead none.
    batches: Vec<WaitingRequestId>,
    /// Whether this process has the owner's lease, so that no other process fetches the key.
    leased: bool,
}

/// The wait of one batch for several flights, and the responses that have arrived for it.
#[derive(Debug, Default)]
struct BatchFlightProgress {
    /// Number of flights that have not ended.
    left: usize,
    keys: Vec<CacheKey>,
    answers: Vec<(CacheKey, Arc<CacheEntry>)>,
}

impl CoalescedFlights {
    /// Makes a request the leader of a new flight of `key`, or `waiter` a follower of the present
    /// one. Returns `None` if memory is refused: the request is sent to the node without a flight.
    pub fn join_flight(&self, key: CacheKey, waiter: WaitingRequestId) -> Option<CoalescingRole> {
        let mut state = lock_ignoring_poison(&self.0);
        state.flights.try_reserve(1).ok()?;
        if let hash_map::Entry::Vacant(vacant) = state.flights.entry(key) {
            vacant.insert(Flight::default());
            return Some(CoalescingRole::Leader(FlightLeadership(key)));
        }
        state.add_follower(&key, waiter)?;
        Some(CoalescingRole::Follower)
    }

    /// Makes `waiter`, a request for the same key, a follower of the flight that the caller
    /// leads. Returns `None` if memory is refused, and
    /// `waiter` does not follow.
    pub fn follow_own_flight(
        &self,
        token: &FlightLeadership,
        waiter: WaitingRequestId,
    ) -> Option<()> {
        lock_ignoring_poison(&self.0).add_follower(&token.0, waiter)
    }

    /// Begins a flight of `key` without a waiter, with the caller as its leader. Returns `None` if
    /// the key is in flight already, or if memory is refused.
    pub fn begin_flight(&self, key: CacheKey) -> Option<FlightLeadership> {
        let mut state = lock_ignoring_poison(&self.0);
        state.flights.try_reserve(1).ok()?;
        match state.flights.entry(key) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Flight::default());
                Some(FlightLeadership(key))
            }
            hash_map::Entry::Occupied(_) => None,
        }
    }

    /// Makes `waiter` wait until the flights of all these keys have ended; it leads none of them.
    /// Returns `false` if one of the keys is not in flight or memory is refused; `waiter` then
    /// waits for none.
    pub fn follow_flights(&self, mut keys: Vec<CacheKey>, waiter: WaitingRequestId) -> bool {
        keys.sort_unstable();
        keys.dedup();
        lock_ignoring_poison(&self.0)
            .add_batch_follower(keys, waiter)
            .is_some()
    }

    /// Returns the shared responses of the flights that `waiter` waited for. It does not wait for
    /// the others any longer.
    pub fn claim_awaited_responses(
        &self,
        waiter: WaitingRequestId,
    ) -> Vec<(CacheKey, Arc<CacheEntry>)> {
        let mut state = lock_ignoring_poison(&self.0);
        let Some(batch) = state.batches.remove(&waiter) else {
            return Vec::new();
        };
        if batch.left > 0 {
            for key in &batch.keys {
                if let Some(flight) = state.flights.get_mut(key) {
                    flight.batches.retain(|other| *other != waiter);
                }
            }
        }
        batch.answers
    }

    /// Records that the owner has granted the lease of `key`, to be returned if the flight ends
    /// without a response. Returns `false` if the key is not in flight.
    pub fn record_flight_lease(&self, key: &CacheKey) -> bool {
        let mut state = lock_ignoring_poison(&self.0);
        let flight = state.flights.get_mut(key);
        flight.map(|flight| flight.leased = true).is_some()
    }

    /// Takes the owner's lease from the flight of this leadership, to be returned by the caller.
    /// Returns whether the flight had it.
    pub fn take_flight_lease(&self, token: &FlightLeadership) -> bool {
        let mut state = lock_ignoring_poison(&self.0);
        let flight = state.flights.get_mut(&token.0);
        flight.is_some_and(|flight| std::mem::take(&mut flight.leased))
    }

    /// Whether any request or batch of this process waits for the flight of this leadership.
    pub fn has_followers(&self, token: &FlightLeadership) -> bool {
        let state = lock_ignoring_poison(&self.0);
        let flight = state.flights.get(&token.0);
        flight.is_some_and(|it| !(it.followers.is_empty() && it.batches.is_empty()))
    }

    /// Ends a flight because its leader has a response or none can be shared, and assigns the
    /// outcome to the followers.
    pub fn finish_flight(&self, token: FlightLeadership, outcome: FlightOutcome) -> FlightChange {
        self.finish_flight_with(token, || outcome)
    }

    /// Ends a flight like [`finish_flight`](Self::finish_flight), with the outcome that `outcome`
    /// returns: it is called when no further request can join the flight. So a state that it reads
    /// is not older than the state that any follower has read before it joined.
    pub fn finish_flight_with(
        &self,
        token: FlightLeadership,
        outcome: impl FnOnce() -> FlightOutcome,
    ) -> FlightChange {
        let mut state = lock_ignoring_poison(&self.0);
        let Some(flight) = state.flights.remove(&token.0) else {
            return FlightChange::default();
        };
        let outcome = outcome();
        let is_without_response = matches!(outcome, FlightOutcome::NotShareable);
        let released =
            state.assign_flight_outcome(&token, &outcome, flight.followers, flight.batches);
        FlightChange {
            next_leader: None,
            released,
            ended_lease: (flight.leased && is_without_response).then_some(token.0),
        }
    }

    /// Hands the leadership over to the next follower because the leader's client has disconnected
    /// or the node has failed. Without followers the flight ends.
    pub fn hand_over_leadership(&self, token: FlightLeadership) -> FlightChange {
        lock_ignoring_poison(&self.0).transfer_leadership(token)
    }

    /// Takes the wakeup that was assigned to `waiter`, or returns `None` if it was not woken.
    pub fn claim_wakeup(&self, waiter: WaitingRequestId) -> Option<FlightFollowerWakeup> {
        lock_ignoring_poison(&self.0).turns.remove(&waiter)
    }

    /// Removes a follower whose client has disconnected or whose wait has timed out. If it had been
    /// handed the leadership and has not claimed it, the next follower leads instead.
    pub fn remove_follower(&self, key: &CacheKey, waiter: WaitingRequestId) -> FlightChange {
        let mut state = lock_ignoring_poison(&self.0);
        match state.turns.remove(&waiter) {
            Some(FlightFollowerWakeup::Lead(token)) => return state.transfer_leadership(token),
            Some(FlightFollowerWakeup::Response(_)) => {}
            None => {
                if let Some(flight) = state.flights.get_mut(key) {
                    let before = flight.followers.len();
                    flight.followers.retain(|other| *other != waiter);
                    let left = before - flight.followers.len();
                    state.following -= left;
                }
            }
        }
        FlightChange::default()
    }

    /// Whether a request of this process is fetching `key`.
    pub fn is_in_flight(&self, key: &CacheKey) -> bool {
        lock_ignoring_poison(&self.0).flights.contains_key(key)
    }

    /// Number of requests and batches of this process that wait for a flight to end.
    pub fn total_waiter_count(&self) -> usize {
        let state = lock_ignoring_poison(&self.0);
        state.following + state.batches.len()
    }

    /// Number of keys that requests of this process are fetching.
    pub fn flight_count(&self) -> usize {
        lock_ignoring_poison(&self.0).flights.len()
    }
}

impl FlightTable {
    /// Adds a follower to the flight of `key`. Returns `None` if there is no flight or memory is
    /// refused; nothing has changed then.
    fn add_follower(&mut self, key: &CacheKey, waiter: WaitingRequestId) -> Option<()> {
        let followers = &mut self.flights.get_mut(key)?.followers;
        followers.try_reserve(1).ok()?;
        // room for its wakeup is reserved now, so that none is lost later
        self.turns.try_reserve(self.following + 1).ok()?;
        followers.push_back(waiter);
        self.following += 1;
        Some(())
    }

    /// Adds a follower that waits for the flights of all `keys`. Returns `None` if a flight has
    /// ended or memory is refused; nothing has changed then.
    fn add_batch_follower(&mut self, keys: Vec<CacheKey>, waiter: WaitingRequestId) -> Option<()> {
        let mut answers = Vec::new();
        answers.try_reserve_exact(keys.len()).ok()?;
        self.batches.try_reserve(1).ok()?;
        for key in &keys {
            self.flights.get_mut(key)?.batches.try_reserve(1).ok()?;
        }
        for key in &keys {
            if let Some(flight) = self.flights.get_mut(key) {
                flight.batches.push(waiter);
            }
        }
        let batch = BatchFlightProgress {
            left: keys.len(),
            keys,
            answers,
        };
        self.batches.insert(waiter, batch);
        Some(())
    }

    /// Assigns the outcome of a flight to followers and batches. The caller wakes the returned
    /// waiters.
    fn assign_flight_outcome(
        &mut self,
        token: &FlightLeadership,
        outcome: &FlightOutcome,
        followers: VecDeque<WaitingRequestId>,
        batches: Vec<WaitingRequestId>,
    ) -> Vec<WaitingRequestId> {
        self.following -= followers.len();
        let mut woken = Vec::from(followers);
        for follower in &woken {
            let turn = FlightFollowerWakeup::Response(outcome.clone());
            self.turns.insert(*follower, turn);
        }
        for batch in batches {
            let answer = match outcome {
                FlightOutcome::Answer(entry) => Some((token.0, Arc::clone(entry))),
                FlightOutcome::NotShareable => None,
            };
            if self.record_batch_flight_end(batch, answer) {
                woken.push(batch);
            }
        }
        woken
    }

    /// Records that a flight of a batch has ended. Returns whether it was the last one.
    fn record_batch_flight_end(
        &mut self,
        waiter: WaitingRequestId,
        answer: Option<(CacheKey, Arc<CacheEntry>)>,
    ) -> bool {
        let Some(batch) = self.batches.get_mut(&waiter) else {
            return false;
        };
        batch.answers.extend(answer);
        batch.left -= 1;
        batch.left == 0
    }

    /// Gives the leadership to the next follower. Without one the flight ends, also for batches.
    fn transfer_leadership(&mut self, token: FlightLeadership) -> FlightChange {
        let mut change = FlightChange::default();
        let flight = self.flights.get_mut(&token.0);
        change.next_leader = flight.and_then(|flight| flight.followers.pop_front());
        if let Some(next) = change.next_leader {
            self.following -= 1;
            self.turns.insert(next, FlightFollowerWakeup::Lead(token));
        } else if let Some(mut flight) = self.flights.remove(&token.0) {
            change.ended_lease = flight.leased.then_some(token.0);
            let batches = &mut flight.batches;
            batches.retain(|batch| self.record_batch_flight_end(*batch, None));
            change.released = flight.batches;
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        lock_ignoring_poison, CoalescedFlights, CoalescingRole, FlightChange, FlightFollowerWakeup,
        FlightLeadership, FlightOutcome,
    };
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
    use crate::cache::process::wake::{EventLoopId, WaitingRequestId};

    const KEY: [u8; 32] = [7; 32];

    fn entry() -> Arc<CacheEntry> {
        let payload = EntryPayload::Raw(b"\"0x1\"".to_vec().into());
        Arc::new(CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            payload,
            EntryMetadata::default(),
        ))
    }

    fn at(id: usize) -> WaitingRequestId {
        EventLoopId::default().waiter_of_request(id)
    }

    fn follow(flights: &CoalescedFlights, waiters: &[usize]) {
        for waiter in waiters {
            assert!(matches!(
                flights.join_flight(KEY, at(*waiter)),
                Some(CoalescingRole::Follower)
            ));
        }
    }

    fn claim_lead(flights: &CoalescedFlights, waiter: usize) -> FlightLeadership {
        match flights.claim_wakeup(at(waiter)) {
            Some(FlightFollowerWakeup::Lead(token)) => token,
            other => panic!("{waiter}: {other:?}"),
        }
    }

    fn is_left_clean(flights: &CoalescedFlights) -> bool {
        let state = lock_ignoring_poison(&flights.0);
        state.flights.is_empty()
            && state.turns.is_empty()
            && state.following == 0
            && state.batches.is_empty()
    }

    #[test]
    fn batch_is_woken_when_its_last_flight_has_ended() {
        let flights = CoalescedFlights::default();
        let other = [8; 32];
        assert!(!flights.follow_flights(vec![KEY], at(9)));
        let one = flights.begin_flight(KEY).unwrap();
        assert!(flights.begin_flight(KEY).is_none());
        // the batch would have to fetch the other key itself
        assert!(!flights.follow_flights(vec![KEY, other], at(9)));
        let two = flights.begin_flight(other).unwrap();
        assert!(flights.follow_flights(vec![KEY, other, KEY], at(9)));
        follow(&flights, &[2]);
        assert_eq!(flights.total_waiter_count(), 2);
        let answer = entry();
        let change = flights.finish_flight(one, FlightOutcome::Answer(answer));
        assert_eq!(change.released, [at(2)]);
        let change = flights.finish_flight(two, FlightOutcome::NotShareable);
        assert_eq!(change.released, [at(9)]);
        let shared: Vec<_> = flights
            .claim_awaited_responses(at(9))
            .iter()
            .map(|(key, _)| *key)
            .collect();
        assert_eq!(shared, [KEY]);
        assert!(flights.claim_wakeup(at(2)).is_some());
        assert!(is_left_clean(&flights));
    }

    #[test]
    fn flight_is_followed_while_it_has_a_follower_or_a_batch() {
        let flights = CoalescedFlights::default();
        let token = flights.begin_flight(KEY).unwrap();
        assert!(!flights.has_followers(&token));
        assert!(flights.follow_flights(vec![KEY], at(2)));
        assert!(flights.has_followers(&token));
        flights.claim_awaited_responses(at(2));
        assert!(!flights.has_followers(&token));
        follow(&flights, &[3]);
        assert!(flights.has_followers(&token));
        let nothing = FlightChange::default();
        assert_eq!(flights.remove_follower(&KEY, at(3)), nothing);
        assert!(!flights.has_followers(&token));
        assert_eq!(flights.hand_over_leadership(token), nothing);
    }

    #[test]
    fn batch_is_released_without_leadership_when_the_last_leader_fails() {
        let flights = CoalescedFlights::default();
        let token = flights.begin_flight(KEY).unwrap();
        assert!(flights.follow_flights(vec![KEY], at(9)));
        follow(&flights, &[2]);
        let change = flights.hand_over_leadership(token);
        assert_eq!((change.next_leader, change.released), (Some(at(2)), vec![]));
        let token = claim_lead(&flights, 2);
        let change = flights.hand_over_leadership(token);
        assert_eq!((change.next_leader, change.released), (None, vec![at(9)]));
        assert!(flights.claim_awaited_responses(at(9)).is_empty());
        assert!(is_left_clean(&flights));
    }

    #[test]
    fn batch_is_not_woken_after_it_has_left() {
        let flights = CoalescedFlights::default();
        let token = flights.begin_flight(KEY).unwrap();
        assert!(flights.follow_flights(vec![KEY], at(9)));
        assert!(flights.claim_awaited_responses(at(9)).is_empty());
        let change = flights.finish_flight(token, FlightOutcome::Answer(entry()));
        assert!(change.released.is_empty());
        assert!(is_left_clean(&flights));
    }

    mod sequences {
        use std::collections::{BTreeMap, VecDeque};

        use proptest::prelude::*;

        use super::*;

        /// A step for one of two keys; `Claim` picks one of all woken waiters.
        #[derive(Clone, Debug)]
        enum FlightStep {
            Begin(usize),
            Finish(usize, bool),
            HandOn(usize),
            Leave(usize, usize),
            Claim(usize),
        }

        fn step() -> impl Strategy<Value = FlightStep> {
            let key = 0..2usize;
            prop_oneof![
                6 => key.clone().prop_map(FlightStep::Begin),
                1 => (key.clone(), any::<bool>()).prop_map(|(key, shares)| FlightStep::Finish(key, shares)),
                2 => key.clone().prop_map(FlightStep::HandOn),
                2 => (key, any::<usize>()).prop_map(|(key, which)| FlightStep::Leave(key, which)),
                3 => any::<usize>().prop_map(FlightStep::Claim),
            ]
        }

        /// The reason for which a waiter was woken.
        #[derive(Clone, Debug, PartialEq)]
        enum WakeReason {
            Lead(usize),
            Answer,
            Alone,
        }

        /// A slow model of the flights of two keys.
        #[derive(Default)]
        struct FlightModel {
            /// Whether a request leads, or has been handed the leadership.
            leads: [bool; 2],
            followers: [VecDeque<WaitingRequestId>; 2],
            woken: BTreeMap<WaitingRequestId, WakeReason>,
        }

        impl FlightModel {
            fn hand_on(&mut self, key: usize) -> Option<WaitingRequestId> {
                let next = self.followers[key].pop_front();
                self.leads[key] = next.is_some();
                self.woken
                    .extend(next.map(|next| (next, WakeReason::Lead(key))));
                next
            }
        }

        const KEYS: [[u8; 32]; 2] = [KEY, [8; 32]];

        proptest! {
            /// Each flight has one leader, or one follower that is to claim the leadership. Each
            /// follower is woken in its order and receives the outcome.
            #[test]
            fn followers_are_woken_in_joining_order(steps in prop::collection::vec(step(), 0..80)) {
                let flights = CoalescedFlights::default();
                let answer = entry();
                let mut model = FlightModel::default();
                let mut tokens: [Option<FlightLeadership>; 2] = [None, None];
                for (n, step) in steps.into_iter().enumerate() {
                    match step {
                        FlightStep::Begin(key) => match flights.join_flight(KEYS[key], at(n)).unwrap() {
                            CoalescingRole::Leader(token) => {
                                prop_assert!(!model.leads[key] && token.leads_flight_of(&KEYS[key]));
                                model.leads[key] = true;
                                tokens[key] = Some(token);
                            }
                            CoalescingRole::Follower => {
                                prop_assert!(model.leads[key]);
                                model.followers[key].push_back(at(n));
                            }
                        },
                        FlightStep::Finish(key, shares) => if let Some(token) = tokens[key].take() {
                            let (outcome, woken) = match shares {
                                true => (FlightOutcome::Answer(Arc::clone(&answer)), WakeReason::Answer),
                                false => (FlightOutcome::NotShareable, WakeReason::Alone),
                            };
                            model.leads[key] = false;
                            let all = std::mem::take(&mut model.followers[key]);
                            let change = flights.finish_flight(token, outcome);
                            prop_assert_eq!(change.released, Vec::from(all.clone()));
                            model.woken.extend(all.into_iter().map(|waiter| (waiter, woken.clone())));
                        },
                        FlightStep::HandOn(key) => if let Some(token) = tokens[key].take() {
                            let change = flights.hand_over_leadership(token);
                            prop_assert_eq!(change.next_leader, model.hand_on(key));
                        },
                        FlightStep::Leave(key, which) => {
                            let following = model.followers[key].iter();
                            let all: Vec<_> = following.chain(model.woken.keys()).copied().collect();
                            let Some(gone) = all.get(which % all.len().max(1)) else { continue };
                            model.followers[key].retain(|waiter| waiter != gone);
                            let next = match model.woken.remove(gone) {
                                Some(WakeReason::Lead(key)) => model.hand_on(key),
                                _ => None,
                            };
                            let change = flights.remove_follower(&KEYS[key], *gone);
                            prop_assert_eq!(change.next_leader, next);
                        }
                        FlightStep::Claim(which) => {
                            let at = which % model.woken.len().max(1);
                            let Some(waiter) = model.woken.keys().nth(at).copied() else { continue };
                            let woken = match flights.claim_wakeup(waiter) {
                                Some(FlightFollowerWakeup::Lead(token)) => {
                                    let key = usize::from(token.leads_flight_of(&KEYS[1]));
                                    tokens[key] = Some(token);
                                    Some(WakeReason::Lead(key))
                                }
                                Some(FlightFollowerWakeup::Response(FlightOutcome::Answer(entry))) => {
                                    prop_assert!(Arc::ptr_eq(&entry, &answer));
                                    Some(WakeReason::Answer)
                                }
                                Some(FlightFollowerWakeup::Response(FlightOutcome::NotShareable)) => Some(WakeReason::Alone),
                                None => None,
                            };
                            prop_assert_eq!(woken, model.woken.remove(&waiter));
                            prop_assert!(flights.claim_wakeup(waiter).is_none());
                        }
                    }
                    let state = lock_ignoring_poison(&flights.0);
                    let leads = model.leads.iter().filter(|leads| **leads).count();
                    let following: usize = model.followers.iter().map(VecDeque::len).sum();
                    prop_assert_eq!((state.flights.len(), state.following), (leads, following));
                    prop_assert_eq!(state.turns.len(), model.woken.len());
                }
            }
        }
    }
}
