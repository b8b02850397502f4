//! A host in memory: it does what the steps of a driver require, and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use sszip_core::cache::process::wake::WaitingRequestId;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, HostStep, OffLoopJob, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::{LookupRequest, RequestHead, ResponseHead};
use sszip_core::response_mode::ResponseMode;

use super::driver_host::{body_to_send, client_body, BodyEnd};
use super::fields::{apply_head_edits, header_bytes, Fields};

/// A client's request to a host in memory, with the route and the node's function.
pub struct HostRequest {
    pub config: Arc<RouteConfig>,
    pub method: String,
    pub target: String,
    pub headers: Fields,
    pub body: Vec<u8>,
    /// Whether a content coding is permitted.
    pub coding_allowed: bool,
    /// Identity of the route.
    pub place: Vec<u8>,
    /// Milliseconds of the look-ups' clock.
    pub now: u64,
    /// The node's response to a body; `None` if no request must reach the node.
    pub at_node: NodeFunction,
    /// Number of the last purge that is in effect everywhere.
    pub purged: Arc<AtomicU64>,
}

/// The function that makes the node's response to a request body; `None` if no request must reach
/// the node.
pub type NodeFunction = Box<dyn FnOnce(&[u8]) -> Option<NodeResponse> + Send>;

/// A response of the simulated node, with its pieces and the way in which it ends.
pub struct NodeResponse {
    pub status: u16,
    pub headers: Fields,
    pub content_length: Option<u64>,
    /// Whether the end of its body is distinct from an abort.
    pub delimited: bool,
    pub body: Vec<u8>,
    /// Positions at which the pieces of the body end.
    pub ends: Vec<usize>,
    pub end: BodyEnd,
}

/// The response that the client received, and the request that reached the node.
pub struct ClientResponse {
    pub status: u16,
    pub fields: Fields,
    pub body: Vec<u8>,
    /// Body that the node received.
    pub forwarded: Option<Vec<u8>>,
    pub upstream: Fields,
    pub mode: ResponseMode,
    /// Number of the last purge that was in effect at the last look-up.
    pub purged: u64,
}

/// A host in memory on which cases and sequences run.
pub trait TestHost: Sync {
    fn request(&self, request: HostRequest) -> Result<ClientResponse, String>;
}

/// A request in flight on a host in memory, with the driver of its exchange.
pub struct RequestTask {
    driver: ExchangeDriver,
    request: HostRequest,
    purged: u64,
}

/// The next action that a host performs for a task.
pub enum NextAction {
    /// Wait for a wakeup, then call [`RequestTask::look_up`].
    Wait,
    /// Run the job on another thread, then call [`RequestTask::done`].
    Run(OffLoopJob),
    /// Send this body to the node, then call [`RequestTask::answered`].
    FetchFromNode(Vec<u8>),
    /// Send the response: the task is complete.
    Respond(ClientResponse),
}

impl RequestTask {
    pub fn new(request: HostRequest) -> Result<Self, String> {
        let mut driver = ExchangeDriver::new(Arc::clone(&request.config));
        driver
            .handle_request_head(RequestHead {
                method: request.method.as_bytes(),
                target: request.target.as_bytes(),
                fields: header_bytes(&request.headers),
            })
            .map_err(|problem| problem.to_string())?;
        Ok(Self {
            driver,
            request,
            purged: 0,
        })
    }

    /// Takes the function that makes the node's response.
    pub fn at_node(&mut self) -> NodeFunction {
        std::mem::replace(&mut self.request.at_node, Box::new(|_| None))
    }

    /// Fetches the response from the node, and stores it, on this thread.
    pub fn fetch_and_store(&mut self, body: Vec<u8>) -> Result<ClientResponse, String> {
        let node = self.at_node()(&body).ok_or("the node receives a request")?;
        let (answer, job) = self.answered(body, &node)?;
        if let Some(mut job) = job {
            job.run_job();
            job.store_built_entry(self.now());
        }
        Ok(answer)
    }

    /// Looks up the request if it can be looked up; with a `waiter`, the request may wait.
    pub fn look_up(&mut self, waiter: Option<WaitingRequestId>) -> Result<NextAction, String> {
        self.purged = self.request.purged.load(Ordering::SeqCst);
        let length = BodyLength::Known(self.request.body.len() as u64);
        if self.driver.required_body(length) == RequiredBody::Nothing {
            return Ok(NextAction::FetchFromNode(self.request.body.clone()));
        }
        let lookup_request = LookupRequest {
            place: &self.request.place,
            // an invalidation on one route does not affect the others
            host: &self.request.place,
            now: self.request.now,
            coding_allowed: self.request.coding_allowed,
            waiter,
            ..LookupRequest::default()
        };
        let found = self.driver.lookup_under_policy(
            RequestBodyAvailability::Whole(&self.request.body),
            lookup_request,
        );
        let found = found.map_err(|problem| problem.to_string())?;
        // nothing runs in the background here: a dropped update wakes the requests that wait for it
        while self.driver.take_background_update().is_some() {}
        self.next_action(found)
    }

    /// Continues after the job has run.
    pub fn done(&mut self, job: OffLoopJob) -> Result<NextAction, String> {
        let found = self.driver.resume_after_job(job);
        self.next_action(found)
    }

    fn next_action(&mut self, found: HostStep) -> Result<NextAction, String> {
        Ok(match found {
            HostStep::Wait => NextAction::Wait,
            HostStep::RunJob(job) => NextAction::Run(job),
            HostStep::Forward => NextAction::FetchFromNode(self.request.body.clone()),
            HostStep::ForwardRewritten => {
                let exchange = self.driver.available_exchange().unwrap();
                NextAction::FetchFromNode(exchange.upstream_request_body().to_vec())
            }
            HostStep::Respond => {
                let exchange = self.driver.available_exchange().unwrap();
                NextAction::Respond(ClientResponse {
                    status: exchange.stored_response_status(),
                    fields: apply_head_edits(&Fields::new(), exchange.head_edits()),
                    body: body_to_send(&self.driver),
                    forwarded: None,
                    upstream: Fields::new(),
                    mode: exchange.response_mode(),
                    purged: self.purged,
                })
            }
            other => return Err(format!("a look-up ends with {other:?}")),
        })
    }

    /// Processes the node's response, and returns the client's, with the job that prepares the
    /// fill.
    pub fn answered(
        &mut self,
        forwarded: Vec<u8>,
        node: &NodeResponse,
    ) -> Result<(ClientResponse, Option<OffLoopJob>), String> {
        let driver = &mut self.driver;
        let upstream = apply_head_edits(
            &self.request.headers,
            driver.available_exchange().unwrap().upstream_edits(),
        );
        let step = driver
            .handle_response_head(ResponseHead {
                status: node.status,
                content_length: node.content_length,
                fields: header_bytes(&node.headers),
                delimited: node.delimited,
                unbuffered: false,
                subrequest: false,
                coding_allowed: self.request.coding_allowed,
                host_writes_vary: false,
                now: self.request.now / 1000,
            })
            .map_err(|problem| problem.to_string())?;
        let received = client_body(driver, step, node.pieces(), node.end);
        let exchange = driver.available_exchange().unwrap();
        let mode = exchange.response_mode();
        let whole = |body| {
            let status = match exchange.stored_response_status() {
                0 => node.status,
                stored => stored,
            };
            let fields = apply_head_edits(&node.headers, exchange.head_edits());
            (status, fields, body)
        };
        let (status, fields, body) = match received {
            Ok(Some(body)) => whole(body),
            // the host's local response, with its own head
            Ok(None) => (502, Fields::new(), Vec::new()),
            // aborted after its head was sent
            Err(_) if node.end == BodyEnd::Cut || node.is_truncated() => whole(Vec::new()),
            Err(problem) => return Err(problem.to_string()),
        };
        let answer = ClientResponse {
            status,
            fields,
            body,
            forwarded: Some(forwarded),
            upstream,
            mode,
            purged: 0,
        };
        Ok((answer, driver.handle_response_sent(self.request.now)))
    }

    pub fn now(&self) -> u64 {
        self.request.now
    }
}

impl NodeResponse {
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.body[*start..*end])
    }

    fn is_truncated(&self) -> bool {
        let received = self.body.len() as u64;
        self.content_length.is_some_and(|length| length > received)
    }
}

/// A host in memory that runs one request at a time, so that none waits.
pub struct SequentialHost;

impl TestHost for SequentialHost {
    fn request(&self, request: HostRequest) -> Result<ClientResponse, String> {
        let mut task = RequestTask::new(request)?;
        let mut next = task.look_up(None)?;
        loop {
            next = match next {
                NextAction::Wait => return Err("it waits for nobody".into()),
                NextAction::Run(mut job) => {
                    job.run_job();
                    task.done(job)?
                }
                NextAction::FetchFromNode(body) => {
                    return task.fetch_and_store(body);
                }
                NextAction::Respond(answer) => return Ok(answer),
            };
        }
    }
}
