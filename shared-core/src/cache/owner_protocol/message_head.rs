//! Heads of messages in postcard's format (<https://postcard.jamesmunns.com>).

use serde::Deserialize;

use super::frame::RawMessage;
use super::message_body::MessageBody;
use super::protocol_error::ProtocolError;
use crate::cache::CacheKey;

/// Bit of the kinds that a receiver skips if it does not know them.
pub(super) const OPTIONAL_KIND: u8 = 0x80;

/// Parses the head of a message whose kind has no id.
pub(super) fn parse_head_without_id<'a, T: Deserialize<'a>>(
    message: &RawMessage<'a>,
) -> Result<T, ProtocolError> {
    match message.id {
        0 => parse_head(message),
        _ => Err(ProtocolError::InvalidHead(message.kind)),
    }
}

/// Parses the head of a message; no byte of it may be left.
pub(super) fn parse_head<'a, T: Deserialize<'a>>(
    message: &RawMessage<'a>,
) -> Result<T, ProtocolError> {
    match postcard::take_from_bytes(message.head) {
        Ok((head, [])) => Ok(head),
        _ => Err(ProtocolError::InvalidHead(message.kind)),
    }
}

/// Checks that a message has no body.
pub(super) fn reject_body(message: &RawMessage<'_>) -> Result<(), ProtocolError> {
    match message.body {
        [] => Ok(()),
        _ => Err(ProtocolError::InvalidBody(message.kind)),
    }
}

/// Copies the body of a message.
pub(super) fn copy_body(message: &RawMessage<'_>) -> Result<MessageBody, ProtocolError> {
    MessageBody::try_copy_from(message.body).ok_or(ProtocolError::OutOfMemory)
}

/// Copies the first part of a body that has `total` bytes together with the chunks that follow.
pub(super) fn copy_first_part(
    message: &RawMessage<'_>,
    total: u64,
) -> Result<MessageBody, ProtocolError> {
    match message.body.len() as u64 <= total {
        true => copy_body(message),
        false => Err(ProtocolError::InvalidBody(message.kind)),
    }
}

/// Copies a chunk, which has at least one byte.
pub(super) fn copy_chunk(message: &RawMessage<'_>) -> Result<MessageBody, ProtocolError> {
    match message.body {
        [] => Err(ProtocolError::InvalidBody(message.kind)),
        _ => copy_body(message),
    }
}

/// Parses a key that is the whole head of a message without a body.
pub(super) fn parse_only_key(message: &RawMessage<'_>) -> Result<CacheKey, ProtocolError> {
    reject_body(message)?;
    parse_head_without_id(message)
}

/// Returns the result of a message of an unknown kind: `None` if it may be skipped.
///
/// # Errors
/// [`ProtocolError::UnknownKind`].
pub(super) fn skip_unknown_kind<T>(message: &RawMessage<'_>) -> Result<Option<T>, ProtocolError> {
    match message.kind & OPTIONAL_KIND {
        0 => Err(ProtocolError::UnknownKind(message.kind)),
        _ => Ok(None),
    }
}
