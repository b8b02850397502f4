//! Removal of inactive entries.

use super::*;

#[test]
fn entries_are_not_removed_without_an_inactivity_period() {
    let (owner, model) = owner();
    owner
        .put_fetched_entry(&KEY, &immutable_entry(5), None, at(0))
        .unwrap();
    owner
        .write_to_store(&KEY, &immutable_entry(5), at(0))
        .unwrap();
    owner.expire_inactive_entries(at(50_000));
    assert!(owner.memory.get_uncounted(&KEY, at(50_000)).is_some());
    assert!(model.contents.contains_key(&KEY));
}

#[test]
fn requested_entries_are_stored_again_and_inactive_ones_removed() {
    let other = [8; 32];
    let (owner, model) = owner();
    let owner = owner.with_inactivity_period(Some(4_000));
    for key in [KEY, other] {
        owner
            .put_fetched_entry(&key, &immutable_entry(5), None, at(0))
            .unwrap();
        let found = found(owner.lookup_without_disk_wait(&key, at(0)));
        owner.write_to_store(&key, &found.kept, at(0)).unwrap();
    }
    // not at every hit: once a quarter
    let mut writes = 0;
    for now in (100..10_000).step_by(100) {
        let found = found(owner.lookup_without_disk_wait(&KEY, at(now)));
        if found.is_to_be_stored {
            owner.write_to_store(&KEY, &found.kept, at(now)).unwrap();
            writes += 1;
        }
        owner.expire_inactive_entries(at(now));
        let is_there = owner.memory.get_uncounted(&other, at(now)).is_some();
        assert_eq!(is_there, now <= 4_000, "{now}");
        if now < 6_000 {
            assert!(model.contents.contains_key(&other));
        }
    }
    assert_eq!(writes, 9);
    assert!(!model.contents.contains_key(&other));
}
