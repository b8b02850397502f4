//! Wide calls for logs in batches: they are assembled from pieces, and the node receives the other
//! calls.

use std::sync::Arc;

use serde_json::Value;
use sszip_core::cache::chain::ChainChange;
use sszip_core::cache::vary_key::named_cache_namespace;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};

use crate::driver_host::{body_to_send, client_body, store_sent_response, BodyEnd};
use crate::log_splits::{batch_response, Host, PieceReply, PIECE};
use crate::setup::{request_head, response_head, JSON};

const SPLIT: &str = "logs_split 10 concurrent=4";
const WAVE: usize = 4;

/// The response to a batch, and the requests that the node has received for it.
#[derive(Debug)]
struct BatchOutcome {
    body: String,
    /// Body of the request to the node, in JSON.
    forwarded: Option<Value>,
    piece_requests: usize,
    jobs: usize,
}

impl BatchOutcome {
    /// Methods of the calls that the node has received outside of the requests for pieces.
    fn forwarded_methods(&self) -> Vec<&str> {
        let calls = self.forwarded.iter().flat_map(|it| it.as_array().unwrap());
        calls.map(|it| it["method"].as_str().unwrap()).collect()
    }
}

/// Sends a batch, whose pieces receive `reply`, and checks the response. No flight is left.
fn send_batch(host: &Host, batch: &str, reply: PieceReply) -> BatchOutcome {
    send_batch_during(host, batch, reply, |_| {})
}

/// Sends a batch like [`send_batch`]. `event` is called before each repeated lookup, with the number
/// of pieces that were requested.
fn send_batch_during(
    host: &Host,
    batch: &str,
    reply: PieceReply,
    event: impl FnMut(usize),
) -> BatchOutcome {
    let outcome = exchange_batch(host, batch, reply, event);
    let flights = &host.config.process.shared.flights;
    assert_eq!(flights.flight_count(), 0, "{batch}");
    outcome
}

fn exchange_batch(
    host: &Host,
    batch: &str,
    reply: PieceReply,
    mut event: impl FnMut(usize),
) -> BatchOutcome {
    let mut driver = ExchangeDriver::new(Arc::clone(&host.config));
    driver
        .handle_request_head(request_head(b"POST", &[JSON]))
        .unwrap();
    let (mut piece_requests, mut jobs) = (0, 0);
    let mut step = host.look_up(&mut driver, batch);
    let step = loop {
        while let Some(update) = driver.take_background_update() {
            piece_requests += 1;
            host.answer_piece(update, reply);
        }
        step = match step {
            HostStep::Wait => {
                event(piece_requests);
                host.look_up(&mut driver, batch)
            }
            HostStep::RunJob(mut job) => {
                jobs += 1;
                job.run_job();
                let next = driver.resume_after_job(job);
                let wait = driver.next_timeout_ms();
                assert!(!matches!(next, HostStep::Wait) || wait == Some(0));
                next
            }
            last => break last,
        };
    };
    let request = match step {
        HostStep::Respond => None,
        HostStep::Forward => Some(batch.to_owned()),
        HostStep::ForwardRewritten => {
            let exchange = driver.available_exchange().unwrap();
            let body = exchange.upstream_request_body().to_vec();
            Some(String::from_utf8(body).unwrap())
        }
        other => panic!("{other:?}"),
    };
    let forwarded: Option<Value> = request.map(|it| serde_json::from_str(&it).unwrap());
    let body = match &forwarded {
        None => body_to_send(&driver),
        Some(request) => {
            let body = batch_response(request, PieceReply::Logs);
            let head = response_head(200, Some(body.len() as u64), &[JSON]);
            let step = driver.handle_response_head(head).unwrap();
            let pieces = [body.as_bytes()];
            client_body(&mut driver, step, pieces, BodyEnd::Whole)
                .unwrap()
                .unwrap()
        }
    };
    store_sent_response(&mut driver, 1);
    let body = String::from_utf8(body).unwrap();
    let calls: Value = serde_json::from_str(batch).unwrap();
    assert_eq!(body, batch_response(&calls, PieceReply::Logs), "{batch}");
    BatchOutcome {
        body,
        forwarded,
        piece_requests,
        jobs,
    }
}

/// Joins calls, each a method with its parameters in JSON. Their ids are their positions.
fn batch(calls: &[(&str, String)]) -> String {
    let calls = calls.iter().enumerate().map(|(id, (method, params))| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    });
    format!("[{}]", calls.collect::<Vec<_>>().join(","))
}

/// The call for the logs of some pieces.
fn pieces(range: std::ops::Range<u64>) -> (&'static str, String) {
    let (first, last) = (range.start * PIECE, range.end * PIECE - 1);
    let params = format!(r#"[{{"fromBlock":"0x{first:x}","toBlock":"0x{last:x}"}}]"#);
    ("eth_getLogs", params)
}

/// The call for the logs from a piece to the head.
fn pieces_to_head(first: u64) -> (&'static str, String) {
    let params = format!(r#"[{{"fromBlock":"0x{:x}"}}]"#, first * PIECE);
    ("eth_getLogs", params)
}

fn call(method: &'static str) -> (&'static str, String) {
    (method, "[]".to_owned())
}

/// Adds an address to the filter of a call for logs.
fn with_address((method, params): (&'static str, String)) -> (&'static str, String) {
    let filter = params.strip_suffix("}]").unwrap();
    (method, format!("{filter},\"address\":\"0x{:040x}\"}}]", 7))
}

/// Adds a block to the followed chain.
fn add_block(host: &Host, number: u64) {
    let owner = host.config.process.shared.owner_client().unwrap();
    let chain = owner
        .followed_chains()
        .get(&named_cache_namespace(b"mainnet"));
    let change = ChainChange::Head(number);
    chain
        .unwrap()
        .modify_locked_chain_state(|state| state.apply_chain_change(change));
}

#[test]
fn wide_calls_of_a_batch_are_assembled_and_the_node_receives_the_others() {
    let host = Host::new(&[SPLIT]);
    let calls = batch(&[pieces(0..6), call("eth_chainId"), pieces(3..9)]);
    let first = send_batch(&host, &calls, PieceReply::Logs);
    // pieces that both ranges have are fetched once
    assert_eq!((first.piece_requests, first.jobs), (9, 0));
    assert_eq!(first.forwarded_methods(), ["eth_chainId"]);
    let again = send_batch(&host, &calls, PieceReply::Logs);
    assert_eq!((again.piece_requests, &again.forwarded), (0, &None));
    assert_eq!(again.body, first.body);
    // other ranges of stored pieces
    let calls = batch(&[pieces(1..5), pieces(2..9)]);
    let stored = send_batch(&host, &calls, PieceReply::Logs);
    assert_eq!((stored.piece_requests, &stored.forwarded), (0, &None));
}

#[test]
fn ranges_to_the_head_are_assembled_unless_another_call_for_the_node_depends_on_the_head() {
    // two pieces of final blocks, and the rest
    let open = || pieces_to_head(88);
    for (calls, methods, piece_requests) in [
        (vec![open(), call("eth_chainId")], vec!["eth_chainId"], 3),
        (vec![pieces_to_head(87), open()], vec![], 4),
        (
            vec![open(), call("eth_gasPrice"), pieces(0..2)],
            vec!["eth_getLogs", "eth_gasPrice"],
            2,
        ),
    ] {
        let outcome = send_batch(&Host::new(&[SPLIT]), &batch(&calls), PieceReply::Logs);
        assert_eq!(outcome.forwarded_methods(), methods);
        assert_eq!(outcome.piece_requests, piece_requests, "{methods:?}");
    }
}

#[test]
fn batch_with_a_call_that_is_not_cached_is_not_delayed() {
    for calls in [
        batch(&[pieces(0..6), call("eth_sendRawTransaction")]),
        // a node that receives a part of them could not be matched with the calls
        batch(&[pieces(0..6), call("eth_chainId")]).replace("\"id\":1", "\"id\":0"),
    ] {
        let outcome = send_batch(&Host::new(&[SPLIT]), &calls, PieceReply::Logs);
        assert_eq!(outcome.piece_requests, 0);
        assert_eq!(outcome.forwarded_methods().len(), 2);
    }
}

#[test]
fn batch_with_a_missing_call_of_another_limited_method_is_not_delayed() {
    let calls = |range| batch(&[pieces(range), call("eth_chainId")]);
    for (limit, piece_requests) in [
        ("method limit=1 eth_chainId", 0),
        ("method limit=1 eth_getLogs", 6),
    ] {
        let host = Host::new(&[SPLIT, limit]);
        let missing = send_batch(&host, &calls(0..6), PieceReply::Logs);
        assert_eq!(missing.piece_requests, piece_requests, "{limit}");
        // the response to eth_chainId is stored
        let stored = send_batch(&host, &calls(10..16), PieceReply::Logs);
        assert_eq!((stored.piece_requests, stored.forwarded), (6, None));
    }
}

#[test]
fn node_receives_all_missing_calls_in_one_request_when_a_piece_fails() {
    let host = Host::new(&[SPLIT]);
    let calls = batch(&[pieces(0..6), call("eth_chainId"), pieces(10..20)]);
    for piece_requests in [WAVE, 0] {
        // the route splits no call after a failure of the node
        let outcome = send_batch(&host, &calls, PieceReply::Status(500));
        let expected = ["eth_getLogs", "eth_chainId", "eth_getLogs"];
        if piece_requests > 0 {
            assert_eq!(outcome.forwarded_methods(), expected);
        }
        assert_eq!(outcome.piece_requests, piece_requests);
    }
}

#[test]
fn refused_filter_pauses_only_its_own_calls() {
    let host = Host::new(&[SPLIT]);
    let calls =
        |range: std::ops::Range<u64>| batch(&[pieces(range.clone()), with_address(pieces(range))]);
    // the second call is not split after the first one was refused
    let refused = send_batch(&host, &calls(0..6), PieceReply::RefusedLogs);
    assert_eq!(refused.piece_requests, WAVE);
    assert_eq!(refused.forwarded_methods(), ["eth_getLogs", "eth_getLogs"]);
    let later = send_batch(&host, &calls(10..16), PieceReply::Logs);
    assert_eq!(later.piece_requests, 6);
    let forwarded = later.forwarded.unwrap();
    assert_eq!(forwarded.as_array().unwrap().len(), 1);
    assert!(forwarded[0]["params"][0].get("address").is_none());
}

#[test]
fn planned_call_is_not_split_when_the_node_fails_for_another_client_meanwhile() {
    let host = Host::new(&[SPLIT]);
    let calls = batch(&[pieces(0..4), pieces(10..14)]);
    let outcome = send_batch_during(&host, &calls, PieceReply::Logs, |piece_requests| {
        if piece_requests == WAVE {
            let (other, calls) = (host.for_other_client(), batch(&[pieces(20..24)]));
            let failed = exchange_batch(&other, &calls, PieceReply::Status(500), |_| {});
            assert_eq!(failed.piece_requests, WAVE);
        }
    });
    assert_eq!(outcome.piece_requests, WAVE);
    let forwarded = outcome.forwarded.unwrap();
    let expected: Value = serde_json::from_str(&calls).unwrap();
    assert_eq!(forwarded[0], expected[1]);
    assert_eq!(forwarded.as_array().unwrap().len(), 1);
}

#[test]
fn assembled_responses_of_a_former_head_are_not_sent_together() {
    let host = Host::new(&[SPLIT]);
    let calls = batch(&[pieces_to_head(88), pieces_to_head(87)]);
    let outcome = send_batch_during(&host, &calls, PieceReply::Logs, |piece_requests| {
        if piece_requests == 4 {
            add_block(&host, 1_001);
        }
    });
    assert_eq!(outcome.piece_requests, 4);
    assert_eq!(outcome.forwarded_methods(), ["eth_getLogs", "eth_getLogs"]);
}

#[test]
fn assembled_response_of_a_former_head_is_sent_with_one_of_final_blocks() {
    let host = Host::new(&[SPLIT]);
    let calls = batch(&[pieces_to_head(88), pieces(0..2)]);
    let outcome = send_batch_during(&host, &calls, PieceReply::Logs, |piece_requests| {
        if piece_requests == 5 {
            add_block(&host, 1_001);
        }
    });
    assert_eq!((outcome.piece_requests, outcome.forwarded), (5, None));
}

#[test]
fn long_responses_are_assembled_by_jobs_after_which_the_batch_is_looked_up_again() {
    // a job assembles more than 8 KiB
    let host = Host::new(&[SPLIT, "comp_level 12"]);
    let calls = batch(&[pieces(0..2), call("eth_chainId"), pieces(2..5)]);
    let outcome = send_batch(&host, &calls, PieceReply::LongLogs);
    assert_eq!((outcome.piece_requests, outcome.jobs), (5, 2));
    assert_eq!(outcome.forwarded_methods(), ["eth_chainId"]);
}

#[test]
fn assembled_responses_of_a_batch_are_together_as_long_as_an_entry_may_be() {
    let host = Host::new(&[SPLIT, "cache_max_entry 20k"]);
    // two pieces have 16 KiB
    let calls = batch(&[pieces(0..2), pieces(2..4)]);
    let outcome = send_batch(&host, &calls, PieceReply::LongLogs);
    assert_eq!(outcome.piece_requests, 4);
    let forwarded = outcome.forwarded.unwrap();
    let expected: Value = serde_json::from_str(&calls).unwrap();
    assert_eq!(
        forwarded.as_array().unwrap()[..],
        expected.as_array().unwrap()[1..]
    );
}

#[test]
fn calls_of_a_batch_beyond_the_limit_of_pieces_are_sent_to_the_node() {
    let host = Host::new(&["logs_split 1 concurrent=32"]);
    // 130 pieces each, of at most 256
    let calls = batch(&[pieces(0..13), pieces(13..26)]);
    let outcome = send_batch(&host, &calls, PieceReply::Logs);
    assert_eq!(outcome.piece_requests, 130);
    assert_eq!(outcome.forwarded.unwrap().as_array().unwrap().len(), 1);
}
