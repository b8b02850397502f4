use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::*;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::owner::session::OwnerSession;
use crate::cache::owner_protocol::owner_message::PurgeEventScope;
use crate::cache::store::StoreWriteOutageReason;

mod direct;
mod disk_offers;
mod fleet;
mod fleet_batches;
mod following;
mod inactive;
#[path = "../../../../tests/support/memory_store.rs"]
mod memory_store;
mod polls;
mod sessions;
mod unchecked_entries;

use memory_store::{MemoryStore, SimulatedDisk, StoreContents};

const KEY: CacheKey = [7; 32];

/// The disk of a test, which is slow, and admits an entry on its second fill.
#[derive(Default)]
struct TestDisk {
    filled: Mutex<Vec<CacheKey>>,
    is_full: AtomicBool,
    /// Whether reads need no disk.
    is_ready: AtomicBool,
}

impl SimulatedDisk for Arc<TestDisk> {
    fn would_block(&self, _: &CacheKey) -> bool {
        !self.is_ready.load(Relaxed)
    }

    fn check_write(&self, length: usize) -> Result<(), StoreWriteRejection> {
        match (self.is_full.load(Relaxed), length) {
            (true, _) => Err(StoreWriteRejection::Off(StoreWriteOutageReason::DiskFull)),
            (false, 0..=100_000) => Ok(()),
            _ => Err(StoreWriteRejection::TooLarge),
        }
    }

    fn record_fill(&self, key: &CacheKey) -> bool {
        let mut filled = self.filled.lock().unwrap();
        let is_second = filled.contains(key);
        filled.push(*key);
        is_second
    }
}

/// The store of an owner, as its test controls it.
#[derive(Default)]
struct ModelStore {
    contents: Arc<StoreContents>,
    disk: Arc<TestDisk>,
}

fn at(monotonic: u64) -> ClockReading {
    ClockReading {
        monotonic,
        unix: 1_000_000 + monotonic,
    }
}

fn name(name: &str) -> OwnerClientName {
    OwnerClientName::new(name).unwrap()
}

fn entry_of_class(class: LifetimeClass, generation: u64, length: usize) -> Arc<OwnerMemoryEntry> {
    let about = StoredEntryAttributes {
        class,
        namespace: [1; 16],
        generation,
        ..StoredEntryAttributes::default()
    };
    Arc::new(OwnerMemoryEntry::new(about, vec![9; length], 60_000, at(0)))
}

fn immutable_entry(generation: u64) -> Arc<OwnerMemoryEntry> {
    entry_of_class(LifetimeClass::Immutable, generation, 100)
}

fn owner() -> (Owner, ModelStore) {
    owner_with_memory(20_000)
}

fn owner_with_memory(bytes: u64) -> (Owner, ModelStore) {
    let model = ModelStore::default();
    let store = MemoryStore {
        contents: Arc::clone(&model.contents),
        disk: Box::new(Arc::clone(&model.disk)),
    };
    (Owner::new(Box::new(store), bytes, at(0)), model)
}

fn found(look_up: OwnerMemoryLookupResult) -> OwnerHit {
    match look_up {
        OwnerMemoryLookupResult::Found(found) => found,
        other => panic!("{other:?}"),
    }
}

fn granted(owner: &Owner, process: &str) -> bool {
    let shared = &mut owner.shared.lock().unwrap();
    match owner.acquire_lease(shared, &KEY, &name(process), 1_000, at(0)) {
        Ok(LeaseReply::Granted) => true,
        Ok(LeaseReply::Pending) => false,
        other => panic!("{other:?}"),
    }
}

fn open_session(owner: &Owner, process: &str) -> OwnerSession {
    let request = sessions::request(process, 1, 0);
    let opened = owner.open_session(&request, sessions::MAX_ENTRY, at(0));
    opened.unwrap()
}

/// Takes the events of a session, which acknowledges them.
fn take_events(owner: &Owner, session: &mut OwnerSession) -> Vec<SessionEvent> {
    let id = session.id();
    let first_event = || {
        let shared = owner.shared.lock().unwrap();
        shared.processes.session_event_after(id, 0)
    };
    let mut events = Vec::new();
    while let Some((number, event)) = first_event() {
        events.push(event);
        owner.acknowledge_session_events(session, number).unwrap();
    }
    events
}

#[test]
fn store_is_queried_after_memory_and_fills_it() {
    let (owner, _model) = owner();
    assert!(matches!(
        owner.lookup_without_disk_wait(&KEY, at(0)),
        OwnerMemoryLookupResult::Missing
    ));
    owner
        .write_to_store(&KEY, &immutable_entry(5), at(0))
        .unwrap();
    assert!(matches!(
        owner.lookup_without_disk_wait(&KEY, at(0)),
        OwnerMemoryLookupResult::QueryStore
    ));
    let hit = owner.lookup_in_store(&KEY, at(100)).unwrap();
    assert!(!hit.is_to_be_stored);
    assert_eq!(
        (hit.kept.age_ms(at(100)), hit.kept.remaining_ttl(at(100))),
        (100, 59_900)
    );
    assert!(!found(owner.lookup_without_disk_wait(&KEY, at(200))).is_to_be_stored);
    assert!(owner.lookup_in_store(&KEY, at(60_000)).is_none());
}

#[test]
fn ready_store_entry_is_found_without_waiting() {
    let (owner, model) = owner();
    model.disk.is_ready.store(true, Relaxed);
    owner
        .write_to_store(&KEY, &immutable_entry(5), at(0))
        .unwrap();
    let hit = found(owner.lookup_without_disk_wait(&KEY, at(100)));
    assert_eq!(hit.kept.remaining_ttl(at(100)), 59_900);
    assert!(Arc::ptr_eq(
        &found(owner.lookup_without_disk_wait(&KEY, at(200))).kept,
        &hit.kept
    ));
    assert!(matches!(
        owner.lookup_without_disk_wait(&KEY, at(60_000)),
        OwnerMemoryLookupResult::Missing
    ));
    let expected = json!({ "store": 1, "memory": 1, "missed": 1 });
    assert_eq!(owner.owner_status_json()["lookups"], expected);
}

#[test]
fn entry_too_long_for_memory_is_stored_at_once() {
    let (owner, model) = owner();
    assert!(owner.memory_fits_entry(10_000));
    assert!(!owner.memory_fits_entry(50_000));
    let long = entry_of_class(LifetimeClass::Resource, 5, 50_000);
    assert_eq!(owner.put_fetched_entry(&KEY, &long, None, at(0)), Ok(false));
    // it is sent from the store each time
    for _ in 0..2 {
        let found = owner.lookup_in_store(&KEY, at(0)).unwrap();
        assert_eq!(found.kept.encoded_bytes().len(), 50_000);
        assert!(owner.memory.get_uncounted(&KEY, at(0)).is_none());
    }
    let put = |class, length| {
        owner.put_fetched_entry(&KEY, &entry_of_class(class, 5, length), None, at(0))
    };
    assert_eq!(
        put(LifetimeClass::Unfinalized, 50_000),
        Err(EntryRejection::TooLong)
    );
    assert_eq!(
        put(LifetimeClass::Immutable, 200_000),
        Err(EntryRejection::TooLong)
    );
    model.disk.is_full.store(true, Relaxed);
    assert_eq!(
        put(LifetimeClass::Immutable, 50_000),
        Err(EntryRejection::Off("the disk is full".into()))
    );
    assert_eq!(put(LifetimeClass::Immutable, 100), Ok(true));
    assert_eq!(put(LifetimeClass::Tip, 100), Ok(false));
}

#[test]
fn purged_entry_leaves_memory_when_it_is_looked_up_or_swept() {
    let (owner, _model) = owner();
    let keys = [[1; 32], [2; 32], [3; 32]];
    let fill = |generation| {
        for key in &keys {
            owner
                .put_fetched_entry(key, &immutable_entry(generation), None, at(0))
                .unwrap();
        }
    };
    fill(5);
    for (generation, scope) in [
        (6, PurgeScope::Everything),
        (7, PurgeScope::Namespace([1; 16])),
        (8, PurgeScope::Key(keys[2])),
    ] {
        assert_eq!(owner.purge_entries(&scope, || at(0)), Ok(generation));
        // a purge does not search the memory
        assert_eq!(
            owner.owner_status_json()["memory"]["entries"],
            3,
            "{scope:?}"
        );
        assert!(!matches!(
            owner.lookup_without_disk_wait(&keys[2], at(0)),
            OwnerMemoryLookupResult::Found(_)
        ));
        assert!(owner.get_from_memory(&keys[2], at(0)).is_none());
        assert_eq!(
            owner.owner_status_json()["memory"]["entries"],
            2,
            "{scope:?}"
        );
        // an entry that was filled since stays
        owner
            .put_fetched_entry(&keys[0], &immutable_entry(generation), None, at(0))
            .unwrap();
        let swept = match scope {
            PurgeScope::Key(_) => 0,
            _ => 1,
        };
        assert_eq!(
            owner.remove_purged_from_memory(&scope, generation),
            swept,
            "{scope:?}"
        );
        assert!(matches!(
            owner.lookup_without_disk_wait(&keys[0], at(0)),
            OwnerMemoryLookupResult::Found(_)
        ));
        fill(generation);
    }
    owner
        .purge_entries(&PurgeScope::Key(keys[1]), || at(0))
        .unwrap();
    assert_eq!(
        owner.remove_purged_from_memory(&PurgeScope::Key(keys[1]), 9),
        1
    );
    assert_eq!(
        owner.remove_purged_from_memory(&PurgeScope::Key(keys[1]), 9),
        0
    );
}

#[test]
fn purge_is_in_effect_and_published_when_it_cannot_be_written() {
    let (owner, model) = owner();
    let mut session = open_session(&owner, "a");
    owner
        .put_fetched_entry(&KEY, &immutable_entry(5), None, at(0))
        .unwrap();
    model.disk.is_full.store(true, Relaxed);
    assert!(owner
        .purge_entries(&PurgeScope::Key(KEY), || at(0))
        .is_err());
    assert!(!matches!(
        owner.lookup_without_disk_wait(&KEY, at(0)),
        OwnerMemoryLookupResult::Found(_)
    ));
    let purge = SessionEvent::Purge {
        generation: 6,
        scope: PurgeEventScope::Key(KEY),
    };
    assert_eq!(take_events(&owner, &mut session), [purge]);
}

#[test]
fn close_stores_fresh_entries_of_storable_classes() {
    let (owner, model) = owner();
    for (n, class) in LifetimeClass::ALL.iter().enumerate() {
        let entry = entry_of_class(*class, 5, 100);
        owner
            .put_fetched_entry(&[n as u8; 32], &entry, None, at(0))
            .unwrap();
    }
    owner.write_memory_to_store(at(100)).unwrap();
    let mut stored: Vec<_> = model
        .contents
        .entries
        .lock()
        .unwrap()
        .keys()
        .copied()
        .collect();
    stored.sort_unstable();
    assert_eq!(stored, [[0; 32], [5; 32]]);
    owner
        .put_fetched_entry(&KEY, &immutable_entry(5), None, at(0))
        .unwrap();
    owner.write_memory_to_store(at(60_000)).unwrap();
    assert_eq!(model.contents.entries.lock().unwrap().len(), 2);
}

#[test]
fn fill_is_not_found_after_a_concurrent_purge_of_its_generation() {
    let (owner, _model) = owner();
    let (accepted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let generation = owner.owner_store.purge_generation();
                let outcome = match owner.put_fetched_entry(
                    &KEY,
                    &immutable_entry(generation),
                    None,
                    at(0),
                ) {
                    Ok(_) => &accepted,
                    // a purge came between the two
                    Err(_) => &refused,
                };
                outcome.fetch_add(1, Relaxed);
            }
        });
        let began = Instant::now();
        while accepted.load(Relaxed) < 300 || refused.load(Relaxed) < 10 {
            let generation = owner
                .purge_entries(&PurgeScope::Key(KEY), || at(0))
                .unwrap();
            let found = owner.lookup_without_disk_wait(&KEY, at(0));
            let is_late = began.elapsed() > Duration::from_secs(600);
            if is_late
                || matches!(&found, OwnerMemoryLookupResult::Found(hit) if hit.kept.entry_store_attributes().generation < generation)
            {
                is_over.store(true, Relaxed);
                panic!("{found:?}, {generation}; {accepted:?} accepted, {refused:?} refused");
            }
        }
        is_over.store(true, Relaxed);
    });
}
