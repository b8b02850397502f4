//! Messages from the owner to a process.

use serde::{Deserialize, Serialize};

use super::frame::RawMessage;
use super::message_body::MessageBody;
use super::message_head::{
    copy_chunk, copy_first_part, parse_head, parse_head_without_id, reject_body, skip_unknown_kind,
};
use super::outgoing_frame::{FrameAppendError, OutgoingFrame};
use super::protocol_error::ProtocolError;
use crate::cache::chain::ChainState;
use crate::cache::entry::store_attributes::PurgeScope;
use crate::cache::{CacheKey, CacheNamespace};

/// Maximum length of a chain state in JSON, in bytes. States have less than half of it.
const MAX_CHAIN_STATE_BYTES: usize = 8 << 10;

/// Kinds of the messages from the owner to a process.
mod kind {
    pub(super) const WELCOME: u8 = 0x41;
    pub(super) const REFUSED: u8 = 0x42;
    pub(super) const SEND_LEASE: u8 = 0x43;
    pub(super) const FILLED: u8 = 0x44;
    pub(super) const LEASE_RELEASED: u8 = 0x45;
    pub(super) const CHAIN: u8 = 0x46;
    pub(super) const PURGE: u8 = 0x47;
    pub(super) const FOUND: u8 = 0x48;
    pub(super) const MISSING: u8 = 0x49;
    pub(super) const BATCH_FOUND: u8 = 0x4a;
    pub(super) const BATCH_END: u8 = 0x4b;
    pub(super) const ADMIN_REPLY: u8 = 0x4c;
    pub(super) const CHUNK: u8 = 0x4d;
    pub(super) const LATE_REPLY: u8 = 0x4e;
    pub(super) const BATCH_WAIT: u8 = 0x4f;
}

/// A message from the owner to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerMessage {
    /// The session is open. The states of all chains, a send lease and the first replies follow in
    /// the same frame.
    Welcome {
        /// Number of the session, which no other session of this owner has.
        session: u64,
        /// Generation of the newest purge.
        generation: u64,
        /// Number of the last event before this message.
        event: u64,
    },
    /// The session is refused, or has ended.
    Refused(RefusalReason),
    /// An extension of the process's send lease.
    SendLease {
        /// Time until which the process may send entries from its memory, in monotonic
        /// milliseconds.
        until: u64,
        /// Number of the last event that was queued before the lease was granted. The lease may be
        /// used when this event is in effect in the process.
        after: u64,
        /// Generation of the newest purge.
        generation: u64,
    },
    /// An event of the session.
    Event {
        /// Number of the event, higher by 1 than the number of the event before.
        number: u64,
        /// The event.
        event: SessionEvent,
    },
    /// The reply to a lookup that has found an entry.
    Found {
        /// Number of the lookup.
        id: u32,
        /// Generation of the newest purge before the lookup.
        generation: u64,
        /// The entry.
        entry: FoundEntry,
    },
    /// The reply to a lookup that has found no entry.
    Missing {
        /// Number of the lookup.
        id: u32,
        /// Generation of the newest purge before the lookup.
        generation: u64,
        /// Decision about the lease that the lookup has requested.
        lease: LeaseReply,
    },
    /// An entry that a batch lookup has found.
    BatchFound {
        /// Number of the lookup.
        id: u32,
        /// Generation of the newest purge before the lookup.
        generation: u64,
        /// Key of the entry.
        key: CacheKey,
        /// The entry.
        entry: FoundEntry,
    },
    /// The owner waits for responses to a batch lookup that other machines fetch: its reply comes
    /// within the lookup's `lease_wait`.
    BatchWait {
        /// Number of the lookup.
        id: u32,
    },
    /// The end of the reply to a batch lookup: entries that were not sent are absent.
    BatchEnd {
        /// Number of the lookup.
        id: u32,
        /// Generation of the newest purge before the lookup.
        generation: u64,
    },
    /// The reply to a purge or a query of the status.
    AdminReply {
        /// Number of the request.
        id: u32,
        /// Status code, as of the HTTP interface.
        status: u16,
        /// Length of the body in bytes.
        total: u64,
        /// The body in JSON, or its first part.
        body: MessageBody,
    },
    /// The next part of the body that the last reply with this id has begun.
    Chunk {
        /// Number of the request.
        id: u32,
        /// The part.
        bytes: MessageBody,
    },
}

/// An entry in a reply, with its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    /// Remaining lifetime in milliseconds.
    pub fresh: u64,
    /// Milliseconds since the request was sent to the node.
    pub age: u64,
    /// Length of the serialized entry in bytes.
    pub total: u64,
    /// The serialized entry, or its first part.
    pub bytes: MessageBody,
}

/// An event of a session. The owner repeats it until the process acknowledges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The key was stored, or one of the processes that wait is to fetch it: they look it up again.
    Filled(CacheKey),
    /// The key was not stored, and no process fetches it any more.
    LeaseReleased(CacheKey),
    /// The state of a chain has changed.
    Chain {
        /// Namespace of the chain.
        namespace: CacheNamespace,
        /// State of the chain.
        state: Box<ChainState>,
    },
    /// Entries were removed, and must not be sent any more.
    Purge {
        /// Generation of the purge.
        generation: u64,
        /// Scope of the purge.
        scope: PurgeEventScope,
    },
    /// The messages that follow in the same frame are a reply that was late, in a session that
    /// polls. They are no events themselves.
    LateReply {
        /// Number of the messages.
        messages: u16,
    },
}

/// The scope of a purge, as far as processes distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum PurgeEventScope {
    /// The entries of a method or of blocks.
    MethodOrBlocks,
    /// One entry, in both formats of its resource.
    Key(CacheKey),
    /// All entries of a namespace.
    Namespace(CacheNamespace),
    /// All entries.
    Everything,
}

impl From<&PurgeScope> for PurgeEventScope {
    fn from(scope: &PurgeScope) -> Self {
        match scope {
            PurgeScope::Method { .. } | PurgeScope::Blocks { .. } => Self::MethodOrBlocks,
            PurgeScope::Key(key) => Self::Key(*key),
            PurgeScope::Namespace(namespace) => Self::Namespace(*namespace),
            PurgeScope::Everything => Self::Everything,
        }
    }
}

/// The reason why the owner has no session for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum RefusalReason {
    /// The owner does not know the session: it was lost, or belongs to an earlier owner.
    UnknownSession,
    /// The maximum number of processes is reached.
    TooManyProcesses,
    /// The clock of the session request differs from the owner's: the request was late, or the
    /// process has another monotonic clock, with which send leases are impossible. Only the process
    /// can distinguish the two: it knows when it sent the request.
    ClockDiffers,
    /// The owner is about to stop.
    Stopping,
}

/// The owner's decision about the lease of a key that is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum LeaseReply {
    /// No lease was requested, or none can be granted: the process may fetch the key without one.
    NoLease,
    /// The process has the lease: it stores the entry or releases the lease.
    Granted,
    /// Another process has the lease: an event follows.
    Pending,
    /// The maximum number of leases is reached: the process may fetch the key without one.
    Full,
}

/// The head of a message with an entry, after its other members.
#[derive(Deserialize, Serialize)]
struct EntryHead {
    fresh: u64,
    age: u64,
    total: u64,
}

impl EntryHead {
    fn from_entry(entry: &FoundEntry) -> Self {
        Self {
            fresh: entry.fresh,
            age: entry.age,
            total: entry.total,
        }
    }

    fn decode_entry(self, message: &RawMessage<'_>) -> Result<FoundEntry, ProtocolError> {
        Ok(FoundEntry {
            fresh: self.fresh,
            age: self.age,
            total: self.total,
            bytes: copy_first_part(message, self.total)?,
        })
    }
}

impl OwnerMessage {
    /// Appends the message to a frame.
    ///
    /// # Errors
    /// [`FrameAppendError`].
    pub fn append_to_frame(&self, frame: &mut OutgoingFrame) -> Result<(), FrameAppendError> {
        let none = &MessageBody::default();
        match self {
            Self::Welcome {
                session,
                generation,
                event,
            } => frame.append_message(kind::WELCOME, 0, &(session, generation, event), none),
            Self::Refused(reason) => frame.append_message(kind::REFUSED, 0, reason, none),
            Self::SendLease {
                until,
                after,
                generation,
            } => frame.append_message(kind::SEND_LEASE, 0, &(until, after, generation), none),
            Self::Event { number, event } => event.append_numbered_event(*number, frame),
            Self::Found {
                id,
                generation,
                entry,
            } => {
                let head = (generation, EntryHead::from_entry(entry));
                frame.append_message(kind::FOUND, *id, &head, &entry.bytes)
            }
            Self::Missing {
                id,
                generation,
                lease,
            } => frame.append_message(kind::MISSING, *id, &(generation, lease), none),
            Self::BatchFound {
                id,
                generation,
                key,
                entry,
            } => {
                let head = (generation, key, EntryHead::from_entry(entry));
                frame.append_message(kind::BATCH_FOUND, *id, &head, &entry.bytes)
            }
            Self::BatchWait { id } => frame.append_message(kind::BATCH_WAIT, *id, &(), none),
            Self::BatchEnd { id, generation } => {
                frame.append_message(kind::BATCH_END, *id, generation, none)
            }
            Self::AdminReply {
                id,
                status,
                total,
                body,
            } => frame.append_message(kind::ADMIN_REPLY, *id, &(status, total), body),
            Self::Chunk { id, bytes } => frame.append_message(kind::CHUNK, *id, &(), bytes),
        }
    }

    /// Decodes a message. Returns `None` for a kind that is unknown and may be skipped.
    ///
    /// # Errors
    /// [`ProtocolError`]: the session is lost.
    pub fn decode_message(message: &RawMessage<'_>) -> Result<Option<Self>, ProtocolError> {
        let id = message.id;
        Ok(Some(match message.kind {
            kind::WELCOME => {
                reject_body(message)?;
                let (session, generation, event) = parse_head_without_id(message)?;
                Self::Welcome {
                    session,
                    generation,
                    event,
                }
            }
            kind::REFUSED => {
                reject_body(message)?;
                Self::Refused(parse_head_without_id(message)?)
            }
            kind::SEND_LEASE => {
                reject_body(message)?;
                let (until, after, generation) = parse_head_without_id(message)?;
                Self::SendLease {
                    until,
                    after,
                    generation,
                }
            }
            kind::FILLED | kind::LEASE_RELEASED | kind::CHAIN | kind::PURGE | kind::LATE_REPLY => {
                let (number, event) = SessionEvent::decode_numbered_event(message)?;
                Self::Event { number, event }
            }
            kind::FOUND => {
                let (generation, head): (_, EntryHead) = parse_head(message)?;
                let entry = head.decode_entry(message)?;
                Self::Found {
                    id,
                    generation,
                    entry,
                }
            }
            kind::MISSING => {
                reject_body(message)?;
                let (generation, lease) = parse_head(message)?;
                Self::Missing {
                    id,
                    generation,
                    lease,
                }
            }
            kind::BATCH_FOUND => {
                let (generation, key, head): (_, _, EntryHead) = parse_head(message)?;
                let entry = head.decode_entry(message)?;
                Self::BatchFound {
                    id,
                    generation,
                    key,
                    entry,
                }
            }
            kind::BATCH_WAIT => {
                reject_body(message)?;
                parse_head::<()>(message)?;
                Self::BatchWait { id }
            }
            kind::BATCH_END => {
                reject_body(message)?;
                let generation = parse_head(message)?;
                Self::BatchEnd { id, generation }
            }
            kind::ADMIN_REPLY => {
                let (status, total) = parse_head(message)?;
                let body = copy_first_part(message, total)?;
                Self::AdminReply {
                    id,
                    status,
                    total,
                    body,
                }
            }
            kind::CHUNK => {
                parse_head::<()>(message)?;
                let bytes = copy_chunk(message)?;
                Self::Chunk { id, bytes }
            }
            _ => return skip_unknown_kind(message),
        }))
    }
}

impl SessionEvent {
    fn append_numbered_event(
        &self,
        number: u64,
        frame: &mut OutgoingFrame,
    ) -> Result<(), FrameAppendError> {
        let none = &MessageBody::default();
        match self {
            Self::Filled(key) => frame.append_message(kind::FILLED, 0, &(number, key), none),
            Self::LeaseReleased(key) => {
                frame.append_message(kind::LEASE_RELEASED, 0, &(number, key), none)
            }
            Self::Chain { namespace, state } => {
                // JSON: the state's members may be absent, which postcard does not support
                let state = serde_json::to_vec(state).map_err(|_| FrameAppendError::TooLong)?;
                frame.append_message(
                    kind::CHAIN,
                    0,
                    &(number, namespace),
                    &MessageBody::from(state),
                )
            }
            Self::Purge { generation, scope } => {
                frame.append_message(kind::PURGE, 0, &(number, generation, scope), none)
            }
            Self::LateReply { messages } => {
                frame.append_message(kind::LATE_REPLY, 0, &(number, messages), none)
            }
        }
    }

    fn decode_numbered_event(message: &RawMessage<'_>) -> Result<(u64, Self), ProtocolError> {
        if message.kind == kind::CHAIN {
            let (number, namespace) = parse_head_without_id(message)?;
            let state = decode_chain_state(message)?;
            return Ok((number, Self::Chain { namespace, state }));
        }
        reject_body(message)?;
        if message.kind == kind::PURGE {
            let (number, generation, scope) = parse_head_without_id(message)?;
            return Ok((number, Self::Purge { generation, scope }));
        }
        if message.kind == kind::LATE_REPLY {
            let (number, messages) = parse_head_without_id(message)?;
            return Ok((number, Self::LateReply { messages }));
        }
        let (number, key) = parse_head_without_id(message)?;
        let event = match message.kind {
            kind::FILLED => Self::Filled(key),
            _ => Self::LeaseReleased(key),
        };
        Ok((number, event))
    }
}

/// Decodes the state of a chain, which is the body of its message.
fn decode_chain_state(message: &RawMessage<'_>) -> Result<Box<ChainState>, ProtocolError> {
    let state = match message.body.len() {
        ..=MAX_CHAIN_STATE_BYTES => serde_json::from_slice(message.body).ok(),
        _ => None,
    };
    state.ok_or(ProtocolError::InvalidBody(message.kind))
}
