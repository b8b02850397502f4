//! Storage of the built entries, and notification of the followers.

use std::sync::Arc;

use super::{Built, Fill, Settings};
use crate::cache::chain::Sighting;
use crate::cache::entry::about::About;
use crate::cache::entry::Entry;
use crate::cache::process::flights::{Outcome, Token};
use crate::cache::process::ownership::Landing;
use crate::cache::process::unkept::Unkept;
use crate::cache::process::verified::Verdict;
use crate::cache::Key;
use crate::memory;

impl Fill {
    /// Stores the built entries and wakes the followers. `now` is in milliseconds of the lookup
    /// clock.
    pub fn publish(mut self, now: u64) {
        if self.compared.is_some() {
            return self.judge_hit(now);
        }
        if self.is_suspended(now) {
            return self.refuse();
        }
        let mut landed = None;
        // while memory is short nothing is stored, here or with the owner
        let entries = std::mem::take(&mut self.entries);
        let is_short = memory::is_short();
        let stores = !entries.is_empty() && !is_short;
        if !is_short && self.built && !stores {
            self.remember_unkept(match self.had_no_waiters.get() {
                true => Unkept::Waiters,
                false => Unkept::One,
            });
        }
        for built in entries.into_iter().filter(|_| stores) {
            let key = built.key;
            let (entry, is_current) = self.publish_one(built, now);
            if now >= entry.meta().expires_at {
                self.remember_unkept(Unkept::Waiters);
            }
            if self.rekeyed || !is_current {
                continue;
            }
            if let Some(n) = self.tokens.iter().position(|token| token.is_of(&key)) {
                let token = self.tokens.swap_remove(n);
                self.land(token, Arc::clone(&entry));
            }
            if self.is_of_flight(&key) {
                landed = Some(entry);
            }
        }
        if let (true, Some((key, entry)), Some(hot)) =
            (self.denied, &self.updates, self.shared.hot())
        {
            hot.remove_this(key, entry);
        }
        if let Some(entry) = landed {
            if let Some(token) = self.token.take() {
                self.land(token, entry);
            }
        }
        self.land_alone();
    }

    fn land(&self, token: Token, entry: Arc<Entry>) {
        self.shared.land(Landing {
            token,
            entry,
            generation: self.settings.generation,
        });
    }

    /// Stores an entry. Returns it, and whether it is newer than the last purge. Followers check
    /// for themselves whether it is a response to their request.
    fn publish_one(&self, built: Built, now: u64) -> (Arc<Entry>, bool) {
        let Settings {
            asked_at,
            generation,
            changes,
            namespace,
            keeps_stale,
            ..
        } = self.settings;
        let tip_ends = self.mark().map_or(0, |mark| mark.tip_ends);
        let entry = built.entry.stored(asked_at, built.valid);
        let mut entry = entry.after(changes).after_tip_ends(tip_ends);
        if let Some(owner) = self.shared.owner() {
            entry = entry.among(owner.chains());
        }
        if let Some(stamp) = entry.stamp() {
            // entries of an older head expire with it
            stamp.tell();
        }
        if let Some(height) = built.shows {
            self.shows(height);
        }
        let entry = Arc::new(entry);
        if keeps_stale {
            entry.keep_stale();
        }
        let is_current = || self.shared.generation() == generation && entry.is_untouched();
        let is_fresh = entry.is_fresh(now);
        if let Some((other_key, other)) = &self.contradicts {
            if other.meta().stored_at > asked_at && other.is_fresh(now) {
                // the entry in the other format is newer
                if let Some(owner) = self.shared.owner() {
                    owner.give_back(built.key);
                }
                let is_current = is_current();
                return (entry, is_current);
            }
            if let Some(hot) = self.shared.hot() {
                hot.remove_this(other_key, other);
            }
        }
        if let (Some(hot), true) = (self.shared.hot(), is_current()) {
            // a stale entry may be served, too: an older one must not replace it
            let is_newest = hot.stale(&built.key).is_none_or(|other| {
                other.meta().stored_at <= asked_at || is_fresh && !other.is_fresh(now)
            });
            if is_newest && (is_fresh || entry.is_of_use_stale(now)) {
                hot.insert(built.key, Arc::clone(&entry));
                if !is_current() {
                    // a purge occurred meanwhile
                    hot.remove(&built.key);
                }
            }
        }
        if let Some(owner) = self.shared.owner() {
            if !is_fresh {
                // other processes wait for it under a lease
                owner.give_back(built.key);
                let is_current = self.shared.generation() == generation;
                return (entry, is_current);
            }
            match About::of(&entry, namespace, built.method.as_deref(), generation) {
                Some(about) => owner.store(built.key, Arc::clone(&entry), about, built.if_final),
                None => owner.give_back(built.key),
            }
        }
        let is_current = self.shared.generation() == generation;
        (entry, is_current)
    }

    /// Reports the block of a compressed body, which was not read on its way to the client.
    fn shows(&self, height: u64) {
        let sighting = Sighting {
            height,
            is_block: false,
        };
        let namespace = &self.settings.namespace;
        let Some(owner) = self.shared.owner() else {
            return;
        };
        let chain = owner.chains().get(namespace);
        if chain.is_some_and(|chain| chain.shows(sighting)) {
            owner.shows(namespace, sighting);
        }
    }

    /// Whether the followers of the fill wait for that key.
    fn is_of_flight(&self, key: &Key) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_of(key))
    }

    /// Stores nothing: followers send their requests to the node.
    pub(in crate::exchange) fn refuse(mut self) {
        self.leaves_unanswered();
        self.land_alone();
    }

    /// Stores nothing and adds the key to the negative cache, because the next response is
    /// expected to be the same.
    pub(in crate::exchange) fn refuse_for_now(self) {
        if self.compared.is_none() {
            self.remember_unkept(Unkept::One);
        }
        self.refuse();
    }

    /// Reports a hit verification that has no response to compare with.
    fn leaves_unanswered(&mut self) {
        if self.compared.take().is_some() {
            self.shared.verified.tell(Verdict::Unanswered, None);
        }
    }

    fn remember_unkept(&self, unkept: Unkept) {
        if let (Some(key), false) = (self.what.key(), self.rekeyed) {
            self.shared.unkept.remember(&key, unkept);
        }
    }

    /// Ends the remaining flights without a response: their followers query the node.
    fn land_alone(&mut self) {
        for token in self.token.take().into_iter().chain(self.tokens.drain(..)) {
            self.shared.finish(token, Outcome::Alone);
        }
    }
}

impl Drop for Fill {
    /// Hands leadership over to the next follower: the request ended before its response did.
    fn drop(&mut self) {
        self.leaves_unanswered();
        for token in self.token.take().into_iter().chain(self.tokens.drain(..)) {
            self.shared.hand_on(token);
        }
    }
}
