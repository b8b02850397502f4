//! Storage of the built entries, and notification of the followers.

use std::sync::Arc;

use super::target::FillTarget;
use super::{BuiltEntry, CacheFill, FillSnapshot};
use crate::cache::chain::{HeightUnit, ShownBlock};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::process::flights::{FlightLeadership, FlightOutcome};
use crate::cache::process::negative_cache::UncacheableSharing;
use crate::cache::process::owner_client::OwnerStoreOptions;
use crate::cache::process::verification::HitVerificationVerdict;
use crate::cache::reason::Reason;
use crate::cache::CacheKey;
use crate::memory;

impl CacheFill {
    /// Stores the built entries and wakes the followers. `now` is in milliseconds of the lookup
    /// clock.
    pub fn store_and_publish_entries(mut self, now: u64) {
        if self.compared.is_some() {
            return self.report_hit_verdict(now);
        }
        if self.is_fill_namespace_suspended() {
            return self.finish_unstored();
        }
        let mut entry_for_followers = None;
        // while memory is short nothing is stored, here or with the owner
        let entries = std::mem::take(&mut self.entries);
        let is_short = memory::is_memory_short();
        let stores = !entries.is_empty() && !is_short;
        if let Some(reason) = self.refused {
            self.record_piece_rejection(reason);
        }
        if is_short {
            self.record_piece_rejection(Reason::Memory);
        }
        if !is_short && self.built && !stores {
            self.remember_uncacheable(match self.had_no_waiters.get() {
                true => UncacheableSharing::Shareable,
                false => UncacheableSharing::RequesterOnly,
            });
        }
        for built in entries.into_iter().filter(|_| stores) {
            let key = built.key;
            let (entry, is_current) = self.publish_built_entry(built, now);
            if now >= entry.response_metadata().expires_at {
                self.remember_uncacheable(UncacheableSharing::Shareable);
            }
            if self.rekeyed || !is_current {
                continue;
            }
            if let Some(n) = self
                .tokens
                .iter()
                .position(|token| token.leads_flight_of(&key))
            {
                let token = self.tokens.swap_remove(n);
                self.publish_to_followers(token, Arc::clone(&entry));
            }
            if self.leads_flight_for_key(&key) {
                entry_for_followers = Some(entry);
            }
        }
        if let (true, Some((key, entry)), Some(hot)) =
            (self.denied, &self.updates, self.shared.hot_tier())
        {
            let sent = &self.settings;
            hot.deny_entry(key, entry, sent.sent_at, sent.dispatch_number);
        }
        if let Some(entry) = entry_for_followers {
            if let Some(token) = self.token.take() {
                self.publish_to_followers(token, entry);
            }
        }
        self.end_remaining_flights();
    }

    /// Stores an entry that was assembled from other entries, in place of the node's response, and
    /// wakes the followers. `valid` is its lifetime in milliseconds, `shown` the highest block that
    /// it shows. Returns the entry, or the reason why no entry of its chain may be sent.
    pub(in crate::exchange) fn publish_assembled_entry(
        mut self,
        assembled: CacheEntry,
        method: &[u8],
        valid: u64,
        shown: Option<u64>,
        now: u64,
    ) -> Result<Arc<CacheEntry>, Reason> {
        if self.is_fill_namespace_suspended() {
            self.finish_unstored();
            return Err(Reason::WrongChain);
        }
        let key = self.target.single_cache_key().unwrap_or_default();
        let built = BuiltEntry {
            method: Some(method.to_vec()),
            shows: shown,
            ..BuiltEntry::new(key, assembled, valid)
        };
        let (entry, is_current) = self.publish_built_entry(built, now);
        if is_current && !self.rekeyed {
            if let Some(token) = self.token.take() {
                self.publish_to_followers(token, Arc::clone(&entry));
            }
        }
        self.end_remaining_flights();
        Ok(entry)
    }

    /// Lifetime in milliseconds of an entry of this fill that is fresh until `expires_at`.
    pub(in crate::exchange) fn lifetime_until(&self, expires_at: u64) -> u64 {
        expires_at.saturating_sub(self.settings.sent_at)
    }

    /// Sends the entry to the followers of a flight, whose leadership ends.
    fn publish_to_followers(&self, token: FlightLeadership, entry: Arc<CacheEntry>) {
        self.shared
            .publish_to_followers(token, entry, self.settings.generation);
    }

    /// Stores one built entry in the hot tier and at the owner. Returns it, and whether it is newer
    /// than the last purge. Followers check for themselves whether it is a response to their
    /// request.
    fn publish_built_entry(&self, built: BuiltEntry, now: u64) -> (Arc<CacheEntry>, bool) {
        let FillSnapshot {
            sent_at,
            dispatch_number,
            generation,
            changes,
            namespace,
            keeps_stale,
            ..
        } = self.settings;
        let tip_ends = self.dispatch_mark().map_or(0, |mark| mark.tip_ends);
        let entry = built.entry.with_lifetime(sent_at, built.valid);
        let mut entry = entry
            .assign_dispatch_number(dispatch_number)
            .with_invalidation_number(changes)
            .with_shown_block_expiry_count(tip_ends);
        if let Some(owner) = self.shared.owner_client() {
            entry = entry.with_chain_dependency(owner.followed_chains());
        }
        if let Some(stamp) = entry.chain_dependency() {
            // entries of an older head expire with it
            stamp.record_newer_entry_head();
        }
        if let Some(height) = built.shows {
            self.report_shown_block(height);
        }
        let entry = Arc::new(entry);
        if keeps_stale {
            entry.mark_stale_allowed();
        }
        let is_current =
            || self.shared.purge_generation() == generation && entry.is_unaffected_by_reorgs();
        let is_fresh = entry.is_fresh(now);
        if let Some((other_key, other)) = &self.contradicts {
            if entry.is_dispatched_before(other) && other.is_fresh(now) {
                // the entry in the other format is newer
                if let Some(owner) = self.shared.owner_client() {
                    owner.release_lease(built.key);
                }
                let is_current = is_current();
                return (entry, is_current);
            }
            if let Some(hot) = self.shared.hot_tier() {
                hot.remove_same_entry(other_key, other);
            }
        }
        let mut is_newest = true;
        if let Some(hot) = self.shared.hot_tier() {
            if is_fresh || entry.may_serve_or_revalidate(now) {
                // a purge may come into effect on another thread
                let inserted = hot.insert_newest_if(built.key, &entry, is_current);
                is_newest = inserted.unwrap_or(true);
            }
        }
        if let Some(owner) = self.shared.owner_client() {
            if !is_fresh || !is_newest {
                // other processes wait for it under a lease
                owner.release_lease(built.key);
                let is_current = self.shared.purge_generation() == generation;
                return (entry, is_current);
            }
            match StoredEntryAttributes::attributes_for_entry(
                &entry,
                namespace,
                built.method.as_deref(),
                generation,
            ) {
                Some(about) => {
                    let entry = Arc::clone(&entry);
                    let options = OwnerStoreOptions {
                        if_final: built.if_final,
                        is_shareable: !self.settings.has_keyed_fields
                            && self.scope.has_only_public_headers()
                            && self.has_comparable_heights(),
                        anchor: built.anchor,
                    };
                    owner.store_at_owner(built.key, entry, about, options, now);
                }
                None => owner.release_lease(built.key),
            }
        }
        let is_current = self.shared.purge_generation() == generation;
        (entry, is_current)
    }

    /// Whether the heights of the responses are in the unit of the followed chain, so that the owners
    /// of other machines can compare them with theirs.
    fn has_comparable_heights(&self) -> bool {
        let heights = match self.target {
            FillTarget::Resource(_) => HeightUnit::Slots,
            FillTarget::Call(_) | FillTarget::Batch(_) => HeightUnit::Blocks,
        };
        self.dispatch_mark()
            .is_none_or(|mark| mark.heights == heights)
    }

    /// Reports the block of a compressed body, which was not read on its way to the client.
    fn report_shown_block(&self, height: u64) {
        let sighting = ShownBlock {
            height,
            is_block: false,
        };
        let namespace = &self.settings.namespace;
        let Some(owner) = self.shared.owner_client() else {
            return;
        };
        let chain = owner.followed_chains().get(namespace);
        if chain.is_some_and(|chain| chain.record_shown_block(sighting)) {
            owner.report_shown_block(namespace, sighting);
        }
    }

    /// Whether the followers of the fill wait for that key.
    fn leads_flight_for_key(&self, key: &CacheKey) -> bool {
        self.token
            .as_ref()
            .is_some_and(|token| token.leads_flight_of(key))
    }

    /// Ends the fill without an entry: its followers send their requests to the node.
    pub(in crate::exchange) fn finish_unstored(mut self) {
        self.report_unanswered_verification();
        self.end_remaining_flights();
    }

    /// Ends the fill without an entry and adds the key to the negative cache, because the next
    /// response is expected to be the same.
    pub(in crate::exchange) fn finish_uncacheable(self) {
        if self.compared.is_none() {
            self.remember_uncacheable(UncacheableSharing::RequesterOnly);
        }
        self.finish_unstored();
    }

    /// Reports a hit verification that has no response to compare with.
    fn report_unanswered_verification(&mut self) {
        if self.compared.take().is_some() {
            self.shared
                .verified
                .record_verdict(HitVerificationVerdict::Unanswered, None);
        }
    }

    /// Records the key in the negative cache. Fills of several keys, and those whose key has
    /// changed, are not recorded.
    fn remember_uncacheable(&self, sharing: UncacheableSharing) {
        if let (Some(key), false) = (self.target.single_cache_key(), self.rekeyed) {
            self.shared
                .negative_cache
                .remember_uncacheable_key(&key, sharing);
        }
    }

    /// Ends the remaining flights without a response: their followers query the node.
    fn end_remaining_flights(&mut self) {
        for token in self.token.take().into_iter().chain(self.tokens.drain(..)) {
            self.shared
                .finish_flight_and_wake(token, FlightOutcome::NotShareable);
        }
    }
}

impl Drop for CacheFill {
    /// Hands leadership over to the next follower: the request ended before its response did.
    fn drop(&mut self) {
        self.report_unanswered_verification();
        for token in self.token.take().into_iter().chain(self.tokens.drain(..)) {
            self.shared.hand_over_flight(token);
        }
    }
}
