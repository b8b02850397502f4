//! One HTTP exchange: a sans-I/O state machine.
//!
//! A host drives it through [`drive`], which says what it is to do next;
//! `docs/exchange.md` has the events and the steps. The machine itself is
//! [`Exchange`]: what happened goes in, what there is to send comes out.
//!
//! The moves are in [`transitions`]; a call that is not a move from the
//! present state is the host's mistake and answered with [`Misuse`]. No call
//! panics on what comes from the network, none loses a byte: until the answer
//! has been decided the original is kept.

mod batch;
mod caching;
mod calls;
mod changing;
mod coding;
pub mod drive;
mod fill;
mod head;
mod hit;
mod judgement;
mod node;
mod resource;
mod room;
mod standing_in;
mod streaming;
pub mod transitions;
mod update;

use std::fmt;
use std::sync::Arc;

use crate::cache::entry::Lent;
use crate::cache::process::wake::Waiter;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::config::{Config, UpstreamEncoding};
use crate::faults::{panic_if, Fault};
use crate::gzip;
use crate::gzip::inflate;
use crate::gzip::splice::Body;
use crate::gzip::stream::Encoder;
use crate::json;
use crate::memory::Reservation;
use crate::mode::Mode;
use crate::negotiate::vary;

pub use caching::{Asked, CacheNeed, LookUp};
use coding::off_loop_length;
pub use fill::Fill;
use head::Request;
pub use head::{Field, HeadEdit, RequestHead, ResponseHead};
pub use streaming::StreamFailure;
use transitions::{Event, State};

/// What to do with a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadAction {
    /// Send it, with the head edits, and the body as it comes.
    Pass,
    /// The same, and [`Exchange::observe`] each piece of the body: a copy of
    /// it may be stored.
    Tee,
    /// Keep it back and collect the body.
    Hold,
    /// Send it, with the head edits, and the body through the encoder.
    Stream,
}

/// What to do with a piece of a held body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceAction {
    /// It was taken.
    Taken,
    /// It was not: send the head, what was taken so far, this piece, the rest.
    GiveUp,
    /// It was not: send the head, this piece and the rest through the encoder,
    /// which has what was taken so far.
    Stream,
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
    /// It may be whole or not, so it gets no length: send the head and finish
    /// the stream.
    Stream,
    /// The same, and it can't be coded: send the head and what was taken.
    GiveUp,
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
    /// Send a stored answer in its place.
    Replace,
    /// Decode a stored answer.
    Decode,
    /// Put the node's answers and stored ones together.
    Merge {
        /// The node's are gzip-coded.
        gunzip: bool,
        /// They are coded in a way that nobody asked for.
        unreadable: bool,
    },
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
    /// The end of a body without a length can be told from a cut.
    delimited: bool,
    encoder: Option<Box<dyn Encoder>>,
    /// How much of `body` the encoder has taken.
    encoded: usize,
    /// Bytes that the client got.
    sent: u64,
    /// What the node sent, then what the client gets.
    body: Vec<u8>,
    /// Room for the coded body. Made where the body is: memory that coder
    /// threads allocate stays in their arenas when it is freed elsewhere.
    coded: Vec<u8>,
    received: u64,
    reservation: Option<Reservation>,
    cache_status: CacheStatus,
    /// Why it is no hit, or will not be stored.
    reason: Reason,
    /// The node's own head was judged.
    node_judged: bool,
    /// What is to be stored is fed from the node's own body.
    apart: bool,
    /// The length that the node gave its body, and how much of it has come.
    node_length: Option<u64>,
    node_sent: u64,
    rpc_method: Vec<u8>,
    batch_size: Option<usize>,
    /// Of these, answers that came from the cache.
    batch_hits: usize,
    /// What a single answer is stored under.
    key: Option<[u8; 32]>,
    /// What it changes.
    changing: Option<Box<changing::Changing>>,
    /// What it waits for, and under which name.
    waiting: Option<Box<caching::Waiting>>,
    /// Under which name it waits for what the owner of a store has of a batch.
    waiting_for_all: Option<Waiter>,
    /// What that had, if it was asked.
    of_owner: Option<Box<batch::OfOwner>>,
    /// What a batch waits for that other requests fetch, and under which name.
    waiting_for_flights: Option<Box<(Waiter, caching::Since)>>,
    /// What may be sent in place of the node's answer.
    stand_in: Option<standing_in::StandIn>,
    /// How the node failed, as the host has said.
    failed: Option<standing_in::Failed>,
    /// The status of the node's answer that another one stands in for.
    forward_status: Option<u16>,
    /// As what a stored answer is given out.
    given_as: CacheStatus,
    /// What will be stored when the answer is whole.
    fill: Option<Box<Fill>>,
    /// What another exchange is to fetch.
    update: Option<Box<Fill>>,
    /// It only fetches what is to be stored: there is no client.
    background: bool,
    /// The batch of which the node was asked a part.
    mixed: Option<Box<batch::Mixed>>,
    /// When it was looked up, and what the host said then.
    looked_up_at: u64,
    may_code: bool,
    host_writes_vary: bool,
    /// What is to be decoded.
    decoding: Option<hit::Decoding>,
    /// The status of a stored answer.
    status: u16,
    /// The body of a stored answer.
    stored: Option<Body>,
    /// What of it was decoded.
    lent: Vec<Arc<Lent>>,
    /// And what was put together for it.
    assembled: Option<Reservation>,
}

/// Makes what all exchanges of a process share, and opens what they use, before
/// there may be no memory for it.
pub fn prepare() {
    batch::prepare();
    gzip::prepare();
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
            delimited: true,
            encoder: None,
            encoded: 0,
            sent: 0,
            body: Vec::new(),
            coded: Vec::new(),
            received: 0,
            reservation: None,
            cache_status: CacheStatus::None,
            reason: Reason::None,
            node_judged: false,
            apart: false,
            node_length: None,
            node_sent: 0,
            rpc_method: Vec::new(),
            batch_size: None,
            batch_hits: 0,
            key: None,
            changing: None,
            waiting: None,
            waiting_for_all: None,
            of_owner: None,
            waiting_for_flights: None,
            stand_in: None,
            failed: None,
            forward_status: None,
            given_as: CacheStatus::Hit,
            fill: None,
            update: None,
            background: false,
            mixed: None,
            looked_up_at: 0,
            decoding: None,
            may_code: false,
            host_writes_vary: false,
            status: 0,
            stored: None,
            lent: Vec::new(),
            assembled: None,
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
                vary::without(std::iter::once(&vary[..]), &edit.name)
            })
    }

    /// The status of a stored answer that is to be sent; 0: the status is the
    /// node's.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Bytes to send right after the head, in pieces: the whole body in
    /// `Ready`, what was collected in `Passing`. They live as long as the
    /// exchange.
    pub fn body(&self) -> impl Iterator<Item = &[u8]> {
        let own: &[u8] = match self.state {
            State::Ready | State::Passing => &self.body,
            _ => &[],
        };
        let stored = self.stored.iter().flat_map(Body::slices);
        std::iter::once(own)
            .chain(stored)
            .filter(|piece| !piece.is_empty())
    }

    /// Bytes of the body before it was coded, held, streamed or stored, for
    /// ratios.
    pub fn received(&self) -> u64 {
        match &self.stored {
            Some(body) if self.state == State::Ready && self.body.is_empty() => body.plain_length(),
            _ => self.received,
        }
    }

    /// Bytes of the body as it was or will be sent.
    pub fn sent(&self) -> u64 {
        match self.state {
            State::Ready => match &self.stored {
                Some(body) => body.length(),
                None => self.body.len() as u64,
            },
            _ => self.sent,
        }
    }

    /// The client's request head.
    ///
    /// # Errors
    /// [`Misuse`] unless it is the first call.
    pub fn request_head<'a, I>(&mut self, head: RequestHead<'_, I>) -> Result<(), Misuse>
    where
        I: Iterator<Item = Field<'a>>,
    {
        self.move_on(Event::RequestHead)?;
        let caches = self.config.enable && self.config.cache.enable;
        self.request = Request::read(head, caches);
        if self.config.enable
            && !self.request.untouched
            && self.config.upstream_encoding == UpstreamEncoding::Identity
        {
            self.upstream_edits
                .push(HeadEdit::set("Accept-Encoding", b"identity"));
        }
        Ok(())
    }

    /// The response head, final (not 1xx other than 101).
    ///
    /// # Errors
    /// [`Misuse`] unless it follows the request head.
    pub fn response_head<'a, I>(&mut self, head: ResponseHead<I>) -> Result<HeadAction, Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        if self.state != State::AwaitingHead {
            return Err(self.misuse(Event::HeadToPass));
        }
        panic_if(Fault::PanicHead);
        if self.background {
            return self.judge_update(head);
        }
        if !self.node_judged {
            self.has_changed(&head);
            self.judge_storing(&head);
        }
        if self.task == Task::Replace {
            self.move_on(Event::HeadToHold)?;
            return Ok(HeadAction::Hold);
        }
        self.cache_status_edit(&head);
        match self.judge(head) {
            Ok(HeadAction::Stream) => {
                self.move_on(Event::HeadToStream)?;
                Ok(HeadAction::Stream)
            }
            Ok(action) => {
                self.move_on(Event::HeadToHold)?;
                Ok(action)
            }
            Err(reason) => {
                self.move_on(Event::HeadToPass)?;
                self.mode = reason;
                Ok(self.tee_or_pass())
            }
        }
    }

    /// For how long the head, or what the encoder keeps of a stream, may be
    /// held, in milliseconds; `None`: until the body ends.
    pub fn hold_ms(&self) -> Option<u64> {
        match self.state {
            State::Streaming => Some(self.config.hold_ms),
            State::Collecting if self.in_window() => Some(self.config.hold_ms),
            _ => None,
        }
    }

    /// A piece of the held body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn piece(&mut self, piece: &[u8]) -> Result<PieceAction, Misuse> {
        if self.state == State::Collecting {
            if self.task == Task::Replace {
                return Ok(PieceAction::Taken);
            }
            if self.mixed.is_some() {
                return self.piece_of_mixed(piece);
            }
            match self.make_room(self.body.len() + piece.len()) {
                Ok(()) => {}
                Err(_) if self.in_window() => return self.start_stream(),
                Err(reason) => {
                    self.give_up(reason)?;
                    return Ok(PieceAction::GiveUp);
                }
            }
            self.move_on(Event::Piece)?;
            panic_if(Fault::PanicBody);
            self.body.extend_from_slice(piece);
            self.received = self.body.len() as u64;
            return Ok(PieceAction::Taken);
        }
        Err(self.misuse(Event::Piece))
    }

    /// The time to hold a head is over, or the node flushes what it has sent.
    /// [`PieceAction::Taken`] means to go on holding: the body's length is
    /// known, or it can't be sent before its end.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn release(&mut self) -> Result<PieceAction, Misuse> {
        if self.state == State::Collecting && !self.in_window() {
            return Ok(PieceAction::Taken);
        }
        self.start_stream()
    }

    /// Whether it is a body of unknown length that is held in the hope of its
    /// end.
    fn in_window(&self) -> bool {
        self.declared.is_none() && matches!(self.task, Task::Gzip { .. })
    }

    /// Leaves the answer alone from here on: the original is to be sent. There
    /// is none of a batch that has to be put together and for which memory is
    /// refused: [`State::Cut`] then; or [`State::Collecting`], if its head was
    /// still to come: as after [`HeadAction::Hold`], and its end is a failure.
    ///
    /// # Errors
    /// [`Misuse`] once the answer is decided.
    pub fn give_up(&mut self, reason: Mode) -> Result<(), Misuse> {
        if self.state == State::AwaitingHead && self.task == Task::Replace {
            // the head that was to be judged is sent to nobody
            return self.move_on(Event::HeadToHold);
        }
        if self.state == State::AwaitingHead {
            // a judgement that was not finished has no say
            self.head_edits.clear();
            self.varies = false;
        }
        if self.state == State::AwaitingHead && self.mixed.is_some() {
            // the node is asked for a part, which must not look like all
            self.task = Task::Merge {
                gunzip: false,
                unreadable: true,
            };
            self.mode = reason;
            self.refuse_fill();
            return self.move_on(Event::HeadToHold);
        }
        if self.state.after(Event::GiveUp).is_none() {
            return Err(self.misuse(Event::GiveUp));
        }
        // a piece that came only in part is not the caller's to repeat
        self.body
            .truncate(usize::try_from(self.received).unwrap_or(usize::MAX));
        if self.mixed.is_some() && self.open_what_was_held().is_err() {
            return self.cut_short();
        }
        self.move_on(Event::GiveUp)?;
        self.mode = reason;
        self.refuse_fill();
        Ok(())
    }

    /// The host saw the end of the body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn end(&mut self) -> Result<EndAction, Misuse> {
        if self.state != State::Collecting {
            return Err(self.misuse(Event::End));
        }
        let length = self.body.len();
        let merges_nothing = match self.task {
            Task::Merge { unreadable, .. } => unreadable || !self.is_whole(),
            _ => false,
        };
        if merges_nothing || self.declared.is_some_and(|declared| length < declared) {
            self.cut_short()?;
            return Ok(EndAction::Fail);
        }
        if self.in_window() && !self.is_whole() {
            if self.is_below_gate(length as u64) {
                self.give_up(Mode::TooSmall)?;
                return Ok(EndAction::GiveUp);
            }
            return Ok(match self.start_stream()? {
                PieceAction::Stream => EndAction::Stream,
                _ => EndAction::GiveUp,
            });
        }
        self.move_on(Event::End)?;
        let work = match self.task {
            // what is short may be long when it is decoded
            Task::Gunzip | Task::Merge { gunzip: true, .. } => {
                let most = usize::try_from(self.config.max_oneshot).unwrap_or(usize::MAX);
                inflate::claimed_length(&self.body).min(most).max(length)
            }
            _ => length,
        };
        if let Some(reservation) = &mut self.reservation {
            // there will be no encoder
            reservation.shrink_to(self.body.capacity() + length);
        }
        self.make_room_for_code();
        Ok(EndAction::Code {
            off_loop: (work as u64).saturating_add(self.merging_length())
                > off_loop_length(self.config.comp_level) as u64,
        })
    }

    /// The same where [`end`](Self::end) has failed: what is whole is sent as
    /// it came.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn end_without_coding(&mut self) -> Result<EndAction, Misuse> {
        let length = self.body.len();
        if self.declared.is_some_and(|declared| length < declared) {
            self.cut_short()?;
            return Ok(EndAction::Fail);
        }
        self.give_up(Mode::Failed)?;
        Ok(EndAction::GiveUp)
    }

    /// Whether a body of unknown length is known to have ended.
    fn is_whole(&self) -> bool {
        self.delimited || json::closes(&self.body)
    }

    /// The node went away while the head is held, or while its body streams.
    /// What was collected is of no use to anybody and is freed.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held or the body streams.
    pub fn cut_short(&mut self) -> Result<(), Misuse> {
        self.move_on(Event::CutShort)?;
        self.free_all();
        Ok(())
    }

    fn free_all(&mut self) {
        self.mode = Mode::Cut;
        self.fill = None;
        self.body = Vec::new();
        self.encoder = None;
        self.reservation = None;
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
