//! The third tier of the owner: entries that other machines have stored in the fleet.
//!
//! Memory and the store of the machine come first. The fleet is queried for what they don't have, by
//! the process that would fetch it from the node otherwise, and for `cache_fleet`'s `timeout` at
//! most. Each value is checked before it is used: it is of this key and this chain, no purge covers
//! it, and the owner's own node has its block, as final or with the hash of the value's anchor.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sszip_core::cache::fleet::keyring::FleetKeyring;
use sszip_core::cache::fleet::leases::is_fleet_lease;
use sszip_core::cache::fleet::sharing::{NotServable, ServableValue};
use sszip_core::cache::fleet::value::{decode_fleet_value, FleetValueRejection};
use sszip_core::cache::owner::fleet_gate::FleetGate;
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::Owner;
use sszip_core::cache::CacheKey;
use sszip_core::config::fleet::FleetSettings;
use tokio::task::block_in_place;

use super::client::FleetClient;
use super::lease_table::FleetLeases;
use super::purge::FleetPurges;
use super::store_queue::StoreQueue;
use crate::clock::read_clocks;

/// Length from which on a value is checked on a thread that may block, in bytes.
const LONG_VALUE_BYTES: usize = 256 << 10;

/// The fleet of an owner: its connections, its purges, its queue of entries to store.
pub struct FleetTier {
    pub(crate) settings: FleetSettings,
    pub(crate) keyring: Arc<FleetKeyring>,
    pub(crate) client: FleetClient,
    pub(crate) purges: Arc<FleetPurges>,
    pub(crate) stores: StoreQueue,
    pub(crate) leases: FleetLeases,
    pub(crate) owner: Arc<Owner>,
    pub(crate) counters: FleetTierCounters,
}

/// The counts of values that were found in the fleet and not used.
#[derive(Debug, Default)]
pub(crate) struct FleetTierCounters {
    /// By [`FleetValueRejection::ALL`].
    pub(crate) rejected: [AtomicU64; FleetValueRejection::ALL.len()],
    /// By [`NotServable::ALL`].
    pub(crate) not_servable: [AtomicU64; NotServable::ALL.len()],
    pub(crate) purged: AtomicU64,
}

/// The result of the query of one key.
pub(super) enum QueriedKey {
    /// A value that may be used.
    Servable(ServableValue),
    /// A value that may not be used.
    Unusable,
    /// The lease of this owner or of another one, which fetches the response.
    Leased { is_own: bool },
    /// The server has no value.
    Absent,
    /// The server has not replied in time, or was not queried.
    NoReply,
}

/// The gate of a tier. It does not keep the tier, which keeps the owner: an owner that has ended
/// must close its store. It reads one flag while a connection is not used.
pub(crate) struct FleetTierGate {
    tier: Weak<FleetTier>,
    /// Whether the connection of lookups is used.
    sends_lookups: Arc<AtomicBool>,
    /// Whether the connection of stores is used.
    sends_stores: Arc<AtomicBool>,
}

impl FleetTierGate {
    pub(super) fn new(tier: &Arc<FleetTier>) -> Self {
        let [sends_lookups, sends_stores] = tier.client.connected_flags();
        Self {
            tier: Arc::downgrade(tier),
            sends_lookups,
            sends_stores,
        }
    }
}

impl FleetGate for FleetTierGate {
    fn is_open(&self, now: u64) -> bool {
        self.sends_lookups.load(Ordering::Relaxed)
            && self
                .tier
                .upgrade()
                .is_some_and(|tier| tier.purges.is_current(now))
    }

    fn offer_disk_entry(&self, key: &CacheKey, entry: &Arc<OwnerMemoryEntry>, now: u64) {
        if !self.sends_stores.load(Ordering::Relaxed) {
            return;
        }
        if let Some(tier) = self.tier.upgrade() {
            tier.queue_disk_entry(key, entry, now);
        }
    }
}

impl FleetTier {
    /// Queries one key, for `wait` milliseconds at most.
    pub(super) async fn query_key(&self, key: &CacheKey, wait: u64) -> QueriedKey {
        let wait = Duration::from_millis(wait.min(self.settings.timeout_ms));
        let name = self.keyring.value_name(&self.settings.prefix, key);
        let bytes = match self.client.get(&name, wait).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return QueriedKey::Absent,
            // counted, and logged by the client
            Err(_) => return QueriedKey::NoReply,
        };
        if is_fleet_lease(&bytes) {
            return QueriedKey::Leased {
                is_own: self.leases.is_own_lease(&bytes),
            };
        }
        let value = match bytes.len() > LONG_VALUE_BYTES {
            true => block_in_place(|| self.check_value(key, bytes)),
            false => self.check_value(key, bytes),
        };
        value.map_or(QueriedKey::Unusable, QueriedKey::Servable)
    }

    /// Decodes a value of the fleet, and returns it if it may be used.
    fn check_value(&self, key: &CacheKey, bytes: Vec<u8>) -> Option<ServableValue> {
        let now = read_clocks();
        let max_entry = usize::try_from(self.settings.max_entry).unwrap_or(usize::MAX);
        let value = match decode_fleet_value(bytes, &self.keyring, key, now.unix, max_entry) {
            Ok(value) => value,
            Err(rejection) => {
                increment_for_name(
                    &self.counters.rejected,
                    FleetValueRejection::ALL,
                    &rejection,
                );
                return None;
            }
        };
        let position = value.position;
        let value = match self.owner.check_fleet_value(value, now) {
            Ok(value) => value,
            Err(reason) => {
                increment_for_name(&self.counters.not_servable, NotServable::ALL, &reason);
                return None;
            }
        };
        // after the check: a purge that has begun by now, also one of blocks that are not final any
        // more, may cover the value
        if !self.purges.is_current(read_clocks().monotonic)
            || self.purges.covers(position, key, &value.about)
        {
            self.counters.purged.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(value)
    }
}

/// Increments the counter of one of `all`.
fn increment_for_name<T: PartialEq>(counters: &[AtomicU64], all: &[T], one: &T) {
    let at = all.iter().position(|other| other == one);
    if let Some(counter) = at.and_then(|at| counters.get(at)) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
