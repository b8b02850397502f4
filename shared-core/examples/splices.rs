//! Writes spliced gzip members and zstd frames with their expected content into a directory, as
//! `NAME.gz`, `NAME.zst` and `NAME.plain`, for other decoders.
//!
//! `cargo run -p sszip-examples --bin splices -- DIRECTORY [RESULT]...`
//!
//! Each `RESULT` is a file that becomes the result of a response, in addition to results of the
//! sizes below. tests/e2e/test_splice.py runs it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sszip_core::cache::entry::batch::{
    assemble_gzip_batch, assemble_zstd_batch, BatchResponseElement,
};
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::gzip::splice::SlicedBody;
use sszip_core::request_coding::SupportedContentCoding;

const SIZES: [usize; 9] = [
    0, 1, 100, 2_000, 32_768, 65_536, 300_000, 3_000_000, 20_000_000,
];

/// Ids of each kind, with a name.
fn named_call_ids() -> Vec<(&'static str, String)> {
    let ids = [
        ("number", "1"),
        ("zero", "0"),
        ("fraction", "1.5"),
        ("above-2-53", "9007199254740993"),
        ("digits", "123456789012345678901234567890"),
        ("null", "null"),
        ("string", "\"req-1\""),
        ("empty", "\"\""),
        ("escapes", "\"a\\\"b\\\\c\\u00e9\\n\""),
        ("unicode", "\"\u{e9}\u{1f600}\""),
    ];
    let long = ("long", format!("\"{}\"", "x".repeat(70_000)));
    let ids = ids.into_iter().map(|(name, id)| (name, id.to_string()));
    ids.chain([long]).collect()
}

/// Levels of igzip, of libdeflate with a copy of its stream, and libdeflate's highest; zstd has these
/// levels, too.
const LEVELS: [u8; 3] = [1, 6, 12];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let directory = arguments.next().ok_or("which directory?")?;
    let mut results: Vec<(String, Vec<u8>)> = SIZES
        .iter()
        .map(|size| (size.to_string(), generate_json_like_text(*size)))
        .collect();
    for (n, path) in arguments.enumerate() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        results.push((format!("{n}-{name}"), std::fs::read(&path)?));
    }
    let mut batch = Vec::new();
    for (name, result) in &results {
        let ids = if name == "2000" {
            named_call_ids()
        } else {
            named_call_ids().split_off(10)
        };
        for level in LEVELS {
            // this level takes minutes
            if level > 9 && result.len() > 1 << 20 {
                continue;
            }
            for (place, end) in [
                (ResponseIdPosition::BeforeResult, ""),
                (ResponseIdPosition::AfterResult, "\n"),
            ] {
                let entry = Arc::new(entry(place, end, result, level)?);
                for (kind, id) in &ids {
                    let name = format!("{name}-{level}-{place:?}-{kind}");
                    let plain = answer(&entry, result, id);
                    for body in [
                        entry.response_for_gzip_client(id.as_bytes()),
                        entry.response_for_zstd_only_client(id.as_bytes(), level),
                    ] {
                        write(&directory, &name, &body.ok_or("memory")?, &plain)?;
                    }
                }
                if result.len() <= 1 << 20 {
                    batch.push((entry, result));
                }
            }
        }
    }
    // the smallest last: a batch of these alone is not compressed
    batch.reverse();
    let ids: Vec<String> = (0..batch.len()).map(|n| format!("\"{n}\"")).collect();
    let elements: Vec<BatchResponseElement> = batch
        .iter()
        .zip(&ids)
        .map(|((entry, _), id)| (entry, id.as_bytes()).into())
        .collect();
    let answers: Vec<Vec<u8>> = batch
        .iter()
        .zip(&ids)
        .map(|((entry, result), id)| answer(entry, result, id).trim_ascii_end().to_vec())
        .collect();
    let gate = CompressionGate {
        min_length: 1024,
        level: 1,
    };
    write_small_batch(&directory, gate)?;
    for count in [1, 2, 10, batch.len()] {
        let plain = [b"[", &answers[..count].join(&b","[..])[..], b"]"].concat();
        write_batch(
            &directory,
            &format!("batch-{count}"),
            &elements[..count],
            gate,
            &plain,
        )?;
    }
    Ok(())
}

/// Writes a batch of a hundred small responses, whose text is compressed as a whole.
fn write_small_batch(directory: &Path, gate: CompressionGate) -> Result<(), Box<dyn Error>> {
    let mut stored = Vec::new();
    let mut answers = Vec::new();
    for n in 0..100usize {
        let result = generate_json_like_text(n * n % 200 + n % 10 / 9 * 1500);
        let place = ResponseIdPosition::BeforeResult;
        let entry = Arc::new(entry(place, "", &result, if n % 10 == 9 { 1 } else { 0 })?);
        answers.push(answer(&entry, &result, &n.to_string()));
        stored.push((entry, n.to_string()));
    }
    let elements = stored
        .iter()
        .map(|(entry, id)| (entry, id.as_bytes()).into());
    let elements: Vec<BatchResponseElement> = elements.collect();
    let plain = [b"[", &answers.join(&b","[..])[..], b"]"].concat();
    write_batch(directory, "batch-small", &elements, gate, &plain)
}

/// Writes a batch in both codings.
fn write_batch(
    directory: &Path,
    name: &str,
    elements: &[BatchResponseElement],
    gate: CompressionGate,
    plain: &[u8],
) -> Result<(), Box<dyn Error>> {
    for body in [
        assemble_gzip_batch(elements, gate),
        assemble_zstd_batch(elements, gate, 1, false),
    ] {
        write(directory, name, &body.ok_or("no memory")?, plain)?;
    }
    Ok(())
}

/// Text like JSON, of `length` bytes.
fn generate_json_like_text(length: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(length + 64);
    for n in 0u64.. {
        if body.len() >= length {
            break;
        }
        let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        body.extend(format!("{{\"hash\":\"{word:#018x}\",\"index\":\"{n:#x}\"}},").bytes());
    }
    body.truncate(length);
    body
}

fn entry(
    id: ResponseIdPosition,
    end: &str,
    result: &[u8],
    level: u8,
) -> Result<CacheEntry, &'static str> {
    let between: &[u8] = match id {
        ResponseIdPosition::BeforeResult => b",\"result\":",
        _ => b",\"id\":",
    };
    let before: &[u8] = match id {
        ResponseIdPosition::BeforeResult => b"{\"jsonrpc\":\"2.0\",\"id\":",
        _ => b"{\"jsonrpc\":\"2.0\",\"result\":",
    };
    let envelope = EnvelopeBytes {
        id,
        before: before.into(),
        between: between.into(),
        after: format!("}}{end}").as_bytes().into(),
    };
    let gate = CompressionGate {
        min_length: 0,
        level,
    };
    CacheEntry::from_fetched_result(envelope, result, gate, EntryMetadata::default())
        .ok_or("no memory")
}

fn answer(entry: &CacheEntry, result: &[u8], id: &str) -> Vec<u8> {
    let envelope = entry.response_envelope();
    let (first, second) = match envelope.id {
        ResponseIdPosition::BeforeResult => (id.as_bytes(), result),
        _ => (result, id.as_bytes()),
    };
    [
        &envelope.before,
        first,
        &envelope.between,
        second,
        &envelope.after,
    ]
    .concat()
}

/// Writes a body and its content, if the body was compressed.
fn write(directory: &Path, name: &str, body: &SlicedBody, plain: &[u8]) -> std::io::Result<()> {
    let suffix = match body.content_coding() {
        Some(SupportedContentCoding::Gzip) => "gz",
        Some(SupportedContentCoding::Zstd) => "zst",
        None => return Ok(()),
    };
    std::fs::write(directory.join(format!("{name}.{suffix}")), body.to_vec())?;
    std::fs::write(directory.join(format!("{name}.plain")), plain)
}
