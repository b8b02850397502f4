//! The node's answer, and what becomes of it on its way to the client.

use super::{Beside, Driver, Job, Lack, Step};
use crate::cache::reason::Reason;
use crate::cache::stale::Failure;
use crate::exchange::actions::{EndAction, HeadAction, Misuse, PieceAction};
use crate::exchange::head::{Field, ResponseHead};
use crate::exchange::machine::Exchange;
use crate::exchange::step::{code, stored};
use crate::exchange::stream::StreamFailure;
use crate::exchange::transitions::{Event, State};
use crate::gzip::stream::{Flush, Progress};
use crate::mode::Mode;
use crate::panics::caught;

/// Shows a piece of the node's answer to whoever watches for new blocks. Whatever comes of
/// that, the piece goes on.
fn watch(exchange: &mut Exchange, piece: &[u8]) {
    if caught(|| exchange.watch_piece(piece)).is_none() {
        exchange.watched = None;
    }
}

impl Driver {
    /// The node fails the request like this: to be said before the head of what
    /// the client would get. Whether a stored answer will be sent in place of the
    /// one with that head.
    pub fn fails(&mut self, failure: Failure, now: u64) -> bool {
        self.tell(|exchange| exchange.fails(failure, now))
            .unwrap_or(false)
    }

    /// Whether the client gets an answer though the node has failed like this before its
    /// head; see [`Exchange::answers_without_node`].
    pub fn answers_without_node(&self, failure: Failure) -> bool {
        let exchange = self.exchange();
        exchange.is_some_and(|exchange| exchange.answers_without_node(failure))
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
        if let (Some(piece), true) = (piece, exchange.is_apart()) {
            watch(exchange, piece);
        }
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
                HeadAction::Fail => Step::Fail(Lack::Protocol),
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
        if !exchange.is_apart() {
            watch(exchange, piece);
        }
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

    /// The node has broken its response off while a head is held, and the host may still
    /// send something: what is whole of a split batch, or what stands in for the node's
    /// response.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is held.
    pub fn end_early(&mut self) -> Result<Step, Misuse> {
        let exchange = self.open(Event::CutShort)?;
        let ended = match caught(|| exchange.end_early()) {
            Some(ended) => ended?,
            None => {
                exchange.cut_short()?;
                EndAction::Fail
            }
        };
        Ok(match ended {
            EndAction::Fail => Step::Fail(Lack::Short),
            EndAction::Stream | EndAction::Send => Step::Send,
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
        if let (Some(Ok(progress)), false) = (&coded, exchange.is_apart()) {
            watch(exchange, &piece[..progress.consumed]);
        }
        let coded = coded.unwrap_or(Err(StreamFailure::Encoder))?;
        self.is_flushed = coded.complete && flush != Flush::None;
        Ok(coded)
    }
}
