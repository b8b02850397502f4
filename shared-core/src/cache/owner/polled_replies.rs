//! The replies of a session that polls: those without a number, and the late ones.

use std::collections::VecDeque;

use crate::cache::owner_protocol::outgoing_frame::{FrameAppendError, OutgoingFrame};
use crate::cache::owner_protocol::owner_message::{OwnerMessage, SessionEvent};

/// The replies of a session that polls.
#[derive(Debug, Default)]
pub(super) struct PolledReplies {
    /// Replies that have no number yet, in their order.
    pub(super) new: VecDeque<PolledReply>,
    /// Late replies that are not acknowledged.
    pub(super) late: VecDeque<(u64, PolledReply)>,
}

/// A reply with its chunks, which are sent in one frame.
#[derive(Debug)]
pub(super) struct PolledReply {
    pub(super) messages: Vec<OwnerMessage>,
    pub(super) body_bytes: usize,
}

impl PolledReplies {
    /// Queues a reply and the chunks that follow it.
    pub(super) fn queue_new_reply(&mut self, reply: OwnerMessage, rest: Vec<OwnerMessage>) {
        let mut messages = vec![reply];
        messages.extend(rest);
        let body_bytes = messages.iter().map(body_length).sum();
        self.new.push_back(PolledReply {
            messages,
            body_bytes,
        });
    }

    /// Whether replies wait that have no number.
    pub(super) fn has_new_replies(&self) -> bool {
        !self.new.is_empty()
    }

    /// Removes the late replies up to a number. Returns the length of their bodies in bytes.
    pub(super) fn remove_through(&mut self, number: u64) -> usize {
        let mut length = 0;
        while let Some((late, reply)) = self.late.front() {
            if *late > number {
                break;
            }
            length += reply.body_bytes;
            self.late.pop_front();
        }
        length
    }
}

/// Length of the body of a queued message in bytes.
pub(super) fn body_length(message: &OwnerMessage) -> usize {
    match message {
        OwnerMessage::Found { entry, .. } | OwnerMessage::BatchFound { entry, .. } => {
            entry.bytes.byte_length()
        }
        OwnerMessage::AdminReply { body, .. } => body.byte_length(),
        OwnerMessage::Chunk { bytes, .. } => bytes.byte_length(),
        _ => 0,
    }
}

/// The reason why no further message is added to a frame.
pub(super) enum SessionFrameEnd {
    /// The message that was not added has to be sent in the next frame.
    Full,
    /// The session has ended.
    Ended,
}

impl From<FrameAppendError> for SessionFrameEnd {
    fn from(_: FrameAppendError) -> Self {
        Self::Full
    }
}

/// Appends a reply to a frame, or nothing of it if it does not fit.
pub(super) fn append_reply(
    reply: &PolledReply,
    frame: &mut OutgoingFrame,
) -> Result<(), SessionFrameEnd> {
    if !frame.has_room_for(reply.messages.len(), reply.body_bytes) {
        return Err(SessionFrameEnd::Full);
    }
    for message in &reply.messages {
        // if memory is refused, the rest of the reply is absent: its request ends by its time
        message.append_to_frame(frame)?;
    }
    Ok(())
}

/// Appends the late reply with a number, which consists of `messages` messages, or nothing of it if
/// it does not fit.
pub(super) fn append_late_reply(
    polled: Option<&PolledReplies>,
    number: u64,
    messages: u16,
    frame: &mut OutgoingFrame,
) -> Result<(), SessionFrameEnd> {
    let mut late = polled.into_iter().flat_map(|polled| &polled.late);
    let reply = late.find(|(late, _)| *late == number);
    let body_bytes = reply.map_or(0, |(_, reply)| reply.body_bytes);
    if !frame.has_room_for(usize::from(messages) + 1, body_bytes) {
        return Err(SessionFrameEnd::Full);
    }
    let event = SessionEvent::LateReply { messages };
    OwnerMessage::Event { number, event }.append_to_frame(frame)?;
    for message in reply.iter().flat_map(|(_, reply)| &reply.messages) {
        message.append_to_frame(frame)?;
    }
    Ok(())
}
