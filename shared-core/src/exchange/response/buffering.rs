//! Buffering of a response body, while its head is withheld.

use crate::exchange::machine::actions::{BodyEndAction, BodyPieceAction, HostMisuse};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::faults::{panic_if_injected, InjectedTestFault};
use crate::memory;
use crate::response_mode::ResponseMode;

/// Bytes of a long body that are read at once: reading 4 KiB at a time takes 50 % longer, and 64
/// KiB 20 %.
const READ_SIZE: usize = 256 << 10;

/// Bytes that are read at once of a body of unknown length.
const CHUNKED_READ_SIZE: usize = 64 << 10;

impl Exchange {
    /// Time for which the head may be withheld, or the encoder may hold back bytes of a stream,
    /// in milliseconds; `None` until the body ends.
    pub fn buffering_timeout_ms(&self) -> Option<u64> {
        match &self.phase {
            ExchangePhase::Streaming(_) => Some(self.route_config.hold_ms),
            ExchangePhase::Buffering(whole) if whole.is_in_buffering_window() => {
                Some(self.route_config.hold_ms)
            }
            _ => None,
        }
    }

    /// Number of bytes of a buffered body that should be read at once; `None` for the host's
    /// default. A transcoder is faster with long pieces.
    pub fn body_read_size(&self) -> Option<usize> {
        let ExchangePhase::Buffering(whole) = &self.phase else {
            return None;
        };
        whole.stages.transcoding.as_ref()?;
        match whole.buffered.declared {
            Some(declared) => Some(READ_SIZE).filter(|size| declared > *size),
            None => Some(CHUNKED_READ_SIZE),
        }
    }

    /// Adds a piece to the body whose head is withheld, and returns whether the buffering
    /// continues.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the head is withheld.
    pub fn buffer_body_piece(&mut self, piece: &[u8]) -> Result<BodyPieceAction, HostMisuse> {
        self.checked_state_after_event(ExchangeEvent::Piece)?;
        let whole = match &mut self.phase {
            ExchangePhase::Buffering(whole) => whole,
            ExchangePhase::BufferingPart(_) => return self.buffer_upstream_part_piece(piece),
            // the response that replaces the upstream's is complete
            ExchangePhase::DiscardingUpstream(_) => return Ok(BodyPieceAction::Buffered),
            _ => return Err(self.misuse_for_event(ExchangeEvent::Piece)),
        };
        let transcodes = whole.stages.transcoding.is_some();
        let length = match transcodes {
            true => self.received + piece.len() as u64,
            false => (whole.buffered.body.len() + piece.len()) as u64,
        };
        if whole.exceeds_length_limit(length) {
            return self.discard_overlong_upstream_body();
        }
        if transcodes {
            return self.convert_body_piece(piece);
        }
        match whole
            .reserve_received_length(&self.route_config, whole.buffered.body.len() + piece.len())
        {
            Ok(()) => {}
            Err(_) if whole.is_in_buffering_window() => return self.start_streaming(),
            // a body that can't be buffered can't be measured
            Err(_) if whole.most.is_some() => return self.discard_overlong_upstream_body(),
            // not if the system is out of memory: the rest is for allocations that can't fail
            Err(ResponseMode::Memory)
                if whole.can_compress_as_stream() && !memory::is_memory_short() =>
            {
                return self.start_streaming()
            }
            Err(reason) => {
                self.send_original_response(reason)?;
                return Ok(BodyPieceAction::SendOriginal);
            }
        }
        panic_if_injected(InjectedTestFault::PanicBody);
        whole.buffered.body.extend_from_slice(piece);
        self.received = whole.buffered.body.len() as u64;
        Ok(BodyPieceAction::Buffered)
    }

    /// Ends the buffering, because the buffering window expired or the upstream flushes.
    /// [`BodyPieceAction::Buffered`] means that buffering continues: the body's length is known, or
    /// the body can't be sent before its end.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the head is withheld.
    pub fn end_buffering(&mut self) -> Result<BodyPieceAction, HostMisuse> {
        match &self.phase {
            ExchangePhase::BufferingPart(_) | ExchangePhase::DiscardingUpstream(_) => {
                Ok(BodyPieceAction::Buffered)
            }
            ExchangePhase::Buffering(whole) if !whole.is_in_buffering_window() => {
                Ok(BodyPieceAction::Buffered)
            }
            _ => self.start_streaming(),
        }
    }

    /// Stops processing the response: the original is to be sent.
    ///
    /// A batch that must be merged and for which memory is refused has no original, nor has a
    /// response whose head was not evaluated for a client that accepts only SSZ. The state is
    /// `Aborted` then; or `BufferingPart` if the head was still awaited: the host continues as
    /// after `ResponseHeadAction::Buffer`, and the end of the body is a failure.
    ///
    /// # Errors
    /// [`HostMisuse`] once the response is decided.
    pub fn send_original_response(&mut self, reason: ResponseMode) -> Result<(), HostMisuse> {
        self.stop_waiting();
        match &mut self.phase {
            // the head that was being evaluated is not sent
            ExchangePhase::DiscardingUpstream(_) => return Ok(()),
            ExchangePhase::AwaitingHead
            | ExchangePhase::AwaitingPart(_)
            | ExchangePhase::AwaitingUpdate => {
                // the edits of an unfinished evaluation are dropped
                self.head_edits.clear();
                self.varies = false;
            }
            _ => {}
        }
        self.checked_state_after_event(ExchangeEvent::SendOriginal)?;
        if matches!(&self.phase, ExchangePhase::Buffering(whole) if whole.most.is_some()) {
            return self.discard_overlong_upstream_body().map(|_| ());
        }
        if matches!(&self.phase, ExchangePhase::Compressing(whole) if whole.measured.is_some()) {
            return self.reject_measured_body();
        }
        if self.may_have_unacceptable_format() {
            self.apply_transition(ExchangeEvent::Fail, |_| ExchangePhase::Aborted)?;
            self.response_mode = reason;
            self.discard_fill();
            return Ok(());
        }
        if self.has_lost_original() {
            return self.abort_with_mode(reason);
        }
        if self.send_stored_then_stream().is_err() {
            return self.abort_response();
        }
        match &mut self.phase {
            ExchangePhase::Decoding(_) => {
                self.reset_failed_lookup();
                if self.answers_only_from_cache() {
                    return self.respond_not_cached().map(|_| ());
                }
                self.apply_transition(ExchangeEvent::SendOriginal, |_| {
                    ExchangePhase::AwaitingHead
                })?;
                return self.forward_allowed_calls().map(|_| ());
            }
            // the upstream sends a part, which must not look like the complete response
            ExchangePhase::AwaitingPart(mixed) => mixed.is_unjudged = true,
            // a piece that was appended only in part is sent again by the caller
            ExchangePhase::Buffering(whole) | ExchangePhase::Compressing(whole) => {
                let received = usize::try_from(self.received).unwrap_or(usize::MAX);
                whole.buffered.body.truncate(received);
            }
            _ => {}
        }
        self.apply_transition(
            ExchangeEvent::SendOriginal,
            ExchangePhase::into_sending_original,
        )?;
        self.response_mode = reason;
        self.discard_fill();
        Ok(())
    }

    /// Completes the body at the end that the host detects, and returns how its response is sent.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the head is withheld.
    pub fn complete_buffered_body(&mut self) -> Result<BodyEndAction, HostMisuse> {
        let whole = match &mut self.phase {
            ExchangePhase::Buffering(whole) => whole,
            ExchangePhase::BufferingPart(_) => return self.end_upstream_part(),
            ExchangePhase::DiscardingUpstream(_) => {
                self.apply_transition(ExchangeEvent::End, ExchangePhase::into_body_ended)?;
                return Ok(BodyEndAction::Send);
            }
            _ => return Err(self.misuse_for_event(ExchangeEvent::End)),
        };
        if whole.measured.is_none() {
            // the body is within its limit
            whole.most = None;
        }
        if whole.is_shorter_than_declared() {
            self.abort_response()?;
            return Ok(BodyEndAction::Fail);
        }
        if whole.has_streamable_unknown_length()
            && !whole.buffered.is_complete()
            && whole.left_alone.is_none()
        {
            if whole.is_below_compression_gate(&self.route_config, whole.buffered.body.len()) {
                self.send_original_response(ResponseMode::TooSmall)?;
                return Ok(BodyEndAction::Send);
            }
            return Ok(match self.start_streaming()? {
                BodyPieceAction::Stream => BodyEndAction::Stream,
                _ => BodyEndAction::Send,
            });
        }
        let work = whole.compression_work(&self.route_config);
        let is_stored = self.storing.client_fed_fill().is_some();
        let most = whole.off_loop_min_length(&self.route_config, is_stored);
        whole.allocate_output_buffer(&self.route_config);
        self.apply_transition(ExchangeEvent::End, ExchangePhase::into_body_ended)?;
        Ok(BodyEndAction::Code {
            off_loop: work > most,
        })
    }

    /// Completes the body where [`complete_buffered_body`](Self::complete_buffered_body) has
    /// failed: it is sent unchanged if it is complete.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the head is withheld.
    pub fn complete_body_after_failure(&mut self) -> Result<BodyEndAction, HostMisuse> {
        let is_short = match &self.phase {
            ExchangePhase::DiscardingUpstream(_) => return self.complete_buffered_body(),
            ExchangePhase::Buffering(whole) | ExchangePhase::Compressing(whole) => {
                whole.is_shorter_than_declared()
            }
            _ => self
                .pending_split_batch()
                .is_some_and(|mixed| mixed.is_cut || mixed.buffered.is_truncated()),
        };
        if is_short {
            self.abort_response()?;
            return Ok(BodyEndAction::Fail);
        }
        self.send_original_response(ResponseMode::Failed)?;
        Ok(BodyEndAction::Send)
    }

    /// Completes the body where the upstream truncated it while the head is withheld. Responses
    /// that do not depend on its end are sent: the parts of a split batch, and the response that
    /// replaces the upstream's.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the head is withheld.
    pub fn complete_truncated_body(&mut self) -> Result<BodyEndAction, HostMisuse> {
        match &self.phase {
            ExchangePhase::BufferingPart(_) => self.end_truncated_upstream_part(),
            ExchangePhase::DiscardingUpstream(_) => self.complete_buffered_body(),
            _ => {
                self.abort_response()?;
                Ok(BodyEndAction::Fail)
            }
        }
    }

    /// Aborts the response because the upstream disconnected while the head is withheld or the
    /// body is streamed. The buffered bytes are freed.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the head is withheld or the body is streamed.
    pub fn abort_response(&mut self) -> Result<(), HostMisuse> {
        self.apply_transition(ExchangeEvent::Truncated, |_| ExchangePhase::Aborted)?;
        self.response_mode = ResponseMode::Cut;
        self.storing.fill = None;
        Ok(())
    }
}
