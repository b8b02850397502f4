//! Limit of concurrent conversions of long responses: a permit is returned whenever an exchange
//! ends.

use std::io::Write;
use std::sync::Arc;

use flate2::write::GzEncoder;
use flate2::Compression;
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability};
use sszip_core::exchange::{Header, LookupRequest, RequestHead};
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, client_body, run_job, store_sent_response, BodyEnd};
use crate::setup::{self, config_of_process, look_up_with_headers, request_head, response_head};

const TARGET: &str = "/eth/v1/beacon/states/7/pending_consolidations";
pub(crate) const OCTETS: &str = "application/octet-stream";
pub(crate) const EITHER: &str = "application/octet-stream;q=1.0,application/json;q=0.9";
const JSON: &str = "application/json";
/// Number of elements whose JSON is longer than 4 MiB.
pub(crate) const MANY: usize = 110_000;

pub(crate) fn config(concurrency: &str, lines: &[&str]) -> Arc<RouteConfig> {
    let concurrency = format!("ssz_concurrency {concurrency}");
    let always = ["ssz on", "ssz_preset mainnet", &concurrency];
    config_of_process(ProcessResources::default(), &[&always, lines].concat())
}

pub(crate) fn value(count: usize) -> Vec<u8> {
    let one = r#"{"source_index":"1","target_index":"515"}"#;
    let data = vec![one; count].join(",");
    format!(r#"{{"version":"electra","data":[{data}]}}"#).into_bytes()
}

fn octets(count: usize) -> Vec<u8> {
    [1_u64.to_le_bytes(), 515_u64.to_le_bytes()]
        .concat()
        .repeat(count)
}

/// Sends a request and the head of the node's response.
pub(crate) fn start_conversion(
    config: &Arc<RouteConfig>,
    accept: &str,
    length: Option<usize>,
) -> (ExchangeDriver, HostStep) {
    answered(config, accept, length, &[setup::JSON])
}

fn answered(
    config: &Arc<RouteConfig>,
    accept: &str,
    length: Option<usize>,
    fields: &[Header<'_>],
) -> (ExchangeDriver, HostStep) {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let accepts = [(&b"Accept"[..], accept.as_bytes())];
    let head = RequestHead {
        target: TARGET.as_bytes(),
        ..request_head(b"GET", &accepts)
    };
    driver.handle_request_head(head).unwrap();
    let version: Header<'_> = (b"Eth-Consensus-Version", b"electra");
    let length = length.map(|length| length as u64);
    let fields = [fields, &[version]].concat();
    let step = driver.handle_response_head(response_head(200, length, &fields));
    (driver, step.unwrap())
}

fn mode(driver: &ExchangeDriver) -> ResponseMode {
    driver.available_exchange().unwrap().response_mode()
}

/// Returns the number of permits in use.
fn used_permits(config: &RouteConfig) -> usize {
    config.process.transcodings.reserved_bytes()
}

/// Sends the rest of a body whose head is buffered, and returns mode, status and body.
pub(crate) fn rest(
    driver: &mut ExchangeDriver,
    step: HostStep,
    body: &[u8],
) -> (ResponseMode, u16, Vec<u8>) {
    let got = client_body(driver, step, body.chunks(100_000), BodyEnd::Whole);
    let status = driver
        .available_exchange()
        .unwrap()
        .stored_response_status();
    (mode(driver), status, got.unwrap().unwrap())
}

fn check_conversion(config: &Arc<RouteConfig>, length: Option<usize>, count: usize) {
    let (mut driver, step) = start_conversion(config, OCTETS, length);
    let made = rest(&mut driver, step, &value(count));
    assert_eq!((made.0, made.2.len()), (ResponseMode::Ssz, 16 * count));
    assert_eq!(made.2, octets(count));
    // a converted body that is not sent yet needs memory only
    assert_eq!(used_permits(config), 0);
}

#[test]
fn conversion_beyond_the_limit_is_sent_as_json_or_503() {
    let config = config("2", &[]);
    let json = value(MANY);
    let length = Some(json.len());
    let (mut first, step) = start_conversion(&config, OCTETS, length);
    let second = start_conversion(&config, OCTETS, length);
    assert_eq!(used_permits(&config), 2);
    // a client that accepts JSON receives it unchanged
    let (mut third, as_json) = start_conversion(&config, EITHER, length);
    assert_eq!(mode(&third), ResponseMode::SszBusy);
    let got = rest(&mut third, as_json, &json);
    assert_eq!((got.0, got.1), (ResponseMode::SszBusy, 0));
    assert_eq!(got.2, json);
    // a client that accepts only SSZ receives 503
    let (mut fourth, refused) = start_conversion(&config, OCTETS, length);
    let (busy, status, body) = rest(&mut fourth, refused, &json);
    assert_eq!((busy, status), (ResponseMode::SszBusy, 503));
    let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(error["code"], 503);
    assert!(error["message"].as_str().unwrap().contains("too many long"));
    // short responses need no permit
    check_short_conversion(&config);
    assert_eq!(used_permits(&config), 2);
    // conversions in progress continue, and the first free permit is granted to another
    assert_eq!(rest(&mut first, step, &json).0, ResponseMode::Ssz);
    assert_eq!(used_permits(&config), 1);
    let third = start_conversion(&config, EITHER, length);
    assert_eq!(used_permits(&config), 2);
    drop((second, third, first));
    check_conversion(&config, length, MANY);
}

fn check_short_conversion(config: &Arc<RouteConfig>) {
    let (mut driver, step) = start_conversion(config, OCTETS, None);
    assert_eq!(rest(&mut driver, step, &value(50)).0, ResponseMode::Ssz);
}

#[test]
fn permit_is_returned_when_an_exchange_ends_in_any_way() {
    let config = config("1", &["ssz_hold 1g"]);
    let json = value(MANY);
    let length = Some(json.len());
    let half = &json[..json.len() / 2];
    let wrong = [half, b"{}", &json[half.len() + 2..]].concat();
    for accept in [EITHER, OCTETS] {
        // the client aborts: before the first piece, after it, and with the job
        drop(start_conversion(&config, accept, length));
        assert_eq!(used_permits(&config), 0);
        let (mut driver, _) = start_conversion(&config, accept, length);
        driver.handle_body_piece(half).unwrap();
        assert_eq!(used_permits(&config), 1);
        drop(driver);
        assert_eq!(used_permits(&config), 0);
        let (mut driver, _) = start_conversion(&config, accept, length);
        driver.handle_body_piece(&json).unwrap();
        let HostStep::RunJob(job) = driver.handle_body_end().unwrap() else {
            panic!("not long");
        };
        assert_eq!(used_permits(&config), 1);
        // the job of an aborted request is not run
        let _ = driver.resume_after_job(job);
        drop(driver);
        assert_eq!(used_permits(&config), 0);
        // the node aborts
        let (mut driver, _) = start_conversion(&config, accept, length);
        driver.handle_body_piece(half).unwrap();
        driver.abort_response().unwrap();
        assert_eq!(used_permits(&config), 0);
        // the exchange is abandoned
        let (mut driver, _) = start_conversion(&config, accept, length);
        driver.handle_body_piece(half).unwrap();
        driver.abandon_client_exchange();
        drop(driver);
        assert_eq!(used_permits(&config), 0);
        // a value that does not match its type returns the permit at once
        let (mut driver, step) = start_conversion(&config, accept, length);
        let expected = if accept == OCTETS { 406 } else { 0 };
        let got = rest(&mut driver, step, &wrong);
        assert_eq!((got.0, got.1), (ResponseMode::SszInvalid, expected));
        assert_eq!(used_permits(&config), 0);
        let (mut driver, _) = start_conversion(&config, accept, length);
        driver.handle_body_piece(&wrong).unwrap();
        assert_eq!(used_permits(&config), 0);
    }
    check_conversion(&config, length, MANY);
}

#[test]
fn response_of_unknown_length_takes_a_permit_beyond_4_mib() {
    let config = config("1", &[]);
    let json = value(MANY);
    let (mut first, _) = start_conversion(&config, OCTETS, None);
    for piece in json[..4 << 20].chunks(1 << 20) {
        first.handle_body_piece(piece).unwrap();
    }
    assert_eq!(used_permits(&config), 0);
    let (mut second, step) = start_conversion(&config, EITHER, None);
    first.handle_body_piece(&json[4 << 20..][..1]).unwrap();
    assert_eq!(used_permits(&config), 1);
    // until then the original is buffered
    let got = rest(&mut second, step, &json);
    assert_eq!((got.0, got.2 == json), (ResponseMode::SszBusy, true));
    let (mut third, step) = start_conversion(&config, OCTETS, None);
    let got = rest(&mut third, step, &json);
    assert_eq!((got.0, got.1), (ResponseMode::SszBusy, 503));
    drop(first);
    check_conversion(&config, None, MANY);
}

#[test]
fn decompressed_length_of_a_gzip_response_decides_about_a_permit() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&value(MANY)).unwrap();
    let coded = encoder.finish().unwrap();
    let fields: &[(&[u8], &[u8])] = &[
        (b"Content-Type", JSON.as_bytes()),
        (b"Content-Encoding", b"gzip"),
    ];
    let config = config("1", &[]);
    let other = start_conversion(&config, OCTETS, Some(5 << 20));
    for (accept, status) in [(EITHER, 0), (OCTETS, 503)] {
        let (mut driver, step) = answered(&config, accept, Some(coded.len()), fields);
        let got = rest(&mut driver, step, &coded);
        assert_eq!((got.0, got.1), (ResponseMode::SszBusy, status));
    }
    drop(other);
    let (mut driver, step) = answered(&config, OCTETS, Some(coded.len()), fields);
    assert_eq!(rest(&mut driver, step, &coded).0, ResponseMode::Ssz);
    assert_eq!(used_permits(&config), 0);
}

#[test]
fn conversion_from_ssz_to_json_takes_a_permit() {
    let config = config("1", &[]);
    let ssz = vec![0; (4 << 20) + 1];
    let fields: &[(&[u8], &[u8])] = &[(b"Content-Type", OCTETS.as_bytes())];
    for length in [Some(ssz.len()), None] {
        let (mut first, _) = answered(&config, JSON, length, fields);
        first.handle_body_piece(&ssz[1..]).unwrap();
        assert_eq!(used_permits(&config), usize::from(length.is_some()));
        first.handle_body_piece(&ssz[..1]).unwrap();
        assert_eq!(used_permits(&config), 1);
        drop(first);
        assert_eq!(used_permits(&config), 0);
    }
}

#[test]
fn conversions_are_unlimited_when_the_limit_is_off() {
    let config = config("off", &["memory 1g"]);
    let length = Some(5 << 20);
    let all: Vec<_> = (0..40)
        .map(|_| start_conversion(&config, OCTETS, length))
        .collect();
    assert!(all
        .iter()
        .all(|(driver, _)| mode(driver) == ResponseMode::Off));
    assert_eq!(used_permits(&config), 40);
    drop(all);
    assert_eq!(used_permits(&config), 0);
}

/// A stored witness, converted to SSZ for each hit.
#[test]
fn converted_hit_takes_a_permit() {
    let lines = ["cache on", "cache_max_entry 32m"];
    let config = config("1", &lines);
    config.process.shared.start_hot_tier(64 << 20, 64 << 20, 1);
    let code = "ab".repeat(3 << 20);
    let json = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"0x{code}"}}"#);
    let request = |accept: &str| {
        let fields = [(&b"Accept"[..], accept.as_bytes()), setup::JSON];
        let hash = "cd".repeat(32);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"debug_getRawBlock","params":["0x{hash}"]}}"#
        );
        look_up_with_headers(&config, &body, &fields)
    };
    // an entry may be admitted before it is stored
    for _ in 0..3 {
        let (mut driver, step) = request(JSON);
        if let HostStep::Respond = step {
            break;
        }
        let head = response_head(200, Some(json.len() as u64), &[setup::JSON]);
        let step = driver.handle_response_head(head).unwrap();
        let _ = client_body(&mut driver, step, [json.as_bytes()], BodyEnd::Whole).unwrap();
        store_sent_response(&mut driver, 1);
    }
    let (driver, step) = request(EITHER);
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    assert_eq!(
        (mode(&driver), body_to_send(&driver).len()),
        (ResponseMode::Hit, 3 << 20)
    );
    assert_eq!(used_permits(&config), 0);
    let other = start_conversion(&config, OCTETS, Some(5 << 20));
    let (driver, step) = request(EITHER);
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    assert_eq!(mode(&driver), ResponseMode::SszBusy);
    assert_eq!(body_to_send(&driver), json.as_bytes());
    drop((driver, other));
    let (driver, _) = request(EITHER);
    assert_eq!(
        (mode(&driver), used_permits(&config)),
        (ResponseMode::Hit, 0)
    );
}

/// Lists of empty elements: an offset is longer than the two quotes of an element in JSON.
#[test]
fn empty_elements_are_limited_by_size_and_memory() {
    for (limit, expected) in [
        ("ssz_max_size 1m", ResponseMode::SszLength),
        ("memory 1m", ResponseMode::Memory),
    ] {
        let config = config("1", &[limit, "ssz_hold 0"]);
        let mut driver = ExchangeDriver::new(Arc::clone(&config));
        let fields = [(&b"Accept"[..], OCTETS.as_bytes()), setup::JSON];
        driver
            .handle_request_head(request_head(b"POST", &fields))
            .unwrap();
        let body =
            br#"{"jsonrpc":"2.0","id":1,"method":"debug_executionWitness","params":["0x1"]}"#;
        let _ = driver.required_body(BodyLength::Known(body.len() as u64));
        driver
            .lookup_under_policy(
                RequestBodyAvailability::Whole(body),
                LookupRequest::default(),
            )
            .unwrap();
        let head = response_head(200, None, &[setup::JSON]);
        let step = driver.handle_response_head(head).unwrap();
        assert!(matches!(step, HostStep::Buffer));
        driver
            .handle_body_piece(br#"{"jsonrpc":"2.0","id":1,"result":{"state":["0x""#)
            .unwrap();
        let piece = br#","0x""#.repeat(1000);
        // 4 bytes per offset
        for _ in 0..300 {
            driver.handle_body_piece(&piece).unwrap();
        }
        assert!(config.process.budget.reserved_bytes() <= 2 << 20, "{limit}");
        let end = driver.handle_body_end().unwrap();
        assert!(!matches!(run_job(&mut driver, end), HostStep::Fail(_)));
        assert_eq!(mode(&driver), expected, "{limit}");
    }
}
