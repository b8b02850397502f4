//! One HTTP exchange: a sans-I/O state machine.
//!
//! # Theory of operation
//!
//! A host makes one [`Exchange`] for each request and tells it what happened,
//! in this order:
//!
//! 1. [`Exchange::request_head`] once. [`Exchange::upstream_edits`] are then
//!    the changes to the head that goes to the node.
//! 2. [`Exchange::response_head`] once. On [`HeadAction::Pass`] the host makes
//!    the [`Exchange::head_edits`] and the rest goes through untouched. On
//!    [`HeadAction::Hold`] it keeps the head back.
//! 3. [`Exchange::piece`] for each piece of a held body. The bytes are copied,
//!    the host may let go of them. On [`PieceAction::GiveUp`] it makes the head
//!    edits, sends the head, [`Exchange::body`], then that piece and all that
//!    follows.
//! 4. [`Exchange::end`] when the body is complete as far as the host can
//!    tell, or [`Exchange::cut_short`] when the node went away.
//! 5. [`Exchange::code`] after [`EndAction::Code`], on any thread. Then the host
//!    makes the head edits and sends the head and [`Exchange::body`].
//!
//! The moves are in [`transitions`]; a call that is not a move from the
//! present state is the host's mistake and answered with [`Misuse`]. No call
//! panics on what comes from the network, none loses a byte: until the answer
//! has been decided the original is kept.

mod head;
pub mod transitions;

use std::fmt;
use std::sync::Arc;

use crate::config::{Config, UpstreamEncoding};
use crate::faults::{injected, panic_if, Fault};
use crate::gzip::{inflate, oneshot};
use crate::memory::Reservation;
use crate::mode::Mode;
use crate::negotiate::vary;

use head::{Coding, Request, Response};
pub use head::{Field, HeadEdit, ResponseHead};
use transitions::{Event, State};

/// What to do with a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadAction {
    /// Send it, with the head edits, and the body as it comes.
    Pass,
    /// Keep it back and collect the body.
    Hold,
}

/// What to do with a piece of a held body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceAction {
    /// It was taken.
    Taken,
    /// It was not: send the head, what was taken so far, this piece, the rest.
    GiveUp,
}

/// What to do at the end of a held body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAction {
    /// Run the coder, soon.
    Code {
        /// It will take so long that an event loop should not wait for it.
        off_loop: bool,
    },
    /// The body is not whole. There is nothing to send but a 502.
    Fail,
}

/// A call that the present state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse {
    /// Where the exchange stood.
    pub state: State,
    /// What it was told.
    pub event: Event,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} can't happen in state {:?}", self.event, self.state)
    }
}

impl std::error::Error for Misuse {}

/// What the coder is to make of a collected body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Gzip {
        /// The client refused identity: gzip is sent even if it is longer.
        at_any_length: bool,
    },
    Gunzip,
}

/// One exchange. See the [module's](self) theory of operation.
#[derive(Debug)]
pub struct Exchange {
    config: Arc<Config>,
    state: State,
    mode: Mode,
    request: Request,
    upstream_edits: Vec<HeadEdit>,
    /// Edits that hold whatever the coder makes of the body.
    head_edits: Vec<HeadEdit>,
    /// Edits that hold only if the body is recoded.
    recoded_edits: Vec<HeadEdit>,
    varies: bool,
    task: Task,
    /// The body's length, where the node gave it.
    declared: Option<usize>,
    /// What the node sent, then what the client gets.
    body: Vec<u8>,
    /// Room for the coded body. Made where the body is: memory that coder
    /// threads allocate stays in their arenas when it is freed elsewhere.
    coded: Vec<u8>,
    received: usize,
    reservation: Option<Reservation>,
}

impl Exchange {
    /// A new exchange at a place with these settings.
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            state: State::Start,
            mode: Mode::Off,
            request: Request::default(),
            upstream_edits: Vec::new(),
            head_edits: Vec::new(),
            recoded_edits: Vec::new(),
            varies: false,
            task: Task::Gunzip,
            declared: None,
            body: Vec::new(),
            coded: Vec::new(),
            received: 0,
            reservation: None,
        }
    }

    /// Where the exchange stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// What happened to the answer; final in `Ready`, `Passing` and `Cut`.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Changes to the head that the node gets.
    pub fn upstream_edits(&self) -> &[HeadEdit] {
        &self.upstream_edits
    }

    /// Changes to the head that the client gets. Valid once the answer is
    /// decided.
    pub fn head_edits(&self) -> &[HeadEdit] {
        &self.head_edits
    }

    /// Whether the answer depends on `Accept-Encoding`. The head edits say so
    /// to the client, unless the host writes that itself.
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// What a cache between this exchange and the node should tell answers
    /// apart by: the node's `Vary` without the fields that the upstream edits
    /// make the same for every request.
    pub fn upstream_vary(&self, vary: &[u8]) -> Vec<u8> {
        self.upstream_edits
            .iter()
            .fold(vary.to_vec(), |vary, edit| {
                vary::without(std::iter::once(&vary[..]), edit.name)
            })
    }

    /// Bytes to send right after the head: the whole body in `Ready`, what
    /// was collected in `Passing`. They live as long as the exchange.
    pub fn body(&self) -> &[u8] {
        match self.state {
            State::Ready | State::Passing => &self.body,
            _ => &[],
        }
    }

    /// Length of the held body as the node sent it, for ratios.
    pub fn received(&self) -> usize {
        self.received
    }

    /// The client's request head.
    ///
    /// # Errors
    /// [`Misuse`] unless it is the first call.
    pub fn request_head<'a>(
        &mut self,
        method: &[u8],
        fields: impl Iterator<Item = Field<'a>>,
    ) -> Result<(), Misuse> {
        self.move_on(Event::RequestHead)?;
        self.request = Request::read(method, fields);
        if self.config.enable
            && !self.request.untouched
            && self.config.upstream_encoding == UpstreamEncoding::Identity
        {
            self.upstream_edits
                .push(HeadEdit::set("Accept-Encoding", "identity"));
        }
        Ok(())
    }

    /// The response head, final (not 1xx other than 101).
    ///
    /// # Errors
    /// [`Misuse`] unless it follows the request head.
    pub fn response_head<'a, I>(&mut self, head: ResponseHead<I>) -> Result<HeadAction, Misuse>
    where
        I: Iterator<Item = Field<'a>>,
    {
        panic_if(Fault::PanicHead);
        match self.judge(head) {
            Ok(task) => {
                self.move_on(Event::HeadToHold)?;
                self.task = task;
                Ok(HeadAction::Hold)
            }
            Err(reason) => {
                self.move_on(Event::HeadToPass)?;
                self.mode = reason;
                Ok(HeadAction::Pass)
            }
        }
    }

    /// What to make of the body, or the reason to leave it alone. Sets the
    /// head edits on the way.
    fn judge<'a, I>(&mut self, head: ResponseHead<I>) -> Result<Task, Mode>
    where
        I: Iterator<Item = Field<'a>>,
    {
        let config = Arc::clone(&self.config);
        if !config.enable {
            return Err(Mode::Off);
        }
        if head.subrequest {
            return Err(Mode::Subrequest);
        }
        match head.status {
            101 => return Err(Mode::Upgrade),
            0..=199 | 204 | 205 | 206 | 304 => return Err(Mode::Status),
            _ => {}
        }
        let response = Response::read(head.fields);
        if response.coding == Coding::Other {
            return Err(Mode::Encoded);
        }
        if !response
            .content_type
            .is_some_and(|content_type| config.types.contains(content_type))
        {
            return Err(match response.coding {
                Coding::Identity => Mode::Type,
                _ => Mode::Encoded,
            });
        }
        if response.no_transform || self.request.no_transform {
            return Err(Mode::NoTransform);
        }
        self.varies = true;
        response.vary_edits(head.host_writes_vary, &mut self.head_edits);
        response.recoded_edits(&mut self.recoded_edits);

        let accept = self.request.accept_encoding;
        let task = if response.coding == Coding::Gzip {
            if accept.allows_gzip() {
                return Err(Mode::Encoded);
            }
            Task::Gunzip
        } else {
            Task::Gzip {
                at_any_length: accept.refuses_identity() && accept.prefers_gzip(),
            }
        };
        self.judge_length(head.content_length, task)?;
        if task != Task::Gunzip {
            if !accept.prefers_gzip() {
                return Err(Mode::AcceptEncoding);
            }
            if !head.coding_allowed {
                return Err(Mode::HostPolicy);
            }
        }
        if self.request.head {
            // GET would send another length (RFC 9110, 9.3.2 and 8.6)
            self.head_edits.push(HeadEdit::remove("Content-Length"));
            self.head_edits.append(&mut self.recoded_edits);
            return Err(Mode::Head);
        }
        if let Some(length) = self.declared {
            // all of it now: later there is no way back but giving up
            if let Err(reason) = self.reserve(length) {
                self.reservation = None;
                return Err(reason);
            }
        }
        Ok(task)
    }

    fn judge_length(&mut self, content_length: Option<u64>, task: Task) -> Result<(), Mode> {
        let gunzip = task == Task::Gunzip;
        // a coded body keeps its coding where it can't be held
        let reason = |reason| if gunzip { Mode::Encoded } else { reason };
        let Some(length) = content_length else {
            // the end of gzip can be told from a cut without a length
            return if gunzip {
                Ok(())
            } else {
                Err(Mode::UnknownLength)
            };
        };
        let gated = task
            == Task::Gzip {
                at_any_length: false,
            };
        if length == 0 || (gated && length < self.config.min_length) {
            return Err(Mode::TooSmall);
        }
        if length > self.config.max_oneshot {
            return Err(reason(Mode::TooLarge));
        }
        self.declared = Some(usize::try_from(length).map_err(|_| reason(Mode::TooLarge))?);
        Ok(())
    }

    /// Takes the memory for a body of `length`: itself and, for the time of
    /// coding, its other form.
    fn reserve(&mut self, length: usize) -> Result<(), Mode> {
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let needed = length.checked_mul(2).ok_or(Mode::Memory)?;
        match &mut self.reservation {
            Some(reservation) => reservation.grow_to(needed, limit).then_some(()),
            None => {
                self.reservation = self.config.budget.reserve(needed, limit);
                self.reservation.as_ref().map(|_| ())
            }
        }
        .ok_or(Mode::Memory)?;
        let more = length - self.body.len();
        let refused = match self.declared {
            Some(_) => self.body.try_reserve_exact(more).is_err(),
            // grows in steps, so that it is copied seldom
            None => self.body.try_reserve(more).is_err(),
        };
        if refused || injected(Fault::FailAlloc) {
            return Err(Mode::Memory);
        }
        Ok(())
    }

    /// A piece of the held body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn piece(&mut self, piece: &[u8]) -> Result<PieceAction, Misuse> {
        if self.state == State::Collecting {
            if let Err(reason) = self.make_room(self.body.len() + piece.len()) {
                self.give_up(reason)?;
                return Ok(PieceAction::GiveUp);
            }
        }
        self.move_on(Event::Piece)?;
        panic_if(Fault::PanicBody);
        self.body.extend_from_slice(piece);
        self.received = self.body.len();
        Ok(PieceAction::Taken)
    }

    /// Room for a body that has grown to `length`, or the reason to stop.
    fn make_room(&mut self, length: usize) -> Result<(), Mode> {
        match self.declared {
            // More than was declared: not ours to repair.
            Some(declared) if length > declared => Err(Mode::Failed),
            Some(_) => Ok(()),
            None if length as u64 > self.config.max_oneshot => Err(Mode::Encoded),
            None => self.reserve(length),
        }
    }

    /// Leaves the answer alone from here on: the original is to be sent.
    ///
    /// # Errors
    /// [`Misuse`] once the answer is decided.
    pub fn give_up(&mut self, reason: Mode) -> Result<(), Misuse> {
        if self.state == State::AwaitingHead {
            // a judgement that was not finished has no say
            self.head_edits.clear();
            self.varies = false;
        }
        self.move_on(Event::GiveUp)?;
        self.mode = reason;
        // a piece that came only in part is not the caller's to repeat
        self.body.truncate(self.received);
        Ok(())
    }

    /// The host saw the end of the body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn end(&mut self) -> Result<EndAction, Misuse> {
        let length = self.body.len();
        if self.declared.is_some_and(|declared| length < declared) {
            self.cut_short()?;
            return Ok(EndAction::Fail);
        }
        self.move_on(Event::End)?;
        if let Task::Gzip { .. } = self.task {
            // refused: the coder will find that out
            let _ = self.coded.try_reserve_exact(self.gzip_limit());
        }
        Ok(EndAction::Code {
            off_loop: length > off_loop_length(self.config.comp_level),
        })
    }

    /// The node went away while the head is held. What was collected is of no
    /// use to anybody and is freed.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn cut_short(&mut self) -> Result<(), Misuse> {
        self.move_on(Event::CutShort)?;
        self.mode = Mode::Cut;
        self.body = Vec::new();
        self.reservation = None;
        Ok(())
    }

    /// Runs the coder. May take milliseconds for each megabyte.
    ///
    /// # Errors
    /// [`Misuse`] unless the body is complete.
    pub fn code(&mut self) -> Result<(), Misuse> {
        if self.state != State::Coding {
            return Err(self.misuse(Event::Coded));
        }
        let coded = match self.task {
            Task::Gzip { .. } => self.gzip(),
            Task::Gunzip => self.gunzip(),
        };
        match coded {
            Ok((body, mode)) => {
                self.recoded(&body, mode);
                self.body = body;
            }
            Err(reason) => self.mode = reason,
        }
        let length = self.body.len();
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink_to(length);
        }
        self.move_on(Event::Coded)
    }

    fn gzip(&mut self) -> Result<(Vec<u8>, Mode), Mode> {
        let limit = self.gzip_limit();
        let room = std::mem::take(&mut self.coded);
        match oneshot::gzip_into(&self.body, self.config.comp_level, limit, room) {
            Ok(body) => Ok((body, Mode::Oneshot)),
            Err(oneshot::OneshotError::NotSmaller) => Err(Mode::NotSmaller),
            Err(_) => Err(Mode::Failed),
        }
    }

    /// What the coded body must be shorter than.
    fn gzip_limit(&self) -> usize {
        match self.task {
            Task::Gzip {
                at_any_length: true,
            } => oneshot::bound(self.body.len()),
            _ => self.body.len(),
        }
    }

    /// Decodes into what the trailer claims, and only if that was not enough
    /// (several members) into as much as one body may take.
    fn gunzip(&mut self) -> Result<(Vec<u8>, Mode), Mode> {
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let most = usize::try_from(self.config.max_oneshot).unwrap_or(usize::MAX);
        for cap in [inflate::claimed_length(&self.body).min(most), most] {
            let needed = self.body.len().checked_add(cap).ok_or(Mode::Memory)?;
            if let Some(reservation) = &mut self.reservation {
                if !reservation.grow_to(needed, limit) {
                    return Err(Mode::Memory);
                }
            }
            match inflate::gunzip(&self.body, cap) {
                Ok(body) => return Ok((body, Mode::Inflate)),
                Err(inflate::InflateError::TooLarge) => {}
                Err(_) => return Err(Mode::Failed),
            }
        }
        Err(Mode::Encoded)
    }

    fn recoded(&mut self, body: &[u8], mode: Mode) {
        self.mode = mode;
        self.head_edits.push(match mode {
            Mode::Oneshot => HeadEdit::set("Content-Encoding", "gzip"),
            _ => HeadEdit::remove("Content-Encoding"),
        });
        self.head_edits
            .push(HeadEdit::set("Content-Length", body.len().to_string()));
        self.head_edits.append(&mut self.recoded_edits);
    }

    fn move_on(&mut self, event: Event) -> Result<(), Misuse> {
        self.state = self.state.after(event).ok_or(self.misuse(event))?;
        Ok(())
    }

    fn misuse(&self, event: Event) -> Misuse {
        Misuse {
            state: self.state,
            event,
        }
    }
}

/// Bodies longer than this are coded off the event loop, in bytes: what takes
/// about as long at each of libdeflate's levels as 256 KiB do at the lower
/// ones, 2 to 3 ms.
fn off_loop_length(level: u8) -> usize {
    match level {
        0..=6 => 256 << 10,
        7..=9 => 64 << 10,
        _ => 8 << 10,
    }
}
