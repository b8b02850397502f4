//! The body of a response whose head is withheld.

use super::actions::{EndAction, Misuse, PieceAction};
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::Event;
use crate::faults::{panic_if, Fault};
use crate::gzip::oneshot::off_loop_length;
use crate::memory;
use crate::mode::Mode;

/// Bytes of a long body that are read at once: reading 4 KiB at a time takes 50 % longer, and 64
/// KiB 20 %.
const READ_SIZE: usize = 256 << 10;

/// Bytes that are read at once of a body of unknown length.
const CHUNKED_READ_SIZE: usize = 64 << 10;

impl Exchange {
    /// Time for which the head may be withheld, or the encoder may hold back bytes of a stream,
    /// in milliseconds; `None` until the body ends.
    pub fn buffering_time_ms(&self) -> Option<u64> {
        match &self.phase {
            Phase::Streaming(_) => Some(self.config.hold_ms),
            Phase::Collecting(whole) if whole.is_in_buffering_window() => Some(self.config.hold_ms),
            _ => None,
        }
    }

    /// Number of bytes of a buffered body that should be read at once; `None` for the host's
    /// default. A transcoder is faster with long pieces.
    pub fn read_size(&self) -> Option<usize> {
        let Phase::Collecting(whole) = &self.phase else {
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
    /// [`Misuse`] unless the head is withheld.
    pub fn piece(&mut self, piece: &[u8]) -> Result<PieceAction, Misuse> {
        self.next_state(Event::Piece)?;
        let whole = match &mut self.phase {
            Phase::Collecting(whole) => whole,
            Phase::CollectingPart(_) => return self.part_piece(piece),
            // the response that replaces the upstream's is complete
            Phase::Replacing(_) => return Ok(PieceAction::Buffered),
            _ => return Err(self.misuse(Event::Piece)),
        };
        let transcodes = whole.stages.transcoding.is_some();
        let length = match transcodes {
            true => self.received + piece.len() as u64,
            false => (whole.buffered.body.len() + piece.len()) as u64,
        };
        if whole.exceeds_limit(length) {
            return self.upstream_body_exceeds_limit();
        }
        if transcodes {
            return self.piece_to_transcode(piece);
        }
        match whole.make_room(&self.config, whole.buffered.body.len() + piece.len()) {
            Ok(()) => {}
            Err(_) if whole.is_in_buffering_window() => return self.start_stream(),
            // a body that can't be buffered can't be measured
            Err(_) if whole.most.is_some() => return self.upstream_body_exceeds_limit(),
            // not if the system is out of memory: the rest is for allocations that can't fail
            Err(Mode::Memory) if whole.can_stream() && !memory::is_short() => {
                return self.start_stream()
            }
            Err(reason) => {
                self.send_original(reason)?;
                return Ok(PieceAction::SendOriginal);
            }
        }
        panic_if(Fault::PanicBody);
        whole.buffered.body.extend_from_slice(piece);
        self.received = whole.buffered.body.len() as u64;
        Ok(PieceAction::Buffered)
    }

    /// Ends the buffering, because the buffering window expired or the upstream flushes.
    /// [`PieceAction::Buffered`] means that buffering continues: the body's length is known, or the
    /// body can't be sent before its end.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is withheld.
    pub fn end_buffering(&mut self) -> Result<PieceAction, Misuse> {
        match &self.phase {
            Phase::CollectingPart(_) | Phase::Replacing(_) => Ok(PieceAction::Buffered),
            Phase::Collecting(whole) if !whole.is_in_buffering_window() => {
                Ok(PieceAction::Buffered)
            }
            _ => self.start_stream(),
        }
    }

    /// Stops processing the response: the original is to be sent.
    ///
    /// A batch that must be merged and for which memory is refused has no original, nor has a
    /// response whose head was not evaluated for a client that accepts only SSZ. The state is
    /// `State::Aborted` then; or `State::BufferingPart` if the head was still awaited: the host
    /// continues as after `HeadAction::Buffer`, and the end of the body is a failure.
    ///
    /// # Errors
    /// [`Misuse`] once the response is decided.
    pub fn send_original(&mut self, reason: Mode) -> Result<(), Misuse> {
        self.stop_waiting();
        match &mut self.phase {
            // the head that was being evaluated is not sent
            Phase::Replacing(_) => return Ok(()),
            Phase::AwaitingHead | Phase::AwaitingPart(_) | Phase::AwaitingUpdate => {
                // the edits of an unfinished evaluation are dropped
                self.head_edits.clear();
                self.varies = false;
            }
            _ => {}
        }
        self.next_state(Event::SendOriginal)?;
        if matches!(&self.phase, Phase::Collecting(whole) if whole.most.is_some()) {
            return self.upstream_body_exceeds_limit().map(|_| ());
        }
        if matches!(&self.phase, Phase::Coding(whole) if whole.measured.is_some()) {
            return self.reject_measured_body();
        }
        if self.may_be_unacceptable() {
            self.transition(Event::Fail, |_| Phase::Cut)?;
            self.mode = reason;
            self.discard_fill();
            return Ok(());
        }
        if self.has_lost_original() {
            return self.fail(reason);
        }
        if self.send_stored_then_stream().is_err() {
            return self.abort();
        }
        match &mut self.phase {
            Phase::Decoding(_) => {
                self.reset_lookup();
                self.transition(Event::SendOriginal, |_| Phase::AwaitingHead)?;
                return self.forward_allowed_calls().map(|_| ());
            }
            // the upstream sends a part, which must not look like the complete response
            Phase::AwaitingPart(mixed) => mixed.is_unjudged = true,
            // a piece that was appended only in part is sent again by the caller
            Phase::Collecting(whole) | Phase::Coding(whole) => {
                let received = usize::try_from(self.received).unwrap_or(usize::MAX);
                whole.buffered.body.truncate(received);
            }
            _ => {}
        }
        self.transition(Event::SendOriginal, Phase::into_original)?;
        self.mode = reason;
        self.discard_fill();
        Ok(())
    }

    /// Completes the body at the end that the host detects, and returns how its response is sent.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is withheld.
    pub fn end(&mut self) -> Result<EndAction, Misuse> {
        let whole = match &mut self.phase {
            Phase::Collecting(whole) => whole,
            Phase::CollectingPart(_) => return self.part_end(),
            Phase::Replacing(_) => {
                self.transition(Event::End, Phase::into_ended)?;
                return Ok(EndAction::Send);
            }
            _ => return Err(self.misuse(Event::End)),
        };
        if whole.measured.is_none() {
            // the body is within its limit
            whole.most = None;
        }
        if whole.is_short() {
            self.abort()?;
            return Ok(EndAction::Fail);
        }
        if whole.is_of_unknown_length()
            && !whole.buffered.is_complete()
            && whole.left_alone.is_none()
        {
            if whole.is_below_gate(&self.config, whole.buffered.body.len()) {
                self.send_original(Mode::TooSmall)?;
                return Ok(EndAction::Send);
            }
            return Ok(match self.start_stream()? {
                PieceAction::Stream => EndAction::Stream,
                _ => EndAction::Send,
            });
        }
        let work = whole.compression_work(&self.config);
        whole.reserve_output();
        self.transition(Event::End, Phase::into_ended)?;
        Ok(EndAction::Code {
            off_loop: work > off_loop_length(self.config.comp_level),
        })
    }

    /// Completes the body where [`end`](Self::end) has failed: it is sent unchanged if it is
    /// complete.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is withheld.
    pub fn end_uncompressed(&mut self) -> Result<EndAction, Misuse> {
        let is_short = match &self.phase {
            Phase::Replacing(_) => return self.end(),
            Phase::Collecting(whole) | Phase::Coding(whole) => whole.is_short(),
            _ => self
                .split_batch()
                .is_some_and(|mixed| mixed.is_cut || mixed.buffered.is_truncated()),
        };
        if is_short {
            self.abort()?;
            return Ok(EndAction::Fail);
        }
        self.send_original(Mode::Failed)?;
        Ok(EndAction::Send)
    }

    /// Completes the body where the upstream truncated it while the head is withheld. Responses
    /// that do not depend on its end are sent: the parts of a split batch, and the response that
    /// replaces the upstream's.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is withheld.
    pub fn end_truncated(&mut self) -> Result<EndAction, Misuse> {
        match &self.phase {
            Phase::CollectingPart(_) => self.part_truncated(),
            Phase::Replacing(_) => self.end(),
            _ => {
                self.abort()?;
                Ok(EndAction::Fail)
            }
        }
    }

    /// Aborts the response because the upstream disconnected while the head is withheld or the
    /// body is streamed. The buffered bytes are freed.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is withheld or the body is streamed.
    pub fn abort(&mut self) -> Result<(), Misuse> {
        self.transition(Event::Truncated, |_| Phase::Cut)?;
        self.mode = Mode::Cut;
        self.storing.fill = None;
        Ok(())
    }
}
