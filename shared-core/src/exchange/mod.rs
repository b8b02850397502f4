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
mod held;
mod hit;
mod judgement;
mod node;
mod phase;
mod resource;
mod standing_in;
mod streaming;
pub mod transitions;
mod update;
mod waits;

use std::fmt;
use std::sync::Arc;

use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::config::{Config, UpstreamEncoding};
use crate::faults::{panic_if, Fault};
use crate::gzip;
use crate::gzip::splice::Body;
use crate::mode::Mode;
use crate::negotiate::vary;

use caching::Looked;
pub use caching::{Asked, LookUp};
use coding::off_loop_length;
pub use fill::Fill;
use head::{Coding, Request};
pub use head::{Field, HeadEdit, RequestHead, ResponseHead};
use held::Held;
use judgement::Judged;
use node::Storing;
use phase::Phase;
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
    /// There is nothing to code: send the head, and the body as it is.
    Send,
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

/// One exchange. See the [module's](self) theory of operation.
#[derive(Debug)]
pub struct Exchange {
    config: Arc<Config>,
    phase: Phase,
    mode: Mode,
    request: Request,
    upstream_edits: Vec<HeadEdit>,
    head_edits: Vec<HeadEdit>,
    varies: bool,
    /// Bytes of the body that came, and that the client got.
    received: u64,
    sent: u64,
    /// What of a batch the node gets. It lives as long as the exchange.
    request_body: Vec<u8>,
    cache_status: CacheStatus,
    /// Why it is no hit, or will not be stored.
    reason: Reason,
    looked: Looked,
    storing: Storing,
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
            phase: Phase::Start,
            mode: Mode::Off,
            request: Request::default(),
            upstream_edits: Vec::new(),
            head_edits: Vec::new(),
            varies: false,
            received: 0,
            sent: 0,
            request_body: Vec::new(),
            cache_status: CacheStatus::None,
            reason: Reason::None,
            looked: Looked::default(),
            storing: Storing::default(),
        }
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
        self.answer().map_or(0, |answer| answer.status)
    }

    /// Bytes to send right after the head, in pieces: the whole body in
    /// `Ready`, what was collected in `Passing`. They live as long as the
    /// exchange.
    pub fn body(&self) -> impl Iterator<Item = &[u8]> {
        let (own, stored): (&[u8], _) = match &self.phase {
            Phase::Ready(answer) | Phase::Replacing(answer) => (&answer.body, &answer.stored),
            Phase::Passing(held) => (&held.body, &None),
            _ => (&[], &None),
        };
        let stored = stored.iter().flat_map(Body::slices);
        std::iter::once(own)
            .chain(stored)
            .filter(|piece| !piece.is_empty())
    }

    /// Bytes of the body before it was coded, held, streamed or stored, for
    /// ratios.
    pub fn received(&self) -> u64 {
        match &self.phase {
            Phase::Ready(answer) if answer.body.is_empty() => {
                let stored = answer.stored.as_ref();
                stored.map_or(self.received, Body::plain_length)
            }
            _ => self.received,
        }
    }

    /// Bytes of the body as it was or will be sent.
    pub fn sent(&self) -> u64 {
        match &self.phase {
            Phase::Ready(answer) => match &answer.stored {
                Some(body) => body.length(),
                None => answer.body.len() as u64,
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
        self.move_on(Event::RequestHead, |_| Phase::AwaitingHead)?;
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
        self.stop_waiting();
        if !self.awaits_head() {
            return Err(self.misuse(Event::HeadToPass));
        }
        panic_if(Fault::PanicHead);
        if let Phase::AwaitingUpdate = self.phase {
            return self.judge_update(head);
        }
        if !self.storing.is_judged {
            self.has_changed(&head);
            self.judge_storing(&head);
        }
        if let Phase::Replacing(_) = self.phase {
            self.allows(Event::HeadToHold)?;
            return Ok(HeadAction::Hold);
        }
        self.cache_status_edit(&head);
        match self.judge(&head) {
            Ok(Judged::Stream(stream)) => {
                self.move_on(Event::HeadToStream, |_| Phase::Streaming(stream))?;
                Ok(HeadAction::Stream)
            }
            Ok(Judged::Hold(whole)) => {
                self.move_on(Event::HeadToHold, |_| Phase::Collecting(whole))?;
                Ok(HeadAction::Hold)
            }
            Ok(Judged::Merge) => {
                self.move_on(Event::HeadToMerge, Phase::collecting_part)?;
                Ok(HeadAction::Hold)
            }
            Err(reason) => {
                self.pass(Event::HeadToPass, Held::of(&head), reason)?;
                Ok(self.tee_or_pass())
            }
        }
    }

    /// Whether a response head is what comes next.
    fn awaits_head(&self) -> bool {
        use Phase::{AwaitingHead, AwaitingPart, AwaitingUpdate, Replacing};
        matches!(
            self.phase,
            AwaitingHead | AwaitingPart(_) | AwaitingUpdate | Replacing(_)
        )
    }

    /// From here on what comes goes through.
    fn pass(&mut self, event: Event, held: Held, reason: Mode) -> Result<(), Misuse> {
        self.move_on(event, |_| Phase::Passing(Box::new(held)))?;
        self.mode = reason;
        Ok(())
    }

    /// For how long the head, or what the encoder keeps of a stream, may be
    /// held, in milliseconds; `None`: until the body ends.
    pub fn hold_ms(&self) -> Option<u64> {
        match &self.phase {
            Phase::Streaming(_) => Some(self.config.hold_ms),
            Phase::Collecting(whole) if whole.is_in_window() => Some(self.config.hold_ms),
            _ => None,
        }
    }

    /// A piece of the held body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn piece(&mut self, piece: &[u8]) -> Result<PieceAction, Misuse> {
        self.allows(Event::Piece)?;
        let whole = match &mut self.phase {
            Phase::Collecting(whole) => whole,
            Phase::CollectingPart(_) => return self.piece_of_part(piece),
            // what replaces the node's answer is there
            Phase::Replacing(_) => return Ok(PieceAction::Taken),
            _ => return Err(self.misuse(Event::Piece)),
        };
        match whole.make_room(&self.config, whole.held.body.len() + piece.len()) {
            Ok(()) => {}
            Err(_) if whole.is_in_window() => return self.start_stream(),
            Err(reason) => {
                self.give_up(reason)?;
                return Ok(PieceAction::GiveUp);
            }
        }
        panic_if(Fault::PanicBody);
        whole.held.body.extend_from_slice(piece);
        self.received = whole.held.body.len() as u64;
        Ok(PieceAction::Taken)
    }

    /// The time to hold a head is over, or the node flushes what it has sent.
    /// [`PieceAction::Taken`] means to go on holding: the body's length is
    /// known, or it can't be sent before its end.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn release(&mut self) -> Result<PieceAction, Misuse> {
        match &self.phase {
            Phase::CollectingPart(_) | Phase::Replacing(_) => Ok(PieceAction::Taken),
            Phase::Collecting(whole) if !whole.is_in_window() => Ok(PieceAction::Taken),
            _ => self.start_stream(),
        }
    }

    /// Leaves the answer alone from here on: the original is to be sent. There
    /// is none of a batch that has to be put together and for which memory is
    /// refused: [`State::Cut`] then; or [`State::CollectingPart`], if its head was
    /// still to come: as after [`HeadAction::Hold`], and its end is a failure.
    ///
    /// # Errors
    /// [`Misuse`] once the answer is decided.
    pub fn give_up(&mut self, reason: Mode) -> Result<(), Misuse> {
        self.stop_waiting();
        match &mut self.phase {
            // the head that was to be judged is sent to nobody
            Phase::Replacing(_) => return Ok(()),
            Phase::AwaitingHead | Phase::AwaitingPart(_) | Phase::AwaitingUpdate => {
                // a judgement that was not finished has no say
                self.head_edits.clear();
                self.varies = false;
            }
            _ => {}
        }
        self.allows(Event::GiveUp)?;
        if self.open_what_was_held().is_err() {
            return self.cut_short();
        }
        match &mut self.phase {
            Phase::Decoding(_) => {
                self.forget_look_up();
                return self.move_on(Event::GiveUp, |_| Phase::AwaitingHead);
            }
            // the node is asked for a part, which must not look like all
            Phase::AwaitingPart(mixed) => mixed.coding = Coding::Other,
            // a piece that came only in part is not the caller's to repeat
            Phase::Collecting(whole) | Phase::Coding(whole) => {
                let received = usize::try_from(self.received).unwrap_or(usize::MAX);
                whole.held.body.truncate(received);
            }
            _ => {}
        }
        self.move_on(Event::GiveUp, Phase::given_up)?;
        self.mode = reason;
        self.refuse_fill();
        Ok(())
    }

    /// The host saw the end of the body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn end(&mut self) -> Result<EndAction, Misuse> {
        let whole = match &mut self.phase {
            Phase::Collecting(whole) => whole,
            Phase::CollectingPart(_) => return self.end_of_part(),
            Phase::Replacing(_) => {
                self.move_on(Event::End, Phase::ended)?;
                return Ok(EndAction::Send);
            }
            _ => return Err(self.misuse(Event::End)),
        };
        if whole.held.is_short() {
            self.cut_short()?;
            return Ok(EndAction::Fail);
        }
        if whole.is_in_window() && !whole.held.is_whole() {
            if whole.is_below_gate(&self.config, whole.held.body.len()) {
                self.give_up(Mode::TooSmall)?;
                return Ok(EndAction::Send);
            }
            return Ok(match self.start_stream()? {
                PieceAction::Stream => EndAction::Stream,
                _ => EndAction::Send,
            });
        }
        let work = whole.work(&self.config);
        whole.make_room_for_code();
        self.move_on(Event::End, Phase::ended)?;
        Ok(EndAction::Code {
            off_loop: work > off_loop_length(self.config.comp_level),
        })
    }

    /// The same where [`end`](Self::end) has failed: what is whole is sent as
    /// it came.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn end_without_coding(&mut self) -> Result<EndAction, Misuse> {
        let held = match &self.phase {
            Phase::Collecting(whole) | Phase::Coding(whole) => Some(&whole.held),
            _ => self.mixed().map(|mixed| &mixed.held),
        };
        if held.is_some_and(Held::is_short) {
            self.cut_short()?;
            return Ok(EndAction::Fail);
        }
        self.give_up(Mode::Failed)?;
        Ok(EndAction::Send)
    }

    /// The node went away while the head is held, or while its body streams.
    /// What was collected is of no use to anybody and is freed.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held or the body streams.
    pub fn cut_short(&mut self) -> Result<(), Misuse> {
        self.move_on(Event::CutShort, |_| Phase::Cut)?;
        self.mode = Mode::Cut;
        self.storing.fill = None;
        Ok(())
    }
}
