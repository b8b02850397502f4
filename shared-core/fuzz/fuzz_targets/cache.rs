//! The cache as a host drives it: look-ups, fills, followers and aborts in any order, compared
//! with a model that is the set of the node's responses.
//!
//! Each result of the node names its chain, its call and a number of its own. No client receives
//! a result of another chain or call, nor one that was truncated, uncacheable, an error or stale;
//! each client receives its own ids, and all of its responses. Each follower is woken, and at the
//! end no flight is open and no memory is reserved.
#![no_main]

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use arbitrary::Arbitrary;
use flate2::read::GzDecoder;
use libfuzzer_sys::fuzz_target;
use serde::Deserialize;
use sszip_core::cache::process::wake::{EventLoopId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, HostStep as Do, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::{LookupRequest, RequestHead, ResponseHead};

#[path = "../../tests/support/driver_host.rs"]
mod driver_host;
use driver_host::{body_to_send, client_body, run_job, store_sent_response, BodyEnd};

/// Number of the first call that depends on the tip. Its responses are fresh for `TIP_VALID`
/// milliseconds.
const TIP: u8 = 4;
const CALLS: u8 = 6;
const TIP_VALID: u64 = 1000;

#[derive(Arbitrary, Debug)]
enum HostStep<'a> {
    Request(RequestPlan),
    /// A request with an arbitrary body.
    RequestAnyBody(&'a [u8]),
    /// The node responds to one of its requests.
    Answer(u8, ResponsePlan),
    /// The whole response has been sent to its client.
    Sent(u8),
    /// A client aborts its request.
    Leave(u8),
    /// A follower reaches its lock timeout.
    WaitTimeout(u8),
    Pause(u16),
}

#[derive(Arbitrary, Clone, Debug)]
struct RequestPlan {
    other_chain: bool,
    first: u8,
    /// Further calls, which make the request a batch.
    rest: Vec<u8>,
    id: u8,
    same_ids: bool,
    gzip: bool,
    waits: bool,
    bypass: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct ResponsePlan {
    declared: bool,
    reversed: bool,
    long: bool,
    piece: u8,
    outcome: Outcome,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Whole,
    /// Complete, and not to be stored.
    Refused,
    /// Errors in place of results.
    Error,
    /// Complete by its length, and not JSON.
    Broken,
    Cut,
}

#[derive(Deserialize)]
struct CallResponse {
    id: u32,
    /// Chain, call, number, and filler.
    result: Option<(bool, u8, u64, String)>,
}

#[derive(Deserialize)]
struct ForwardedCall {
    id: u32,
    params: Vec<String>,
}

struct OpenRequest {
    number: usize,
    plan: RequestPlan,
    calls: Vec<(u32, u8)>,
    body: Vec<u8>,
    forwarded: Vec<u8>,
    driver: ExchangeDriver,
    requested_at: u64,
    waits: bool,
}

struct CacheModel {
    process: ProcessResources,
    woken: Arc<WokenRequestQueue>,
    config: Arc<RouteConfig>,
    now: u64,
    count: usize,
    open: Vec<OpenRequest>,
    unsent: Vec<ExchangeDriver>,
    /// Responses that may be sent for each chain and call, with the times of their requests.
    responses: HashMap<(bool, u8), HashMap<u64, u64>>,
}

fuzz_target!(|steps: Vec<HostStep>| {
    let mut world = CacheModel::new();
    for step in steps.iter().take(200) {
        world.apply(step);
        world.wake();
    }
    world.respond_to_all_requests();
});

impl CacheModel {
    fn new() -> Self {
        let mut directives = RouteConfigBlock::default();
        for (name, values) in [
            ("enable", &[&b"on"[..]][..]),
            ("cache", &[b"on"]),
            ("min_length", &[b"200"]),
            ("cache_valid", &[b"tip", b"1s"]),
        ] {
            directives.set_directive(name, values).unwrap();
        }
        let process = ProcessResources::default();
        let woken = Arc::new(WokenRequestQueue::default());
        process.shared.add_event_loop(woken.clone());
        // capacity for a few entries: some are evicted
        process.shared.start_hot_tier(30_000, 30_000, 1);
        Self {
            config: Arc::new(directives.resolve_route_config(process.clone())),
            process,
            woken,
            now: 10_000,
            count: 0,
            open: Vec::new(),
            unsent: Vec::new(),
            responses: HashMap::new(),
        }
    }

    fn apply(&mut self, step: &HostStep) {
        let of = |n: u8, length: usize| usize::from(n) % length.max(1);
        match step {
            HostStep::Request(plan) => self.send(plan),
            HostStep::RequestAnyBody(body) => {
                let mut driver = self.started_request(true);
                let found = driver.lookup_under_policy(
                    RequestBodyAvailability::Whole(body),
                    self.lookup_request(false, None, false),
                );
                // an entry can be requested in many notations, but only in JSON
                if let Do::Respond = found.unwrap() {
                    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok());
                }
            }
            HostStep::Answer(n, how) => {
                let at_node: Vec<usize> = (0..self.open.len())
                    .filter(|n| !self.open[*n].waits)
                    .collect();
                if !at_node.is_empty() {
                    let open = self.open.remove(at_node[of(*n, at_node.len())]);
                    self.answer(open, *how);
                }
            }
            HostStep::Sent(n) => {
                if !self.unsent.is_empty() {
                    let mut driver = self.unsent.remove(of(*n, self.unsent.len()));
                    store_sent_response(&mut driver, self.now);
                }
            }
            HostStep::Leave(n) => {
                if !self.open.is_empty() {
                    drop(self.open.remove(of(*n, self.open.len())));
                }
            }
            HostStep::WaitTimeout(n) => {
                let waiting: Vec<usize> = (0..self.open.len())
                    .filter(|n| self.open[*n].waits)
                    .collect();
                if !waiting.is_empty() {
                    let open = self.open.remove(waiting[of(*n, waiting.len())]);
                    self.look_up(open, None);
                }
            }
            HostStep::Pause(milliseconds) => self.now += u64::from(*milliseconds),
        }
    }

    fn started_request(&self, gzip: bool) -> ExchangeDriver {
        let mut fields = vec![(&b"Content-Type"[..], &b"application/json"[..])];
        if gzip {
            fields.push((b"Accept-Encoding", b"gzip"));
        }
        let mut driver = ExchangeDriver::new(Arc::clone(&self.config));
        driver
            .handle_request_head(RequestHead {
                method: b"POST",
                target: b"/",
                fields: fields.into_iter(),
            })
            .unwrap();
        assert_eq!(
            driver.required_body(BodyLength::Unknown),
            RequiredBody::Body
        );
        driver
    }

    fn lookup_request(
        &self,
        other_chain: bool,
        waiter: Option<usize>,
        bypass: bool,
    ) -> LookupRequest<'static> {
        LookupRequest {
            namespace: Some(if other_chain { b"1" } else { b"0" }),
            now: self.now,
            coding_allowed: true,
            waiter: waiter.map(|id| EventLoopId::default().waiter_of_request(id)),
            bypass,
            ..LookupRequest::default()
        }
    }

    fn send(&mut self, plan: &RequestPlan) {
        let first = std::iter::once(&plan.first);
        let calls: Vec<(u32, u8)> = (0..)
            .zip(first.chain(plan.rest.iter().take(8)))
            .map(|(n, call)| {
                let id = u32::from(plan.id) + if plan.same_ids { 0 } else { n };
                (id, call % CALLS)
            })
            .collect();
        let texts: Vec<String> = calls
            .iter()
            .map(|(id, call)| call_text(*id, *call))
            .collect();
        let body = match plan.rest.is_empty() {
            true => texts[0].clone(),
            false => format!("[{}]", texts.join(",")),
        }
        .into_bytes();
        self.count += 1;
        let open = OpenRequest {
            number: self.count,
            plan: plan.clone(),
            calls,
            forwarded: body.clone(),
            body,
            driver: self.started_request(plan.gzip),
            requested_at: self.now,
            waits: false,
        };
        let waiter = plan.waits.then_some(open.number);
        self.look_up(open, waiter);
    }

    fn look_up(&mut self, mut open: OpenRequest, waiter: Option<usize>) {
        let request = self.lookup_request(open.plan.other_chain, waiter, open.plan.bypass);
        let found = open
            .driver
            .lookup_under_policy(RequestBodyAvailability::Whole(&open.body), request)
            .unwrap();
        let waits = matches!(found, Do::Wait);
        let waited = std::mem::replace(&mut open.waits, waits);
        // the response of a flight may be as old as the wait was long
        let oldest = if waited { 0 } else { self.now };
        match run_job(&mut open.driver, found) {
            Do::Respond => {
                let exchange = open.driver.available_exchange().expect("no job has it");
                assert_eq!(exchange.stored_response_status(), 200);
                self.assert_client_response(&open, &body_to_send(&open.driver), oldest);
            }
            Do::Wait => {
                assert!(waiter.is_some());
                self.open.push(open);
            }
            found => {
                if let Do::ForwardRewritten = found {
                    let exchange = open.driver.available_exchange().expect("no job has it");
                    open.forwarded = exchange.upstream_request_body().to_vec();
                }
                open.requested_at = self.now;
                self.open.push(open);
            }
        }
    }

    /// Checks that the client received the node's response to it, or to another client with the
    /// same call; stored responses were fresh at `oldest`.
    fn assert_client_response(&self, open: &OpenRequest, body: &[u8], oldest: u64) {
        let body = match body {
            [0x1F, 0x8B, ..] => {
                assert!(open.plan.gzip);
                let mut plain = Vec::new();
                GzDecoder::new(body).read_to_end(&mut plain).unwrap();
                plain
            }
            _ => body.to_vec(),
        };
        let answers: Vec<CallResponse> = if open.plan.rest.is_empty() {
            vec![serde_json::from_slice(&body).unwrap()]
        } else {
            serde_json::from_slice(&body).unwrap()
        };
        let of = |answer: &CallResponse| {
            let (chain, call, number, _) = answer.result.as_ref().expect("a result");
            assert_eq!(*chain, open.plan.other_chain, "of another chain");
            let requested_at = self
                .responses
                .get(&(*chain, *call))
                .and_then(|times| times.get(number));
            let requested_at = requested_at.expect("the node did not say that for others");
            assert!(*call < TIP || oldest < requested_at + TIP_VALID, "stale");
            (answer.id, *call)
        };
        let mut found: Vec<(u32, u8)> = answers.iter().map(of).collect();
        let mut wanted = open.calls.clone();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    }

    /// Returns the node's response to the forwarded request, and records whether other clients
    /// may receive it.
    fn node_response(&mut self, open: &OpenRequest, how: ResponsePlan) -> String {
        let calls: Vec<ForwardedCall> = match open.forwarded[0] {
            b'[' => serde_json::from_slice(&open.forwarded).unwrap(),
            _ => vec![serde_json::from_slice(&open.forwarded).unwrap()],
        };
        let chain = open.plan.other_chain;
        let mut answers: Vec<String> = Vec::new();
        for ForwardedCall { id, params } in calls {
            self.count += 1;
            let number = self.count as u64;
            let call = params[0].as_bytes()[2] - b'0';
            let filler = "x".repeat(if how.long { 3000 } else { 3 });
            let result = format!(r#"[{chain},{call},{number},"{filler}"]"#);
            answers.push(match how.outcome {
                Outcome::Error => {
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"data":{result}}}}}"#)
                }
                _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
            });
            if how.outcome == Outcome::Whole {
                let times = self.responses.entry((chain, call)).or_default();
                times.insert(number, open.requested_at);
            }
        }
        if how.reversed {
            answers.reverse();
        }
        match open.forwarded[0] {
            b'[' => format!("[{}]", answers.join(",")),
            _ => answers.remove(0),
        }
    }

    fn answer(&mut self, mut open: OpenRequest, how: ResponsePlan) {
        let mut body = self.node_response(&open, how).into_bytes();
        if how.outcome == Outcome::Broken {
            body.truncate(body.len() / 2);
        }
        let mut fields = vec![(&b"Content-Type"[..], &b"application/json"[..])];
        if how.outcome == Outcome::Refused {
            fields.push((b"Set-Cookie", b"a=b"));
        }
        let cut = how.outcome == Outcome::Cut;
        let step = open
            .driver
            .handle_response_head(ResponseHead {
                status: 200,
                content_length: how.declared.then_some(body.len() as u64),
                fields: fields.into_iter(),
                delimited: true,
                unbuffered: false,
                subrequest: false,
                coding_allowed: true,
                host_writes_vary: false,
                now: 0,
            })
            .unwrap();
        let arriving = if cut {
            &body[..body.len() / 2]
        } else {
            &body[..]
        };
        let end = if cut { BodyEnd::Cut } else { BodyEnd::Whole };
        let pieces = arriving.chunks(usize::from(how.piece) + 1);
        let received = client_body(&mut open.driver, step, pieces, end).unwrap();
        let Some(received) = received else {
            // truncated before any byte was sent
            assert!(cut, "an answer is lost");
            return;
        };
        if cut {
            // the client detects the truncation; no part of the response may be stored
            return;
        }
        if how.outcome == Outcome::Whole {
            self.assert_client_response(&open, &received, self.now.min(open.requested_at));
        }
        self.unsent.push(open.driver);
    }

    fn wake(&mut self) {
        while let Some(waiter) = self.woken.next_woken_id() {
            let at = self.open.iter().position(|open| open.number == waiter);
            let open = self.open.remove(at.expect("who is woken is there"));
            assert!(open.waits);
            self.look_up(open, None);
        }
    }

    /// Responds to all requests at the node, and checks that none is left.
    fn respond_to_all_requests(mut self) {
        let how = ResponsePlan {
            declared: true,
            reversed: false,
            long: false,
            piece: 255,
            outcome: Outcome::Whole,
        };
        loop {
            self.publish_all();
            let Some(at) = self.open.iter().position(|open| !open.waits) else {
                break;
            };
            let open = self.open.remove(at);
            self.answer(open, how);
        }
        assert!(self.open.is_empty(), "some wait for ever");
        assert!(self.process.shared.flights.flight_count() == 0);
        assert_eq!(self.process.budget.reserved_bytes(), 0);
    }

    fn publish_all(&mut self) {
        while !self.unsent.is_empty() {
            self.apply(&HostStep::Sent(0));
            self.wake();
        }
        self.wake();
    }
}

/// Text of a call, whose first parameter contains its number.
fn call_text(id: u32, call: u8) -> String {
    if call < TIP {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBlockByHash","params":["0x{call}{:063x}"]}}"#,
            7
        )
    } else {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBalance","params":["0x{call}{:039x}","latest"]}}"#,
            7
        )
    }
}
