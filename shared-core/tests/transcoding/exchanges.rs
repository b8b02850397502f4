//! What holds of each exchange in which a format is changed.
//!
//! No panic. Never JSON under the type of SSZ, or the other way round; a length that
//! is said is that of what comes; what was made is what naive walkers make of it, and
//! what was not made is the original. A value that nothing is wrong with is made. What
//! the cache has is what was sent. No memory is left in use.

use std::io::Read;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use sszip_core::cache::process::Process;
use sszip_core::config::Directives;
use sszip_core::mode::Mode;
use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

use super::driven::End;
use super::fields::{gzip, joined, Fields};
use super::host::{Answer, Host, Node, OneByOne, Request};
use super::laws::write;
use super::naive::{self, Choices, Json};

const OCTETS: &str = "application/octet-stream";
const JSON: &str = "application/json";
const VERSION: &str = "Eth-Consensus-Version";

/// Routes, and what they give; whether each fork has the same.
const ROUTES: [(&str, &str, bool); 10] = [
    (
        "/eth/v1/beacon/states/7/pending_consolidations",
        "PendingConsolidations",
        false,
    ),
    ("/eth/v2/beacon/blocks/7", "SignedBeaconBlock", false),
    (
        "/eth/v1/beacon/light_client/finality_update",
        "LightClientFinalityUpdate",
        false,
    ),
    (
        "/eth/v1/beacon/states/7/validator_balances",
        "ValidatorBalances",
        true,
    ),
    (
        "/eth/v2/validator/aggregate_attestation",
        "Attestation",
        false,
    ),
    (
        "/eth/v1/validator/attestation_data",
        "AttestationData",
        true,
    ),
    (
        "/eth/v1/beacon/pool/payload_attestations",
        "PayloadAttestationMessages",
        false,
    ),
    (
        "/eth/v1/beacon/states/7/pending_deposits",
        "PendingDeposits",
        false,
    ),
    (
        "/eth/v1/beacon/states/7/proposer_lookahead",
        "ProposerLookahead",
        false,
    ),
    (
        "/eth/v1/beacon/execution_payload_envelopes/7",
        "SignedExecutionPayloadEnvelope",
        false,
    ),
];

/// Where bodies go, and what they are.
const SUBMITTED: [(&str, &str); 5] = [
    ("/eth/v2/beacon/pool/attestations", "SubmittedAttestations"),
    (
        "/eth/v2/validator/aggregate_and_proofs",
        "SignedAggregateAndProofs",
    ),
    (
        "/eth/v1/validator/register_validator",
        "SignedValidatorRegistrations",
    ),
    (
        "/eth/v1/beacon/pool/payload_attestations",
        "PayloadAttestationMessages",
    ),
    ("/eth/v2/beacon/blinded_blocks", "SignedBlindedBeaconBlock"),
];

/// What a client takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Takes {
    Ssz,
    SszOnly,
    Json,
    JsonOnly,
    Other,
}

const ACCEPTS: [(&str, Takes); 9] = [
    (
        "application/octet-stream;q=1.0,application/json;q=0.9",
        Takes::Ssz,
    ),
    ("application/octet-stream", Takes::SszOnly),
    (
        "application/json;q=0.1, application/octet-stream",
        Takes::Ssz,
    ),
    ("application/json", Takes::JsonOnly),
    (
        "application/json, application/octet-stream;q=0.5",
        Takes::Json,
    ),
    ("*/*", Takes::Json),
    ("application/octet-stream;q=0, */*", Takes::JsonOnly),
    ("", Takes::Json),
    ("text/event-stream", Takes::Other),
];

impl Takes {
    fn wants_ssz(self) -> Option<bool> {
        match self {
            Takes::Ssz | Takes::SszOnly => Some(true),
            Takes::Json | Takes::JsonOnly => Some(false),
            Takes::Other => None,
        }
    }

    fn takes(self, is_ssz: bool) -> bool {
        match self {
            Takes::SszOnly => is_ssz,
            Takes::JsonOnly => !is_ssz,
            _ => true,
        }
    }
}

fn field(name: &str, value: impl Into<String>) -> (String, String) {
    (name.into(), value.into())
}

/// One of them, chosen.
pub fn an_exchange(choices: &mut Choices<'_>) {
    match choices.below(5) {
        0 | 1 => an_answer(choices),
        2 => a_body(choices),
        3 => a_result(choices),
        _ => the_same_twice(choices),
    }
}

fn chosen<T: Copy>(choices: &mut Choices<'_>, all: &[T]) -> T {
    all[choices.below(all.len())]
}

/// A place, with or without little room.
fn place(
    choices: &mut Choices<'_>,
    is_roomy: bool,
    more: &[(&str, &str)],
) -> (Process, Arc<sszip_core::config::Config>) {
    let process = Process::default();
    let mut directives = Directives::default();
    let min_length = chosen(choices, &["0", "1", "300"]);
    let mut set = |name: &str, value: &str| {
        directives.set(name, &[value.as_bytes()]).unwrap();
    };
    for (name, value) in [
        ("enable", "on"),
        ("ssz", "on"),
        ("ssz_preset", "minimal"),
        ("min_length", min_length),
    ] {
        set(name, value);
    }
    if !is_roomy {
        set("ssz_hold", chosen(choices, &["0", "10", "400", "4m"]));
        set("ssz_max_size", chosen(choices, &["10", "500", "4m"]));
        set("memory", chosen(choices, &["1k", "8k", "64k", "256m"]));
        set("max_oneshot", chosen(choices, &["1k", "16m"]));
    }
    for (name, value) in more {
        set(name, value);
    }
    let config = Arc::new(directives.resolve(process.clone()));
    (process, config)
}

/// A value of a type in a fork that has it.
struct Value {
    schema: &'static Schema,
    ty: TypeId,
    fork: Fork,
    json: Json,
    ssz: Vec<u8>,
}

fn value(choices: &mut Choices<'_>, name: &str) -> Option<Value> {
    let fork = chosen(choices, Fork::ALL);
    let schema = Schema::of(fork, Preset::Minimal);
    let ty = schema.find(name)?;
    let json = naive::choose(schema, ty, choices);
    let ssz = naive::to_ssz(schema, ty, &json).expect("a value of the type");
    Some(Value {
        schema,
        ty,
        fork,
        json,
        ssz,
    })
}

/// Damage; whether there is any.
fn damaged(choices: &mut Choices<'_>, body: &mut Vec<u8>) -> bool {
    let before = body.clone();
    if choices.below(3) > 0 {
        return false;
    }
    for _ in 0..1 + choices.below(3) {
        let at = choices.below(body.len() + 1);
        let end = (at + choices.below(40)).min(body.len());
        match choices.below(6) {
            0 => body.truncate(at),
            1 => drop(body.drain(at..end)),
            2 => body.insert(at, choices.byte()),
            3 if at < body.len() => body[at] = choices.byte(),
            4 if at < body.len() => body[at] ^= 1 << choices.below(8),
            _ => {
                let again = body[at..end].to_vec();
                body.extend(again);
            }
        }
    }
    *body != before
}

/// Where the pieces of a body end.
fn ends(choices: &mut Choices<'_>, length: usize) -> Vec<usize> {
    let most = chosen(choices, &[1, 3, 64, 700, 1 << 20]);
    let mut ends = Vec::new();
    let mut end = 0;
    while end < length {
        // not each of many is worth a decision
        let step = if ends.len() < 200 {
            1 + choices.below(most)
        } else {
            most
        };
        end = (end + step).min(length);
        ends.push(end);
    }
    ends
}

/// What a node sends, and whether anything is wrong with how it does.
fn node(choices: &mut Choices<'_>, headers: Fields, body: Vec<u8>) -> (Node, bool) {
    let length = body.len() as u64;
    let (content_length, delimited, end, is_right) = match choices.below(10) {
        0..=3 => (Some(length), true, End::Whole, true),
        4..=6 => (None, true, End::Whole, true),
        7 => (None, false, End::Whole, true),
        8 => (
            Some(length + 1 + choices.below(9) as u64),
            true,
            End::Whole,
            false,
        ),
        _ => (None, true, End::Cut, false),
    };
    let node = Node {
        status: 200,
        headers,
        content_length,
        delimited,
        ends: ends(choices, body.len()),
        body,
        end,
    };
    (node, is_right)
}

fn request(
    config: &Arc<sszip_core::config::Config>,
    method: &str,
    target: &str,
    headers: Fields,
    body: Vec<u8>,
    node: Option<Node>,
) -> Request {
    Request {
        config: Arc::clone(config),
        method: method.into(),
        target: target.into(),
        headers,
        body,
        coding_allowed: true,
        place: b"here".to_vec(),
        now: 1000,
        at_node: Box::new(move |_| node),
        purged: Arc::new(AtomicU64::new(0)),
    }
}

fn gunzip(coded: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(coded);
    decoder.read_to_end(&mut body).ok()?;
    decoder.into_inner().is_empty().then_some(body)
}

/// The body without its coding; the length that is said is that of what came.
fn decoded(answer: &Answer) -> Vec<u8> {
    if let Some(length) = joined(&answer.fields, "Content-Length") {
        assert_eq!(length, answer.body.len().to_string(), "{:?}", answer.fields);
    }
    match joined(&answer.fields, "Content-Encoding").as_deref() {
        Some("gzip") => gunzip(&answer.body).expect("a gzip member"),
        None => answer.body.clone(),
        other => panic!("{other:?}"),
    }
}

fn is_of(answer: &Answer, media_type: &str) -> bool {
    joined(&answer.fields, "Content-Type").as_deref() == Some(media_type)
}

/// The members of that name of a JSON object, as a naive reader finds them; `None`: it
/// reads nothing.
fn members(text: &[u8], name: &str) -> Option<Vec<Json>> {
    match serde_json::from_slice(text).ok()? {
        Json::Object(all) => {
            let all = all.into_iter().filter(|(other, _)| other == name);
            Some(all.map(|(_, value)| value).collect())
        }
        _ => None,
    }
}

/// The JSON in an envelope, written in some way.
fn envelope(choices: &mut Choices<'_>, value: &Value) -> (Vec<u8>, bool) {
    let data = write(&value.json, choices);
    let name = value.fork.name();
    let (text, names_fork) = match choices.below(6) {
        0 | 1 => (format!("{{\"version\":\"{name}\",\"data\":{data}}}"), true),
        2 => (format!("{{\"data\":{data},\"version\":\"{name}\"}}"), false),
        3 => (format!("{{ \"finalized\" : true, \"data\":{data}\n}}"), false),
        4 => (format!("{{\"execution_optimistic\":false,\"finalized\":true,\"version\":\"{name}\",\"data\":{data}}}"), true),
        _ => (format!("{{\"extra\":[{{\"data\":1}}],\"version\":\"{name}\",\"data\":{data}}}\n"), true),
    };
    (text.into_bytes(), names_fork)
}

/// What a node says to a GET, and what there is to know of it.
struct Said {
    node: Node,
    is_ssz: bool,
    /// Without its coding; `None`: that is damaged.
    plain: Option<Vec<u8>>,
    /// The value can be had in either format.
    is_right: bool,
}

fn said(choices: &mut Choices<'_>, value: &Value, is_same: bool, more: Fields) -> Said {
    let is_ssz = choices.below(2) == 1;
    let (mut body, names_fork) = match is_ssz {
        true => (value.ssz.clone(), false),
        false => envelope(choices, value),
    };
    let mut is_right = !damaged(choices, &mut body);
    let media_type = if is_ssz { OCTETS } else { JSON };
    let mut headers = vec![
        field("Content-Type", media_type),
        field("ETag", "\"the-nodes\""),
    ];
    headers.extend(more);
    match choices.below(8) {
        0 => is_right &= is_same || !is_ssz && names_fork,
        1 => {
            let other = chosen(choices, Fork::ALL);
            headers.push(field(VERSION, other.name()));
            is_right &= is_same || other == value.fork;
        }
        2 if !is_same => {
            headers.push(field(VERSION, "unheard-of"));
            is_right = false;
        }
        _ => headers.push(field(VERSION, value.fork.name())),
    }
    let plain = body;
    let (body, plain) = match choices.below(6) {
        0 => {
            headers.push(field("Content-Encoding", "gzip"));
            (gzip(&plain), Some(plain))
        }
        1 => {
            headers.push(field("Content-Encoding", "gzip"));
            let mut coded = gzip(&plain);
            is_right &= !damaged(choices, &mut coded);
            let plain = gunzip(&coded);
            (coded, plain)
        }
        _ => (plain.clone(), Some(plain)),
    };
    let (node, is_sent) = node(choices, headers, body);
    is_right &= is_sent && plain.is_some();
    Said {
        node,
        is_ssz,
        plain,
        is_right,
    }
}

/// The fork that an answer is of, and its type in that.
fn type_in(answer: &Answer, name: &str, first: Option<Fork>) -> (&'static Schema, TypeId) {
    let fork = match first {
        Some(fork) => fork,
        None => joined(&answer.fields, VERSION)
            .expect("a fork")
            .parse()
            .unwrap(),
    };
    let schema = Schema::of(fork, Preset::Minimal);
    (schema, schema.find(name).expect("a type of that fork"))
}

/// What the client gets of an answer.
fn an_answer(choices: &mut Choices<'_>) {
    let (target, name, is_same) = chosen(choices, &ROUTES);
    let Some(value) = value(choices, name) else {
        return;
    };
    let is_roomy = choices.below(2) == 0;
    let (process, config) = place(choices, is_roomy, &[]);
    let (accept, takes) = chosen(choices, &ACCEPTS);
    let takes_gzip = choices.below(2) == 1;
    let mut headers = Fields::new();
    if !accept.is_empty() {
        headers.push(field("Accept", accept));
    }
    if takes_gzip {
        headers.push(field("Accept-Encoding", "gzip"));
    }
    let said = said(choices, &value, is_same, Fields::new());
    let is_coded = joined(&said.node.headers, "Content-Encoding").is_some();
    let (wire, plain) = (said.node.body.clone(), said.plain.clone());
    let media_type = if said.is_ssz { OCTETS } else { JSON };
    let is_whole = said.node.end == End::Whole && !is_short(&said.node);
    let asked = request(&config, "GET", target, headers, Vec::new(), Some(said.node));
    let answer = OneByOne.ask(asked).unwrap();
    let is_to_change = takes.wants_ssz().is_some_and(|wants| wants != said.is_ssz);
    let about = || {
        format!(
            "{target} {accept:?} {:?} {} {:?}",
            answer.mode, answer.status, answer.fields
        )
    };

    let first = is_same.then_some(value.fork);
    match answer.mode {
        // broken off, or the host's own words
        _ if answer.status == 502 || !is_whole => {
            assert!(!said.is_right || !is_roomy, "{}", about());
            assert!(
                answer.status == 502
                    || takes.takes(is_of(&answer, OCTETS))
                    || matches!(answer.status, 406 | 503)
            );
        }
        Mode::Ssz => {
            assert!(is_to_change && is_of(&answer, OCTETS), "{}", about());
            let (schema, ty) = type_in(&answer, name, first);
            let ssz = decoded(&answer);
            assert!(naive::to_json(schema, ty, &ssz).is_some(), "{}", about());
            let plain = plain.unwrap();
            if let (Some(named), false) = (members(&plain, "version"), is_same) {
                // head and envelope agree
                let fork = joined(&answer.fields, VERSION).unwrap();
                assert!(named.iter().all(|it| *it == Json::Text(fork.clone())));
            }
            if let Some(data) = members(&plain, "data") {
                assert_eq!(data.len(), 1, "{}", about());
                assert_eq!(
                    naive::to_ssz(schema, ty, &data[0]),
                    Some(ssz),
                    "{}",
                    about()
                );
            }
        }
        Mode::Json => {
            assert!(is_to_change && is_of(&answer, JSON), "{}", about());
            let (schema, ty) = match first {
                Some(_) => (value.schema, value.ty),
                None => type_in(&answer, name, None),
            };
            let json = members(&decoded(&answer), "data").expect("JSON");
            assert_eq!(naive::to_ssz(schema, ty, &json[0]), plain, "{}", about());
        }
        _ if matches!(answer.status, 406 | 503) => {
            assert!(is_to_change && !takes.takes(said.is_ssz), "{}", about());
            assert!(!said.is_right || !is_roomy, "{}", about());
            let is_memory = answer.mode == Mode::Memory;
            assert_eq!(answer.status == 503, is_memory, "{}", about());
            let code = members(&decoded(&answer), "code").expect("JSON");
            assert!(
                is_of(&answer, JSON) && code == [Json::Number],
                "{}",
                about()
            );
        }
        _ => {
            assert!(is_of(&answer, media_type), "{}", about());
            assert!(!is_to_change || takes.takes(said.is_ssz), "{}", about());
            assert!(!is_to_change || !said.is_right || !is_roomy, "{}", about());
            match joined(&answer.fields, "Content-Encoding") {
                // what can't be decoded, or need not be, is sent as it came
                Some(_) if is_coded && answer.body == wire => {}
                _ => assert_eq!(Some(decoded(&answer)), plain, "{}", about()),
            }
        }
    }
    let vary = joined(&answer.fields, "Vary").unwrap_or_default();
    assert!(
        answer.status == 502 || vary.split(", ").any(|one| one == "Accept"),
        "{}",
        about()
    );
    if !takes_gzip && matches!(answer.mode, Mode::Ssz | Mode::Json) {
        assert_eq!(joined(&answer.fields, "Content-Encoding"), None);
    }
    drop((answer, config));
    assert_eq!(process.budget.used(), 0);
}

fn is_short(node: &Node) -> bool {
    node.content_length
        .is_some_and(|length| length > node.body.len() as u64)
}

/// What the cache gives is what was sent.
fn the_same_twice(choices: &mut Choices<'_>) {
    let (target, name, is_same) = chosen(choices, &ROUTES);
    let Some(value) = value(choices, name) else {
        return;
    };
    let is_roomy = choices.below(2) == 0;
    let (process, config) = place(choices, is_roomy, &[("cache", "on")]);
    process.shared.start(1 << 20, 1 << 20, 1);
    let fresh = vec![field("Cache-Control", "max-age=60")];
    // the first two store, perhaps; then each of both is asked for again
    let mut got: [Option<(String, Vec<u8>)>; 2] = [None, None];
    for turn in 0..4 {
        let is_ssz = choices.below(2) == 1;
        let (accept, takes) = match is_ssz {
            true => chosen(choices, &ACCEPTS[..3]),
            false => chosen(choices, &ACCEPTS[3..8]),
        };
        let mut headers = vec![];
        if !accept.is_empty() {
            headers.push(field("Accept", accept));
        }
        if choices.below(2) == 1 {
            headers.push(field("Accept-Encoding", "gzip"));
        }
        let said = said(choices, &value, is_same, fresh.clone());
        let asked = request(&config, "GET", target, headers, Vec::new(), Some(said.node));
        let answer = OneByOne.ask(asked).unwrap();
        if answer.mode != Mode::Hit {
            let is_made = matches!(answer.mode, Mode::Ssz | Mode::Json);
            got[usize::from(is_ssz)] = is_made.then(|| {
                (
                    joined(&answer.fields, "Content-Type").unwrap(),
                    decoded(&answer),
                )
            });
            continue;
        }
        let media_type = joined(&answer.fields, "Content-Type").unwrap();
        assert_eq!(
            (answer.status, &*media_type),
            (200, if is_ssz { OCTETS } else { JSON }),
            "{turn}"
        );
        assert!(takes.takes(is_ssz));
        let body = decoded(&answer);
        if let Some(before) = &got[usize::from(is_ssz)] {
            assert_eq!(*before, (media_type, body), "{turn}");
        }
    }
    drop(config);
    process.shared.hot().unwrap().clear();
    assert_eq!(process.budget.used(), 0);
}

/// A body of SSZ for a node that takes JSON.
fn a_body(choices: &mut Choices<'_>) {
    let (target, name) = chosen(choices, &SUBMITTED);
    let fork = chosen(choices, Fork::ALL);
    let schema = Schema::of(fork, Preset::Minimal);
    let Some(ty) = schema.find(name) else {
        return;
    };
    let json = naive::choose(schema, ty, choices);
    let mut body = naive::to_ssz(schema, ty, &json).expect("a value of the type");
    damaged(choices, &mut body);
    let is_roomy = choices.below(2) == 0;
    let (process, config) = place(choices, is_roomy, &[("ssz_request", "always")]);
    let mut headers = vec![field("Content-Type", OCTETS), field("Accept", JSON)];
    let is_said = choices.below(6) > 0;
    if is_said {
        headers.push(field(VERSION, fork.name()));
    }
    let node = Node {
        status: 200,
        headers: vec![],
        content_length: Some(0),
        delimited: true,
        body: vec![],
        ends: vec![],
        end: End::Whole,
    };
    let asked = request(&config, "POST", target, headers, body.clone(), Some(node));
    let answer = OneByOne.ask(asked).unwrap();
    let read = naive::to_json(schema, ty, &body);
    match &answer.forwarded {
        // the node says what it thinks of it
        Some(sent)
            if *sent == body
                && joined(&answer.upstream, "Content-Type").as_deref() == Some(OCTETS) =>
        {
            assert!(
                !is_said || !is_roomy || name == "SignedValidatorRegistrations",
                "{target} {fork:?}"
            );
        }
        Some(sent) => {
            assert_eq!(
                joined(&answer.upstream, "Content-Type").as_deref(),
                Some(JSON)
            );
            if let Some(length) = joined(&answer.upstream, "Content-Length") {
                assert_eq!(length, sent.len().to_string());
            }
            if is_said {
                assert_eq!(
                    read.map(|json| json.write().into_bytes()).as_ref(),
                    Some(sent)
                );
            }
        }
        None => {
            assert!(
                read.is_none() || !is_roomy || !is_said,
                "{target} {fork:?}: {}",
                String::from_utf8_lossy(&answer.body)
            );
            assert!(
                matches!(answer.status, 400 | 502 | 503),
                "{}",
                answer.status
            );
            assert!(is_of(&answer, JSON));
            decoded(&answer);
        }
    }
    drop((answer, config));
    assert_eq!(process.budget.used(), 0);
}

/// The result of a call.
fn a_result(choices: &mut Choices<'_>) {
    let (method, name) = chosen(
        choices,
        &[
            ("debug_getRawBlock", "ByteString"),
            ("debug_getRawReceipts", "ByteStrings"),
            ("eth_getCode", "ByteString"),
        ],
    );
    let schema = Schema::of(Fork::Phase0, Preset::Minimal);
    let ty = schema.find(name).expect("a type of every fork");
    let json = naive::choose(schema, ty, choices);
    let text = write(&json, choices);
    let mut body = match choices.below(5) {
        0 => format!("{{\"id\":7,\"jsonrpc\":\"2.0\",\"result\":{text}}}\n"),
        1 => format!("{{\"jsonrpc\":\"2.0\",\"result\":{text},\"id\":7}}"),
        2 => "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32000,\"message\":\"no\"}}".into(),
        3 => "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":null}".into(),
        _ => format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{text}}}"),
    }
    .into_bytes();
    damaged(choices, &mut body);
    let is_roomy = choices.below(2) == 0;
    let (process, config) = place(choices, is_roomy, &[]);
    let mut headers = vec![field("Content-Type", JSON), field("Accept", OCTETS)];
    if choices.below(2) == 1 {
        headers.push(field("Accept-Encoding", "gzip"));
    }
    let call = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"{method}\",\"params\":[]}}");
    let (node, is_right) = node(choices, vec![field("Content-Type", JSON)], body.clone());
    let asked = request(&config, "POST", "/", headers, call.into_bytes(), Some(node));
    let answer = OneByOne.ask(asked).unwrap();
    let about = || {
        format!(
            "{method} {:?} {} {:?}",
            answer.mode, answer.status, answer.fields
        )
    };
    let label = joined(&answer.fields, "Sszip-Type");
    assert_eq!(label.is_some(), is_of(&answer, OCTETS), "{}", about());
    match label {
        _ if !is_right => {}
        Some(label) => {
            assert_eq!(
                (label, answer.status),
                (format!("{name};v=1"), 200),
                "{}",
                about()
            );
            let ssz = decoded(&answer);
            if let Some(result) = members(&body, "result") {
                assert_eq!(result.len(), 1, "{}", about());
                assert_eq!(
                    naive::to_ssz(schema, ty, &result[0]),
                    Some(ssz),
                    "{}",
                    about()
                );
            }
        }
        None if answer.status == 502 => {
            assert!(!is_roomy, "{}", about());
            assert!(
                answer.body.is_empty() || members(&answer.body, "error").is_some(),
                "{}",
                about()
            );
        }
        None => assert_eq!(decoded(&answer), body, "{}", about()),
    }
    drop((answer, config));
    assert_eq!(process.budget.used(), 0);
}
