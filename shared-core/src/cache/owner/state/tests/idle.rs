//! What the owner does while nobody asks.

use crate::cache::entry::{Entry, Envelope, Gate, Meta};
use crate::cache::recompress::{recompress, Recompressed};
use crate::cache::wire::Encoded;

use super::*;

/// An entry whose payload can be made smaller, in wire format.
fn coded(generation: u64) -> Arc<Kept> {
    let text: String = (0..400u32)
        .map(|n| format!("{:08x}0000", n * n * 97))
        .collect();
    let gate = Gate {
        min_length: 0,
        level: 1,
    };
    let entry = Entry::code(Envelope::none(), text.as_bytes(), gate, Meta::default()).unwrap();
    let bytes = Encoded::of(&entry).unwrap();
    let body = [&bytes.head[..], &bytes.payload].concat();
    let kept = kept_of(Class::Immutable, generation, 0);
    Arc::new(Kept::new(kept.about().clone(), body, 60_000, at(0)))
}

/// A candidate, and what is to take its place.
fn candidate(owner: &Owner) -> (Arc<Kept>, Recompressed) {
    let (key, kept) = owner.next_candidate(at(10)).unwrap();
    assert_eq!(key, KEY);
    let by = recompress(kept.body());
    (kept, by)
}

fn hits(owner: &Owner, count: usize) {
    for _ in 0..count {
        let found = found(owner.look_up(&KEY, at(1)));
        if found.is_to_be_stored {
            owner.store(&KEY, &found.kept, at(1)).unwrap();
        }
    }
}

fn recompressing() -> (Owner, Arc<Model>) {
    let (owner, model) = owner();
    (owner.recompressing(true), model)
}

#[test]
fn what_is_asked_for_often_gets_smaller_in_memory_and_in_the_store() {
    let (owner, model) = recompressing();
    let first = coded(5);
    owner.put(&KEY, &first, None, at(0)).unwrap();
    hits(&owner, 2);
    assert!(!owner.has_candidates());
    hits(&owner, 1);
    assert!(owner.has_candidates());
    let (kept, by) = candidate(&owner);
    assert!(owner.replace(&KEY, &kept, by, at(10)));
    assert!(!owner.has_candidates());
    let smaller = found(owner.look_up(&KEY, at(20))).kept;
    assert!(smaller.body().len() < first.body().len());
    assert_eq!(smaller.about(), first.about());
    assert_eq!(smaller.fresh(at(20)), first.fresh(at(20)));
    let stored = model.entries.lock().unwrap()[&KEY].clone();
    assert_eq!(stored.body.as_ref(), smaller.body());
    assert_eq!(stored.about.generation, 5);
    assert_eq!(stored.expires_at, at(0).unix + 60_000);
    let status = owner.status().recompressed;
    assert_eq!(status.entries, 1);
    let saved = first.body().len() - smaller.body().len();
    assert_eq!(status.saved, saved as u64);
    // and not again, from wherever it comes
    hits(&owner, 20);
    assert!(!owner.has_candidates());
    owner.memory.sweep(|_, _| true);
    owner.look_up_store(&KEY, at(30)).unwrap();
    hits(&owner, 3);
    let (kept, by) = candidate(&owner);
    assert!(!owner.replace(&KEY, &kept, by, at(40)));
    assert_eq!(owner.status().recompressed, status);
}

#[test]
fn what_was_not_in_the_store_does_not_get_there_by_it() {
    let (owner, model) = recompressing();
    let kept = coded(5);
    owner.put(&KEY, &kept, None, at(0)).unwrap();
    // a hit whose write was put off
    for _ in 0..3 {
        found(owner.look_up(&KEY, at(1)));
    }
    kept.is_not_stored();
    let (kept, by) = candidate(&owner);
    assert!(owner.replace(&KEY, &kept, by, at(10)));
    assert!(model.entries.lock().unwrap().is_empty());
    assert!(found(owner.look_up(&KEY, at(20))).is_to_be_stored);
}

#[test]
fn what_was_purged_or_filled_anew_meanwhile_stays_so() {
    for purge in [Some(Scope::Everything), Some(Scope::Key(KEY)), None] {
        let (owner, model) = recompressing();
        owner.put(&KEY, &coded(5), None, at(0)).unwrap();
        hits(&owner, 3);
        let (kept, by) = candidate(&owner);
        if let Some(scope) = &purge {
            owner.purge(scope, || at(5)).unwrap();
        }
        let newer = coded(5 + u64::from(purge.is_some()));
        let is_filled = purge != Some(Scope::Everything);
        if is_filled {
            owner.put(&KEY, &newer, None, at(6)).unwrap();
        }
        let written = model.entries.lock().unwrap().clone();
        assert!(!owner.replace(&KEY, &kept, by, at(10)), "{purge:?}");
        assert_eq!(*model.entries.lock().unwrap(), written);
        match owner.look_up(&KEY, at(11)) {
            LookUp::Found(found) => assert!(is_filled && Arc::ptr_eq(&found.kept, &newer)),
            other => assert!(!is_filled, "{other:?}"),
        }
        assert_eq!(owner.status().recompressed.entries, 0);
    }
}

#[test]
fn only_what_never_changes_is_a_candidate_and_their_number_is_bounded() {
    let (owner, _) = recompressing();
    let resource = kept_of(Class::Resource, 5, 10);
    owner.put(&KEY, &resource, None, at(0)).unwrap();
    hits(&owner, 10);
    assert!(!owner.has_candidates());

    let owner = Owner::new(Box::new(Arc::new(Model::default())), 1 << 20, at(0));
    let owner = owner.recompressing(true);
    let keys: Vec<Key> = (0..1_100u32)
        .map(|n| *blake3::hash(&n.to_le_bytes()).as_bytes())
        .collect();
    for key in &keys {
        owner.put(key, &kept(5), None, at(0)).unwrap();
        for _ in 0..3 {
            found(owner.look_up(key, at(1)));
        }
    }
    let waiting = || std::iter::from_fn(|| owner.next_candidate(at(2))).count();
    assert_eq!(waiting(), 1_024);
    // there is room again
    for key in &keys {
        found(owner.look_up(key, at(3)));
    }
    assert_eq!(waiting(), 1_100 - 1_024);
}

#[test]
fn without_being_told_to_nothing_is_recompressed_or_forgotten() {
    let (owner, model) = owner();
    owner.put(&KEY, &coded(5), None, at(0)).unwrap();
    hits(&owner, 10);
    assert!(!owner.has_candidates());
    owner.forget_inactive(at(50_000));
    assert!(owner.memory.peek(&KEY, at(50_000)).is_some());
    assert!(model.may_have(&KEY));
}

#[test]
fn what_is_asked_for_in_time_is_put_again_and_the_rest_forgotten() {
    let other = [8; 32];
    let (owner, model) = owner();
    let owner = owner.inactive(Some(4_000));
    for key in [KEY, other] {
        owner.put(&key, &kept(5), None, at(0)).unwrap();
        let found = found(owner.look_up(&key, at(0)));
        owner.store(&key, &found.kept, at(0)).unwrap();
    }
    // not at every hit: once a quarter
    let mut writes = 0;
    for now in (100..10_000).step_by(100) {
        let found = found(owner.look_up(&KEY, at(now)));
        if found.is_to_be_stored {
            owner.store(&KEY, &found.kept, at(now)).unwrap();
            writes += 1;
        }
        owner.forget_inactive(at(now));
        let is_there = owner.memory.peek(&other, at(now)).is_some();
        assert_eq!(is_there, now <= 4_000, "{now}");
        if now < 6_000 {
            assert!(model.may_have(&other));
        }
    }
    assert_eq!(writes, 9);
    assert!(!model.may_have(&other));
}
