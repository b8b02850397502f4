//! Entries of this machine that are shared: which ones, and their way to the server.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use sszip_core::cache::chain::ChainState;
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::fleet::sharing::{is_shareable, value_lifetime, MIN_VALUE_LIFETIME_MS};
use sszip_core::cache::fleet::value::{encode_fleet_value, FleetValueParts};
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::tracker::ChainIdentity;
use sszip_core::cache::CacheKey;
use sszip_core::memory::can_allocate_now;
use tokio::task::{spawn_blocking, JoinSet};

use super::random_number;
use super::store_queue::{QueuedValue, MAX_WRITES};
use super::tier::FleetTier;
use crate::clock::read_clocks;

/// Distance from the head within which an entry is shared at its first fill, in blocks: most
/// requests of other machines are about recent blocks.
const RECENT_BLOCKS: u64 = 1_024;

/// Number of copies that the client makes of a value on its way to the connection.
const VALUE_COPIES: usize = 3;

impl FleetTier {
    /// Whether an entry that was just stored is offered to the fleet at its first fill: it is not
    /// final, it is about a recent block, or its node took long. Others are offered when they are
    /// filled again.
    pub(crate) fn admits_first_fill(&self, entry: &OwnerMemoryEntry, node_time_ms: u64) -> bool {
        let about = entry.entry_store_attributes();
        let anchor = entry.block_anchor();
        if !is_shareable(about, anchor.as_ref()) || !entry.is_unshared() {
            return false;
        }
        if about.class == LifetimeClass::Unfinalized {
            // its block is near the head, and it is never offered later; a task for an entry that
            // expires before it is read again is saved
            return entry.remaining_ttl(read_clocks()) >= MIN_VALUE_LIFETIME_MS;
        }
        let chain = self.owner.chain_state_of_namespace(&about.namespace);
        let is_recent = |chain: ChainState| {
            let distance = chain.head?.checked_sub(about.block?)?;
            Some(distance <= RECENT_BLOCKS)
        };
        node_time_ms >= self.settings.cost_ms || chain.and_then(is_recent).unwrap_or(false)
    }

    /// Queues an entry for its offer that a request has found, and that was read from the store: a
    /// former owner may have written it, or this one before the fleet was usable. It was filled
    /// before this request, so it is worth a value. Called for each hit of the entry until its offer
    /// is claimed.
    pub(super) fn queue_disk_entry(&self, key: &CacheKey, entry: &Arc<OwnerMemoryEntry>, now: u64) {
        if !self.client.is_store_open() {
            return;
        }
        let about = entry.entry_store_attributes();
        let length = entry.encoded_bytes().len() as u64;
        // its anchor is not on the disk
        if !is_shareable(about, None) || length > self.settings.max_entry {
            entry.claim_fleet_offer();
            return;
        }
        // after a start these are known a moment later than the first hits
        let chain = self.owner.chain_state_of_namespace(&about.namespace);
        let is_chain_known = chain.is_some_and(|chain| chain.known && !chain.wrong);
        if !is_chain_known || self.purges.position().is_none() {
            return;
        }
        let Ok(place) = self.stores.disk_entries.try_reserve() else {
            return;
        };
        if self.stores.record_offer(key, now) {
            entry.claim_fleet_offer();
        } else {
            place.send((*key, Arc::clone(entry)));
        }
    }

    /// Offers the queued entries of the store, as long as the owner serves.
    pub(crate) async fn offer_queued_disk_entries(self: Arc<Self>) {
        // locked by this task only
        let waiting = &mut *self.stores.waiting_disk_entries.lock().await;
        while let Some((key, entry)) = waiting.recv().await {
            let tier = Arc::clone(&self);
            // a panic is of one entry
            let _ = spawn_blocking(move || tier.check_and_offer_entry(&key, entry)).await;
        }
    }

    /// Offers an entry, which may have been stored unchecked.
    fn check_and_offer_entry(&self, key: &CacheKey, mut entry: Arc<OwnerMemoryEntry>) {
        if !self.client.is_store_open() {
            return;
        }
        if entry.length_if_unchecked().is_some() {
            match self.owner.check_entry_strictly(key, &entry) {
                Some(checked) => entry = checked,
                None => return,
            }
        }
        self.offer_entry(key, &entry);
    }

    /// Queues a strictly checked entry for the fleet, unless it may not be shared. While stores are
    /// not sent, the entry can be offered later.
    pub(crate) fn offer_entry(&self, key: &CacheKey, entry: &OwnerMemoryEntry) {
        if !self.client.is_store_open() {
            return;
        }
        let about = entry.entry_store_attributes();
        let anchor = entry.block_anchor();
        if !is_shareable(about, anchor.as_ref()) || entry.length_if_unchecked().is_some() {
            return;
        }
        if entry.encoded_bytes().len() as u64 > self.settings.max_entry {
            self.stores.too_long.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // before the entry is compared with the purges: it outlives all purges up to this position
        let Some(position) = self.purges.position() else {
            return;
        };
        let chain = self.owner.chain_state_of_namespace(&about.namespace);
        let Some(chain) = chain.filter(|chain| chain.known && !chain.wrong) else {
            return;
        };
        let Some(genesis) = chain.genesis else {
            return;
        };
        let now = read_clocks();
        let fresh = entry.remaining_ttl(now);
        let max = Duration::from_millis(self.settings.ttl_ms);
        let Some(ttl) = value_lifetime(fresh, max, random_number()) else {
            return;
        };
        if !self.owner.is_entry_unpurged(key, entry) || !entry.claim_fleet_offer() {
            return;
        }
        self.stores.record_offer(key, now.monotonic);
        let length = u32::try_from(entry.encoded_bytes().len()).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.stores.room).try_acquire_many_owned(length);
        let value = room.ok().and_then(|bytes| {
            let value = encode_fleet_value(
                &FleetValueParts {
                    key,
                    about,
                    anchor,
                    identity: ChainIdentity {
                        chain_id: chain.chain_id,
                        genesis,
                    },
                    heights: chain.heights,
                    position,
                    requested_at: now.unix.saturating_sub(entry.age_ms(now)),
                    expires_at: now.unix.saturating_add(fresh),
                    stored_at: now.unix,
                    entry: entry.encoded_bytes(),
                },
                &self.keyring,
            )?;
            Some(QueuedValue {
                name: self.keyring.value_name(&self.settings.prefix, key),
                value,
                ttl,
                _bytes: bytes,
            })
        });
        let queued = value.map(|value| self.stores.queue.try_send(value));
        if !matches!(queued, Some(Ok(()))) {
            self.stores.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the queued values, as long as the owner serves.
    pub(crate) async fn write_queued_values(self: Arc<Self>) {
        // locked by this task only
        let waiting = &mut *self.stores.waiting.lock().await;
        let mut writes = JoinSet::new();
        while let Some(queued) = waiting.recv().await {
            while writes.len() >= MAX_WRITES {
                writes.join_next().await;
            }
            // the client copies a value, and can't report refused memory
            if !can_allocate_now(queued.value.len().saturating_mul(VALUE_COPIES)) {
                self.stores.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let tier = Arc::clone(&self);
            writes.spawn(async move {
                let QueuedValue {
                    name, value, ttl, ..
                } = &queued;
                // counted, and logged by the client
                let _ = tier.client.set(name, value, *ttl).await;
            });
        }
    }
}
