//! Steps of a body that is compressed while it arrives.

use crate::exchange::machine::actions::{BodyPieceAction, HostMisuse};
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::stream_encoder::{BodyStreamError, CompressedBodyStream};
use crate::faults::{panic_if_injected, InjectedTestFault};
use crate::gzip::stream::{EncodeProgress, FlushMode};
use crate::response_mode::ResponseMode;

impl Exchange {
    /// Compresses the buffered bytes and then `piece` into `output`, as far as it has room. Called
    /// again with the rest of the piece and the same flush until [`EncodeProgress::complete`].
    /// [`FlushMode::Finish`] with the last piece ends the stream.
    ///
    /// # Errors
    /// [`BodyStreamError`]: nothing more can be sent, and the response must be aborted visibly.
    pub fn encode_stream_piece(
        &mut self,
        piece: &[u8],
        flush: FlushMode,
        output: &mut [u8],
    ) -> Result<EncodeProgress, BodyStreamError> {
        let ExchangePhase::Streaming(stream) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Piece).into());
        };
        panic_if_injected(InjectedTestFault::PanicStream);
        // a trailer must not make a truncated body look complete
        let ends_at = self.received.saturating_add(piece.len() as u64);
        let declared = stream.buffered.declared;
        if flush == FlushMode::Finish && declared.is_some_and(|declared| ends_at < declared as u64)
        {
            self.abort_response()?;
            return Err(BodyStreamError::Short);
        }
        let buffered_progress = stream.encode_buffered_bytes(output)?;
        if !buffered_progress.complete {
            self.sent += buffered_progress.written as u64;
            return Ok(buffered_progress);
        }
        let mut progress = stream.encoder.compress_input(
            piece,
            flush,
            &mut output[buffered_progress.written..],
        )?;
        progress.written += buffered_progress.written;
        let taken = &piece[..progress.consumed];
        self.storing
            .copy_sent_bytes(&self.route_config, &mut self.cache_reason, taken);
        self.received += progress.consumed as u64;
        self.sent += progress.written as u64;
        if flush == FlushMode::Finish && progress.complete {
            self.apply_transition(ExchangeEvent::Finish, |_| ExchangePhase::Finished)?;
        }
        Ok(progress)
    }

    /// Ends the buffering: the head is sent, and the body is compressed while it arrives.
    /// Without memory for an encoder it is passed unchanged.
    pub(in crate::exchange) fn start_streaming(&mut self) -> Result<BodyPieceAction, HostMisuse> {
        self.checked_state_after_event(ExchangeEvent::StartStream)?;
        let ExchangePhase::Buffering(whole) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::StartStream));
        };
        let config = &self.route_config;
        let body = &whole.buffered.body;
        self.storing
            .copy_sent_bytes(config, &mut self.cache_reason, body);
        let compressor = whole.stages.body_compressor(config);
        match CompressedBodyStream::start_encoding(config, compressor, &mut whole.buffered) {
            Ok(mut stream) => {
                self.set_streamed_response_headers(&mut stream);
                self.apply_transition(ExchangeEvent::StartStream, |_| {
                    ExchangePhase::Streaming(stream)
                })?;
                Ok(BodyPieceAction::Stream)
            }
            Err(reason) => {
                self.send_original_response(reason)?;
                Ok(BodyPieceAction::SendOriginal)
            }
        }
    }

    /// Sets the head edits of a streamed response.
    pub(in crate::exchange) fn set_streamed_response_headers(
        &mut self,
        stream: &mut CompressedBodyStream,
    ) {
        self.response_mode = ResponseMode::Stream;
        let coding = stream.compressor.content_coding();
        self.head_edits.push(HeadEdit::set_content_encoding(coding));
        self.head_edits
            .push(HeadEdit::remove_header("Content-Length"));
        self.head_edits.append(&mut stream.buffered.recoded_edits);
    }
}
