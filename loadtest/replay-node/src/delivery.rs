//! Body of a well-formed response: pieces, pauses, exact or unknown length.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::body_slices::SharedBodySlices;
use crate::stats::InFlightRequestGuard;
use crate::witness::WitnessPieceIterator;

/// A response body while it is sent, with the pieces and pauses of the options.
///
/// hyper sends a body of known length with `Content-Length` and any other one chunked, one chunk
/// per frame; to an HTTP/1.0 client it sends the latter up to the close of the connection.
#[derive(Debug)]
pub struct PacedResponseBody {
    slices: VecDeque<Bytes>,
    /// Pieces that follow the slices, generated when they are sent.
    generated: Option<WitnessPieceIterator>,
    remaining: usize,
    exact: bool,
    piece: usize,
    pause: Option<Duration>,
    waiting: Option<Pin<Box<Sleep>>>,
    in_flight: Option<InFlightRequestGuard>,
}

impl PacedResponseBody {
    /// Creates the delivery of `payload` in slices of at most `piece` bytes; each one is flushed if
    /// there is a `pause` between them, even one of length 0.
    pub fn new(
        payload: SharedBodySlices,
        exact: bool,
        piece: Option<usize>,
        pause: Option<Duration>,
        in_flight: Option<InFlightRequestGuard>,
    ) -> Self {
        let remaining = payload.len();
        let slices = match piece {
            // Pieces have their full size across the boundaries of slices.
            Some(_) => VecDeque::from([payload.to_single_slice()]),
            None => payload.into_slices().into(),
        };
        Self {
            slices,
            generated: None,
            remaining,
            exact,
            piece: piece.unwrap_or(usize::MAX),
            pause,
            waiting: None,
            in_flight,
        }
    }

    /// Creates the delivery of pieces that are generated while they are sent.
    pub fn from_generated_pieces(
        pieces: WitnessPieceIterator,
        exact: bool,
        pause: Option<Duration>,
        in_flight: Option<InFlightRequestGuard>,
    ) -> Self {
        let whole = Self::new(SharedBodySlices::default(), exact, None, pause, in_flight);
        Self {
            remaining: pieces.ungenerated_bytes() as usize,
            generated: Some(pieces),
            ..whole
        }
    }

    /// Returns the next piece of at most `piece` bytes, and counts its bytes as sent. `None` at the
    /// end.
    fn next_piece(&mut self) -> Option<Bytes> {
        if let (true, Some(made)) = (self.slices.is_empty(), &mut self.generated) {
            self.slices.extend(made.next());
        }
        let first = self.slices.front_mut()?;
        let piece = if first.len() > self.piece {
            first.split_to(self.piece)
        } else {
            self.slices.pop_front()?
        };
        self.remaining -= piece.len();
        if let Some(in_flight) = &self.in_flight {
            in_flight.count_sent_bytes(piece.len());
        }
        Some(piece)
    }
}

impl Body for PacedResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(sleep) = &mut self.waiting {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.waiting = None;
        }
        let piece = self.next_piece();
        if self.remaining > 0 {
            // A sleep of length 0 is pending once as well, and so hyper flushes the piece.
            self.waiting = self.pause.map(|pause| Box::pin(tokio::time::sleep(pause)));
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.exact {
            SizeHint::with_exact(self.remaining as u64)
        } else {
            SizeHint::default()
        }
    }
}
