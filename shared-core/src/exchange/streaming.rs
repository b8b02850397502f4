//! A body coded as it comes.

use std::fmt;

use super::transitions::{Event, State};
use super::{Exchange, HeadEdit, Misuse, PieceAction};
use crate::faults::{injected, panic_if, Fault};
use crate::gzip::stream::{self, Flush, Progress, StreamError};
use crate::memory;
use crate::mode::Mode;

/// Why a step of a stream failed. The stream must be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFailure {
    /// The body does not stream.
    Misuse(Misuse),
    /// The encoder broke.
    Encoder,
    /// The body ends short of the length that the node gave.
    Short,
}

impl fmt::Display for StreamFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamFailure::Misuse(misuse) => misuse.fmt(f),
            StreamFailure::Encoder => f.write_str("the stream encoder failed"),
            StreamFailure::Short => f.write_str("the body ended short of its length"),
        }
    }
}

impl std::error::Error for StreamFailure {}

impl From<Misuse> for StreamFailure {
    fn from(misuse: Misuse) -> Self {
        StreamFailure::Misuse(misuse)
    }
}

impl From<StreamError> for StreamFailure {
    fn from(StreamError: StreamError) -> Self {
        StreamFailure::Encoder
    }
}

impl Exchange {
    /// Codes what was collected and then `piece` into `output`, at most as
    /// much as there is room for. Call again with what is left, and with the
    /// same flush, until [`Progress::complete`]. [`Flush::Finish`] with the
    /// last piece ends the stream.
    ///
    /// # Errors
    /// [`StreamFailure`]; nothing more can be sent then, the stream must be cut
    /// off visibly.
    pub fn stream(
        &mut self,
        piece: &[u8],
        flush: Flush,
        output: &mut [u8],
    ) -> Result<Progress, StreamFailure> {
        if self.state != State::Streaming {
            return Err(self.misuse(Event::Piece).into());
        }
        panic_if(Fault::PanicStream);
        if flush == Flush::Finish && self.ends_short(piece.len()) {
            self.cut_short()?;
            return Err(StreamFailure::Short);
        }
        let Some(encoder) = &mut self.encoder else {
            return Err(StreamFailure::Encoder);
        };
        let mut written = 0;
        if self.encoded < self.body.len() {
            // what was held waits with the rest for a flush
            let held = encoder.encode(&self.body[self.encoded..], Flush::None, output)?;
            self.encoded += held.consumed;
            written = held.written;
            if self.encoded < self.body.len() {
                self.sent += written as u64;
                return Ok(Progress {
                    consumed: 0,
                    written,
                    complete: false,
                });
            }
            self.body = Vec::new();
            self.encoded = 0;
            if let Some(reservation) = &mut self.reservation {
                reservation.shrink_to(stream::size(self.config.stream_level));
            }
        }
        let mut progress = encoder.encode(piece, flush, &mut output[written..])?;
        progress.written += written;
        self.copy_of_sent(&piece[..progress.consumed]);
        self.received += progress.consumed as u64;
        self.sent += progress.written as u64;
        if flush == Flush::Finish && progress.complete {
            self.move_on(Event::Finish)?;
            self.encoder = None;
            self.reservation = None;
        } else {
            self.move_on(Event::Piece)?;
        }
        Ok(progress)
    }

    /// Whether a body of known length is short of it when `last` bytes more
    /// are its end: a trailer must not make it look whole.
    fn ends_short(&self, last: usize) -> bool {
        let ends_at = self.received.saturating_add(last as u64);
        self.declared
            .is_some_and(|declared| ends_at < declared as u64)
    }

    /// Ends holding: the head goes out, the body is coded as it comes. If that
    /// can't be, it goes through as it comes.
    pub(super) fn start_stream(&mut self) -> Result<PieceAction, Misuse> {
        if self.state != State::Collecting {
            return Err(self.misuse(Event::StartStream));
        }
        match self.open_stream() {
            Ok(()) => {
                self.move_on(Event::StartStream)?;
                let held = std::mem::take(&mut self.body);
                self.copy_of_sent(&held);
                self.body = held;
                Ok(PieceAction::Stream)
            }
            Err(reason) => {
                self.give_up(reason)?;
                Ok(PieceAction::GiveUp)
            }
        }
    }

    /// An encoder and the head for it, or the reason why not.
    pub(super) fn open_stream(&mut self) -> Result<(), Mode> {
        if memory::is_short() || injected(Fault::FailAlloc) {
            return Err(Mode::Memory);
        }
        let level = self.config.stream_level;
        self.claim(self.body.capacity(), stream::size(level))?;
        self.encoder = Some(stream::encoder(level).ok_or(Mode::Memory)?);
        self.mode = Mode::Stream;
        self.head_edits
            .push(HeadEdit::set("Content-Encoding", b"gzip"));
        self.head_edits.push(HeadEdit::remove("Content-Length"));
        self.head_edits.append(&mut self.recoded_edits);
        Ok(())
    }
}
