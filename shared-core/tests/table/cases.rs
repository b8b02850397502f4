//! Cases of the parity table: the client's request, the node's response, and the response that
//! the client must receive.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};

use super::driver_host::BodyEnd;
use super::fields::{
    check_equal, check_fields, decode_body, encode_body, joined_header_values, Fields,
};
use super::host::{self, ClientResponse, NodeResponse, TestHost};

/// The cases of one file of the parity table.
#[derive(Deserialize)]
struct CaseTable {
    /// Sequences are read by another module.
    #[serde(default)]
    case: Vec<ParityCase>,
}

/// A row of the parity table: a configuration, a request, the node's response and the expected one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParityCase {
    pub name: String,
    #[serde(rename = "why")]
    _why: Option<String>,
    #[serde(default = "every_host")]
    hosts: Vec<String>,
    #[serde(default)]
    pub config: BTreeMap<String, toml::Value>,
    #[serde(default)]
    request: CaseRequest,
    #[serde(default)]
    response: CaseResponse,
    #[serde(default)]
    expect: CaseExpectation,
}

/// The client's request of a case.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CaseRequest {
    method: String,
    version: String,
    headers: Fields,
}

/// The node's response of a case.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CaseResponse {
    status: u16,
    headers: Fields,
    body: String,
    framing: Option<String>,
    coding: Option<String>,
    cut_at: Option<usize>,
}

/// The expected response to the client and request to the upstream of a case.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CaseExpectation {
    mode: Option<String>,
    status: Option<u16>,
    coding: Option<String>,
    length: Option<String>,
    headers: Fields,
    absent: Vec<String>,
    upstream: Fields,
    upstream_absent: Vec<String>,
}

fn every_host() -> Vec<String> {
    vec!["core".into()]
}

impl Default for CaseRequest {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            version: "1.1".into(),
            headers: vec![("Accept-Encoding".into(), "gzip".into())],
        }
    }
}

impl Default for CaseResponse {
    fn default() -> Self {
        Self {
            status: 200,
            headers: vec![("Content-Type".into(), "application/json".into())],
            body: "json:30000".into(),
            framing: None,
            coding: None,
            cut_at: None,
        }
    }
}

/// The way in which the node's body is divided into pieces.
#[derive(Clone, Copy, Debug)]
pub enum BodyDivision {
    Whole,
    Bytes,
    Random(u64),
}

pub const DIVISIONS: [BodyDivision; 4] = [
    BodyDivision::Whole,
    BodyDivision::Bytes,
    BodyDivision::Random(1),
    BodyDivision::Random(2),
];

/// Loads the cases of the parity table that apply to the core.
pub fn load_cases() -> Vec<ParityCase> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            toml::from_str::<CaseTable>(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
                .case
        })
        .filter(|case| case.hosts.iter().any(|host| host == "core") && is_wanted(&case.name))
        .collect()
}

/// Whether `SSZIP_ROW` (see `make row`) selects this row: it is empty, or the name contains all
/// of its words.
pub fn is_wanted(name: &str) -> bool {
    let wanted = std::env::var("SSZIP_ROW").unwrap_or_default();
    let name = name.to_lowercase();
    let mut words = wanted.split_whitespace();
    words.all(|word| name.contains(&word.to_lowercase()))
}

/// Runs a case on a host, with a route in `process`.
pub fn run_case(
    case: &ParityCase,
    division: BodyDivision,
    host: &dyn TestHost,
    process: &ProcessResources,
) -> Result<(), String> {
    let body = generate_body(&case.response.body);
    let sent = match case.response.coding.as_deref() {
        Some(coding) => encode_body(coding, &body),
        None => body.clone(),
    };
    let answer = host.request(host_request_of_case(case, &sent, division, process.clone()))?;
    check_case(case, &answer, &sent, &body)
}

fn check_case(
    case: &ParityCase,
    answer: &ClientResponse,
    sent: &[u8],
    body: &[u8],
) -> Result<(), String> {
    let expect = &case.expect;

    if let Some(mode) = &expect.mode {
        check_equal("mode", answer.mode.mode_name(), mode)?;
    }
    let status = expect.status.unwrap_or(case.response.status);
    check_equal("status", answer.status, status)?;
    check_fields("answer", &answer.fields, &expect.headers, &expect.absent)?;
    check_fields(
        "upstream",
        &answer.upstream,
        &expect.upstream,
        &expect.upstream_absent,
    )?;
    if status != case.response.status {
        return Ok(());
    }

    let expected_coding = expect.coding.as_deref().unwrap_or("identity");
    let coding =
        joined_header_values(&answer.fields, "Content-Encoding").unwrap_or("identity".into());
    check_equal("coding", &*coding, expected_coding)?;
    let length = joined_header_values(&answer.fields, "Content-Length");
    if expect.length.as_deref() == Some("absent") {
        check_equal("length", length.clone(), None)?;
    } else if let Some(length) = &length {
        let head = case.request.method == "HEAD";
        let exact = if head { sent.len() } else { answer.body.len() };
        check_equal("length", length.as_str(), exact.to_string().as_str())?;
    }
    if case.request.method == "HEAD" || case.response.cut_at.is_some() {
        return Ok(());
    }
    let named = joined_header_values(&case.response.headers, "Content-Encoding");
    let by_name_only = named.is_some_and(|coding| coding != "identity");
    let applied = Some(&*coding).filter(|_| !by_name_only);
    let decoded = decode_body(applied, &answer.body, length.is_some())?;
    if decoded != body {
        return Err(format!(
            "{} bytes of body, not the node's {}",
            decoded.len(),
            body.len()
        ));
    }
    Ok(())
}

fn host_request_of_case(
    case: &ParityCase,
    sent: &[u8],
    division: BodyDivision,
    process: ProcessResources,
) -> host::HostRequest {
    let CaseRequest {
        method,
        version,
        headers,
    } = &case.request;
    let mut fields = case.response.headers.clone();
    if let Some(coding) = &case.response.coding {
        fields.push(("Content-Encoding".into(), coding.clone()));
    }
    let status = case.response.status;
    let bodiless = method == "HEAD" || matches!(status, 204 | 304);
    let framing = case.response.framing.as_deref();
    let framing = framing.unwrap_or(match status {
        204 | 304 => "none",
        _ => "length",
    });
    let content_length = (framing == "length").then_some(sent.len() as u64);
    if let Some(length) = content_length {
        fields.push(("Content-Length".into(), length.to_string()));
    }
    let cut_at = case.response.cut_at;
    let arriving = match bodiless {
        true => &[],
        false => &sent[..cut_at.unwrap_or(sent.len())],
    };
    let node = NodeResponse {
        status,
        headers: fields,
        content_length,
        delimited: framing != "close",
        body: arriving.to_vec(),
        ends: piece_ends(arriving.len(), division),
        // a host detects the truncation of a chunked body, the core a missing length
        end: match cut_at {
            Some(_) if framing == "chunked" => BodyEnd::Cut,
            _ => BodyEnd::Whole,
        },
    };
    host::HostRequest {
        config: config_of_case(&case.config, process),
        method: method.clone(),
        target: "/".into(),
        headers: headers.clone(),
        body: Vec::new(),
        coding_allowed: version == "1.1",
        place: b"0".to_vec(),
        now: 0,
        at_node: Box::new(|_| Some(node)),
        purged: Arc::default(),
    }
}

fn config_of_case(
    settings: &BTreeMap<String, toml::Value>,
    process: ProcessResources,
) -> Arc<RouteConfig> {
    let mut directives = RouteConfigBlock::default();
    if !settings.contains_key("enable") {
        directives.set_directive("enable", &[b"on"]).unwrap();
    }
    for (name, value) in settings {
        let value = match value {
            toml::Value::String(value) => value.clone(),
            other => other.to_string(),
        };
        let words: Vec<&[u8]> = value.split_ascii_whitespace().map(str::as_bytes).collect();
        directives.set_directive(name, &words).unwrap();
    }
    Arc::new(directives.resolve_route_config(process))
}

/// Generates the body that a spec of tests/cases/README.md describes.
fn generate_body(spec: &str) -> Vec<u8> {
    let Some((generator, length)) = spec.split_once(':') else {
        assert!(spec.is_empty(), "no generator {spec}");
        return Vec::new();
    };
    if generator == "hex" {
        return const_hex::decode(length).unwrap();
    }
    let length = length.parse().unwrap();
    let mut state = LinearCongruentialGenerator(1);
    let mut body: Vec<u8> = match generator {
        "json" => {
            let mut text = String::from("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[");
            for number in 0.. {
                if text.len() >= length {
                    break;
                }
                let hash = state.next();
                text += &format!("{{\"number\":\"{number:#x}\",\"hash\":\"0x{hash:064x}\"}},");
            }
            text.into_bytes()
        }
        "object" => [&b"{\"result\":\""[..], &vec![b'a'; length - 13], b"\"}"].concat(),
        "random" => (0..length).map(|_| (state.next() >> 56) as u8).collect(),
        "zeros" => vec![0; length],
        "text" => b"the quick brown fox "
            .iter()
            .copied()
            .cycle()
            .take(length)
            .collect(),
        _ => panic!("no generator {spec}"),
    };
    body.truncate(length);
    body
}

/// A generator of pseudorandom numbers from a seed (linear congruential).
struct LinearCongruentialGenerator(u64);

impl LinearCongruentialGenerator {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0
    }
}

/// Returns the positions at which the pieces of a body end.
fn piece_ends(length: usize, division: BodyDivision) -> Vec<usize> {
    match division {
        BodyDivision::Whole => vec![length],
        BodyDivision::Bytes => (1..=length).collect(),
        BodyDivision::Random(seed) => {
            let mut state = LinearCongruentialGenerator(seed);
            let mut ends = Vec::new();
            let mut end = 0;
            while end < length {
                // includes empty pieces
                let most = (length - end).min(9000) as u64 + 1;
                end += ((state.next() >> 33) % most) as usize;
                ends.push(end);
            }
            ends
        }
    }
}
