//! Responses that are assembled from entries, under any id.

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::gzip::open_stream::compress_to_open_stream;
use sszip_core::gzip::splice::SlicedBody;

use super::{answer, decoded, envelope, json, noise, ANY, IDS};

#[test]
fn response_is_assembled_with_any_id_before_or_after_the_result() {
    let result = json(3000);
    for place in [
        ResponseIdPosition::BeforeResult,
        ResponseIdPosition::AfterResult,
        ResponseIdPosition::None,
    ] {
        for end in ["", "\n", "\r\n", ",\"jsonrpc\":\"2.0\"}\n"] {
            let envelope = envelope(place, end);
            let entry = CacheEntry::from_fetched_result(
                envelope.clone(),
                &result,
                ANY,
                EntryMetadata::default(),
            )
            .unwrap();
            assert!(matches!(entry.stored_payload(), EntryPayload::Open(_)));
            let long = format!("\"{}\"", "x".repeat(100_000));
            for id in IDS.into_iter().chain([&long[..]]) {
                let expected = answer(&envelope, &result, id);
                assert!(
                    decoded(&entry.response_for_gzip_client(id.as_bytes()).unwrap()) == expected,
                    "{id}"
                );
                let identity = entry.response_for_identity_client(id.as_bytes()).unwrap();
                assert!(!identity.is_gzip() && identity.to_vec() == expected, "{id}");
                assert_eq!(identity.byte_length(), expected.len() as u64);
                assert_eq!(entry.response_length(id.as_bytes()), expected.len() as u64);
            }
        }
    }
}

#[test]
fn responses_below_the_gate_are_stored_and_sent_uncompressed() {
    let gate = CompressionGate {
        min_length: 1024,
        level: 1,
    };
    let envelope = envelope(ResponseIdPosition::BeforeResult, "\n");
    let frame = answer(&envelope, b"", "").len();
    for (length, is_coded) in [(0, false), (1023 - frame, false), (1024 - frame, true)] {
        let result = json(length);
        let entry = CacheEntry::from_fetched_result(
            envelope.clone(),
            &result,
            gate,
            EntryMetadata::default(),
        )
        .unwrap();
        assert_eq!(
            matches!(entry.stored_payload(), EntryPayload::Open(_)),
            is_coded
        );
        let body = entry.response_for_gzip_client(b"\"a\"").unwrap();
        assert_eq!(body.is_gzip(), is_coded);
        let expected = answer(&envelope, &result, "\"a\"");
        if !is_coded {
            assert_eq!(body.to_vec(), expected);
        }
        assert_eq!(
            entry
                .response_for_identity_client(b"\"a\"")
                .unwrap()
                .to_vec(),
            expected
        );
    }
}

#[test]
fn result_that_compression_does_not_shorten_is_stored_uncompressed() {
    let result = noise(100_000);
    for level in [0, 1, 6] {
        let gate = CompressionGate {
            min_length: 0,
            level,
        };
        let entry = CacheEntry::from_fetched_result(
            EnvelopeBytes::envelope_without_bytes(),
            &result,
            gate,
            EntryMetadata::default(),
        )
        .unwrap();
        let body = entry.response_for_gzip_client(b"").unwrap();
        assert!(!body.is_gzip() && body.to_vec() == result);
    }
    let gate = CompressionGate {
        min_length: 0,
        level: 13,
    };
    assert!(CacheEntry::from_fetched_result(
        EnvelopeBytes::envelope_without_bytes(),
        &result,
        gate,
        EntryMetadata::default()
    )
    .is_none());
}

#[test]
fn entry_that_is_sent_twice_as_identity_keeps_both_codings() {
    let result = json(50_000);
    let envelope = envelope(ResponseIdPosition::BeforeResult, "");
    let entry =
        CacheEntry::from_fetched_result(envelope.clone(), &result, ANY, EntryMetadata::default())
            .unwrap();
    let weight = entry.memory_weight();
    assert!(weight < 50_000);
    let first = entry.response_for_identity_client(b"1").unwrap();
    assert_eq!(
        (entry.identity_bytes_to_decode(), entry.memory_weight()),
        (50_000, weight)
    );
    let second = entry.response_for_identity_client(b"2").unwrap();
    assert_eq!(
        (entry.identity_bytes_to_decode(), entry.memory_weight()),
        (0, weight + 50_000)
    );
    let third = entry.response_for_identity_client(b"3").unwrap();
    let shared = |body: &SlicedBody| body.body_slices().nth(1).unwrap().as_ptr();
    assert_eq!(shared(&second), shared(&third));
    assert_ne!(shared(&first), shared(&second));
    for (body, id) in [(first, "1"), (second, "2"), (third, "3")] {
        assert!(body.to_vec() == answer(&envelope, &result, id));
    }
    assert!(
        decoded(&entry.response_for_gzip_client(b"4").unwrap()) == answer(&envelope, &result, "4")
    );
}

#[test]
fn damaged_entry_has_no_identity_body() {
    let mut open = compress_to_open_stream(&json(5000), 1).unwrap();
    for (crc, length) in [(open.crc ^ 1, 5000), (open.crc, 4999), (open.crc, 5001)] {
        open.crc = crc;
        open.length = length;
        let payload = EntryPayload::Open(open.clone());
        let entry = CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            payload,
            EntryMetadata::default(),
        );
        assert!(entry.response_for_identity_client(b"").is_none());
    }
}

#[test]
fn entry_keeps_the_meta_of_its_caller() {
    let meta = EntryMetadata {
        status: 200,
        fields: vec![(b"Content-Type".to_vec(), b"application/json".to_vec())],
        requested_at: 1000,
        expires_at: 2000,
        age: 7,
        class: LifetimeClass::Config,
        block_number: Some(0),
        ..EntryMetadata::default()
    };
    let entry = CacheEntry::from_fetched_result(
        EnvelopeBytes::envelope_without_bytes(),
        b"{}",
        ANY,
        meta.clone(),
    )
    .unwrap();
    assert_eq!(entry.response_metadata(), &meta);
    assert!(entry.is_fresh(0) && entry.is_fresh(1999) && !entry.is_fresh(2000));
    let bare = CacheEntry::from_fetched_result(
        EnvelopeBytes::envelope_without_bytes(),
        b"{}",
        ANY,
        EntryMetadata::default(),
    )
    .unwrap();
    assert!(!bare.is_fresh(0));
    assert!(entry.memory_weight() >= bare.memory_weight() + 28);
}
