//! The bytes that wait to be written to a connection.

use std::collections::VecDeque;
use std::io::{Error, IoSlice};
use std::iter::once;

use sszip_core::cache::owner_protocol::frame::{MAX_CONNECTION_FRAME_BYTES, PREFACE};
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::{OwnerMessage, RefusalReason};

use super::socket::FrameSocket;

/// Maximum number of pieces of one write.
const MAX_WRITE_PIECES: usize = 64;

/// The preface and the frames that were not written to a connection.
pub(super) struct ConnectionOutput {
    preface: &'static [u8],
    frames: VecDeque<OutgoingFrame>,
    /// Number of bytes of the first part, which is the preface or a frame, that were written.
    written: usize,
    /// Number of bytes that are left.
    byte_length: usize,
}

impl ConnectionOutput {
    /// Creates the output of a connection, which begins with the preface.
    pub(super) fn new() -> Self {
        Self {
            preface: &PREFACE,
            frames: VecDeque::new(),
            written: 0,
            byte_length: PREFACE.len(),
        }
    }

    /// Number of bytes that are left.
    pub(super) fn byte_length(&self) -> usize {
        self.byte_length
    }

    /// Whether all was written.
    pub(super) fn is_empty(&self) -> bool {
        self.byte_length == 0
    }

    /// Appends a frame.
    pub(super) fn push_frame(&mut self, frame: OutgoingFrame) {
        self.byte_length += frame.byte_length();
        self.frames.push_back(frame);
    }

    /// Appends a frame which reports that a session is refused.
    pub(super) fn push_refusal(&mut self, reason: RefusalReason) {
        // without memory the connection is closed all the same
        let Some(mut frame) = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES) else {
            return;
        };
        let refusal = OwnerMessage::Refused(reason);
        if refusal.append_to_frame(&mut frame).is_ok() {
            self.push_frame(frame);
        }
    }

    /// Writes as much as the socket accepts. Returns the number of written bytes.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn write_to_socket(&mut self, socket: &FrameSocket) -> Result<usize, Error> {
        let mut total = 0;
        while !self.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_WRITE_PIECES];
            let count = self.fill_slices(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            match socket.write_vectored(slices)? {
                0 => break,
                length => {
                    self.remove_written_bytes(length);
                    total += length;
                }
            }
        }
        Ok(total)
    }

    /// Fills `slices` with the first pieces that are left, and returns their number.
    fn fill_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let frames = self.frames.iter().flat_map(OutgoingFrame::pieces);
        let mut skipped = self.written;
        let left = once(self.preface).chain(frames).filter_map(|piece| {
            let rest = piece.get(skipped..);
            skipped = skipped.saturating_sub(piece.len());
            rest.filter(|rest| !rest.is_empty())
        });
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(left) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn remove_written_bytes(&mut self, length: usize) {
        self.byte_length -= length;
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
