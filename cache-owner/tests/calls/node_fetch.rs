//! Requests of a sandbox to the node, and the entries that the responses become.

use std::sync::Arc;

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use sszip_core::cache::link::OwnerLink;
use sszip_core::cache::process::flights::{FlightLeadership, FlightOutcome};
use sszip_core::cache::process::owner_client::{OwnerClient, OwnerStoreOptions};
use sszip_core::cache::process::ProcessCacheState;

use crate::history::{entry_text, Moment};
use crate::keys::{cache_key, entry_kind, EntryKind, NAMESPACE};

/// A request in flight to the node, with the entry that its response will be.
pub struct NodeFetch {
    token: Option<FlightLeadership>,
    key_number: u8,
    entry: CacheEntry,
    /// Whether enough is known of the chain to store the response.
    is_storable: bool,
    generation: u64,
}

impl NodeFetch {
    /// Starts the fetch of a key, as an exchange does after a miss.
    pub fn start(
        sandbox: usize,
        link: &OwnerLink,
        key_number: u8,
        token: Option<FlightLeadership>,
        now: Moment,
    ) -> Self {
        let mark = link.dispatch_mark(&NAMESPACE);
        let is_known = mark.is_some_and(|mark| mark.is_known);
        let (class, height) = match entry_kind(key_number) {
            EntryKind::Config => (LifetimeClass::Config, None),
            // a response about the head shows the known one
            EntryKind::Tip => (LifetimeClass::Tip, mark.map(|mark| mark.seen)),
            EntryKind::Block(height) => {
                let is_final = is_known && mark.is_some_and(|mark| mark.is_height_final(height));
                let class =
                    [LifetimeClass::Unfinalized, LifetimeClass::Immutable][usize::from(is_final)];
                (class, Some(height))
            }
        };
        let meta = EntryMetadata {
            class,
            height,
            block_number: height.filter(|_| class != LifetimeClass::Tip),
            follows: mark.map(|mark| (NAMESPACE, mark.epoch)),
            ..EntryMetadata::default()
        };
        let text = entry_text(sandbox, key_number, now);
        let payload = EntryPayload::Raw(text.into_bytes().into());
        let entry = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, meta);
        Self {
            token,
            key_number,
            entry: entry.with_lifetime(now.ms, 60_000),
            is_storable: is_known || class == LifetimeClass::Config,
            generation: link.purge_generation(),
        }
    }

    /// Handles the response of the node. By its outcome the client has gone (0), or the response
    /// is not shareable (1), must not be stored (2), or is stored and published as by a fill.
    /// `now` is in milliseconds.
    pub fn complete(self, shared: &ProcessCacheState, link: &OwnerLink, outcome: u8, now: u64) {
        let Self {
            token, generation, ..
        } = self;
        let key = cache_key(self.key_number);
        let entry = Arc::new(self.entry.with_chain_dependency(link.followed_chains()));
        match outcome {
            0 => {
                if let Some(token) = token {
                    shared.hand_over_flight(token);
                }
                return;
            }
            1 => {}
            2 => link.release_lease(key),
            _ if !self.is_storable => {}
            _ => {
                if let Some(stamp) = entry.chain_dependency() {
                    stamp.record_newer_entry_head();
                }
                let is_current = shared.purge_generation() == generation;
                if is_current && entry.is_unaffected_by_reorgs() {
                    shared.hot_tier().unwrap().insert_newest(key, &entry);
                }
                let about = StoredEntryAttributes::attributes_for_entry(
                    &entry, NAMESPACE, None, generation,
                );
                link.store_at_owner(
                    key,
                    Arc::clone(&entry),
                    about.unwrap(),
                    OwnerStoreOptions::default(),
                    now,
                );
            }
        }
        let is_current = shared.purge_generation() == generation;
        let result = match outcome > 1 && self.is_storable && is_current {
            true => FlightOutcome::Answer(entry),
            false => FlightOutcome::NotShareable,
        };
        if let Some(token) = token {
            shared.finish_flight_and_wake(token, result);
        }
    }
}
