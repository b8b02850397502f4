//! Concurrency limits of methods: calls beyond the limit receive an error, and a finished call
//! returns its permit.

use std::sync::Arc;

use sszip_core::cache::process::wake::EventLoopId;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability};
use sszip_core::exchange::LookupRequest;
use sszip_core::response_mode::ResponseMode;

use crate::driver_host::{body_to_send, client_body, run_job, store_sent_response, BodyEnd};
use crate::setup::{call, config, request_head, response_head, JSON};

const ERROR: &str =
    r#""error":{"code":-32005,"message":"too many calls of this method at a time"}}"#;

fn result(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":1}}}}"#)
}

fn denied(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{ERROR}"#)
}

/// Sends a request, and returns its driver with the step that follows.
fn send_request(
    config: &Arc<RouteConfig>,
    body: &str,
    waiter: usize,
) -> (ExchangeDriver, HostStep) {
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    driver
        .handle_request_head(request_head(b"POST", &[JSON]))
        .unwrap();
    driver.required_body(BodyLength::Known(body.len() as u64));
    let step = look_up_again(&mut driver, body, waiter);
    (driver, step)
}

fn look_up_again(driver: &mut ExchangeDriver, body: &str, waiter: usize) -> HostStep {
    let lookup_request = LookupRequest {
        now: 1,
        waiter: Some(EventLoopId::default().waiter_of_request(waiter)),
        ..LookupRequest::default()
    };
    let step = driver
        .lookup_under_policy(
            RequestBodyAvailability::Whole(body.as_bytes()),
            lookup_request,
        )
        .unwrap();
    run_job(driver, step)
}

/// Returns the client's response after the node has sent `body`.
fn answer(driver: &mut ExchangeDriver, body: &str) -> String {
    let head = response_head(200, Some(body.len() as u64), &[JSON]);
    let step = driver.handle_response_head(head).unwrap();
    let got = client_body(driver, step, [body.as_bytes()], BodyEnd::Whole);
    store_sent_response(driver, 1);
    String::from_utf8(got.unwrap().unwrap()).unwrap()
}

fn is_refused(request: (ExchangeDriver, HostStep), id: u32) -> bool {
    let (driver, step) = request;
    let refused = matches!(step, HostStep::Respond);
    if refused {
        assert_eq!(
            String::from_utf8(body_to_send(&driver)).unwrap(),
            denied(id)
        );
        let exchange = driver.available_exchange().unwrap();
        let outcome = (
            exchange.stored_response_status(),
            exchange.response_mode(),
            exchange.denied_call_count(),
        );
        assert_eq!(outcome, (200, ResponseMode::Denied, 1));
    }
    refused
}

#[test]
fn finished_or_aborted_call_returns_its_permit() {
    let config = config(&["method limit=2 trace_* eth_getLogs"]);
    let (mut one, step) = send_request(&config, &call(1, "trace_block"), 1);
    assert!(matches!(step, HostStep::Forward));
    let (two, step) = send_request(&config, &call(2, "eth_getLogs"), 2);
    assert!(matches!(step, HostStep::Forward));
    // in any notation
    for method in ["trace_call", "Trace_call", "eth_getLogs", "ETH_getlogs"] {
        assert!(
            is_refused(send_request(&config, &call(3, method), 3), 3),
            "{method}"
        );
    }
    let (_other, step) = send_request(&config, &call(4, "eth_call"), 4);
    assert!(matches!(step, HostStep::Forward));
    // the node has responded to one call, and the client of the other has left
    assert_eq!(answer(&mut one, &result(1)), result(1));
    let (three, step) = send_request(&config, &call(5, "trace_call"), 5);
    assert!(matches!(step, HostStep::Forward));
    assert!(is_refused(
        send_request(&config, &call(6, "trace_call"), 6),
        6
    ));
    drop(two);
    assert!(!is_refused(
        send_request(&config, &call(7, "trace_call"), 7),
        7
    ));
    drop((one, three));
}

#[test]
fn calls_of_a_batch_beyond_the_limit_are_denied() {
    let config = config(&["method limit=2 trace_*"]);
    let calls = [1, 2, 3, 4].map(|id| call(id, "trace_block"));
    let other = call(5, "eth_call");
    let batch = format!(
        "[{},{},{},{other},{}]",
        calls[0], calls[1], calls[2], calls[3]
    );
    let (mut driver, step) = send_request(&config, &batch, 1);
    assert!(matches!(step, HostStep::ForwardRewritten));
    let exchange = driver.available_exchange().unwrap();
    let goes = String::from_utf8(exchange.upstream_request_body().to_vec()).unwrap();
    assert_eq!(goes, format!("[{},{},{other}]", calls[0], calls[1]));
    assert_eq!(exchange.denied_call_count(), 2);
    // until it ends no permit is left, for a batch neither
    assert!(is_refused(send_request(&config, &call(9, "trace_x"), 2), 9));
    let (all, step) = send_request(&config, &format!("[{},{}]", calls[0], calls[2]), 2);
    assert!(matches!(step, HostStep::Respond));
    let refused = String::from_utf8(body_to_send(&all)).unwrap();
    assert_eq!(refused, format!("[{},{}]", denied(1), denied(3)));
    let answers = format!("[{},{},{}]", result(1), result(2), result(5));
    let got = answer(&mut driver, &answers);
    let expected = [result(1), result(2), denied(3), result(5), denied(4)];
    assert_eq!(got, format!("[{}]", expected.join(",")));
    assert!(!is_refused(
        send_request(&config, &call(9, "trace_x"), 2),
        9
    ));
}

#[test]
fn hits_need_no_permit() {
    let config = config(&["method limit=1 eth_getBlockByHash", "cache on"]);
    let block = |id| call(id, "eth_getBlockByHash");
    let (mut driver, _) = send_request(&config, &block(1), 1);
    answer(&mut driver, &result(1));
    let hits: Vec<_> = (2..6)
        .map(|id| send_request(&config, &block(id), 2))
        .collect();
    for (driver, step) in &hits {
        assert!(matches!(step, HostStep::Respond));
        assert_eq!(
            driver.available_exchange().unwrap().response_mode(),
            ResponseMode::Hit
        );
    }
}

#[test]
fn follower_keeps_its_permit_until_it_responds() {
    let config = config(&["method limit=2 eth_getBlockByHash", "cache on"]);
    let block = |id| call(id, "eth_getBlockByHash");
    let (mut leads, step) = send_request(&config, &block(1), 1);
    assert!(matches!(step, HostStep::Forward));
    let (mut waits, step) = send_request(&config, &block(2), 2);
    assert!(matches!(step, HostStep::Wait));
    assert!(is_refused(send_request(&config, &block(3), 3), 3));
    answer(&mut leads, &result(1));
    // another client takes the returned permit before the X
    let (_other, step) = send_request(
        &config,
        &call(4, "eth_getBlockByHash").replace("true", "false"),
        4,
    );
    assert!(matches!(step, HostStep::Forward));
    let step = look_up_again(&mut waits, &block(2), 2);
    assert!(matches!(step, HostStep::Respond));
    assert_eq!(String::from_utf8(body_to_send(&waits)).unwrap(), result(2));
    assert!(!is_refused(
        send_request(
            &config,
            &call(5, "eth_getBlockByHash").replace("true", "1"),
            5
        ),
        5
    ));
}
