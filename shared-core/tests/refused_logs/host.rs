//! A host in memory with one route, whose allocations are refused on demand.

use std::sync::Arc;

use sszip_core::allocator::faulty::{
    remaining_allocations, run_with_refused_allocations, RefusedAllocationCounts,
};
use sszip_core::cache::process::derived_logs::REQUIRED_EQUAL_RESPONSES;
use sszip_core::cache::process::wake::{WaitingRequestId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::reason::Reason;
use sszip_core::config::{RouteConfig, RouteConfigBlock};
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, ExchangeFailureReason, HostStep, RequestBodyAvailability,
    RequiredBody,
};
use sszip_core::exchange::{Header, LookupRequest, RequestHead, ResponseHead};
use sszip_core::memory;

use crate::batch_owner::BatchOwner;
use crate::node::{logs_of_block, receipts_of_block, Node};

const JSON: [Header<'static>; 1] = [(b"Content-Type", b"application/json")];

/// Last final block of the chain.
const LAST_FINAL: u64 = 900;

/// Maximum number of lookups of one call: the first one, one after the owner's reply, one after each
/// wave of pieces, and as many again.
const MAX_LOOKUPS: usize = 8;

/// Length of the pieces of a body in bytes.
const BODY_PIECE: usize = 16 << 10;

/// The allocations that are refused during the steps of a call.
pub struct Refusals {
    /// Minimum length in bytes of refused allocations.
    min_length: usize,
    /// Number of allocations of this length that succeed before the first refusal.
    passed: usize,
    /// Whether memory is short while a job runs.
    has_short_jobs: bool,
    pub counts: RefusedAllocationCounts,
}

impl Refusals {
    pub fn new(min_length: usize, passed: usize) -> Self {
        Self {
            min_length,
            passed,
            has_short_jobs: false,
            counts: RefusedAllocationCounts::default(),
        }
    }

    /// Refuses no allocation; memory is short while a job runs.
    pub fn for_short_jobs() -> Self {
        Self {
            has_short_jobs: true,
            ..Self::none()
        }
    }

    pub fn none() -> Self {
        Self::new(usize::MAX, 0)
    }

    /// Runs one step; the count of passed allocations continues with the next one.
    fn run_step<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let (min_length, passed) = (self.min_length, self.passed);
        let ((done, left), counts) = run_with_refused_allocations(min_length, passed, || {
            let done = step();
            (done, remaining_allocations())
        });
        self.passed = left;
        self.counts += counts;
        done
    }
}

/// The response that a client has received, and the requests that the node has received for it.
#[derive(Debug)]
pub struct ClientResponse {
    pub body: String,
    /// Whether the exchange has failed, without a body.
    pub is_failed: bool,
    /// Whether the client's own call was sent to the node.
    pub is_forwarded: bool,
    /// Number of requests for pieces.
    pub piece_requests: usize,
    /// Reason why the response did not come from the cache.
    pub reason: Reason,
}

/// A process with one route and the node behind it.
pub struct Host<'n> {
    pub config: Arc<RouteConfig>,
    node: &'n Node,
    waiter: WaitingRequestId,
}

impl<'n> Host<'n> {
    /// Creates a process whose route has these directives, each a line of its name and its words.
    pub fn new(node: &'n Node, lines: &[&str]) -> Self {
        sszip_core::exchange::initialize_process_globals();
        let process = ProcessResources::default();
        let shared = &process.shared;
        shared.start_hot_tier(64 << 20, 64 << 20, 1);
        let owner = BatchOwner::following_chain("mainnet", LAST_FINAL + 100, LAST_FINAL);
        shared.set_owner_client(Arc::new(owner));
        let queue = Arc::new(WokenRequestQueue::default());
        let waiter = shared.add_event_loop(queue).waiter_of_request(1);
        let mut directives = RouteConfigBlock::default();
        let own = ["enable on", "cache on", "cache_namespace mainnet"];
        for line in own.iter().chain(lines) {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
            directives.set_directive(name, &values).unwrap();
        }
        Self {
            config: Arc::new(directives.resolve_route_config(process)),
            node,
            waiter,
        }
    }

    /// Creates a process that derives logs, and has the receipts of a block.
    pub fn for_derivation(node: &'n Node, block: u64, lines: &[&str]) -> Self {
        let host = Self::new(node, &[&["logs_from_receipts on"][..], lines].concat());
        for compared in 1..=u64::from(REQUIRED_EQUAL_RESPONSES) {
            host.fetch(&receipts_of_block(compared));
            host.fetch(&logs_of_block(compared));
        }
        host.fetch(&receipts_of_block(block));
        host
    }

    /// Sends a call that is forwarded to the node.
    fn fetch(&self, call: &str) {
        let response = self.send(call, &mut Refusals::none());
        assert!(response.is_forwarded, "{call}");
    }

    /// Sends a call, with `refusals` in all steps of its exchange and of its background requests.
    pub fn send(&self, call: &str, refusals: &mut Refusals) -> ClientResponse {
        let mut driver = ExchangeDriver::new(Arc::clone(&self.config));
        let head = RequestHead {
            method: b"POST",
            target: b"/",
            fields: JSON.into_iter(),
        };
        let started = self.run_step(refusals, || driver.handle_request_head(head));
        started.unwrap();
        let (mut lookups, mut piece_requests) = (0, 0);
        let mut step = HostStep::Wait;
        loop {
            step = match step {
                HostStep::Wait => {
                    lookups += 1;
                    assert!(
                        lookups <= MAX_LOOKUPS,
                        "the call waits for no request: {call}"
                    );
                    self.run_step(refusals, || self.look_up(&mut driver, call))
                }
                HostStep::RunJob(mut job) => {
                    let was_short = memory::is_memory_short();
                    memory::set_memory_short(was_short || refusals.has_short_jobs);
                    let done = self.run_step(refusals, || {
                        job.run_job();
                        driver.resume_after_job(job)
                    });
                    if refusals.has_short_jobs {
                        memory::set_memory_short(was_short);
                    }
                    done
                }
                _ => break,
            };
            while let Some(update) = self.run_step(refusals, || driver.take_background_update()) {
                piece_requests += 1;
                self.answer_background_request(update, refusals);
            }
        }
        let reason = driver.available_exchange().unwrap().cache_reason();
        let (body, is_forwarded) = match step {
            HostStep::Respond => (Some(body_to_send(&mut driver)), false),
            HostStep::Forward => {
                let body = self.node.respond(call.as_bytes());
                (self.deliver(&mut driver, body.as_bytes(), refusals), true)
            }
            // the batch of one call was looked up as a split one
            HostStep::ForwardRewritten => {
                let exchange = driver.available_exchange().unwrap();
                let body = self.node.respond(exchange.upstream_request_body());
                (self.deliver(&mut driver, body.as_bytes(), refusals), true)
            }
            other => panic!("{other:?}"),
        };
        self.run_step(refusals, || drop(driver));
        ClientResponse {
            is_failed: body.is_none(),
            body: String::from_utf8(body.unwrap_or_default()).unwrap(),
            is_forwarded,
            piece_requests,
            reason,
        }
    }

    /// Takes the numbers of splits that were assembled and abandoned since the last call.
    pub fn take_split_counts(&self) -> [u64; 2] {
        let splits = &self.config.process.shared.log_splits;
        splits.take_event_counts().unwrap_or_default()
    }

    /// Number of entries of the hot tier.
    pub fn entry_count(&self) -> usize {
        self.config.process.shared.hot_tier().unwrap().entry_count()
    }

    fn look_up(&self, driver: &mut ExchangeDriver, call: &str) -> HostStep {
        let body = call.as_bytes();
        if let RequiredBody::Nothing = driver.required_body(BodyLength::Known(body.len() as u64)) {
            return HostStep::Forward;
        }
        let lookup = LookupRequest {
            now: 1,
            coding_allowed: true,
            waiter: Some(self.waiter),
            ..LookupRequest::default()
        };
        let body = RequestBodyAvailability::Whole(body);
        driver.lookup_under_policy(body, lookup).unwrap()
    }

    /// Delivers the node's response to a request for a piece.
    fn answer_background_request(&self, mut driver: ExchangeDriver, refusals: &mut Refusals) {
        let exchange = driver.available_exchange().unwrap();
        let body = self.node.respond(exchange.upstream_request_body());
        self.deliver(&mut driver, body.as_bytes(), refusals);
        self.run_step(refusals, || drop(driver));
    }

    /// Delivers the node's response, and stores its entries. Returns the client's response; `None`
    /// if it fails.
    fn deliver(
        &self,
        driver: &mut ExchangeDriver,
        body: &[u8],
        refusals: &mut Refusals,
    ) -> Option<Vec<u8>> {
        let head = ResponseHead {
            status: 200,
            content_length: Some(body.len() as u64),
            fields: JSON.into_iter(),
            delimited: true,
            unbuffered: false,
            subrequest: false,
            coding_allowed: true,
            host_writes_vary: false,
            now: 0,
        };
        let step = self.run_step(refusals, || driver.handle_response_head(head));
        let mut state = step.unwrap();
        let mut sent = Vec::new();
        for piece in body.chunks(BODY_PIECE) {
            if !matches!(state, HostStep::Pass) {
                let step = self.run_step(refusals, || driver.handle_body_piece(piece));
                if let HostStep::SendThenPass = step.unwrap() {
                    sent = body_to_send(driver);
                    state = HostStep::Pass;
                }
            }
            if let HostStep::Pass | HostStep::Observe = state {
                sent.extend_from_slice(piece);
            }
        }
        match state {
            HostStep::Pass | HostStep::Observe => {}
            HostStep::Buffer => {
                let mut step = self.run_step(refusals, || driver.handle_body_end());
                if let Ok(HostStep::RunJob(mut job)) = step {
                    step = self.run_step(refusals, || {
                        job.run_job();
                        Ok(driver.resume_after_job(job))
                    });
                }
                // a merged response is not sent without memory for it
                if let Ok(HostStep::Fail(ExchangeFailureReason::Memory)) = step {
                    return None;
                }
                assert!(matches!(step, Ok(HostStep::Send)), "{step:?}");
                sent = body_to_send(driver);
            }
            other => panic!("{other:?}"),
        }
        self.run_step(refusals, || {
            if let Some(mut job) = driver.handle_response_sent(1) {
                job.run_job();
                job.store_built_entry(1);
            }
        });
        Some(sent)
    }

    /// Runs a step of an exchange. No entry is stored while memory is short.
    fn run_step<T>(&self, refusals: &mut Refusals, step: impl FnOnce() -> T) -> T {
        let stored = memory::is_memory_short().then(|| self.entry_count());
        let done = refusals.run_step(step);
        assert!(stored.is_none_or(|stored| self.entry_count() <= stored));
        done
    }

    /// Asserts that no reservation beyond `reserved` bytes, no flight and no waiting request is left.
    pub fn assert_idle(&self, reserved: usize) {
        let process = &self.config.process;
        assert_eq!(process.budget.reserved_bytes(), reserved);
        let flights = &process.shared.flights;
        assert_eq!(
            (flights.flight_count(), flights.total_waiter_count()),
            (0, 0)
        );
    }
}

/// Returns the body that the host sends.
fn body_to_send(driver: &mut ExchangeDriver) -> Vec<u8> {
    let exchange = driver.available_exchange().unwrap();
    exchange.body_slices().flatten().copied().collect()
}
