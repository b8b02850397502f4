//! Sequences of the parity table: consecutive requests to one route, with an empty cache.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sszip_core::cache::process::ProcessHandle;
use sszip_core::config::{ConfigBlock, RouteConfig};

use super::cases;
use super::driven::End;
use super::fields::{check_fields, gzip, joined, same, Fields};
use super::host::{self, ClientResponse, Host};
use super::support::gunzip;

/// The sequences of one file of the parity table.
#[derive(Deserialize)]
struct Table {
    #[serde(default)]
    sequence: Vec<Sequence>,
}

/// A sequence of the parity table: several requests on one route, with a clock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    pub name: String,
    #[serde(rename = "why")]
    _why: Option<String>,
    hosts: Option<Vec<String>>,
    #[serde(default)]
    config: BTreeMap<String, String>,
    step: Vec<Step>,
}

/// A request of a sequence, with the node's response and the expected one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(default)]
    pause: u64,
    #[serde(default = "post")]
    method: String,
    #[serde(default = "root")]
    target: String,
    headers: Option<Fields>,
    #[serde(default)]
    body: String,
    hex: Option<String>,
    coding: Option<String>,
    node: Option<Node>,
    #[serde(default)]
    expect: Expect,
}

/// The node's response in a step.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Node {
    status: u16,
    headers: Fields,
    body: String,
    coding: Option<String>,
    framing: Option<String>,
    cut_at: Option<usize>,
}

/// The expected response to the client and request to the upstream of a step.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expect {
    cache: Option<String>,
    status: Option<u16>,
    coding: Option<String>,
    body: Option<String>,
    hex: Option<String>,
    headers: Fields,
    absent: Vec<String>,
    forwarded: Option<String>,
    upstream: Fields,
    upstream_absent: Vec<String>,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            status: 200,
            headers: vec![("Content-Type".into(), "application/json".into())],
            body: String::new(),
            coding: None,
            framing: None,
            cut_at: None,
        }
    }
}

fn post() -> String {
    "POST".into()
}

fn root() -> String {
    "/".into()
}

/// Lengths of the pieces of the node's bodies in bytes.
pub const SPLITS: [usize; 3] = [usize::MAX, 1, 37];

/// Loads the sequences of the parity table that apply to the core.
pub fn load() -> Vec<Sequence> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases");
    let mut sequences = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let table: Table =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        sequences.extend(table.sequence);
    }
    assert!(sequences.len() > 200);
    sequences.retain(|sequence| {
        let hosts = sequence.hosts.as_ref();
        hosts.is_none_or(|hosts| hosts.iter().any(|host| host == "core"))
            && cases::is_wanted(&sequence.name)
    });
    sequences
}

fn config(settings: &BTreeMap<String, String>, process: ProcessHandle) -> Arc<RouteConfig> {
    let mut directives = ConfigBlock::default();
    let on = || "on".to_string();
    let mut all = BTreeMap::from([
        ("enable".to_string(), on()),
        ("cache".to_string(), on()),
        ("cache_get".to_string(), "all".to_string()),
    ]);
    all.extend(settings.clone());
    for (name, value) in &all {
        let words: Vec<&[u8]> = value.split_ascii_whitespace().map(str::as_bytes).collect();
        directives.set_directive(name, &words).unwrap();
    }
    Arc::new(directives.resolve_route(process))
}

/// Runs a sequence on a host, with a route of its own in `process`.
pub fn run(
    sequence: &Sequence,
    split: usize,
    host: &dyn Host,
    process: &ProcessHandle,
    place: &str,
) -> Result<(), String> {
    let config = config(&sequence.config, process.clone());
    let mut now = 1_000_000;
    for (number, step) in sequence.step.iter().enumerate() {
        now += step.pause;
        let request = host::Request {
            place: place.as_bytes().to_vec(),
            now,
            ..request(step, split, Arc::clone(&config))
        };
        host.request(request)
            .and_then(|answer| check(step, &answer))
            .map_err(|problem| format!("step {}: {problem}", number + 1))?;
        now += 1;
    }
    Ok(())
}

fn check(step: &Step, answer: &ClientResponse) -> Result<(), String> {
    let expect = &step.expect;
    let of_node = step.node.as_ref().map(|node| node.status);
    same(
        "status",
        answer.status,
        expect.status.or(of_node).unwrap_or(200),
    )?;
    same(
        "the node is asked",
        answer.forwarded.is_some(),
        step.node.is_some(),
    )?;
    if let (Some(forwarded), Some(got)) = (&expect.forwarded, &answer.forwarded) {
        let coding = joined(&answer.upstream, "Content-Encoding");
        let got = match coding.as_deref().filter(|_| step.coding.is_some()) {
            Some("zstd") => zstd::decode_all(&got[..]).map_err(|e| format!("not zstd: {e}"))?,
            Some(_) => gunzip(got).map_err(|error| format!("not gzip: {error}"))?,
            None => got.clone(),
        };
        same(
            "forwarded",
            String::from_utf8_lossy(&got).into_owned(),
            expanded(forwarded),
        )?;
    }
    check_fields(
        "upstream",
        &answer.upstream,
        &expect.upstream,
        &expect.upstream_absent,
    )?;
    if answer.status == 502 {
        return Ok(());
    }
    check_fields("answer", &answer.fields, &expect.headers, &expect.absent)?;
    if let Some(cache) = &expect.cache {
        same("cache", cache_status_word(&answer.fields), &**cache)?;
    }
    let coding = joined(&answer.fields, "Content-Encoding");
    same("coding", coding.as_deref(), expect.coding.as_deref())?;
    let length = joined(&answer.fields, "Content-Length");
    if let (Some(length), 200, false) = (length, answer.status, step.method == "HEAD") {
        same("length", length, answer.body.len().to_string())?;
    }
    let body = match coding.as_deref() {
        Some("gzip") => gunzip(&answer.body).map_err(|error| format!("not gzip: {error}"))?,
        _ => answer.body.clone(),
    };
    let of_node = || step.node.as_ref().map_or("", |node| &node.body).to_string();
    if let Some(hex) = &expect.hex {
        return same("body", const_hex::encode(body), expanded(hex));
    }
    let expected = expanded(&expect.body.clone().unwrap_or_else(of_node));
    same(
        "body",
        String::from_utf8_lossy(&body).into_owned(),
        expected,
    )
}

/// Returns the result in `Cache-Status` (RFC 9211) as one word.
fn cache_status_word(fields: &Fields) -> &'static str {
    let cache_status = joined(fields, "Cache-Status").unwrap_or_default();
    let words = [
        ("fwd=miss", "miss"),
        ("fwd=bypass", "bypass"),
        ("fwd=stale", "stale"),
        ("sszip; hit", "hit"),
    ];
    let word = words.iter().find(|(part, _)| cache_status.contains(part));
    word.map_or("none", |(_, word)| word)
}

fn request(step: &Step, split: usize, config: Arc<RouteConfig>) -> host::Request {
    let mut headers: Fields = step
        .headers
        .clone()
        .unwrap_or_else(|| vec![("Accept-Encoding".into(), "gzip".into())]);
    headers.push(("Host".into(), "here".into()));
    let is_typed = headers.iter().any(|(name, _)| name == "Content-Type");
    if step.method == "POST" && !is_typed {
        headers.push(("Content-Type".into(), "application/json".into()));
    }
    let mut body = match &step.hex {
        Some(hex) => const_hex::decode(expanded(hex)).unwrap(),
        None => expanded(&step.body).into_bytes(),
    };
    if let Some(coding) = &step.coding {
        body = match &**coding {
            "zstd" => zstd::encode_all(&body[..], 3).expect("a body in memory"),
            _ => gzip(&body),
        };
        headers.push(("Content-Encoding".into(), coding.clone()));
    }
    let node = step.node.as_ref().map(|node| node_of(node, split));
    host::Request {
        config,
        method: step.method.clone(),
        target: step.target.clone(),
        headers,
        body,
        coding_allowed: true,
        place: Vec::new(),
        now: 0,
        at_node: Box::new(|_| node),
        purged: Arc::default(),
    }
}

/// Returns the node's response.
fn node_of(node: &Node, split: usize) -> host::NodeResponse {
    let mut sent = expanded(&node.body).into_bytes();
    let chunked = node.framing.as_deref() == Some("chunked");
    let mut headers = node.headers.clone();
    if let Some(coding) = &node.coding {
        sent = gzip(&sent);
        headers.push(("Content-Encoding".into(), coding.clone()));
    }
    let content_length = (!chunked && node.status != 304).then_some(sent.len() as u64);
    if let Some(length) = content_length {
        headers.push(("Content-Length".into(), length.to_string()));
    }
    let arriving = &sent[..node.cut_at.unwrap_or(sent.len())];
    host::NodeResponse {
        status: node.status,
        headers,
        content_length,
        delimited: true,
        body: arriving.to_vec(),
        ends: (0..arriving.len())
            .step_by(split)
            .map(|start| start.saturating_add(split).min(arriving.len()))
            .collect(),
        end: match node.cut_at {
            Some(_) if chunked => End::Cut,
            _ => End::Whole,
        },
    }
}

/// Expands each `@a:LENGTH@` to LENGTH repetitions of the text before the colon.
fn expanded(text: &str) -> String {
    let mut parts = text.split('@');
    let mut all = parts.next().unwrap_or_default().to_string();
    while let (Some(letters), Some(rest)) = (parts.next(), parts.next()) {
        let (letter, length) = letters.rsplit_once(':').unwrap();
        all += &letter.repeat(length.parse().unwrap());
        all += rest;
    }
    all
}
