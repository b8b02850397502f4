//! Response phase of the driver: from the upstream's head to the end of the body.

use super::{Driver, FailureReason, Job, OtherFilters, Step};
use crate::cache::reason::Reason;
use crate::cache::use_stale::UpstreamFailure;
use crate::exchange::actions::{EndAction, HeadAction, Misuse, PieceAction};
use crate::exchange::head::{Header, ResponseHead};
use crate::exchange::machine::Exchange;
use crate::exchange::step::{run_compression, store_or_job};
use crate::exchange::stream_encoder::BodyStreamError;
use crate::exchange::transitions::{Event, State};
use crate::gzip::stream::{Flush, Progress};
use crate::mode::Mode;
use crate::panics::catch_panic;

/// Passes a piece of the upstream's body to the search for new blocks. A panic there does not
/// affect the response.
fn search_blocks(exchange: &mut Exchange, piece: &[u8]) {
    if catch_panic(|| exchange.observe_piece(piece)).is_none() {
        exchange.watched = None;
    }
}

impl Driver {
    /// Reports that the upstream failed the request, before the head of the response that the
    /// client would get. Returns whether a stored response will be sent in place of the response
    /// with that head.
    pub fn upstream_failed(&mut self, failure: UpstreamFailure, now: u64) -> bool {
        self.with_exchange(|exchange| exchange.upstream_failed(failure, now))
            .unwrap_or(false)
    }

    /// Whether the client gets a response although the upstream failed before its head; see
    /// [`Exchange::answers_without_node`].
    pub fn has_response_without_upstream(&self, failure: UpstreamFailure) -> bool {
        let exchange = self.exchange();
        exchange.is_some_and(|exchange| exchange.answers_without_node(failure))
    }

    /// Handles the head as the upstream sent it; see [`Exchange::upstream_head`]. Returns whether a
    /// stored response replaces the upstream's. If the status is an error and
    /// [`upstream_failed`](Self::upstream_failed) was not called, the upstream has failed with
    /// `failure`.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn upstream_head<'a, I>(
        &mut self,
        head: ResponseHead<I>,
        failure: UpstreamFailure,
        now: u64,
    ) -> Result<bool, Misuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let exchange = self.exchange_for(Event::HeadToPass)?;
        // all pieces of a background update are reported as the upstream sent them
        let shows_both = exchange.state() != State::AwaitingUpdate;
        let judged = catch_panic(|| {
            if head.status >= 400 && !exchange.has_failed() {
                exchange.upstream_failed(failure, now);
            }
            exchange.upstream_head(head)
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
    pub fn other_filters(&mut self, changes: bool, codes: bool, has_length: bool) -> OtherFilters {
        let Some(exchange) = &mut self.exchange else {
            return OtherFilters::None;
        };
        let filters = &exchange.config.filters;
        // a filter that was detected before may not be visible in this response
        self.is_changed = changes || !has_length && filters.has_body_filter();
        if !self.is_changed {
            filters.record_unchanged_body();
            return OtherFilters::None;
        }
        // a filter that compresses is visible in the head: no reason to send stored entries
        // unchanged
        self.is_news |= !codes && filters.record_changed_body();
        if exchange.status() == 0 {
            exchange.store_upstream_pieces();
        }
        match exchange.stores_upstream_pieces() {
            true => OtherFilters::SeparateCopy,
            false => OtherFilters::BodyChanged,
        }
    }

    /// Applies the headers of a stored response as the host's filters have left them. If other
    /// filters change its body, it is sent in identity. The host has to read the head edits and the
    /// body again. `false` if there is no memory for that.
    pub fn filtered_hit_head<'a>(
        &mut self,
        fields: impl Iterator<Item = Header<'a>> + Clone,
    ) -> bool {
        let is_changed = self.is_changed;
        let has_memory = self.with_exchange(|exchange| {
            exchange.filtered_hit_head(fields);
            !is_changed || exchange.decompress_body()
        });
        has_memory.unwrap_or(false)
    }

    /// Whether this exchange was the first to detect that other filters change bodies at this
    /// route. Called before the response and after it; returns `true` once.
    pub fn is_new_filter_detection(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// Handles `length` bytes of the body as the upstream sent it, before other filters changed it,
    /// with the bytes if they are in memory; `is_last` marks the end. A host that can't distinguish
    /// them does not call this. Returns a job as [`response_sent`](Self::response_sent) does.
    pub fn upstream_piece(
        &mut self,
        piece: Option<&[u8]>,
        length: u64,
        is_last: bool,
        now: u64,
    ) -> Option<Job> {
        let exchange = self.exchange.as_mut()?;
        if let (Some(piece), true) = (piece, exchange.stores_upstream_pieces()) {
            search_blocks(exchange, piece);
        }
        if !exchange.stores_upstream_pieces() {
            self.node_sent = self.node_sent.map(|sent| sent.saturating_add(length));
            return None;
        }
        let fill = catch_panic(|| {
            match piece {
                Some(piece) => exchange.observe_upstream(piece),
                None if length > 0 => exchange.not_stored(Reason::Filtered),
                None => {}
            }
            is_last.then(|| exchange.take_upstream_fill()).flatten()
        });
        store_or_job(fill??, now)
    }

    /// Evaluates the response head, and returns the step that decides how the body is sent.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn response_head<'a, I>(&mut self, head: ResponseHead<I>) -> Result<Step, Misuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        self.is_forwarded = true;
        let exchange = self.exchange_for(Event::HeadToPass)?;
        match catch_panic(|| exchange.response_head(head)) {
            Some(judged) => Ok(match judged? {
                HeadAction::Pass => Step::Pass,
                HeadAction::Tee => Step::Observe,
                HeadAction::Buffer => Step::Buffer,
                HeadAction::Stream => Step::Stream,
                HeadAction::Fail => Step::Fail(FailureReason::Protocol),
            }),
            None => self.send_original(Mode::Failed),
        }
    }

    /// Handles a response head that the host has no memory to represent.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn response_head_unavailable(&mut self) -> Result<Step, Misuse> {
        self.is_forwarded = true;
        self.send_original(Mode::Memory)
    }

    /// Sends the original after a failure at the response head.
    fn send_original(&mut self, reason: Mode) -> Result<Step, Misuse> {
        let exchange = self.exchange_for(Event::SendOriginal)?;
        exchange.send_original(reason)?;
        Ok(match exchange.state() {
            // its end is a failure, or the end of a stored response
            State::BufferingPart | State::DiscardingUpstream => Step::Buffer,
            State::Aborted => Step::Fail(FailureReason::Judgement),
            _ => Step::Pass,
        })
    }

    /// Passes a piece of the body to the exchange, which copies it, and returns the next step.
    ///
    /// # Errors
    /// [`Misuse`] unless a piece is expected.
    pub fn piece(&mut self, piece: &[u8]) -> Result<Step, Misuse> {
        let exchange = self.exchange_for(Event::Piece)?;
        if !exchange.stores_upstream_pieces() {
            search_blocks(exchange, piece);
        }
        if exchange.state() == State::Passing {
            if catch_panic(|| exchange.observe(piece)).is_none() {
                exchange.discard_fill();
            }
            return Ok(Step::Await);
        }
        let taken = catch_panic(|| exchange.piece(piece));
        self.step_after_piece(taken)
    }

    /// Ends the buffering of a head, when its [timer](Self::next_timeout_ms) expires or the
    /// upstream flushes.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is withheld.
    pub fn end_buffering(&mut self) -> Result<Step, Misuse> {
        let exchange = self.exchange_for(Event::StartStream)?;
        let released = catch_panic(|| exchange.end_buffering());
        self.step_after_piece(released)
    }

    /// Returns the step after a piece or the end of the buffering; the original is sent after a
    /// panic.
    fn step_after_piece(
        &mut self,
        taken: Option<Result<PieceAction, Misuse>>,
    ) -> Result<Step, Misuse> {
        let exchange = self.exchange_for(Event::Piece)?;
        let taken = match taken {
            Some(taken) => taken?,
            None => {
                exchange.send_original(Mode::Failed)?;
                PieceAction::SendOriginal
            }
        };
        match exchange.state() {
            State::Aborted => return Ok(Step::Fail(FailureReason::from_mode(exchange.mode))),
            // the error that was set replaces the rest of the body
            State::DiscardingUpstream => return Ok(Step::Await),
            _ => {}
        }
        Ok(match taken {
            PieceAction::Buffered => Step::Await,
            PieceAction::SendOriginal => Step::SendThenPass,
            PieceAction::Stream => Step::Stream,
        })
    }

    /// Handles the end of a body whose head is withheld, as far as the host can detect it.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is withheld.
    pub fn end(&mut self) -> Result<Step, Misuse> {
        self.compare_with_node();
        let exchange = self.exchange_for(Event::End)?;
        let failure = match exchange.mode {
            Mode::Memory => FailureReason::Memory,
            _ => FailureReason::Short,
        };
        let ended = match catch_panic(|| exchange.end()) {
            Some(ended) => ended?,
            None => exchange.end_uncompressed()?,
        };
        Ok(match ended {
            EndAction::Fail => Step::Fail(failure),
            _ if exchange.state() == State::Aborted => {
                Step::Fail(FailureReason::from_mode(exchange.mode))
            }
            EndAction::Stream => Step::Stream,
            EndAction::Send => Step::Send,
            EndAction::Code { off_loop: true } => self.run_job(),
            EndAction::Code { off_loop: false } => {
                run_compression(exchange);
                self.step_after_job()
            }
        })
    }

    /// Handles a response that the upstream truncated while its head is withheld, if the host can
    /// still send something: the complete parts of a split batch, or the response that replaces the
    /// upstream's.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is withheld.
    pub fn end_truncated(&mut self) -> Result<Step, Misuse> {
        let exchange = self.exchange_for(Event::Truncated)?;
        let ended = match catch_panic(|| exchange.end_truncated()) {
            Some(ended) => ended?,
            None => {
                exchange.abort()?;
                EndAction::Fail
            }
        };
        Ok(match ended {
            EndAction::Fail => Step::Fail(FailureReason::Short),
            EndAction::Stream | EndAction::Send => Step::Send,
            EndAction::Code { off_loop: true } => self.run_job(),
            EndAction::Code { off_loop: false } => {
                run_compression(exchange);
                self.step_after_job()
            }
        })
    }

    /// Aborts the response because the upstream disconnected while a head is withheld or a body is
    /// streamed. The bytes that were sent must not look like a complete response.
    ///
    /// # Errors
    /// [`Misuse`] unless a head is withheld or a body is streamed.
    pub fn abort(&mut self) -> Result<(), Misuse> {
        self.exchange_for(Event::Truncated)?.abort()
    }

    /// Compresses the buffered bytes and then `piece` into `output`; see [`Exchange::stream`].
    ///
    /// # Errors
    /// [`BodyStreamError`]: the response must be aborted.
    pub fn stream(
        &mut self,
        piece: &[u8],
        flush: Flush,
        output: &mut [u8],
    ) -> Result<Progress, BodyStreamError> {
        let exchange = self.exchange_for(Event::Piece)?;
        let coded = catch_panic(|| exchange.stream(piece, flush, output));
        if let (Some(Ok(progress)), false) = (&coded, exchange.stores_upstream_pieces()) {
            search_blocks(exchange, &piece[..progress.consumed]);
        }
        let coded = coded.unwrap_or(Err(BodyStreamError::Encoder))?;
        self.is_flushed = coded.complete && flush != Flush::None;
        Ok(coded)
    }
}
