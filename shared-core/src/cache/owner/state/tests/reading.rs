//! What was stored at a glance, and is read at the first hit.

use crate::cache::entry::{Entry, Envelope, Gate, IdPlace, Meta};
use crate::cache::wire::{decode, Encoded};

use super::*;

/// An entry that nobody has read, in wire format.
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
    let bytes = Encoded::of(&entry.unread()).unwrap();
    let body = [&bytes.head[..], &bytes.payload].concat();
    let kept = kept_of(Class::Immutable, generation, 0);
    Arc::new(Kept::new(kept.about().clone(), body, 60_000, at(0)))
}

fn results() -> [String; 2] {
    ["null".into(), format!("[{}1]", "\"0x00\",".repeat(500))]
}

#[test]
fn it_takes_the_place_of_what_nobody_had_read() {
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
fn what_is_no_answer_is_gone() {
    for result in ["nul", "1,2", "1 ", "\"a\"\"", &"[1,".repeat(200)] {
        let (owner, _) = owner();
        let kept = unread(5, result);
        owner.put(&KEY, &kept, None, at(0)).unwrap();
        assert!(owner.read(&KEY, &kept).is_none(), "{result}");
        assert!(matches!(owner.look_up(&KEY, at(1)), LookUp::Missing));
    }
}

#[test]
fn what_came_meanwhile_stays() {
    let [_, result] = results();
    let (owner, _) = owner();
    let (old, new) = (unread(5, &result), unread(5, "nul"));
    owner.put(&KEY, &old, None, at(0)).unwrap();
    owner.put(&KEY, &new, None, at(0)).unwrap();
    assert!(owner.read(&KEY, &old).is_some());
    assert!(Arc::ptr_eq(&found(owner.look_up(&KEY, at(1))).kept, &new));
    // what was purged does not come back
    owner.purge(&Scope::Everything, || at(1)).unwrap();
    assert!(owner.read(&KEY, &old).is_some());
    assert!(matches!(owner.look_up(&KEY, at(1)), LookUp::Missing));
}

#[test]
fn what_the_owner_can_not_read_is_kept_as_it_is() {
    assert_eq!(kept(5).unread(), None);
}
