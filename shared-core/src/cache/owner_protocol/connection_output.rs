//! The bytes that wait to be written to a connection that carries frames.

use std::collections::VecDeque;
use std::iter::once;

use super::frame::PREFACE;
use super::outgoing_frame::OutgoingFrame;

/// The preface and the frames that were not written to a connection.
#[derive(Debug)]
pub struct ConnectionOutput {
    preface: &'static [u8],
    frames: VecDeque<OutgoingFrame>,
    /// Number of bytes of the first part, which is the preface or a frame, that were written.
    written: usize,
    /// Number of bytes that are left.
    byte_length: usize,
}

impl Default for ConnectionOutput {
    /// Creates the output of a connection, which begins with the preface.
    fn default() -> Self {
        Self {
            preface: &PREFACE,
            frames: VecDeque::new(),
            written: 0,
            byte_length: PREFACE.len(),
        }
    }
}

impl ConnectionOutput {
    /// Number of bytes that are left.
    pub fn byte_length(&self) -> usize {
        self.byte_length
    }

    /// Whether all was written.
    pub fn is_empty(&self) -> bool {
        self.byte_length == 0
    }

    /// Reserves memory for a frame. Returns `false` if another one is left, or memory is refused.
    pub fn reserve_only_frame(&mut self) -> bool {
        self.frames.is_empty() && self.frames.try_reserve(1).is_ok()
    }

    /// Appends a frame.
    pub fn push_frame(&mut self, frame: OutgoingFrame) {
        self.byte_length += frame.byte_length();
        self.frames.push_back(frame);
    }

    /// Returns the pieces that have to be written next, in this order.
    pub fn unwritten_pieces(&self) -> impl Iterator<Item = &[u8]> {
        let frames = self.frames.iter().flat_map(OutgoingFrame::pieces);
        let mut skipped = self.written;
        once(self.preface).chain(frames).filter_map(move |piece| {
            let rest = piece.get(skipped..);
            skipped = skipped.saturating_sub(piece.len());
            rest.filter(|rest| !rest.is_empty())
        })
    }

    /// Records that `length` bytes of the pieces were written.
    pub fn record_written_bytes(&mut self, length: usize) {
        self.byte_length = self.byte_length.saturating_sub(length);
        self.written += length;
        if self.written >= self.preface.len() {
            self.written -= self.preface.len();
            self.preface = &[];
        }
        while let Some(first) = self.frames.front() {
            match self.written.checked_sub(first.byte_length()) {
                Some(rest) if self.preface.is_empty() => self.written = rest,
                _ => break,
            }
            self.frames.pop_front();
        }
    }
}
