//! Batches that are assembled from entries.

use std::sync::Arc;

use sszip_core::cache::entry::batch::{
    assemble_gzip_batch, assemble_identity_batch, BatchResponseElement,
};
use sszip_core::cache::entry::{CacheEntry, CompressionGate, EntryMetadata, ResponseIdPosition};

use super::{answer, decoded, envelope, json, noise, ANY, IDS};

/// Returns entries of each kind, with their results.
fn stored() -> Vec<(Arc<CacheEntry>, Vec<u8>)> {
    let gate = CompressionGate {
        min_length: 1024,
        level: 4,
    };
    let places = [
        ResponseIdPosition::BeforeResult,
        ResponseIdPosition::AfterResult,
    ];
    let sizes = [0, 5, 3000, 100_000];
    let kinds = sizes.into_iter().flat_map(|size| {
        places
            .into_iter()
            .flat_map(move |place| ["", "\n", " \r\n"].map(|end| (size, place, end)))
    });
    kinds
        .map(|(size, place, end)| {
            let result = json(size);
            let envelope = envelope(place, end);
            let entry =
                CacheEntry::from_fetched_result(envelope, &result, gate, EntryMetadata::default())
                    .unwrap();
            (Arc::new(entry), result)
        })
        .collect()
}

const GATE: CompressionGate = CompressionGate {
    min_length: 1024,
    level: 1,
};

#[test]
fn batch_keeps_the_order_and_drops_newlines() {
    let stored = stored();
    let error = b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1}}\n";
    let mut elements = vec![BatchResponseElement::RawJson(error)];
    let mut expected = vec![error.trim_ascii_end().to_vec()];
    for ((entry, result), id) in stored.iter().zip(IDS.into_iter().cycle()) {
        elements.push((entry, id.as_bytes()).into());
        let answer = answer(entry.response_envelope(), result, id);
        expected.push(answer.trim_ascii_end().to_vec());
    }
    elements.push(BatchResponseElement::RawJson(error));
    expected.push(error.trim_ascii_end().to_vec());
    let expected = [b"[", &expected.join(&b","[..])[..], b"]"].concat();
    assert!(decoded(&assemble_gzip_batch(&elements, GATE).unwrap()) == expected);
    for _ in 0..3 {
        let body = assemble_identity_batch(&elements).unwrap();
        assert!(!body.is_gzip() && body.to_vec() == expected);
    }
}

#[test]
fn batch_copies_short_entries_and_references_long_ones() {
    // short parts are copied, long parts are referenced
    for (n, is_long) in [(6 + 6, false), (6 + 6 + 6, true)] {
        let (entry, result) = &stored()[n];
        let one = answer(entry.response_envelope(), result, "\"x\"");
        let one = one.trim_ascii_end();
        for count in [1, 2, 100] {
            let elements = vec![BatchResponseElement::from((entry, &b"\"x\""[..])); count];
            let expected = [b"[", &vec![one; count].join(&b","[..])[..], b"]"].concat();
            let body = assemble_gzip_batch(&elements, GATE).unwrap();
            assert!(decoded(&body) == expected);
            let slices = if is_long { 2 * count + 1 } else { 1 };
            assert_eq!(body.body_slices().count(), slices);
        }
    }
}

#[test]
fn empty_batch_is_an_empty_array() {
    assert_eq!(assemble_identity_batch(&[]).unwrap().to_vec(), b"[]");
    let body = assemble_gzip_batch(&[], GATE).unwrap();
    assert_eq!((body.is_gzip(), body.to_vec()), (false, b"[]".to_vec()));
}

#[test]
fn batch_of_many_small_responses_is_compressed() {
    let (entry, result) = &stored()[6];
    let ids: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let elements: Vec<BatchResponseElement> =
        ids.iter().map(|id| (entry, id.as_bytes()).into()).collect();
    let answers = ids
        .iter()
        .map(|id| answer(entry.response_envelope(), result, id));
    let expected = [b"[", &answers.collect::<Vec<_>>().join(&b","[..])[..], b"]"].concat();
    let body = assemble_gzip_batch(&elements, GATE).unwrap();
    assert!(decoded(&body) == expected);
    assert!(
        body.byte_length() * 5 < expected.len() as u64,
        "{}",
        body.byte_length()
    );
    // below the gate, or not shortened
    let body = assemble_gzip_batch(&elements[..3], GATE).unwrap();
    assert!(!body.is_gzip());
    let body = assemble_gzip_batch(&elements[..1], ANY).unwrap();
    assert!(!body.is_gzip());
    assert_eq!(
        body.to_vec(),
        [
            b"[",
            &answer(entry.response_envelope(), result, "0")[..],
            b"]"
        ]
        .concat()
    );
}

#[test]
fn incompressible_texts_and_compressed_entries_are_spliced_into_one_batch() {
    let (entry, result) = &stored()[18];
    assert!(entry.is_compressed());
    let coded = answer(entry.response_envelope(), result, "1");
    for length in [10, 65_000, 65_535, 200_000] {
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
        let body = assemble_gzip_batch(&elements, GATE).unwrap();
        assert!(body.is_gzip());
        assert!(
            decoded(&body) == [b"[", &expected[..], b"]"].concat(),
            "{length}"
        );
    }
}
