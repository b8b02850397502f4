//! Frames to be sent. A frame is a list of pieces, so that the payloads of entries are not copied
//! into it.

use serde::Serialize;

use super::frame::{
    FRAME_HEADER_BYTES, LENGTH_FIELD_BYTES, MAX_BODY_BYTES, MAX_CALLOUT_FRAME_BYTES,
    MAX_FRAME_MESSAGES, MESSAGE_HEADER_BYTES, SOFT_FRAME_BYTES,
};
use super::message_body::{MessageBody, SharedRange};
use crate::bytes::{try_extend, try_push};

/// Length from which on shared bytes are a piece of their own, in bytes. Shorter ones are copied:
/// each piece costs an element of a `writev`.
const MIN_SHARED_PIECE_BYTES: usize = 4 << 10;

/// Maximum length of the heads that this version sends, in bytes: the longest is the head of a
/// stored entry with a method of 255 bytes.
pub const MAX_SENT_HEAD_BYTES: usize = 640;

/// The reason why a message was not added to a frame. The frame is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameAppendError {
    /// The message has to be sent in the next frame.
    #[error("the frame is full")]
    Full,
    /// The message is longer than any frame permits.
    #[error("the message is too long")]
    TooLong,
    /// Memory was refused.
    #[error("out of memory")]
    OutOfMemory,
}

/// A part of a frame: bytes of its own, or bytes that are shared with an entry.
#[derive(Debug)]
enum FramePiece {
    Owned(Vec<u8>),
    Shared(SharedRange),
}

impl FramePiece {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(shared) => shared.as_bytes(),
        }
    }
}

/// A frame with the messages that were appended to it. Send it if it has at least one.
#[derive(Debug)]
pub struct OutgoingFrame {
    /// The first piece begins with the header of the frame.
    pieces: Vec<FramePiece>,
    byte_length: usize,
    message_count: u16,
    /// Length from which on no further message is added, in bytes.
    soft_limit: usize,
    max_frame: usize,
}

impl OutgoingFrame {
    /// Creates a frame without messages that gets at most `max_frame` bytes, without its length
    /// field, and no further message after [`SOFT_FRAME_BYTES`]. Returns `None` if memory is refused.
    pub fn new(max_frame: usize) -> Option<Self> {
        Self::with_soft_limit(SOFT_FRAME_BYTES, max_frame)
    }

    /// Creates a frame of a callout without messages. It gets as many messages as the maximum length
    /// permits. Returns `None` if memory is refused.
    pub fn for_callout() -> Option<Self> {
        Self::with_soft_limit(MAX_CALLOUT_FRAME_BYTES, MAX_CALLOUT_FRAME_BYTES)
    }

    fn with_soft_limit(soft_limit: usize, max_frame: usize) -> Option<Self> {
        let mut first = Vec::new();
        try_extend(&mut first, &[0; FRAME_HEADER_BYTES])?;
        let mut pieces = Vec::new();
        try_push(&mut pieces, FramePiece::Owned(first))?;
        Some(Self {
            pieces,
            byte_length: FRAME_HEADER_BYTES,
            message_count: 0,
            soft_limit,
            max_frame,
        })
    }

    /// Whether any message may be appended that is not too long.
    pub fn has_room(&self) -> bool {
        self.message_count < MAX_FRAME_MESSAGES && self.byte_length < SOFT_FRAME_BYTES
    }

    /// Number of messages in the frame.
    pub fn message_count(&self) -> u16 {
        self.message_count
    }

    /// Length of the whole frame in bytes.
    pub fn byte_length(&self) -> usize {
        self.byte_length
    }

    /// Whether a number of messages fits into the frame, whose bodies have `body_bytes` together.
    pub fn has_room_for(&self, messages: usize, body_bytes: usize) -> bool {
        let heads = messages.saturating_mul(MESSAGE_HEADER_BYTES + MAX_SENT_HEAD_BYTES);
        let length = heads.saturating_add(body_bytes);
        usize::from(self.message_count).saturating_add(messages) <= usize::from(MAX_FRAME_MESSAGES)
            && self.byte_length.saturating_add(length) <= self.soft_limit.min(self.max_frame)
    }

    /// Returns the bytes of the frame as the pieces that have to be sent in this order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(FramePiece::as_bytes)
    }

    /// Copies the bytes of the frame into one vector. Returns `None` if memory is refused.
    pub fn try_join_pieces(&self) -> Option<Vec<u8>> {
        let mut joined = Vec::new();
        joined.try_reserve_exact(self.byte_length).ok()?;
        for piece in self.pieces() {
            joined.extend_from_slice(piece);
        }
        Some(joined)
    }

    /// Appends a message, whose head is serialized in postcard's format.
    ///
    /// # Errors
    /// [`FrameAppendError`].
    pub(super) fn append_message(
        &mut self,
        kind: u8,
        id: u32,
        head: &impl Serialize,
        body: &MessageBody,
    ) -> Result<(), FrameAppendError> {
        let mut buffer = [0_u8; MAX_SENT_HEAD_BYTES];
        let head: &[u8] =
            postcard::to_slice(head, &mut buffer).map_err(|_| FrameAppendError::TooLong)?;
        let body_length = body.byte_length();
        if body_length > MAX_BODY_BYTES {
            return Err(FrameAppendError::TooLong);
        }
        let byte_length = self.byte_length + MESSAGE_HEADER_BYTES + head.len() + body_length;
        self.check_room(byte_length)?;
        // before the first change: the rest can't fail
        self.reserve_message(head.len(), body)
            .ok_or(FrameAppendError::OutOfMemory)?;
        let [h0, h1, h2, _] = little_endian(head.len());
        let [i0, i1, i2, i3] = id.to_le_bytes();
        let [b0, b1, b2, b3] = little_endian(body_length);
        let header = [kind, h0, h1, h2, i0, i1, i2, i3, b0, b1, b2, b3];
        let [owned, shared] = body.parts();
        if let Some(FramePiece::Owned(last)) = self.pieces.last_mut() {
            for part in [&header[..], head, owned] {
                last.extend_from_slice(part);
            }
            if shared.len() < MIN_SHARED_PIECE_BYTES {
                last.extend_from_slice(shared);
            }
        }
        if let Some(shared) = shared_piece(body) {
            self.pieces.push(FramePiece::Shared(shared.clone()));
        }
        self.byte_length = byte_length;
        self.message_count += 1;
        self.write_frame_header();
        Ok(())
    }

    /// Whether the frame may grow to `byte_length` bytes by one more message.
    fn check_room(&self, byte_length: usize) -> Result<(), FrameAppendError> {
        let fits = byte_length - LENGTH_FIELD_BYTES <= self.max_frame;
        match self.message_count {
            0 if fits => Ok(()),
            0 => Err(FrameAppendError::TooLong),
            MAX_FRAME_MESSAGES.. => Err(FrameAppendError::Full),
            _ if fits && self.byte_length < self.soft_limit => Ok(()),
            _ => Err(FrameAppendError::Full),
        }
    }

    /// Reserves memory for a message, and makes the last piece one of the frame's own.
    fn reserve_message(&mut self, head_length: usize, body: &MessageBody) -> Option<()> {
        let [owned, shared] = body.parts();
        let copied = match shared_piece(body) {
            Some(_) => owned.len(),
            None => owned.len() + shared.len(),
        };
        let length = MESSAGE_HEADER_BYTES + head_length + copied;
        // a new piece for this message, and a shared one after it
        self.pieces.try_reserve(2).ok()?;
        if let Some(FramePiece::Owned(last)) = self.pieces.last_mut() {
            return last.try_reserve(length).ok();
        }
        let mut piece = Vec::new();
        piece.try_reserve(length).ok()?;
        self.pieces.push(FramePiece::Owned(piece));
        Some(())
    }

    /// Writes length and number of messages into the first piece.
    fn write_frame_header(&mut self) {
        let length = little_endian(self.byte_length - LENGTH_FIELD_BYTES);
        let count = self.message_count.to_le_bytes();
        if let Some(FramePiece::Owned(first)) = self.pieces.first_mut() {
            let fields = length.iter().chain(&count);
            for (byte, value) in first.iter_mut().zip(fields) {
                *byte = *value;
            }
        }
    }
}

/// Returns the shared part of a body if it is long enough for a piece of its own.
fn shared_piece(body: &MessageBody) -> Option<&SharedRange> {
    body.shared_range()
        .filter(|shared| shared.as_bytes().len() >= MIN_SHARED_PIECE_BYTES)
}

/// Encodes the lower 32 bits of a length that was compared with a limit below them.
fn little_endian(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}
