//! Benchmark of the scanner in GB/s, and of parsing a request and computing its key in
//! nanoseconds.
//!
//! `cargo bench -p sszip-core --bench jsonrpc -- [--json FILE] [--rounds N] [--ms N] [DIR]`
//! measures the CPU time of one thread over the responses in the largest recordings below `DIR`
//! (arrays of `{request, response}`, as in `../shared/corpus/execution`), a batch of 1 MB and
//! common requests. The result is the median over rounds. Without `DIR` synthetic bodies replace
//! the recorded ones.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use sszip_core::jsonrpc::request::{self, JsonRpcRequestBody};
use sszip_core::jsonrpc::{block_reference, key, methods, response, scan};

#[path = "../support/options.rs"]
mod options;

use options::{thread_ns, Options};

/// Number of recordings that are measured, the largest first.
const BODIES: usize = 12;

/// A body and its name.
type Body = (String, Vec<u8>);

struct MeasurementRow {
    operation: &'static str,
    name: String,
    bytes: usize,
    ns: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse_arguments(5)?;
    let answers = match &options.folder {
        Some(folder) => load_recorded_bodies(folder)?,
        None => vec![("made up".into(), synthetic_response())],
    };
    let mut rows = Vec::new();
    for (name, body) in &answers {
        scan::check_json(body)?;
        rows.push(options.measure("scan", name, body, |body| {
            let _ = black_box(scan::check_json(body));
        }));
        if response::parse_jsonrpc_response(body).is_ok() {
            rows.push(options.measure("response", name, body, |body| {
                let _ = black_box(response::parse_jsonrpc_response(body));
            }));
        }
    }
    let batch = build_repeated_batch();
    request::parse_jsonrpc_request(&batch, usize::MAX)?;
    rows.push(
        options.measure("scan", "batch of requests", &batch, |body| {
            let _ = black_box(scan::check_json(body));
        }),
    );
    rows.push(
        options.measure("request", "batch of requests", &batch, |body| {
            let _ = black_box(request::parse_jsonrpc_request(body, usize::MAX));
        }),
    );
    for (name, body) in requests() {
        prepare_lookup(body.as_bytes()).ok_or("a request has no key")?;
        rows.push(
            options.measure("request+block+key", name, body.as_bytes(), |body| {
                let _ = black_box(prepare_lookup(body));
            }),
        );
    }
    report(&options, &rows)
}

/// Computes all that a look-up needs from a request.
fn prepare_lookup(body: &[u8]) -> Option<(block_reference::BlockReference, key::CallCacheKey)> {
    let Ok(JsonRpcRequestBody::Single(call)) = request::parse_jsonrpc_request(body, 1) else {
        return None;
    };
    let block =
        block_reference::call_block_reference(methods::find_method_row(call.method), call.params);
    let key = key::call_cache_key(b"http://127.0.0.1:8545/", call.method, call.params).ok()?;
    Some((block, key))
}

impl Options {
    fn measure(
        &self,
        operation: &'static str,
        name: &str,
        body: &[u8],
        run: impl Fn(&[u8]),
    ) -> MeasurementRow {
        let mut rounds: Vec<u64> = (0..self.rounds)
            .map(|_| cpu_ns_per_run(body, self.slice_ns, &run))
            .collect();
        rounds.sort_unstable();
        MeasurementRow {
            operation,
            name: name.into(),
            bytes: body.len(),
            ns: rounds[rounds.len() / 2],
        }
    }
}

/// CPU time of one run in nanoseconds: as many as fit into the slice, divided. The clock is read
/// after each 64 KB, because reading it takes longer than a request.
fn cpu_ns_per_run(body: &[u8], slice_ns: u64, run: impl Fn(&[u8])) -> u64 {
    let each = (64 << 10) / body.len().max(1) + 1;
    let start = thread_ns();
    let mut runs = 0;
    loop {
        for _ in 0..each {
            run(black_box(body));
        }
        runs += each as u64;
        let spent = thread_ns() - start;
        if spent >= slice_ns {
            return spent / runs;
        }
    }
}

#[derive(Deserialize)]
struct Exchange<'a> {
    #[serde(borrow)]
    response: &'a RawValue,
}

/// Returns the first response of each of the largest files, without the white space that
/// recordings have and nodes do not send.
fn load_recorded_bodies(folder: &Path) -> Result<Vec<Body>, Box<dyn Error>> {
    let mut bodies = Vec::new();
    for method in std::fs::read_dir(folder)? {
        let method = method?;
        for file in std::fs::read_dir(method.path())? {
            let file = file?;
            let text = std::fs::read(file.path())?;
            let exchanges: Vec<Exchange> = serde_json::from_slice(&text)?;
            let Some(exchange) = exchanges.first() else {
                continue;
            };
            let name = Path::new(&method.file_name()).join(file.file_name());
            bodies.push((name.display().to_string(), compact(exchange.response.get())));
        }
    }
    bodies.sort_by_key(|(_, body)| std::cmp::Reverse(body.len()));
    bodies.truncate(BODIES);
    Ok(bodies)
}

fn compact(text: &str) -> Vec<u8> {
    let (mut within, mut escaped) = (false, false);
    let mut compact = text.as_bytes().to_vec();
    compact.retain(|&byte| {
        let quote = byte == b'"' && !escaped;
        escaped = within && byte == b'\\' && !escaped;
        within ^= quote;
        within || quote || !byte.is_ascii_whitespace()
    });
    compact
}

fn synthetic_response() -> Vec<u8> {
    let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[".to_vec();
    for n in 0u64..2000 {
        let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let item = format!("{{\"blockHash\":\"{word:#066x}\",\"index\":\"{n:#x}\"}},");
        body.extend_from_slice(item.as_bytes());
    }
    body.extend_from_slice(b"null]}");
    body
}

fn requests() -> [(&'static str, &'static str); 4] {
    [
        (
            "eth_blockNumber",
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#,
        ),
        (
            "eth_getBlockByNumber",
            r#"{"jsonrpc":"2.0","method":"eth_getBlockByNumber","params":["0x112a880",true],"id":1}"#,
        ),
        (
            "eth_call",
            r#"{"jsonrpc":"2.0","id":42,"method":"eth_call","params":[{"to":"0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2","data":"0x70a08231000000000000000000000000ef04bc7821433f080461bbae815182e3d7bbb61a"},"0x112a880"]}"#,
        ),
        (
            "eth_getLogs",
            r#"{"jsonrpc":"2.0","id":42,"method":"eth_getLogs","params":[{"fromBlock":"0x112a880","toBlock":"0x112a890","address":["0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2"],"topics":["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",null,"0x000000000000000000000000ef04bc7821433f080461bbae815182e3d7bbb61a"]}]}"#,
        ),
    ]
}

/// A batch of the common requests, repeated up to 1 MB.
fn build_repeated_batch() -> Vec<u8> {
    let mut body = b"[".to_vec();
    for (_, request) in requests().iter().cycle() {
        body.extend_from_slice(request.as_bytes());
        if body.len() >= 1 << 20 {
            break;
        }
        body.push(b',');
    }
    body.push(b']');
    body
}

fn report(options: &Options, rows: &[MeasurementRow]) -> Result<(), Box<dyn Error>> {
    if let Some(path) = &options.json {
        let rows = rows.iter().map(|row| {
            json!({
                "what": row.operation, "body": row.name, "bytes": row.bytes, "ns": row.ns,
            })
        });
        let report = json!({ "rows": rows.collect::<Vec<_>>() });
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
        return Ok(());
    }
    for row in rows {
        println!(
            "{} {}: {} bytes, {} ns, {:.2} GB/s",
            row.operation,
            row.name,
            row.bytes,
            row.ns,
            row.bytes as f64 / row.ns.max(1) as f64
        );
    }
    Ok(())
}
