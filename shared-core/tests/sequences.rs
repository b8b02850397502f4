//! The sequences of the parity table (`tests/cases`) on the core: a host in
//! memory with a cache and a clock of its own.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use sszip_core::cache::process::Process;
use sszip_core::config::{Config, Directives};
use sszip_core::exchange::drive::{BodyLength, Driver, Need, Step as Do};
use sszip_core::exchange::{Asked, HeadEdit, RequestHead, ResponseHead};

#[path = "support/driven.rs"]
mod driven;
mod support;
use driven::{ran, sent, stored, through, End};
use support::gunzip;

type Fields = Vec<(String, String)>;

#[derive(Deserialize)]
struct Table {
    #[serde(default)]
    sequence: Vec<Sequence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sequence {
    name: String,
    #[serde(rename = "why")]
    _why: Option<String>,
    hosts: Option<Vec<String>>,
    #[serde(default)]
    config: BTreeMap<String, String>,
    step: Vec<Step>,
}

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
    node: Option<Node>,
    #[serde(default)]
    expect: Expect,
}

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

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expect {
    cache: Option<String>,
    status: Option<u16>,
    coding: Option<String>,
    body: Option<String>,
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

#[test]
fn every_sequence_holds_in_every_split() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases");
    let mut sequences = Vec::new();
    for file in ["cache.toml", "cache_get.toml"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let table: Table = toml::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(table.sequence.len() > 10, "{file}");
        sequences.extend(table.sequence);
    }
    let mut failures = Vec::new();
    for sequence in &sequences {
        if (sequence.hosts.as_ref()).is_some_and(|hosts| !hosts.iter().any(|host| host == "core")) {
            continue;
        }
        for split in [usize::MAX, 1, 37] {
            if let Err(problem) = run(sequence, split) {
                failures.push(format!("{} (pieces of {split}): {problem}", sequence.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn config(settings: &BTreeMap<String, String>) -> Arc<Config> {
    let mut directives = Directives::default();
    let on = || "on".to_string();
    let mut all = BTreeMap::from([("enable".to_string(), on()), ("cache".to_string(), on())]);
    all.extend(settings.clone());
    for (name, value) in &all {
        let words: Vec<&[u8]> = value.split_ascii_whitespace().map(str::as_bytes).collect();
        directives.set(name, &words).unwrap();
    }
    let process = Process::default();
    process.shared.start(16 << 20, 16 << 20, 1);
    Arc::new(directives.resolve(process))
}

fn run(sequence: &Sequence, split: usize) -> Result<(), String> {
    let config = config(&sequence.config);
    let mut now = 1_000_000;
    for (number, step) in sequence.step.iter().enumerate() {
        now += step.pause;
        let answer = exchange(&config, step, now, split)
            .and_then(|answer| check(step, &answer))
            .map_err(|problem| format!("step {}: {problem}", number + 1));
        answer?;
        now += 1;
    }
    Ok(())
}

/// What the client got, and the node.
#[derive(Default)]
struct Answer {
    status: u16,
    fields: Fields,
    body: Vec<u8>,
    forwarded: Option<Vec<u8>>,
    upstream: Fields,
}

fn check(step: &Step, answer: &Answer) -> Result<(), String> {
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
        same(
            "forwarded",
            String::from_utf8_lossy(got).into_owned(),
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
        same("cache", said_of_cache(&answer.fields), &**cache)?;
    }
    let coding = joined(&answer.fields, "Content-Encoding");
    same("coding", coding.as_deref(), expect.coding.as_deref())?;
    if let (Some(length), 200) = (joined(&answer.fields, "Content-Length"), answer.status) {
        same("length", length, answer.body.len().to_string())?;
    }
    let body = match coding.as_deref() {
        Some("gzip") => gunzip(&answer.body).map_err(|error| format!("not gzip: {error}"))?,
        _ => answer.body.clone(),
    };
    let of_node = || step.node.as_ref().map_or("", |node| &node.body).to_string();
    let expected = expanded(&expect.body.clone().unwrap_or_else(of_node));
    same(
        "body",
        String::from_utf8_lossy(&body).into_owned(),
        expected,
    )
}

/// RFC 9211, as one word.
fn said_of_cache(fields: &Fields) -> &'static str {
    let said = joined(fields, "Cache-Status").unwrap_or_default();
    let words = [
        ("fwd=miss", "miss"),
        ("fwd=bypass", "bypass"),
        ("fwd=stale", "stale"),
        ("sszip; hit", "hit"),
    ];
    let word = words.iter().find(|(part, _)| said.contains(part));
    word.map_or("none", |(_, word)| word)
}

/// The host.
fn exchange(config: &Arc<Config>, step: &Step, now: u64, split: usize) -> Result<Answer, String> {
    let text = |problem: sszip_core::exchange::Misuse| problem.to_string();
    let mut driver = Driver::new(Arc::clone(config));
    let mut headers: Fields = step
        .headers
        .clone()
        .unwrap_or_else(|| vec![("Accept-Encoding".into(), "gzip".into())]);
    headers.push(("Host".into(), "here".into()));
    if step.method == "POST" {
        headers.push(("Content-Type".into(), "application/json".into()));
    }
    driver
        .request_head(RequestHead {
            method: step.method.as_bytes(),
            target: step.target.as_bytes(),
            fields: bytes(&headers),
        })
        .map_err(text)?;
    let mut forwarded = expanded(&step.body).into_bytes();
    let need = driver.need(BodyLength::Known(forwarded.len() as u64));
    if need != Need::Nothing {
        let asked = Asked {
            place: b"0",
            now,
            coding_allowed: true,
            ..Asked::default()
        };
        let found = driver.look_up(Some(&forwarded), asked).map_err(text)?;
        match ran(&mut driver, found) {
            Do::Respond => {
                let exchange = driver.exchange().unwrap();
                return Ok(Answer {
                    status: exchange.status(),
                    fields: edited(&Fields::new(), exchange.head_edits()),
                    body: sent(&driver),
                    ..Answer::default()
                });
            }
            Do::ForwardRewritten => {
                forwarded = driver.exchange().unwrap().request_body().to_vec();
            }
            Do::Forward => {}
            found => return Err(format!("{found:?}, and it waits for nobody")),
        }
    }
    let upstream = edited(&headers, driver.exchange().unwrap().upstream_edits());
    let Some(node) = &step.node else {
        return Err("the node is asked".into());
    };
    let (status, fields, body) = answer_of(&mut driver, node, now, split)?;
    stored(&mut driver, now);
    Ok(Answer {
        status,
        fields,
        body,
        forwarded: Some(forwarded),
        upstream,
    })
}

/// What the client gets of what the node says.
fn answer_of(
    driver: &mut Driver,
    node: &Node,
    now: u64,
    split: usize,
) -> Result<(u16, Fields, Vec<u8>), String> {
    let text = |problem: sszip_core::exchange::Misuse| problem.to_string();
    let mut sent = expanded(&node.body).into_bytes();
    let chunked = node.framing.as_deref() == Some("chunked");
    let mut fields = node.headers.clone();
    if let Some(coding) = &node.coding {
        sent = gzip(&sent);
        fields.push(("Content-Encoding".into(), coding.clone()));
    }
    let content_length = (!chunked && node.status != 304).then_some(sent.len() as u64);
    if let Some(length) = content_length {
        fields.push(("Content-Length".into(), length.to_string()));
    }
    let step = driver
        .response_head(ResponseHead {
            status: node.status,
            content_length,
            fields: bytes(&fields),
            delimited: true,
            unbuffered: false,
            subrequest: false,
            coding_allowed: true,
            host_writes_vary: false,
            now: now / 1000,
        })
        .map_err(text)?;
    let arriving = &sent[..node.cut_at.unwrap_or(sent.len())];
    let end = match node.cut_at {
        Some(_) if chunked => End::Cut,
        _ => End::Whole,
    };
    let received = through(driver, step, arriving.chunks(split), end);
    let Some(body) = received.map_err(|problem| problem.to_string())? else {
        return Ok((502, Fields::new(), Vec::new()));
    };
    let exchange = driver.exchange().unwrap();
    let status = match exchange.status() {
        0 => node.status,
        stored => stored,
    };
    Ok((status, edited(&fields, exchange.head_edits()), body))
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// `@a:LENGTH@` is so many letters.
fn expanded(text: &str) -> String {
    let mut parts = text.split('@');
    let mut all = parts.next().unwrap_or_default().to_string();
    while let (Some(letters), Some(rest)) = (parts.next(), parts.next()) {
        let (letter, length) = letters.split_once(':').unwrap();
        all += &letter.repeat(length.parse().unwrap());
        all += rest;
    }
    all
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
        let found = joined(fields, name);
        same(&format!("{side} {name}"), found.as_deref(), Some(&**value))?;
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
