//! A host in memory: what a request needs of it, step by step, as the driver
//! says, and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use sszip_core::cache::process::wake::Waiter;
use sszip_core::config::Config;
use sszip_core::exchange::drive::{BodyLength, Driver, Job, Need, RequestBody, Step};
use sszip_core::exchange::{Asked, RequestHead, ResponseHead};
use sszip_core::mode::Mode;

use super::driven::{sent, through, End};
use super::fields::{bytes, edited, Fields};

/// What a client asks.
pub struct Request {
    pub config: Arc<Config>,
    pub method: String,
    pub target: String,
    pub headers: Fields,
    pub body: Vec<u8>,
    /// A content coding is allowed.
    pub coding_allowed: bool,
    /// Where it is asked.
    pub place: Vec<u8>,
    /// Milliseconds of the look-ups' clock.
    pub now: u64,
    /// What the node answers to a body; `None`: it must not be asked.
    pub at_node: AtNode,
    /// The last purge that holds everywhere.
    pub purged: Arc<AtomicU64>,
}

pub type AtNode = Box<dyn FnOnce(&[u8]) -> Option<Node> + Send>;

/// What a node answers.
pub struct Node {
    pub status: u16,
    pub headers: Fields,
    pub content_length: Option<u64>,
    /// Its body's end is told from a break.
    pub delimited: bool,
    pub body: Vec<u8>,
    /// Where its pieces end.
    pub ends: Vec<usize>,
    pub end: End,
}

/// What the client got, and the node.
pub struct Answer {
    pub status: u16,
    pub fields: Fields,
    pub body: Vec<u8>,
    /// What the node was asked.
    pub forwarded: Option<Vec<u8>>,
    pub upstream: Fields,
    pub mode: Mode,
    /// The last purge that held when it was looked up for the last time.
    pub purged: u64,
}

/// Answers one request at a time to each of its clients.
pub trait Host: Sync {
    fn ask(&self, request: Request) -> Result<Answer, String>;
}

/// A request under way.
pub struct Task {
    driver: Driver,
    request: Request,
    purged: u64,
}

/// What is to be done for it.
pub enum Next {
    /// To wait until it is woken, then [`Task::look_up`].
    Wait,
    /// To run it on another thread, then [`Task::done`].
    Run(Job),
    /// To ask the node with this body, then [`Task::answered`].
    Ask(Vec<u8>),
    /// Nothing more.
    End(Answer),
}

impl Task {
    pub fn new(request: Request) -> Result<Self, String> {
        let mut driver = Driver::new(Arc::clone(&request.config));
        driver
            .request_head(RequestHead {
                method: request.method.as_bytes(),
                target: request.target.as_bytes(),
                fields: bytes(&request.headers),
            })
            .map_err(|problem| problem.to_string())?;
        Ok(Self {
            driver,
            request,
            purged: 0,
        })
    }

    /// What the node says of it, if it is asked.
    pub fn at_node(&mut self) -> AtNode {
        std::mem::replace(&mut self.request.at_node, Box::new(|_| None))
    }

    /// Looks it up, if it is to be; `waiter`: it may wait.
    pub fn look_up(&mut self, waiter: Option<Waiter>) -> Result<Next, String> {
        self.purged = self.request.purged.load(Ordering::SeqCst);
        let length = BodyLength::Known(self.request.body.len() as u64);
        if self.driver.need(length) == Need::Nothing {
            return Ok(Next::Ask(self.request.body.clone()));
        }
        let asked = Asked {
            place: &self.request.place,
            // what changes there changes nothing elsewhere
            host: &self.request.place,
            now: self.request.now,
            coding_allowed: self.request.coding_allowed,
            waiter,
            ..Asked::default()
        };
        let found = self
            .driver
            .look_up(RequestBody::Whole(&self.request.body), asked);
        let found = found.map_err(|problem| problem.to_string())?;
        self.found(found)
    }

    /// The job has run.
    pub fn done(&mut self, job: Job) -> Result<Next, String> {
        let found = self.driver.done(job);
        self.found(found)
    }

    fn found(&mut self, found: Step) -> Result<Next, String> {
        Ok(match found {
            Step::Wait => Next::Wait,
            Step::OffLoop(job) => Next::Run(job),
            Step::Forward => Next::Ask(self.request.body.clone()),
            Step::ForwardRewritten => {
                let exchange = self.driver.exchange().unwrap();
                Next::Ask(exchange.request_body().to_vec())
            }
            Step::Respond => {
                let exchange = self.driver.exchange().unwrap();
                Next::End(Answer {
                    status: exchange.status(),
                    fields: edited(&Fields::new(), exchange.head_edits()),
                    body: sent(&self.driver),
                    forwarded: None,
                    upstream: Fields::new(),
                    mode: exchange.mode(),
                    purged: self.purged,
                })
            }
            other => return Err(format!("a look-up ends with {other:?}")),
        })
    }

    /// The node has answered: what the client gets of that, and what prepares
    /// what is to be stored.
    pub fn answered(
        &mut self,
        forwarded: Vec<u8>,
        node: &Node,
    ) -> Result<(Answer, Option<Job>), String> {
        let driver = &mut self.driver;
        let upstream = edited(
            &self.request.headers,
            driver.exchange().unwrap().upstream_edits(),
        );
        let step = driver
            .response_head(ResponseHead {
                status: node.status,
                content_length: node.content_length,
                fields: bytes(&node.headers),
                delimited: node.delimited,
                unbuffered: false,
                subrequest: false,
                coding_allowed: self.request.coding_allowed,
                host_writes_vary: false,
                now: self.request.now / 1000,
            })
            .map_err(|problem| problem.to_string())?;
        let received = through(driver, step, node.pieces(), node.end);
        let exchange = driver.exchange().unwrap();
        let mode = exchange.mode();
        let whole = |body| {
            let status = match exchange.status() {
                0 => node.status,
                stored => stored,
            };
            let fields = edited(&node.headers, exchange.head_edits());
            (status, fields, body)
        };
        let (status, fields, body) = match received {
            Ok(Some(body)) => whole(body),
            // the host's own answer, with its own head
            Ok(None) => (502, Fields::new(), Vec::new()),
            // broken off: its head is out
            Err(_) if node.end == End::Cut || node.is_short() => whole(Vec::new()),
            Err(problem) => return Err(problem.to_string()),
        };
        let answer = Answer {
            status,
            fields,
            body,
            forwarded: Some(forwarded),
            upstream,
            mode,
            purged: 0,
        };
        Ok((answer, driver.sent(self.request.now)))
    }

    pub fn now(&self) -> u64 {
        self.request.now
    }
}

impl Node {
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.body[*start..*end])
    }

    fn is_short(&self) -> bool {
        let came = self.body.len() as u64;
        self.content_length.is_some_and(|length| length > came)
    }
}

/// One request after the other, on one thread: nobody waits.
pub struct OneByOne;

impl Host for OneByOne {
    fn ask(&self, request: Request) -> Result<Answer, String> {
        let mut task = Task::new(request)?;
        let mut next = task.look_up(None)?;
        loop {
            next = match next {
                Next::Wait => return Err("it waits for nobody".into()),
                Next::Run(mut job) => {
                    job.run();
                    task.done(job)?
                }
                Next::Ask(body) => {
                    let node = task.at_node()(&body).ok_or("the node is asked")?;
                    let (answer, job) = task.answered(body, &node)?;
                    if let Some(mut job) = job {
                        job.run();
                        job.store(task.now());
                    }
                    return Ok(answer);
                }
                Next::End(answer) => return Ok(answer),
            };
        }
    }
}
