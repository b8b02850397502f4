//! Response phase of the driver: from the upstream's head to the end of the body.

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

/// Passes a piece of the upstream's body to the search for new blocks. A panic there does not
/// affect the response.
fn watch(exchange: &mut Exchange, piece: &[u8]) {
    if caught(|| exchange.watch_piece(piece)).is_none() {
        exchange.watched = None;
    }
}

impl Driver {
    /// Reports that the upstream failed the request, before the head of the response that the
    /// client would get. Returns whether a stored response will be sent in place of the response
    /// with that head.
    pub fn fails(&mut self, failure: Failure, now: u64) -> bool {
        self.tell(|exchange| exchange.fails(failure, now))
            .unwrap_or(false)
    }

    /// Whether the client gets a response although the upstream failed before its head; see
    /// [`Exchange::answers_without_node`].
    pub fn answers_without_node(&self, failure: Failure) -> bool {
        let exchange = self.exchange();
        exchange.is_some_and(|exchange| exchange.answers_without_node(failure))
    }

    /// Handles the head as the upstream sent it; see [`Exchange::node_head`]. Returns whether a
    /// stored response replaces the upstream's. If the status is an error and
    /// [`fails`](Self::fails) was not called, the upstream has failed with `failure`.
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
        // all pieces of a background update are reported as the upstream sent them
        let shows_both = exchange.state() != State::AwaitingUpdate;
        let judged = caught(|| {
            if head.status >= 400 && !exchange.has_failed() {
                exchange.fails(failure, now);
            }
            exchange.node_head(head)
        });
        let judged = judged.unwrap_or_else(|| {
            // the response is not stored, and is sent
            exchange.not_stored(Reason::Memory);
            Ok(false)
        });
        self.node_sent = shows_both.then_some(0);
        judged
    }

    /// Records whether the host's other filters change the body of a response, and whether they
    /// compress it; and whether its head has a `Content-Length`. Called when the response's head
    /// is about to be evaluated, or a stored response to be sent. Returns the changes that the
    /// exchange has to expect.
    pub fn beside(&mut self, changes: bool, codes: bool, has_length: bool) -> Beside {
        let Some(exchange) = &mut self.exchange else {
            return Beside::Nothing;
        };
        let filters = &exchange.config.filters;
        // a filter that was detected before may not be visible in this response
        self.is_changed = changes || !has_length && filters.change();
        if !self.is_changed {
            filters.saw_no_change();
            return Beside::Nothing;
        }
        // a filter that compresses is visible in the head: no reason to send stored entries
        // unchanged
        self.is_news |= !codes && filters.saw_change();
        if exchange.status() == 0 {
            exchange.keep_apart();
        }
        match exchange.is_apart() {
            true => Beside::Apart,
            false => Beside::Changed,
        }
    }

    /// Applies the headers of a stored response as the host's filters have left them. If other
    /// filters change its body, it is sent in identity. The host has to read the head edits and the
    /// body again. `false` if there is no memory for that.
    pub fn stored_head<'a>(&mut self, fields: impl Iterator<Item = Field<'a>> + Clone) -> bool {
        let is_changed = self.is_changed;
        let has_memory = self.tell(|exchange| {
            exchange.stored_head(fields);
            !is_changed || exchange.uncode()
        });
        has_memory.unwrap_or(false)
    }

    /// Whether this exchange was the first to detect that other filters change bodies at this
    /// route. Called before the response and after it; returns `true` once.
    pub fn is_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// Handles `length` bytes of the body as the upstream sent it, before other filters changed it,
    /// with the bytes if they are in memory; `is_last` marks the end. A host that can't distinguish
    /// them does not call this. Returns a job as [`sent`](Self::sent) does.
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

    /// Handles the response head.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
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

    /// Handles a response head that the host has no memory to represent.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn no_response_head(&mut self) -> Result<Step, Misuse> {
        self.is_forwarded = true;
        self.give_up(Mode::Memory)
    }

    /// Sends the original after a failure at the response head.
    fn give_up(&mut self, reason: Mode) -> Result<Step, Misuse> {
        let exchange = self.open(Event::GiveUp)?;
        exchange.give_up(reason)?;
        Ok(match exchange.state() {
            // its end is a failure, or the end of a stored response
            State::CollectingPart | State::Replacing => Step::Hold,
            State::Cut => Step::Fail(Lack::Judgement),
            _ => Step::Pass,
        })
    }

    /// Handles a piece of the body, which is copied.
    ///
    /// # Errors
    /// [`Misuse`] unless a piece is expected.
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

    /// Ends the buffering of a head, when its [timer](Self::next_timer) expires or the upstream
    /// flushes.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is withheld.
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
            // the error that was set replaces the rest of the body
            State::Replacing => return Ok(Step::Await),
            _ => {}
        }
        Ok(match taken {
            PieceAction::Taken => Step::Await,
            PieceAction::GiveUp => Step::SendThenPass,
            PieceAction::Stream => Step::Stream,
        })
    }

    /// Handles the end of a body whose head is withheld, as far as the host can detect it.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is withheld.
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

    /// Handles a response that the upstream truncated while its head is withheld, if the host can
    /// still send something: the complete parts of a split batch, or the response that replaces the
    /// upstream's.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is withheld.
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

    /// Aborts the response because the upstream disconnected while a head is withheld or a body is
    /// streamed. The bytes that were sent must not look like a complete response.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is withheld or a body is streamed.
    pub fn cut_short(&mut self) -> Result<(), Misuse> {
        self.open(Event::CutShort)?.cut_short()
    }

    /// Compresses the buffered bytes and then `piece` into `output`; see [`Exchange::stream`].
    ///
    /// # Errors
    /// [`StreamFailure`]: the response must be aborted.
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
