//! Lookup of one response: in the hot tier, among in-flight fetches, at the owner.

use std::sync::Arc;

use super::asked::{Asked, Sought};
use super::fill::wanted::What;
use super::forms::say_the_same;
use super::found::Found;
use super::waits::{Awaited, Waits};
use crate::cache::entry::Entry;
use crate::cache::process::flights::{Outcome, Role, Token, Turn};
use crate::cache::process::hot::Hot;
use crate::cache::process::ownership::Owner;
use crate::cache::process::unkept::Unkept;
use crate::cache::process::wake::Waiter;
use crate::cache::process::Shared;
use crate::cache::reason::Reason;
use crate::cache::resource::other_form;
use crate::cache::scope::Scope;
use crate::cache::status::CacheStatus;
use crate::cache::{Key, Namespace};
use crate::exchange::machine::Exchange;
use crate::gzip::oneshot::off_loop_length;

impl Exchange {
    /// Looks up one response. `what` is called only if the response is to be fetched.
    pub(in crate::exchange) fn seek(
        &mut self,
        sought: &Sought<'_>,
        scope: &Scope,
        asked: &Asked<'_>,
        waited: Option<Box<Waits>>,
        what: impl FnOnce() -> What,
    ) -> Found {
        let shared = Arc::clone(&self.config.process.shared);
        if !shared.keeps() {
            return Found::Nothing;
        }
        let key = sought.key;
        self.looked.key = Some(key);
        if let Some(waited) = waited {
            let other = waited.answer().filter(|(other, _)| *other != key);
            if other.is_none() || self.looked.is_parted {
                return self.after_waiting(*waited, sought, scope, asked, what);
            }
            // the vary headers changed during the wait: the request is coalesced under its own key
            self.looked.is_parted = true;
            match waited.turn() {
                Some(Turn::Landed(_)) => {}
                Some(Turn::Lead(token)) => shared.finish(token, Outcome::Alone),
                // the request was not woken: its wait has timed out
                None => {
                    self.cache_status = CacheStatus::Miss;
                    return self.fetch(self.new_fill(what(), scope.clone(), None, asked), asked);
                }
            }
        }
        let trusted = shared.may_send(asked.now);
        if !asked.bypass {
            let hot = shared.hot();
            if let (Some(hot), None) = (hot, sought.id) {
                self.remove_changed(hot, &key, asked);
            }
            let entry = hot.and_then(|hot| hot.get(&key, asked.now));
            let entry = entry.filter(|entry| trusted && self.says_the_same(&key, entry));
            if let Some(entry) = entry {
                self.keep_stale(&entry);
                self.cache_status = CacheStatus::Miss;
                if let Some(found) = self.give(&key, Arc::clone(&entry), sought.id, asked) {
                    // a response to a range or HEAD is no complete one to compare with
                    if sought.is_whole && !matches!(found, Found::Nothing) {
                        self.verify(&entry, scope, asked, what);
                    }
                    return found;
                }
            }
            self.cache_status = CacheStatus::Miss;
            if trusted && sought.is_whole {
                self.find_stand_in(sought, asked);
            }
        }
        if asked.bypass {
            self.reason = Reason::Bypass;
        }
        if self.request.cache.no_store {
            self.reason = Reason::RequestNoStore;
        }
        if !sought.is_whole || self.request.cache.no_store {
            // the response is not a complete one, or must not be stored
            return Found::Nothing;
        }
        // a stale entry is sent meanwhile because another request fetches the new one
        let unkept = shared.unkept.get(&key, asked.now);
        let may_share = sought.coalesces && self.config.cache.lock && unkept != Some(Unkept::One);
        let may_share = may_share && shared.may_wait();
        let coalesces = may_share || self.may_send_stale(asked);
        let asks = coalesces || shared.owner().is_some_and(Owner::is_up);
        let (namespace, since) = self.since(scope, asked.now);
        let token = match asked.waiter {
            Some(waiter) if asks && !asked.bypass => {
                // an uncacheable response is not stored by other processes either
                let in_vain = unkept.is_some();
                let part = take_part(
                    &shared, key, waiter, &namespace, coalesces, in_vain, asked.now,
                );
                match part {
                    Part::Leads(Some(token)) if trusted => {
                        // another event loop may have stored it since the hot tier was searched
                        match self.landed(&key, sought, asked) {
                            Some(entry) => {
                                shared.finish(token, Outcome::Answer(Arc::clone(&entry)));
                                if let Some(found) = self.give(&key, entry, sought.id, asked) {
                                    return found;
                                }
                                None
                            }
                            None => Some(token),
                        }
                    }
                    Part::Leads(token) => token,
                    Part::Follows if self.may_send_stale(asked) => {
                        shared.leave(&key, waiter);
                        if let Some(found) = self.give_stale(CacheStatus::Updating, asked) {
                            return found;
                        }
                        None
                    }
                    Part::Follows | Part::Asks => {
                        let awaited = Awaited::Answer(key, since);
                        return Found::OnItsWay(Waits::new(&shared, waiter, awaited));
                    }
                }
            }
            _ => None,
        };
        self.fetch(self.new_fill(what(), scope.clone(), token, asked), asked)
    }

    /// Searches the hot tier again.
    fn landed(&self, key: &Key, sought: &Sought<'_>, asked: &Asked<'_>) -> Option<Arc<Entry>> {
        let entry = self.config.process.shared.hot()?.get(key, asked.now)?;
        self.keep_stale(&entry);
        Some(entry).filter(|entry| sought.id.is_some() || !self.is_changed(entry, asked))
    }

    /// Removes an invalidated entry, which must not be revalidated either: its tag may be the same.
    fn remove_changed(&self, hot: &Hot, key: &Key, asked: &Asked<'_>) {
        if self.config.process.shared.changes.last() == 0 {
            return;
        }
        let changed = hot.stale(key).filter(|entry| self.is_changed(entry, asked));
        if let Some(entry) = changed {
            hot.remove_this(key, &entry);
        }
    }

    pub(in crate::exchange) fn keep_stale(&self, entry: &Entry) {
        if self.config.cache.use_stale.is_any() {
            entry.keep_stale();
        }
    }

    /// Whether an entry has the same value as the entry of its other format, if there is one. If
    /// the values are different the node must be queried.
    pub(in crate::exchange) fn says_the_same(&self, key: &Key, entry: &Arc<Entry>) -> bool {
        if !entry.is_uncompared() {
            return true;
        }
        let (Some(negotiated), Some(hot)) = (self.request.ssz, self.config.process.shared.hot())
        else {
            return true;
        };
        let says_the_same = match hot.stale(&other_form(key)) {
            None => true,
            Some(other) => {
                let most = off_loop_length(self.config.comp_level) as u64;
                let is_long = entry.length(b"").max(other.length(b"")) > most;
                let (chain, max_ssz) = (self.chain(), self.config.ssz.max_size);
                let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
                let mut memory = None;
                let may_take = |bytes| {
                    memory = self.config.process.budget.reserve(bytes, limit);
                    memory.is_some()
                };
                !is_long && say_the_same(negotiated, &chain, max_ssz, entry, &other, may_take)
            }
        };
        match says_the_same {
            true => entry.was_compared(),
            false => hot.remove_this(key, entry),
        }
        says_the_same
    }

    /// Continues after a wait. A request waits once.
    fn after_waiting(
        &mut self,
        waited: Waits,
        sought: &Sought<'_>,
        scope: &Scope,
        asked: &Asked<'_>,
        what: impl FnOnce() -> What,
    ) -> Found {
        self.cache_status = CacheStatus::Miss;
        let shared = Arc::clone(&self.config.process.shared);
        let Some((key, since)) = waited.answer() else {
            return Found::Nothing;
        };
        // the vary headers may have changed meanwhile
        let parted = sought.key != key;
        let token = match waited.turn() {
            // the request was not woken: its wait has timed out
            None => {
                if !parted {
                    if let Some(found) = self.give_stale(CacheStatus::Updating, asked) {
                        return found;
                    }
                }
                None
            }
            Some(Turn::Lead(token)) => Some(token),
            Some(Turn::Landed(Outcome::Alone)) => None,
            Some(Turn::Landed(Outcome::Answer(entry))) => {
                self.keep_stale(&entry);
                let found = Some(entry)
                    .filter(|_| !parted && shared.may_share(asked.now))
                    .filter(|entry| since.admits(&shared, entry))
                    .filter(|entry| sought.id.is_some() || !self.is_changed(entry, asked))
                    .filter(|entry| self.says_the_same(&key, entry))
                    .and_then(|entry| self.give(&key, entry, sought.id, asked));
                if let Some(found) = found {
                    return found;
                }
                None
            }
        };
        let mut fill = self.new_fill(what(), scope.clone(), token, asked);
        fill.rekeyed = parted;
        self.fetch(fill, asked)
    }
}

/// The role of a request in the flight of a key.
pub(in crate::exchange) enum Part {
    /// The request leads, or (`None`) is sent to the node without a flight.
    Leads(Option<Token>),
    /// The owner is queried: wait.
    Asks,
    /// Another request leads: wait.
    Follows,
}

/// Joins the flight of a key as leader or follower. Where there is an owner the query to it
/// leads first.
fn take_part(
    shared: &Shared,
    key: Key,
    waiter: Waiter,
    namespace: &Namespace,
    coalesces: bool,
    in_vain: bool,
    now: u64,
) -> Part {
    let token = match shared.flights.begin(key, waiter) {
        Some(Role::Follower) => return Part::Follows,
        Some(Role::Leader(token)) => token,
        // memory was refused
        None => return Part::Leads(None),
    };
    let token = match shared.owner() {
        Some(owner) if shared.flights.follow(&token, waiter).is_some() => {
            match owner.ask(key, token, namespace, coalesces, in_vain, now) {
                Ok(()) => return Part::Asks,
                Err(token) => {
                    shared.flights.leave(&key, waiter);
                    token
                }
            }
        }
        _ => token,
    };
    if !coalesces {
        shared.finish(token, Outcome::Alone);
        return Part::Leads(None);
    }
    Part::Leads(Some(token))
}
