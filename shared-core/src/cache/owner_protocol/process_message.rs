//! Messages from a process to the owner.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::client_name::OwnerClientName;
use super::frame::RawMessage;
use super::message_body::MessageBody;
use super::message_head::{
    copy_body, copy_chunk, copy_first_part, parse_head, parse_head_without_id, parse_only_key,
    reject_body, skip_unknown_kind,
};
use super::outgoing_frame::{FrameAppendError, OutgoingFrame, MAX_SENT_HEAD_BYTES};
use super::protocol_error::ProtocolError;
use crate::cache::chain::ShownBlock;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::store_attributes::{StoredEntryAttributes, MAX_METHOD_LENGTH};
use crate::cache::freshness::{BlockAnchor, FinalityUpgrade};
use crate::cache::{CacheKey, CacheNamespace};
use crate::time_constants::memory_lease;

/// Maximum number of keys of a batch lookup.
pub const MAX_BATCH_KEYS: usize = 1_000;

/// Maximum difference between the clock of a session request and the owner's clock when the request
/// arrives, in milliseconds. Send leases end by the clock of the process, so the owner refuses a
/// request beyond it: the request was late, or the process has another monotonic clock.
pub fn max_clock_difference() -> u64 {
    memory_lease() / 4
}

/// Kinds of the messages from a process to the owner.
mod kind {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const LOOKUP: u8 = 0x02;
    pub(super) const BATCH_LOOKUP: u8 = 0x03;
    pub(super) const STORE: u8 = 0x04;
    pub(super) const RELEASE: u8 = 0x05;
    pub(super) const SHOW_BLOCK: u8 = 0x06;
    pub(super) const APPLIED: u8 = 0x07;
    pub(super) const PURGE: u8 = 0x08;
    pub(super) const STATUS: u8 = 0x09;
    pub(super) const CHUNK: u8 = 0x0a;
    pub(super) const GOODBYE: u8 = 0x0b;
}

/// A message from a process to the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessMessage {
    /// The first message of a session.
    Hello(SessionRequest),
    /// Look a key up.
    Lookup {
        /// Number of the lookup, which its reply has too.
        id: u32,
        /// Key of the entry.
        key: CacheKey,
        /// Maximum duration of the lease that is requested if the entry is absent, in
        /// milliseconds; `None`: no lease is requested.
        lease: Option<u32>,
        /// Milliseconds for which the process can wait for an entry of another machine; 0: the
        /// response is not shared between machines, or the process has no time.
        fleet_wait: u16,
        /// [Kind](super::call_kind) of the call whose response may be shared between machines.
        call_kind: u32,
    },
    /// Look several keys up, without leases of the machine.
    BatchLookup {
        /// Number of the lookup, which its replies have too.
        id: u32,
        /// Keys of the entries, 1 to [`MAX_BATCH_KEYS`].
        keys: Vec<CacheKey>,
        /// [Kinds](super::call_kind) of the calls of the first keys, whose responses may be shared
        /// between machines. A call of [`NO_CALL_KIND`](super::call_kind::NO_CALL_KIND) has no
        /// lease of the fleet.
        call_kinds: Vec<u32>,
        /// Milliseconds for which the process can wait for entries of other machines; 0: no
        /// response is shared between machines, or the process has no time.
        fleet_wait: u16,
        /// Further milliseconds for which the process can wait while other machines fetch; 0: it
        /// does not wait for them.
        lease_wait: u32,
    },
    /// Store an entry. The message has no reply.
    Store(Box<StoreRequest>),
    /// End a lease without an entry. The message has no reply.
    Release(CacheKey),
    /// Report a block that a response has shown to a client. The message has no reply.
    ShowBlock {
        /// Namespace of the chain.
        namespace: CacheNamespace,
        /// The block.
        sighting: ShownBlock,
    },
    /// Acknowledge events, and the purges among them.
    Applied {
        /// Number of the last event that is in effect in the process.
        event: u64,
        /// Generation up to which purges are in effect in the process.
        generation: u64,
    },
    /// Purge entries.
    Purge {
        /// Number of the request, which its reply has too.
        id: u32,
        /// JSON object with the scope.
        scope: MessageBody,
    },
    /// Query the status of the owner.
    Status {
        /// Number of the request, which its reply has too.
        id: u32,
    },
    /// The next part of the body that a [`StoreRequest`] has begun.
    Chunk {
        /// Number of the store request.
        id: u32,
        /// The part.
        bytes: MessageBody,
    },
    /// End the session and its leases.
    Goodbye,
}

/// The request of a process for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// Name of the process, the same as long as it runs.
    pub process: OwnerClientName,
    /// Number of the request among all of this process, from 1 on. The owner refuses one that is
    /// not above the last that it has accepted: it was delayed.
    pub attempt: u32,
    /// Monotonic clock of the process in milliseconds.
    pub clock: u64,
    /// Whether the owner can send only replies, so that the process polls for events.
    pub polls: bool,
}

/// The request of a process to store an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRequest {
    /// Number that the chunks of the entry have; 0 if the entry is complete.
    pub id: u32,
    /// Key of the entry.
    pub key: CacheKey,
    /// Attributes of the entry.
    pub about: StoredEntryAttributes,
    /// Remaining lifetime in milliseconds.
    pub fresh: u64,
    /// Milliseconds since the request was sent to the node.
    pub age: u64,
    /// Conditions under which the owner may make the entry immutable.
    pub if_final: Option<FinalityUpgrade>,
    /// Whether the owner may share the entry with other machines.
    pub is_shareable: bool,
    /// Block hash by which the owner of another machine can check the entry.
    pub anchor: Option<BlockAnchor>,
    /// Length of the serialized entry in bytes.
    pub total: u64,
    /// The serialized entry, or its first part.
    pub entry: MessageBody,
}

#[derive(Deserialize, Serialize)]
struct HelloHead<'a> {
    process: &'a str,
    attempt: u32,
    clock: u64,
    polls: bool,
}

#[derive(Deserialize, Serialize)]
struct StoreHead<'a> {
    key: CacheKey,
    about: Cow<'a, StoredEntryAttributes>,
    fresh: u64,
    age: u64,
    if_final: Option<FinalityUpgrade>,
    is_shareable: bool,
    anchor: Option<BlockAnchor>,
    total: u64,
}

impl StoreRequest {
    fn head(&self) -> StoreHead<'_> {
        StoreHead {
            key: self.key,
            about: Cow::Borrowed(&self.about),
            fresh: self.fresh,
            age: self.age,
            if_final: self.if_final,
            is_shareable: self.is_shareable,
            anchor: self.anchor,
            total: self.total,
        }
    }

    /// Serializes the head of the message, for a direct call. Returns `None` if it is too long.
    pub fn serialize_head<'a>(
        &self,
        buffer: &'a mut [u8; MAX_SENT_HEAD_BYTES],
    ) -> Option<&'a [u8]> {
        let head = postcard::to_slice(&self.head(), buffer).ok()?;
        Some(head)
    }

    /// Decodes the head of a message that a direct call has passed. The request has no bytes of the
    /// entry.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn decode_head(head: &[u8]) -> Result<Self, ProtocolError> {
        decode_store_request(&RawMessage {
            kind: kind::STORE,
            id: 0,
            head,
            body: &[],
        })
    }
}

impl ProcessMessage {
    /// Appends the message to a frame.
    ///
    /// # Errors
    /// [`FrameAppendError`].
    pub fn append_to_frame(&self, frame: &mut OutgoingFrame) -> Result<(), FrameAppendError> {
        let none = &MessageBody::default();
        match self {
            Self::Hello(SessionRequest {
                process,
                attempt,
                clock,
                polls,
            }) => {
                let head = HelloHead {
                    process: process.as_str(),
                    attempt: *attempt,
                    clock: *clock,
                    polls: *polls,
                };
                frame.append_message(kind::HELLO, 0, &head, none)
            }
            Self::Lookup {
                id,
                key,
                lease,
                fleet_wait,
                call_kind,
            } => {
                let head = (key, lease, fleet_wait, call_kind);
                frame.append_message(kind::LOOKUP, *id, &head, none)
            }
            Self::BatchLookup {
                id,
                keys,
                call_kinds,
                fleet_wait,
                lease_wait,
            } => {
                let shareable =
                    u16::try_from(call_kinds.len()).map_err(|_| FrameAppendError::TooLong)?;
                let body = encode_keys(keys, call_kinds).ok_or(FrameAppendError::OutOfMemory)?;
                let head = (fleet_wait, shareable, lease_wait);
                frame.append_message(kind::BATCH_LOOKUP, *id, &head, &body)
            }
            Self::Store(store) => {
                frame.append_message(kind::STORE, store.id, &store.head(), &store.entry)
            }
            Self::Release(key) => frame.append_message(kind::RELEASE, 0, key, none),
            Self::ShowBlock {
                namespace,
                sighting,
            } => frame.append_message(kind::SHOW_BLOCK, 0, &(namespace, sighting), none),
            Self::Applied { event, generation } => {
                frame.append_message(kind::APPLIED, 0, &(event, generation), none)
            }
            Self::Purge { id, scope } => frame.append_message(kind::PURGE, *id, &(), scope),
            Self::Status { id } => frame.append_message(kind::STATUS, *id, &(), none),
            Self::Chunk { id, bytes } => frame.append_message(kind::CHUNK, *id, &(), bytes),
            Self::Goodbye => frame.append_message(kind::GOODBYE, 0, &(), none),
        }
    }

    /// Decodes a message. Returns `None` for a kind that is unknown and may be skipped.
    ///
    /// # Errors
    /// [`ProtocolError`]: the session is lost.
    pub fn decode_message(message: &RawMessage<'_>) -> Result<Option<Self>, ProtocolError> {
        let id = message.id;
        Ok(Some(match message.kind {
            kind::HELLO => Self::Hello(decode_session_request(message)?),
            kind::LOOKUP => {
                reject_body(message)?;
                let (key, lease, fleet_wait, call_kind) = parse_head(message)?;
                Self::Lookup {
                    id,
                    key,
                    lease,
                    fleet_wait,
                    call_kind,
                }
            }
            kind::BATCH_LOOKUP => decode_batch_lookup(message)?,
            kind::STORE => Self::Store(Box::new(decode_store_request(message)?)),
            kind::RELEASE => Self::Release(parse_only_key(message)?),
            kind::SHOW_BLOCK => {
                reject_body(message)?;
                let (namespace, sighting) = parse_head_without_id(message)?;
                Self::ShowBlock {
                    namespace,
                    sighting,
                }
            }
            kind::APPLIED => {
                reject_body(message)?;
                let (event, generation) = parse_head_without_id(message)?;
                Self::Applied { event, generation }
            }
            kind::PURGE => {
                parse_head::<()>(message)?;
                let scope = copy_body(message)?;
                Self::Purge { id, scope }
            }
            kind::STATUS => {
                reject_body(message)?;
                parse_head::<()>(message)?;
                Self::Status { id }
            }
            kind::CHUNK => {
                parse_head::<()>(message)?;
                let bytes = copy_chunk(message)?;
                Self::Chunk { id, bytes }
            }
            kind::GOODBYE => {
                reject_body(message)?;
                parse_head_without_id::<()>(message)?;
                Self::Goodbye
            }
            _ => return skip_unknown_kind(message),
        }))
    }
}

fn decode_session_request(message: &RawMessage<'_>) -> Result<SessionRequest, ProtocolError> {
    reject_body(message)?;
    let head: HelloHead<'_> = parse_head_without_id(message)?;
    let process = OwnerClientName::new(head.process);
    Ok(SessionRequest {
        process: process.ok_or(ProtocolError::InvalidHead(message.kind))?,
        attempt: head.attempt,
        clock: head.clock,
        polls: head.polls,
    })
}

fn decode_batch_lookup(message: &RawMessage<'_>) -> Result<ProcessMessage, ProtocolError> {
    let (fleet_wait, shareable, lease_wait): (u16, u16, u32) = parse_head(message)?;
    let shareable = usize::from(shareable);
    let invalid_body = ProtocolError::InvalidBody(message.kind);
    let kinds_at = message.body.len().checked_sub(shareable * size_of::<u32>());
    let (keys, kinds) = message.body.split_at(kinds_at.ok_or(invalid_body)?);
    let keys = decode_keys(keys, message.kind)?;
    if shareable > keys.len() {
        return Err(ProtocolError::InvalidHead(message.kind));
    }
    let mut call_kinds = Vec::new();
    call_kinds
        .try_reserve_exact(shareable)
        .map_err(|_| ProtocolError::OutOfMemory)?;
    let (kinds, _) = kinds.as_chunks::<{ size_of::<u32>() }>();
    call_kinds.extend(kinds.iter().map(|kind| u32::from_le_bytes(*kind)));
    Ok(ProcessMessage::BatchLookup {
        id: message.id,
        keys,
        call_kinds,
        fleet_wait,
        lease_wait,
    })
}

/// Decodes the keys at the beginning of the body of a batch lookup.
fn decode_keys(bytes: &[u8], kind: u8) -> Result<Vec<CacheKey>, ProtocolError> {
    let (found, rest) = bytes.as_chunks::<{ size_of::<CacheKey>() }>();
    if !rest.is_empty() || !(1..=MAX_BATCH_KEYS).contains(&found.len()) {
        return Err(ProtocolError::InvalidBody(kind));
    }
    let mut keys = Vec::new();
    keys.try_reserve_exact(found.len())
        .map_err(|_| ProtocolError::OutOfMemory)?;
    keys.extend_from_slice(found);
    Ok(keys)
}

/// Encodes the body of a batch lookup. Returns `None` if memory is refused.
fn encode_keys(keys: &[CacheKey], call_kinds: &[u32]) -> Option<MessageBody> {
    let mut body = Vec::new();
    let length = size_of_val(keys) + size_of_val(call_kinds);
    body.try_reserve_exact(length).ok()?;
    body.extend_from_slice(keys.as_flattened());
    body.extend(call_kinds.iter().flat_map(|kind| kind.to_le_bytes()));
    Some(MessageBody::from(body))
}

fn decode_store_request(message: &RawMessage<'_>) -> Result<StoreRequest, ProtocolError> {
    let head: StoreHead<'_> = parse_head(message)?;
    let is_valid_method = |method: &str| {
        (1..=MAX_METHOD_LENGTH).contains(&method.len())
            && method.bytes().all(|byte| byte.is_ascii_graphic())
    };
    // entries of class `nothing` are sent as class `tip`
    let is_valid = head.about.class != LifetimeClass::Nothing
        && head.about.method.as_deref().is_none_or(is_valid_method);
    if !is_valid {
        return Err(ProtocolError::InvalidHead(message.kind));
    }
    Ok(StoreRequest {
        id: message.id,
        key: head.key,
        about: head.about.into_owned(),
        fresh: head.fresh,
        age: head.age,
        if_final: head.if_final,
        is_shareable: head.is_shareable,
        anchor: head.anchor,
        total: head.total,
        entry: copy_first_part(message, head.total)?,
    })
}
