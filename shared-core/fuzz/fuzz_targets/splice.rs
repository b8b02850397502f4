//! Responses and batches spliced of stored streams and of their zstd blocks: a client decompresses
//! the envelope, its own id and the result, and the length is exact.
#![no_main]

use std::io::Read;
use std::sync::Arc;

use arbitrary::Arbitrary;
use flate2::read::GzDecoder;
use libfuzzer_sys::fuzz_target;
use sszip_core::cache::entry::batch::{
    assemble_gzip_batch, assemble_identity_batch, assemble_zstd_batch, BatchResponseElement,
};
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::gzip::splice::SlicedBody;
use sszip_core::request_coding::SupportedContentCoding;
use sszip_core::zstd::{decompress_zstd, ZstdLevel, MAX_ZSTD_LEVEL};
use sszip_fuzz::FuzzBodyPiece;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    answers: Vec<FuzzedResponse<'a>>,
    gate: (u16, u8),
    zstd_level: ZstdLevel,
    /// Whether the client of zstd refuses identity.
    refuses_identity: bool,
}

#[derive(Arbitrary, Debug)]
struct FuzzedResponse<'a> {
    place: u8,
    texts: [&'a [u8]; 3],
    result: FuzzBodyPiece<'a>,
    ids: [&'a [u8]; 2],
    gate: (u16, u8),
    /// Whether the element is fetched, and not from the cache.
    is_fresh: bool,
}

impl FuzzedResponse<'_> {
    fn entry(&self, result: &[u8]) -> CacheEntry {
        let envelope = EnvelopeBytes {
            id: match self.place % 3 {
                0 => ResponseIdPosition::BeforeResult,
                1 => ResponseIdPosition::AfterResult,
                _ => ResponseIdPosition::None,
            },
            before: self.texts[0].into(),
            between: self.texts[1].into(),
            after: self.texts[2].into(),
        };
        CacheEntry::from_fetched_result(envelope, result, gate(self.gate), EntryMetadata::default())
            .expect("it codes")
    }

    /// Returns the response, assembled in the obvious way.
    fn expected_response(&self, result: &[u8], id: &[u8], after: &[u8]) -> Vec<u8> {
        let [before, between, _] = self.texts;
        match self.place % 3 {
            0 => [before, id, between, result, after].concat(),
            1 => [before, result, between, id, after].concat(),
            _ => [before, between, result, after].concat(),
        }
    }
}

fn gate((min_length, level): (u16, u8)) -> CompressionGate {
    CompressionGate {
        min_length: min_length.into(),
        level: level % 13,
    }
}

fuzz_target!(|input: Input| {
    let zstd_level = input.zstd_level % MAX_ZSTD_LEVEL + 1;
    let zstd = SupportedContentCoding::Zstd;
    let mut stored = Vec::new();
    for answer in input.answers.iter().take(16) {
        let result = answer.result.piece_bytes();
        let entry = Arc::new(answer.entry(&result));
        for id in answer.ids {
            let expected = answer.expected_response(&result, id, answer.texts[2]);
            check(&entry.response_for_gzip_client(id).unwrap(), &expected);
            check(
                &entry.response_for_identity_client(id).expect("it decodes"),
                &expected,
            );
            let body = entry.response_for_coding(id, zstd, zstd_level, input.refuses_identity);
            let body = body.expect("it codes");
            assert!(body.content_coding().is_some() || !input.refuses_identity);
            check(&body, &expected);
            assert_eq!(entry.response_length(id), expected.len() as u64);
        }
        stored.push((answer, entry, result));
    }
    let texts: Vec<Vec<u8>> = stored
        .iter()
        .map(|(answer, _, result)| {
            let after = answer.texts[2].trim_ascii_end();
            let text = answer.expected_response(result, answer.ids[0], after);
            if answer.is_fresh {
                text.trim_ascii().to_vec()
            } else {
                text
            }
        })
        .collect();
    let elements: Vec<BatchResponseElement> = stored
        .iter()
        .zip(&texts)
        .map(|((answer, entry, _), text)| {
            if answer.is_fresh {
                BatchResponseElement::RawJson(text)
            } else {
                (entry, answer.ids[0]).into()
            }
        })
        .collect();
    let expected = [b"[", &texts.join(&b","[..])[..], b"]"].concat();
    check(
        &assemble_identity_batch(&elements).expect("it decodes"),
        &expected,
    );
    let gate = gate(input.gate);
    check(
        &assemble_gzip_batch(&elements, gate).expect("it codes"),
        &expected,
    );
    let body = assemble_zstd_batch(&elements, gate, zstd_level, input.refuses_identity);
    check(&body.expect("it codes"), &expected);
});

fn check(body: &SlicedBody, expected: &[u8]) {
    let bytes = body.to_vec();
    assert_eq!(bytes.len() as u64, body.byte_length());
    match body.content_coding() {
        None => assert!(bytes == expected),
        Some(SupportedContentCoding::Gzip) => {
            let mut plain = Vec::new();
            let mut decoder = GzDecoder::new(&bytes[..]);
            decoder.read_to_end(&mut plain).expect("it decodes");
            assert!(decoder.into_inner().is_empty(), "bytes after the member");
            assert!(plain == expected);
        }
        Some(SupportedContentCoding::Zstd) => {
            let length = zstd::zstd_safe::find_frame_compressed_size(&bytes);
            assert_eq!(length, Ok(bytes.len()), "bytes after the frame");
            assert!(zstd::decode_all(&bytes[..]).expect("it decodes") == expected);
            let limit = expected.len() + 1;
            assert!(decompress_zstd(&bytes, limit, |_| true).expect("it decodes") == expected);
        }
    }
}
