//! Tests of entries that are offered while the queue of stores is full.

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::Owner;

use super::*;
use crate::clock::read_clocks;
use crate::fleet::lease_table::FleetLeases;
use crate::fleet::purge::FleetPurges;
use crate::fleet::store_queue::StoreQueue;
use crate::fleet::tier::{FleetTier, FleetTierCounters};
use crate::open_store::create_store_opener;

#[tokio::test(start_paused = true)]
async fn filled_entry_is_not_prepared_for_a_full_queue() {
    let test = TestClient::connected().await;
    let folder = tempfile::tempdir().unwrap();
    let log: LogFunction = Arc::new(|_, _| {});
    let mut open = create_store_opener(&folder.path().join("store"), 64 << 20, log);
    let owner = Owner::new(open(read_clocks()).unwrap(), 1 << 20, read_clocks());
    let settings = tcp_settings("redis://localhost");
    let (client, keyring) = (test.client.clone(), Arc::new(FleetKeyring::unkeyed()));
    let purges = FleetPurges::new(
        &settings,
        folder.path(),
        client.clone(),
        Arc::clone(&keyring),
    );
    let tier = FleetTier {
        settings,
        keyring,
        client,
        purges: Arc::new(purges),
        stores: StoreQueue::new(),
        leases: FleetLeases::new(),
        owner: Arc::new(owner),
        counters: FleetTierCounters::default(),
    };
    let about = StoredEntryAttributes {
        class: LifetimeClass::Immutable,
        namespace: [1; 16],
        method: None,
        block: Some(1),
        generation: 0,
        epoch: 1,
        height: Some(1),
    };
    let entry = OwnerMemoryEntry::new(about, vec![0; 8], 60_000, read_clocks());
    let entry = entry.mark_shareability(true);
    let is_offered = || tier.record_fill(&[1; 32], &entry, tier.settings.cost_ms);
    let dropped = || tier.stores.dropped.load(Ordering::Relaxed);
    assert!(is_offered());
    let queue = &tier.stores.queue;
    let places = queue.try_reserve_many(queue.capacity()).unwrap();
    assert!(!is_offered());
    assert_eq!(dropped(), 1);
    assert!(entry.is_unshared(), "it can be offered later");
    drop(places);
    assert!(is_offered());
    assert_eq!(dropped(), 1);
}
