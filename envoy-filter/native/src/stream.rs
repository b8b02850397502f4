//! A stream: what Envoy says of it goes to the core's driver, and what that says is
//! done. Nothing is decided here.
//!
//! What Envoy calls back for at once (an answer of ours, a stream that goes on) is
//! an [`Act`], done once nothing of the stream is in use.

use std::sync::{Arc, PoisonError};

use sszip_core::cache::stale::Failure;
use sszip_core::config::Config;
use sszip_core::exchange::drive::{BodyLength, Driver, Job, Need, Step};
use sszip_core::exchange::{Asked, Field, RequestHead, ResponseHead};
use sszip_core::gzip::stream::Flush;
use sszip_core::variable::Variable;

use crate::abi::{BodyType, HeaderType};
use crate::envoy::{Head, Pieces, Scheduler, Stream};
use crate::wakes::{Waiting, WOKEN};
use crate::{clock, pool, timers};

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
    /// A 502, since there is nothing to send.
    Fail(&'static str),
    /// What was begun is broken off.
    Reset(&'static str),
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is nothing to be done for it.
    Passing,
    /// The request's body is awaited; all of it is wanted, in whatever form.
    Reading { whole: bool },
    /// A job has the request.
    Asking,
    /// What it asks for is fetched by another one.
    Waiting,
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
/// What was left for trailers.
const TRAILERS: u64 = 1 << 60;

/// What is sent at once of a stream. So much is flushed together: what that takes is
/// then of no account.
const SENT_AT_ONCE: usize = 16 << 10;

/// The exchange of a stream.
pub struct Exchange {
    state: State,
    driver: Option<Driver>,
    /// Made when it is first needed.
    scheduler: Option<Arc<Scheduler>>,
    /// Of the deadline that counts.
    timer: u64,
    /// Where the job comes back to.
    place: pool::Place,
    /// By which it is woken.
    waiting: Option<Waiting>,
    /// What the encoder has written, and was not sent.
    written: Vec<u8>,
    /// The answer is one of Envoy's own: the node has failed like this.
    local_reply: Option<Failure>,
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            state: State::Passing,
            driver: None,
            scheduler: None,
            timer: 0,
            place: pool::Place::default(),
            waiting: None,
            written: Vec::new(),
            local_reply: None,
        }
    }
}

impl Exchange {
    /// The request's head.
    pub fn request_head(&mut self, stream: Stream, config: Arc<Config>, is_all: bool) -> Act {
        if !config.enable {
            note(stream, None);
            return Act::Continue;
        }
        let head = stream.head(HeaderType::Request);
        let host = head.get(":authority").map(|host| (&b"host"[..], host));
        let mut driver = Driver::new(config);
        let said = driver.request_head(RequestHead {
            method: head.get(":method").unwrap_or_default(),
            target: head.get(":path").unwrap_or_default(),
            fields: host.into_iter().chain(head.plain()),
        });
        if said.is_err() {
            return Act::Continue;
        }
        let length = match (is_all, length(&head)) {
            (true, _) => BodyLength::Known(0),
            (_, Some(length)) => BodyLength::Known(length),
            _ => BodyLength::Unknown,
        };
        let need = driver.need(length);
        self.driver = Some(driver);
        match need {
            Need::Nothing => self.forward(stream),
            Need::LookUp => self.look_up(stream, Some(b"")),
            Need::Body | Need::WholeBody if is_all => self.look_up(stream, Some(b"")),
            Need::Body | Need::WholeBody => {
                if let BodyLength::Known(length) = length {
                    // it was not too long for the driver
                    stream.raise_buffer_limit(length);
                }
                self.state = State::Reading {
                    whole: need == Need::WholeBody,
                };
                Act::Stop
            }
        }
    }

    /// A piece of the request's body, after those that Envoy keeps.
    pub fn request_body(&mut self, stream: Stream, is_last: bool) -> Act {
        let State::Reading { whole } = self.state else {
            return match self.state {
                // it comes once the request goes on
                State::Asking | State::Waiting => Act::Keep,
                _ => Act::Continue,
            };
        };
        let kept = stream.pieces(BodyType::BufferedRequest);
        let came = stream.pieces(BodyType::ReceivedRequest);
        let length = (kept.len() + came.len()) as u64;
        if !is_last {
            if length <= stream.buffer_limit() {
                return Act::Keep;
            }
            if whole {
                // no length was given, and the driver wants all of it
                stream.raise_buffer_limit(2 * length);
                return Act::Keep;
            }
            return self.look_up(stream, None);
        }
        let pieces: Vec<_> = kept.iter().chain(came.iter()).collect();
        self.look_up_pieces(stream, &pieces)
    }

    /// The request's trailers: its body has ended without saying so.
    pub fn request_trailers(&mut self, stream: Stream) -> Act {
        match self.state {
            State::Reading { .. } => {
                let kept = stream.pieces(BodyType::BufferedRequest);
                let pieces: Vec<_> = kept.iter().collect();
                self.look_up_pieces(stream, &pieces)
            }
            State::Asking | State::Waiting => Act::Stop,
            _ => Act::Continue,
        }
    }

    /// The driver reads a body in one piece.
    fn look_up_pieces(&mut self, stream: Stream, pieces: &[&[u8]]) -> Act {
        match *pieces {
            [] => self.look_up(stream, Some(b"")),
            [one] => self.look_up(stream, Some(one)),
            _ => {
                let length = pieces.iter().map(|piece| piece.len()).sum();
                let has_room = self
                    .driver
                    .as_mut()
                    .is_some_and(|driver| driver.take_room(length));
                let all = has_room.then(|| pieces.concat());
                self.look_up(stream, all.as_deref())
            }
        }
    }

    fn look_up(&mut self, stream: Stream, body: Option<&[u8]>) -> Act {
        let Some(driver) = &mut self.driver else {
            return Act::Continue;
        };
        if driver.exchange().is_some_and(|it| it.config().caches()) {
            self.waiting.get_or_insert_with(Waiting::new).looks_up();
        }
        let head = stream.head(HeaderType::Request);
        let asked = Asked {
            place: stream.cluster(),
            host: head.get(":authority").unwrap_or_default(),
            port: stream.port(),
            now: clock::monotonic(),
            coding_allowed: true,
            waiter: self.waiting.as_ref().map(Waiting::waiter),
            ..Asked::default()
        };
        match driver.look_up(body, asked) {
            Ok(step) => self.looked_up(stream, step),
            Err(_) => self.give_up(stream),
        }
    }

    fn looked_up(&mut self, stream: Stream, step: Step) -> Act {
        if let Step::Wait = step {
            return self.wait(stream);
        }
        self.waiting = None;
        match step {
            Step::Forward => self.forward(stream),
            Step::ForwardRewritten => {
                self.rewrite(stream);
                self.forward(stream)
            }
            Step::Respond => match self.driver.take() {
                Some(driver) => {
                    self.state = State::Passing;
                    note(stream, Some(&driver));
                    Act::Respond(Box::new(driver))
                }
                None => Act::Continue,
            },
            Step::OffLoop(job) => {
                self.state = State::Asking;
                self.run(stream, job);
                Act::Stop
            }
            Step::Fail(lack) => {
                self.state = State::Passing;
                Act::Fail(lack.text().to_str().unwrap_or_default())
            }
            _ => self.give_up(stream),
        }
    }

    /// Until it is woken, or for as long as the driver says.
    fn wait(&mut self, stream: Stream) -> Act {
        let scheduler = Arc::clone(self.scheduler(stream));
        if let Some(waiting) = &self.waiting {
            waiting.wait(&scheduler);
        }
        self.state = State::Waiting;
        self.set_timer(stream);
        Act::Keep
    }

    /// It is looked up once more.
    fn woken(&mut self, stream: Stream) -> Act {
        if self.state != State::Waiting {
            return Act::Stop;
        }
        let kept = stream.pieces(BodyType::BufferedRequest);
        let pieces: Vec<_> = kept.iter().collect();
        self.look_up_pieces(stream, &pieces)
    }

    /// The request goes to the node.
    fn forward(&mut self, stream: Stream) -> Act {
        if let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) {
            stream.edit(HeaderType::Request, exchange.upstream_edits());
        }
        self.state = State::Forwarded;
        Act::Continue
    }

    /// Another body, and perhaps another target, in place of the client's.
    fn rewrite(&self, stream: Stream) {
        let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) else {
            return;
        };
        let target = exchange.request_target();
        if !target.is_empty() {
            stream.set(HeaderType::Request, ":path", Some(target));
        }
        let kept = stream.pieces(BodyType::BufferedRequest).len();
        let came = stream.pieces(BodyType::ReceivedRequest).len();
        let body = exchange.request_body();
        // within the hook for the body it goes with what came, else with what is kept
        let into = match came {
            0 => BodyType::BufferedRequest,
            _ => BodyType::ReceivedRequest,
        };
        stream.raise_buffer_limit((kept + came + body.len()) as u64);
        stream.append(into, body);
        stream.drain(BodyType::BufferedRequest, kept);
        stream.drain(BodyType::ReceivedRequest, came);
        let length = body.len().to_string();
        stream.set(
            HeaderType::Request,
            "content-length",
            Some(length.as_bytes()),
        );
    }

    /// The driver can't be asked any more.
    fn give_up(&mut self, _stream: Stream) -> Act {
        self.state = State::Passing;
        self.driver = None;
        Act::Continue
    }

    /// Envoy is about to answer by itself.
    pub fn local_reply(&mut self, stream: Stream, status: u32) {
        self.local_reply = Some(match status {
            504 => Failure::Timeout,
            _ => Failure::Error,
        });
        if let (State::Holding | State::Streaming, Some(driver)) = (self.state, &mut self.driver) {
            // the node has gone; there is nothing to be done about it
            let _ = driver.cut_short();
            note(stream, Some(driver));
            self.state = State::Passing;
        }
    }

    /// The response's head.
    pub fn response_head(&mut self, stream: Stream, is_all: bool) -> Act {
        if self.state != State::Forwarded {
            return self.give_up(stream);
        }
        let Some(driver) = &mut self.driver else {
            return Act::Continue;
        };
        let now = clock::monotonic();
        let is_own = self
            .local_reply
            .is_some_and(|failure| !driver.fails(failure, now));
        if is_own {
            return self.give_up(stream);
        }
        let head = stream.head(HeaderType::Response);
        let response = response(&head, is_all);
        let failure = self.local_reply.unwrap_or(Failure::Status(response.status));
        let step = match driver.node_head(response.clone(), failure, now) {
            Ok(false) => driver.response_head(response),
            // a stored answer takes the place of the node's
            Ok(true) => {
                replace_head(stream, &head, driver);
                let head = stream.head(HeaderType::Response);
                driver.response_head(self::response(&head, is_all))
            }
            Err(misuse) => Err(misuse),
        };
        let Ok(step) = step else {
            return self.give_up(stream);
        };
        match step {
            Step::Pass | Step::Show => {
                self.edit_head(stream);
                self.state = State::Showing;
                self.ends(stream, is_all);
                Act::Continue
            }
            Step::Stream => {
                self.edit_head(stream);
                self.state = State::Streaming;
                Act::Continue
            }
            // a body is added to what had none
            Step::Hold if is_all => self.end(stream, BodyType::BufferedResponse),
            Step::Hold => {
                self.state = State::Holding;
                Act::Stop
            }
            step => self.fail(&step),
        }
    }

    fn edit_head(&self, stream: Stream) {
        if let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) {
            stream.edit(HeaderType::Response, exchange.head_edits());
            if exchange.status() != 0 {
                let status = exchange.status().to_string();
                stream.set(HeaderType::Response, ":status", Some(status.as_bytes()));
            }
        }
    }

    /// A piece of the response's body.
    pub fn response_body(&mut self, stream: Stream, is_last: bool) -> Act {
        match self.state {
            State::Showing => {
                let pieces = stream.pieces(BodyType::ReceivedResponse);
                if let Some(driver) = &mut self.driver {
                    for piece in pieces.iter() {
                        see(driver, piece);
                        // a driver that was told to pass wants none of it
                        let _ = driver.piece(piece);
                    }
                }
                self.ends(stream, is_last);
                Act::Continue
            }
            State::Holding => self.hold(stream, is_last),
            State::Streaming => self.send(stream, is_last),
            State::Coding => Act::Stop,
            _ => Act::Continue,
        }
    }

    fn hold(&mut self, stream: Stream, is_last: bool) -> Act {
        let pieces = stream.pieces(BodyType::ReceivedResponse);
        let mut iter = pieces.iter();
        while let Some(piece) = iter.next() {
            let Some(driver) = &mut self.driver else {
                return Act::Continue;
            };
            see(driver, piece);
            match driver.piece(piece) {
                Ok(Step::Await) => {}
                Ok(Step::SendThenPass) => {
                    let rest: Vec<_> = [piece].into_iter().chain(iter).collect();
                    return self.send_then_pass(stream, &pieces, &rest.concat(), is_last);
                }
                Ok(Step::Stream) => {
                    self.edit_head(stream);
                    self.state = State::Streaming;
                    let rest = [piece].into_iter().chain(iter);
                    return self.stream_pieces(stream, rest, pieces.len(), is_last);
                }
                Ok(step) => return self.fail(&step),
                Err(_) => return Act::Reset("sszip: a piece of a held body was not taken"),
            }
        }
        stream.drain(BodyType::ReceivedResponse, pieces.len());
        if is_last {
            return self.end(stream, BodyType::ReceivedResponse);
        }
        self.set_timer(stream);
        Act::Stop
    }

    /// What was held, what came and was not taken, and from here on all as it comes.
    fn send_then_pass(&mut self, stream: Stream, came: &Pieces, rest: &[u8], is_last: bool) -> Act {
        self.edit_head(stream);
        self.append_body(stream, BodyType::ReceivedResponse);
        stream.append(BodyType::ReceivedResponse, rest);
        stream.drain(BodyType::ReceivedResponse, came.len());
        self.state = State::Showing;
        self.ends(stream, is_last);
        Act::Continue
    }

    fn append_body(&self, stream: Stream, into: BodyType) {
        if let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) {
            for piece in exchange.body() {
                stream.append(into, piece);
            }
        }
    }

    /// The body has ended while its head is held, within the hook that says so.
    fn end(&mut self, stream: Stream, into: BodyType) -> Act {
        let Some(driver) = &mut self.driver else {
            return Act::Continue;
        };
        match driver.end() {
            Ok(Step::OffLoop(job)) => {
                self.state = State::Coding;
                self.run(stream, job);
                Act::Stop
            }
            Ok(step) => self.ended(stream, step, into),
            Err(_) => Act::Reset("sszip: a held body could not be ended"),
        }
    }

    /// What is to be sent of a body that has ended.
    fn ended(&mut self, stream: Stream, step: Step, into: BodyType) -> Act {
        match step {
            Step::Send => {
                self.edit_head(stream);
                self.append_body(stream, into);
                self.ends(stream, true);
                Act::Continue
            }
            Step::Stream => {
                self.edit_head(stream);
                self.state = State::Streaming;
                if !self.encode(b"", Flush::Finish) {
                    return Act::Reset("sszip: the encoder failed");
                }
                stream.append(into, &std::mem::take(&mut self.written));
                self.ends(stream, true);
                Act::Continue
            }
            step => self.fail(&step),
        }
    }

    /// The next pieces through the encoder.
    fn send(&mut self, stream: Stream, is_last: bool) -> Act {
        let pieces = stream.pieces(BodyType::ReceivedResponse);
        if let Some(driver) = &mut self.driver {
            pieces.iter().for_each(|piece| see(driver, piece));
        }
        self.stream_pieces(stream, pieces.iter(), pieces.len(), is_last)
    }

    /// What Envoy is told to go on with can't be added to until more of the body
    /// comes. So it is told only what was flushed, and the rest waits for a deadline.
    fn stream_pieces<'a>(
        &mut self,
        stream: Stream,
        pieces: impl Iterator<Item = &'a [u8]>,
        came: usize,
        is_last: bool,
    ) -> Act {
        for piece in pieces {
            if !self.encode(piece, Flush::None) {
                return Act::Reset(
                    "sszip: the encoder failed, or the body is not what its head says",
                );
            }
        }
        let is_sent = is_last || self.written.len() >= SENT_AT_ONCE || self.flushes_at_once();
        let flush = if is_last { Flush::Finish } else { Flush::Sync };
        if is_sent && !self.encode(b"", flush) {
            return Act::Reset("sszip: the encoder failed, or the body is not what its head says");
        }
        if is_sent {
            stream.append(
                BodyType::ReceivedResponse,
                &std::mem::take(&mut self.written),
            );
        }
        stream.drain(BodyType::ReceivedResponse, came);
        if !is_sent {
            self.set_timer(stream);
            return Act::Stop;
        }
        self.ends(stream, is_last);
        Act::Continue
    }

    fn flushes_at_once(&self) -> bool {
        let timer = self.driver.as_ref().and_then(Driver::next_timer);
        timer.is_some_and(|ms| ms == 0)
    }

    /// Through the encoder, to what it has written. Whether it could.
    fn encode(&mut self, piece: &[u8], flush: Flush) -> bool {
        let Some(driver) = &mut self.driver else {
            return false;
        };
        let mut rest = piece;
        loop {
            let start = self.written.len();
            self.written.resize(start + SENT_AT_ONCE, 0);
            let coded = driver.stream(rest, flush, &mut self.written[start..]);
            let Ok(progress) = coded else {
                return false;
            };
            self.written.truncate(start + progress.written);
            rest = &rest[progress.consumed..];
            if progress.complete {
                return true;
            }
        }
    }

    /// The response's trailers: its body has ended without saying so.
    pub fn response_trailers(&mut self, stream: Stream) -> Act {
        match self.state {
            State::Holding | State::Streaming => {
                // the head has to go before what is added here
                self.scheduler(stream).commit(TRAILERS);
                Act::Stop
            }
            State::Coding => Act::Stop,
            State::Showing => {
                self.ends(stream, true);
                Act::Continue
            }
            _ => Act::Continue,
        }
    }

    /// What is waited for is of the request, not of the response.
    pub fn is_request(&self) -> bool {
        matches!(self.state, State::Asking | State::Waiting)
    }

    /// Something that this has asked to be told.
    pub fn scheduled(&mut self, stream: Stream, event: u64) -> Act {
        match event {
            DONE => self.done(stream),
            WOKEN => self.woken(stream),
            TRAILERS => self.ends_by_trailers(stream),
            timer if timer == self.timer => self.due(stream),
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

    fn ends_by_trailers(&mut self, stream: Stream) -> Act {
        match self.state {
            State::Holding => self.end(stream, BodyType::BufferedResponse),
            State::Streaming => {
                if !self.encode(b"", Flush::Finish) {
                    return Act::Reset("sszip: the encoder failed");
                }
                stream.append(
                    BodyType::BufferedResponse,
                    &std::mem::take(&mut self.written),
                );
                self.ends(stream, true);
                Act::Continue
            }
            _ => Act::Continue,
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
                    self.state = State::Showing;
                    Act::Continue
                }
                Some(Ok(Step::Stream)) => {
                    self.edit_head(stream);
                    self.state = State::Streaming;
                    self.flush(stream)
                }
                Some(Ok(step)) => self.fail(&step),
                _ => Act::Reset("sszip: a held body could not be released"),
            },
            State::Streaming => self.flush(stream),
            State::Waiting => self.woken(stream),
            _ => Act::Stop,
        }
    }

    fn flush(&mut self, stream: Stream) -> Act {
        if !self.encode(b"", Flush::Sync) {
            return Act::Reset("sszip: the encoder failed");
        }
        stream.append(
            BodyType::BufferedResponse,
            &std::mem::take(&mut self.written),
        );
        Act::Continue
    }

    fn set_timer(&mut self, stream: Stream) {
        let due = self.driver.as_ref().and_then(Driver::next_timer);
        let Some(ms) = due else {
            return;
        };
        // one of a held body counts from its first byte
        if self.state == State::Holding && self.timer != 0 {
            return;
        }
        self.timer = TIMER | (self.timer + 1) & (TIMER - 1);
        let timer = self.timer;
        timers::set(self.scheduler(stream), timer, ms);
    }

    fn scheduler(&mut self, stream: Stream) -> &Arc<Scheduler> {
        self.scheduler.get_or_insert_with(|| stream.scheduler())
    }

    fn run(&mut self, stream: Stream, job: Job) {
        let place = Arc::clone(&self.place);
        pool::run(job, &place, self.scheduler(stream), DONE);
    }

    fn fail(&mut self, step: &Step) -> Act {
        self.state = State::Passing;
        match step {
            Step::Fail(lack) => Act::Fail(lack.text().to_str().unwrap_or_default()),
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
            note(stream, Some(driver));
        }
    }

    /// The stream has ended.
    pub fn leave(&mut self) {
        self.waiting = None;
        if let Some(job) = self.driver.as_mut().and_then(Driver::last_job) {
            pool::run_alone(job);
        }
        self.driver = None;
    }
}

impl Act {
    /// Nothing of the stream is in use; whether it goes on.
    pub fn perform(self, stream: Stream) -> Option<bool> {
        match self {
            Act::Continue => Some(true),
            Act::Stop | Act::Keep => Some(false),
            Act::Respond(driver) => {
                if let Some(exchange) = driver.exchange() {
                    let mut pieces = exchange.body().filter(|piece| !piece.is_empty()).peekable();
                    let is_all = pieces.peek().is_none();
                    stream.respond_head(exchange.status(), exchange.head_edits(), is_all);
                    while let Some(piece) = pieces.next() {
                        stream.respond_body(piece, pieces.peek().is_none());
                    }
                }
                None
            }
            Act::Fail(why) => {
                stream.reply(502, "", why);
                None
            }
            Act::Reset(why) => {
                stream.reset(why);
                None
            }
        }
    }
}

/// A response's head as the driver reads it.
fn response(head: &Head, is_all: bool) -> ResponseHead<impl Iterator<Item = Field<'_>> + Clone> {
    let length = length(head);
    let status = head.get(":status").and_then(number).unwrap_or_default();
    ResponseHead {
        status: status as u16,
        content_length: length,
        fields: head.plain(),
        delimited: length.is_some() || is_all || is_chunked(head),
        now: clock::wall(),
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
    }
}

/// The driver's whole head in place of the one that there is.
fn replace_head(stream: Stream, head: &Head, driver: &Driver) {
    let names: Vec<_> = head.plain().map(|(name, _)| name.to_vec()).collect();
    for name in names {
        let name = String::from_utf8_lossy(&name);
        stream.set(HeaderType::Response, &name, None);
    }
    if let Some(exchange) = driver.exchange() {
        stream.edit(HeaderType::Response, exchange.head_edits());
        let status = exchange.status().to_string();
        stream.set(HeaderType::Response, ":status", Some(status.as_bytes()));
    }
}

/// A piece as the node sent it.
fn see(driver: &mut Driver, piece: &[u8]) {
    let job = driver.node_piece(Some(piece), piece.len() as u64, false, clock::monotonic());
    if let Some(job) = job {
        pool::run_alone(job);
    }
}

/// What access logs show.
fn note(stream: Stream, driver: Option<&Driver>) {
    for variable in Variable::ALL {
        if let Some(text) = variable.text(driver.and_then(Driver::exchange)) {
            let name = variable.name();
            stream.note(name.strip_prefix("sszip_").unwrap_or(name), &text);
        }
    }
}

fn length(head: &Head) -> Option<u64> {
    head.get("content-length").and_then(number)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// HTTP/1.1's: the body's end can be told from a break.
fn is_chunked(head: &Head) -> bool {
    let codings = head.get("transfer-encoding").unwrap_or_default();
    codings.to_ascii_lowercase().ends_with(b"chunked")
}
