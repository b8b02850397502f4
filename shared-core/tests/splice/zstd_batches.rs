//! Batches in zstd that are assembled from entries.

use std::sync::Arc;

use sszip_core::cache::entry::batch::{
    assemble_gzip_batch, assemble_zstd_batch, BatchResponseElement,
};
use sszip_core::cache::entry::{CacheEntry, EntryMetadata, EntryPayload};
use sszip_core::gzip::open_stream::OpenDeflateStream;
use sszip_core::zstd::oneshot::{zstd_compressed_bound, zstd_oneshot_into};

use super::batches::{elements, stored, stored_batch, transaction, wallet_result, GATE};
use super::{answer, decoded_zstd, json, noise, IDS};

/// Returns elements of all entries under changing ids, between two errors, and their text.
fn mixed_elements<'a>(
    stored: &'a [(Arc<CacheEntry>, Vec<u8>)],
    error: &'a [u8],
) -> (Vec<BatchResponseElement<'a>>, Vec<u8>) {
    let mut elements = vec![BatchResponseElement::RawJson(error)];
    let mut texts = vec![error.trim_ascii_end().to_vec()];
    for ((entry, result), id) in stored.iter().zip(IDS.into_iter().cycle()) {
        elements.push((entry, id.as_bytes()).into());
        let answer = answer(entry.response_envelope(), result, id);
        texts.push(answer.trim_ascii_end().to_vec());
    }
    elements.push(BatchResponseElement::RawJson(error));
    texts.push(error.trim_ascii_end().to_vec());
    let text = [b"[", &texts.join(&b","[..])[..], b"]"].concat();
    (elements, text)
}

#[test]
fn batch_in_zstd_keeps_the_order_and_drops_newlines() {
    let stored = stored();
    let error = b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1}}\n";
    let (elements, expected) = mixed_elements(&stored, error);
    let gzip = assemble_gzip_batch(&elements, GATE).unwrap().to_vec();
    let first = assemble_zstd_batch(&elements, GATE, 1, false).unwrap();
    assert!(decoded_zstd(&first) == expected);
    for level in [1, 3, 19] {
        // its blocks are kept
        let again = assemble_zstd_batch(&elements, GATE, level, false).unwrap();
        assert!(decoded_zstd(&again) == expected, "level {level}");
    }
    let again = assemble_zstd_batch(&elements, GATE, 1, true).unwrap();
    assert!(again.to_vec() == first.to_vec());
    assert!(assemble_gzip_batch(&elements, GATE).unwrap().to_vec() == gzip);
}

#[test]
fn batch_in_zstd_of_any_number_of_responses_is_decoded() {
    let stored = stored();
    for count in 1..=50 {
        let cycle: Vec<_> = (0..count)
            .map(|n| {
                let (entry, result) = &stored[n * 7 % stored.len()];
                (Arc::clone(entry), result.clone())
            })
            .collect();
        let (elements, expected) = mixed_elements(&cycle, b"null");
        for always in [false, true] {
            let body = assemble_zstd_batch(&elements, GATE, 1, always).unwrap();
            let plain = match body.content_coding() {
                Some(_) => decoded_zstd(&body),
                None => body.to_vec(),
            };
            assert!(plain == expected, "{count} {always}");
            assert!(body.content_coding().is_some() || !always);
        }
    }
}

#[test]
fn long_entries_are_spliced_as_the_blocks_that_they_keep() {
    let small = |from: u64| (from..from + 20).map(|n| wallet_result(n, 1200));
    let results: Vec<_> = small(0).chain([json(300_000)]).chain(small(20)).collect();
    let (entries, expected) = stored_batch(&results);
    let long = &entries[20].0;
    let weight = long.memory_weight();
    let [first, second] = [1, 1].map(|level| {
        let body = assemble_zstd_batch(&elements(&entries), GATE, level, false).unwrap();
        assert!(decoded_zstd(&body) == expected);
        body
    });
    assert_eq!(long.zstd_bytes_to_make(), 0);
    assert!(long.memory_weight() > weight);
    let single = long.response_for_zstd_client(b"1", 1).unwrap();
    let slices = [&first, &second, &single].map(|body| {
        let slices: Vec<&[u8]> = body.body_slices().collect();
        assert_eq!(slices.len(), 3);
        slices
    });
    assert!(slices.iter().all(|it| std::ptr::eq(it[1], slices[0][1])));
    let around = expected.len() - 300_000;
    let texts = slices[0][0].len() + slices[0][2].len();
    assert!(texts * 3 < around * 2, "{texts} {around}");
}

#[test]
fn batch_in_zstd_of_small_responses_is_as_short_as_of_an_encoder_of_the_whole() {
    for count in [10, 20, 100] {
        let results: Vec<_> = (0..count).map(|n| wallet_result(n, 1500)).collect();
        let (entries, expected) = stored_batch(&results);
        assert!(entries.iter().any(|(entry, _)| entry.is_compressed()));
        let body = assemble_zstd_batch(&elements(&entries), GATE, 1, false).unwrap();
        assert!(decoded_zstd(&body) == expected);
        let limit = zstd_compressed_bound(expected.len());
        let whole = zstd_oneshot_into(&expected, 1, limit, Vec::new()).unwrap();
        assert!(
            body.byte_length() * 10 < whole.len() as u64 * 11,
            "{} {}",
            body.byte_length(),
            whole.len()
        );
        // short entries are inlined, and make no blocks of their own
        for (entry, _) in entries.iter().filter(|(entry, _)| entry.is_compressed()) {
            assert!(entry.zstd_bytes_to_make() > 0);
        }
    }
}

#[test]
fn short_batch_is_sent_in_identity_unless_that_is_refused() {
    let stored = stored();
    let (entry, result) = &stored[6];
    let one = answer(entry.response_envelope(), result, "0");
    let expected = [b"[", &one[..], b"]"].concat();
    let elements = [BatchResponseElement::from((entry, &b"0"[..]))];
    let body = assemble_zstd_batch(&elements, GATE, 1, false).unwrap();
    assert_eq!(
        (body.content_coding(), body.to_vec()),
        (None, expected.clone())
    );
    let body = assemble_zstd_batch(&elements, GATE, 1, true).unwrap();
    assert_eq!(decoded_zstd(&body), expected);
    let body = assemble_zstd_batch(&[], GATE, 1, false).unwrap();
    assert_eq!(
        (body.content_coding(), body.to_vec()),
        (None, b"[]".to_vec())
    );
    assert_eq!(
        decoded_zstd(&assemble_zstd_batch(&[], GATE, 1, true).unwrap()),
        b"[]"
    );
}

#[test]
fn incompressible_texts_and_compressed_entries_are_spliced_into_one_frame() {
    let stored = stored();
    let (entry, result) = &stored[18];
    assert!(entry.is_compressed());
    let coded = answer(entry.response_envelope(), result, "1");
    for length in [10, 131_071, 131_072, 400_000] {
        let text = noise(length);
        let text = text.trim_ascii();
        let elements = [
            BatchResponseElement::RawJson(text),
            (entry, &b"1"[..]).into(),
            BatchResponseElement::RawJson(text),
            BatchResponseElement::RawJson(text),
            (entry, &b"1"[..]).into(),
        ];
        let coded = coded.trim_ascii();
        let expected = [text, coded, text, text, coded].join(&b","[..]);
        let body = assemble_zstd_batch(&elements, GATE, 1, false).unwrap();
        assert!(
            decoded_zstd(&body) == [b"[", &expected[..], b"]"].concat(),
            "{length}"
        );
    }
}

#[test]
fn batch_with_a_damaged_payload_has_no_zstd_body() {
    for length in [1500, 20_000] {
        let (entries, _) = stored_batch(&[transaction(1, length), transaction(2, length)]);
        let (entry, _) = &entries[0];
        let EntryPayload::Open(open) = entry.stored_payload() else {
            panic!("it is not compressed");
        };
        let damaged = OpenDeflateStream::new(open.bytes.clone(), open.crc ^ 1, open.length);
        let envelope = entry.response_envelope().clone();
        let payload = EntryPayload::Open(damaged);
        let damaged = CacheEntry::new(envelope, payload, EntryMetadata::default());
        let elements = [
            BatchResponseElement::Stored(&damaged, b"1"),
            (&entries[1].0, &b"2"[..]).into(),
        ];
        assert!(assemble_zstd_batch(&elements, GATE, 1, false).is_none());
        assert!(assemble_zstd_batch(&elements, GATE, 1, true).is_none());
    }
}
