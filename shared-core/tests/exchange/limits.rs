//! Methods of which so many may be called at a time: who comes beyond them is told so, and
//! who is done makes room.

use std::sync::Arc;

use sszip_core::cache::process::wake::EventLoop;
use sszip_core::config::Config;
use sszip_core::exchange::drive::{BodyLength, Driver, RequestBody, Step};
use sszip_core::exchange::Asked;
use sszip_core::mode::Mode;

use crate::driven::{ran, sent, stored, through, End};
use crate::setup::{call, config, request_head, response_head, JSON};

const ERROR: &str =
    r#""error":{"code":-32005,"message":"too many calls of this method at a time"}}"#;

fn result(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":1}}}}"#)
}

fn denied(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{ERROR}"#)
}

/// A request, and what is to be done with it.
fn ask(config: &Arc<Config>, body: &str, waiter: usize) -> (Driver, Step) {
    let mut driver = Driver::new(Arc::clone(config));
    driver.request_head(request_head(b"POST", &[JSON])).unwrap();
    driver.need(BodyLength::Known(body.len() as u64));
    let step = again(&mut driver, body, waiter);
    (driver, step)
}

fn again(driver: &mut Driver, body: &str, waiter: usize) -> Step {
    let asked = Asked {
        now: 1,
        waiter: Some(EventLoop::default().waiter(waiter)),
        ..Asked::default()
    };
    let step = driver
        .look_up(RequestBody::Whole(body.as_bytes()), asked)
        .unwrap();
    ran(driver, step)
}

/// The client's answer once the node has given that one.
fn answer(driver: &mut Driver, body: &str) -> String {
    let head = response_head(200, Some(body.len() as u64), &[JSON]);
    let step = driver.response_head(head).unwrap();
    let got = through(driver, step, [body.as_bytes()], End::Whole);
    stored(driver, 1);
    String::from_utf8(got.unwrap().unwrap()).unwrap()
}

fn is_refused(asked: (Driver, Step), id: u32) -> bool {
    let (driver, step) = asked;
    let refused = matches!(step, Step::Respond);
    if refused {
        assert_eq!(String::from_utf8(sent(&driver)).unwrap(), denied(id));
        let exchange = driver.exchange().unwrap();
        let said = (exchange.status(), exchange.mode(), exchange.denied());
        assert_eq!(said, (200, Mode::Denied, 1));
    }
    refused
}

#[test]
fn who_is_done_makes_room() {
    let config = config(&["method limit=2 trace_* eth_getLogs"]);
    let (mut one, step) = ask(&config, &call(1, "trace_block"), 1);
    assert!(matches!(step, Step::Forward));
    let (two, step) = ask(&config, &call(2, "eth_getLogs"), 2);
    assert!(matches!(step, Step::Forward));
    // however it is written
    for method in ["trace_call", "Trace_call", "eth_getLogs", "ETH_getlogs"] {
        assert!(is_refused(ask(&config, &call(3, method), 3), 3), "{method}");
    }
    let (_other, step) = ask(&config, &call(4, "eth_call"), 4);
    assert!(matches!(step, Step::Forward));
    // the node has answered; and a client has gone
    assert_eq!(answer(&mut one, &result(1)), result(1));
    let (three, step) = ask(&config, &call(5, "trace_call"), 5);
    assert!(matches!(step, Step::Forward));
    assert!(is_refused(ask(&config, &call(6, "trace_call"), 6), 6));
    drop(two);
    assert!(!is_refused(ask(&config, &call(7, "trace_call"), 7), 7));
    drop((one, three));
}

#[test]
fn a_batch_does_not_get_around_it() {
    let config = config(&["method limit=2 trace_*"]);
    let calls = [1, 2, 3, 4].map(|id| call(id, "trace_block"));
    let other = call(5, "eth_call");
    let batch = format!(
        "[{},{},{},{other},{}]",
        calls[0], calls[1], calls[2], calls[3]
    );
    let (mut driver, step) = ask(&config, &batch, 1);
    assert!(matches!(step, Step::ForwardRewritten));
    let exchange = driver.exchange().unwrap();
    let goes = String::from_utf8(exchange.request_body().to_vec()).unwrap();
    assert_eq!(goes, format!("[{},{},{other}]", calls[0], calls[1]));
    assert_eq!(exchange.denied(), 2);
    // meanwhile there is no room, of a batch neither
    assert!(is_refused(ask(&config, &call(9, "trace_x"), 2), 9));
    let (all, step) = ask(&config, &format!("[{},{}]", calls[0], calls[2]), 2);
    assert!(matches!(step, Step::Respond));
    let refused = String::from_utf8(sent(&all)).unwrap();
    assert_eq!(refused, format!("[{},{}]", denied(1), denied(3)));
    let answers = format!("[{},{},{}]", result(1), result(2), result(5));
    let got = answer(&mut driver, &answers);
    let expected = [result(1), result(2), denied(3), result(5), denied(4)];
    assert_eq!(got, format!("[{}]", expected.join(",")));
    assert!(!is_refused(ask(&config, &call(9, "trace_x"), 2), 9));
}

#[test]
fn what_is_stored_takes_no_room() {
    let config = config(&["method limit=1 eth_getBlockByHash", "cache on"]);
    let block = |id| call(id, "eth_getBlockByHash");
    let (mut driver, _) = ask(&config, &block(1), 1);
    answer(&mut driver, &result(1));
    let hits: Vec<_> = (2..6).map(|id| ask(&config, &block(id), 2)).collect();
    for (driver, step) in &hits {
        assert!(matches!(step, Step::Respond));
        assert_eq!(driver.exchange().unwrap().mode(), Mode::Hit);
    }
}

#[test]
fn who_waits_for_another_keeps_the_room_it_has() {
    let config = config(&["method limit=2 eth_getBlockByHash", "cache on"]);
    let block = |id| call(id, "eth_getBlockByHash");
    let (mut leads, step) = ask(&config, &block(1), 1);
    assert!(matches!(step, Step::Forward));
    let (mut waits, step) = ask(&config, &block(2), 2);
    assert!(matches!(step, Step::Wait));
    assert!(is_refused(ask(&config, &block(3), 3), 3));
    answer(&mut leads, &result(1));
    // somebody else has come before it was woken
    let (_other, step) = ask(
        &config,
        &call(4, "eth_getBlockByHash").replace("true", "false"),
        4,
    );
    assert!(matches!(step, Step::Forward));
    let step = again(&mut waits, &block(2), 2);
    assert!(matches!(step, Step::Respond));
    assert_eq!(String::from_utf8(sent(&waits)).unwrap(), result(2));
    assert!(!is_refused(
        ask(
            &config,
            &call(5, "eth_getBlockByHash").replace("true", "1"),
            5
        ),
        5
    ));
}
