//! Entries that are stored unchecked and read strictly at the first hit, and entries that are
//! recompressed on their way to the store.

use crate::cache::entry::recompress::recompress_entry;
use crate::cache::entry::wire::{decode_cache_entry, EncodedEntry};
use crate::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};

use super::*;

/// An unchecked entry, in wire format.
pub(super) fn unread(generation: u64, result: &str) -> Arc<OwnerMemoryEntry> {
    let envelope = EnvelopeBytes {
        id: ResponseIdPosition::BeforeResult,
        before: br#"{"jsonrpc":"2.0","id":"#[..].into(),
        between: br#","result":"#[..].into(),
        after: b"}"[..].into(),
    };
    let gate = CompressionGate {
        min_length: 100,
        level: 1,
    };
    let entry = CacheEntry::from_fetched_result(
        envelope,
        result.as_bytes(),
        gate,
        EntryMetadata::default(),
    )
    .unwrap();
    let body = EncodedEntry::from_entry(&entry.mark_for_strict_check())
        .unwrap()
        .to_vec();
    let template = entry_of_class(LifetimeClass::Immutable, generation, 0);
    Arc::new(OwnerMemoryEntry::new(
        template.entry_store_attributes().clone(),
        body,
        60_000,
        at(0),
    ))
}

fn results() -> [String; 2] {
    ["null".into(), format!("[{}1]", "\"0x00\",".repeat(500))]
}

#[test]
fn read_entry_replaces_the_unchecked_one() {
    for result in results() {
        let (owner, _) = owner();
        let unchecked = unread(5, &result);
        assert_eq!(unchecked.length_if_unchecked(), Some(result.len() as u64));
        owner
            .put_fetched_entry(&KEY, &unchecked, None, at(0))
            .unwrap();
        let hit = found(owner.lookup_without_disk_wait(&KEY, at(1)));
        assert!(hit.is_to_be_stored);
        let read = owner.check_entry_strictly(&KEY, &hit.kept).unwrap();
        assert_eq!(read.length_if_unchecked(), None);
        assert!(!read.claim_store_write(), "whoever was told so stores it");
        let there = found(owner.lookup_without_disk_wait(&KEY, at(1)));
        assert!(Arc::ptr_eq(&there.kept, &read) && !there.is_to_be_stored);
        assert_eq!(read.remaining_ttl(at(7)), unchecked.remaining_ttl(at(7)));
        let [before, after] = [&unchecked, &read]
            .map(|entry| decode_cache_entry(entry.encoded_bytes(), 0, 0, 0).unwrap());
        assert!(before.needs_strict_check() && !after.needs_strict_check());
        assert_eq!(
            before.response_for_gzip_client(b"1").unwrap().to_vec(),
            after.response_for_gzip_client(b"1").unwrap().to_vec()
        );
    }
}

#[test]
fn unchecked_entry_is_removed_when_it_is_no_valid_result() {
    for result in ["nul", "1,2", "1 ", "\"a\"\"", &"[1,".repeat(200)] {
        let (owner, _) = owner();
        let entry = unread(5, result);
        owner.put_fetched_entry(&KEY, &entry, None, at(0)).unwrap();
        assert!(
            owner.check_entry_strictly(&KEY, &entry).is_none(),
            "{result}"
        );
        assert!(matches!(
            owner.lookup_without_disk_wait(&KEY, at(1)),
            OwnerMemoryLookupResult::Missing
        ));
    }
}

#[test]
fn newer_or_purged_entry_is_not_replaced_by_the_read_one() {
    let [_, result] = results();
    let (owner, _) = owner();
    let (old, new) = (unread(5, &result), unread(5, "nul"));
    owner.put_fetched_entry(&KEY, &old, None, at(0)).unwrap();
    owner.put_fetched_entry(&KEY, &new, None, at(0)).unwrap();
    assert!(owner.check_entry_strictly(&KEY, &old).is_some());
    assert!(Arc::ptr_eq(
        &found(owner.lookup_without_disk_wait(&KEY, at(1))).kept,
        &new
    ));
    // a purged entry does not come back
    owner
        .purge_entries(&PurgeScope::Everything, || at(1))
        .unwrap();
    assert!(owner.check_entry_strictly(&KEY, &old).is_some());
    assert!(matches!(
        owner.lookup_without_disk_wait(&KEY, at(1)),
        OwnerMemoryLookupResult::Missing
    ));
}

/// An entry that can be recompressed, and its recompressed body.
fn recompressible(generation: u64) -> (Arc<OwnerMemoryEntry>, Vec<u8>) {
    let text: Vec<_> = (0..400u32)
        .map(|n| format!("\"{:08x}0000\"", n.wrapping_mul(n * 97)))
        .collect();
    let entry = unread(generation, &format!("[{}]", text.join(",")));
    let smaller = recompress_entry(entry.encoded_bytes()).unwrap();
    assert!(smaller.len() < entry.encoded_bytes().len());
    (entry, smaller)
}

#[test]
fn recompressed_entry_replaces_the_original_and_is_stored() {
    let (owner, model) = owner();
    let (first, smaller) = recompressible(5);
    owner.put_fetched_entry(&KEY, &first, None, at(0)).unwrap();
    let hit = found(owner.lookup_without_disk_wait(&KEY, at(1)));
    assert!(hit.is_to_be_stored);
    let saved = (first.encoded_bytes().len() - smaller.len()) as u64;
    let other = owner
        .replace_by_recompressed(&KEY, &hit.kept, smaller.clone())
        .unwrap();
    assert!(!other.claim_store_write(), "whoever was told so stores it");
    owner.write_to_store(&KEY, &other, at(10)).unwrap();
    let there = found(owner.lookup_without_disk_wait(&KEY, at(20)));
    assert!(Arc::ptr_eq(&there.kept, &other) && !there.is_to_be_stored);
    assert_eq!(
        other.entry_store_attributes(),
        first.entry_store_attributes()
    );
    assert_eq!(other.remaining_ttl(at(20)), first.remaining_ttl(at(20)));
    assert_eq!(other.length_if_unchecked(), first.length_if_unchecked());
    let stored = model.contents.entries.lock().unwrap()[&KEY].clone();
    assert_eq!(stored.body.as_ref(), smaller);
    assert_eq!(stored.header.about.generation, 5);
    assert_eq!(stored.header.expires_at, at(0).unix + 60_000);
    let expected = json!({ "entries": 1, "saved": saved });
    assert_eq!(owner.owner_status_json()["recompressed"], expected);
    // an entry that has left memory is stored as well
    owner.memory.remove_matching_entries(|_, _| true);
    assert!(owner
        .replace_by_recompressed(&KEY, &first, smaller)
        .is_some());
    assert_eq!(owner.owner_status_json()["memory"]["entries"], 0);
}

/// A process may read the entry while it is recompressed, and the entry is stored once.
#[test]
fn recompressed_entry_replaces_one_that_was_read_in_the_meantime() {
    let (owner, _) = owner();
    let [_, result] = results();
    let entry = unread(5, &result);
    owner.put_fetched_entry(&KEY, &entry, None, at(0)).unwrap();
    let hit = found(owner.lookup_without_disk_wait(&KEY, at(1)));
    assert!(hit.is_to_be_stored);
    let read = owner.check_entry_strictly(&KEY, &hit.kept).unwrap();
    let also = owner.check_entry_strictly(&KEY, &hit.kept).unwrap();
    let smaller = recompress_entry(also.encoded_bytes()).unwrap();
    assert!(Arc::ptr_eq(&read, &also), "it is read once");
    let other = owner.replace_by_recompressed(&KEY, &also, smaller).unwrap();
    let there = found(owner.lookup_without_disk_wait(&KEY, at(2)));
    assert!(Arc::ptr_eq(&there.kept, &other) && !there.is_to_be_stored);
    // the write to the store failed
    other.mark_store_rejected();
    assert!(found(owner.lookup_without_disk_wait(&KEY, at(3))).is_to_be_stored);
}

#[test]
fn recompressed_entry_is_dropped_when_it_was_purged_or_filled_again() {
    for purge in [
        Some(PurgeScope::Everything),
        Some(PurgeScope::Key(KEY)),
        None,
    ] {
        let (owner, _) = owner();
        let (first, smaller) = recompressible(5);
        owner.put_fetched_entry(&KEY, &first, None, at(0)).unwrap();
        if let Some(scope) = &purge {
            owner.purge_entries(scope, || at(5)).unwrap();
        }
        let (newer, _) = recompressible(5 + u64::from(purge.is_some()));
        let is_filled = purge != Some(PurgeScope::Everything);
        if is_filled {
            owner.put_fetched_entry(&KEY, &newer, None, at(6)).unwrap();
        }
        assert!(owner
            .replace_by_recompressed(&KEY, &first, smaller)
            .is_none());
        match owner.lookup_without_disk_wait(&KEY, at(11)) {
            OwnerMemoryLookupResult::Found(found) => {
                assert!(is_filled && Arc::ptr_eq(&found.kept, &newer));
            }
            other => assert!(!is_filled, "{other:?}"),
        }
        assert_eq!(owner.owner_status_json()["recompressed"]["entries"], 0);
    }
}

#[test]
fn opaque_body_is_not_unchecked() {
    assert_eq!(immutable_entry(5).length_if_unchecked(), None);
}
