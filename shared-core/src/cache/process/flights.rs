//! Who fetches what many want: one request leads, the others follow.
//!
//! ```text
//!            begin                    finish
//!  (none) ──────────▶ in flight ───────────────────▶ (none); followers claim
//!                      │      ▲                       the outcome
//!              hand_on │      │ the next one claims
//!                      ▼      │ the lead
//!                     handed on ──── leave: on to the next ──▶ … ──▶ (none)
//! ```
//!
//! A leader that fails, or whose client goes, fails nobody: it hands the lead
//! on. Nothing waits here. The caller wakes those whom a call returns, and
//! each of them [`claim`](Flights::claim)s what it has to do. An answer is kept
//! for it until then, even if no tier had room for it; under which id it is
//! sent is the follower's own business, as [`Entry`] has none.
//!
//! A batch follows several flights at a time, and only if it has nothing else to
//! ask for: so it delays nothing. It is woken when the last of them has ended,
//! and asks for what came of none. Who waits never leads, and who leads never
//! waits: no two wait for one another.

use std::collections::hash_map;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use super::wake::Waiter;
use crate::cache::entry::Entry;
use crate::cache::Key;
use crate::lock::locked;

/// What a request is to do about a key that is not cached.
#[derive(Debug)]
pub enum Role {
    /// Ask the node; then [`finish`](Flights::finish), or
    /// [`hand_on`](Flights::hand_on).
    Leader(Token),
    /// Wait to be woken, then [`claim`](Flights::claim).
    Follower,
}

/// The lead of a flight. There is one: whoever has it must give it back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "followers wait until it is given back"]
pub struct Token(Key);

impl Token {
    /// Whether it is for that key.
    pub fn is_of(&self, key: &Key) -> bool {
        self.0 == *key
    }

    /// What it is for.
    pub fn key(&self) -> &Key {
        &self.0
    }
}

/// What came of a flight.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All may send this.
    Answer(Arc<Entry>),
    /// The answer is not for sharing: each is to ask the node itself.
    Alone,
}

/// What one that was woken is to do.
#[derive(Debug)]
pub enum Turn {
    /// The flight has ended.
    Landed(Outcome),
    /// The leader gave up: lead.
    Lead(Token),
}

/// The flights of a process.
#[derive(Debug, Default)]
pub struct Flights(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    flights: HashMap<Key, Flight>,
    /// What those who were woken have not claimed yet.
    turns: HashMap<Waiter, Turn>,
    /// How many follow, in all flights.
    following: usize,
    /// How many ever have.
    joined: u64,
    /// What those wait for who wait for several.
    batches: HashMap<Waiter, Batch>,
    /// Of these, who need not wait any more since a leader gave up.
    released: Vec<Waiter>,
    /// Leases of flights that ended without an answer.
    over: Vec<Key>,
}

#[derive(Debug, Default)]
struct Flight {
    followers: VecDeque<Joined>,
    /// Those who follow others, too, and lead none of them.
    batches: Vec<Joined>,
    /// No other process fetches it meanwhile.
    leased: bool,
}

/// One that follows, and its number among all who ever have.
#[derive(Clone, Copy, Debug)]
struct Joined {
    waiter: Waiter,
    number: u64,
}

/// Several flights that one waits for.
#[derive(Debug, Default)]
struct Batch {
    /// Those that are still under way.
    left: usize,
    keys: Vec<Key>,
    answers: Vec<(Key, Arc<Entry>)>,
}

impl Flights {
    /// `waiter` wants what is under `key`. `None` when memory is refused: it
    /// is to ask the node, and has no lead.
    pub fn begin(&self, key: Key, waiter: Waiter) -> Option<Role> {
        let mut state = locked(&self.0);
        state.flights.try_reserve(1).ok()?;
        if let hash_map::Entry::Vacant(vacant) = state.flights.entry(key) {
            vacant.insert(Flight::default());
            return Some(Role::Leader(Token(key)));
        }
        state.follow(&key, waiter)?;
        Some(Role::Follower)
    }

    /// `waiter` follows a flight that it leads no more. `None` when memory is
    /// refused: it does not.
    pub fn follow(&self, token: &Token, waiter: Waiter) -> Option<()> {
        locked(&self.0).follow(&token.0, waiter)
    }

    /// Leads the flight of `key`, if nobody does and memory is not refused.
    pub fn lead(&self, key: Key) -> Option<Token> {
        let mut state = locked(&self.0);
        state.flights.try_reserve(1).ok()?;
        match state.flights.entry(key) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Flight::default());
                Some(Token(key))
            }
            hash_map::Entry::Occupied(_) => None,
        }
    }

    /// `waiter` waits until the flights of all these keys have ended, and leads
    /// none of them. `false`: one of them is not under way, or memory is
    /// refused; it waits for none.
    pub fn follow_all(&self, mut keys: Vec<Key>, waiter: Waiter) -> bool {
        keys.sort_unstable();
        keys.dedup();
        locked(&self.0).follow_all(keys, waiter).is_some()
    }

    /// What came of the flights that `waiter` waited for, as far as there was
    /// something to share. It waits no longer for the others.
    pub fn claim_all(&self, waiter: Waiter) -> Vec<(Key, Arc<Entry>)> {
        let mut state = locked(&self.0);
        state.released.retain(|other| *other != waiter);
        let Some(batch) = state.batches.remove(&waiter) else {
            return Vec::new();
        };
        if batch.left > 0 {
            for key in &batch.keys {
                if let Some(flight) = state.flights.get_mut(key) {
                    flight.batches.retain(|other| other.waiter != waiter);
                }
            }
        }
        batch.answers
    }

    /// Those who waited for several flights, of which the last ended without an
    /// answer, since the last call. Wake them.
    pub fn released(&self) -> Vec<Waiter> {
        std::mem::take(&mut locked(&self.0).released)
    }

    /// This process has the lease of `key`, for as long as the flight lasts.
    /// `false`: there is none.
    pub fn lease(&self, key: &Key) -> bool {
        let mut state = locked(&self.0);
        let flight = state.flights.get_mut(key);
        flight.map(|flight| flight.leased = true).is_some()
    }

    /// Leases of flights that have ended without an answer since the last
    /// call.
    pub fn over(&self) -> Vec<Key> {
        std::mem::take(&mut locked(&self.0).over)
    }

    /// Whether anybody waits for what the leader fetches.
    pub fn is_followed(&self, token: &Token) -> bool {
        let state = locked(&self.0);
        let flight = state.flights.get(&token.0);
        flight.is_some_and(|it| !(it.followers.is_empty() && it.batches.is_empty()))
    }

    /// Who began last to wait for what the leader fetches, of those who wait for nothing
    /// else.
    pub fn last_follower(&self, token: &Token) -> Option<Waiter> {
        let state = locked(&self.0);
        let last = state.flights.get(&token.0)?.followers.back();
        last.map(|joined| joined.waiter)
    }

    /// The leader has an answer, or knows that there is none to share. Wake
    /// all of the result, in that order.
    pub fn finish(&self, token: Token, outcome: Outcome) -> Vec<Waiter> {
        let mut state = locked(&self.0);
        let Some(flight) = state.flights.remove(&token.0) else {
            return Vec::new();
        };
        if flight.leased && matches!(outcome, Outcome::Alone) {
            state.over.push(token.0);
        }
        state.land(&token, &outcome, flight.followers, flight.batches)
    }

    /// How many have ever followed a flight.
    pub fn joined(&self) -> u64 {
        locked(&self.0).joined
    }

    /// The leader has an answer for those who were among the first `joined` of all:
    /// wake them, in that order. For the others it is too old, they go on waiting
    /// for who has the token; `None`: there are none, and the flight has ended.
    pub fn finish_for(
        &self,
        token: Token,
        entry: &Arc<Entry>,
        joined: u64,
    ) -> (Vec<Waiter>, Option<Token>) {
        let mut state = locked(&self.0);
        let Some(flight) = state.flights.get_mut(&token.0) else {
            return (Vec::new(), None);
        };
        flight.leased = false;
        // they are in the order in which they came
        let first = |all: &[Joined]| all.partition_point(|it| it.number <= joined);
        let followers = first(flight.followers.make_contiguous());
        let mut later = flight.followers.split_off(followers);
        std::mem::swap(&mut later, &mut flight.followers);
        let batches = flight.batches.drain(..first(&flight.batches)).collect();
        let is_over = flight.followers.is_empty() && flight.batches.is_empty();
        if is_over {
            state.flights.remove(&token.0);
        }
        let outcome = Outcome::Answer(Arc::clone(entry));
        let woken = state.land(&token, &outcome, later, batches);
        (woken, (!is_over).then_some(token))
    }

    /// The leader can't go on: its client has gone, or the node failed it.
    /// Wake the result: it leads now. With nobody left the flight ends.
    pub fn hand_on(&self, token: Token) -> Option<Waiter> {
        locked(&self.0).hand_on(token)
    }

    /// What `waiter`, which was woken, is to do. `None` if nobody woke it.
    pub fn claim(&self, waiter: Waiter) -> Option<Turn> {
        locked(&self.0).turns.remove(&waiter)
    }

    /// The follower `waiter` goes: its client has gone, or it has waited long
    /// enough. If it was to lead and has not claimed that, the lead goes on to
    /// the result: wake it.
    pub fn leave(&self, key: &Key, waiter: Waiter) -> Option<Waiter> {
        let mut state = locked(&self.0);
        match state.turns.remove(&waiter) {
            Some(Turn::Lead(token)) => state.hand_on(token),
            Some(Turn::Landed(_)) => None,
            None => {
                if let Some(flight) = state.flights.get_mut(key) {
                    let before = flight.followers.len();
                    flight.followers.retain(|other| other.waiter != waiter);
                    let left = before - flight.followers.len();
                    state.following -= left;
                }
                None
            }
        }
    }

    /// The requests that wait for a flight to end.
    pub fn waiting(&self) -> usize {
        let state = locked(&self.0);
        state.following + state.batches.len()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        locked(&self.0).flights.len()
    }
}

impl State {
    fn follow(&mut self, key: &Key, waiter: Waiter) -> Option<()> {
        let followers = &mut self.flights.get_mut(key)?.followers;
        followers.try_reserve(1).ok()?;
        // its turn has its place from now on: none is lost later
        self.turns.try_reserve(self.following + 1).ok()?;
        self.joined += 1;
        let number = self.joined;
        followers.push_back(Joined { waiter, number });
        self.following += 1;
        Some(())
    }

    fn follow_all(&mut self, keys: Vec<Key>, waiter: Waiter) -> Option<()> {
        let mut answers = Vec::new();
        answers.try_reserve_exact(keys.len()).ok()?;
        self.batches.try_reserve(1).ok()?;
        self.released.try_reserve(self.batches.len() + 1).ok()?;
        for key in &keys {
            self.flights.get_mut(key)?.batches.try_reserve(1).ok()?;
        }
        self.joined += 1;
        let number = self.joined;
        for key in &keys {
            if let Some(flight) = self.flights.get_mut(key) {
                flight.batches.push(Joined { waiter, number });
            }
        }
        let batch = Batch {
            left: keys.len(),
            keys,
            answers,
        };
        self.batches.insert(waiter, batch);
        Some(())
    }

    /// A flight has ended for those who followed it: wake all of the result.
    fn land(
        &mut self,
        token: &Token,
        outcome: &Outcome,
        followers: VecDeque<Joined>,
        batches: Vec<Joined>,
    ) -> Vec<Waiter> {
        self.following -= followers.len();
        let followers = Vec::from(followers).into_iter();
        let mut woken: Vec<Waiter> = followers.map(|it| it.waiter).collect();
        for follower in &woken {
            let turn = Turn::Landed(outcome.clone());
            self.turns.insert(*follower, turn);
        }
        for batch in batches {
            let answer = match outcome {
                Outcome::Answer(entry) => Some((token.0, Arc::clone(entry))),
                Outcome::Alone => None,
            };
            if self.landed(batch.waiter, answer) {
                woken.push(batch.waiter);
            }
        }
        woken
    }

    /// One of the flights that it waits for has ended. Whether it was the last.
    fn landed(&mut self, waiter: Waiter, answer: Option<(Key, Arc<Entry>)>) -> bool {
        let Some(batch) = self.batches.get_mut(&waiter) else {
            return false;
        };
        batch.answers.extend(answer);
        batch.left -= 1;
        batch.left == 0
    }

    fn hand_on(&mut self, token: Token) -> Option<Waiter> {
        let flight = self.flights.get_mut(&token.0)?;
        let Some(next) = flight.followers.pop_front() else {
            if flight.leased {
                self.over.push(token.0);
            }
            let batches = std::mem::take(&mut flight.batches);
            self.flights.remove(&token.0);
            for Joined { waiter, .. } in batches {
                if self.landed(waiter, None) {
                    self.released.push(waiter);
                }
            }
            return None;
        };
        self.following -= 1;
        self.turns.insert(next.waiter, Turn::Lead(token));
        Some(next.waiter)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{locked, Flights, Outcome, Role, Token, Turn};
    use crate::cache::entry::{Entry, Envelope, Meta, Payload};
    use crate::cache::process::wake::{EventLoop, Waiter};

    const KEY: [u8; 32] = [7; 32];

    fn entry() -> Arc<Entry> {
        let payload = Payload::Raw(b"\"0x1\"".to_vec().into());
        Arc::new(Entry::new(Envelope::none(), payload, Meta::default()))
    }

    fn at(id: usize) -> Waiter {
        EventLoop::default().waiter(id)
    }

    fn follow(flights: &Flights, waiters: &[usize]) {
        for waiter in waiters {
            assert!(matches!(
                flights.begin(KEY, at(*waiter)),
                Some(Role::Follower)
            ));
        }
    }

    fn claim_lead(flights: &Flights, waiter: usize) -> Token {
        match flights.claim(at(waiter)) {
            Some(Turn::Lead(token)) => token,
            other => panic!("{waiter}: {other:?}"),
        }
    }

    fn is_left_clean(flights: &Flights) -> bool {
        let state = locked(&flights.0);
        state.flights.is_empty()
            && state.turns.is_empty()
            && state.following == 0
            && state.batches.is_empty()
            && state.released.is_empty()
    }

    #[test]
    fn a_batch_is_woken_when_the_last_flight_has_ended() {
        let flights = Flights::default();
        let other = [8; 32];
        assert!(!flights.follow_all(vec![KEY], at(9)));
        let one = flights.lead(KEY).unwrap();
        assert!(flights.lead(KEY).is_none());
        // it would have to ask for the other one itself
        assert!(!flights.follow_all(vec![KEY, other], at(9)));
        let two = flights.lead(other).unwrap();
        assert!(flights.follow_all(vec![KEY, other, KEY], at(9)));
        follow(&flights, &[2]);
        assert_eq!(flights.waiting(), 2);
        let answer = entry();
        assert_eq!(flights.finish(one, Outcome::Answer(answer)), [at(2)]);
        assert_eq!(flights.finish(two, Outcome::Alone), [at(9)]);
        let shared: Vec<_> = flights
            .claim_all(at(9))
            .iter()
            .map(|(key, _)| *key)
            .collect();
        assert_eq!(shared, [KEY]);
        assert!(flights.claim(at(2)).is_some());
        assert!(is_left_clean(&flights));
    }

    #[test]
    fn those_who_follow_are_seen() {
        let flights = Flights::default();
        let token = flights.lead(KEY).unwrap();
        assert!(!flights.is_followed(&token));
        assert!(flights.follow_all(vec![KEY], at(2)));
        assert!(flights.is_followed(&token));
        flights.claim_all(at(2));
        assert!(!flights.is_followed(&token));
        follow(&flights, &[3]);
        assert!(flights.is_followed(&token));
        assert_eq!(flights.leave(&KEY, at(3)), None);
        assert!(!flights.is_followed(&token));
        assert_eq!(flights.hand_on(token), None);
    }

    #[test]
    fn a_batch_never_leads() {
        let flights = Flights::default();
        let token = flights.lead(KEY).unwrap();
        assert!(flights.follow_all(vec![KEY], at(9)));
        follow(&flights, &[2]);
        assert_eq!(flights.hand_on(token), Some(at(2)));
        assert!(flights.released().is_empty());
        let token = claim_lead(&flights, 2);
        assert_eq!(flights.hand_on(token), None);
        assert_eq!(flights.released(), [at(9)]);
        assert!(flights.claim_all(at(9)).is_empty());
        assert!(is_left_clean(&flights));
    }

    #[test]
    fn a_batch_that_left_is_not_woken() {
        let flights = Flights::default();
        let token = flights.lead(KEY).unwrap();
        assert!(flights.follow_all(vec![KEY], at(9)));
        assert!(flights.claim_all(at(9)).is_empty());
        assert!(flights.finish(token, Outcome::Answer(entry())).is_empty());
        assert!(is_left_clean(&flights));
    }

    mod sequences {
        use std::collections::{BTreeMap, VecDeque};

        use proptest::prelude::*;

        use super::*;

        /// Of one of two keys, but for who has waited: that is one of all.
        #[derive(Clone, Debug)]
        enum Step {
            Begin(usize),
            Finish(usize, bool),
            FinishFor(usize, u64),
            HandOn(usize),
            Leave(usize, usize),
            Claim(usize),
        }

        fn step() -> impl Strategy<Value = Step> {
            let key = 0..2usize;
            prop_oneof![
                6 => key.clone().prop_map(Step::Begin),
                1 => (key.clone(), any::<bool>()).prop_map(|(key, shares)| Step::Finish(key, shares)),
                1 => (key.clone(), 0..3u64).prop_map(|(key, late)| Step::FinishFor(key, late)),
                2 => key.clone().prop_map(Step::HandOn),
                2 => (key, any::<usize>()).prop_map(|(key, which)| Step::Leave(key, which)),
                3 => any::<usize>().prop_map(Step::Claim),
            ]
        }

        /// What a waiter was woken for.
        #[derive(Clone, Debug, PartialEq)]
        enum Woken {
            Lead(usize),
            Answer,
            Alone,
        }

        /// The flights of two keys, the slow way.
        #[derive(Default)]
        struct Model {
            /// Somebody has the token, or is to claim it.
            leads: [bool; 2],
            followers: [VecDeque<Waiter>; 2],
            /// In which order they came.
            came: Vec<Waiter>,
            woken: BTreeMap<Waiter, Woken>,
        }

        impl Model {
            fn hand_on(&mut self, key: usize) -> Option<Waiter> {
                let next = self.followers[key].pop_front();
                self.leads[key] = next.is_some();
                self.woken.extend(next.map(|next| (next, Woken::Lead(key))));
                next
            }
        }

        const KEYS: [[u8; 32]; 2] = [KEY, [8; 32]];

        proptest! {
            /// Each flight has one that leads, or is to; who follows is woken in
            /// its turn, is told what came of it, and is never forgotten.
            #[test]
            fn nobody_waits_for_ever(steps in prop::collection::vec(step(), 0..80)) {
                let flights = Flights::default();
                let answer = entry();
                let mut model = Model::default();
                let mut tokens: [Option<Token>; 2] = [None, None];
                for (n, step) in steps.into_iter().enumerate() {
                    match step {
                        Step::Begin(key) => match flights.begin(KEYS[key], at(n)).unwrap() {
                            Role::Leader(token) => {
                                prop_assert!(!model.leads[key] && token.is_of(&KEYS[key]));
                                model.leads[key] = true;
                                tokens[key] = Some(token);
                            }
                            Role::Follower => {
                                prop_assert!(model.leads[key]);
                                model.followers[key].push_back(at(n));
                                model.came.push(at(n));
                            }
                        },
                        Step::Finish(key, shares) => if let Some(token) = tokens[key].take() {
                            let (outcome, woken) = match shares {
                                true => (Outcome::Answer(Arc::clone(&answer)), Woken::Answer),
                                false => (Outcome::Alone, Woken::Alone),
                            };
                            model.leads[key] = false;
                            let all = std::mem::take(&mut model.followers[key]);
                            prop_assert_eq!(flights.finish(token, outcome), Vec::from(all.clone()));
                            model.woken.extend(all.into_iter().map(|waiter| (waiter, woken.clone())));
                        },
                        Step::FinishFor(key, late) => if let Some(token) = tokens[key].take() {
                            prop_assert_eq!(flights.joined(), model.came.len() as u64);
                            let joined = flights.joined().saturating_sub(late);
                            let early = &model.came[..usize::try_from(joined).unwrap()];
                            let all = std::mem::take(&mut model.followers[key]);
                            let (first, rest): (Vec<_>, Vec<_>) =
                                all.into_iter().partition(|waiter| early.contains(waiter));
                            model.leads[key] = !rest.is_empty();
                            model.followers[key] = rest.into();
                            let (woken, rest) = flights.finish_for(token, &answer, joined);
                            prop_assert_eq!(&woken, &first);
                            prop_assert_eq!(rest.is_some(), model.leads[key]);
                            tokens[key] = rest;
                            model.woken.extend(first.into_iter().map(|waiter| (waiter, Woken::Answer)));
                        },
                        Step::HandOn(key) => if let Some(token) = tokens[key].take() {
                            prop_assert_eq!(flights.hand_on(token), model.hand_on(key));
                        },
                        Step::Leave(key, which) => {
                            let following = model.followers[key].iter();
                            let all: Vec<_> = following.chain(model.woken.keys()).copied().collect();
                            let Some(gone) = all.get(which % all.len().max(1)) else { continue };
                            model.followers[key].retain(|waiter| waiter != gone);
                            let next = match model.woken.remove(gone) {
                                Some(Woken::Lead(key)) => model.hand_on(key),
                                _ => None,
                            };
                            prop_assert_eq!(flights.leave(&KEYS[key], *gone), next);
                        }
                        Step::Claim(which) => {
                            let at = which % model.woken.len().max(1);
                            let Some(waiter) = model.woken.keys().nth(at).copied() else { continue };
                            let woken = match flights.claim(waiter) {
                                Some(Turn::Lead(token)) => {
                                    let key = usize::from(token.is_of(&KEYS[1]));
                                    tokens[key] = Some(token);
                                    Some(Woken::Lead(key))
                                }
                                Some(Turn::Landed(Outcome::Answer(entry))) => {
                                    prop_assert!(Arc::ptr_eq(&entry, &answer));
                                    Some(Woken::Answer)
                                }
                                Some(Turn::Landed(Outcome::Alone)) => Some(Woken::Alone),
                                None => None,
                            };
                            prop_assert_eq!(woken, model.woken.remove(&waiter));
                            prop_assert!(flights.claim(waiter).is_none());
                        }
                    }
                    let state = locked(&flights.0);
                    let leads = model.leads.iter().filter(|leads| **leads).count();
                    let following: usize = model.followers.iter().map(VecDeque::len).sum();
                    prop_assert_eq!((state.flights.len(), state.following), (leads, following));
                    prop_assert_eq!(state.turns.len(), model.woken.len());
                }
            }
        }
    }
}
