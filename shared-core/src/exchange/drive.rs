//! The driver: a host tells it what happened, and it says what to do next.
//!
//! It owns an exchange, what is to be stored of its answer, and the work that
//! takes too long for an event loop. No panic leaves it: what it was about then
//! goes on as if there were no sszip, or, where that would pass a part of an
//! answer off as all of it, or JSON to a client that takes SSZ only, fails.

use std::sync::Arc;

use super::actions::{EndAction, HeadAction, Misuse, PieceAction};
use super::cache::asked::{Asked, LookUp};
pub use super::cache::asked::{BodyLength, Need};
use super::cache::purging::Purge;
#[cfg(not(target_family = "wasm"))]
use super::cache::telling::Tell;
use super::head::{Field, RequestHead, ResponseHead};
use super::machine::Exchange;
use super::policy::{Ruling, Unjudged};
use super::step::{code, stored, Work, LONG_TO_FORGET};
pub use super::step::{Beside, Job, Lack, Step};
use super::stream::StreamFailure;
use super::transitions::{Event, State};
use crate::cache::process::hot::Hot;
use crate::cache::reason::Reason;
use crate::cache::stale::Failure;
use crate::config::learnt::Learnt;
use crate::config::Config;
use crate::gzip::stream::{Flush, Progress};
use crate::memory;
use crate::memory::Reservation;
use crate::metrics::{Answered, Tally};
use crate::mode::Mode;
use crate::panics::caught;

/// No longer copy of a request's body is counted: no more than hosts' own buffers, and
/// hits are not to go to the node because long answers take all there is. Bytes.
const SHORT_COPY: usize = 64 << 10;

/// How far looking for stored answers has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seeking {
    /// Nothing was asked for yet.
    Start,
    /// The request's body; all of it, in whatever form.
    Body { whole: bool },
    /// They were looked up, or never will be.
    Over,
}

/// An exchange and what comes of it. See the [module](self).
#[derive(Debug)]
pub struct Driver {
    /// `None` while a job has it.
    exchange: Option<Box<Exchange>>,
    /// What is to be fetched in the background.
    update: Option<Box<Driver>>,
    seeking: Seeking,
    /// For the host's copy of the request's body; `None`: there is none, or no room.
    room: Option<Reservation>,
    /// There was no room for it.
    lacks_room: bool,
    /// For what the host keeps of the request's body.
    kept: Option<Reservation>,
    /// The request's body is longer than what is ever kept.
    is_too_long: bool,
    /// Bytes that the node has sent of the body, where the host shows them.
    node_sent: Option<u64>,
    /// Others change the body.
    is_changed: bool,
    /// It was not known before that others change bodies here.
    is_news: bool,
    /// The encoder of a stream keeps nothing.
    is_flushed: bool,
    /// The host was told what to count of it.
    is_counted: bool,
    /// The node was asked: what answers is no stored answer.
    is_forwarded: bool,
}

impl Driver {
    /// One for a request at a place with these settings.
    pub fn new(config: Arc<Config>) -> Self {
        Self::of(Exchange::new(config))
    }

    fn of(exchange: Exchange) -> Self {
        Self {
            exchange: Some(Box::new(exchange)),
            update: None,
            seeking: Seeking::Start,
            room: None,
            lacks_room: false,
            kept: None,
            is_too_long: false,
            node_sent: None,
            is_changed: false,
            is_news: false,
            is_flushed: false,
            is_counted: false,
            is_forwarded: false,
        }
    }

    /// The exchange, to be read; `None` while a job has it.
    pub fn exchange(&self) -> Option<&Exchange> {
        self.exchange.as_deref()
    }

    /// The same, for what the host has to say of it; `event` is what that is.
    fn open(&mut self, event: Event) -> Result<&mut Exchange, Misuse> {
        let state = State::Coding;
        self.exchange.as_deref_mut().ok_or(Misuse { state, event })
    }

    /// For what has no answer, and is of no account while a job has it.
    pub fn tell<T>(&mut self, what: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
        self.exchange.as_deref_mut().map(what)
    }

    /// The client's request head.
    ///
    /// # Errors
    /// [`Misuse`] unless it is the first event.
    pub fn request_head<'a, I>(&mut self, head: RequestHead<'_, I>) -> Result<(), Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        self.open(Event::RequestHead)?.request_head(head)
    }

    /// What a look-up needs, of a request with such a body. Asked again, it has
    /// been read; once it was looked up nothing is needed.
    pub fn need(&mut self, length: BodyLength) -> Need {
        let need = match self.seeking {
            Seeking::Start => self.tell(|exchange| exchange.need(length)),
            Seeking::Body { .. } => Some(Need::LookUp),
            Seeking::Over => None,
        };
        let need = need.unwrap_or(Need::Nothing);
        match need {
            Need::LookUp => {}
            Need::Body => self.seeking = Seeking::Body { whole: false },
            Need::WholeBody => self.seeking = Seeking::Body { whole: true },
            Need::Nothing => self.seeking = Seeking::Over,
        }
        need
    }

    /// For a host that has the request's body in memory until it is complete: how many
    /// bytes it may keep of one that has `length`, or, unless that is `all`, more. They
    /// count to `memory` until it was looked up. `None`: the body is too long, or there is
    /// no room; the look-up is without it then.
    pub fn may_keep(&mut self, length: u64, all: bool) -> Option<u64> {
        let exchange = self.exchange.as_deref()?;
        let longest = match self.seeking {
            Seeking::Body { whole } => exchange.longest_request(whole),
            Seeking::Start | Seeking::Over => return None,
        };
        if length > longest {
            self.is_too_long = true;
            return None;
        }
        let bytes = match all {
            true => length,
            false => length.saturating_mul(2).min(longest),
        };
        if bytes > SHORT_COPY as u64 {
            let budget = &exchange.config.process.budget;
            let limit = usize::try_from(exchange.config.memory).unwrap_or(usize::MAX);
            let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
            let has_room = match &mut self.kept {
                Some(kept) => kept.grow_to(wanted, limit),
                None => {
                    self.kept = budget.reserve(wanted, limit);
                    self.kept.is_some()
                }
            };
            self.lacks_room = !has_room || memory::is_short();
        }
        (!self.lacks_room).then_some(bytes)
    }

    /// For a host whose proxy keeps the request's body until it is complete, up to
    /// `limit`: whether it is to be looked up without, as `length` bytes are more than
    /// that, or than what is ever read of one.
    pub fn is_too_long(&mut self, length: u64, limit: u64) -> bool {
        let longest = match self.seeking {
            Seeking::Body { whole } => self.exchange().map(|it| it.longest_request(whole)),
            Seeking::Start | Seeking::Over => None,
        };
        self.is_too_long = longest.is_some_and(|longest| length > longest.min(limit));
        self.is_too_long
    }

    /// Takes the memory for a copy of the request's body, of so many bytes, which the
    /// host has in several places and makes for a [look-up](Self::look_up), or to make
    /// the request anew: it is given back when that has been done. `false`: there is not
    /// enough, and the look-up is without a body.
    pub fn take_room(&mut self, bytes: usize) -> bool {
        if bytes <= SHORT_COPY {
            return !memory::is_short();
        }
        self.room = self.exchange().and_then(|exchange| {
            let limit = usize::try_from(exchange.config.memory).unwrap_or(usize::MAX);
            let budget = &exchange.config.process.budget;
            budget.reserve(bytes, limit).filter(|_| !memory::is_short())
        });
        self.lacks_room = self.room.is_none();
        !self.lacks_room
    }

    /// The same, and makes the copy, for a host that has nothing of its own for that.
    pub fn joined(&mut self, pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        if !self.take_room(length) {
            return None;
        }
        let mut all = Vec::new();
        if all.try_reserve_exact(length).is_err() {
            self.room = None;
            self.lacks_room = true;
            return None;
        }
        for piece in pieces {
            all.extend_from_slice(piece);
        }
        Some(all)
    }

    /// Looks for stored answers. `body` is `None` where it is not in memory; in `asked`
    /// is what it begins with then, as far as that is.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn look_up(&mut self, body: Option<&[u8]>, asked: Asked<'_>) -> Result<Step, Misuse> {
        let room = self.room.take();
        let found = self.find(body, asked);
        drop(room);
        if self.seeking == Seeking::Over {
            self.kept = None;
        }
        found
    }

    fn find(&mut self, body: Option<&[u8]>, asked: Asked<'_>) -> Result<Step, Misuse> {
        let (lacks_room, is_too_long) = (self.lacks_room, self.is_too_long);
        let exchange = self.open(Event::Miss)?;
        if exchange.is_judged() {
            let ruling = caught(|| exchange.rule(body, is_too_long));
            // what was not judged does not go on
            match ruling.unwrap_or(Ruling::Refused(Unjudged::Memory)) {
                Ruling::Allowed => {}
                Ruling::InPart => return self.find_in_part(body, asked),
                denied => {
                    exchange.deny(denied)?;
                    self.seeking = Seeking::Over;
                    return Ok(Step::Respond);
                }
            }
        }
        if exchange.rewrites() {
            if exchange.config.caches() {
                caught(|| exchange.may_change(&asked)).unwrap_or_default();
            }
            self.seeking = Seeking::Over;
            return self.rewrite(body);
        }
        if caught(|| exchange.is_for_route(body, &asked)).unwrap_or(false) {
            self.seeking = Seeking::Over;
            return self.rewrite(body);
        }
        if caught(|| exchange.is_for_others(body)).unwrap_or(false) {
            self.seeking = Seeking::Over;
            return self.forward(body);
        }
        let why_not = match body {
            Some(body) if exchange.is_too_long(body) => Reason::RequestLength,
            None if exchange.is_call() && is_too_long => Reason::RequestLength,
            None if exchange.is_call() && lacks_room => Reason::Memory,
            None if exchange.is_call() => Reason::BodyOnDisk,
            _ => Reason::None,
        };
        if why_not != Reason::None {
            exchange.not_looked_up(why_not);
            self.seeking = Seeking::Over;
            return self.forward(body);
        }
        match self.find_stored(body, asked)? {
            LookUp::Forward => self.forward(body),
            found => Ok(self.step_of(found)),
        }
    }

    /// The same of a batch of which some calls must not go on: what is allowed is looked
    /// up, where that is to be, or the node is asked for it.
    fn find_in_part(&mut self, body: Option<&[u8]>, asked: Asked<'_>) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Miss)?;
        let is_too_long = body.is_some_and(|body| exchange.is_too_long(body));
        if is_too_long {
            exchange.not_looked_up(Reason::RequestLength);
        }
        if exchange.config.caches() && !exchange.is_call() {
            // a POST like any other
            caught(|| exchange.may_change(&asked)).unwrap_or_default();
        }
        let found = match is_too_long || !exchange.is_call() || exchange.is_for_others_only() {
            true => LookUp::Forward,
            false => self.find_stored(body, asked)?,
        };
        if found != LookUp::Forward {
            return Ok(self.step_of(found));
        }
        self.seeking = Seeking::Over;
        Ok(match self.open(Event::HitInPart)?.ask_for_allowed()? {
            true => Step::ForwardRewritten,
            // it must not go on as it came
            false => Step::Fail(Lack::Judgement),
        })
    }

    fn step_of(&mut self, found: LookUp) -> Step {
        match found {
            LookUp::Forward => Step::Forward,
            LookUp::ForwardRewritten => Step::ForwardRewritten,
            LookUp::Respond => Step::Respond,
            LookUp::RespondOffLoop => self.off_loop(),
            LookUp::Wait => Step::Wait,
        }
    }

    fn find_stored(&mut self, body: Option<&[u8]>, asked: Asked<'_>) -> Result<LookUp, Misuse> {
        let exchange = self.open(Event::Miss)?;
        let filters = &exchange.config.filters;
        let asked = Asked {
            // of what is no call it says nothing
            body: body.unwrap_or_default(),
            coding_allowed: asked.coding_allowed && !filters.change(),
            whole: asked.whole || asked.filters && !filters.change_nothing(),
            ..asked
        };
        let found = match caught(|| exchange.look_up(asked)) {
            Some(found) => found?,
            None => {
                exchange.forget_look_up();
                LookUp::Forward
            }
        };
        if let LookUp::Respond | LookUp::RespondOffLoop = found {
            exchange.give_back_permits();
        }
        if let LookUp::Respond | LookUp::RespondOffLoop | LookUp::ForwardRewritten = found {
            let update = exchange.take_update();
            self.update = update.map(|update| Box::new(Self::of(update)));
        }
        if found != LookUp::Wait {
            self.seeking = Seeking::Over;
        }
        Ok(found)
    }

    /// The node is asked: as the client has, unless what that has coded is to be
    /// decoded first.
    fn forward(&mut self, body: Option<&[u8]>) -> Result<Step, Misuse> {
        match self.open(Event::Miss)?.is_to_be_decoded() {
            true => self.rewrite(body),
            false => Ok(Step::Forward),
        }
    }

    /// The request's body is wanted in another form.
    fn rewrite(&mut self, body: Option<&[u8]>) -> Result<Step, Misuse> {
        let is_too_long = self.is_too_long;
        let exchange = self.open(Event::Rewrite)?;
        match exchange.begin_to_rewrite(body, is_too_long)? {
            true if exchange.is_long_to_rewrite() => return Ok(self.off_loop()),
            true => code(exchange),
            false => {}
        }
        Ok(self.coded())
    }

    /// Purges what the request's query says: instead of a look-up, and with steps
    /// of one, [`Step::Respond`] or [`Step::Wait`].
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn purge(&mut self, purge: &Purge<'_>) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Miss)?;
        Ok(match exchange.purge(purge)? {
            LookUp::Wait => Step::Wait,
            _ => Step::Respond,
        })
    }

    /// Tells how it all goes, instead of a look-up, and with steps of one.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    #[cfg(not(target_family = "wasm"))]
    pub fn tell_status(&mut self, tell: &Tell<'_>) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Miss)?;
        Ok(match exchange.tell_status(tell)? {
            LookUp::Wait => Step::Wait,
            _ => Step::Respond,
        })
    }

    /// After [`Step::Respond`], or [`Step::OffLoop`] or [`Step::ForwardRewritten`] of a
    /// look-up: what awaits the node's answer to the same request, or, where it has a body
    /// of its own, to that, for the cache alone. The host makes that request in the
    /// background, or drops it.
    pub fn take_update(&mut self) -> Option<Self> {
        self.update.take().map(|update| *update)
    }

    /// Before a look-up, for a host that [inquires](Self::take_inquiry) later, or whose
    /// settings are those of many places: what was learnt of these nodes holds for this
    /// request.
    pub fn recall(&mut self, nodes: &Learnt) {
        self.tell(|exchange| caught(|| exchange.recall_from(nodes)));
    }

    /// Before a look-up, or whatever else becomes of the request, or, after
    /// [`recall`](Self::recall), before the response's head: what awaits the node's
    /// answer to a question of its own, if there is one to be asked; to be called until
    /// there is none. `url` is where the request goes, where each has its own. The host makes that request in the background, to the
    /// [path](Self::path_of_inquiry) beside this one's, or drops it.
    pub fn take_inquiry(&mut self, url: Option<&[u8]>, now: u64) -> Option<Self> {
        let inquiry = self.tell(|exchange| caught(|| exchange.inquire(url, now)));
        inquiry.flatten().flatten().map(Self::of)
    }

    /// Of what [inquires](Self::take_inquiry): the path that is asked in place of that
    /// one.
    pub fn path_of_inquiry(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.exchange()?.path_of_inquiry(path)
    }

    /// Nothing more comes of it, and nobody waits for it; what it gave out
    /// stays.
    pub fn abandon(&mut self) {
        self.update = None;
        self.tell(Exchange::abandon);
    }

    /// The node fails the request like this: to be said before the head of what
    /// the client would get. Whether a stored answer will be sent in place of the
    /// one with that head.
    pub fn fails(&mut self, failure: Failure, now: u64) -> bool {
        self.tell(|exchange| exchange.fails(failure, now))
            .unwrap_or(false)
    }

    /// The head as the node sent it; see [`Exchange::node_head`]. Whether a
    /// stored answer takes the place of the node's. If its status says that the
    /// node fails, and [`fails`](Self::fails) has not said so, it does like this.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn node_head<'a, I>(
        &mut self,
        head: ResponseHead<I>,
        failure: Failure,
        now: u64,
    ) -> Result<bool, Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let exchange = self.open(Event::HeadToPass)?;
        // what is shown of an update is what the node sent
        let shows_both = exchange.state() != State::AwaitingUpdate;
        let judged = caught(|| {
            if head.status >= 400 && !exchange.has_failed() {
                exchange.fails(failure, now);
            }
            exchange.node_head(head)
        });
        let judged = judged.unwrap_or_else(|| {
            // nothing of it is stored, and the rest goes on
            exchange.not_stored(Reason::Memory);
            Ok(false)
        });
        self.node_sent = shows_both.then_some(0);
        judged
    }

    /// Of an answer whose head is about to be shown, or of a stored one that is
    /// about to be sent: whether others of the host's filters change the body, as
    /// it seems, and code it; and whether its head gives its length.
    pub fn beside(&mut self, changes: bool, codes: bool, has_length: bool) -> Beside {
        let Some(exchange) = &mut self.exchange else {
            return Beside::Nothing;
        };
        let filters = &exchange.config.filters;
        // one that was seen before need not say so
        self.is_changed = changes || !has_length && filters.change();
        if !self.is_changed {
            filters.saw_no_change();
            return Beside::Nothing;
        }
        // who codes says so: that is no reason to send what is stored as it came
        self.is_news |= !codes && filters.saw_change();
        if exchange.status() == 0 {
            exchange.keep_apart();
        }
        match exchange.is_apart() {
            true => Beside::Apart,
            false => Beside::Changed,
        }
    }

    /// The fields of a stored answer's head as they have become on their way to
    /// the client. Where others change its body it is sent in identity after all.
    /// Asks for the head edits and the body anew. `false`: there is no memory for
    /// that.
    pub fn stored_head<'a>(&mut self, fields: impl Iterator<Item = Field<'a>> + Clone) -> bool {
        let is_changed = self.is_changed;
        let said = self.tell(|exchange| {
            exchange.stored_head(fields);
            !is_changed || exchange.uncode()
        });
        said.unwrap_or(false)
    }

    /// Whether it was seen, and not known before, that others change bodies at
    /// this place. To be asked before the answer and after it; it is said once.
    pub fn is_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// So many bytes of the body as the node sent it, before anybody has changed
    /// it, and these, where they are in memory; `is_last`: that is its end. A host
    /// that can't tell leaves it out. What is to be done is as of
    /// [`sent`](Self::sent).
    pub fn node_piece(
        &mut self,
        piece: Option<&[u8]>,
        length: u64,
        is_last: bool,
        now: u64,
    ) -> Option<Job> {
        let exchange = self.exchange.as_mut()?;
        if !exchange.is_apart() {
            self.node_sent = self.node_sent.map(|sent| sent.saturating_add(length));
            return None;
        }
        let fill = caught(|| {
            match piece {
                Some(piece) => exchange.observe_node(piece),
                None if length > 0 => exchange.not_stored(Reason::Filtered),
                None => {}
            }
            is_last.then(|| exchange.take_node_fill()).flatten()
        });
        stored(fill??, now)
    }

    /// At the end of a body: not all who change one say so before.
    fn compare_with_node(&mut self) {
        if let (Some(sent), Some(exchange)) = (self.node_sent, &mut self.exchange) {
            let is_changed = exchange.node_sent(sent);
            self.is_news |= is_changed && exchange.config.filters.saw_change();
        }
    }

    /// The response head.
    ///
    /// # Errors
    /// [`Misuse`] unless one is awaited.
    pub fn response_head<'a, I>(&mut self, head: ResponseHead<I>) -> Result<Step, Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        self.is_forwarded = true;
        let exchange = self.open(Event::HeadToPass)?;
        match caught(|| exchange.response_head(head)) {
            Some(judged) => Ok(match judged? {
                HeadAction::Pass => Step::Pass,
                HeadAction::Tee => Step::Show,
                HeadAction::Hold => Step::Hold,
                HeadAction::Stream => Step::Stream,
            }),
            None => self.give_up(Mode::Failed),
        }
    }

    /// The host has no memory to show a response head.
    ///
    /// # Errors
    /// [`Misuse`] unless one is awaited.
    pub fn no_response_head(&mut self) -> Result<Step, Misuse> {
        self.is_forwarded = true;
        self.give_up(Mode::Memory)
    }

    /// Of a head that is awaited.
    fn give_up(&mut self, reason: Mode) -> Result<Step, Misuse> {
        let exchange = self.open(Event::GiveUp)?;
        exchange.give_up(reason)?;
        Ok(match exchange.state() {
            // its end is a failure, or a stored answer's
            State::CollectingPart | State::Replacing => Step::Hold,
            State::Cut => Step::Fail(Lack::Judgement),
            _ => Step::Pass,
        })
    }

    /// A piece of the body. Copies it.
    ///
    /// # Errors
    /// [`Misuse`] unless it was asked for.
    pub fn piece(&mut self, piece: &[u8]) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Piece)?;
        if exchange.state() == State::Passing {
            if caught(|| exchange.observe(piece)).is_none() {
                exchange.refuse_fill();
            }
            return Ok(Step::Await);
        }
        let taken = caught(|| exchange.piece(piece));
        self.taken(taken)
    }

    /// The [time](Self::next_timer) to hold a head is over, or the node
    /// flushes.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is held.
    pub fn release(&mut self) -> Result<Step, Misuse> {
        let exchange = self.open(Event::StartStream)?;
        let released = caught(|| exchange.release());
        self.taken(released)
    }

    fn taken(&mut self, taken: Option<Result<PieceAction, Misuse>>) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Piece)?;
        let taken = match taken {
            Some(taken) => taken?,
            None => {
                exchange.give_up(Mode::Failed)?;
                PieceAction::GiveUp
            }
        };
        match exchange.state() {
            State::Cut => return Ok(Step::Fail(Lack::of(exchange.mode))),
            // what it gave up for takes the place of all that comes
            State::Replacing => return Ok(Step::Await),
            _ => {}
        }
        Ok(match taken {
            PieceAction::Taken => Step::Await,
            PieceAction::GiveUp => Step::SendThenPass,
            PieceAction::Stream => Step::Stream,
        })
    }

    /// The end of a body whose head is held, for all that the host knows.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is held.
    pub fn end(&mut self) -> Result<Step, Misuse> {
        self.compare_with_node();
        let exchange = self.open(Event::End)?;
        let failure = match exchange.mode {
            Mode::Memory => Lack::Memory,
            _ => Lack::Short,
        };
        let ended = match caught(|| exchange.end()) {
            Some(ended) => ended?,
            None => exchange.end_without_coding()?,
        };
        Ok(match ended {
            EndAction::Fail => Step::Fail(failure),
            _ if exchange.state() == State::Cut => Step::Fail(Lack::of(exchange.mode)),
            EndAction::Stream => Step::Stream,
            EndAction::Send => Step::Send,
            EndAction::Code { off_loop: true } => self.off_loop(),
            EndAction::Code { off_loop: false } => {
                code(exchange);
                self.coded()
            }
        })
    }

    /// The node went away, while a head is held or a body streams. What was
    /// sent of it must not look like all of it.
    ///
    /// # Errors
    /// [`Misuse`] unless that is so.
    pub fn cut_short(&mut self) -> Result<(), Misuse> {
        self.open(Event::CutShort)?.cut_short()
    }

    /// Codes what was held and then `piece` into `output`; see
    /// [`Exchange::stream`].
    ///
    /// # Errors
    /// [`StreamFailure`]: break the answer off.
    pub fn stream(
        &mut self,
        piece: &[u8],
        flush: Flush,
        output: &mut [u8],
    ) -> Result<Progress, StreamFailure> {
        let exchange = self.open(Event::Piece)?;
        let coded = caught(|| exchange.stream(piece, flush, output));
        let coded = coded.unwrap_or(Err(StreamFailure::Encoder))?;
        self.is_flushed = coded.complete && flush != Flush::None;
        Ok(coded)
    }

    fn off_loop(&mut self) -> Step {
        match self.exchange.take() {
            Some(exchange) => Step::OffLoop(Job(Work::Answer(exchange))),
            None => Step::Await,
        }
    }

    /// A job of [`Step::OffLoop`] has run.
    pub fn done(&mut self, job: Job) -> Step {
        match job.0 {
            Work::Answer(exchange) => {
                self.exchange = Some(exchange);
                self.coded()
            }
            // they are of no exchange any more
            Work::Store(_) | Work::Forget(_) => Step::Await,
        }
    }

    fn coded(&self) -> Step {
        match self.exchange() {
            Some(exchange) => match exchange.state() {
                // it was not run: nobody wanted it
                State::Cut
                | State::Coding
                | State::Merging
                | State::Decoding
                | State::Rewriting => Step::Fail(Lack::of(exchange.mode)),
                State::AwaitingHead if exchange.is_rewritten() => Step::ForwardRewritten,
                // what was stored of a batch is not to be had, and it may not go on whole
                State::AwaitingPart => Step::ForwardRewritten,
                // what was stored is not to be had
                State::AwaitingHead => Step::Forward,
                _ if exchange.mode == Mode::Hit || exchange.is_ours() => Step::Respond,
                _ => Step::Send,
            },
            None => Step::Await,
        }
    }

    /// All of the answer is with the host: what is to be stored of it is, at
    /// `now` of the look-ups' clock, or there is a job for that, which ends
    /// with [`Job::store`].
    pub fn sent(&mut self, now: u64) -> Option<Job> {
        self.compare_with_node();
        self.tell(|exchange| caught(|| exchange.learn(now)));
        self.tell(Exchange::give_back_permits);
        let fill = self.tell(|exchange| caught(|| exchange.take_fill()))??;
        stored(fill?, now)
    }

    /// All of [`Exchange::body`], for a host that copies it, once: of a long one the memory
    /// goes as it is given out.
    pub fn give_out(&mut self, to: impl FnMut(&[u8])) {
        self.tell(|exchange| exchange.give_out(to));
    }

    /// What the host counts of it, when nothing more comes of the answer: once, and not
    /// of what was no client's.
    /// `elapsed` are microseconds since the request's head came; `None`: the host has no
    /// such clock.
    pub fn tally(&mut self, elapsed: Option<u64>) -> Option<Tally> {
        let exchange = self.exchange.as_deref().filter(|_| !self.is_counted)?;
        let mut tally = Tally::of(&Answered {
            mode: exchange.mode(),
            is_compressed: exchange.is_compressed(),
            received: exchange.received(),
            sent: exchange.sent(),
            status: exchange.cache_status(),
            reason: exchange.reason(),
            method: exchange.rpc_method(),
            calls: exchange.batch_size(),
            hits: exchange.batch_hits(),
            each: &exchange.looked.batch_calls,
            is_forwarded: self.is_forwarded,
            elapsed,
            age: exchange.looked.age,
        });
        let shared = &exchange.config().process.shared;
        if let Some(counts) = shared.verified.take_counts() {
            tally.add_verified(counts);
        }
        tally.add_evicted(shared.hot().map_or(0, Hot::take_evictions));
        self.is_counted = true;
        Some(tally)
    }

    /// The last that is asked of it, once the host uses nothing more that it gave out:
    /// a job where forgetting it all takes long, to be run by whoever has time.
    pub fn last_job(&mut self) -> Option<Job> {
        let long = self.exchange.take_if(|exchange| {
            let pieces = exchange.body();
            pieces.map(<[u8]>::len).sum::<usize>() >= LONG_TO_FORGET
        });
        long.map(|exchange| Job(Work::Forget(Some(exchange))))
    }

    /// After [`Step::Hold`], how many bytes of the body it is best to read at once;
    /// `None`: as many as the host reads by itself.
    pub fn read_size(&self) -> Option<usize> {
        self.exchange().and_then(Exchange::read_size)
    }

    /// In how many milliseconds the host is to call [`Driver::release`], or to
    /// flush a stream that has been given all there is, or, after [`Step::Wait`],
    /// to look up again, or to drop what [inquires](Self::take_inquiry); `None`: it may
    /// wait for what comes.
    pub fn next_timer(&self) -> Option<u64> {
        let exchange = self.exchange()?;
        if let Some(patience) = exchange.patience() {
            return Some(patience);
        }
        match exchange.state() {
            State::Waiting => Some(exchange.wait_ms()),
            State::Streaming if self.is_flushed => None,
            _ => exchange.hold_ms(),
        }
    }
}
