//! Responses in zstd that are assembled from entries, under any id.

use std::sync::Barrier;

use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::gzip::open_stream::compress_to_open_stream;
use sszip_core::gzip::splice::SlicedBody;
use sszip_core::request_coding::SupportedContentCoding;

use super::{answer, decoded, decoded_zstd, envelope, json, noise, ANY, IDS};

const PLACES: [ResponseIdPosition; 3] = [
    ResponseIdPosition::BeforeResult,
    ResponseIdPosition::AfterResult,
    ResponseIdPosition::None,
];

fn entry(envelope: EnvelopeBytes, result: &[u8], gate: CompressionGate) -> CacheEntry {
    CacheEntry::from_fetched_result(envelope, result, gate, EntryMetadata::default()).unwrap()
}

/// Returns an entry whose zstd blocks are long enough to be shared.
fn long_entry() -> (CacheEntry, EnvelopeBytes, Vec<u8>) {
    let (envelope, result) = (envelope(PLACES[0], ""), json(200_000));
    (entry(envelope.clone(), &result, ANY), envelope, result)
}

#[test]
fn response_in_zstd_is_assembled_with_any_id_before_or_after_the_result() {
    let long = format!("\"{}\"", "x".repeat(300_000));
    for length in [0, 5, 3000, 131_072, 300_000] {
        let result = json(length);
        for place in PLACES {
            for end in ["", "\n", ",\"jsonrpc\":\"2.0\"}\n"] {
                let envelope = envelope(place, end);
                let entry = entry(envelope.clone(), &result, ANY);
                assert_eq!(entry.is_compressed(), length > 5);
                for id in IDS.into_iter().chain([&long[..]]) {
                    let expected = answer(&envelope, &result, id);
                    let only = entry.response_for_zstd_only_client(id.as_bytes(), 1);
                    let only = only.unwrap();
                    assert!(
                        decoded_zstd(&only) == expected,
                        "{length} {place:?} {id:.20}"
                    );
                    let body = entry.response_for_zstd_client(id.as_bytes(), 1).unwrap();
                    match entry.is_compressed() {
                        true => assert!(body.to_vec() == only.to_vec()),
                        false => {
                            assert_eq!(body.content_coding(), None);
                            assert!(body.to_vec() == expected);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn uncompressed_payload_becomes_raw_blocks_of_any_length() {
    let gate = CompressionGate {
        min_length: u64::MAX,
        level: 1,
    };
    for length in [0, 1, 131_071, 131_072, 131_073, 400_000] {
        let (envelope, result) = (envelope(PLACES[1], "\n"), noise(length));
        let entry = entry(envelope.clone(), &result, gate);
        let body = entry.response_for_zstd_only_client(b"\"a\"", 1).unwrap();
        assert!(decoded_zstd(&body) == answer(&envelope, &result, "\"a\""));
        assert_eq!(entry.zstd_bytes_to_make(), 0);
    }
}

#[test]
fn hits_share_the_blocks_of_the_first_one_and_the_weight_grows_once() {
    let (entry, envelope, result) = long_entry();
    let weight = entry.memory_weight();
    assert_eq!(entry.zstd_bytes_to_make(), 200_000);
    let first = entry.response_for_zstd_client(b"1", 1).unwrap();
    let grown = entry.memory_weight();
    assert_eq!(entry.zstd_bytes_to_make(), 0);
    let sent = first.byte_length();
    assert!(
        (sent - 100..sent + 200).contains(&(grown - weight)),
        "{weight} {grown} {sent}"
    );
    // blocks of another level are not made
    let second = entry.response_for_zstd_client(b"22", 9).unwrap();
    let third = entry.response_for_zstd_only_client(b"333", 1).unwrap();
    let shared = |body: &SlicedBody| body.body_slices().nth(1).unwrap().as_ptr();
    assert_eq!(shared(&first), shared(&second));
    assert_eq!(shared(&first), shared(&third));
    assert_eq!(entry.memory_weight(), grown);
    for (body, id) in [(first, "1"), (second, "22"), (third, "333")] {
        assert_eq!(body.body_slices().count(), 3);
        assert!(decoded_zstd(&body) == answer(&envelope, &result, id));
    }
}

#[test]
fn responses_in_other_codings_are_the_same_before_and_after_zstd() {
    let (entry, envelope, result) = long_entry();
    let expected = answer(&envelope, &result, "7");
    let others = || {
        let gzip = entry.response_for_gzip_client(b"7").unwrap();
        assert!(decoded(&gzip) == expected);
        let identity = entry.response_for_identity_client(b"7").unwrap();
        assert!(identity.to_vec() == expected);
        gzip.to_vec()
    };
    let gzip = others();
    // only zstd responses make zstd blocks
    assert_eq!(entry.zstd_bytes_to_make(), 200_000);
    let made = entry.response_for_zstd_client(b"7", 1).unwrap();
    assert!(others() == gzip);
    let again = entry.response_for_zstd_client(b"7", 1).unwrap();
    assert!(again.to_vec() == made.to_vec() && others() == gzip);
}

#[test]
fn blocks_made_of_cached_identity_bytes_are_the_same() {
    let ((entry, ..), (decoded, ..)) = (long_entry(), long_entry());
    for _ in 0..2 {
        decoded.response_for_identity_client(b"1").unwrap();
    }
    assert_eq!(decoded.identity_bytes_to_decode(), 0);
    let [one, other] = [entry, decoded].map(|entry| {
        let body = entry.response_for_zstd_client(b"1", 3);
        body.unwrap().to_vec()
    });
    assert!(one == other);
}

#[test]
fn every_level_is_decoded_and_an_unknown_level_is_none() {
    let result = json(20_000);
    for level in 1..=19 {
        let (entry, envelope, _) = long_entry();
        let body = entry.response_for_zstd_client(b"1", level).unwrap();
        let expected = answer(&envelope, &json(200_000), "1");
        assert!(decoded_zstd(&body) == expected, "level {level}");
    }
    for level in [0, 20] {
        let entry = entry(envelope(PLACES[0], ""), &result, ANY);
        assert!(entry.response_for_zstd_client(b"1", level).is_none());
        assert_eq!(entry.zstd_bytes_to_make(), 20_000);
    }
}

#[test]
fn damaged_entry_has_no_zstd_body() {
    let mut open = compress_to_open_stream(&json(5000), 1).unwrap();
    let bare = EnvelopeBytes::envelope_without_bytes;
    for (crc, length) in [(open.crc ^ 1, 5000), (open.crc, 4999), (open.crc, 5001)] {
        (open.crc, open.length) = (crc, length);
        let payload = EntryPayload::Open(open.clone());
        let entry = CacheEntry::new(bare(), payload, EntryMetadata::default());
        let weight = entry.memory_weight();
        assert!(entry.response_for_zstd_client(b"", 1).is_none());
        assert!(entry.response_for_zstd_only_client(b"", 1).is_none());
        assert_eq!(
            (entry.zstd_bytes_to_make(), entry.memory_weight()),
            (length, weight)
        );
    }
}

#[test]
fn response_has_the_coding_of_the_client_unless_it_is_stored_uncompressed() {
    let (gzip, zstd) = (SupportedContentCoding::Gzip, SupportedContentCoding::Zstd);
    for (length, is_compressed) in [(5, false), (3000, true)] {
        let (envelope, result) = (envelope(PLACES[0], ""), json(length));
        let entry = entry(envelope.clone(), &result, ANY);
        assert_eq!(entry.is_compressed(), is_compressed);
        let expected = answer(&envelope, &result, "1");
        for (coding, refuses_identity) in [gzip, zstd]
            .into_iter()
            .flat_map(|coding| [(coding, false), (coding, true)])
        {
            let body = entry.response_for_coding(b"1", coding, 1, refuses_identity);
            let body = body.unwrap();
            let is_coded = is_compressed || refuses_identity;
            assert_eq!(body.content_coding(), is_coded.then_some(coding));
            let plain = match (is_coded, coding) {
                (false, _) => body.to_vec(),
                (true, SupportedContentCoding::Gzip) => decoded(&body),
                (true, SupportedContentCoding::Zstd) => decoded_zstd(&body),
            };
            assert!(plain == expected, "{length} {coding:?} {refuses_identity}");
        }
    }
}

#[test]
fn concurrent_first_hits_leave_one_zstd_form() {
    let (alone, envelope, result) = long_entry();
    alone.response_for_zstd_client(b"1", 1).unwrap();
    for _ in 0..20 {
        let (entry, ..) = &long_entry();
        let start = &Barrier::new(8);
        let bodies: Vec<SlicedBody> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(move || {
                        start.wait();
                        entry.response_for_zstd_client(b"1", 1).unwrap()
                    })
                })
                .collect();
            let bodies = threads.into_iter().map(|thread| thread.join().unwrap());
            bodies.collect()
        });
        assert_eq!(entry.memory_weight(), alone.memory_weight());
        let shared = |body: &SlicedBody| body.body_slices().nth(1).unwrap().as_ptr();
        let kept = entry.response_for_zstd_client(b"1", 1).unwrap();
        assert!(bodies.iter().all(|body| shared(body) == shared(&kept)));
        assert!(decoded_zstd(&bodies[7]) == answer(&envelope, &result, "1"));
    }
}

#[test]
fn copy_with_other_metadata_makes_its_own_zstd_form() {
    let (entry, envelope, result) = long_entry();
    let weight = entry.memory_weight();
    entry.response_for_zstd_client(b"1", 1).unwrap();
    let copy = entry.copy_with_metadata(EntryMetadata::default());
    assert_eq!(
        (copy.zstd_bytes_to_make(), copy.memory_weight()),
        (200_000, weight)
    );
    let body = copy.response_for_zstd_client(b"1", 1).unwrap();
    assert!(decoded_zstd(&body) == answer(&envelope, &result, "1"));
}
