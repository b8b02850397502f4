//! The exchanges of a world: clients' requests, requests in the background, and jobs.

use std::sync::Arc;

use serde_json::value::RawValue;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, HostStep, OffLoopJob, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::{Header, LookupRequest, RequestHead, ResponseHead};
use sszip_core::request_coding::SupportedContentCoding;

use super::check::{ResponseCheck, ResponseSource};
use super::client_calls::{ClientCalls, LogCall};
use super::driver_host::{body_to_send, client_body, BodyEnd};
use super::nodes::NodeReply;
use super::owner_network::KnownChain;
use super::support::gunzip;
use super::unzstd::unzstd;
use super::world::LogWorld;

/// The event for which a client's request waits.
pub enum RequestState {
    Waiting { until: Option<u64> },
    Job(OffLoopJob),
    AtNode(Vec<u8>),
}

/// A client's request in flight.
pub struct ClientRequest {
    number: usize,
    process: usize,
    event_loop: usize,
    calls: ClientCalls,
    driver: ExchangeDriver,
    state: RequestState,
    /// The chain as the process knew it before the lookup.
    known: KnownChain,
    /// Number of heads that the process had known before.
    former_heads: usize,
}

/// A request that a process sends to a node in the background.
pub struct BackgroundRequest {
    driver: ExchangeDriver,
    body: Vec<u8>,
}

impl LogWorld {
    /// Sends a client's request to a process.
    pub fn send_request(&mut self, process: usize, calls: ClientCalls) {
        self.sent += 1;
        let to = &self.processes[process];
        let mut driver = ExchangeDriver::new(Arc::clone(&to.config));
        let coding = match self.random.number_below(3) {
            0 => &b"gzip"[..],
            1 => &b"zstd"[..],
            _ => &b"identity"[..],
        };
        let fields: [Header<'_>; 2] = [
            (&b"Content-Type"[..], &b"application/json"[..]),
            (&b"Accept-Encoding"[..], coding),
        ];
        let head = RequestHead {
            method: b"POST",
            target: b"/",
            fields: fields.iter().copied(),
        };
        driver.handle_request_head(head).unwrap();
        let request = ClientRequest {
            number: self.sent as usize,
            process,
            event_loop: self.random.index(to.event_loop_count()),
            calls,
            driver,
            state: RequestState::Waiting { until: None },
            known: to.known.clone(),
            former_heads: to.known_heads.len() - 1,
        };
        self.look_up(request);
    }

    fn look_up(&mut self, mut request: ClientRequest) {
        let process = &self.processes[request.process];
        let lookup = LookupRequest {
            place: b"node",
            host: b"node",
            now: self.now,
            coding_allowed: true,
            waiter: Some(process.waiter_of_request(request.event_loop, request.number)),
            ..LookupRequest::default()
        };
        let body = &request.calls.body;
        let step = match request
            .driver
            .required_body(BodyLength::Known(body.len() as u64))
        {
            RequiredBody::Nothing => HostStep::Forward,
            _ => {
                let body = RequestBodyAvailability::Whole(body);
                request.driver.lookup_under_policy(body, lookup).unwrap()
            }
        };
        self.perform_step(request, step);
    }

    /// Performs the step of a lookup, after the start of its background requests.
    fn perform_step(&mut self, mut request: ClientRequest, step: HostStep) {
        while let Some(driver) = request.driver.take_background_update() {
            if self.drops_background_requests {
                continue;
            }
            let exchange = driver.available_exchange().unwrap();
            let body = match exchange.upstream_request_body() {
                [] => request.calls.body.clone(),
                own => own.to_vec(),
            };
            self.counts.piece_requests += u64::from(body.starts_with(b"["));
            self.background.push(BackgroundRequest { driver, body });
        }
        request.state = match step {
            HostStep::Wait => match request.driver.next_timeout_ms() {
                // a job has assembled the response to a call of a batch
                Some(0) => return self.look_up(request),
                wait => RequestState::Waiting {
                    until: wait.map(|wait| self.now + wait),
                },
            },
            HostStep::RunJob(job) => RequestState::Job(job),
            HostStep::Forward => RequestState::AtNode(request.calls.body.clone()),
            HostStep::ForwardRewritten => {
                let exchange = request.driver.available_exchange().unwrap();
                RequestState::AtNode(exchange.upstream_request_body().to_vec())
            }
            HostStep::Respond => return self.check_stored_response(&request),
            other => panic!("a lookup ends with {other:?}"),
        };
        self.requests.push(request);
    }

    /// Continues a random request whose event has occurred.
    pub fn continue_request(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.random.index(self.requests.len());
        let mut request = self.requests.swap_remove(at);
        let state = RequestState::Waiting { until: None };
        match std::mem::replace(&mut request.state, state) {
            RequestState::Waiting { until } if until.is_some_and(|until| until <= self.now) => {
                self.counts.timeouts += 1;
                self.look_up(request);
            }
            waiting @ RequestState::Waiting { .. } => {
                request.state = waiting;
                self.requests.push(request);
            }
            RequestState::Job(mut job) => {
                job.run_job();
                let step = request.driver.resume_after_job(job);
                self.perform_step(request, step);
            }
            RequestState::AtNode(body) => self.answer_request(request, &body),
        }
    }

    pub fn resume_woken_request(&mut self) {
        let process = self.random.index(self.processes.len());
        let event_loop = self
            .random
            .index(self.processes[process].event_loop_count());
        let Some(number) = self.processes[process].next_woken_request(event_loop) else {
            return;
        };
        let is_waiting = |request: &ClientRequest| {
            request.number == number && matches!(request.state, RequestState::Waiting { .. })
        };
        // it may have left, or resumed after its timeout
        if let Some(at) = self.requests.iter().position(is_waiting) {
            let request = self.requests.swap_remove(at);
            self.look_up(request);
        }
    }

    pub fn abort_request(&mut self) {
        if !self.requests.is_empty() {
            let at = self.random.index(self.requests.len());
            let mut request = self.requests.swap_remove(at);
            if let RequestState::Job(mut job) = request.state {
                if job.runs_without_client() {
                    job.run_job();
                    drop(request.driver.resume_after_job(job));
                }
            }
            self.counts.aborted += 1;
        }
    }

    /// Returns the response of a random node to a body.
    fn respond(&mut self, body: &[u8]) -> NodeReply {
        let at = self.random.index(self.nodes.len());
        self.nodes[at].respond(body, self.step, &mut self.record, &mut self.random)
    }

    /// Delivers a node's response to a driver, and returns the body that a client receives; `None`
    /// if the response is aborted.
    fn deliver(&mut self, driver: &mut ExchangeDriver, reply: &NodeReply) -> Option<Vec<u8>> {
        let fields: [Header<'_>; 1] = [(&b"Content-Type"[..], &b"application/json"[..])];
        let head = ResponseHead {
            status: reply.status,
            content_length: reply.content_length,
            fields: fields.iter().copied(),
            delimited: reply.delimited,
            unbuffered: false,
            subrequest: false,
            coding_allowed: true,
            host_writes_vary: false,
            now: self.now / 1_000,
        };
        let step = driver.handle_response_head(head).unwrap();
        let length = 1 + self.random.index(reply.body.len() + 1);
        let body = client_body(driver, step, reply.body.chunks(length), reply.end);
        if reply.end == BodyEnd::Cut {
            return None;
        }
        self.jobs.extend(driver.handle_response_sent(self.now));
        body.unwrap()
    }

    /// A node responds to a client's request, which receives the response unchanged, or merged with
    /// the responses to the other calls of its batch.
    fn answer_request(&mut self, mut request: ClientRequest, body: &[u8]) {
        let reply = self.respond(body);
        match self.deliver(&mut request.driver, &reply) {
            Some(received) => {
                let received = decode(&request.driver, received);
                match body == request.calls.body {
                    true => assert_eq!(received, reply.body, "{}", self.describe(&request)),
                    false => self.check_batch_response(&request, &received, Some(&reply)),
                }
                self.counts.forwarded += 1;
            }
            None => self.counts.aborted += 1,
        }
    }

    /// A node responds to a request in the background, or closes the connection.
    pub fn answer_background_request(&mut self) {
        if self.background.is_empty() {
            return;
        }
        let at = self.random.index(self.background.len());
        let mut request = self.background.swap_remove(at);
        let reply = self.respond(&request.body);
        self.deliver(&mut request.driver, &reply);
    }

    pub fn run_job(&mut self) {
        if !self.jobs.is_empty() {
            let at = self.random.index(self.jobs.len());
            let mut job = self.jobs.swap_remove(at);
            job.run_job();
            job.store_built_entry(self.now);
        }
    }

    /// Checks the response that a client receives from the cache.
    fn check_stored_response(&mut self, request: &ClientRequest) {
        let body = decode(&request.driver, body_to_send(&request.driver));
        if request.calls.is_batch {
            return self.check_batch_response(request, &body, None);
        }
        let text = std::str::from_utf8(&body).unwrap().trim_end();
        self.check_call_response(request, &request.calls.all[0], text);
    }

    /// Checks the responses to the calls of a batch, in the order of the calls. Some of them are from
    /// the cache, and the others in the `reply` of a node, or errors in place of them.
    fn check_batch_response(
        &mut self,
        request: &ClientRequest,
        body: &[u8],
        reply: Option<&NodeReply>,
    ) {
        let responses: Vec<&RawValue> = serde_json::from_slice(body).unwrap();
        let calls = &request.calls.all;
        assert_eq!(responses.len(), calls.len(), "{}", self.describe(request));
        let of_node = reply.map(|reply| String::from_utf8_lossy(&reply.body));
        let of_node = of_node.as_deref().unwrap_or("[]");
        let is_array = serde_json::from_str::<Vec<&RawValue>>(of_node).is_ok();
        for (call, response) in calls.iter().zip(responses) {
            let text = response.get();
            let error = format!("{}\"error\":", response_head(call));
            let is_replaced = !is_array && text.starts_with(&error);
            if !is_replaced && !of_node.contains(text) {
                self.check_call_response(request, call, text);
            }
        }
    }

    /// Checks the response to one call from the cache.
    fn check_call_response(&mut self, request: &ClientRequest, call: &LogCall, text: &str) {
        let member = text
            .strip_prefix(&*response_head(call))
            .and_then(|rest| rest.strip_suffix('}'));
        let heads = &self.processes[request.process].known_heads[request.former_heads..];
        let check = ResponseCheck {
            chain: &self.chain,
            record: &self.record,
            known: &request.known,
            lowest_head: heads.iter().copied().min().unwrap(),
            piece: self.piece,
        };
        let source = member.and_then(|member| check.source_of_member(call, member));
        let Some(source) = source else {
            panic!("{}: a wrong response: {text}", self.describe(request));
        };
        let count = match source {
            ResponseSource::Whole => &mut self.counts.whole,
            ResponseSource::Receipts => &mut self.counts.selected,
            ResponseSource::Assembled { has_rest: true } => &mut self.counts.assembled,
            ResponseSource::Assembled { has_rest: false } => {
                &mut self.counts.assembled_without_rest
            }
        };
        *count += 1;
        if let (true, ResponseSource::Assembled { .. }) = (request.calls.is_batch, source) {
            self.counts.assembled_in_batches += 1;
        }
        self.last_member = member.unwrap_or_default().to_owned();
    }

    fn describe(&self, request: &ClientRequest) -> String {
        let kinds: Vec<_> = self.nodes.iter().map(|node| node.kind).collect();
        format!(
            "step {}, request {} ({}), nodes {kinds:?}, pieces of {}, head {}, final {}",
            self.step,
            request.number,
            String::from_utf8_lossy(&request.calls.body),
            self.piece,
            self.chain.view.head(),
            self.chain.last_final,
        )
    }
}

/// Returns the members of the response to a call before its result.
fn response_head(call: &LogCall) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"#, call.id)
}

/// Returns a body without the coding of the exchange.
fn decode(driver: &ExchangeDriver, body: Vec<u8>) -> Vec<u8> {
    match driver.available_exchange().unwrap().response_coding() {
        Some(SupportedContentCoding::Gzip) => gunzip(&body).unwrap(),
        Some(SupportedContentCoding::Zstd) => unzstd(&body).unwrap(),
        None => body,
    }
}
