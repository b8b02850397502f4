//! Benchmark of codec libraries on whole bodies: the upper bound for any proxy module around
//! them.
//!
//! `cargo bench -p sszip-core --bench codecs -- [--json FILE] [--rounds N] [--ms N] [DIR]`
//! measures the CPU time of one thread over each file in `DIR`. Engines take turns on each body,
//! so that a slow moment of the machine affects all alike, and the result is the median over
//! rounds. Wall time is not measured: it would include other tenants. Without `DIR` one synthetic
//! body checks that each engine still round-trips, for `cargo test --benches`.
//!
//! This is not a criterion benchmark, because criterion finishes one benchmark before it starts
//! the next, and measures wall time.
#![allow(unsafe_code)]

#[path = "../support/bodies.rs"]
mod bodies;
mod engines;
#[path = "../support/options.rs"]
mod options;

use bodies::{read_bodies, Body};
use engines::{BenchmarkCodec, UnavailableLibrary};
use options::{thread_ns, Options};
use serde_json::{json, Value};
use std::error::Error;

struct CodecTimings {
    bytes: usize,
    rounds: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse_arguments(1)?;
    let bodies = match &options.folder {
        Some(folder) => read_bodies(folder)?,
        None => vec![synthetic_body()],
    };
    let (mut engines, absent) = engines::load_benchmark_codecs();
    let table = measure_engines(&mut engines, &bodies, &options)?;
    let report = to_json(&engines, &absent, &bodies, &table);
    match &options.json {
        Some(path) => std::fs::write(path, serde_json::to_string_pretty(&report)?)?,
        None => print(&report),
    }
    Ok(())
}

fn synthetic_body() -> Body {
    let mut content = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[".to_vec();
    for n in 0u64..1000 {
        let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        content.extend(format!("{{\"hash\":\"{word:#018x}\",\"index\":\"{n:#x}\"}},").bytes());
    }
    content.extend(b"null]}");
    Body {
        name: "made up".into(),
        content,
    }
}

/// Measures every engine on every body; the outer index is the engine.
fn measure_engines(
    engines: &mut [Box<dyn BenchmarkCodec>],
    bodies: &[Body],
    options: &Options,
) -> Result<Vec<Vec<CodecTimings>>, Box<dyn Error>> {
    let mut table: Vec<Vec<CodecTimings>> = engines.iter().map(|_| Vec::new()).collect();
    for body in bodies {
        let mut out = vec![0; body.content.len() + body.content.len() / 8 + 1024];
        for (engine, row) in engines.iter_mut().zip(&mut table) {
            let bytes = round_trip(engine.as_mut(), body, &mut out)?;
            row.push(CodecTimings {
                bytes,
                rounds: Vec::new(),
            });
        }
        for _ in 0..options.rounds {
            for (engine, row) in engines.iter_mut().zip(&mut table) {
                let ns = cpu_ns_per_run(engine.as_mut(), &body.content, &mut out, options.slice_ns);
                if let Some(measured) = row.last_mut() {
                    measured.rounds.push(ns);
                }
            }
        }
    }
    Ok(table)
}

/// Compresses once, decompresses and compares: an incorrect engine is not measured.
fn round_trip(
    engine: &mut dyn BenchmarkCodec,
    body: &Body,
    out: &mut [u8],
) -> Result<usize, Box<dyn Error>> {
    let written = engine.compress(&body.content, out);
    let decoded = written.and_then(|n| engine.decompress(&out[..n], body.content.len()));
    match (written, decoded) {
        (Some(n), Some(bytes)) if bytes == body.content => Ok(n),
        _ => Err(format!(
            "{} {} does not round-trip {}",
            engine.name(),
            engine.level(),
            body.name
        )
        .into()),
    }
}

/// CPU time of one compression in nanoseconds: as many as fit into the slice, divided.
fn cpu_ns_per_run(
    engine: &mut dyn BenchmarkCodec,
    body: &[u8],
    out: &mut [u8],
    slice_ns: u64,
) -> u64 {
    let start = thread_ns();
    let mut runs = 0;
    loop {
        engine.compress(std::hint::black_box(body), out);
        runs += 1;
        let spent = thread_ns() - start;
        if spent >= slice_ns {
            return spent / runs;
        }
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn to_json(
    engines: &[Box<dyn BenchmarkCodec>],
    absent: &[UnavailableLibrary],
    bodies: &[Body],
    table: &[Vec<CodecTimings>],
) -> Value {
    let rows = engines.iter().zip(table).map(|(engine, row)| {
        let cells = bodies.iter().zip(row).map(|(body, measured)| {
            json!({
                "body": body.name,
                "bytes_in": body.content.len(),
                "bytes_out": measured.bytes,
                "ns": median(measured.rounds.clone()),
            })
        });
        json!({
            "engine": engine.name(),
            "level": engine.level(),
            "version": engine.library_version(),
            "bodies": cells.collect::<Vec<_>>(),
        })
    });
    let missing = absent
        .iter()
        .map(|a| json!({"engine": a.engine, "why": a.why}));
    json!({
        "engines": rows.collect::<Vec<_>>(),
        "absent": missing.collect::<Vec<_>>(),
    })
}

fn print(report: &Value) {
    for engine in report["engines"].as_array().into_iter().flatten() {
        for body in engine["bodies"].as_array().into_iter().flatten() {
            println!(
                "{} {}: {}, {} -> {} bytes, {} ns",
                engine["engine"].as_str().unwrap_or_default(),
                engine["level"],
                body["body"].as_str().unwrap_or_default(),
                body["bytes_in"],
                body["bytes_out"],
                body["ns"]
            );
        }
    }
    for absent in report["absent"].as_array().into_iter().flatten() {
        println!("absent: {absent}");
    }
}
