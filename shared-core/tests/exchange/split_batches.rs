//! Split batches against random nodes: for any response of the node, each call has one response,
//! which is the stored one, the node's or a documented error.
//!
//! `SSZIP_CASES` is the number of batches, `SSZIP_SEED` the first seed.

use std::io::{Read, Write};

use serde_json::value::RawValue;
use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::ResponseHead;
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, client_body, store_sent_response, BodyEnd};
use crate::setup::{config, look_up, response_head, JSON};

const BOUND: usize = 1024;

/// A generator of pseudorandom numbers that are equal in each run.
struct RandomChoices(u64);

impl RandomChoices {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    Stored,
    Denied,
    Bounded,
    Missing,
}

#[derive(Clone, Debug)]
struct Call {
    kind: CallKind,
    id: String,
    text: String,
    /// The node's response to the call, distinct from all others.
    answer: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseShape {
    Array,
    Reversed,
    /// An array without its last element.
    Short,
    /// An array with one element more, whose id no call has.
    More,
    /// An array whose ids are `null`.
    Null,
    /// One object: the response to the first call.
    Object,
    /// One object: an error without an id.
    Error,
    Text,
    Number,
    Html,
    Empty,
    Cut,
    Twice,
    Strings,
}

const SHAPES: [ResponseShape; 18] = [
    ResponseShape::Array,
    ResponseShape::Array,
    ResponseShape::Array,
    ResponseShape::Array,
    ResponseShape::Reversed,
    ResponseShape::Short,
    ResponseShape::More,
    ResponseShape::Null,
    ResponseShape::Object,
    ResponseShape::Error,
    ResponseShape::Text,
    ResponseShape::Number,
    ResponseShape::Html,
    ResponseShape::Empty,
    ResponseShape::Cut,
    ResponseShape::Cut,
    ResponseShape::Twice,
    ResponseShape::Strings,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseCoding {
    None,
    Gzip,
    TwoMembers,
    Zstd,
    /// A member without its end.
    CutGzip,
    /// A member with trailing bytes.
    LongGzip,
    Brotli,
}

const CODINGS: [ResponseCoding; 9] = [
    ResponseCoding::None,
    ResponseCoding::None,
    ResponseCoding::None,
    ResponseCoding::Gzip,
    ResponseCoding::TwoMembers,
    ResponseCoding::Zstd,
    ResponseCoding::CutGzip,
    ResponseCoding::LongGzip,
    ResponseCoding::Brotli,
];

/// The end of the node's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseEnding {
    Whole,
    /// The host detects a reset connection, or a missing last chunk.
    Reset,
    /// The body ends before its announced length.
    Short,
    /// The connection is closed, which does not show whether the body is complete.
    Close,
}

const ENDINGS: [ResponseEnding; 7] = [
    ResponseEnding::Whole,
    ResponseEnding::Whole,
    ResponseEnding::Whole,
    ResponseEnding::Reset,
    ResponseEnding::Reset,
    ResponseEnding::Short,
    ResponseEnding::Close,
];

/// Failures of the node before its response, and the status that the host would send.
const FAILURES: [(UpstreamFailure, u16); 5] = [
    (UpstreamFailure::Connect, 502),
    (UpstreamFailure::Error, 502),
    (UpstreamFailure::Timeout, 504),
    (UpstreamFailure::InvalidHeader, 502),
    (UpstreamFailure::Local, 403),
];

#[derive(Debug)]
struct BatchCase {
    lines: Vec<&'static str>,
    calls: Vec<Call>,
    shape: ResponseShape,
    coding: ResponseCoding,
    status: u16,
    length: bool,
    piece: usize,
    accepts: &'static str,
    cut: usize,
    ending: ResponseEnding,
    /// Position of the truncation, in thousandths of the body.
    broken_at: usize,
    failure: Option<(UpstreamFailure, u16)>,
}

fn answer(chance: &mut RandomChoices, id: &str, number: usize) -> String {
    let token = format!("t{number}");
    let long = "x".repeat(chance.pick(&[900, 2000, 9000]));
    let deep = chance.pick(&[3, 200, 600, 3000]);
    match chance.below(12) {
        0..=3 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{token}"}}"#),
        4 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":["{token}","{long}"]}}"#),
        5 => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":3,"message":"{token}"}}}}"#),
        6 => format!(r#"{{"result":{{"a":["{token}"]}},"id": {id} ,"meta":{{"id":7}}}}"#),
        7 => format!(r#"{{"id":{id},"error":null,"result":"{token}"}}"#),
        8 => format!(r#"{{"jsonrpc":"1.0","id":{id},"result":"{token}","result":null}}"#),
        9 => {
            let (open, close) = ("[{\"a\":".repeat(deep), "}]".repeat(deep));
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{open}"{token}"{close}}}"#)
        }
        10 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{token}\ud800 \" ]}}, é"}}"#),
        _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"{token}":null}}"#),
    }
}

impl BatchCase {
    fn new(chance: &mut RandomChoices) -> Self {
        let mut lines = vec!["cache on", "method deny debug_*"];
        let has_bounds = chance.one_in(3);
        if has_bounds {
            lines.push("max_answer eth_getLogs 1k");
        }
        if chance.one_in(4) {
            lines.push("max_oneshot 2k");
        }
        if chance.one_in(2) {
            lines.push("zstd on");
        }
        let kinds = [
            CallKind::Stored,
            CallKind::Missing,
            CallKind::Denied,
            CallKind::Bounded,
        ];
        let calls = (0..chance.below(5) + 1).map(|number| {
            let kind = match chance.pick(&kinds) {
                CallKind::Bounded if !has_bounds => CallKind::Missing,
                kind => kind,
            };
            let id = match chance.below(3) {
                0 => format!("{}", number + 1),
                1 => format!("\"id {number}\""),
                _ => format!("{}.5e1", number + 1),
            };
            let method = match kind {
                CallKind::Stored => "eth_getBlockByHash",
                CallKind::Denied => "debug_x",
                CallKind::Bounded => "eth_getLogs",
                CallKind::Missing => "eth_x",
            };
            Call {
                kind,
                text: format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":["0x{number:064x}",true]}}"#
                ),
                answer: answer(chance, &id, number),
                id,
            }
        });
        Self {
            calls: calls.collect(),
            lines,
            shape: chance.pick(&SHAPES),
            coding: chance.pick(&CODINGS),
            status: chance.pick(&[200, 200, 200, 200, 200, 202, 206, 400, 429, 500, 503]),
            length: chance.one_in(2),
            piece: chance.pick(&[1, 37, 1000, 1_000_000]),
            accepts: chance.pick(&["gzip", "", "gzip, br", "gzip, zstd", "zstd"]),
            cut: chance.below(1 << 20),
            ending: ResponseEnding::Whole,
            broken_at: 0,
            failure: None,
        }
        .broken_off(chance)
    }

    fn broken_off(mut self, chance: &mut RandomChoices) -> Self {
        self.ending = chance.pick(&ENDINGS);
        self.broken_at = chance.below(1001);
        match self.ending {
            ResponseEnding::Whole | ResponseEnding::Reset => {}
            ResponseEnding::Short => self.length = true,
            ResponseEnding::Close => self.length = false,
        }
        if chance.one_in(12) {
            let (failure, status) = chance.pick(&FAILURES);
            self.failure = Some((failure, status));
            self.status = status;
            self.shape = ResponseShape::Html;
            self.coding = ResponseCoding::None;
            self.ending = ResponseEnding::Whole;
        }
        self
    }

    fn calls_for_node(&self) -> impl Iterator<Item = &Call> {
        let kinds = [CallKind::Bounded, CallKind::Missing];
        self.calls.iter().filter(move |it| kinds.contains(&it.kind))
    }

    /// Returns the node's body before its content coding.
    fn node_text(&self) -> String {
        let answers: Vec<&str> = self.calls_for_node().map(|call| &*call.answer).collect();
        let array = |answers: &[&str]| format!("[{}]", answers.join(" ,\n"));
        let all = array(&answers);
        match self.shape {
            ResponseShape::Array => all,
            ResponseShape::Reversed => array(&answers.iter().rev().copied().collect::<Vec<_>>()),
            ResponseShape::Short => array(&answers[..answers.len().saturating_sub(1)]),
            ResponseShape::More => {
                array(&[&answers[..], &[r#"{"id":"nobody","result":1}"#]].concat())
            }
            ResponseShape::Null => {
                let nulls = self.calls_for_node().map(|call| self.null(call));
                let nulls: Vec<_> = nulls.collect();
                array(&nulls.iter().map(|it| &**it).collect::<Vec<_>>())
            }
            ResponseShape::Object => answers.first().copied().unwrap_or("{}").to_owned(),
            ResponseShape::Error => ERROR.to_owned(),
            ResponseShape::Text => serde_json::to_string(&all).unwrap(),
            ResponseShape::Number => "7".to_owned(),
            ResponseShape::Html => "<html>\n[1]".to_owned(),
            ResponseShape::Empty => String::new(),
            ResponseShape::Cut => {
                let mut end = self.cut % all.len();
                while !all.is_char_boundary(end) {
                    end -= 1;
                }
                all[..end].to_owned()
            }
            ResponseShape::Twice => format!("{all}{all}"),
            ResponseShape::Strings => array(&vec!["\"a\""; answers.len()]),
        }
    }

    fn null(&self, call: &Call) -> String {
        call.answer.replacen(&call.id, "null", 1)
    }

    /// Returns the body and the content coding that the node sends.
    fn encoded_body(&self) -> (Vec<u8>, Option<&'static str>) {
        let text = self.node_text().into_bytes();
        let gzip = |text: &[u8]| {
            let level = flate2::Compression::fast();
            let mut coder = flate2::write::GzEncoder::new(Vec::new(), level);
            coder.write_all(text).unwrap();
            coder.finish().unwrap()
        };
        let (first, second) = text.split_at(text.len() / 2);
        match self.coding {
            ResponseCoding::None => (text, None),
            ResponseCoding::Gzip => (gzip(&text), Some("gzip")),
            ResponseCoding::TwoMembers => ([gzip(first), gzip(second)].concat(), Some("x-gzip")),
            ResponseCoding::Zstd => (zstd::encode_all(&text[..], 1).unwrap(), Some("zstd")),
            ResponseCoding::CutGzip => {
                let coded = gzip(&text);
                (coded[..coded.len() - 3].to_vec(), Some("gzip"))
            }
            ResponseCoding::LongGzip => ([gzip(&text), b"more".to_vec()].concat(), Some("gzip")),
            ResponseCoding::Brotli => ([b"\x0b\x80", &text[..], b"\x03"].concat(), Some("br")),
        }
    }

    /// Returns the part of the body that the host receives.
    fn received(&self) -> (Vec<u8>, Option<&'static str>) {
        let (mut body, coding) = self.encoded_body();
        if self.ending != ResponseEnding::Whole {
            // at least one byte is missing
            let most = body.len().saturating_sub(1);
            body.truncate(most * self.broken_at / 1000);
        }
        (body, coding)
    }

    /// Returns the part of the node's text that can be decompressed.
    fn decoded(&self) -> Vec<u8> {
        let (received, _) = self.received();
        let mut text = Vec::new();
        if !self.is_decodable() {
            return text;
        }
        // decompression of a truncated body ends with an error
        match self.coding {
            ResponseCoding::None => text = received,
            ResponseCoding::Gzip
            | ResponseCoding::TwoMembers
            | ResponseCoding::CutGzip
            | ResponseCoding::LongGzip => {
                let _ = flate2::read::MultiGzDecoder::new(&received[..]).read_to_end(&mut text);
            }
            ResponseCoding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(&received[..]).unwrap();
                let _ = decoder.read_to_end(&mut text);
            }
            ResponseCoding::Brotli => {}
        }
        text
    }

    /// Whether the node's text can be decompressed, completely or in part.
    fn is_decodable(&self) -> bool {
        match self.coding {
            ResponseCoding::Brotli => false,
            // one trailing byte may be the beginning of a member
            ResponseCoding::LongGzip => self.received().0.len() + 2 < self.encoded_body().0.len(),
            _ => true,
        }
    }

    fn is_cut(&self) -> bool {
        self.ending != ResponseEnding::Whole || self.coding == ResponseCoding::CutGzip
    }

    /// Whether the call's response was received completely, in an array.
    fn is_call_received(&self, text: &str, call: &Call) -> bool {
        use ResponseShape::{Array, Cut, More, Null, Reversed, Short, Twice};
        match self.shape {
            Array | Reversed | More | Cut | Twice | Short => text.contains(&call.answer),
            Null => text.contains(&self.null(call)),
            _ => false,
        }
    }

    fn is_bounded(&self) -> bool {
        self.calls.iter().any(|call| call.kind == CallKind::Bounded)
    }
}

const ERROR: &str = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"all"},"id":null}"#;
const STORED_RESULT: &str = r#""stored""#;

/// The response of the proxy that the client receives.
#[derive(Debug)]
struct ClientResponse {
    status: u16,
    text: String,
    /// The node's part was streamed unchanged, after the stored parts.
    is_streamed: bool,
}

fn respond(
    driver: &mut ExchangeDriver,
    body: &[u8],
    coding: Option<&str>,
    case: &BatchCase,
) -> Option<ClientResponse> {
    let mut fields = vec![JSON];
    if let Some(coding) = coding {
        fields.push((b"Content-Encoding", coding.as_bytes()));
    }
    let announced = match case.ending {
        ResponseEnding::Whole => body.len(),
        _ => case.encoded_body().0.len().max(1),
    };
    let head = ResponseHead {
        delimited: case.ending != ResponseEnding::Close,
        ..response_head(
            case.status,
            case.length.then_some(announced as u64),
            &fields,
        )
    };
    let step = driver.handle_response_head(head).unwrap();
    let end = match case.ending {
        ResponseEnding::Reset => BodyEnd::Cut,
        _ => BodyEnd::Whole,
    };
    let got = client_body(driver, step, body.chunks(case.piece), end).unwrap()?;
    store_sent_response(driver, 1);
    let exchange = driver.available_exchange().unwrap();
    let status = match exchange.stored_response_status() {
        0 => case.status,
        status => status,
    };
    let edits = exchange.head_edits();
    let edit = edits.iter().rfind(|edit| edit.name == "Content-Encoding");
    let coding = match edit {
        Some(edit) => edit.value.as_deref(),
        None => coding.map(str::as_bytes),
    };
    let is_streamed = exchange.response_mode() != ResponseMode::Merged;
    let length = edits.iter().rfind(|edit| edit.name == "Content-Length");
    let length = length.filter(|_| !is_streamed || case.ending == ResponseEnding::Whole);
    if let Some(length) = length.and_then(|edit| edit.value.as_deref()) {
        assert_eq!(length, got.len().to_string().as_bytes());
    }
    let text = match coding {
        None => got,
        Some(b"gzip") => {
            let mut text = Vec::new();
            let mut decoder = flate2::read::MultiGzDecoder::new(&got[..]);
            decoder.read_to_end(&mut text).unwrap();
            text
        }
        Some(b"zstd") => zstd::decode_all(&got[..]).unwrap(),
        Some(_) => return None,
    };
    Some(ClientResponse {
        status,
        text: String::from_utf8(text).unwrap(),
        is_streamed,
    })
}

fn error_of(id: &str, code: i32, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

fn errors_of(id: &str, status: u16) -> [String; 2] {
    [
        error_of(id, -32603, "the node sent no valid response to this call"),
        error_of(
            id,
            -32603,
            &format!("the node answered with status {status}"),
        ),
    ]
}

fn try_case(case: &BatchCase) {
    let config = config(&[&["min_length 500"], &case.lines[..]].concat());
    for call in case
        .calls
        .iter()
        .filter(|call| call.kind == CallKind::Stored)
    {
        let (mut driver, _) = look_up(&config, &call.text, "gzip");
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{STORED_RESULT}}}"#,
            call.id
        );
        let plain = BatchCase {
            status: 200,
            length: true,
            piece: 1000,
            ending: ResponseEnding::Whole,
            ..BatchCase::new(&mut RandomChoices(0))
        };
        respond(&mut driver, body.as_bytes(), None, &plain).unwrap();
    }
    let texts: Vec<&str> = case.calls.iter().map(|call| &*call.text).collect();
    let batch = format!("[{}]", texts.join(","));
    let (mut driver, step) = look_up(&config, &batch, case.accepts);
    let stored_or_denied = |call: &Call| match call.kind {
        CallKind::Stored => Some(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{STORED_RESULT}}}"#,
            call.id
        )),
        CallKind::Denied => Some(error_of(
            &call.id,
            -32601,
            "the method does not exist/is not available",
        )),
        _ => None,
    };
    if let HostStep::Respond = step {
        assert_eq!(case.calls_for_node().count(), 0);
        let expected: Vec<_> = case.calls.iter().filter_map(stored_or_denied).collect();
        let got = body_to_send(&driver);
        let is_coded = driver.available_exchange().unwrap().is_compressed();
        assert!(is_coded || got == format!("[{}]", expected.join(",")).into_bytes());
        return;
    }
    let (body, coding) = case.received();
    let text = String::from_utf8_lossy(&case.decoded()).into_owned();
    let is_all_forwarded = case.calls_for_node().count() == case.calls.len();
    if let Some((failure, _)) = case.failure {
        assert!(
            !driver.handle_upstream_failure(failure, 1),
            "nothing stale is stored"
        );
        let responds = driver.can_respond_without_upstream(failure);
        let is_split = !is_all_forwarded && matches!(step, HostStep::ForwardRewritten);
        assert_eq!(responds, is_split && failure != UpstreamFailure::Local);
        if !responds {
            return;
        }
    }
    if is_all_forwarded && !case.is_bounded() {
        // the batch was not split
        assert!(matches!(step, HostStep::Forward));
        return;
    }
    assert!(matches!(step, HostStep::ForwardRewritten));
    let forwarded = driver
        .available_exchange()
        .unwrap()
        .upstream_request_body()
        .to_vec();
    let upstream_calls: Vec<&str> = case.calls_for_node().map(|call| &*call.text).collect();
    assert_eq!(
        String::from_utf8(forwarded).unwrap(),
        format!("[{}]", upstream_calls.join(","))
    );
    let got = respond(&mut driver, &body, coding, case).expect("an answer");
    if got.is_streamed && case.ending != ResponseEnding::Whole {
        // the host aborts the response too
        return;
    }
    let expected_status = match case.status {
        206 if !is_all_forwarded => 200,
        status => status,
    };
    assert!(
        got.is_streamed || got.status == expected_status,
        "{}",
        got.status
    );
    drop(driver);
    assert_eq!(config.process.budget.reserved_bytes(), 0);
    if is_all_forwarded && got.text == text {
        // unchanged
        let is_short = text.len() <= BOUND;
        assert!(case.is_decodable() && (is_short || !is_over(case)));
        let is_json = serde_json::from_str::<&RawValue>(&text).is_ok();
        assert!(is_json || !case.is_cut(), "passed off as whole");
        return;
    }
    let whole = serde_json::from_str::<Vec<&RawValue>>(&text);
    let elements = serde_json::from_str::<Vec<&RawValue>>(&got.text);
    if got.is_streamed && whole.is_err() {
        // the node's own text, after the stored parts
        assert!(got.text.ends_with(text.trim_start_matches('[')));
        return;
    }
    let elements: Vec<&str> = elements.unwrap().iter().map(|it| it.get()).collect();
    let at = |element: &str| elements.iter().position(|it| *it == element);
    let mut places = Vec::new();
    for call in &case.calls {
        if let Some(element) = stored_or_denied(call) {
            let place = at(&element).unwrap_or_else(|| panic!("{element} is lost"));
            places.push(place);
            continue;
        }
        let is_over = call.kind == CallKind::Bounded && call.answer.len() > BOUND;
        let too_long = error_of(
            &call.id,
            -32005,
            "the response is longer than the limit of its method",
        );
        let null = case.null(call);
        let error = error_of(&call.id, -32000, "all");
        let mut errors = errors_of(&call.id, case.status);
        if case.failure.is_some() {
            errors[1] = errors[0].clone();
        }
        let of_node =
            at(&call.answer).or_else(|| (case.shape == ResponseShape::Null).then(|| at(&null))?);
        let of_all = at(&error).filter(|_| case.shape == ResponseShape::Error);
        let ours = errors.iter().find_map(|error| at(error));
        let limit = at(&too_long);
        let found = [of_node, of_all, ours, limit];
        let count = found.iter().flatten().count();
        let is_good = case.is_decodable() && whole.is_ok();
        let has_come = case.is_call_received(&text, call);
        assert!(!is_over || of_node.is_none(), "{} is too long", call.id);
        match case.shape {
            _ if is_over
                && is_good
                && case.shape != ResponseShape::Strings
                && case.shape != ResponseShape::Short =>
            {
                assert!(limit.is_some(), "{}: no error", call.id);
            }
            ResponseShape::Array
            | ResponseShape::Reversed
            | ResponseShape::More
            | ResponseShape::Null
                if is_good =>
            {
                assert!(of_node.is_some(), "{} is lost", call.id);
            }
            _ if has_come && !is_over => assert!(of_node.is_some(), "{} is lost", call.id),
            ResponseShape::Short if is_good => assert!(count <= 1),
            ResponseShape::Strings => assert!(count <= 1),
            ResponseShape::Error if case.is_decodable() && case.ending == ResponseEnding::Whole => {
                assert!(of_all.is_some(), "{}", call.id);
            }
            _ => assert_eq!(count, 1, "{}", call.id),
        }
        assert!(count <= 1, "{} has {count} answers", call.id);
        places.extend(found.into_iter().flatten());
    }
    if !got.is_streamed {
        assert!(places.is_sorted(), "{places:?}");
    }
    let is_more = case.shape == ResponseShape::More || case.shape == ResponseShape::Strings;
    assert!(is_more || places.len() == elements.len(), "{elements:?}");
}

/// Whether a response is longer than the limit of its method.
fn is_over(case: &BatchCase) -> bool {
    let mut bounded = case.calls.iter().filter(|it| it.kind == CallKind::Bounded);
    bounded.any(|call| call.answer.len() > BOUND)
}

#[test]
fn calls_of_a_split_batch_have_one_response_each_for_any_upstream_response() {
    let number = |name: &str, default: u64| {
        let setting = std::env::var(name).ok();
        setting.map_or(default, |setting| setting.parse().unwrap())
    };
    let (cases, seed) = (number("SSZIP_CASES", 2000), number("SSZIP_SEED", 1));
    println!("{cases} cases from seed {seed}");
    for at in 0..cases {
        let case = BatchCase::new(&mut RandomChoices(
            seed.wrapping_mul(1 << 32).wrapping_add(at),
        ));
        let tried = std::panic::catch_unwind(|| try_case(&case));
        if let Err(panic) = tried {
            println!(
                "case {at} of seed {seed}: {case:#?}\nnode: {}",
                case.node_text()
            );
            std::panic::resume_unwind(panic);
        }
    }
}
