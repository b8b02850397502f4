//! The parity table (`tests/cases`) on the core: a host in memory, which does
//! what the theory of operation says and nothing else.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sszip_core::config::{Config, Directives};
use sszip_core::exchange::drive::Driver;
use sszip_core::exchange::{HeadEdit, RequestHead, ResponseHead};
use sszip_core::memory::Budget;
use sszip_core::mode::Mode;

#[path = "support/driven.rs"]
mod driven;
mod support;
use driven::{through, End};
use support::gunzip;

type Fields = Vec<(String, String)>;

#[derive(Deserialize)]
struct Table {
    /// Sequences are another test's.
    #[serde(default)]
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(rename = "why")]
    _why: Option<String>,
    #[serde(default = "every_host")]
    hosts: Vec<String>,
    #[serde(default)]
    config: BTreeMap<String, toml::Value>,
    #[serde(default)]
    request: Request,
    #[serde(default)]
    response: Response,
    #[serde(default)]
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    method: String,
    version: String,
    headers: Fields,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Response {
    status: u16,
    headers: Fields,
    body: String,
    framing: Option<String>,
    coding: Option<String>,
    cut_at: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expect {
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

impl Default for Request {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            version: "1.1".into(),
            headers: vec![("Accept-Encoding".into(), "gzip".into())],
        }
    }
}

impl Default for Response {
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

/// How the node's body comes in pieces.
#[derive(Clone, Copy, Debug)]
enum Split {
    Whole,
    Bytes,
    Random(u64),
}

#[test]
fn every_case_holds_in_every_split() {
    let cases = load();
    assert!(cases.len() > 100, "only {} cases were found", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        for split in [
            Split::Whole,
            Split::Bytes,
            Split::Random(1),
            Split::Random(2),
        ] {
            if let Err(problem) = run(case, split) {
                failures.push(format!("{} ({split:?}): {problem}", case.name));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn load() -> Vec<Case> {
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
            toml::from_str::<Table>(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
                .case
        })
        .filter(|case| case.hosts.iter().any(|host| host == "core"))
        .collect()
}

/// What the client got.
struct Answer {
    status: u16,
    fields: Fields,
    body: Vec<u8>,
    upstream: Fields,
    mode: Mode,
}

fn run(case: &Case, split: Split) -> Result<(), String> {
    let body = generate(&case.response.body);
    let sent = match case.response.coding.as_deref() {
        Some("gzip" | "x-gzip") => gzip(&body),
        Some(other) => panic!("no coder for {other}"),
        None => body.clone(),
    };
    let answer = exchange(case, &sent, split)?;
    let expect = &case.expect;

    if let Some(mode) = &expect.mode {
        same("mode", answer.mode.name(), mode)?;
    }
    let status = expect.status.unwrap_or(case.response.status);
    same("status", answer.status, status)?;
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
    let coding = joined(&answer.fields, "Content-Encoding").unwrap_or("identity".into());
    same("coding", &*coding, expected_coding)?;
    let length = joined(&answer.fields, "Content-Length");
    if expect.length.as_deref() == Some("absent") {
        same("length", length.clone(), None)?;
    } else if let Some(length) = &length {
        let head = case.request.method == "HEAD";
        let exact = if head { sent.len() } else { answer.body.len() };
        same("length", length.as_str(), exact.to_string().as_str())?;
    }
    if case.request.method == "HEAD" || case.response.cut_at.is_some() {
        return Ok(());
    }
    let named = joined(&case.response.headers, "Content-Encoding");
    let by_name_only = named.is_some_and(|coding| coding != "identity");
    let decoded = match &*coding {
        "gzip" | "x-gzip" if !by_name_only => {
            gunzip(&answer.body).map_err(|error| format!("not gzip: {error}"))?
        }
        _ => answer.body.clone(),
    };
    if decoded != body {
        return Err(format!(
            "{} bytes of body, not the node's {}",
            decoded.len(),
            body.len()
        ));
    }
    Ok(())
}

/// The host.
fn exchange(case: &Case, sent: &[u8], split: Split) -> Result<Answer, String> {
    let text = |problem: sszip_core::exchange::Misuse| problem.to_string();
    let Request {
        method,
        version,
        headers,
    } = &case.request;
    let mut driver = Driver::new(config(&case.config));
    driver
        .request_head(RequestHead {
            method: method.as_bytes(),
            target: b"/",
            fields: bytes(headers),
        })
        .map_err(text)?;
    let upstream = edited(headers, driver.exchange().unwrap().upstream_edits());

    let mut fields = case.response.headers.clone();
    if let Some(coding) = &case.response.coding {
        fields.push(("Content-Encoding".into(), coding.clone()));
    }
    let bodiless = method == "HEAD" || matches!(case.response.status, 204 | 304);
    let framing =
        case.response
            .framing
            .as_deref()
            .unwrap_or(if matches!(case.response.status, 204 | 304) {
                "none"
            } else {
                "length"
            });
    let content_length = (framing == "length").then_some(sent.len() as u64);
    if let Some(length) = content_length {
        fields.push(("Content-Length".into(), length.to_string()));
    }
    let step = driver
        .response_head(ResponseHead {
            status: case.response.status,
            content_length,
            fields: bytes(&fields),
            delimited: framing != "close",
            unbuffered: false,
            subrequest: false,
            coding_allowed: version == "1.1",
            host_writes_vary: false,
            now: 0,
        })
        .map_err(text)?;

    let arriving = if bodiless {
        &[]
    } else {
        &sent[..case.response.cut_at.unwrap_or(sent.len())]
    };
    // a host knows a cut of a chunked body; the core a missing length
    let end = match case.response.cut_at {
        Some(_) if framing == "chunked" => End::Cut,
        _ => End::Whole,
    };
    let pieces = pieces(arriving, split);
    let received = through(&mut driver, step, pieces, end).map_err(|problem| problem.to_string());
    let exchange = driver.exchange().unwrap();
    let (status, fields, body) = match received {
        Ok(Some(body)) => {
            let fields = edited(&fields, exchange.head_edits());
            (case.response.status, fields, body)
        }
        // the host's own answer, with its own head
        Ok(None) => (502, Fields::new(), Vec::new()),
        // broken off: its head is out
        Err(_) if case.response.cut_at.is_some() => {
            let fields = edited(&fields, exchange.head_edits());
            (case.response.status, fields, Vec::new())
        }
        Err(problem) => return Err(problem),
    };
    Ok(Answer {
        status,
        fields,
        body,
        upstream,
        mode: exchange.mode(),
    })
}

fn config(settings: &BTreeMap<String, toml::Value>) -> Arc<Config> {
    let mut directives = Directives::default();
    if !settings.contains_key("enable") {
        directives.set("enable", &[b"on"]).unwrap();
    }
    for (name, value) in settings {
        let value = match value {
            toml::Value::String(value) => value.clone(),
            other => other.to_string(),
        };
        let words: Vec<&[u8]> = value.split_ascii_whitespace().map(str::as_bytes).collect();
        directives.set(name, &words).unwrap();
    }
    Arc::new(directives.resolve(Budget::new()))
}

fn bytes(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

fn edited(fields: &Fields, edits: &[HeadEdit]) -> Fields {
    let mut fields = fields.clone();
    for HeadEdit { name, value } in edits {
        fields.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        if let Some(value) = value {
            fields.push((name.to_string(), String::from_utf8(value.clone()).unwrap()));
        }
    }
    fields
}

fn joined(fields: &Fields, name: &str) -> Option<String> {
    let lines: Vec<_> = fields
        .iter()
        .filter(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
        .collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

fn check_fields(
    side: &str,
    fields: &Fields,
    present: &Fields,
    absent: &[String],
) -> Result<(), String> {
    for (name, value) in present {
        same(
            &format!("{side} {name}"),
            joined(fields, name).as_deref(),
            Some(value),
        )?;
    }
    for name in absent {
        same(&format!("{side} {name}"), joined(fields, name), None)?;
    }
    Ok(())
}

fn same<T: PartialEq<U> + std::fmt::Debug, U: std::fmt::Debug>(
    what: &str,
    found: T,
    expected: U,
) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what} is {found:?}, not {expected:?}"))
    }
}

/// The generators of tests/cases/README.md.
fn generate(what: &str) -> Vec<u8> {
    let Some((generator, length)) = what.split_once(':') else {
        assert!(what.is_empty(), "no generator {what}");
        return Vec::new();
    };
    let length = length.parse().unwrap();
    let mut state = Lcg(1);
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
        _ => panic!("no generator {what}"),
    };
    body.truncate(length);
    body
}

struct Lcg(u64);

impl Lcg {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0
    }
}

fn pieces(body: &[u8], split: Split) -> Vec<&[u8]> {
    match split {
        Split::Whole => vec![body],
        Split::Bytes => body.chunks(1).collect(),
        Split::Random(seed) => {
            let mut state = Lcg(seed);
            let mut rest = body;
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                // empty pieces too
                let most = (rest.len() as u64).min(9000) + 1;
                let (piece, later) = rest.split_at(((state.next() >> 33) % most) as usize);
                pieces.push(piece);
                rest = later;
            }
            pieces
        }
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}
