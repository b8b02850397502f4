//! A body coded as it comes.

use std::fmt;

use super::held::Held;
use super::phase::Phase;
use super::transitions::Event;
use super::{Exchange, HeadEdit, Misuse, PieceAction};
use crate::config::Config;
use crate::faults::{injected, panic_if, Fault};
use crate::gzip::stream::{self, Encoder, Flush, Progress, StreamError};
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

/// A body that is coded as it comes.
#[derive(Debug)]
pub(super) struct Stream {
    encoder: Box<dyn Encoder>,
    /// What was held before.
    held: Held,
    /// How much of that the encoder has taken.
    encoded: usize,
}

impl Stream {
    /// One that begins with what is held, or the reason why not.
    pub(super) fn open(config: &Config, held: &mut Held) -> Result<Box<Self>, Mode> {
        if memory::is_short() || injected(Fault::FailAlloc) {
            return Err(Mode::Memory);
        }
        let level = config.stream_level;
        held.claim(config, held.body.capacity(), stream::size(level))?;
        let encoder = stream::encoder(level).ok_or(Mode::Memory)?;
        Ok(Box::new(Self {
            encoder,
            held: std::mem::take(held),
            encoded: 0,
        }))
    }

    /// The same of what was not fed yet, as far as there is room. Whether that is
    /// all of it.
    fn feed_held(&mut self, config: &Config, output: &mut [u8]) -> Result<Progress, StreamError> {
        let rest = &self.held.body[self.encoded..];
        if rest.is_empty() {
            return Ok(Progress {
                consumed: 0,
                written: 0,
                complete: true,
            });
        }
        // what was held waits with the rest for a flush
        let fed = self.encoder.encode(rest, Flush::None, output)?;
        self.encoded += fed.consumed;
        let complete = self.encoded == self.held.body.len();
        if complete {
            self.held.body = Vec::new();
            self.encoded = 0;
            self.held.shrink_to(stream::size(config.stream_level));
        }
        Ok(Progress {
            consumed: 0,
            written: fed.written,
            complete,
        })
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
        let Phase::Streaming(stream) = &mut self.phase else {
            return Err(self.misuse(Event::Piece).into());
        };
        panic_if(Fault::PanicStream);
        // a trailer must not make a short body look whole
        let ends_at = self.received.saturating_add(piece.len() as u64);
        let declared = stream.held.declared;
        if flush == Flush::Finish && declared.is_some_and(|declared| ends_at < declared as u64) {
            self.cut_short()?;
            return Err(StreamFailure::Short);
        }
        let held = stream.feed_held(&self.config, output)?;
        if !held.complete {
            self.sent += held.written as u64;
            return Ok(held);
        }
        let mut progress = stream
            .encoder
            .encode(piece, flush, &mut output[held.written..])?;
        progress.written += held.written;
        let taken = &piece[..progress.consumed];
        self.storing
            .copy_of_sent(&self.config, &mut self.reason, taken);
        self.received += progress.consumed as u64;
        self.sent += progress.written as u64;
        if flush == Flush::Finish && progress.complete {
            self.move_on(Event::Finish, |_| Phase::Finished)?;
        }
        Ok(progress)
    }

    /// Ends holding: the head goes out, the body is coded as it comes. If that
    /// can't be, it goes through as it comes.
    pub(super) fn start_stream(&mut self) -> Result<PieceAction, Misuse> {
        self.allows(Event::StartStream)?;
        let Phase::Collecting(whole) = &mut self.phase else {
            return Err(self.misuse(Event::StartStream));
        };
        let held = &whole.held.body;
        self.storing
            .copy_of_sent(&self.config, &mut self.reason, held);
        match Stream::open(&self.config, &mut whole.held) {
            Ok(mut stream) => {
                self.head_of_stream(&mut stream);
                self.move_on(Event::StartStream, |_| Phase::Streaming(stream))?;
                Ok(PieceAction::Stream)
            }
            Err(reason) => {
                self.give_up(reason)?;
                Ok(PieceAction::GiveUp)
            }
        }
    }

    /// The head that goes with it.
    pub(super) fn head_of_stream(&mut self, stream: &mut Stream) {
        self.mode = Mode::Stream;
        self.head_edits
            .push(HeadEdit::set("Content-Encoding", b"gzip"));
        self.head_edits.push(HeadEdit::remove("Content-Length"));
        self.head_edits.append(&mut stream.held.recoded_edits);
    }
}
