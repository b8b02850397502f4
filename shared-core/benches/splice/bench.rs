//! Benchmark of a cache's compression: compressing once for splices, splicing on each hit, and
//! decompressing for clients that accept only identity, or to make the form for clients of zstd.
//!
//! `cargo bench -p sszip-core --bench splice -- [--json FILE] [--rounds N] [--ms N] [DIR]`
//! measures the CPU time of one thread. Encoders run over the bodies in `DIR`, or over synthetic
//! ones of 2, 30 and 300 KB, and take turns on each, as in the benchmark `codecs`, whose engines
//! are compared. The result is the median over rounds.
#![allow(unsafe_code)]

#[path = "../support/bodies.rs"]
mod bodies;
#[path = "../codecs/engines.rs"]
mod engines;
#[path = "../support/options.rs"]
mod options;

use bodies::{read_bodies, Body};
use options::{thread_ns, Options};
use serde_json::{json, Value};
use sszip_core::cache::entry::{
    CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::cache::process::hot::HotTier;
use sszip_core::gzip::oneshot;
use sszip_core::gzip::open_stream::{
    compress_to_open_stream, convert_to_open_stream, OpenDeflateStream,
};
use sszip_core::gzip::splice::{assemble_gzip_member, GzipMemberInput};
use sszip_core::zstd::open_blocks::compress_to_open_blocks;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

struct CodecTimings {
    task: String,
    bytes: usize,
    ns: u64,
}

/// A measured function, which returns the number of bytes of its output.
struct MeasuredFunction<'a> {
    name: String,
    run: Box<dyn FnMut() -> Option<usize> + 'a>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse_arguments(1)?;
    let bodies = match &options.folder {
        Some(folder) => read_bodies(folder)?,
        None => [2_000, 30_000, 300_000].map(synthetic_body).into(),
    };
    let mut rows = Vec::new();
    for body in &bodies {
        let tasks = compression_tasks(&body.content)?
            .into_iter()
            .chain(sending_tasks(&body.content)?)
            .collect();
        for CodecTimings { task, bytes, ns } in measure_tasks(tasks, &options)? {
            let (name, length) = (&body.name, body.content.len());
            if options.json.is_none() {
                let mb_s = length as f64 * 1e3 / ns as f64;
                println!("{name} {length}: {task}: {bytes} B, {ns} ns, {mb_s:.0} MB/s");
            }
            rows.push(json!({
                "body": name, "bytes_in": length, "task": task, "bytes": bytes, "ns": ns,
            }));
        }
    }
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&Value::from(rows))?)?;
    }
    Ok(())
}

fn synthetic_body(length: usize) -> Body {
    let mut content = b"[".to_vec();
    for n in 0u64.. {
        let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        content.extend(format!("{{\"hash\":\"{word:#018x}\",\"index\":\"{n:#x}\"}},").bytes());
        if content.len() >= length {
            break;
        }
    }
    content.extend(b"null]");
    Body {
        name: "made up".into(),
        content,
    }
}

/// Tasks that compress a body once: by the core, by its reopening of libdeflate's streams, and by
/// other libraries.
fn compression_tasks(body: &[u8]) -> Result<Vec<MeasuredFunction<'_>>, Box<dyn Error>> {
    let mut tasks: Vec<MeasuredFunction> = Vec::new();
    for level in [1, 4, 6, 9, 12] {
        tasks.push(MeasuredFunction {
            name: format!("open {level}"),
            run: Box::new(move || {
                compress_to_open_stream(black_box(body), level).map(|open| open.bytes.len())
            }),
        });
    }
    for level in [1, 3, 6, 9, 12, 19] {
        tasks.push(MeasuredFunction {
            name: format!("open zstd {level}"),
            run: Box::new(move || {
                compress_to_open_blocks(black_box(body), level).map(|open| open.bytes.len())
            }),
        });
    }
    // as between the entries of a batch
    let text = &body[..body.len().min(SHORT_TEXT)];
    tasks.push(MeasuredFunction {
        name: format!("open zstd 1 of {} B", text.len()),
        run: Box::new(move || {
            compress_to_open_blocks(black_box(text), 1).map(|open| open.bytes.len())
        }),
    });
    for level in [1, 6, 12] {
        if let Ok(member) =
            oneshot::gzip_oneshot(body, level, oneshot::compressed_bound(body.len()))
        {
            let stream = member[10..member.len() - 8].to_vec();
            tasks.push(MeasuredFunction {
                name: format!("reopen libdeflate's {level}"),
                run: Box::new(move || {
                    convert_to_open_stream(black_box(stream.clone())).map(|open| open.len())
                }),
            });
        }
    }
    let (engines, absent) = engines::load_benchmark_codecs();
    for rival in absent {
        eprintln!("without {}: {}", rival.engine, rival.why);
    }
    for mut engine in engines {
        let mut out = vec![0; oneshot::compressed_bound(body.len())];
        if engine.name() == "sszip-core" || !(1..=6).contains(&engine.level()) {
            continue;
        }
        // an incorrect engine is not measured
        let written = engine.compress(body, &mut out);
        let decoded = written.and_then(|n| engine.decompress(&out[..n], body.len()));
        if decoded.as_deref() != Some(body) {
            return Err(format!("{} does not round-trip", engine.name()).into());
        }
        tasks.push(MeasuredFunction {
            name: format!(
                "{} {} {}",
                engine.name(),
                engine.library_version(),
                engine.level()
            ),
            run: Box::new(move || engine.compress(black_box(body), &mut out)),
        });
    }
    Ok(tasks)
}

/// Length of a text of some small responses in bytes.
const SHORT_TEXT: usize = 500;

const BEFORE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
const BETWEEN: &[u8] = b",\"result\":";
const AFTER: &[u8] = b"}";

/// Tasks that send the compressed body repeatedly.
fn sending_tasks(body: &[u8]) -> Result<Vec<MeasuredFunction<'_>>, Box<dyn Error>> {
    let coded = compress_to_open_stream(body, 1).ok_or("not coded")?;
    if coded.decompress_open_stream().as_deref() != Some(body) {
        return Err("what was coded does not decode".into());
    }
    let tenth = compress_to_open_stream(&body[..body.len() / 10], 1).ok_or("not coded")?;
    let mut id = 1_000_000u64;
    let mut next_id = move || {
        id += 1;
        id.to_string()
    };
    let one = {
        let coded = coded.clone();
        move || Some(answer(&coded, &next_id()).byte_length() as usize)
    };
    let hot = HotTier::new(64 << 20, 32 << 20, 1);
    let envelope = EnvelopeBytes {
        id: ResponseIdPosition::BeforeResult,
        before: BEFORE.into(),
        between: BETWEEN.into(),
        after: AFTER.into(),
    };
    let meta = EntryMetadata {
        expires_at: u64::MAX,
        ..EntryMetadata::default()
    };
    let entry = CacheEntry::new(envelope, EntryPayload::Open(coded.clone()), meta);
    let entry = Arc::new(entry);
    hot.insert([7; 32], Arc::clone(&entry));
    let hot = Arc::new(hot);
    let zstd_hot = Arc::clone(&hot);
    let hit = move || {
        Some(
            hot.get(&[7; 32], 0)?
                .response_for_gzip_client(b"1000000")?
                .byte_length() as usize,
        )
    };
    let zstd_hit = move || {
        Some(
            zstd_hot
                .get(&[7; 32], 0)?
                .response_for_zstd_client(b"1000000", 1)?
                .byte_length() as usize,
        )
    };
    let first_zstd_hit = move || {
        let copy = entry.copy_with_metadata(EntryMetadata::default());
        Some(copy.response_for_zstd_client(b"1000000", 1)?.byte_length() as usize)
    };
    let ids: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let batch = move || {
        let elements = ids.iter().flat_map(|id| {
            let start: &[u8] = if id == "0" { b"[" } else { b"," };
            [GzipMemberInput::Text(start)]
                .into_iter()
                .chain(parts(&tenth, id))
        });
        let member = assemble_gzip_member(elements.chain([GzipMemberInput::Text(b"]")]));
        Some(member?.byte_length() as usize)
    };
    let inflate = move || coded.decompress_open_stream().map(|plain| plain.len());
    Ok(vec![
        MeasuredFunction {
            name: "splice".into(),
            run: Box::new(one),
        },
        MeasuredFunction {
            name: "look up and splice".into(),
            run: Box::new(hit),
        },
        MeasuredFunction {
            name: "look up and splice zstd".into(),
            run: Box::new(zstd_hit),
        },
        MeasuredFunction {
            name: "make and splice zstd 1".into(),
            run: Box::new(first_zstd_hit),
        },
        MeasuredFunction {
            name: "splice ten of a tenth".into(),
            run: Box::new(batch),
        },
        MeasuredFunction {
            name: "inflate".into(),
            run: Box::new(inflate),
        },
    ])
}

fn answer(coded: &OpenDeflateStream, id: &str) -> sszip_core::gzip::splice::SlicedBody {
    assemble_gzip_member(parts(coded, id)).expect("memory")
}

fn parts<'a>(coded: &'a OpenDeflateStream, id: &'a str) -> [GzipMemberInput<'a>; 5] {
    [
        GzipMemberInput::Text(BEFORE),
        GzipMemberInput::Text(id.as_bytes()),
        GzipMemberInput::Text(BETWEEN),
        GzipMemberInput::Open(coded),
        GzipMemberInput::Text(AFTER),
    ]
}

/// Returns the output length and the median time of each task.
fn measure_tasks(
    mut tasks: Vec<MeasuredFunction>,
    options: &Options,
) -> Result<Vec<CodecTimings>, Box<dyn Error>> {
    let mut times = vec![Vec::new(); tasks.len()];
    let mut bytes = Vec::new();
    for task in &mut tasks {
        bytes.push((task.run)().ok_or(format!("{} failed", task.name))?);
    }
    for _ in 0..options.rounds {
        for (task, times) in tasks.iter_mut().zip(&mut times) {
            times.push(cpu_ns_per_run(&mut task.run, options.slice_ns));
        }
    }
    let rows = tasks.into_iter().zip(bytes).zip(times);
    Ok(rows
        .map(|((task, bytes), mut times)| {
            times.sort_unstable();
            CodecTimings {
                task: task.name,
                bytes,
                ns: times[times.len() / 2],
            }
        })
        .collect())
}

/// CPU time of one run in nanoseconds: as many as fit into the slice, divided.
fn cpu_ns_per_run(run: &mut dyn FnMut() -> Option<usize>, slice_ns: u64) -> u64 {
    let start = thread_ns();
    let mut runs = 0;
    loop {
        // reading the clock takes as long as a splice
        for _ in 0..16 {
            black_box(run());
        }
        runs += 16;
        let spent = thread_ns() - start;
        if spent >= slice_ns {
            return spent / runs;
        }
    }
}
