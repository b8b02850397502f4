//! Calls for logs that are split into pieces: the responses of the node after which the route splits
//! no call, or none with the same filter, and the time of a split.

use std::cell::Cell;
use std::sync::Arc;

use serde_json::Value;
use sszip_core::cache::process::wake::{WaitingRequestId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, HostStep, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::{Header, LookupRequest};

use crate::batch_owner::BatchOwner;
use crate::driver_host::{body_to_send, store_sent_response};
use crate::setup::{config_of_process, request_head, response_head, JSON};

pub const PIECE: u64 = 10;

/// Head of the chain, and its last final block.
const HEAD: u64 = 1_000;
const LAST_FINAL: u64 = 900;

const TIMEOUT_MS: u64 = 1_000;

/// Number of pieces of the tests' calls.
const PIECES: usize = 20;

/// Number of pieces that are fetched at a time.
const WAVE: usize = 4;

/// Duration of a pause.
const PAUSE_MS: u64 = 10_000;

/// Time after a fetched piece in which refused filters do not pause the route.
const FETCHED_PIECE_VALIDITY_MS: u64 = 60_000;

/// Multiple of the timeout after which no wait begins.
const MAX_TIMEOUTS: u64 = 6;

const DIRECTIVES: &[&str] = &[
    "cache on",
    "cache_namespace mainnet",
    "cache_lock_timeout 1s",
    "cache_credentials key X-Api-Key",
];

/// The directive of a host whose entries are shorter than [`PieceReply::LongLogs`].
const SHORT_ENTRIES: &str = "cache_max_entry 8k";

/// The response of the node to the request for a piece.
#[derive(Clone, Copy, Debug)]
pub enum PieceReply {
    Logs,
    Status(u16),
    /// Logs that are longer than the longest entry.
    LongLogs,
    /// An error in place of the logs, in a batch that proves the range.
    RefusedLogs,
    /// A body with a coding that was not requested.
    Encoded,
    /// An error in place of the batch.
    Error,
}

/// The way in which a call was answered.
#[derive(Debug, PartialEq)]
struct Outcome {
    is_forwarded: bool,
    piece_requests: usize,
}

/// A call whose first pieces have failed.
const ABANDONED: Outcome = Outcome {
    is_forwarded: true,
    piece_requests: WAVE,
};

/// A call that was not split.
const UNSPLIT: Outcome = Outcome {
    is_forwarded: true,
    piece_requests: 0,
};

/// A call whose response was assembled from pieces of the node.
const ASSEMBLED: Outcome = Outcome {
    is_forwarded: false,
    piece_requests: PIECES,
};

/// A process with one route on a chain, and the node behind it.
pub struct Host {
    pub config: Arc<RouteConfig>,
    waiter: WaitingRequestId,
    now: Cell<u64>,
}

impl Host {
    /// Creates a process whose route has these directives, each a line of its name and its words.
    pub fn new(lines: &[&str]) -> Self {
        let process = ProcessResources::default();
        process.shared.start_hot_tier(1 << 20, 1 << 20, 1);
        let owner = BatchOwner::following_chain("mainnet", HEAD, LAST_FINAL);
        process.shared.set_owner_client(Arc::new(owner));
        let queue = Arc::new(WokenRequestQueue::default());
        let waiter = process.shared.add_event_loop(queue).waiter_of_request(1);
        Self {
            config: config_of_process(process, &[DIRECTIVES, lines].concat()),
            waiter,
            now: Cell::new(1),
        }
    }

    /// Returns the same process for another client, whose requests wait under another id.
    pub fn for_other_client(&self) -> Self {
        Self {
            config: Arc::clone(&self.config),
            waiter: WaitingRequestId {
                id: self.waiter.id + 1,
                ..self.waiter
            },
            now: self.now.clone(),
        }
    }

    /// Sends the call for the logs of all pieces. The node's reply to each piece takes `delay`
    /// milliseconds.
    fn send(&self, api_key: &str, reply: PieceReply, delay: u64) -> Outcome {
        let call = logs_call();
        let mut driver = ExchangeDriver::new(Arc::clone(&self.config));
        let fields = [JSON, (&b"X-Api-Key"[..], api_key.as_bytes())];
        driver
            .handle_request_head(request_head(b"POST", &fields))
            .unwrap();
        let mut piece_requests = 0;
        loop {
            let step = self.look_up(&mut driver, &call);
            let before = piece_requests;
            while let Some(update) = driver.take_background_update() {
                piece_requests += 1;
                self.answer_piece(update, reply);
            }
            if piece_requests > before {
                self.now.set(self.now.get() + delay);
            }
            match step {
                HostStep::Wait => {}
                HostStep::Respond => {
                    let logs = (0..PIECES as u64).map(|piece| log(piece * PIECE));
                    let logs: Vec<_> = logs.collect();
                    let expected = response(7, &format!("[{}]", logs.join(",")));
                    let received = String::from_utf8(body_to_send(&driver)).unwrap();
                    assert_eq!(received, expected);
                    return Outcome {
                        is_forwarded: false,
                        piece_requests,
                    };
                }
                HostStep::Forward => {
                    return Outcome {
                        is_forwarded: true,
                        piece_requests,
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn look_up(&self, driver: &mut ExchangeDriver, call: &str) -> HostStep {
        let length = BodyLength::Known(call.len() as u64);
        if let RequiredBody::Nothing = driver.required_body(length) {
            return HostStep::Forward;
        }
        let lookup = LookupRequest {
            now: self.now.get(),
            coding_allowed: true,
            waiter: Some(self.waiter),
            ..LookupRequest::default()
        };
        let body = RequestBodyAvailability::Whole(call.as_bytes());
        driver.lookup_under_policy(body, lookup).unwrap()
    }

    pub fn answer_piece(&self, mut driver: ExchangeDriver, reply: PieceReply) {
        let exchange = driver.available_exchange().unwrap();
        let request: Value = serde_json::from_slice(exchange.upstream_request_body()).unwrap();
        let body = match reply {
            PieceReply::Status(_) => "denied".to_owned(),
            PieceReply::Error => r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600}}"#.into(),
            PieceReply::Logs
            | PieceReply::Encoded
            | PieceReply::LongLogs
            | PieceReply::RefusedLogs => batch_response(&request, reply),
        };
        let status = match reply {
            PieceReply::Status(status) => status,
            _ => 200,
        };
        let coding: Header<'_> = (b"Content-Encoding", b"br");
        let fields = match reply {
            PieceReply::Encoded => &[JSON, coding][..],
            _ => &[JSON],
        };
        let step = driver
            .handle_response_head(response_head(status, None, fields))
            .unwrap();
        match step {
            HostStep::Observe => {
                driver.handle_body_piece(body.as_bytes()).unwrap();
            }
            HostStep::Pass => {}
            other => panic!("{other:?}"),
        }
        store_sent_response(&mut driver, self.now.get());
    }
}

/// The call for the logs of all pieces.
fn logs_call() -> String {
    let last = PIECES as u64 * PIECE - 1;
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"eth_getLogs","params":[{{"fromBlock":"0x0","toBlock":"0x{last:x}"}}]}}"#
    )
}

fn response(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn log(block: u64) -> String {
    format!(r#"{{"blockNumber":"0x{block:x}"}}"#)
}

/// The logs of a filter, one in each tenth block; `padding` is white space after them.
fn logs(filter: &Value, padding: &str) -> String {
    let number = |end: &Value| {
        let digits = end.as_str()?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let first = number(&filter["fromBlock"]).unwrap();
    let last = number(&filter["toBlock"]).unwrap_or(HEAD);
    let blocks = first.div_ceil(PIECE)..=last / PIECE;
    let logs: Vec<_> = blocks.map(|block| log(block * PIECE)).collect();
    format!("[{}{padding}]", logs.join(","))
}

/// The node's response to a batch, with this reply to its calls for logs.
pub fn batch_response(batch: &Value, reply: PieceReply) -> String {
    let calls = batch.as_array().unwrap().iter().map(|call| {
        let id = call["id"].as_u64().unwrap();
        if call["method"] != "eth_getLogs" {
            return response(id, "\"0x1\"");
        }
        let filter = &call["params"][0];
        match reply {
            PieceReply::RefusedLogs => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32005,"message":"query returned more than 10000 results"}}}}"#
            ),
            PieceReply::LongLogs => response(id, &logs(filter, &" ".repeat(8 << 10))),
            _ => response(id, &logs(filter, "")),
        }
    });
    format!("[{}]", calls.collect::<Vec<_>>().join(","))
}

#[test]
fn route_splits_calls_after_a_refusal_of_a_client_and_not_after_a_failure_of_the_node() {
    for (reply, is_paused) in [
        (PieceReply::Status(401), false),
        (PieceReply::Status(403), false),
        (PieceReply::Status(404), false),
        (PieceReply::Status(407), false),
        (PieceReply::Status(429), false),
        (PieceReply::LongLogs, false),
        (PieceReply::Encoded, false),
        // refusals of the filter
        (PieceReply::RefusedLogs, false),
        (PieceReply::Status(413), false),
        // nodes that reject batches
        (PieceReply::Status(400), true),
        (PieceReply::Status(422), true),
        (PieceReply::Error, true),
        (PieceReply::Status(500), true),
        (PieceReply::Status(503), true),
    ] {
        let host = Host::new(&["logs_split 10 concurrent=4", SHORT_ENTRIES]);
        assert_eq!(host.send("wrong", reply, 0), ABANDONED, "{reply:?}");
        let expected = if is_paused { UNSPLIT } else { ASSEMBLED };
        let other = host.send("right", PieceReply::Logs, 0);
        assert_eq!(other, expected, "after {reply:?}");
    }
}

#[test]
fn calls_with_a_refused_filter_are_not_split_for_ten_seconds() {
    for reply in [PieceReply::RefusedLogs, PieceReply::Status(413)] {
        let host = Host::new(&["logs_split 10 concurrent=4"]);
        assert_eq!(host.send("broad", reply, 0), ABANDONED);
        assert_eq!(host.send("broad", PieceReply::Logs, 0), UNSPLIT);
        assert_eq!(host.send("narrow", PieceReply::Logs, 0), ASSEMBLED);
        assert_eq!(host.send("broad", PieceReply::Logs, 0), UNSPLIT);
        host.now.set(host.now.get() + PAUSE_MS);
        assert_eq!(host.send("broad", PieceReply::Logs, 0), ASSEMBLED);
    }
}

/// The vary keys of the clients differ, and so do the keys of their filters.
#[test]
fn route_splits_no_call_after_the_pieces_of_eight_filters_in_a_row_were_refused() {
    let host = Host::new(&["logs_split 10 concurrent=4"]);
    let refuse = |clients: std::ops::Range<u8>| {
        for client in clients {
            let refused = host.send(&format!("broad-{client}"), PieceReply::RefusedLogs, 0);
            assert_eq!(refused, ABANDONED, "{client}");
        }
    };
    let send = |client| host.send(client, PieceReply::Logs, 0);
    let pass = |duration| host.now.set(host.now.get() + duration);
    refuse(0..8);
    assert_eq!(send("a"), UNSPLIT);
    // half as many refusals show that the node still refuses all pieces
    pass(PAUSE_MS);
    refuse(8..12);
    assert_eq!(send("a"), UNSPLIT);
    pass(PAUSE_MS);
    assert_eq!(send("a"), ASSEMBLED);
    // the node has sent pieces: it refuses only these filters
    refuse(12..28);
    assert_eq!(send("b"), ASSEMBLED);
    pass(FETCHED_PIECE_VALIDITY_MS);
    refuse(28..36);
    assert_eq!(send("c"), UNSPLIT);
}

#[test]
fn split_ends_after_six_timeouts_when_each_wave_ends_just_before_its_timeout() {
    let host = Host::new(&["logs_split 10 concurrent=1"]);
    let start = host.now.get();
    let slow = host.send("key", PieceReply::Logs, TIMEOUT_MS - 1);
    // no wave begins after the sixth timeout
    let waves = (MAX_TIMEOUTS * TIMEOUT_MS).div_ceil(TIMEOUT_MS - 1);
    let expected = Outcome {
        is_forwarded: true,
        piece_requests: usize::try_from(waves).unwrap(),
    };
    assert_eq!(slow, expected);
    assert!(host.now.get() - start <= (MAX_TIMEOUTS + 1) * TIMEOUT_MS);
    // the pieces are stored, and calls are still split
    let fast = host.send("key", PieceReply::Logs, 0);
    let expected = Outcome {
        is_forwarded: false,
        piece_requests: PIECES - slow.piece_requests,
    };
    assert_eq!(fast, expected);
}
