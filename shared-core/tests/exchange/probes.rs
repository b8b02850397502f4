//! Probes: the background requests that a driver makes, and the capabilities that it records from
//! their responses.

use std::sync::Arc;

use sszip_core::cache::process::ProcessResources;
use sszip_core::config::node_capabilities::RouteNodeCapabilities;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::{RequestHead, ResponseHead};
use sszip_core::gzip::oneshot::{compressed_bound, gzip_oneshot};
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{client_body, BodyEnd};
use crate::setup::{config_of_process, response_head, JSON};

type Fields<'a> = [(&'a [u8], &'a [u8])];

const OCTETS: &Fields<'_> = &[(b"Accept", b"application/octet-stream")];
const LOOKAHEAD: &str = "/eth/v1/beacon/states/head/proposer_lookahead";
const UPDATES: &str = "/key/eth/v1/beacon/light_client/updates?count=1";
/// The lookahead for the 16 slots of preset minimal.
const VALUE: &str = r#"{"version":"fulu","data":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16"]}"#;
const SPEC: &str = r#"{"data":{"PRESET_BASE":"minimal","GENESIS_FORK_VERSION":"0x00000001"}}"#;

fn config(lines: &[&str]) -> Arc<RouteConfig> {
    config_of_process(ProcessResources::default(), &[&["ssz on"], lines].concat())
}

fn requested(
    config: &Arc<RouteConfig>,
    method: &str,
    target: &str,
    fields: &Fields<'_>,
) -> ExchangeDriver {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let head = RequestHead {
        method: method.as_bytes(),
        target: target.as_bytes(),
        fields: fields.iter().copied(),
    };
    driver.handle_request_head(head).unwrap();
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

/// Returns the mode and the length of the body that the client receives for `value`.
fn client_result(mut driver: ExchangeDriver, value: &str) -> (ResponseMode, usize) {
    let head = response_head(200, Some(value.len() as u64), &[JSON]);
    let step = driver.handle_response_head(head).unwrap();
    let body = client_body(&mut driver, step, [value.as_bytes()], BodyEnd::Whole).unwrap();
    (
        driver.available_exchange().unwrap().response_mode(),
        body.unwrap().len(),
    )
}

/// Responds to a probe in pieces.
fn respond(mut probe: ExchangeDriver, pieces: &[&str], now: u64) {
    let length = pieces.iter().map(|piece| piece.len() as u64).sum();
    let step = probe
        .handle_response_head(head(200, Some(length), &[]))
        .unwrap();
    assert!(matches!(step, HostStep::Observe), "{step:?}");
    for piece in pieces {
        probe.handle_body_piece(piece.as_bytes()).unwrap();
    }
    assert!(probe.handle_response_sent(now).is_none());
}

#[test]
fn preset_is_probed_once_and_applies_to_later_requests() {
    let config = config(&[]);
    let mut first = requested(&config, "GET", LOOKAHEAD, OCTETS);
    let probe = first.take_node_probe(None, 5).unwrap();
    assert!(first.take_node_probe(None, 5).is_none());
    assert!(probe.next_timeout_ms().is_some() && first.next_timeout_ms().is_none());
    let path = probe.probe_path(LOOKAHEAD.as_bytes());
    assert_eq!(path.as_deref(), Some(&b"/eth/v1/config/spec"[..]));
    assert_eq!(first.probe_path(LOOKAHEAD.as_bytes()), None);
    let edits = probe
        .available_exchange()
        .unwrap()
        .upstream_edits()
        .to_vec();
    let accept = edits.iter().find(|edit| edit.name == "Accept").unwrap();
    assert_eq!(accept.value.as_deref(), Some(&b"application/json"[..]));
    for name in ["Range", "If-None-Match", "Content-Type"] {
        assert!(edits
            .iter()
            .any(|edit| edit.name == name && edit.value.is_none()));
    }
    // the request does not wait for the probe
    assert_eq!(client_result(first, VALUE).0, ResponseMode::SszInvalid);
    respond(probe, &[&SPEC[..9], "", &SPEC[9..]], 6);
    let mut second = requested(&config, "GET", LOOKAHEAD, OCTETS);
    assert!(second.take_node_probe(None, 7).is_none());
    assert_eq!(client_result(second, VALUE), (ResponseMode::Ssz, 16 * 8));
    // another prefix belongs to another node
    let mut other = requested(&config, "GET", &format!("/x{LOOKAHEAD}"), OCTETS);
    assert!(other.take_node_probe(None, 5000).is_some());
    assert_eq!(client_result(other, VALUE).0, ResponseMode::SszInvalid);
}

/// The capabilities of a host that learns the node's address after the look-up, and that has many
/// routes with equal settings.
#[test]
fn probe_result_applies_only_to_requests_with_the_same_capabilities() {
    let config = config(&[]);
    let (here, there) = (
        RouteNodeCapabilities::default(),
        RouteNodeCapabilities::default(),
    );
    let mut first = requested(&config, "GET", LOOKAHEAD, OCTETS);
    first.load_node_capabilities(&here);
    let probe = first.take_node_probe(None, 5).unwrap();
    respond(probe, &[SPEC], 6);
    for (nodes, mode) in [
        (&here, ResponseMode::Ssz),
        (&there, ResponseMode::SszInvalid),
    ] {
        let mut second = requested(&config, "GET", LOOKAHEAD, OCTETS);
        second.load_node_capabilities(nodes);
        assert_eq!(client_result(second, VALUE).0, mode);
    }
}

#[test]
fn light_client_updates_probe_the_spec_and_the_genesis() {
    for (preset, expected) in [("auto", 2), ("minimal", 2)] {
        let config = config(&[&format!("ssz_preset {preset}")]);
        let mut driver = requested(&config, "GET", UPDATES, OCTETS);
        let mut probes = Vec::new();
        while let Some(probe) = driver.take_node_probe(None, 0) {
            probes.push(probe);
        }
        assert_eq!(probes.len(), expected);
        let paths = probes
            .iter()
            .map(|it| it.probe_path(UPDATES.as_bytes()).unwrap());
        let expected = [
            &b"/key/eth/v1/config/spec"[..],
            b"/key/eth/v1/beacon/genesis",
        ];
        assert!(paths.eq(expected.map(<[u8]>::to_vec)));
        assert_eq!(client_result(driver, "[]").0, ResponseMode::SszFork);
        let genesis = format!(r#"{{"data":{{"genesis_validators_root":"0x{:064x}"}}}}"#, 7);
        for (probe, body) in probes.into_iter().zip([SPEC, &genesis]) {
            respond(probe, &[body], 1);
        }
        let mut driver = requested(&config, "GET", UPDATES, OCTETS);
        assert!(driver.take_node_probe(None, 2).is_none());
        assert_eq!(client_result(driver, "[]"), (ResponseMode::Ssz, 0));
    }
}

#[test]
fn compressed_probe_response_is_decompressed() {
    let spec = SPEC.as_bytes();
    let gzip = gzip_oneshot(spec, 1, compressed_bound(spec.len())).unwrap();
    let zstd = zstd::bulk::compress(spec, 3).unwrap();
    for (coding, body) in [("gzip", gzip), ("zstd", zstd)] {
        let config = config(&[]);
        let mut first = requested(&config, "GET", LOOKAHEAD, OCTETS);
        let mut probe = first.take_node_probe(None, 5).unwrap();
        let fields = [(&b"Content-Encoding"[..], coding.as_bytes())];
        let step = probe
            .handle_response_head(head(200, Some(body.len() as u64), &fields))
            .unwrap();
        assert!(matches!(step, HostStep::Observe), "{step:?}");
        probe.handle_body_piece(&body).unwrap();
        assert!(probe.handle_response_sent(6).is_none());
        let mut second = requested(&config, "GET", LOOKAHEAD, OCTETS);
        assert!(second.take_node_probe(None, 7).is_none());
        assert_eq!(client_result(second, VALUE), (ResponseMode::Ssz, 16 * 8));
    }
}

#[test]
fn request_that_no_capability_helps_makes_no_probe() {
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
        let mut driver = requested(&config, method, target, fields);
        let probe = driver.take_node_probe(url.map(str::as_bytes), 0);
        assert!(probe.is_none(), "{method} {target} {url:?}");
    }
    // a probe goes to the node that the request itself names
    let config = config(&[]);
    let mut driver = requested(&config, "GET", LOOKAHEAD, OCTETS);
    assert!(driver
        .take_node_probe(Some(b"http://node:5052"), 0)
        .is_some());
}

#[test]
fn invalid_probe_response_records_no_capability() {
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
        let mut driver = requested(&config, "GET", LOOKAHEAD, OCTETS);
        let mut probe = driver.take_node_probe(None, 0).unwrap();
        let step = probe
            .handle_response_head(head(status, length, &[]))
            .unwrap();
        if let HostStep::Observe = step {
            for piece in body.as_bytes().chunks(50_000) {
                probe.handle_body_piece(piece).unwrap();
            }
        }
        assert!(probe.handle_response_sent(1).is_none());
        let mut driver = requested(&config, "GET", LOOKAHEAD, OCTETS);
        assert!(driver.take_node_probe(None, 1).is_none());
        assert_eq!(
            client_result(driver, VALUE).0,
            ResponseMode::SszInvalid,
            "{status} {length:?}"
        );
    }
}
