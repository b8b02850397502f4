//! Values: round trips, and entries that are not shared.

mod allocations;
mod anchors;
mod rejections;

use proptest::prelude::*;

use super::header::MAX_LIFETIME_MS;
use super::*;
use crate::cache::entry::wire::EncodedEntry;
use crate::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};

const KEY: CacheKey = [7; 32];
const NOW: u64 = 1_700_000_000_000;
const MAX_ENTRY: usize = 1 << 20;

/// Offsets of the length of the entry and of the method.
const ENTRY_LENGTH_OFFSET: usize = 176;
const METHOD_LENGTH_OFFSET: usize = 180;

/// A keyring of key files that consist of one byte each; unkeyed if there is none.
fn keyring(secrets: &[u8]) -> FleetKeyring {
    let files: Vec<_> = secrets.iter().map(|secret| vec![*secret; 32]).collect();
    match files.is_empty() {
        true => FleetKeyring::unkeyed(),
        false => FleetKeyring::from_key_files(&files).unwrap(),
    }
}

fn about() -> StoredEntryAttributes {
    StoredEntryAttributes {
        class: LifetimeClass::Immutable,
        namespace: [3; 16],
        method: Some("eth_getBlockByNumber".into()),
        block: Some(100),
        generation: 5,
        epoch: 77,
        height: Some(101),
    }
}

/// An entry as the owner of the writer has it, with the epoch of that owner.
fn entry_with_metadata(id: ResponseIdPosition, result: &[u8], meta: EntryMetadata) -> CacheEntry {
    let envelope = match id {
        ResponseIdPosition::None => EnvelopeBytes::envelope_without_bytes(),
        id => EnvelopeBytes {
            id,
            before: b"{\"jsonrpc\":\"2.0\",\"id\":"[..].into(),
            between: b",\"result\":"[..].into(),
            after: b"}"[..].into(),
        },
    };
    let gate = CompressionGate {
        min_length: 100,
        level: 1,
    };
    CacheEntry::from_fetched_result(envelope, result, gate, meta).unwrap()
}

fn metadata_of(about: &StoredEntryAttributes) -> EntryMetadata {
    EntryMetadata {
        fields: vec![(b"content-type".to_vec(), b"application/json".to_vec())],
        class: about.class,
        block_number: about.block,
        follows: Some((about.namespace, about.epoch)),
        height: about.height,
        ..EntryMetadata::default()
    }
}

fn bytes_of(entry: &CacheEntry) -> Vec<u8> {
    EncodedEntry::from_entry(entry).unwrap().to_vec()
}

fn entry_of(about: &StoredEntryAttributes, result: &[u8]) -> Vec<u8> {
    let meta = metadata_of(about);
    bytes_of(&entry_with_metadata(
        ResponseIdPosition::BeforeResult,
        result,
        meta,
    ))
}

fn parts<'a>(about: &'a StoredEntryAttributes, entry: &'a [u8]) -> FleetValueParts<'a> {
    FleetValueParts {
        key: &KEY,
        about,
        anchor: None,
        identity: ChainIdentity {
            chain_id: Some(1),
            genesis: [9; 32],
        },
        heights: HeightUnit::Blocks,
        position: 41,
        requested_at: NOW - 2_000,
        expires_at: NOW + 60_000,
        stored_at: NOW - 1_000,
        entry,
    }
}

fn encoded(keyring: &FleetKeyring) -> Vec<u8> {
    let about = about();
    let entry = entry_of(&about, b"{\"number\":\"0x64\"}");
    encode_fleet_value(&parts(&about, &entry), keyring).unwrap()
}

fn decode(value: &[u8], keyring: &FleetKeyring) -> Result<FleetValue, FleetValueRejection> {
    decode_fleet_value(value.to_vec(), keyring, &KEY, NOW, MAX_ENTRY)
}

/// Changes the content of a value, and sets its tag again.
fn changed(value: &[u8], keyring: &FleetKeyring, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (content, _) = value.split_last_chunk::<VALUE_TAG_LENGTH>().unwrap();
    let mut content = content.to_vec();
    change(&mut content);
    let tag = keyring.value_tag(&content);
    content.extend_from_slice(&tag);
    content
}

/// Replaces the entry of a value, with its length and tag.
fn replace_entry(value: &[u8], keyring: &FleetKeyring, entry: &[u8]) -> Vec<u8> {
    changed(value, keyring, |content| {
        let start = HEADER_LENGTH + usize::from(content[METHOD_LENGTH_OFFSET]);
        content.truncate(start);
        content.extend_from_slice(entry);
        let length = (entry.len() as u32).to_le_bytes();
        content[ENTRY_LENGTH_OFFSET..METHOD_LENGTH_OFFSET].copy_from_slice(&length);
    })
}

#[test]
fn encoded_value_is_decoded_without_the_state_of_its_writer() {
    let long = [&b"\""[..], &b"00112233".repeat(500), b"\""].concat();
    for keyring in [keyring(b""), keyring(b"a"), keyring(b"ab")] {
        for result in [&b"null"[..], &long] {
            let about = about();
            let entry = entry_of(&about, result);
            let parts = parts(&about, &entry);
            let value = encode_fleet_value(&parts, &keyring).unwrap();
            let decoded = decode(&value, &keyring).unwrap();
            let expected = StoredEntryAttributes {
                generation: 0,
                epoch: 0,
                ..about.clone()
            };
            assert_eq!(decoded.about, expected);
            assert_eq!(
                (decoded.identity, decoded.heights, decoded.position),
                (parts.identity, parts.heights, parts.position)
            );
            assert_eq!(
                (decoded.requested_at, decoded.expires_at, decoded.stored_at),
                (parts.requested_at, parts.expires_at, parts.stored_at)
            );
            let read = wire::decode_cache_entry(&decoded.entry, 0, 0, 0).unwrap();
            assert_eq!(read.needs_strict_check(), !keyring.is_keyed());
            let meta = EntryMetadata {
                follows: None,
                ..metadata_of(&about)
            };
            assert_eq!(read.response_metadata(), &meta);
            assert_eq!(read.identity_payload().as_deref(), Some(result));
            assert!(read.passes_strict_check());
        }
    }
}

#[test]
fn absent_and_extreme_attributes_survive_a_round_trip() {
    let keyring = keyring(b"a");
    for (method, number, chain_id) in [
        (None, None, None),
        (Some("m".repeat(255)), Some(0), Some(0)),
        (Some("m".to_owned()), Some(u64::MAX), Some(u64::MAX)),
    ] {
        let about = StoredEntryAttributes {
            method: method.map(String::into_boxed_str),
            block: number,
            height: number,
            ..about()
        };
        let entry = entry_of(&about, b"null");
        let parts = FleetValueParts {
            identity: ChainIdentity {
                chain_id,
                genesis: [0; 32],
            },
            heights: HeightUnit::Slots,
            position: u64::MAX,
            ..parts(&about, &entry)
        };
        let value = encode_fleet_value(&parts, &keyring).unwrap();
        let decoded = decode(&value, &keyring).unwrap();
        assert_eq!(
            (
                decoded.about.method,
                decoded.about.block,
                decoded.about.height
            ),
            (about.method.clone(), number, number)
        );
        assert_eq!(decoded.identity, parts.identity);
        assert_eq!(
            (decoded.heights, decoded.position),
            (HeightUnit::Slots, u64::MAX)
        );
    }
}

#[test]
fn unshareable_entries_are_not_encoded() {
    let keyring = keyring(b"a");
    let is_encoded = |about: &StoredEntryAttributes, entry: &[u8]| {
        encode_fleet_value(&parts(about, entry), &keyring).is_some()
    };
    let about = about();
    let entry = entry_of(&about, b"null");
    assert!(is_encoded(&about, &entry));
    assert!(!is_encoded(&about, b"") && !is_encoded(&about, &entry[..entry.len() / 2]));
    let changes: [&dyn Fn(&mut StoredEntryAttributes); 8] = [
        &|about| about.class = LifetimeClass::Tip,
        &|about| about.block = Some(99),
        &|about| about.block = None,
        &|about| about.height = Some(99),
        &|about| about.height = None,
        &|about| about.method = Some("".into()),
        &|about| about.method = Some("m".repeat(256).into()),
        &|about| about.method = Some("a b".into()),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut other = about.clone();
        change(&mut other);
        assert!(!is_encoded(&other, &entry), "{number}");
    }
    // another class, in the attributes and in the entry
    for class in LifetimeClass::ALL {
        let other = StoredEntryAttributes {
            class: *class,
            ..about.clone()
        };
        let expected = *class == LifetimeClass::Immutable;
        assert_eq!(
            is_encoded(&other, &entry_of(&other, b"null")),
            expected,
            "{class:?}"
        );
    }
    let mut unchecked = entry.clone();
    wire::set_unchecked_flag(&mut unchecked).unwrap();
    assert!(!is_encoded(&about, &unchecked));
}

#[test]
fn entry_that_no_strict_check_can_read_needs_a_key_file() {
    let about = about();
    let resource = entry_with_metadata(ResponseIdPosition::None, b"{}", metadata_of(&about));
    // 3 MB of one digit take about 13 KB
    let id = ResponseIdPosition::AfterResult;
    let bomb = entry_with_metadata(id, &b"0".repeat(3_000_000), metadata_of(&about));
    for (name, entry) in [("resource", bytes_of(&resource)), ("bomb", bytes_of(&bomb))] {
        let parts = parts(&about, &entry);
        let keyed = keyring(b"a");
        let value = encode_fleet_value(&parts, &keyed).unwrap();
        assert!(decode(&value, &keyed).is_ok(), "{name}");
        let unkeyed = keyring(b"");
        assert_eq!(encode_fleet_value(&parts, &unkeyed), None, "{name}");
        // from a writer that does not check it
        let shared = wire::without_chain_dependency(&entry).unwrap();
        let value = replace_entry(&encoded(&unkeyed), &unkeyed, &shared);
        assert_eq!(
            decode(&value, &unkeyed),
            Err(FleetValueRejection::Entry),
            "{name}"
        );
    }
}

#[test]
fn expiry_of_a_value_is_limited_to_30_days() {
    let keyring = keyring(b"a");
    let about = about();
    let entry = entry_of(&about, b"null");
    let limit = NOW + 30 * 86_400_000;
    for (expires_at, expected) in [
        (limit - 1, limit - 1),
        (limit + 1, limit),
        (u64::MAX, limit),
    ] {
        let parts = FleetValueParts {
            expires_at,
            ..parts(&about, &entry)
        };
        let value = encode_fleet_value(&parts, &keyring).unwrap();
        assert_eq!(decode(&value, &keyring).unwrap().expires_at, expected);
    }
    // at the end of time
    let parts = FleetValueParts {
        expires_at: u64::MAX,
        ..parts(&about, &entry)
    };
    let value = encode_fleet_value(&parts, &keyring).unwrap();
    let result = decode_fleet_value(value, &keyring, &KEY, u64::MAX - 1, MAX_ENTRY);
    assert_eq!(result.unwrap().expires_at, u64::MAX);
}

fn any_attributes() -> impl Strategy<Value = StoredEntryAttributes> {
    (
        any::<[u8; 16]>(),
        prop::option::of("[!-~]{1,255}"),
        any::<Option<u64>>(),
        any::<Option<u64>>(),
        any::<(u64, u64)>(),
    )
        .prop_map(|(namespace, method, block, height, (generation, epoch))| {
            StoredEntryAttributes {
                class: LifetimeClass::Immutable,
                namespace,
                method: method.map(String::into_boxed_str),
                block,
                generation,
                epoch,
                height,
            }
        })
}

/// Any attributes, and an anchor that does not contradict them; an unfinalized entry has one.
fn any_anchored_attributes() -> impl Strategy<Value = (StoredEntryAttributes, Option<BlockAnchor>)>
{
    (any_attributes(), any::<[u8; 32]>(), 0..5_u8).prop_map(|(about, hash, kind)| {
        let unfinalized = StoredEntryAttributes {
            class: LifetimeClass::Unfinalized,
            ..about.clone()
        };
        let height = about.height.unwrap_or(7);
        let of_block = |about: StoredEntryAttributes| StoredEntryAttributes {
            block: about.block.map(|_| height),
            height: Some(height),
            ..about
        };
        let by_result = Some(BlockAnchor::ByResult { height, hash });
        match kind {
            0 => (about, None),
            1 => (about, Some(BlockAnchor::ByRequest(hash))),
            2 => (unfinalized, Some(BlockAnchor::ByRequest(hash))),
            3 => (of_block(about), by_result),
            _ => (of_block(unfinalized), by_result),
        }
    })
}

proptest! {
    /// Any attributes, times and results are decoded as they were encoded.
    #[test]
    fn values_are_decoded_as_they_were_encoded(
        (about, anchor) in any_anchored_attributes(),
        key in any::<CacheKey>(),
        (chain_id, genesis) in any::<(Option<u64>, [u8; 32])>(),
        is_slots in any::<bool>(),
        (position, age, fresh) in (any::<u64>(), 0..NOW, 1..=MAX_LIFETIME_MS),
        digits in prop::collection::vec(any::<u8>(), 0..2_000),
        is_keyed in any::<bool>(),
    ) {
        let keyring = keyring(&b"a"[..usize::from(is_keyed)]);
        let result = format!("\"{}\"", const_hex::encode(&digits));
        let entry = entry_of(&about, result.as_bytes());
        let parts = FleetValueParts {
            key: &key,
            about: &about,
            anchor,
            identity: ChainIdentity { chain_id, genesis },
            heights: HEIGHT_UNITS[usize::from(is_slots)],
            position,
            requested_at: NOW - age,
            expires_at: NOW + fresh,
            stored_at: NOW,
            entry: &entry,
        };
        let value = encode_fleet_value(&parts, &keyring).unwrap();
        let decoded = decode_fleet_value(value, &keyring, &key, NOW, MAX_ENTRY).unwrap();
        let mut expected = wire::without_chain_dependency(&entry).unwrap();
        if !is_keyed {
            wire::set_unchecked_flag(&mut expected).unwrap();
        }
        let expected = FleetValue {
            about: StoredEntryAttributes { generation: 0, epoch: 0, ..about.clone() },
            anchor,
            identity: parts.identity,
            heights: parts.heights,
            position,
            requested_at: parts.requested_at,
            expires_at: parts.expires_at,
            stored_at: NOW,
            entry: expected,
        };
        prop_assert_eq!(decoded, expected);
    }

    /// No damage is accepted with a key file.
    #[test]
    fn damaged_values_are_rejected(
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1..=u8::MAX), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        more in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let keyring = keyring(b"a");
        let value = encoded(&keyring);
        let mut damaged = value.clone();
        for (at, bits) in damage {
            let at = at.index(damaged.len());
            damaged[at] ^= bits;
        }
        if let Some(cut) = cut {
            damaged.truncate(cut.index(damaged.len()));
        }
        damaged.extend_from_slice(&more);
        // damage may have undone itself
        prop_assert!(damaged == value || decode(&damaged, &keyring).is_err());
    }

    /// Any content under a valid tag is decoded or rejected without a panic.
    #[test]
    fn tagged_content_is_decoded_without_a_panic(
        header in prop::collection::vec((0..HEADER_LENGTH, any::<u8>()), 0..8),
        entry in prop::collection::vec(any::<u8>(), 0..100),
        is_keyed in any::<bool>(),
    ) {
        let keyring = keyring(&b"a"[..usize::from(is_keyed)]);
        let value = replace_entry(&encoded(&keyring), &keyring, &entry);
        let value = changed(&value, &keyring, |content| {
            for (at, byte) in header {
                content[at] = byte;
            }
        });
        prop_assert!(decode(&value, &keyring).is_err());
    }
}
