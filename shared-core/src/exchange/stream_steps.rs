//! Steps of a body that is compressed while it arrives.

use super::actions::{Misuse, PieceAction};
use super::head::HeadEdit;
use super::machine::Exchange;
use super::phase::Phase;
use super::stream_encoder::{BodyStream, BodyStreamError};
use super::transitions::Event;
use crate::faults::{panic_if, Fault};
use crate::gzip::stream::{Flush, Progress};
use crate::mode::Mode;

impl Exchange {
    /// Compresses the buffered bytes and then `piece` into `output`, as far as it has room.
    /// Called again with the rest of the piece and the same flush until [`Progress::complete`].
    /// [`Flush::Finish`] with the last piece ends the stream.
    ///
    /// # Errors
    /// [`BodyStreamError`]: nothing more can be sent, and the response must be aborted visibly.
    pub fn stream(
        &mut self,
        piece: &[u8],
        flush: Flush,
        output: &mut [u8],
    ) -> Result<Progress, BodyStreamError> {
        let Phase::Streaming(stream) = &mut self.phase else {
            return Err(self.misuse(Event::Piece).into());
        };
        panic_if(Fault::PanicStream);
        // a trailer must not make a truncated body look complete
        let ends_at = self.received.saturating_add(piece.len() as u64);
        let declared = stream.buffered.declared;
        if flush == Flush::Finish && declared.is_some_and(|declared| ends_at < declared as u64) {
            self.abort()?;
            return Err(BodyStreamError::Short);
        }
        let buffered_progress = stream.feed_buffered(&self.config, output)?;
        if !buffered_progress.complete {
            self.sent += buffered_progress.written as u64;
            return Ok(buffered_progress);
        }
        let mut progress =
            stream
                .encoder
                .encode(piece, flush, &mut output[buffered_progress.written..])?;
        progress.written += buffered_progress.written;
        let taken = &piece[..progress.consumed];
        self.storing
            .copy_sent_bytes(&self.config, &mut self.reason, taken);
        self.received += progress.consumed as u64;
        self.sent += progress.written as u64;
        if flush == Flush::Finish && progress.complete {
            self.transition(Event::Finish, |_| Phase::Finished)?;
        }
        Ok(progress)
    }

    /// Ends the buffering: the head is sent, and the body is compressed while it arrives.
    /// Without memory for an encoder it is passed unchanged.
    pub(super) fn start_stream(&mut self) -> Result<PieceAction, Misuse> {
        self.next_state(Event::StartStream)?;
        let Phase::Collecting(whole) = &mut self.phase else {
            return Err(self.misuse(Event::StartStream));
        };
        let body = &whole.buffered.body;
        self.storing
            .copy_sent_bytes(&self.config, &mut self.reason, body);
        match BodyStream::open(&self.config, &mut whole.buffered) {
            Ok(mut stream) => {
                self.set_stream_headers(&mut stream);
                self.transition(Event::StartStream, |_| Phase::Streaming(stream))?;
                Ok(PieceAction::Stream)
            }
            Err(reason) => {
                self.send_original(reason)?;
                Ok(PieceAction::SendOriginal)
            }
        }
    }

    /// Sets the head edits of a streamed response.
    pub(super) fn set_stream_headers(&mut self, stream: &mut BodyStream) {
        self.mode = Mode::Stream;
        self.head_edits
            .push(HeadEdit::set("Content-Encoding", b"gzip"));
        self.head_edits.push(HeadEdit::remove("Content-Length"));
        self.head_edits.append(&mut stream.buffered.recoded_edits);
    }
}
