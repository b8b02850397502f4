//! Unchecked entries: a long response is stored before its strict check, and a later client
//! receives either the node's response or a new one.

use std::sync::Arc;

use sszip_core::cache::process::wake::{EventLoopId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::{
    BodyEndAction, BodyPieceAction, Exchange, LookupAction, LookupRequest, ResponseHeadAction,
};

use crate::setup::{body, config_of_process, posted, response_head, JSON};
use crate::support::gunzip;

/// Lengths beyond the limit of an immediate check, and beyond the limit of a check on an event
/// loop.
const LENGTHS: [usize; 2] = [20_000, 400_000];

struct Host {
    config: Arc<RouteConfig>,
    process: ProcessResources,
}

impl Host {
    fn new() -> Self {
        let process = ProcessResources::default();
        process.shared.start_hot_tier(32 << 20, 32 << 20, 1);
        let config = config_of_process(process.clone(), &["cache on"]);
        Self { config, process }
    }

    fn entries(&self) -> usize {
        self.process.shared.hot_tier().unwrap().entry_count()
    }

    fn look_up(&self, body: &str, gzip: bool, waiter: Option<usize>) -> (Exchange, LookupAction) {
        let coding: &[u8] = if gzip { b"gzip" } else { b"identity" };
        let mut exchange = posted(&self.config, &[JSON, (b"Accept-Encoding", coding)]);
        let found = look_up_again(&mut exchange, body, waiter);
        (exchange, found)
    }

    /// Sends the node's response to its client, and stores it.
    fn answered(&self, mut exchange: Exchange, answer: &[u8]) {
        let action = exchange
            .evaluate_response_head(response_head(200, Some(answer.len() as u64), &[JSON]))
            .unwrap();
        match action {
            ResponseHeadAction::Buffer => {
                assert_eq!(
                    exchange.buffer_body_piece(answer).unwrap(),
                    BodyPieceAction::Buffered
                );
                assert!(matches!(
                    exchange.complete_buffered_body().unwrap(),
                    BodyEndAction::Code { .. }
                ));
                exchange.run_pending_stages().unwrap();
                assert!(sent(&exchange) == answer);
            }
            ResponseHeadAction::Tee => exchange.observe_passed_piece(answer).unwrap(),
            other => panic!("{other:?}"),
        }
        if let Some(mut fill) = exchange.take_complete_fill() {
            fill.build_collected_entries();
            fill.store_and_publish_entries(1000);
        }
    }

    /// Returns the stored response; `None` if it may not be sent.
    fn hit(&self, body: &str, gzip: bool) -> Option<Vec<u8>> {
        let (mut exchange, found) = self.look_up(body, gzip, None);
        match found {
            LookupAction::Respond => {}
            LookupAction::RespondOffLoop => exchange.run_pending_stages().unwrap(),
            _ => return None,
        }
        (exchange.stored_response_status() == 200).then(|| sent(&exchange))
    }
}

fn look_up_again(exchange: &mut Exchange, body: &str, waiter: Option<usize>) -> LookupAction {
    exchange
        .lookup_in_cache(LookupRequest {
            namespace: Some(b"chain"),
            body: body.as_bytes(),
            now: 1000,
            coding_allowed: true,
            waiter: waiter.map(|id| EventLoopId::default().waiter_of_request(id)),
            ..LookupRequest::default()
        })
        .unwrap()
}

fn sent(exchange: &Exchange) -> Vec<u8> {
    let body = body(exchange);
    let mut edits = exchange.head_edits().iter();
    let length = body.len().to_string().into_bytes();
    assert!(exchange
        .head_edits()
        .iter()
        .any(|edit| edit.name == "Content-Length" && edit.value.as_deref() == Some(&length[..])));
    match edits.any(|edit| edit.name == "Content-Encoding" && edit.value.is_some()) {
        true => gunzip(&body).unwrap(),
        false => body,
    }
}

fn request(id: &str) -> String {
    let hash = "ab".repeat(32);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBlockByHash","params":["0x{hash}",true]}}"#
    )
}

fn long(length: usize) -> String {
    let mut text = String::from("[");
    for n in 0.. {
        if text.len() >= length {
            break;
        }
        text.push_str(&format!("\"{:x}\",", n * 0x9e37_79b9_u64));
    }
    text + "{}]"
}

/// Responses as nodes write them, under an id.
const FORMS: [fn(&str, &str) -> String; 4] = [
    |id, result| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
    |id, result| format!(r#"{{"id":{id},"jsonrpc":"2.0","result":{result}}}"#) + "\n",
    |id, result| format!(r#"{{"jsonrpc":"2.0","result":{result},"id":{id}}}"#),
    // an unusual notation, checked before it is stored
    |id, result| format!(r#"{{"jsonrpc":"2.0", "id":{id},"result":{result}}}"#),
];

#[test]
fn unchecked_valid_response_is_a_hit_under_any_id() {
    for length in LENGTHS {
        let result = long(length);
        for form in FORMS {
            for gzip in [true, false] {
                let host = Host::new();
                let (exchange, found) = host.look_up(&request("1"), gzip, None);
                assert_eq!(found, LookupAction::Forward);
                host.answered(exchange, form("1", &result).as_bytes());
                for (id, gzip) in [("\"a\"", true), ("22", false), ("null", true), ("3", false)] {
                    let hit = host.hit(&request(id), gzip).expect("a hit");
                    assert!(hit == form(id, &result).into_bytes(), "{length} {id}");
                }
            }
        }
    }
}

#[test]
fn long_entry_is_checked_once_and_off_the_event_loop() {
    let length_and_first_action = [
        (LENGTHS[0], LookupAction::Respond),
        (LENGTHS[1], LookupAction::RespondOffLoop),
    ];
    for (length, expected) in length_and_first_action {
        let host = Host::new();
        let (exchange, _) = host.look_up(&request("1"), true, None);
        host.answered(exchange, FORMS[0]("1", &long(length)).as_bytes());
        let (mut exchange, found) = host.look_up(&request("2"), true, None);
        assert_eq!(found, expected, "{length}");
        if found == LookupAction::RespondOffLoop {
            exchange.run_pending_stages().unwrap();
        }
        // a client that accepts the entry's coding needs no thread for a checked one
        let (_, found) = host.look_up(&request("3"), true, None);
        assert_eq!(found, LookupAction::Respond, "{length}");
    }
}

/// Returns invalid bodies that begin and end like a response.
fn invalid_responses(length: usize) -> Vec<Vec<u8>> {
    let good = long(length);
    let before = r#"{"jsonrpc":"2.0","id":1,"result":"#;
    let mut bodies: Vec<Vec<u8>> = [
        // another member after the result
        format!(r#"{before}{good},"error":{{}}}}"#),
        format!(r#"{before}{good},"id":2,"x":[]}}"#),
        format!(r#"{before}{good},"result":{good}}}"#),
        format!(r#"{before}{good},"extra":"x"}}"#),
        // no value, or several
        format!("{before}[{good}}}]}}"),
        format!("{before}{good}{good}}}"),
        format!("{before}[01,{good}]}}"),
        format!("{before}[\"\n\",{good}]}}"),
        format!("{before}[\"\\x\",{good}]}}"),
        format!("{before}[\"\\ud800\",{good}]}}"),
        format!("{before}{good}}}{before}{good}}}"),
        format!(
            "{before}{}{}}}",
            "[".repeat(600),
            "]".repeat(600) + &" ".repeat(length) + "]"
        ),
        // the id or the version twice
        format!(r#"{{"jsonrpc":"2.0","result":{good},"id":2,"id":1}}"#),
        format!(r#"{{"jsonrpc":"2.0","result":{good},"jsonrpc":"2.0","id":1}}"#),
        format!(r#"{{"id":1,"jsonrpc":"2.0","result":{good},"id":"1"}}"#),
    ]
    .map(String::into_bytes)
    .into();
    // invalid UTF-8
    bodies.push([before.as_bytes(), b"[\"\xFF\",", good.as_bytes(), b"]}"].concat());
    bodies
}

#[test]
fn invalid_response_is_never_sent_to_another_client() {
    for length in LENGTHS {
        for (n, answer) in invalid_responses(length).iter().enumerate() {
            for gzip in [true, false] {
                let host = Host::new();
                let (exchange, _) = host.look_up(&request("1"), gzip, None);
                // its own client receives it unchanged
                host.answered(exchange, answer);
                assert_eq!(host.hit(&request("2"), gzip), None, "{n}");
                assert_eq!(host.entries(), 0, "{n}");
                // it does not prevent a valid response from being stored
                let (exchange, found) = host.look_up(&request("1"), gzip, None);
                assert_eq!(found, LookupAction::Forward);
                let good = FORMS[0]("1", &long(length));
                host.answered(exchange, good.as_bytes());
                assert!(host.hit(&request("1"), gzip) == Some(good.into_bytes()));
            }
        }
    }
}

#[test]
fn invalid_response_is_never_sent_to_a_follower() {
    for length in LENGTHS {
        for answer in invalid_responses(length) {
            let host = Host::new();
            let woken = Arc::new(WokenRequestQueue::default());
            host.process.shared.add_event_loop(woken.clone());
            let (leader, found) = host.look_up(&request("1"), true, Some(1));
            assert_eq!(found, LookupAction::Forward);
            let (mut follower, found) = host.look_up(&request("2"), true, Some(2));
            assert_eq!(found, LookupAction::Wait);
            host.answered(leader, &answer);
            assert_eq!(woken.next_woken_id(), Some(2));
            match look_up_again(&mut follower, &request("2"), None) {
                LookupAction::Forward => {}
                LookupAction::RespondOffLoop => {
                    follower.run_pending_stages().unwrap();
                    assert_eq!(follower.stored_response_status(), 0);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn invalid_response_is_never_sent_in_a_batch() {
    let batch = |ids: [&str; 2]| format!("[{},{}]", request(ids[0]), request(ids[1]));
    for answer in invalid_responses(LENGTHS[0]) {
        let host = Host::new();
        let (exchange, _) = host.look_up(&request("1"), true, None);
        host.answered(exchange, &answer);
        assert_eq!(
            host.look_up(&batch(["2", "3"]), true, None).1,
            LookupAction::Forward
        );
        assert_eq!(host.entries(), 0);
    }
    for answer in invalid_responses(LENGTHS[1]) {
        let host = Host::new();
        let (exchange, _) = host.look_up(&request("1"), true, None);
        host.answered(exchange, &answer);
        let (mut exchange, found) = host.look_up(&batch(["2", "3"]), true, None);
        if found == LookupAction::RespondOffLoop {
            exchange.run_pending_stages().unwrap();
            assert_eq!(exchange.stored_response_status(), 0);
        } else {
            assert_eq!(found, LookupAction::Forward);
        }
        assert_eq!(host.entries(), 0);
    }
    // valid entries are checked for a batch too, off the event loop if that takes long
    for (length, expected) in [
        (LENGTHS[0], LookupAction::Respond),
        (LENGTHS[1], LookupAction::RespondOffLoop),
    ] {
        let host = Host::new();
        let result = long(length);
        let (exchange, _) = host.look_up(&request("1"), true, None);
        host.answered(exchange, FORMS[0]("1", &result).as_bytes());
        let (mut exchange, found) = host.look_up(&batch(["2", "3"]), true, None);
        assert_eq!(found, expected);
        assert_eq!(host.entries(), 1);
        if found == LookupAction::RespondOffLoop {
            exchange.run_pending_stages().unwrap();
            assert_eq!(exchange.stored_response_status(), 200);
        }
        let answers = ["2", "3"].map(|id| FORMS[0](id, &result));
        assert!(sent(&exchange) == format!("[{}]", answers.join(",")).into_bytes());
        assert!(host.hit(&request("4"), true).is_some());
        assert_eq!(
            host.look_up(&batch(["2", "3"]), true, None).1,
            LookupAction::Respond
        );
    }
}
