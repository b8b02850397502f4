//! The state of the model: open requests, followers, and the node's responses.

use std::collections::BTreeMap;
use std::sync::Arc;

use sszip_core::cache::process::wake::{EventLoopId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{BodyLength, RequiredBody};
use sszip_core::exchange::{CacheFill, Exchange, LookupAction, LookupRequest, RequestHead};

use super::steps::{Answer, CallSequence, Caller, Outcome, Step, CALLS, IDS};
use crate::setup::config_of_process;

pub struct ModelRequest {
    pub number: usize,
    pub caller: Caller,
    pub calls: Vec<usize>,
    pub ids: Vec<String>,
    pub body: Vec<u8>,
    /// The request body that the node receives.
    pub forwarded: Vec<u8>,
    pub is_batch: bool,
    pub accepts: &'static str,
    pub bypass: bool,
    pub requested_at: u64,
    pub dispatched_at: u64,
    pub exchange: Exchange,
    pub waits: bool,
}

/// The node's responses to each call and caller, with the times of their requests.
pub type NodeResponses = BTreeMap<(usize, Caller), Vec<(u64, String)>>;

pub struct CacheModel {
    pub config: Arc<RouteConfig>,
    pub process: ProcessResources,
    pub woken: Arc<WokenRequestQueue>,
    pub policy: &'static str,
    pub now: u64,
    pub count: usize,
    pub open: Vec<ModelRequest>,
    pub unsent: Vec<(Exchange, Box<CacheFill>)>,
    pub responses: NodeResponses,
    /// Time of the newest stored response that was sent, for browsers and for others.
    pub seen: BTreeMap<(usize, Caller, bool), u64>,
}

impl CacheModel {
    pub fn new(policy: &'static str) -> Self {
        let credentials = format!("cache_credentials {policy}");
        let lines = [
            "cache on",
            "zstd on",
            "min_length 200",
            "hold 1k",
            &credentials,
            "batch_max 4",
        ];
        let process = ProcessResources::default();
        let woken = Arc::new(WokenRequestQueue::default());
        process.shared.add_event_loop(woken.clone());
        process.shared.start_hot_tier(4 << 20, 4 << 20, 1);
        Self {
            config: config_of_process(process.clone(), &lines),
            process,
            woken,
            policy,
            now: 10_000,
            count: 0,
            open: Vec::new(),
            unsent: Vec::new(),
            responses: NodeResponses::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Returns the caller without the properties that the node ignores.
    pub fn distinguished_by_node(&self, caller: Caller) -> Caller {
        Caller {
            user: caller.user.filter(|_| self.policy != "ignore"),
            origin: caller.origin.filter(|_| caller.chain > 0),
            ..caller
        }
    }

    fn request(
        &mut self,
        caller: Caller,
        calls: &CallSequence,
        form: usize,
        accepts: &'static str,
        waits: bool,
        bypass: bool,
    ) {
        let (calls, is_batch) = match calls {
            CallSequence::Single(call) => (vec![*call], false),
            CallSequence::Batch(calls) => (calls.clone(), true),
        };
        let ids: Vec<String> = (0..calls.len())
            .map(|n| IDS[(form / 2 + n) % IDS.len()].into())
            .collect();
        let texts: Vec<String> = calls
            .iter()
            .zip(&ids)
            .map(|(call, id)| {
                let (method, params, _) = CALLS[*call];
                let params = params[form % 2];
                if form.is_multiple_of(2) {
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
                } else {
                    format!(r#" {{ "params": {params},"method":"{method}", "id" : {id},"jsonrpc":"2.0" }}"#)
                }
            })
            .collect();
        let body = if is_batch {
            format!("[{}]", texts.join(" ,"))
        } else {
            texts[0].clone()
        };
        let mut fields: Vec<(&[u8], Vec<u8>)> = vec![
            (b"Content-Type", b"application/json".to_vec()),
            (b"Host", b"here".to_vec()),
        ];
        if !accepts.is_empty() {
            fields.push((b"accept-encoding", accepts.as_bytes().to_vec()));
        }
        if let Some(user) = caller.user {
            fields.push((b"authorization", vec![b'u', user]));
        }
        if let Some(origin) = caller.origin {
            fields.push((b"ORIGIN", vec![b'o', b'0' + origin]));
        }
        let mut exchange = Exchange::new(Arc::clone(&self.config));
        exchange
            .read_request_head(RequestHead {
                method: b"POST",
                target: b"/",
                fields: fields.iter().map(|(name, value)| (*name, &value[..])),
            })
            .unwrap();
        let looks = exchange.required_body(BodyLength::Unknown) != RequiredBody::Nothing;
        assert_eq!(looks, caller.user.is_none() || self.policy != "bypass");
        self.count += 1;
        let mut open = ModelRequest {
            number: self.count,
            caller,
            calls,
            ids,
            forwarded: body.clone().into_bytes(),
            body: body.into_bytes(),
            is_batch,
            accepts,
            bypass,
            requested_at: self.now,
            dispatched_at: self.now,
            exchange,
            waits: false,
        };
        if looks {
            let waiter = waits.then_some(self.count);
            self.look_up_request(open, waiter);
        } else {
            open.dispatched_at = self.now;
            self.open.push(open);
        }
    }

    fn look_up_request(&mut self, mut open: ModelRequest, waiter: Option<usize>) {
        let namespace = format!("chain {}", open.caller.chain);
        let place = open.caller.chain.to_string();
        let found = open
            .exchange
            .lookup_in_cache(LookupRequest {
                namespace: (open.caller.chain != 2).then_some(namespace.as_bytes()),
                place: place.as_bytes(),
                unnamed: false,
                local: false,
                host: b"here",
                port: 8545,
                body: &open.body,
                now: self.now,
                coding_allowed: true,
                whole: false,
                filters: false,
                host_writes_vary: false,
                forwards_codings: false,
                waiter: waiter.map(|id| EventLoopId::default().waiter_of_request(id)),
                bypass: open.bypass,
                no_background_update: false,
            })
            .unwrap();
        open.dispatched_at = self.now;
        match found {
            LookupAction::Respond | LookupAction::RespondOffLoop => {
                if found == LookupAction::RespondOffLoop {
                    open.exchange.run_pending_stages().unwrap();
                }
                let body: Vec<u8> = open.exchange.body_slices().flatten().copied().collect();
                assert!(!open.bypass);
                self.check_hit(&open, body);
            }
            LookupAction::Wait => {
                assert!(waiter.is_some() && !open.waits);
                open.waits = true;
                self.open.push(open);
            }
            LookupAction::Forward => {
                open.waits = false;
                self.open.push(open);
            }
            LookupAction::ForwardRewritten => {
                open.waits = false;
                open.forwarded = open.exchange.upstream_request_body().to_vec();
                self.open.push(open);
            }
            LookupAction::AssembleOffLoop => panic!("no call is split"),
        }
    }

    fn wake_followers(&mut self) {
        while let Some(waiter) = self.woken.next_woken_id() {
            let at = self.open.iter().position(|open| open.number == waiter);
            let open = self.open.remove(at.expect("who is woken is there"));
            assert!(open.waits);
            self.look_up_request(open, None);
        }
    }

    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Request {
                caller,
                calls,
                form,
                accepts,
                waits,
                bypass,
            } => {
                self.request(*caller, calls, *form, accepts, *waits, *bypass);
            }
            Step::Answer(n, how) => self.answer(*n, *how),
            Step::Sent(n) => {
                if !self.unsent.is_empty() {
                    let (_exchange, mut fill) = self.unsent.remove(n % self.unsent.len());
                    fill.build_collected_entries();
                    fill.store_and_publish_entries(self.now);
                }
            }
            Step::Leave(n) => {
                if !self.open.is_empty() {
                    drop(self.open.remove(n % self.open.len()));
                }
            }
            Step::WaitTimeout(n) => {
                let waiting: Vec<usize> = (0..self.open.len())
                    .filter(|n| self.open[*n].waits)
                    .collect();
                if !waiting.is_empty() {
                    let open = self.open.remove(waiting[n % waiting.len()]);
                    self.look_up_request(open, None);
                }
            }
            Step::Pause(milliseconds) => self.now += milliseconds,
        }
        self.wake_followers();
    }

    /// Completes all requests, and checks that no flight and no memory is left.
    pub fn finish(mut self) {
        for _ in 0..10_000 {
            if self.open.is_empty() && self.unsent.is_empty() {
                break;
            }
            let whole = Answer {
                declared: true,
                reversed: false,
                piece: 1 << 20,
                outcome: Outcome::Complete,
            };
            self.apply(&Step::Answer(0, whole));
            self.apply(&Step::Sent(0));
        }
        assert!(self.open.is_empty(), "{} wait for ever", self.open.len());
        assert!(self.process.shared.flights.flight_count() == 0);
        assert_eq!(self.process.budget.reserved_bytes(), 0);
    }
}
