//! The third tier of the owner: entries that other machines have stored in the fleet.
//!
//! Memory and the store of the machine come first. The fleet is queried for what they don't have, by
//! the process that would fetch it from the node otherwise, and for `cache_fleet`'s `timeout` at
//! most. Each value is checked before it is used: it is of this key and this chain, no purge covers
//! it, and the owner's own node has its block, as final or with the hash of the value's anchor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use sszip_core::cache::fleet::gate::FleetGate;
use sszip_core::cache::fleet::keyring::FleetKeyring;
use sszip_core::cache::fleet::sharing::{NotServable, ServableValue};
use sszip_core::cache::fleet::value::{decode_fleet_value, FleetValueRejection};
use sszip_core::cache::owner::session_tasks::{FleetBatchLookup, FleetLookup};
use sszip_core::cache::owner::Owner;
use sszip_core::cache::CacheKey;
use sszip_core::config::fleet::FleetSettings;
use tokio::task::block_in_place;

use super::client::FleetClient;
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

/// The gate of a tier. It does not keep the tier, which keeps the owner: an owner that has ended
/// must close its store.
pub(crate) struct FleetTierGate(pub(crate) Weak<FleetTier>);

impl FleetGate for FleetTierGate {
    fn is_open(&self, now: u64) -> bool {
        self.0
            .upgrade()
            .is_some_and(|tier| tier.client.is_lookup_open() && tier.purges.is_current(now))
    }
}

impl FleetTier {
    /// Looks up the value of one key. Returns `None` if the fleet has none that may be used, or does
    /// not answer in time.
    pub(crate) async fn query(&self, fleet_lookup: &FleetLookup) -> Option<ServableValue> {
        let lookup = &fleet_lookup.lookup;
        let wait = lookup.fleet_wait.remaining_ms(read_clocks());
        self.query_key(&lookup.key, wait).await
    }

    /// Looks up the values of several keys at once.
    pub(crate) async fn query_batch(
        &self,
        fleet_lookup: &FleetBatchLookup,
    ) -> Vec<(CacheKey, ServableValue)> {
        let wait = fleet_lookup.batch.fleet_wait.remaining_ms(read_clocks());
        let query = |key: CacheKey| async move { Some((key, self.query_key(&key, wait).await?)) };
        let queries = fleet_lookup.keys.iter().copied().map(query);
        join_all(queries).await.into_iter().flatten().collect()
    }

    async fn query_key(&self, key: &CacheKey, wait: u16) -> Option<ServableValue> {
        let wait = Duration::from_millis(u64::from(wait).min(self.settings.timeout_ms));
        let name = self.keyring.value_name(&self.settings.prefix, key);
        // counted, and logged by the client
        let bytes = self.client.get(&name, wait).await.ok()??;
        match bytes.len() > LONG_VALUE_BYTES {
            true => block_in_place(|| self.check_value(key, &bytes)),
            false => self.check_value(key, &bytes),
        }
    }

    /// Decodes a value of the fleet, and returns it if it may be used.
    fn check_value(&self, key: &CacheKey, bytes: &[u8]) -> Option<ServableValue> {
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
