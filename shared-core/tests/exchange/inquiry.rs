//! What the driver has the node asked in the background, and what it makes of that.

use std::sync::Arc;

use sszip_core::cache::process::Process;
use sszip_core::config::learnt::Learnt;
use sszip_core::config::Config;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::{RequestHead, ResponseHead};
use sszip_core::mode::Mode;

use crate::driven::{through, End};
use crate::setup::{config_of_process, response_head, JSON};

type Fields<'a> = [(&'a [u8], &'a [u8])];

const OCTETS: &Fields<'_> = &[(b"Accept", b"application/octet-stream")];
const LOOKAHEAD: &str = "/eth/v1/beacon/states/head/proposer_lookahead";
const UPDATES: &str = "/key/eth/v1/beacon/light_client/updates?count=1";
/// The lookahead of minimal's sixteen slots.
const VALUE: &str = r#"{"version":"fulu","data":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16"]}"#;
const SPEC: &str = r#"{"data":{"PRESET_BASE":"minimal","GENESIS_FORK_VERSION":"0x00000001"}}"#;

fn config(lines: &[&str]) -> Arc<Config> {
    config_of_process(Process::default(), &[&["ssz on"], lines].concat())
}

fn asks(config: &Arc<Config>, method: &str, target: &str, fields: &Fields<'_>) -> Driver {
    let mut driver = Driver::new(Arc::clone(config));
    let head = RequestHead {
        method: method.as_bytes(),
        target: target.as_bytes(),
        fields: fields.iter().copied(),
    };
    driver.request_head(head).unwrap();
    driver
}

fn head<'a>(
    status: u16,
    length: Option<u64>,
    fields: &'a Fields<'a>,
) -> ResponseHead<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone> {
    ResponseHead {
        subrequest: true,
        ..response_head(status, length, fields)
    }
}

/// What the client gets of that value: how, and how long it is.
fn given(mut driver: Driver, value: &str) -> (Mode, usize) {
    let head = response_head(200, Some(value.len() as u64), &[JSON]);
    let step = driver.response_head(head).unwrap();
    let body = through(&mut driver, step, [value.as_bytes()], End::Whole).unwrap();
    (driver.exchange().unwrap().mode(), body.unwrap().len())
}

/// The node answers what it was asked.
fn answers(mut inquiry: Driver, pieces: &[&str], now: u64) {
    let length = pieces.iter().map(|piece| piece.len() as u64).sum();
    let step = inquiry.response_head(head(200, Some(length), &[])).unwrap();
    assert!(matches!(step, Step::Show), "{step:?}");
    for piece in pieces {
        inquiry.piece(piece.as_bytes()).unwrap();
    }
    assert!(inquiry.sent(now).is_none());
}

#[test]
fn the_preset_is_asked_once_and_holds_for_those_who_come_later() {
    let config = config(&[]);
    let mut first = asks(&config, "GET", LOOKAHEAD, OCTETS);
    let inquiry = first.take_inquiry(None, 5).unwrap();
    assert!(first.take_inquiry(None, 5).is_none());
    assert!(inquiry.next_timer().is_some() && first.next_timer().is_none());
    let path = inquiry.path_of_inquiry(LOOKAHEAD.as_bytes());
    assert_eq!(path.as_deref(), Some(&b"/eth/v1/config/spec"[..]));
    assert_eq!(first.path_of_inquiry(LOOKAHEAD.as_bytes()), None);
    let edits = inquiry.exchange().unwrap().upstream_edits().to_vec();
    let accept = edits.iter().find(|edit| edit.name == "Accept").unwrap();
    assert_eq!(accept.value.as_deref(), Some(&b"application/json"[..]));
    for name in ["Range", "If-None-Match", "Content-Type"] {
        assert!(edits
            .iter()
            .any(|edit| edit.name == name && edit.value.is_none()));
    }
    // nothing waits for it
    assert_eq!(given(first, VALUE).0, Mode::SszInvalid);
    answers(inquiry, &[&SPEC[..9], "", &SPEC[9..]], 6);
    let mut second = asks(&config, "GET", LOOKAHEAD, OCTETS);
    assert!(second.take_inquiry(None, 7).is_none());
    assert_eq!(given(second, VALUE), (Mode::Ssz, 16 * 8));
    // another prefix is another node
    let mut other = asks(&config, "GET", &format!("/x{LOOKAHEAD}"), OCTETS);
    assert!(other.take_inquiry(None, 5000).is_some());
    assert_eq!(given(other, VALUE).0, Mode::SszInvalid);
}

/// For a host that knows only late how its node is asked, and has many places with the
/// same settings.
#[test]
fn it_may_be_asked_after_the_look_up_and_apart_from_others() {
    let config = config(&[]);
    let (here, there) = (Learnt::default(), Learnt::default());
    let mut first = asks(&config, "GET", LOOKAHEAD, OCTETS);
    first.recall(&here);
    let inquiry = first.take_inquiry(None, 5).unwrap();
    answers(inquiry, &[SPEC], 6);
    for (nodes, mode) in [(&here, Mode::Ssz), (&there, Mode::SszInvalid)] {
        let mut second = asks(&config, "GET", LOOKAHEAD, OCTETS);
        second.recall(nodes);
        assert_eq!(given(second, VALUE).0, mode);
    }
}

#[test]
fn updates_need_more_than_the_preset() {
    for (preset, expected) in [("auto", 2), ("minimal", 2)] {
        let config = config(&[&format!("ssz_preset {preset}")]);
        let mut driver = asks(&config, "GET", UPDATES, OCTETS);
        let mut inquiries = Vec::new();
        while let Some(inquiry) = driver.take_inquiry(None, 0) {
            inquiries.push(inquiry);
        }
        assert_eq!(inquiries.len(), expected);
        let paths = inquiries
            .iter()
            .map(|it| it.path_of_inquiry(UPDATES.as_bytes()).unwrap());
        let expected = [
            &b"/key/eth/v1/config/spec"[..],
            b"/key/eth/v1/beacon/genesis",
        ];
        assert!(paths.eq(expected.map(<[u8]>::to_vec)));
        assert_eq!(given(driver, "[]").0, Mode::SszFork);
        let genesis = format!(r#"{{"data":{{"genesis_validators_root":"0x{:064x}"}}}}"#, 7);
        for (inquiry, body) in inquiries.into_iter().zip([SPEC, &genesis]) {
            answers(inquiry, &[body], 1);
        }
        let mut driver = asks(&config, "GET", UPDATES, OCTETS);
        assert!(driver.take_inquiry(None, 2).is_none());
        assert_eq!(given(driver, "[]"), (Mode::Ssz, 0));
    }
}

#[test]
fn what_is_of_no_use_is_not_asked() {
    let json: &Fields<'_> = &[
        (b"Accept", b"application/octet-stream"),
        (b"Content-Type", b"application/json"),
    ];
    for (lines, method, target, fields, url) in [
        (&[][..], "POST", "/", json, None),
        (&[], "GET", "/eth/v1/node/health", OCTETS, None),
        (&[], "DELETE", LOOKAHEAD, OCTETS, None),
        (&["ssz_preset mainnet"], "GET", LOOKAHEAD, OCTETS, None),
        (&[], "GET", LOOKAHEAD, OCTETS, Some("http://node/eth/v1/x")),
        (&[], "GET", LOOKAHEAD, OCTETS, Some("node?x")),
        (
            &[],
            "GET",
            &format!("/{}{LOOKAHEAD}", "k".repeat(600)),
            OCTETS,
            None,
        ),
    ] {
        let config = config(lines);
        let mut driver = asks(&config, method, target, fields);
        let asked = driver.take_inquiry(url.map(str::as_bytes), 0);
        assert!(asked.is_none(), "{method} {target} {url:?}");
    }
    // a node that each request names for itself is asked there
    let config = config(&[]);
    let mut driver = asks(&config, "GET", LOOKAHEAD, OCTETS);
    assert!(driver.take_inquiry(Some(b"http://node:5052"), 0).is_some());
}

#[test]
fn an_answer_that_is_none_teaches_nothing() {
    let long = format!("{SPEC}{}", " ".repeat(200_000));
    for (status, length, body) in [
        (404, None, SPEC),
        (304, None, SPEC),
        (200, Some(SPEC.len() as u64 + 1), SPEC),
        (200, Some(1 << 40), SPEC),
        (200, None, &SPEC[1..]),
        (200, None, &long),
    ] {
        let config = config(&[]);
        let mut driver = asks(&config, "GET", LOOKAHEAD, OCTETS);
        let mut inquiry = driver.take_inquiry(None, 0).unwrap();
        let step = inquiry.response_head(head(status, length, &[])).unwrap();
        if let Step::Show = step {
            for piece in body.as_bytes().chunks(50_000) {
                inquiry.piece(piece).unwrap();
            }
        }
        assert!(inquiry.sent(1).is_none());
        let mut driver = asks(&config, "GET", LOOKAHEAD, OCTETS);
        assert!(driver.take_inquiry(None, 1).is_none());
        assert_eq!(
            given(driver, VALUE).0,
            Mode::SszInvalid,
            "{status} {length:?}"
        );
    }
}
