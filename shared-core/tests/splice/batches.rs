//! Batches that are assembled from entries.

use std::sync::Arc;

use sszip_core::cache::entry::batch::{
    assemble_gzip_batch, assemble_identity_batch, BatchResponseElement,
};
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EntryPayload, ResponseIdPosition,
};
use sszip_core::gzip::open_stream::OpenDeflateStream;

use super::{answer, decoded, envelope, json, libdeflate, noise, ANY, IDS};

/// Returns entries of each kind, with their results.
pub(super) fn stored() -> Vec<(Arc<CacheEntry>, Vec<u8>)> {
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

pub(super) const GATE: CompressionGate = CompressionGate {
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

/// Returns the result of call `n` of a wallet: balances, numbers, words of contracts, and every
/// eighth a transaction of `length` bytes.
pub(super) fn wallet_result(n: u64, length: usize) -> Vec<u8> {
    let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match n % 8 {
        0 => transaction(n, length),
        1 | 2 => format!("\"{word:#x}\"").into_bytes(),
        3 => b"\"0x1406f40\"".to_vec(),
        _ => format!("\"{:#066x}\"", word >> 20).into_bytes(),
    }
}

/// Returns a transaction of about `length` bytes, whose members have the same names in all.
pub(super) fn transaction(n: u64, length: usize) -> Vec<u8> {
    let mut state = n + 1;
    let mut hex = |digits: usize| -> String {
        let digit = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            char::from(b"0123456789abcdef"[(state >> 60) as usize])
        };
        (0..digits).map(digit).collect()
    };
    let names = [
        "blockHash",
        "blockNumber",
        "from",
        "gas",
        "gasPrice",
        "hash",
        "nonce",
        "to",
    ];
    let members: Vec<String> = names
        .map(|name| format!("\"{name}\":\"0x{}\"", hex(40)))
        .into();
    let input = hex(length.saturating_sub(600));
    let members = members.join(",");
    format!("{{{members},\"input\":\"0x{input}\",\"type\":\"0x2\"}}").into_bytes()
}

/// Returns entries of these results, with the text of their batch under the ids from 1 on.
pub(super) fn stored_batch(results: &[Vec<u8>]) -> (Vec<(Arc<CacheEntry>, String)>, Vec<u8>) {
    stored_batch_at_level(results, GATE.level)
}

/// Returns the entries and the text of [`stored_batch`], with entries of this level.
fn stored_batch_at_level(
    results: &[Vec<u8>],
    level: u8,
) -> (Vec<(Arc<CacheEntry>, String)>, Vec<u8>) {
    let gate = CompressionGate { level, ..GATE };
    let mut texts = Vec::new();
    let mut entries = Vec::new();
    for (n, result) in results.iter().enumerate() {
        let (id, place) = ((n + 1).to_string(), ResponseIdPosition::BeforeResult);
        texts.push(answer(&envelope(place, ""), result, &id));
        let meta = EntryMetadata::default();
        let entry = CacheEntry::from_fetched_result(envelope(place, ""), result, gate, meta);
        entries.push((Arc::new(entry.unwrap()), id));
    }
    (entries, [b"[", &texts.join(&b","[..])[..], b"]"].concat())
}

pub(super) fn elements(entries: &[(Arc<CacheEntry>, String)]) -> Vec<BatchResponseElement<'_>> {
    let elements = entries
        .iter()
        .map(|(entry, id)| (entry, id.as_bytes()).into());
    elements.collect()
}

#[test]
fn batch_of_small_responses_is_as_short_as_of_an_encoder_of_the_whole() {
    for count in [10, 20, 100] {
        let results: Vec<_> = (0..count).map(|n| wallet_result(n, 1500)).collect();
        let (entries, expected) = stored_batch(&results);
        assert!(entries.iter().any(|(entry, _)| entry.is_compressed()));
        let body = assemble_gzip_batch(&elements(&entries), GATE).unwrap();
        assert!(decoded(&body) == expected);
        let whole = libdeflate(&expected, 1).len() as u64 + 18;
        assert!(
            body.byte_length() * 10 < whole * 11,
            "{} {whole}",
            body.byte_length()
        );
        // short entries are still stored compressed, and sent alone as they are stored
        let (entry, id) = &entries[0];
        let EntryPayload::Open(open) = entry.stored_payload() else {
            panic!("it is not compressed");
        };
        let single = entry.response_for_gzip_client(id.as_bytes()).unwrap();
        assert!(single
            .to_vec()
            .windows(open.bytes.len())
            .any(|part| part == &open.bytes[..]));
    }
}

#[test]
fn batch_of_compressed_entries_alone_is_as_short_as_of_an_encoder_of_the_whole() {
    // level 4 is libdeflate's, which a sandbox has at all levels
    for (count, level) in [(10, 1), (10, 4), (16, 1), (16, 4)] {
        let results: Vec<_> = (0..count).map(|n| transaction(n, 1500)).collect();
        let (entries, expected) = stored_batch_at_level(&results, level);
        assert!(entries.iter().all(|(entry, _)| entry.is_compressed()));
        let body = assemble_gzip_batch(&elements(&entries), GATE).unwrap();
        assert!(decoded(&body) == expected);
        let whole = libdeflate(&expected, 1).len() as u64 + 18;
        assert!(
            body.byte_length() * 10 < whole * 11,
            "{count} at level {level}: {} {whole}",
            body.byte_length()
        );
    }
}

#[test]
fn long_entries_are_spliced_between_texts_that_are_compressed() {
    let small = |from: u64| (from..from + 20).map(|n| wallet_result(n, 1200));
    let results: Vec<_> = small(0).chain([json(300_000)]).chain(small(20)).collect();
    let (entries, expected) = stored_batch(&results);
    let body = assemble_gzip_batch(&elements(&entries), GATE).unwrap();
    assert!(decoded(&body) == expected);
    let EntryPayload::Open(block) = entries[20].0.stored_payload() else {
        panic!("it is not compressed");
    };
    let slices: Vec<&[u8]> = body.body_slices().collect();
    assert_eq!(slices.len(), 3);
    assert!(std::ptr::eq(slices[1], &*block.bytes));
    let around = expected.len() - 300_000;
    assert!((slices[0].len() + slices[2].len()) * 2 < around, "{around}");
}

#[test]
fn entries_whose_compression_saves_nothing_more_are_spliced() {
    // all zeros but for a few digits
    let results: Vec<_> = (0..20)
        .map(|n| format!("\"0x{n:01800x}\"").into_bytes())
        .collect();
    let (entries, expected) = stored_batch(&results);
    let body = assemble_gzip_batch(&elements(&entries), GATE).unwrap();
    assert!(decoded(&body) == expected);
    let sent = body.to_vec();
    for (entry, _) in &entries {
        let EntryPayload::Open(open) = entry.stored_payload() else {
            panic!("it is not compressed");
        };
        assert!(sent
            .windows(open.bytes.len())
            .any(|part| part == &open.bytes[..]));
    }
}

#[test]
fn inlined_payloads_of_a_batch_are_limited() {
    // 64 KiB of them are compressed again, the others are spliced
    let results: Vec<_> = (0..300).map(|n| transaction(n, 3000)).collect();
    let (entries, expected) = stored_batch(&results);
    let body = assemble_gzip_batch(&elements(&entries), GATE).unwrap();
    assert!(decoded(&body) == expected);
    let sent = body.to_vec();
    let is_spliced = |(entry, _): &&(Arc<CacheEntry>, String)| {
        let EntryPayload::Open(open) = entry.stored_payload() else {
            panic!("it is not compressed");
        };
        sent.windows(open.bytes.len())
            .any(|part| part == &open.bytes[..])
    };
    let inlined = entries.iter().position(|entry| is_spliced(&entry)).unwrap();
    assert!((15..30).contains(&inlined), "{inlined}");
    assert!(entries[inlined..]
        .iter()
        .step_by(40)
        .all(|entry| is_spliced(&entry)));
}

#[test]
fn damaged_short_payload_is_sent_as_it_is_stored() {
    let (entries, _) = stored_batch(&[transaction(1, 1500), transaction(2, 1500)]);
    let (entry, _) = &entries[0];
    let EntryPayload::Open(open) = entry.stored_payload() else {
        panic!("it is not compressed");
    };
    let damaged = OpenDeflateStream::new(open.bytes.clone(), open.crc ^ 1, open.length);
    let payload = EntryPayload::Open(damaged);
    let envelope = entry.response_envelope().clone();
    let damaged = CacheEntry::new(envelope, payload, EntryMetadata::default());
    let elements = [
        BatchResponseElement::Stored(&damaged, b"1"),
        (&entries[1].0, &b"2"[..]).into(),
    ];
    let sent = assemble_gzip_batch(&elements, GATE).unwrap().to_vec();
    assert!(sent
        .windows(open.bytes.len())
        .any(|part| part == &open.bytes[..]));
    assert!(assemble_identity_batch(&elements).is_none());
}

#[test]
fn texts_with_other_characters_and_longer_texts_are_compressed() {
    let accents = "\"\u{e9}\u{e8} caf\u{e9} au lait, s'il vous pla\u{ee}t\"";
    for results in [
        vec![accents.repeat(8).into_bytes(); 30],
        (0..2000).map(|n| wallet_result(n * 8 + 1, 0)).collect(),
        (0..2000)
            .map(|n| format!("\"{n} of 2,000 SUCH LINES OF TEXT\"").into_bytes())
            .collect(),
    ] {
        let (entries, expected) = stored_batch(&results);
        let body = assemble_gzip_batch(&elements(&entries), GATE).unwrap();
        assert!(decoded(&body) == expected);
        assert!(
            body.byte_length() * 2 < expected.len() as u64,
            "{}",
            body.byte_length()
        );
    }
}
