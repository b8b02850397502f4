//! QUERY (RFC 10008): the call of the same POST, with headers for caches in front.

use std::sync::Arc;

use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability};
use sszip_core::exchange::{Header, LookupRequest};

use crate::driver_host::{client_body, run_job, store_sent_response, BodyEnd};
use crate::setup::{config, request_head, response_head, JSON};

/// A call whose result is fresh for a minute.
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_config"}"#;
const RESULT: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"next":null}}"#;

/// Looks up a request at `now`, in milliseconds.
fn look_up(
    config: &Arc<RouteConfig>,
    method: &[u8],
    fields: &[Header<'_>],
    body: &str,
    now: u64,
) -> (ExchangeDriver, HostStep) {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    driver
        .handle_request_head(request_head(method, fields))
        .unwrap();
    driver.required_body(BodyLength::Known(body.len() as u64));
    let lookup = LookupRequest {
        now,
        coding_allowed: true,
        ..LookupRequest::default()
    };
    let body = RequestBodyAvailability::Whole(body.as_bytes());
    let step = driver.lookup_under_policy(body, lookup).unwrap();
    let step = run_job(&mut driver, step);
    (driver, step)
}

/// Sends the node's response to a request that was forwarded at `now`, and stores it.
fn respond(driver: &mut ExchangeDriver, body: &str, fields: &[Header<'_>], now: u64) {
    let head = response_head(200, Some(body.len() as u64), fields);
    let step = driver.handle_response_head(head).unwrap();
    client_body(driver, step, [body.as_bytes()], BodyEnd::Whole).unwrap();
    store_sent_response(driver, now);
}

fn status(driver: &ExchangeDriver) -> u16 {
    driver
        .available_exchange()
        .unwrap()
        .stored_response_status()
}

/// Returns the value of a header after the edits of the response.
fn header(driver: &ExchangeDriver, name: &str) -> Option<String> {
    let edits = driver.available_exchange().unwrap().head_edits();
    let edit = edits.iter().rfind(|edit| edit.name == name)?;
    let value = edit.value.as_ref()?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn node_receives_a_query_as_a_post_without_conditions() {
    let config = config(&["cache on", "query on"]);
    let fields = [JSON, (&b"If-None-Match"[..], &b"*"[..])];
    let (driver, step) = look_up(&config, b"QUERY", &fields, CALL, 1);
    assert!(matches!(step, HostStep::Forward), "{step:?}");
    let edits = driver.available_exchange().unwrap().upstream_edits();
    let value = |name: &str| edits.iter().rfind(|edit| edit.name == name).unwrap();
    assert_eq!(value(":method").value.as_deref(), Some(&b"POST"[..]));
    for name in ["If-None-Match", "If-Modified-Since", "If-Match", "Range"] {
        assert_eq!(value(name).value, None, "{name}");
    }
    let (driver, _) = look_up(&config, b"POST", &fields, CALL, 1);
    let edits = driver.available_exchange().unwrap().upstream_edits();
    assert!(!edits.iter().any(|edit| edit.name == ":method"));
}

#[test]
fn query_and_post_share_an_entry_and_a_hit_has_freshness_and_tag() {
    let config = config(&["cache on", "query on"]);
    let (mut driver, step) = look_up(&config, b"QUERY", &[JSON], CALL, 1_000);
    assert!(matches!(step, HostStep::Forward), "{step:?}");
    respond(&mut driver, RESULT, &[JSON], 1_000);
    assert_eq!(
        header(&driver, "Cache-Control").as_deref(),
        Some("no-cache")
    );
    assert_eq!(
        header(&driver, "Accept-Query").as_deref(),
        Some("application/json")
    );

    let (driver, step) = look_up(&config, b"POST", &[JSON], CALL, 6_500);
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    for name in ["Age", "Cache-Control", "ETag", "Accept-Query"] {
        assert_eq!(header(&driver, name), None, "{name}");
    }

    let (driver, step) = look_up(&config, b"QUERY", &[JSON], CALL, 6_500);
    assert!(matches!(step, HostStep::Respond), "{step:?}");
    assert_eq!(status(&driver), 200);
    assert_eq!(header(&driver, "Age").as_deref(), Some("5"));
    // 54.5 s are left
    assert_eq!(
        header(&driver, "Cache-Control").as_deref(),
        Some("max-age=59")
    );
    assert_eq!(
        header(&driver, "Accept-Query").as_deref(),
        Some("application/json")
    );
    let vary = header(&driver, "Vary").unwrap();
    assert!(vary.contains("Accept-Encoding"), "{vary}");
    let tag = header(&driver, "ETag").unwrap();

    for (known, expected) in [(tag.as_str(), 304), ("\"other\"", 200)] {
        let fields = [JSON, (&b"If-None-Match"[..], known.as_bytes())];
        let (driver, step) = look_up(&config, b"QUERY", &fields, CALL, 6_500);
        assert!(matches!(step, HostStep::Respond), "{step:?}");
        assert_eq!(status(&driver), expected);
        let exchange = driver.available_exchange().unwrap();
        assert_eq!(exchange.body_slices().next().is_none(), expected == 304);
        assert_eq!(header(&driver, "ETag").as_deref(), Some(tag.as_str()));
    }
}

#[test]
fn cache_control_of_the_node_is_kept() {
    let config = config(&["cache on", "query on"]);
    let (mut driver, _) = look_up(&config, b"QUERY", &[JSON], CALL, 1);
    let own = (&b"Cache-Control"[..], &b"no-store"[..]);
    respond(&mut driver, RESULT, &[JSON, own], 1);
    assert_eq!(header(&driver, "Cache-Control"), None);
}

#[test]
fn response_to_a_part_of_a_batch_has_no_freshness_for_the_whole() {
    let config = config(&["cache on", "query on", "method deny debug_*"]);
    let batch = format!(
        r#"[{CALL},{{"jsonrpc":"2.0","id":2,"method":"debug_traceBlockByNumber","params":["0x1"]}}]"#
    );
    let (mut driver, step) = look_up(&config, b"QUERY", &[JSON], &batch, 1);
    assert!(matches!(step, HostStep::ForwardRewritten), "{step:?}");
    let fresh = (&b"Cache-Control"[..], &b"max-age=60"[..]);
    respond(&mut driver, &format!("[{RESULT}]"), &[JSON, fresh], 1);
    assert_eq!(
        header(&driver, "Cache-Control").as_deref(),
        Some("no-cache")
    );
}

#[test]
fn response_that_depends_on_the_caller_is_private() {
    let config = config(&["cache on", "query on", "cache_credentials key X-Api-Key"]);
    for (name, scope) in [(&b"X-Api-Key"[..], "private, "), (&b"X-Other"[..], "")] {
        let fields = [JSON, (name, &b"a"[..])];
        let (mut driver, _) = look_up(&config, b"QUERY", &fields, CALL, 1);
        respond(&mut driver, RESULT, &[JSON], 1);
        let (driver, step) = look_up(&config, b"QUERY", &fields, CALL, 1);
        assert!(matches!(step, HostStep::Respond), "{step:?}");
        let expected = format!("{scope}max-age=60");
        assert_eq!(header(&driver, "Cache-Control"), Some(expected));
    }
}

#[test]
fn invalid_query_is_rejected_with_the_status_of_the_specification() {
    const TEXT: Header<'static> = (b"Content-Type", b"text/plain");
    for lines in [
        &["query on"][..],
        &["query on", "cache on"],
        &["query on", "method allow *"],
    ] {
        let config = config(lines);
        for (fields, body, expected) in [
            (&[][..], CALL, 400),
            (&[TEXT], CALL, 415),
            (&[JSON], "", 400),
            (&[JSON], "{", 400),
            (&[JSON], "{}", 422),
            (&[JSON], "[]", 422),
            (
                &[JSON],
                r#"{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction"}"#,
                405,
            ),
            (
                &[JSON],
                r#"{"jsonrpc":"2.0","id":1,"method":"eth_newFilter"}"#,
                405,
            ),
            (
                &[JSON],
                r#"{"jsonrpc":"2.0","id":1,"method":"acme_x"}"#,
                405,
            ),
            (
                &[JSON],
                r#"[{"jsonrpc":"2.0","id":1,"method":"eth_chainId"},{"jsonrpc":"2.0","id":1,"method":"eth_sign"}]"#,
                405,
            ),
        ] {
            let (driver, step) = look_up(&config, b"QUERY", fields, body, 1);
            assert!(matches!(step, HostStep::Respond), "{body} {step:?}");
            assert_eq!(status(&driver), expected, "{body}");
            assert_eq!(
                header(&driver, "Accept-Query").as_deref(),
                Some("application/json")
            );
            let allowed = (expected == 405).then_some("POST");
            assert_eq!(header(&driver, "Allow").as_deref(), allowed);
        }
        let (_, step) = look_up(&config, b"QUERY", &[JSON], CALL, 1);
        assert!(matches!(step, HostStep::Forward), "{step:?}");
    }
}

#[test]
fn query_is_forwarded_unchanged_where_it_is_not_enabled() {
    for lines in [&["cache on"][..], &["cache on", "query off"]] {
        let config = config(lines);
        let (driver, step) = look_up(&config, b"QUERY", &[], "select", 1);
        assert!(matches!(step, HostStep::Forward), "{step:?}");
        let edits = driver.available_exchange().unwrap().upstream_edits();
        assert!(!edits.iter().any(|edit| edit.name == ":method"));
    }
}
