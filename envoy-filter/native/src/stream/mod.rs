//! A stream: what Envoy says of it goes to the core's driver, and what that says is
//! done. Nothing is decided here.
//!
//! What Envoy calls back for at once (an answer of ours, a stream that goes on) is
//! an [`Act`], done once nothing of the stream is in use.

mod pipelined;
mod purge;
mod redirect;
mod request;
pub mod response;
mod sending;
mod streaming;
mod telling;

use std::cell::Cell;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use sszip_core::cache::stale::Failure;
use sszip_core::exchange::drive::{BodyLength, Driver, Job, Lack, Step};
use sszip_core::exchange::HeadEdit;
use sszip_core::variable::Variable;

use self::sending::Sending;
use crate::abi::{BodyType, HeaderType};
use crate::background::{OfStream, OnItsWay};
use crate::envoy::{Head, Scheduler, Stream};
use crate::metrics::Metrics;
use crate::wakes::{Waiting, WOKEN};
use crate::{clock, pool, status, timers};

/// What is done once nothing of the stream is in use: Envoy may end it meanwhile.
pub enum Act {
    /// It goes on.
    Continue,
    /// It waits, for more of it or for something else to happen.
    Stop,
    /// The request's body is kept by Envoy until it is complete.
    Keep,
    /// The driver's answer, in place of a request to the node.
    Respond(Box<Driver>),
    /// The rest of it.
    GoOn(Sending),
    /// A 502, since there is nothing to send.
    Fail(Lack),
    /// What was begun is broken off.
    Reset(&'static str),
}

/// What comes of it.
pub enum Outcome {
    /// The stream goes on.
    Continue,
    /// It waits.
    Wait,
    /// It waits with what is kept of the request's body.
    Keep,
    /// An answer of ours was begun, and what is left of it waits for the client; or the
    /// stream was broken off.
    Ended(Option<Sending>),
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is nothing to be done for it.
    Passing,
    /// The request's body is awaited.
    Reading,
    /// A job has the request.
    Asking,
    /// What it asks for is fetched by another one.
    Waiting,
    /// What it purges is purged.
    Purging,
    /// The owner of the store is asked how it goes.
    Telling,
    /// The driver's answer waits for the one before to be sent.
    Answering,
    /// The response's head is awaited.
    Forwarded,
    /// The response's body is shown, and goes on.
    Showing,
    /// The response's head is held, and the body is the driver's.
    Holding,
    /// A job has the response.
    Coding,
    /// The response's body goes through the encoder.
    Streaming,
}

/// A deadline has come; the rest of the event is its number.
const TIMER: u64 = 1 << 62;
/// A job has run.
const DONE: u64 = 1 << 61;
/// An answer of ours need not wait any more.
const ANSWER: u64 = 1 << 57;
/// The client has caught up.
const CAUGHT_UP: u64 = 1 << 58;
/// What was left for trailers.
const TRAILERS: u64 = 1 << 60;

/// The exchange of a stream.
pub struct Exchange {
    state: State,
    driver: Option<Driver>,
    /// The length of the request's body, as its head announces it.
    announced: BodyLength,
    /// The number of the client's connection, on which an answer may wait to be sent.
    connection: u64,
    follows_unsent: bool,
    /// Made when it is first needed.
    scheduler: Option<Arc<Scheduler>>,
    /// Of the last deadline.
    timer: u64,
    /// It counts, and has not come.
    is_timed: bool,
    /// Where the job comes back to.
    place: pool::Place,
    /// By which it is woken.
    waiting: Option<Waiting>,
    /// What the encoder has written, and was not sent.
    written: Vec<u8>,
    /// The answer is one of Envoy's own: the node has failed like this.
    local_reply: Option<Failure>,
    /// What waits for the client, of an answer of ours.
    sending: Option<Sending>,
    /// The node has sent trailers, and so all of its answer.
    has_trailers: bool,
    /// Where the request came from when it came, if that was a redirect that Envoy has
    /// followed by itself.
    redirected_from: Option<Vec<u8>>,
    /// When it began, if that counts.
    since: Option<Instant>,
    /// Where it is counted.
    metrics: Option<Arc<Metrics>>,
    /// What its client has sent in the fields that the node gets otherwise.
    own_fields: Vec<HeadEdit>,
    /// Which makes requests of our own, if one may be wanted.
    background: Option<OfStream>,
    /// From which is learnt how requests can be made anew.
    on_its_way: Option<OnItsWay>,
}

impl Exchange {
    /// Of a stream that begins.
    pub fn new() -> Self {
        let (driver, own_fields) = redirect::begun();
        Self {
            state: State::Passing,
            announced: BodyLength::Unknown,
            driver,
            connection: 0,
            follows_unsent: false,
            scheduler: None,
            timer: 0,
            is_timed: false,
            place: pool::Place::default(),
            waiting: None,
            written: Vec::new(),
            local_reply: None,
            sending: None,
            has_trailers: false,
            redirected_from: None,
            background: None,
            on_its_way: None,
            metrics: None,
            since: status::is_counted().then(Instant::now),
            own_fields,
        }
    }

    /// Where it is counted.
    pub fn counts_to(&mut self, metrics: &Arc<Metrics>) {
        self.metrics = Some(Arc::clone(metrics));
    }

    /// No more comes of the answer: what there is to say of it, for logs and metrics.
    fn report(&mut self, stream: Stream) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        note(stream, Some(driver));
        self.count(stream);
    }

    fn count(&mut self, stream: Stream) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        status::tally(driver, self.since, |tally| {
            if let Some(metrics) = &self.metrics {
                metrics.count(stream, tally);
            }
        });
    }

    /// The stream is about to end: if there was more to come of it, its client has gone.
    pub fn complete(&mut self, stream: Stream) {
        if self.driver.is_none() || self.goes_on_elsewhere(stream) {
            return;
        }
        let own = std::mem::take(&mut self.own_fields);
        stream.edit(HeaderType::Request, &own);
        match self.state {
            State::Purging => self.purge_is_left(stream),
            _ => self.report(stream),
        }
    }

    /// The driver can't be asked any more.
    fn give_up(&mut self) -> Act {
        self.state = State::Passing;
        self.forget();
        Act::Continue
    }

    /// Envoy is about to answer by itself.
    pub fn local_reply(&mut self, stream: Stream, failure: Failure) {
        self.local_reply = Some(failure);
        if let (State::Holding | State::Streaming, Some(driver)) = (self.state, &mut self.driver) {
            // the node has gone; there is nothing to be done about it
            let _ = driver.cut_short();
            self.state = State::Passing;
            self.report(stream);
        }
    }

    /// What is waited for is of the request, not of the response.
    pub fn is_request(&self) -> bool {
        matches!(
            self.state,
            State::Asking | State::Waiting | State::Purging | State::Telling | State::Answering
        )
    }

    /// The answer is complete. What still comes of the request is not awaited by
    /// anybody, and must not have Envoy think that the stream goes on.
    fn is_answered(&self) -> bool {
        matches!(self.state, State::Coding | State::Answering) || self.has_trailers
    }

    /// Something that this has asked to be told. Unless it `can_go_on` Envoy does not let
    /// it: more has to come of it first.
    pub fn scheduled(&mut self, stream: Stream, event: u64, can_go_on: bool) -> Act {
        match event {
            DONE => self.done(stream),
            WOKEN => self.woken(stream),
            ANSWER if self.state == State::Answering => self.answered(),
            CAUGHT_UP => self.sending.take().map_or(Act::Stop, Act::GoOn),
            TRAILERS => self.ends_by_trailers(stream),
            timer if self.is_timed && timer == self.timer => {
                self.is_timed = false;
                match can_go_on {
                    true => self.due(stream),
                    false => Act::Stop,
                }
            }
            _ => Act::Stop,
        }
    }

    fn done(&mut self, stream: Stream) -> Act {
        let job = self
            .place
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (Some(job), Some(driver)) = (job, &mut self.driver) else {
            return Act::Stop;
        };
        let step = driver.done(job);
        match self.state {
            State::Asking => self.looked_up(stream, step),
            State::Coding => self.ended(stream, step, BodyType::BufferedResponse),
            _ => Act::Stop,
        }
    }

    /// A deadline has come: what was held, or what the encoder keeps, goes on.
    fn due(&mut self, stream: Stream) -> Act {
        let into = BodyType::BufferedResponse;
        match self.state {
            State::Holding => match self.driver.as_mut().map(Driver::release) {
                Some(Ok(Step::Await)) => Act::Stop,
                Some(Ok(Step::SendThenPass)) => {
                    self.edit_head(stream);
                    self.append_body(stream, into);
                    self.becomes(State::Showing);
                    Act::Continue
                }
                Some(Ok(Step::Stream)) => {
                    self.edit_head(stream);
                    self.becomes(State::Streaming);
                    self.flush(stream)
                }
                Some(Ok(step)) => self.fail(stream, &step),
                _ => Act::Reset("sszip: a held body could not be released"),
            },
            State::Streaming => self.flush(stream),
            State::Waiting | State::Purging | State::Telling => self.woken(stream),
            _ => Act::Stop,
        }
    }

    /// Its deadline, unless one counts already: that of a held body counts from its
    /// first byte, and that of a stream from the first that was not sent.
    fn set_timer(&mut self, stream: Stream) {
        let due = self.driver.as_ref().and_then(Driver::next_timer);
        if let (Some(ms), false) = (due, self.is_timed) {
            self.timer = TIMER | (self.timer + 1) & (TIMER - 1);
            let timer = self.timer;
            self.is_timed = timers::set(self.scheduler(stream), timer, ms);
        }
    }

    /// No deadline of the state before counts any more.
    fn becomes(&mut self, state: State) {
        self.state = state;
        self.is_timed = false;
    }

    fn scheduler(&mut self, stream: Stream) -> &Arc<Scheduler> {
        self.scheduler.get_or_insert_with(|| stream.scheduler())
    }

    fn run(&mut self, stream: Stream, job: Job) {
        let place = Arc::clone(&self.place);
        pool::run(job, &place, self.scheduler(stream), DONE);
    }

    fn fail(&mut self, stream: Stream, step: &Step) -> Act {
        self.state = State::Passing;
        self.report(stream);
        match step {
            Step::Fail(lack) => Act::Fail(*lack),
            _ => Act::Reset("sszip: nothing is known to be done"),
        }
    }

    /// All of the answer is with Envoy, if that is so.
    fn ends(&mut self, stream: Stream, is_last: bool) {
        if !is_last {
            return;
        }
        self.state = State::Passing;
        if let Some(driver) = &mut self.driver {
            if let Some(job) = driver.sent(clock::monotonic()) {
                pool::run_alone(job);
            }
        }
        pool::log_lines();
        self.report(stream);
        // Envoy has a copy, and its client may be slow
        self.forget();
    }

    fn forget(&mut self) {
        if let Some(job) = self.driver.as_mut().and_then(Driver::last_job) {
            pool::run_alone(job);
        }
        self.driver = None;
    }

    /// The client has caught up. What waits for it goes on soon: Envoy is about to tell
    /// others of it, and must not find the stream at its end.
    pub fn caught_up(&mut self, stream: Stream) {
        if self.sending.is_some() {
            self.scheduler(stream).commit(CAUGHT_UP);
        }
    }

    /// The client is behind.
    pub fn wait_for_client(&mut self, sending: Sending) {
        self.sending = Some(sending);
    }

    /// The stream has ended.
    pub fn leave(&mut self) {
        self.waiting = None;
        self.sending = None;
        self.forget();
        if let Some(scheduler) = &self.scheduler {
            scheduler.close();
        }
    }
}

impl Act {
    /// Nothing of the stream is in use; what comes of it. `is_behind`: the client is.
    pub fn perform(self, stream: Stream, is_behind: &Cell<bool>) -> Outcome {
        match self {
            Act::Continue => return Outcome::Continue,
            Act::Stop => return Outcome::Wait,
            Act::Keep => return Outcome::Keep,
            Act::Respond(driver) => {
                let sending = Sending::begin(driver, stream);
                return Outcome::Ended(sending.go_on(stream, is_behind));
            }
            Act::GoOn(sending) => return Outcome::Ended(sending.go_on(stream, is_behind)),
            Act::Fail(lack) => stream.reply(502, "", lack.name()),
            Act::Reset(why) => stream.reset(why),
        }
        Outcome::Ended(None)
    }
}

/// What access logs show.
fn note(stream: Stream, driver: Option<&Driver>) {
    let exchange = driver.and_then(Driver::exchange);
    let said = Variable::ALL.map(|variable| {
        let name = variable.name();
        let name = name.strip_prefix("sszip_").unwrap_or(name);
        (name, variable.text(exchange))
    });
    let said = said.iter();
    stream.note(said.filter_map(|(name, text)| Some((*name, text.as_deref()?))));
}

fn length(head: &Head) -> Option<u64> {
    head.get("content-length").and_then(number)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
