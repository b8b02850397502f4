//! Frames as they are received: the preface, the lengths, and the messages as slices.

use super::protocol_error::ProtocolError;
use crate::bytes::try_extend;

/// The magic and the version with which both sides of a connection, and the body of a callout,
/// begin.
pub const PREFACE: [u8; 4] = *b"SZL\x05";

/// Length of the magic in the preface, in bytes; the version follows.
const MAGIC_LENGTH: usize = 3;

/// Length from which on no further message is added to a frame, in bytes.
pub const SOFT_FRAME_BYTES: usize = 64 << 10;

/// Maximum length of a frame on a connection, in bytes, without its length field.
pub const MAX_CONNECTION_FRAME_BYTES: usize = 320 << 10;

/// Maximum length of a frame in a callout, in bytes, without its length field: Envoy delivers no
/// response above 32 MiB to a filter.
pub const MAX_CALLOUT_FRAME_BYTES: usize = 31 << 20;

/// Maximum number of messages in a frame.
pub const MAX_FRAME_MESSAGES: u16 = 512;

/// Maximum length of a message's head in bytes.
pub const MAX_HEAD_BYTES: usize = 4_096;

/// Maximum length of a message's body in bytes. Longer bodies are sent in several messages.
pub const MAX_BODY_BYTES: usize = 256 << 10;

/// Length of a frame's length field in bytes.
pub(super) const LENGTH_FIELD_BYTES: usize = 4;

/// Length of a frame's header, which is the length field, the number of messages and the flags, in
/// bytes.
pub(super) const FRAME_HEADER_BYTES: usize = LENGTH_FIELD_BYTES + 4;

/// Length of a message's header, which is its kind, the length of its head, its id and the length of
/// its body, in bytes.
pub(super) const MESSAGE_HEADER_BYTES: usize = 12;

/// A message of a frame whose lengths are checked and whose contents are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawMessage<'a> {
    /// Kind, which decides about the format of head and body.
    pub kind: u8,
    /// Number that the sender of the request has chosen; 0 if the kind has none.
    pub id: u32,
    /// Head, in postcard's format.
    pub head: &'a [u8],
    /// Body.
    pub body: &'a [u8],
}

impl<'a> RawMessage<'a> {
    /// Splits the first message off the contents of a frame.
    fn split_first_message(contents: &'a [u8]) -> Result<(Self, &'a [u8]), ProtocolError> {
        let (header, rest) = contents
            .split_first_chunk::<MESSAGE_HEADER_BYTES>()
            .ok_or(ProtocolError::FrameContents)?;
        let [kind, h0, h1, h2, i0, i1, i2, i3, b0, b1, b2, b3] = *header;
        let head_length = u32::from_le_bytes([h0, h1, h2, 0]);
        let body_length = u32::from_le_bytes([b0, b1, b2, b3]);
        let bounded = |length: u32, most: usize| {
            usize::try_from(length)
                .ok()
                .filter(|length| *length <= most)
                .ok_or(ProtocolError::MessageLength(kind))
        };
        let head_length = bounded(head_length, MAX_HEAD_BYTES)?;
        let body_length = bounded(body_length, MAX_BODY_BYTES)?;
        let parts = rest.split_at_checked(head_length).and_then(|(head, rest)| {
            let (body, rest) = rest.split_at_checked(body_length)?;
            Some((head, body, rest))
        });
        let (head, body, rest) = parts.ok_or(ProtocolError::FrameContents)?;
        let message = Self {
            kind,
            id: u32::from_le_bytes([i0, i1, i2, i3]),
            head,
            body,
        };
        Ok((message, rest))
    }
}

/// The messages of a frame, in order. The iterator ends after the first error.
#[derive(Clone, Debug)]
pub struct FrameMessages<'a> {
    contents: &'a [u8],
    count: u16,
    has_failed: bool,
}

impl<'a> FrameMessages<'a> {
    /// Parses the number of messages and the flags of a frame, whose length field is removed.
    fn parse_frame_header(frame: &'a [u8], length: u32) -> Result<Self, ProtocolError> {
        let (header, contents) = frame
            .split_first_chunk::<4>()
            .ok_or(ProtocolError::FrameLength(length))?;
        let [c0, c1, f0, f1] = *header;
        let count = u16::from_le_bytes([c0, c1]);
        let flags = u16::from_le_bytes([f0, f1]);
        if !(1..=MAX_FRAME_MESSAGES).contains(&count) {
            return Err(ProtocolError::MessageCount(count));
        }
        if flags != 0 {
            return Err(ProtocolError::FrameFlags(flags));
        }
        Ok(Self {
            contents,
            count,
            has_failed: false,
        })
    }

    /// Returns the next message, or `None` at the end of the frame.
    fn read_next_message(&mut self) -> Result<Option<RawMessage<'a>>, ProtocolError> {
        let Some(left) = self.count.checked_sub(1) else {
            return match self.contents.is_empty() {
                true => Ok(None),
                false => Err(ProtocolError::FrameContents),
            };
        };
        let (message, rest) = RawMessage::split_first_message(self.contents)?;
        (self.contents, self.count) = (rest, left);
        Ok(Some(message))
    }
}

impl<'a> Iterator for FrameMessages<'a> {
    type Item = Result<RawMessage<'a>, ProtocolError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let message = self.read_next_message().transpose();
        self.has_failed = matches!(message, Some(Err(_)));
        message
    }
}

/// Splits the first frame off `bytes`. Returns its messages and the bytes that follow it, or `None`
/// if the frame is incomplete.
///
/// # Errors
/// [`ProtocolError`] if the header of the frame is invalid, or its length is above `max_frame`.
pub fn split_first_frame(
    bytes: &[u8],
    max_frame: usize,
) -> Result<Option<(FrameMessages<'_>, &[u8])>, ProtocolError> {
    let Some((field, rest)) = bytes.split_first_chunk::<LENGTH_FIELD_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*field);
    let frame_length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= max_frame)
        .ok_or(ProtocolError::FrameLength(length))?;
    let Some((frame, rest)) = rest.split_at_checked(frame_length) else {
        return Ok(None);
    };
    Ok(Some((
        FrameMessages::parse_frame_header(frame, length)?,
        rest,
    )))
}

/// The decoder of the bytes that one side of a connection receives: the preface, then frames.
///
/// After an error it returns this error again: the connection has to be closed.
#[derive(Debug)]
pub struct FrameDecoder {
    /// Received bytes, then room for more.
    buffer: Vec<u8>,
    /// Number of bytes at the beginning of the buffer that were decoded.
    start: usize,
    /// Number of bytes at the beginning of the buffer that were received.
    end: usize,
    max_frame: usize,
    has_read_preface: bool,
}

impl FrameDecoder {
    /// Creates the decoder of a stream that begins with the preface, and whose frames have at most
    /// `max_frame` bytes.
    pub fn new(max_frame: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            max_frame,
            has_read_preface: false,
        }
    }

    /// Returns a buffer for the next bytes, which has room for the rest of a frame that has begun.
    /// Decode all [frames](Self::next_frame) before.
    ///
    /// # Errors
    /// [`ProtocolError::OutOfMemory`].
    pub fn read_buffer(&mut self) -> Result<&mut [u8], ProtocolError> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let wanted = self.begun_frame_length().max(SOFT_FRAME_BYTES);
        if self.buffer.len() < wanted {
            let missing = wanted - self.buffer.len();
            self.buffer
                .try_reserve_exact(missing)
                .map_err(|_| ProtocolError::OutOfMemory)?;
            self.buffer.resize(wanted, 0);
        } else if self.buffer.len() > wanted && self.end <= wanted {
            self.buffer.truncate(wanted);
            self.buffer.shrink_to(wanted);
        }
        Ok(self.buffer.get_mut(self.end..).unwrap_or(&mut []))
    }

    /// Records that `bytes` bytes were written to the [read buffer](Self::read_buffer).
    pub fn record_read_bytes(&mut self, bytes: usize) {
        self.end = self.end.saturating_add(bytes).min(self.buffer.len());
    }

    /// Appends received bytes. Decode all [frames](Self::next_frame) before the next call, so that
    /// the decoder buffers less than one frame.
    ///
    /// # Errors
    /// [`ProtocolError::OutOfMemory`]; no byte was appended.
    pub fn receive_bytes(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.buffer.truncate(self.end);
        self.buffer.drain(..self.start);
        self.end -= self.start;
        self.start = 0;
        try_extend(&mut self.buffer, bytes).ok_or(ProtocolError::OutOfMemory)?;
        self.end = self.buffer.len();
        Ok(())
    }

    /// Returns the messages of the next frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`ProtocolError`] if the preface or the header of the frame is invalid.
    pub fn next_frame(&mut self) -> Result<Option<FrameMessages<'_>>, ProtocolError> {
        if !self.has_read_preface && !self.read_preface()? {
            return Ok(None);
        }
        let unread = self.buffer.get(self.start..self.end).unwrap_or(&[]);
        let Some((messages, rest)) = split_first_frame(unread, self.max_frame)? else {
            return Ok(None);
        };
        self.start = self.end - rest.len();
        Ok(Some(messages))
    }

    /// Whether all received bytes belong to complete frames.
    pub fn is_at_frame_end(&self) -> bool {
        self.has_read_preface && self.start == self.end
    }

    /// Length of the frame at the beginning of the buffer with its length field, if the field is
    /// complete; the limit was not checked if no frame was decoded since.
    fn begun_frame_length(&self) -> usize {
        let unread = self.buffer.get(..self.end).unwrap_or(&[]);
        let field = unread.first_chunk::<LENGTH_FIELD_BYTES>();
        let length = field.map_or(0, |field| u32::from_le_bytes(*field));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match self.has_read_preface {
            true => length.min(self.max_frame) + LENGTH_FIELD_BYTES,
            false => PREFACE.len(),
        }
    }

    /// Reads the preface, at the beginning of the buffer. Returns whether it is complete.
    fn read_preface(&mut self) -> Result<bool, ProtocolError> {
        let received = self.buffer.get(..self.end).unwrap_or(&[]);
        let is_complete = check_preface(received)?;
        if is_complete {
            self.start = PREFACE.len();
            self.has_read_preface = true;
        }
        Ok(is_complete)
    }
}

/// Compares the beginning of `bytes` with the preface, as far as they reach. Returns whether the
/// preface is complete.
///
/// # Errors
/// [`ProtocolError::UnknownPreface`], [`ProtocolError::OtherVersion`].
pub fn check_preface(bytes: &[u8]) -> Result<bool, ProtocolError> {
    let mut magic = bytes.iter().zip(&PREFACE).take(MAGIC_LENGTH);
    if magic.any(|(byte, expected)| byte != expected) {
        return Err(ProtocolError::UnknownPreface);
    }
    match bytes.get(MAGIC_LENGTH) {
        None => Ok(false),
        Some(version) if Some(version) == PREFACE.last() => Ok(true),
        Some(version) => Err(ProtocolError::OtherVersion(*version)),
    }
}
