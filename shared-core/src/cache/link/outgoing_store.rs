//! Entries as messages that store them.

use super::background_queue::QueuedStore;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::wire::EncodedEntry;
use crate::cache::entry::CacheEntry;
use crate::cache::owner_protocol::frame::MAX_BODY_BYTES;
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use crate::cache::owner_protocol::process_message::{ProcessMessage, StoreRequest};
use crate::cache::process::owner_client::OwnerStoreOptions;
use crate::cache::CacheKey;

/// An entry that is being sent: the message that stores it, and the chunks of a long one.
#[derive(Debug)]
pub(super) struct OutgoingStore {
    pub(super) key: CacheKey,
    /// The first message without its body, until it is sent.
    first: Option<Box<StoreRequest>>,
    /// Number of the chunks.
    id: u32,
    body: MessageBody,
    /// Length of the body in bytes, and number of those that were sent.
    total: usize,
    sent: usize,
}

impl OutgoingStore {
    /// Creates the messages of a queued entry. Returns `None` if it has expired, or memory is
    /// refused.
    pub(super) fn new(store: QueuedStore, id: u32, now: u64) -> Option<Self> {
        let QueuedStore {
            key,
            entry,
            about,
            options,
            ..
        } = store;
        let mut first = store_request(key, &entry, *about, options, now)?;
        let body = std::mem::take(&mut first.entry);
        let total = body.byte_length();
        if total > MAX_BODY_BYTES {
            first.id = id;
        }
        Some(Self {
            key,
            first: Some(Box::new(first)),
            id,
            body,
            total,
            sent: 0,
        })
    }

    /// Whether all messages are sent.
    pub(super) fn is_sent(&self) -> bool {
        self.first.is_none() && self.sent == self.total
    }

    /// Appends the next message to a frame. Returns `false` if the entry can't be sent.
    pub(super) fn append_next(&mut self, frame: &mut OutgoingFrame) -> bool {
        let end = self.total.min(self.sent + MAX_BODY_BYTES);
        let part = match self.sent == 0 && end == self.total {
            true => Some(std::mem::take(&mut self.body)),
            false => self.body.slice_body(self.sent..end),
        };
        let Some(part) = part else {
            return false;
        };
        self.sent = end;
        let message = match self.first.take() {
            Some(first) => ProcessMessage::Store(Box::new(StoreRequest {
                entry: part,
                ..*first
            })),
            None => ProcessMessage::Chunk {
                id: self.id,
                bytes: part,
            },
        };
        message.append_to_frame(frame).is_ok()
    }
}

/// Returns the request that stores an entry, with its whole body. Returns `None` if the entry has
/// expired, or memory is refused.
pub(super) fn store_request(
    key: CacheKey,
    entry: &CacheEntry,
    about: StoredEntryAttributes,
    options: OwnerStoreOptions,
    now: u64,
) -> Option<StoreRequest> {
    let metadata = entry.response_metadata();
    let fresh = metadata.expires_at.checked_sub(now)?;
    let age = now.saturating_sub(metadata.requested_at);
    let body = MessageBody::from(EncodedEntry::from_entry(entry)?);
    Some(StoreRequest {
        id: 0,
        key,
        about,
        fresh,
        age,
        if_final: options.if_final,
        is_shareable: options.is_shareable,
        anchor: options.anchor,
        total: body.byte_length() as u64,
        entry: body,
    })
}
