//! Entries that are stored unchecked and read strictly at the first hit, and entries that are
//! recompressed on their way to the store.

use crate::cache::entry::recompress::recompress;
use crate::cache::entry::wire::{decode, Encoded};
use crate::cache::entry::{Entry, Envelope, Gate, IdPlace, Meta};

use super::*;

/// An unchecked entry, in wire format.
fn unread(generation: u64, result: &str) -> Arc<Kept> {
    let envelope = Envelope {
        id: IdPlace::BeforeResult,
        before: br#"{"jsonrpc":"2.0","id":"#[..].into(),
        between: br#","result":"#[..].into(),
        after: b"}"[..].into(),
    };
    let gate = Gate {
        min_length: 100,
        level: 1,
    };
    let entry = Entry::code(envelope, result.as_bytes(), gate, Meta::default()).unwrap();
    let body = Encoded::of(&entry.unread()).unwrap().to_vec();
    let kept = kept_of(Class::Immutable, generation, 0);
    Arc::new(Kept::new(kept.about().clone(), body, 60_000, at(0)))
}

fn results() -> [String; 2] {
    ["null".into(), format!("[{}1]", "\"0x00\",".repeat(500))]
}

#[test]
fn read_entry_replaces_the_unchecked_one() {
    for result in results() {
        let (owner, _) = owner();
        let kept = unread(5, &result);
        assert_eq!(kept.unread(), Some(result.len() as u64));
        owner.put(&KEY, &kept, None, at(0)).unwrap();
        let hit = found(owner.look_up(&KEY, at(1)));
        assert!(hit.is_to_be_stored);
        let read = owner.read(&KEY, &hit.kept).unwrap();
        assert_eq!(read.unread(), None);
        assert!(!read.is_to_be_stored(), "whoever was told so stores it");
        let there = found(owner.look_up(&KEY, at(1)));
        assert!(Arc::ptr_eq(&there.kept, &read) && !there.is_to_be_stored);
        assert_eq!(read.fresh(at(7)), kept.fresh(at(7)));
        let [before, after] = [&kept, &read].map(|kept| decode(kept.body(), 0, 0, 0).unwrap());
        assert!(before.is_unread() && !after.is_unread());
        assert_eq!(
            before.gzip(b"1").unwrap().to_vec(),
            after.gzip(b"1").unwrap().to_vec()
        );
    }
}

#[test]
fn unchecked_entry_is_removed_when_it_is_no_valid_result() {
    for result in ["nul", "1,2", "1 ", "\"a\"\"", &"[1,".repeat(200)] {
        let (owner, _) = owner();
        let kept = unread(5, result);
        owner.put(&KEY, &kept, None, at(0)).unwrap();
        assert!(owner.read(&KEY, &kept).is_none(), "{result}");
        assert!(matches!(owner.look_up(&KEY, at(1)), LookUp::Missing));
    }
}

#[test]
fn newer_or_purged_entry_is_not_replaced_by_the_read_one() {
    let [_, result] = results();
    let (owner, _) = owner();
    let (old, new) = (unread(5, &result), unread(5, "nul"));
    owner.put(&KEY, &old, None, at(0)).unwrap();
    owner.put(&KEY, &new, None, at(0)).unwrap();
    assert!(owner.read(&KEY, &old).is_some());
    assert!(Arc::ptr_eq(&found(owner.look_up(&KEY, at(1))).kept, &new));
    // a purged entry does not come back
    owner.purge(&Scope::Everything, || at(1)).unwrap();
    assert!(owner.read(&KEY, &old).is_some());
    assert!(matches!(owner.look_up(&KEY, at(1)), LookUp::Missing));
}

/// An entry that can be recompressed, and its recompressed body.
fn recompressible(generation: u64) -> (Arc<Kept>, Vec<u8>) {
    let text: Vec<_> = (0..400u32)
        .map(|n| format!("\"{:08x}0000\"", n.wrapping_mul(n * 97)))
        .collect();
    let kept = unread(generation, &format!("[{}]", text.join(",")));
    let smaller = recompress(kept.body()).unwrap();
    assert!(smaller.len() < kept.body().len());
    (kept, smaller)
}

#[test]
fn recompressed_entry_replaces_the_original_and_is_stored() {
    let (owner, model) = owner();
    let (first, smaller) = recompressible(5);
    owner.put(&KEY, &first, None, at(0)).unwrap();
    let hit = found(owner.look_up(&KEY, at(1)));
    assert!(hit.is_to_be_stored);
    let saved = (first.body().len() - smaller.len()) as u64;
    let other = owner
        .recompressed(&KEY, &hit.kept, smaller.clone())
        .unwrap();
    assert!(!other.is_to_be_stored(), "whoever was told so stores it");
    owner.store(&KEY, &other, at(10)).unwrap();
    let there = found(owner.look_up(&KEY, at(20)));
    assert!(Arc::ptr_eq(&there.kept, &other) && !there.is_to_be_stored);
    assert_eq!(other.about(), first.about());
    assert_eq!(other.fresh(at(20)), first.fresh(at(20)));
    assert_eq!(other.unread(), first.unread());
    let stored = model.entries.lock().unwrap()[&KEY].clone();
    assert_eq!(stored.body.as_ref(), smaller);
    assert_eq!(stored.header.about.generation, 5);
    assert_eq!(stored.header.expires_at, at(0).unix + 60_000);
    let expected = json!({ "entries": 1, "saved": saved });
    assert_eq!(owner.status()["recompressed"], expected);
    // an entry that has left memory is stored as well
    owner.memory.sweep(|_, _| true);
    assert!(owner.recompressed(&KEY, &first, smaller).is_some());
    assert_eq!(owner.status()["memory"]["entries"], 0);
}

/// A process may read the entry while it is recompressed, and the entry is stored once.
#[test]
fn recompressed_entry_replaces_one_that_was_read_in_the_meantime() {
    let (owner, _) = owner();
    let [_, result] = results();
    let kept = unread(5, &result);
    owner.put(&KEY, &kept, None, at(0)).unwrap();
    let hit = found(owner.look_up(&KEY, at(1)));
    assert!(hit.is_to_be_stored);
    let read = owner.read(&KEY, &hit.kept).unwrap();
    let also = owner.read(&KEY, &hit.kept).unwrap();
    let smaller = recompress(also.body()).unwrap();
    assert!(Arc::ptr_eq(&read, &also), "it is read once");
    let other = owner.recompressed(&KEY, &also, smaller).unwrap();
    let there = found(owner.look_up(&KEY, at(2)));
    assert!(Arc::ptr_eq(&there.kept, &other) && !there.is_to_be_stored);
    // the write to the store failed
    other.is_not_stored();
    assert!(found(owner.look_up(&KEY, at(3))).is_to_be_stored);
}

#[test]
fn recompressed_entry_is_dropped_when_it_was_purged_or_filled_again() {
    for purge in [Some(Scope::Everything), Some(Scope::Key(KEY)), None] {
        let (owner, _) = owner();
        let (first, smaller) = recompressible(5);
        owner.put(&KEY, &first, None, at(0)).unwrap();
        if let Some(scope) = &purge {
            owner.purge(scope, || at(5)).unwrap();
        }
        let (newer, _) = recompressible(5 + u64::from(purge.is_some()));
        let is_filled = purge != Some(Scope::Everything);
        if is_filled {
            owner.put(&KEY, &newer, None, at(6)).unwrap();
        }
        assert!(owner.recompressed(&KEY, &first, smaller).is_none());
        match owner.look_up(&KEY, at(11)) {
            LookUp::Found(found) => assert!(is_filled && Arc::ptr_eq(&found.kept, &newer)),
            other => assert!(!is_filled, "{other:?}"),
        }
        assert_eq!(owner.status()["recompressed"]["entries"], 0);
    }
}

#[test]
fn opaque_body_is_not_unchecked() {
    assert_eq!(kept(5).unread(), None);
}
