//! Sequences of the parity table: consecutive requests to one route, with an empty cache.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};

use super::cases;
use super::driver_host::BodyEnd;
use super::fields::{
    check_equal, check_fields, decode_body, encode_body, joined_header_values, Fields,
};
use super::host::{self, ClientResponse, TestHost};

/// The sequences of one file of the parity table.
#[derive(Deserialize)]
struct SequenceTable {
    #[serde(default)]
    sequence: Vec<ParitySequence>,
}

/// A sequence of the parity table: several requests on one route, with a clock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParitySequence {
    pub name: String,
    #[serde(rename = "why")]
    _why: Option<String>,
    hosts: Option<Vec<String>>,
    #[serde(default)]
    config: BTreeMap<String, String>,
    step: Vec<SequenceStep>,
}

/// A request of a sequence, with the node's response and the expected one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SequenceStep {
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
    node: Option<StepNodeResponse>,
    #[serde(default)]
    expect: StepExpectation,
}

/// The node's response in a step.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StepNodeResponse {
    status: u16,
    headers: Fields,
    body: String,
    hex: Option<String>,
    coding: Option<String>,
    framing: Option<String>,
    cut_at: Option<usize>,
}

/// The expected response to the client and request to the upstream of a step.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StepExpectation {
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

impl Default for StepNodeResponse {
    fn default() -> Self {
        Self {
            status: 200,
            headers: vec![("Content-Type".into(), "application/json".into())],
            body: String::new(),
            hex: None,
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
pub const DIVISIONS: [usize; 3] = [usize::MAX, 1, 37];

/// Loads the sequences of the parity table that apply to the core.
pub fn load_sequences() -> Vec<ParitySequence> {
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
        let table: SequenceTable =
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

fn config_of_sequence(
    settings: &BTreeMap<String, String>,
    process: ProcessResources,
) -> Arc<RouteConfig> {
    let mut directives = RouteConfigBlock::default();
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
    Arc::new(directives.resolve_route_config(process))
}

/// Runs a sequence on a host, with a route of its own in `process`.
pub fn run_sequence(
    sequence: &ParitySequence,
    division: usize,
    host: &dyn TestHost,
    process: &ProcessResources,
    place: &str,
) -> Result<(), String> {
    let config = config_of_sequence(&sequence.config, process.clone());
    let mut now = 1_000_000;
    for (number, step) in sequence.step.iter().enumerate() {
        now += step.pause;
        let request = host::HostRequest {
            place: place.as_bytes().to_vec(),
            now,
            ..host_request_of_step(step, division, Arc::clone(&config))
        };
        host.request(request)
            .and_then(|answer| check_step(step, &answer))
            .map_err(|problem| format!("step {}: {problem}", number + 1))?;
        now += 1;
    }
    Ok(())
}

fn check_step(step: &SequenceStep, answer: &ClientResponse) -> Result<(), String> {
    let expect = &step.expect;
    let of_node = step.node.as_ref().map(|node| node.status);
    check_equal(
        "status",
        answer.status,
        expect.status.or(of_node).unwrap_or(200),
    )?;
    check_equal(
        "the node is asked",
        answer.forwarded.is_some(),
        step.node.is_some(),
    )?;
    if let (Some(forwarded), Some(got)) = (&expect.forwarded, &answer.forwarded) {
        let coding = joined_header_values(&answer.upstream, "Content-Encoding");
        let applied = coding.as_deref().filter(|_| step.coding.is_some());
        let got = decode_body(applied, got, false)?;
        check_equal(
            "forwarded",
            String::from_utf8_lossy(&got).into_owned(),
            expand_repetitions(forwarded),
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
        check_equal("cache", cache_status_word(&answer.fields), &**cache)?;
    }
    let coding = joined_header_values(&answer.fields, "Content-Encoding");
    check_equal("coding", coding.as_deref(), expect.coding.as_deref())?;
    let length = joined_header_values(&answer.fields, "Content-Length");
    let is_sized = length.is_some();
    if let (Some(length), 200, false) = (length, answer.status, step.method == "HEAD") {
        check_equal("length", length, answer.body.len().to_string())?;
    }
    let named = step.node.as_ref().filter(|node| node.hex.is_some());
    let named = named.and_then(|node| joined_header_values(&node.headers, "Content-Encoding"));
    // the node's own bytes under its own name
    let is_as_sent = coding.is_some() && coding == named;
    let applied = coding
        .as_deref()
        .filter(|_| !is_as_sent && !answer.body.is_empty());
    let body = decode_body(applied, &answer.body, is_sized)?;
    let of_node = || step.node.as_ref().map_or("", |node| &node.body).to_string();
    if let Some(hex) = &expect.hex {
        return check_equal("body", const_hex::encode(body), expand_repetitions(hex));
    }
    let expected = expand_repetitions(&expect.body.clone().unwrap_or_else(of_node));
    check_equal(
        "body",
        String::from_utf8_lossy(&body).into_owned(),
        expected,
    )
}

/// Returns the result in `Cache-Status` (RFC 9211) as one word.
fn cache_status_word(fields: &Fields) -> &'static str {
    let cache_status = joined_header_values(fields, "Cache-Status").unwrap_or_default();
    let words = [
        ("fwd=miss", "miss"),
        ("fwd=bypass", "bypass"),
        ("fwd=stale", "stale"),
        ("sszip; hit", "hit"),
    ];
    let word = words.iter().find(|(part, _)| cache_status.contains(part));
    word.map_or("none", |(_, word)| word)
}

fn host_request_of_step(
    step: &SequenceStep,
    division: usize,
    config: Arc<RouteConfig>,
) -> host::HostRequest {
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
        Some(hex) => const_hex::decode(expand_repetitions(hex)).unwrap(),
        None => expand_repetitions(&step.body).into_bytes(),
    };
    if let Some(coding) = &step.coding {
        body = encode_body(coding, &body);
        headers.push(("Content-Encoding".into(), coding.clone()));
    }
    let node = step
        .node
        .as_ref()
        .map(|node| node_response_of_step(node, division));
    host::HostRequest {
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
fn node_response_of_step(node: &StepNodeResponse, division: usize) -> host::NodeResponse {
    let mut sent = match &node.hex {
        Some(hex) => const_hex::decode(expand_repetitions(hex)).unwrap(),
        None => expand_repetitions(&node.body).into_bytes(),
    };
    let chunked = node.framing.as_deref() == Some("chunked");
    let mut headers = node.headers.clone();
    if let Some(coding) = &node.coding {
        sent = encode_body(coding, &sent);
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
            .step_by(division)
            .map(|start| start.saturating_add(division).min(arriving.len()))
            .collect(),
        end: match node.cut_at {
            Some(_) if chunked => BodyEnd::Cut,
            _ => BodyEnd::Whole,
        },
    }
}

/// Expands each `@a:LENGTH@` to LENGTH repetitions of the text before the colon.
fn expand_repetitions(text: &str) -> String {
    let mut parts = text.split('@');
    let mut all = parts.next().unwrap_or_default().to_string();
    while let (Some(letters), Some(rest)) = (parts.next(), parts.next()) {
        let (letter, length) = letters.rsplit_once(':').unwrap();
        all += &letter.repeat(length.parse().unwrap());
        all += rest;
    }
    all
}
