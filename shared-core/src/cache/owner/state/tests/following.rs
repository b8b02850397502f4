//! The state of a chain decides which entries are valid, and is published to all processes.

use super::*;
use crate::cache::chain::{ChainChange, ChainState, HeightUnit};
use crate::cache::owner::tracker::ChainIdentity;

pub(super) const SPACE: [u8; 16] = [1; 16];

pub(super) fn following() -> (Owner, ModelStore) {
    let (owner, model) = owner();
    owner.start_following_chain(SPACE, HeightUnit::Blocks, at(0));
    owner.apply_chain_change(&SPACE, ChainChange::Head(100));
    (owner, model)
}

fn state(owner: &Owner) -> ChainState {
    owner.chains.get(&SPACE).unwrap().copy_chain_state()
}

/// An entry that was requested from the node in this epoch.
fn entry_of_epoch(
    owner: &Owner,
    epoch: u64,
    class: LifetimeClass,
    height: Option<u64>,
) -> OwnerMemoryEntry {
    let about = StoredEntryAttributes {
        epoch,
        height,
        ..entry_of_class(class, 5, 0).entry_store_attributes().clone()
    };
    owner.new_memory_entry(about, vec![9; 100], 60_000, at(0))
}

fn put(owner: &Owner, key: u8, class: LifetimeClass, height: u64) -> Result<bool, EntryRejection> {
    let entry = entry_of_epoch(owner, state(owner).epoch, class, Some(height));
    owner.put_fetched_entry(&[key; 32], &Arc::new(entry), None, at(0))
}

fn is_stored(owner: &Owner, key: u8) -> bool {
    matches!(
        owner.lookup_without_disk_wait(&[key; 32], at(0)),
        OwnerMemoryLookupResult::Found(_)
    )
}

#[test]
fn block_time_is_published_with_the_next_change() {
    let (owner, _model) = following();
    let mark = || owner.chains.get(&SPACE).unwrap().chain_mark_at_dispatch();
    owner.set_block_time(&SPACE, Some(12_000));
    // new heads may not be reported before the node is known to have the chain
    assert_eq!(mark().block_time, None);
    let identity = ChainIdentity {
        chain_id: Some(1),
        genesis: [7; 32],
    };
    owner.set_chain_identity(&SPACE, Some(identity));
    owner.apply_chain_change(&SPACE, ChainChange::Final(Some(90)));
    assert_eq!(mark().block_time, Some(12_000));
    let published = serde_json::to_value(state(&owner)).unwrap();
    assert_eq!(published["block_time"], 12_000);
    owner.apply_chain_change(&SPACE, ChainChange::Final(None));
    assert_eq!(mark().block_time, None);
}

#[test]
fn replaced_entries_are_not_found() {
    let (owner, _model) = following();
    for (key, class, height) in [
        (1, LifetimeClass::Unfinalized, 98),
        (2, LifetimeClass::Unfinalized, 99),
        (3, LifetimeClass::Tip, 100),
        (4, LifetimeClass::Immutable, 100),
        (5, LifetimeClass::Resource, 100),
    ] {
        put(&owner, key, class, height).unwrap();
    }
    assert!((1..=5).all(|key| is_stored(&owner, key)));
    owner.apply_chain_change(&SPACE, ChainChange::Head(101));
    assert_eq!(
        [1, 2, 3, 4, 5].map(|key| is_stored(&owner, key)),
        [true, true, false, true, true]
    );
    owner.apply_chain_change(&SPACE, ChainChange::Reorg { from: 99 });
    assert_eq!(
        [1, 2, 4, 5].map(|key| is_stored(&owner, key)),
        [true, false, true, true]
    );
    // a replaced entry does not keep its key from being leased either
    let shared = &mut owner.shared.lock().unwrap();
    assert!(matches!(
        owner.acquire_lease(shared, &[2; 32], &name("a"), 1_000, at(0)),
        Ok(LeaseReply::Granted)
    ));
}

#[test]
fn fill_from_before_a_reorganisation_is_refused() {
    let (owner, _model) = following();
    let before = state(&owner).epoch;
    assert!(granted(&owner, "a"));
    owner.apply_chain_change(&SPACE, ChainChange::Reorg { from: 99 });
    owner.apply_chain_change(&SPACE, ChainChange::Head(101));
    let late = |class, height| {
        let entry = Arc::new(entry_of_epoch(&owner, before, class, height));
        owner.put_fetched_entry(&KEY, &entry, Some(&name("a")), at(0))
    };
    assert_eq!(
        late(LifetimeClass::Unfinalized, Some(99)),
        Err(EntryRejection::Replaced)
    );
    // and other processes may fetch it
    assert!(granted(&owner, "b"));
    assert_eq!(
        late(LifetimeClass::Unfinalized, None),
        Err(EntryRejection::Replaced)
    );
    assert_eq!(
        late(LifetimeClass::Tip, Some(101)),
        Err(EntryRejection::Replaced)
    );
    assert_eq!(late(LifetimeClass::Unfinalized, Some(98)), Ok(false));
    assert_eq!(late(LifetimeClass::Immutable, Some(99)), Ok(false));
    // from a process that has received no state yet
    let entry = Arc::new(entry_of_epoch(
        &owner,
        0,
        LifetimeClass::Unfinalized,
        Some(1),
    ));
    assert_eq!(
        owner.put_fetched_entry(&KEY, &entry, None, at(0)),
        Err(EntryRejection::Replaced)
    );
}

#[test]
fn tip_entry_below_the_head_is_refused() {
    let (owner, _model) = following();
    put(&owner, 1, LifetimeClass::Tip, 100).unwrap();
    // a response may know the head before the owner does
    put(&owner, 2, LifetimeClass::Tip, 101).unwrap();
    assert!(!is_stored(&owner, 1) && is_stored(&owner, 2));
    assert_eq!(owner.highest_head_of_chain(&SPACE), Some(101));
    assert_eq!(
        put(&owner, 3, LifetimeClass::Tip, 100),
        Err(EntryRejection::Replaced)
    );
    owner.apply_chain_change(&SPACE, ChainChange::Head(101));
    assert!(is_stored(&owner, 2));
}

#[test]
fn chain_changes_are_published_to_every_process() {
    let (owner, _model) = owner();
    let mut early = open_session(&owner, "a");
    assert!(take_events(&owner, &mut early).is_empty());
    owner.start_following_chain(SPACE, HeightUnit::Slots, at(0));
    let chain_event = |owner: &Owner| SessionEvent::Chain {
        namespace: SPACE,
        state: Box::new(state(owner)),
    };
    assert_eq!(take_events(&owner, &mut early), [chain_event(&owner)]);
    owner.apply_chain_change(&SPACE, ChainChange::Head(100));
    assert_eq!(take_events(&owner, &mut early), [chain_event(&owner)]);
    // an unchanged state is not published
    owner.apply_chain_change(&SPACE, ChainChange::Head(100));
    owner.apply_chain_change(&[2; 16], ChainChange::Head(100));
    assert!(take_events(&owner, &mut early).is_empty());
    let mut late = open_session(&owner, "b");
    assert_eq!(take_events(&owner, &mut late), [chain_event(&owner)]);
    put(&owner, 1, LifetimeClass::Tip, 101).unwrap();
    for session in [&mut early, &mut late] {
        assert_eq!(take_events(&owner, session), [chain_event(&owner)]);
    }
    assert_eq!(state(&owner).seen, 101);
}

#[test]
fn unfinalized_entry_is_made_final_unless_it_was_replaced_or_purged() {
    use crate::cache::entry::wire::{decode_cache_entry, EncodedEntry};
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};

    let (owner, model) = following();
    let epoch = state(&owner).epoch;
    let meta = EntryMetadata {
        class: LifetimeClass::Unfinalized,
        follows: Some((SPACE, epoch)),
        ..EntryMetadata::default()
    };
    let entry = CacheEntry::new(
        EnvelopeBytes::envelope_without_bytes(),
        EntryPayload::Raw(b"{}".to_vec().into()),
        meta,
    );
    let body = EncodedEntry::from_entry(&entry).unwrap().to_vec();
    let about = entry_of_epoch(&owner, epoch, LifetimeClass::Unfinalized, None)
        .entry_store_attributes()
        .clone();
    let put = || {
        let unfinalized =
            Arc::new(owner.new_memory_entry(about.clone(), body.clone(), 2_000, at(0)));
        owner
            .put_fetched_entry(&KEY, &unfinalized, None, at(0))
            .unwrap();
        unfinalized
    };
    let made = owner
        .make_entry_immutable(&KEY, &put(), 42, 60_000, at(0))
        .unwrap();
    owner.apply_chain_change(&SPACE, ChainChange::Reorg { from: 90 });
    let hit = found(owner.lookup_without_disk_wait(&KEY, at(50_000)));
    assert!(Arc::ptr_eq(&hit.kept, &made) && hit.is_to_be_stored);
    assert_eq!(
        (
            made.entry_store_attributes().class,
            made.entry_store_attributes().block
        ),
        (LifetimeClass::Immutable, Some(42))
    );
    let read = decode_cache_entry(made.encoded_bytes(), 0, 0, 1).unwrap();
    assert_eq!(
        (
            read.response_metadata().class,
            read.response_metadata().block_number
        ),
        (LifetimeClass::Immutable, Some(42))
    );
    assert_eq!(read.response_length(b""), 2);
    // a replaced or purged entry is not made final
    let old = Arc::new(entry_of_epoch(
        &owner,
        state(&owner).epoch,
        LifetimeClass::Unfinalized,
        None,
    ));
    assert!(owner
        .make_entry_immutable(&KEY, &old, 42, 60_000, at(0))
        .is_none());
    owner
        .purge_entries(&PurgeScope::Everything, || at(0))
        .unwrap();
    assert!(owner
        .make_entry_immutable(&KEY, &made, 42, 60_000, at(0))
        .is_none());
    assert!(model.contents.entries.lock().unwrap().is_empty());
}

#[test]
fn entries_of_a_wrong_chain_are_neither_found_nor_accepted() {
    let (owner, _model) = following();
    put(&owner, 1, LifetimeClass::Immutable, 1).unwrap();
    owner
        .write_to_store(&[2; 32], &immutable_entry(5), at(0))
        .unwrap();
    owner.apply_chain_change(&SPACE, ChainChange::Wrong(true));
    assert!(!is_stored(&owner, 1));
    assert!(owner.lookup_in_store(&[2; 32], at(0)).is_none());
    assert_eq!(
        put(&owner, 3, LifetimeClass::Immutable, 1),
        Err(EntryRejection::Replaced)
    );
    owner.apply_chain_change(&SPACE, ChainChange::Wrong(false));
    assert!(owner.lookup_in_store(&[2; 32], at(0)).is_some());
    put(&owner, 3, LifetimeClass::Immutable, 1).unwrap();
}

#[test]
fn stored_entries_are_not_found_until_the_chain_is_checked() {
    let (owner, model) = following();
    let entry = entry_of_epoch(&owner, 0, LifetimeClass::Immutable, Some(50));
    owner.write_to_store(&KEY, &entry, at(0)).unwrap();
    owner.set_identity_check_pending(&SPACE, true);
    assert!(owner.lookup_in_store(&KEY, at(0)).is_none());
    model.disk.is_ready.store(true, Relaxed);
    assert!(matches!(
        owner.lookup_without_disk_wait(&KEY, at(0)),
        OwnerMemoryLookupResult::Missing
    ));
    // an entry that was fetched since is found
    put(&owner, 3, LifetimeClass::Immutable, 50).unwrap();
    assert!(is_stored(&owner, 3));
    owner.set_identity_check_pending(&SPACE, false);
    assert!(matches!(
        owner.lookup_without_disk_wait(&KEY, at(0)),
        OwnerMemoryLookupResult::Found(_)
    ));
}

#[test]
fn node_identity_is_published_and_cleared_by_a_purge() {
    let (owner, _model) = following();
    let identity = |id, hash| {
        Some(ChainIdentity {
            chain_id: Some(id),
            genesis: [hash; 32],
        })
    };
    let known = || {
        let state = state(&owner);
        (state.known, state.chain_id, state.genesis)
    };
    let mut session = open_session(&owner, "a");
    let mut published_states = || take_events(&owner, &mut session).len();
    assert_eq!(known(), (false, None, None));
    owner.set_chain_identity(&SPACE, identity(1, 1));
    assert_eq!(known(), (true, Some(1), Some([1; 32])));
    published_states();
    owner.set_chain_identity(&SPACE, identity(1, 1));
    owner.clear_chain_identities(&PurgeScope::Namespace([2; 16]));
    assert_eq!(published_states(), 0);
    for (id, scope) in [
        (5, PurgeScope::Namespace(SPACE)),
        (6, PurgeScope::Everything),
    ] {
        owner.clear_chain_identities(&scope);
        assert_eq!(known(), (true, None, None));
        owner.set_chain_identity(&SPACE, identity(id, 2));
        assert_eq!(known(), (true, Some(id), Some([2; 32])));
        assert_eq!(published_states(), 2);
    }
    owner.set_chain_identity(&SPACE, None);
    assert_eq!(known(), (false, None, None));
}
