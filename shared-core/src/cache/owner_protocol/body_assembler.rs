//! Bodies that arrive in several messages: the first message declares the length of the whole body,
//! and chunks with its id follow.

use std::collections::VecDeque;

use super::message_body::MessageBody;
use crate::bytes::try_extend;

/// Maximum number of bodies that are assembled at a time.
const MAX_OPEN_BODIES: usize = 4;

/// The result of a part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssemblyProgress<M> {
    /// Chunks are missing.
    Incomplete,
    /// The body is complete; returned with its first message.
    Complete(M, Vec<u8>),
    /// The body is too long, or memory was refused: its first message is returned without it.
    /// Chunks that follow have no effect.
    Dropped(M),
    /// The peer has sent more bytes than it has declared: the session is lost.
    Excess(M),
    /// The chunk belongs to no open body, because it was dropped.
    Unknown,
}

/// A body with missing chunks, and the message that began it.
#[derive(Debug)]
struct PartialBody<M> {
    id: u32,
    message: M,
    bytes: Vec<u8>,
    total: u64,
}

/// The bodies that a peer has begun to send. Their number and their declared lengths together are
/// limited; the oldest is dropped beyond that.
#[derive(Debug)]
pub struct BodyAssembler<M> {
    open: VecDeque<PartialBody<M>>,
    /// Maximum length of one body in bytes.
    max_body: u64,
}

impl<M> BodyAssembler<M> {
    /// Creates an assembler of bodies of at most `max_body` bytes. It buffers at most twice that
    /// number together.
    pub fn new(max_body: u64) -> Self {
        Self {
            open: VecDeque::new(),
            max_body,
        }
    }

    /// Begins a body of `total` bytes with its first part. The bodies that are dropped to make room
    /// are passed to `on_drop`, by their first messages; a body that is open under the same id is
    /// one of them.
    pub fn begin_body(
        &mut self,
        id: u32,
        message: M,
        first_part: MessageBody,
        total: u64,
        mut on_drop: impl FnMut(M),
    ) -> AssemblyProgress<M> {
        if total > self.max_body {
            return AssemblyProgress::Dropped(message);
        }
        let length = first_part.byte_length() as u64;
        if length > total {
            return AssemblyProgress::Excess(message);
        }
        let Some(bytes) = first_part.into_joined_bytes() else {
            return AssemblyProgress::Dropped(message);
        };
        if length == total {
            return AssemblyProgress::Complete(message, bytes);
        }
        if let Some(same) = self.remove_open_body(id) {
            on_drop(same.message);
        }
        while self.open.len() >= MAX_OPEN_BODIES || self.exceeds_limit_with(total) {
            match self.open.pop_front() {
                Some(oldest) => on_drop(oldest.message),
                None => break,
            }
        }
        if self.open.try_reserve(1).is_err() {
            return AssemblyProgress::Dropped(message);
        }
        self.open.push_back(PartialBody {
            id,
            message,
            bytes,
            total,
        });
        AssemblyProgress::Incomplete
    }

    /// Appends a chunk to the body that is open under `id`.
    pub fn append_chunk(&mut self, id: u32, chunk: &MessageBody) -> AssemblyProgress<M> {
        let Some(position) = self.open.iter().position(|body| body.id == id) else {
            return AssemblyProgress::Unknown;
        };
        let Some(body) = self.open.get_mut(position) else {
            return AssemblyProgress::Unknown;
        };
        let length = (body.bytes.len() as u64).saturating_add(chunk.byte_length() as u64);
        let has_room = length <= body.total;
        let is_appended = has_room && append_parts(&mut body.bytes, chunk).is_some();
        if is_appended && length < body.total {
            return AssemblyProgress::Incomplete;
        }
        match self.open.remove(position) {
            None => AssemblyProgress::Unknown,
            Some(body) if is_appended => AssemblyProgress::Complete(body.message, body.bytes),
            Some(body) if has_room => AssemblyProgress::Dropped(body.message),
            Some(body) => AssemblyProgress::Excess(body.message),
        }
    }

    /// Drops the body that is open under `id`, and returns its first message.
    pub fn drop_body(&mut self, id: u32) -> Option<M> {
        self.remove_open_body(id).map(|body| body.message)
    }

    /// Drops all open bodies, and returns their first messages.
    pub fn drop_all_bodies(&mut self) -> impl Iterator<Item = M> + '_ {
        self.open.drain(..).map(|body| body.message)
    }

    /// Number of open bodies.
    pub fn open_body_count(&self) -> usize {
        self.open.len()
    }

    fn remove_open_body(&mut self, id: u32) -> Option<PartialBody<M>> {
        let position = self.open.iter().position(|body| body.id == id)?;
        self.open.remove(position)
    }

    /// Whether the declared lengths of all open bodies and `total` exceed the limit.
    fn exceeds_limit_with(&self, total: u64) -> bool {
        let declared = self.open.iter().map(|body| body.total);
        let declared = declared.fold(total, u64::saturating_add);
        declared > self.max_body.saturating_mul(2)
    }
}

fn append_parts(bytes: &mut Vec<u8>, chunk: &MessageBody) -> Option<()> {
    let [owned, shared] = chunk.parts();
    try_extend(bytes, owned)?;
    try_extend(bytes, shared)
}
