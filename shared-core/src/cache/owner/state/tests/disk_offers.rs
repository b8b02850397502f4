//! Offers of entries from the store to the fleet.

use super::*;
use crate::cache::owner::fleet_gate::FleetGate;
use crate::cache::owner_protocol::process_message::StoreRequest;

/// A gate that records the offered keys. It claims the offers once a test permits it.
#[derive(Default)]
struct OfferGate {
    offered: Mutex<Vec<CacheKey>>,
    claims: AtomicBool,
}

impl FleetGate for OfferGate {
    fn is_open(&self, _: u64) -> bool {
        false
    }

    fn offer_disk_entry(&self, key: &CacheKey, entry: &Arc<OwnerMemoryEntry>, _: u64) {
        if self.claims.load(Relaxed) {
            entry.claim_fleet_offer();
        }
        self.offered.lock().unwrap().push(*key);
    }
}

/// Sets the gate of an owner, whose disk is ready.
fn set_offer_gate(owner: &Owner, model: &ModelStore) -> Arc<OfferGate> {
    model.disk.is_ready.store(true, Relaxed);
    let gate = Arc::<OfferGate>::default();
    owner.set_fleet_gate(Arc::clone(&gate) as _);
    gate
}

/// Stores an entry in memory and on the disk.
fn store_entry(owner: &Owner, is_shareable: bool) {
    let store = StoreRequest {
        id: 0,
        key: KEY,
        about: immutable_entry(5).entry_store_attributes().clone(),
        fresh: 60_000,
        age: 10,
        if_final: None,
        is_shareable,
        anchor: None,
        total: 100,
        entry: Vec::<u8>::new().into(),
    };
    let stored = owner
        .store_fetched_entry(None, store, vec![9; 100], at(0))
        .unwrap();
    owner.write_to_store(&KEY, &stored.entry, at(0)).unwrap();
}

/// Starts another owner over the store of a former one.
fn restart(model: &ModelStore) -> Owner {
    let store = MemoryStore {
        contents: Arc::clone(&model.contents),
        disk: Box::new(Arc::clone(&model.disk)),
    };
    Owner::new(Box::new(store), 20_000, at(0))
}

fn offers_after_lookup(owner: &Owner, gate: &OfferGate) -> usize {
    found(owner.lookup_without_disk_wait(&KEY, at(1)));
    let offered = gate.offered.lock().unwrap();
    assert!(offered.iter().all(|key| *key == KEY));
    offered.len()
}

#[test]
fn shareable_entry_of_a_former_owner_is_offered_until_its_offer_is_claimed() {
    let (former, model) = owner();
    store_entry(&former, true);
    let owner = restart(&model);
    let gate = set_offer_gate(&owner, &model);
    // from the disk, then from memory
    assert_eq!(offers_after_lookup(&owner, &gate), 1);
    assert_eq!(offers_after_lookup(&owner, &gate), 2);
    gate.claims.store(true, Relaxed);
    assert_eq!(offers_after_lookup(&owner, &gate), 3);
    assert_eq!(offers_after_lookup(&owner, &gate), 3);
}

#[test]
fn lookup_that_waits_for_the_disk_offers_the_entry() {
    let (former, model) = owner();
    store_entry(&former, true);
    let owner = restart(&model);
    let gate = set_offer_gate(&owner, &model);
    owner.lookup_in_store(&KEY, at(1)).unwrap();
    assert_eq!(*gate.offered.lock().unwrap(), [KEY]);
}

#[test]
fn entry_whose_key_has_a_header_of_a_caller_is_not_offered_after_a_restart() {
    let (former, model) = owner();
    store_entry(&former, false);
    let owner = restart(&model);
    let gate = set_offer_gate(&owner, &model);
    assert_eq!(offers_after_lookup(&owner, &gate), 0);
    assert_eq!(offers_after_lookup(&owner, &gate), 0);
}

#[test]
fn entry_that_was_just_fetched_is_not_offered_by_a_lookup() {
    let (owner, model) = owner();
    let gate = set_offer_gate(&owner, &model);
    store_entry(&owner, true);
    assert_eq!(offers_after_lookup(&owner, &gate), 0);
}
