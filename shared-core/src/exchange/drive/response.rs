//! Response phase of the driver: from the upstream's head to the end of the body.

use super::{ExchangeDriver, ExchangeFailureReason, HostStep, OffLoopJob, OtherFiltersEffect};
use crate::cache::reason::Reason;
use crate::cache::use_stale::UpstreamFailure;
use crate::exchange::drive::step::{build_fill_or_defer, run_pending_exchange_work};
use crate::exchange::machine::actions::{
    BodyEndAction, BodyPieceAction, HostMisuse, ResponseHeadAction,
};
use crate::exchange::machine::message_head::{Header, ResponseHead};
use crate::exchange::machine::transitions::{ExchangeEvent, ExchangeState};
use crate::exchange::machine::Exchange;
use crate::exchange::response::stream_encoder::BodyStreamError;
use crate::gzip::stream::{EncodeProgress, FlushMode};
use crate::panics::catch_panic;
use crate::response_mode::ResponseMode;

/// Passes a piece of the upstream's body to the search for new blocks. A panic there does not
/// affect the response.
fn observe_upstream_blocks(exchange: &mut Exchange, piece: &[u8]) {
    if catch_panic(|| exchange.observe_block_piece(piece)).is_none() {
        exchange.watched = None;
    }
}

impl ExchangeDriver {
    /// Reports that the upstream failed the request, before the head of the response that the
    /// client would get. Returns whether a stored response will be sent in place of the response
    /// with that head.
    pub fn handle_upstream_failure(&mut self, failure: UpstreamFailure, now: u64) -> bool {
        self.available_exchange_mut()
            .is_some_and(|exchange| exchange.handle_upstream_failure(failure, now))
    }

    /// Whether the client gets a response although the upstream failed before its head; see
    /// [`Exchange::can_respond_without_node`].
    pub fn can_respond_without_upstream(&self, failure: UpstreamFailure) -> bool {
        let exchange = self.available_exchange();
        exchange.is_some_and(|exchange| exchange.can_respond_without_node(failure))
    }

    /// Handles the head as the upstream sent it; see [`Exchange::evaluate_upstream_head`]. Returns
    /// whether a stored response replaces the upstream's. If the status is an error and
    /// [`handle_upstream_failure`](Self::handle_upstream_failure) was not called, the upstream has
    /// failed with `failure`.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn handle_upstream_head<'a, I>(
        &mut self,
        head: ResponseHead<I>,
        failure: UpstreamFailure,
        now: u64,
    ) -> Result<bool, HostMisuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let exchange = self.exchange_or_misuse(ExchangeEvent::HeadToPass)?;
        // all pieces of a background update are reported as the upstream sent them
        let shows_both = exchange.exchange_state() != ExchangeState::AwaitingUpdate;
        let judged = catch_panic(|| {
            if head.status >= 400 && !exchange.has_upstream_failed() {
                exchange.handle_upstream_failure(failure, now);
            }
            exchange.evaluate_upstream_head(head)
        });
        let judged = judged.unwrap_or_else(|| {
            // the response is not stored, and is sent
            exchange.reject_storage(Reason::Memory);
            Ok(false)
        });
        self.node_sent = shows_both.then_some(0);
        judged
    }

    /// Records whether the host's other filters change the body of a response, and whether they
    /// compress it; and whether its head has a `Content-Length`. Called when the response's head
    /// is about to be evaluated, or a stored response to be sent. Returns the changes that the
    /// exchange has to expect.
    pub fn record_host_filter_effect(
        &mut self,
        changes: bool,
        codes: bool,
        has_length: bool,
    ) -> OtherFiltersEffect {
        let Some(exchange) = &mut self.available_exchange else {
            return OtherFiltersEffect::None;
        };
        let filters = &exchange.route_config.filters;
        // a filter that was detected before may not be visible in this response
        self.is_changed = changes || !has_length && filters.has_detected_filter();
        if !self.is_changed {
            filters.record_unchanged_body();
            return OtherFiltersEffect::None;
        }
        // a filter that compresses is visible in the head: no reason to send stored entries
        // unchanged
        self.is_news |= !codes && filters.record_filter_changed_body();
        if exchange.stored_response_status() == 0 {
            exchange.switch_fill_to_upstream();
        }
        match exchange.is_fill_from_upstream() {
            true => OtherFiltersEffect::SeparateCopy,
            false => OtherFiltersEffect::BodyChanged,
        }
    }

    /// Applies the headers of a stored response as the host's filters have left them. If other
    /// filters change its body, it is sent in identity. The host has to read the head edits and the
    /// body again. `false` if there is no memory for that.
    pub fn apply_filtered_hit_head<'a>(
        &mut self,
        fields: impl Iterator<Item = Header<'a>> + Clone,
    ) -> bool {
        let is_changed = self.is_changed;
        let Some(exchange) = self.available_exchange_mut() else {
            return false;
        };
        exchange.apply_filtered_hit_head(fields);
        !is_changed || exchange.replace_body_by_identity_for_filters()
    }

    /// Whether this exchange was the first to detect that other filters change bodies at this
    /// route. Called before the response and after it; returns `true` once.
    pub fn take_new_filter_detection(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// Handles `length` bytes of the body as the upstream sent it, before other filters changed it,
    /// with the bytes if they are in memory; `is_last` marks the end. A host that can't distinguish
    /// them does not call this. Returns a job as
    /// [`handle_response_sent`](Self::handle_response_sent) does.
    pub fn handle_upstream_piece(
        &mut self,
        piece: Option<&[u8]>,
        length: u64,
        is_last: bool,
        now: u64,
    ) -> Option<OffLoopJob> {
        let exchange = self.available_exchange.as_mut()?;
        if let (Some(piece), true) = (piece, exchange.is_fill_from_upstream()) {
            observe_upstream_blocks(exchange, piece);
        }
        if !exchange.is_fill_from_upstream() {
            self.node_sent = self.node_sent.map(|sent| sent.saturating_add(length));
            return None;
        }
        let fill = catch_panic(|| {
            match piece {
                Some(piece) => exchange.copy_upstream_piece_into_fill(piece),
                None if length > 0 => exchange.reject_storage(Reason::Filtered),
                None => {}
            }
            is_last.then(|| exchange.take_upstream_fill()).flatten()
        });
        build_fill_or_defer(fill??, now)
    }

    /// Evaluates the response head, and returns the step that decides how the body is sent.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn handle_response_head<'a, I>(
        &mut self,
        head: ResponseHead<I>,
    ) -> Result<HostStep, HostMisuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        self.is_forwarded = true;
        let exchange = self.exchange_or_misuse(ExchangeEvent::HeadToPass)?;
        match catch_panic(|| exchange.evaluate_response_head(head)) {
            Some(judged) => Ok(match judged? {
                ResponseHeadAction::Pass => HostStep::Pass,
                ResponseHeadAction::Tee => HostStep::Observe,
                ResponseHeadAction::Buffer => HostStep::Buffer,
                ResponseHeadAction::Stream => HostStep::Stream,
                ResponseHeadAction::Fail => HostStep::Fail(ExchangeFailureReason::Protocol),
            }),
            None => self.send_original_response(ResponseMode::Failed),
        }
    }

    /// Handles a response head that the host has no memory to represent.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn handle_head_without_memory(&mut self) -> Result<HostStep, HostMisuse> {
        self.is_forwarded = true;
        self.send_original_response(ResponseMode::Memory)
    }

    /// Sends the original after a failure at the response head.
    fn send_original_response(&mut self, reason: ResponseMode) -> Result<HostStep, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::SendOriginal)?;
        exchange.send_original_response(reason)?;
        Ok(match exchange.exchange_state() {
            // its end is a failure, or the end of a stored response
            ExchangeState::BufferingPart | ExchangeState::DiscardingUpstream => HostStep::Buffer,
            ExchangeState::Aborted => HostStep::Fail(ExchangeFailureReason::Judgement),
            _ => HostStep::Pass,
        })
    }

    /// Passes a piece of the body to the exchange, which copies it, and returns the next step.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a piece is expected.
    pub fn handle_body_piece(&mut self, piece: &[u8]) -> Result<HostStep, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Piece)?;
        if !exchange.is_fill_from_upstream() {
            observe_upstream_blocks(exchange, piece);
        }
        if exchange.exchange_state() == ExchangeState::Passing {
            if catch_panic(|| exchange.observe_passed_piece(piece)).is_none() {
                exchange.discard_fill();
            }
            return Ok(HostStep::Await);
        }
        let taken = catch_panic(|| exchange.buffer_body_piece(piece));
        self.step_after_piece(taken)
    }

    /// Ends the buffering of a head, when its [timer](Self::next_timeout_ms) expires or the
    /// upstream flushes.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a head is withheld.
    pub fn end_buffering(&mut self) -> Result<HostStep, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::StartStream)?;
        let released = catch_panic(|| exchange.end_buffering());
        self.step_after_piece(released)
    }

    /// Returns the step after a piece or the end of the buffering; the original is sent after a
    /// panic.
    fn step_after_piece(
        &mut self,
        taken: Option<Result<BodyPieceAction, HostMisuse>>,
    ) -> Result<HostStep, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Piece)?;
        let taken = match taken {
            Some(taken) => taken?,
            None => {
                exchange.send_original_response(ResponseMode::Failed)?;
                BodyPieceAction::SendOriginal
            }
        };
        match exchange.exchange_state() {
            ExchangeState::Aborted => {
                return Ok(HostStep::Fail(ExchangeFailureReason::from_response_mode(
                    exchange.response_mode,
                )))
            }
            // the error that was set replaces the rest of the body
            ExchangeState::DiscardingUpstream => return Ok(HostStep::Await),
            _ => {}
        }
        Ok(match taken {
            BodyPieceAction::Buffered => HostStep::Await,
            BodyPieceAction::SendOriginal => HostStep::SendThenPass,
            BodyPieceAction::Stream => HostStep::Stream,
        })
    }

    /// Handles the end of a body whose head is withheld, as far as the host can detect it.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a head is withheld.
    pub fn handle_body_end(&mut self) -> Result<HostStep, HostMisuse> {
        self.detect_filter_by_length();
        let exchange = self.exchange_or_misuse(ExchangeEvent::End)?;
        let failure = match exchange.response_mode {
            ResponseMode::Memory => ExchangeFailureReason::Memory,
            _ => ExchangeFailureReason::Short,
        };
        let ended = match catch_panic(|| exchange.complete_buffered_body()) {
            Some(ended) => ended?,
            None => exchange.complete_body_after_failure()?,
        };
        Ok(match ended {
            BodyEndAction::Fail => HostStep::Fail(failure),
            _ if exchange.exchange_state() == ExchangeState::Aborted => HostStep::Fail(
                ExchangeFailureReason::from_response_mode(exchange.response_mode),
            ),
            BodyEndAction::Stream => HostStep::Stream,
            BodyEndAction::Send => HostStep::Send,
            BodyEndAction::Code { off_loop: true } => self.start_exchange_job(),
            BodyEndAction::Code { off_loop: false } => {
                run_pending_exchange_work(exchange);
                self.step_after_job()
            }
        })
    }

    /// Handles a response that the upstream truncated while its head is withheld, if the host can
    /// still send something: the complete parts of a split batch, or the response that replaces the
    /// upstream's.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a head is withheld.
    pub fn handle_truncated_body(&mut self) -> Result<HostStep, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Truncated)?;
        let ended = match catch_panic(|| exchange.complete_truncated_body()) {
            Some(ended) => ended?,
            None => {
                exchange.abort_response()?;
                BodyEndAction::Fail
            }
        };
        Ok(match ended {
            BodyEndAction::Fail => HostStep::Fail(ExchangeFailureReason::Short),
            BodyEndAction::Stream | BodyEndAction::Send => HostStep::Send,
            BodyEndAction::Code { off_loop: true } => self.start_exchange_job(),
            BodyEndAction::Code { off_loop: false } => {
                run_pending_exchange_work(exchange);
                self.step_after_job()
            }
        })
    }

    /// Aborts the response because the upstream disconnected while a head is withheld or a body is
    /// streamed. The bytes that were sent must not look like a complete response.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a head is withheld or a body is streamed.
    pub fn abort_response(&mut self) -> Result<(), HostMisuse> {
        self.exchange_or_misuse(ExchangeEvent::Truncated)?
            .abort_response()
    }

    /// Compresses the buffered bytes and then `piece` into `output`; see
    /// [`Exchange::encode_stream_piece`].
    ///
    /// # Errors
    /// [`BodyStreamError`]: the response must be aborted.
    pub fn encode_body_piece(
        &mut self,
        piece: &[u8],
        flush: FlushMode,
        output: &mut [u8],
    ) -> Result<EncodeProgress, BodyStreamError> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Piece)?;
        let coded = catch_panic(|| exchange.encode_stream_piece(piece, flush, output));
        if let (Some(Ok(progress)), false) = (&coded, exchange.is_fill_from_upstream()) {
            observe_upstream_blocks(exchange, &piece[..progress.consumed]);
        }
        let coded = coded.unwrap_or(Err(BodyStreamError::Encoder))?;
        self.is_flushed = coded.complete && flush != FlushMode::None;
        Ok(coded)
    }
}
