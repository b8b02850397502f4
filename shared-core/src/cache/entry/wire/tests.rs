//! Serialized entries: round trips, damage, and the forms of an entry.

use super::{
    clear_unchecked_flag, decode_cache_entry, decode_owned_entry, payload_length_if_unchecked,
    read_shared_entry_properties, set_chain_dependency, set_unchecked_flag,
    without_chain_dependency, EncodedEntry, SharedEntryProperties, ENTRY_FORMAT_VERSION,
    MAX_SHARED_AGE,
};
use crate::bytes::SharedBytes;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
};
use crate::cache::response_directives::StaleDirectives;
use crate::gzip::open_stream::OpenDeflateStream;

fn envelope(id: ResponseIdPosition) -> EnvelopeBytes {
    EnvelopeBytes {
        id,
        before: b"{\"jsonrpc\":\"2.0\",\"id\":"[..].into(),
        between: b",\"result\":"[..].into(),
        after: b"}\n"[..].into(),
    }
}

fn meta() -> EntryMetadata {
    EntryMetadata {
        status: 200,
        fields: vec![(b"content-type".to_vec(), b"application/json".to_vec())],
        requested_at: 1000,
        age: 3,
        revalidates: true,
        stale: StaleDirectives {
            if_error: 60_000,
            while_revalidate: u64::MAX,
            never: true,
        },
        expires_at: 9000,
        class: LifetimeClass::Tip,
        block_number: Some(20_000_000),
        follows: Some(([9; 16], u64::MAX)),
        height: Some(u64::MAX),
    }
}

fn empty() -> EntryMetadata {
    EntryMetadata {
        status: 204,
        ..EntryMetadata::default()
    }
}

fn bytes_of(entry: &CacheEntry) -> Vec<u8> {
    EncodedEntry::from_entry(entry).unwrap().to_vec()
}

fn entries() -> Vec<CacheEntry> {
    let gate = |min_length| CompressionGate {
        min_length,
        level: 1,
    };
    let long = [&b"\""[..], &b"00112233".repeat(500), b"\""].concat();
    [
        ResponseIdPosition::BeforeResult,
        ResponseIdPosition::AfterResult,
        ResponseIdPosition::None,
    ]
    .into_iter()
    .flat_map(|id| {
        [
            CacheEntry::from_fetched_result(envelope(id), b"null", gate(1000), meta()).unwrap(),
            CacheEntry::from_fetched_result(envelope(id), &long, gate(0), meta()).unwrap(),
            CacheEntry::from_fetched_result(
                EnvelopeBytes::envelope_without_bytes(),
                b"",
                gate(1000),
                empty(),
            )
            .unwrap(),
        ]
    })
    .collect()
}

#[test]
fn serialized_entry_is_decoded_unchanged() {
    for entry in entries() {
        let read = decode_cache_entry(&bytes_of(&entry), 11_000, 500, 700).unwrap();
        let whole = decode_owned_entry(bytes_of(&entry), 11_000, 500, 700).unwrap();
        assert_eq!(bytes_of(&whole), bytes_of(&read));
        assert_eq!(
            (whole.response_envelope(), whole.response_metadata()),
            (read.response_envelope(), read.response_metadata())
        );
        assert_eq!(read.response_envelope(), entry.response_envelope());
        let expected = EntryMetadata {
            requested_at: 10_500,
            expires_at: 11_700,
            ..entry.response_metadata().clone()
        };
        assert_eq!(read.response_metadata(), &expected);
        let gzip = |entry: &CacheEntry| entry.response_for_gzip_client(b"9").unwrap().to_vec();
        assert_eq!(gzip(&read), gzip(&entry));
        assert_eq!(read.memory_weight(), entry.memory_weight());
    }
}

#[test]
fn unchecked_flag_is_kept_by_serialization() {
    for entry in entries() {
        let read = decode_cache_entry(&bytes_of(&entry), 0, 0, 0).unwrap();
        assert!(!read.needs_strict_check());
        assert_eq!(payload_length_if_unchecked(&bytes_of(&entry)), None);
        let (read, entry) = (bytes_of(&entry), entry.mark_for_strict_check());
        let unread = bytes_of(&entry);
        assert!(decode_cache_entry(&unread, 0, 0, 0)
            .unwrap()
            .needs_strict_check());
        let length =
            entry.response_length(b"") - entry.response_envelope().envelope_length() as u64;
        assert_eq!(payload_length_if_unchecked(&unread), Some(length));
        assert_eq!(clear_unchecked_flag(&unread), Some(read));
    }
}

#[test]
fn proof_of_a_range_is_kept_by_serialization_and_by_changes_of_the_entry() {
    let is_proven = |bytes: &[u8]| {
        let read = decode_cache_entry(bytes, 0, 0, 0).unwrap();
        read.is_range_proven()
    };
    for entry in entries() {
        assert!(!is_proven(&bytes_of(&entry)));
        let meta = entry.response_metadata().clone();
        let entry = entry.mark_range_proven();
        assert!(entry.copy_with_metadata(meta).is_range_proven());
        let mut bytes = bytes_of(&entry);
        assert!(is_proven(&bytes));
        let shared = without_chain_dependency(&bytes).unwrap();
        assert!(is_proven(&shared));
        set_unchecked_flag(&mut bytes).unwrap();
        assert!(is_proven(&bytes) && is_proven(&clear_unchecked_flag(&bytes).unwrap()));
    }
}

#[test]
fn truncated_or_damaged_heads_are_not_decoded() {
    for entry in entries() {
        let bytes = bytes_of(&entry);
        let head = EncodedEntry::from_entry(&entry).unwrap().head.len();
        for cut in 0..head {
            assert!(
                decode_cache_entry(&bytes[..cut], 0, 0, 0).is_none(),
                "{cut}"
            );
        }
        for at in 0..9 {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert!(decode_cache_entry(&other, 0, 0, 0).is_none(), "{at}");
        }
    }
}

#[test]
fn entry_with_an_invalid_status_or_header_is_not_decoded() {
    let with = |change: &dyn Fn(&mut EntryMetadata)| {
        let mut meta = meta();
        change(&mut meta);
        let gate = CompressionGate {
            min_length: 1000,
            level: 1,
        };
        let entry = CacheEntry::from_fetched_result(
            EnvelopeBytes::envelope_without_bytes(),
            b"null",
            gate,
            meta,
        )
        .unwrap();
        decode_cache_entry(&bytes_of(&entry), 0, 0, 0).is_some()
    };
    for status in [
        0,
        100,
        101,
        103,
        199,
        204,
        205,
        206,
        304,
        600,
        999,
        1224,
        u16::MAX,
    ] {
        assert!(!with(&|meta| meta.status = status), "{status}");
    }
    for status in [200, 203, 299, 301, 404, 410, 429, 500, 503, 599] {
        assert!(with(&|meta| meta.status = status), "{status}");
    }
    for (name, value, is_valid) in [
        ("vary", "Origin", true),
        ("Access-Control-Allow-Origin", "*", true),
        ("x", "caf\u{e9}\tb", true),
        ("x", "", true),
        ("", "a", false),
        ("a b", "a", false),
        ("a:", "a", false),
        ("a\r\nb", "a", false),
        (":status", "200", false),
        ("x", "a\r\nSet-Cookie: b", false),
        ("x", "a\nb", false),
        ("x", "a\0", false),
        ("Connection", "close", false),
        ("transfer-encoding", "chunked", false),
        ("Content-Length", "7", false),
        ("Upgrade", "h2c", false),
        ("Set-Cookie", "a=b", false),
        ("Trailer", "x", false),
    ] {
        let field = || (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        assert_eq!(
            with(&|meta| meta.fields.push(field())),
            is_valid,
            "{name}: {value}"
        );
    }
}

#[test]
fn entry_with_an_impossible_payload_length_is_not_decoded() {
    for (length, is_valid) in [(4128, true), (4129, false), (u64::MAX, false)] {
        let open = OpenDeflateStream::new(SharedBytes::try_copy_from(b"abcd").unwrap(), 1, length);
        let entry = CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            EntryPayload::Open(open),
            meta(),
        );
        let decoded = decode_cache_entry(&bytes_of(&entry), 0, 0, 0);
        assert_eq!(decoded.is_some(), is_valid, "{length}");
    }
}

#[test]
fn damaged_entries_are_decoded_without_a_panic() {
    let bytes = bytes_of(&entries()[1]);
    for at in 0..200.min(bytes.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut other = bytes.clone();
            other[at] = value;
            if let Some(entry) = decode_cache_entry(&other, 0, 0, 0) {
                let _ = entry.response_length(b"1");
                let _ = entry.memory_weight();
            }
        }
    }
}

/// Length of an entry's payload without compression.
fn identity_length(entry: &CacheEntry) -> u64 {
    entry.response_length(b"") - entry.response_envelope().envelope_length() as u64
}

#[test]
fn chain_dependency_is_removed_and_set_without_other_changes() {
    for entry in entries() {
        for entry in [entry.copy_with_metadata(meta()), entry] {
            let bytes = bytes_of(&entry);
            let shared = without_chain_dependency(&bytes).unwrap();
            let decoded = decode_cache_entry(&shared, 11_000, 500, 700).unwrap();
            let expected = EntryMetadata {
                follows: None,
                requested_at: 10_500,
                expires_at: 11_700,
                ..entry.response_metadata().clone()
            };
            assert_eq!(decoded.response_metadata(), &expected);
            assert_eq!(decoded.response_envelope(), entry.response_envelope());
            assert_eq!(without_chain_dependency(&shared).as_ref(), Some(&shared));
            // as another owner sets it, and removes it again
            let class = entry.response_metadata().class;
            let set = |class, namespace, epoch| {
                set_chain_dependency(shared.clone(), class, namespace, epoch).unwrap()
            };
            for epoch in [0, 1 << 50, u64::MAX] {
                let other = set(class, [8; 16], epoch);
                let decoded = decode_cache_entry(&other, 0, 0, 0).unwrap();
                let follows = decoded.response_metadata().follows;
                assert_eq!(follows, Some(([8; 16], epoch)));
                assert_eq!(without_chain_dependency(&other).as_ref(), Some(&shared));
            }
            // an entry that is not final for that owner
            let other = set(LifetimeClass::Unfinalized, [8; 16], 5);
            let decoded = decode_cache_entry(&other, 11_000, 500, 700).unwrap();
            let expected = EntryMetadata {
                class: LifetimeClass::Unfinalized,
                follows: Some(([8; 16], 5)),
                ..expected
            };
            assert_eq!(decoded.response_metadata(), &expected);
            assert_eq!(decoded.response_envelope(), entry.response_envelope());
            if let Some((namespace, epoch)) = entry.response_metadata().follows {
                assert_eq!(set(class, namespace, epoch), bytes);
            }
        }
    }
}

#[test]
fn unchecked_flag_survives_a_change_of_the_chain_dependency() {
    for entry in entries() {
        let mut bytes = bytes_of(&entry);
        let checked = bytes.clone();
        assert_eq!(set_unchecked_flag(&mut bytes), Some(()));
        assert_eq!(clear_unchecked_flag(&bytes), Some(checked));
        let length = Some(identity_length(&entry));
        let shared = without_chain_dependency(&bytes).unwrap();
        assert_eq!(payload_length_if_unchecked(&shared), length);
        let class = entry.response_metadata().class;
        let other = set_chain_dependency(shared, class, [8; 16], 5).unwrap();
        assert_eq!(payload_length_if_unchecked(&other), length);
    }
}

#[test]
fn properties_of_a_shared_entry_are_read_from_its_bytes() {
    for entry in entries() {
        let mut bytes = bytes_of(&entry);
        assert_eq!(bytes[3], ENTRY_FORMAT_VERSION);
        let meta = entry.response_metadata();
        let properties = SharedEntryProperties {
            class: meta.class,
            block: meta.block_number,
            height: meta.height,
            has_chain_dependency: meta.follows.is_some(),
            is_unchecked: false,
            is_call_response: entry.response_envelope().id != ResponseIdPosition::None,
            identity_length: identity_length(&entry),
        };
        assert_eq!(read_shared_entry_properties(&bytes), Some(properties));
        let shared = without_chain_dependency(&bytes).unwrap();
        let independent = SharedEntryProperties {
            has_chain_dependency: false,
            ..properties
        };
        assert_eq!(read_shared_entry_properties(&shared), Some(independent));
        set_unchecked_flag(&mut bytes).unwrap();
        let unchecked = SharedEntryProperties {
            is_unchecked: true,
            ..properties
        };
        assert_eq!(read_shared_entry_properties(&bytes), Some(unchecked));
    }
}

#[test]
fn entry_with_a_long_head_or_a_high_age_is_not_shared() {
    let is_shared = |change: &dyn Fn(&mut EntryMetadata)| {
        let mut meta = meta();
        change(&mut meta);
        let bytes = bytes_of(&entries()[0].copy_with_metadata(meta));
        let is_shared = read_shared_entry_properties(&bytes).is_some();
        (is_shared, decode_cache_entry(&bytes, 0, 0, 0).is_some())
    };
    let long = |length| (b"x".to_vec(), vec![b'a'; length]);
    for (length, expected) in [(7_000, true), (9_000, false)] {
        let result = is_shared(&|meta| meta.fields.push(long(length)));
        assert_eq!(result, (expected, true), "{length}");
    }
    for (age, expected) in [(MAX_SHARED_AGE, true), (MAX_SHARED_AGE + 1, false)] {
        let result = is_shared(&|meta| meta.age = age);
        assert_eq!(result, (expected, true), "{age}");
    }
    assert_eq!(is_shared(&|meta| meta.status = 206), (false, false));
}

#[test]
fn truncated_entry_has_no_shared_form() {
    for entry in entries() {
        let bytes = bytes_of(&entry);
        let head = EncodedEntry::from_entry(&entry).unwrap().head.len();
        for cut in 0..head {
            let part = &bytes[..cut];
            assert_eq!(without_chain_dependency(part), None, "{cut}");
            let class = LifetimeClass::Immutable;
            assert_eq!(set_chain_dependency(part.to_vec(), class, [8; 16], 5), None);
            assert_eq!(read_shared_entry_properties(part), None, "{cut}");
        }
    }
    assert_eq!(set_unchecked_flag(&mut [0; 8]), None);
}
