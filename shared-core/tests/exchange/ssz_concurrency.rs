//! How many long answers are made another format of at a time, and that a place is given
//! back however an exchange ends.

use std::io::Write;
use std::sync::Arc;

use flate2::write::GzEncoder;
use flate2::Compression;
use sszip_core::cache::process::Process;
use sszip_core::config::Config;
use sszip_core::exchange::drive::{BodyLength, Driver, RequestBody, Step};
use sszip_core::exchange::{Asked, Field, RequestHead};
use sszip_core::mode::Mode;

use crate::driven::{ran, sent, stored, through, End};
use crate::setup::{self, config_of_process, request_head, response_head};

const TARGET: &str = "/eth/v1/beacon/states/7/pending_consolidations";
pub(crate) const OCTETS: &str = "application/octet-stream";
pub(crate) const EITHER: &str = "application/octet-stream;q=1.0,application/json;q=0.9";
const JSON: &str = "application/json";
/// So many make more than 4 MiB of JSON.
pub(crate) const MANY: usize = 110_000;

pub(crate) fn config(concurrency: &str, lines: &[&str]) -> Arc<Config> {
    let concurrency = format!("ssz_concurrency {concurrency}");
    let always = ["ssz on", "ssz_preset mainnet", &concurrency];
    config_of_process(Process::default(), &[&always, lines].concat())
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

/// Who asks, when the head of the node's answer is there.
pub(crate) fn asked(config: &Arc<Config>, accept: &str, length: Option<usize>) -> (Driver, Step) {
    answered(config, accept, length, &[setup::JSON])
}

fn answered(
    config: &Arc<Config>,
    accept: &str,
    length: Option<usize>,
    fields: &[Field<'_>],
) -> (Driver, Step) {
    let mut driver = Driver::new(Arc::clone(config));
    let accepts = [(&b"Accept"[..], accept.as_bytes())];
    let head = RequestHead {
        target: TARGET.as_bytes(),
        ..request_head(b"GET", &accepts)
    };
    driver.request_head(head).unwrap();
    let version: Field<'_> = (b"Eth-Consensus-Version", b"electra");
    let length = length.map(|length| length as u64);
    let fields = [fields, &[version]].concat();
    let step = driver.response_head(response_head(200, length, &fields));
    (driver, step.unwrap())
}

fn mode(driver: &Driver) -> Mode {
    driver.exchange().unwrap().mode()
}

/// How many have a place.
fn taken(config: &Config) -> usize {
    config.process.transcodings.used()
}

/// The rest of a body whose head is held.
pub(crate) fn rest(driver: &mut Driver, step: Step, body: &[u8]) -> (Mode, u16, Vec<u8>) {
    let got = through(driver, step, body.chunks(100_000), End::Whole);
    let status = driver.exchange().unwrap().status();
    (mode(driver), status, got.unwrap().unwrap())
}

fn is_made(config: &Arc<Config>, length: Option<usize>, count: usize) {
    let (mut driver, step) = asked(config, OCTETS, length);
    let made = rest(&mut driver, step, &value(count));
    assert_eq!((made.0, made.2.len()), (Mode::Ssz, 16 * count));
    assert_eq!(made.2, octets(count));
    // what it takes until it is sent is memory alone
    assert_eq!(taken(config), 0);
}

#[test]
fn as_many_as_may_be_at_a_time() {
    let config = config("2", &[]);
    let json = value(MANY);
    let length = Some(json.len());
    let (mut first, step) = asked(&config, OCTETS, length);
    let second = asked(&config, OCTETS, length);
    assert_eq!(taken(&config), 2);
    // it is JSON to who takes that, as if nobody had asked for anything else
    let (mut third, as_json) = asked(&config, EITHER, length);
    assert_eq!(mode(&third), Mode::SszBusy);
    let got = rest(&mut third, as_json, &json);
    assert_eq!((got.0, got.1), (Mode::SszBusy, 0));
    assert_eq!(got.2, json);
    // and a refusal to who does not
    let (mut fourth, refused) = asked(&config, OCTETS, length);
    let (busy, status, body) = rest(&mut fourth, refused, &json);
    assert_eq!((busy, status), (Mode::SszBusy, 503));
    let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(error["code"], 503);
    assert!(error["message"].as_str().unwrap().contains("too many long"));
    // those of them that are short need no place
    is_short_one_made(&config);
    assert_eq!(taken(&config), 2);
    // those that have one go on, and another one can have the first that is free
    assert_eq!(rest(&mut first, step, &json).0, Mode::Ssz);
    assert_eq!(taken(&config), 1);
    let third = asked(&config, EITHER, length);
    assert_eq!(taken(&config), 2);
    drop((second, third, first));
    is_made(&config, length, MANY);
}

fn is_short_one_made(config: &Arc<Config>) {
    let (mut driver, step) = asked(config, OCTETS, None);
    assert_eq!(rest(&mut driver, step, &value(50)).0, Mode::Ssz);
}

#[test]
fn a_place_is_given_back_however_it_ends() {
    let config = config("1", &["ssz_hold 1g"]);
    let json = value(MANY);
    let length = Some(json.len());
    let half = &json[..json.len() / 2];
    let wrong = [half, b"{}", &json[half.len() + 2..]].concat();
    for accept in [EITHER, OCTETS] {
        // the client goes away: before a piece came, after that, with the job
        drop(asked(&config, accept, length));
        assert_eq!(taken(&config), 0);
        let (mut driver, _) = asked(&config, accept, length);
        driver.piece(half).unwrap();
        assert_eq!(taken(&config), 1);
        drop(driver);
        assert_eq!(taken(&config), 0);
        let (mut driver, _) = asked(&config, accept, length);
        driver.piece(&json).unwrap();
        let Step::OffLoop(job) = driver.end().unwrap() else {
            panic!("not long");
        };
        assert_eq!(taken(&config), 1);
        // nobody wants it any more: it is not run
        let _ = driver.done(job);
        drop(driver);
        assert_eq!(taken(&config), 0);
        // the node does
        let (mut driver, _) = asked(&config, accept, length);
        driver.piece(half).unwrap();
        driver.cut_short().unwrap();
        assert_eq!(taken(&config), 0);
        // it is abandoned, or given up
        let (mut driver, _) = asked(&config, accept, length);
        driver.piece(half).unwrap();
        driver.abandon();
        drop(driver);
        assert_eq!(taken(&config), 0);
        // it is no value of its type: at once, for the next
        let (mut driver, step) = asked(&config, accept, length);
        let expected = if accept == OCTETS { 406 } else { 0 };
        let got = rest(&mut driver, step, &wrong);
        assert_eq!((got.0, got.1), (Mode::SszInvalid, expected));
        assert_eq!(taken(&config), 0);
        let (mut driver, _) = asked(&config, accept, length);
        driver.piece(&wrong).unwrap();
        assert_eq!(taken(&config), 0);
    }
    is_made(&config, length, MANY);
}

#[test]
fn of_unknown_length_it_shows_when_it_is_long() {
    let config = config("1", &[]);
    let json = value(MANY);
    let (mut first, _) = asked(&config, OCTETS, None);
    for piece in json[..4 << 20].chunks(1 << 20) {
        first.piece(piece).unwrap();
    }
    assert_eq!(taken(&config), 0);
    let (mut second, step) = asked(&config, EITHER, None);
    first.piece(&json[4 << 20..][..1]).unwrap();
    assert_eq!(taken(&config), 1);
    // all of it is kept until then
    let got = rest(&mut second, step, &json);
    assert_eq!((got.0, got.2 == json), (Mode::SszBusy, true));
    let (mut third, step) = asked(&config, OCTETS, None);
    let got = rest(&mut third, step, &json);
    assert_eq!((got.0, got.1), (Mode::SszBusy, 503));
    drop(first);
    is_made(&config, None, MANY);
}

#[test]
fn of_what_is_coded_its_length_counts() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&value(MANY)).unwrap();
    let coded = encoder.finish().unwrap();
    let fields: &[(&[u8], &[u8])] = &[
        (b"Content-Type", JSON.as_bytes()),
        (b"Content-Encoding", b"gzip"),
    ];
    let config = config("1", &[]);
    let other = asked(&config, OCTETS, Some(5 << 20));
    for (accept, status) in [(EITHER, 0), (OCTETS, 503)] {
        let (mut driver, step) = answered(&config, accept, Some(coded.len()), fields);
        let got = rest(&mut driver, step, &coded);
        assert_eq!((got.0, got.1), (Mode::SszBusy, status));
    }
    drop(other);
    let (mut driver, step) = answered(&config, OCTETS, Some(coded.len()), fields);
    assert_eq!(rest(&mut driver, step, &coded).0, Mode::Ssz);
    assert_eq!(taken(&config), 0);
}

#[test]
fn the_other_way_round() {
    let config = config("1", &[]);
    let ssz = vec![0; (4 << 20) + 1];
    let fields: &[(&[u8], &[u8])] = &[(b"Content-Type", OCTETS.as_bytes())];
    for length in [Some(ssz.len()), None] {
        let (mut first, _) = answered(&config, JSON, length, fields);
        first.piece(&ssz[1..]).unwrap();
        assert_eq!(taken(&config), usize::from(length.is_some()));
        first.piece(&ssz[..1]).unwrap();
        assert_eq!(taken(&config), 1);
        drop(first);
        assert_eq!(taken(&config), 0);
    }
}

#[test]
fn without_a_limit_there_is_none() {
    let config = config("off", &["memory 1g"]);
    let length = Some(5 << 20);
    let all: Vec<_> = (0..40).map(|_| asked(&config, OCTETS, length)).collect();
    assert!(all.iter().all(|(driver, _)| mode(driver) == Mode::Off));
    assert_eq!(taken(&config), 40);
    drop(all);
    assert_eq!(taken(&config), 0);
}

/// A witness that is stored, and made SSZ of for each hit.
#[test]
fn hits_are_made_too() {
    let lines = ["cache on", "cache_max_entry 32m"];
    let config = config("1", &lines);
    config.process.shared.start(64 << 20, 64 << 20, 1);
    let code = "ab".repeat(3 << 20);
    let json = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"0x{code}"}}"#);
    let ask = |accept: &str| {
        let mut driver = Driver::new(Arc::clone(&config));
        let fields = [(&b"Accept"[..], accept.as_bytes()), setup::JSON];
        driver.request_head(request_head(b"POST", &fields)).unwrap();
        let hash = "cd".repeat(32);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"debug_getRawBlock","params":["0x{hash}"]}}"#
        );
        let _ = driver.need(BodyLength::Known(body.len() as u64));
        let asked = Asked {
            now: 1,
            body: body.as_bytes(),
            coding_allowed: true,
            ..Asked::default()
        };
        let step = driver
            .look_up(RequestBody::Whole(body.as_bytes()), asked)
            .unwrap();
        let step = ran(&mut driver, step);
        (driver, step)
    };
    // it is seen before it is kept, perhaps
    for _ in 0..3 {
        let (mut driver, step) = ask(JSON);
        if let Step::Respond = step {
            break;
        }
        let head = response_head(200, Some(json.len() as u64), &[setup::JSON]);
        let step = driver.response_head(head).unwrap();
        let _ = through(&mut driver, step, [json.as_bytes()], End::Whole).unwrap();
        stored(&mut driver, 1);
    }
    let (driver, step) = ask(EITHER);
    assert!(matches!(step, Step::Respond), "{step:?}");
    assert_eq!((mode(&driver), sent(&driver).len()), (Mode::Hit, 3 << 20));
    assert_eq!(taken(&config), 0);
    let other = asked(&config, OCTETS, Some(5 << 20));
    let (driver, step) = ask(EITHER);
    assert!(matches!(step, Step::Respond), "{step:?}");
    assert_eq!(mode(&driver), Mode::SszBusy);
    assert_eq!(sent(&driver), json.as_bytes());
    drop((driver, other));
    let (driver, _) = ask(EITHER);
    assert_eq!((mode(&driver), taken(&config)), (Mode::Hit, 0));
}

/// They have offsets, which are more than the JSON's two characters of digits.
#[test]
fn elements_of_no_bytes_are_limited_too() {
    for (limit, expected) in [
        ("ssz_max_size 1m", Mode::SszLength),
        ("memory 1m", Mode::Memory),
    ] {
        let config = config("1", &[limit, "ssz_hold 0"]);
        let mut driver = Driver::new(Arc::clone(&config));
        let fields = [(&b"Accept"[..], OCTETS.as_bytes()), setup::JSON];
        driver.request_head(request_head(b"POST", &fields)).unwrap();
        let body =
            br#"{"jsonrpc":"2.0","id":1,"method":"debug_executionWitness","params":["0x1"]}"#;
        let _ = driver.need(BodyLength::Known(body.len() as u64));
        driver
            .look_up(RequestBody::Whole(body), Asked::default())
            .unwrap();
        let head = response_head(200, None, &[setup::JSON]);
        let step = driver.response_head(head).unwrap();
        assert!(matches!(step, Step::Hold));
        driver
            .piece(br#"{"jsonrpc":"2.0","id":1,"result":{"state":["0x""#)
            .unwrap();
        let piece = br#","0x""#.repeat(1000);
        // 4 bytes each
        for _ in 0..300 {
            driver.piece(&piece).unwrap();
        }
        assert!(config.process.budget.used() <= 2 << 20, "{limit}");
        let end = driver.end().unwrap();
        assert!(!matches!(ran(&mut driver, end), Step::Fail(_)));
        assert_eq!(mode(&driver), expected, "{limit}");
    }
}
