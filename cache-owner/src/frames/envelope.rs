//! The bodies of callouts: the preface, the envelope, and a frame.

use sszip_core::cache::owner::processes::OwnerClientName;
use sszip_core::cache::owner_protocol::frame::{
    check_preface, split_first_frame, FrameMessages, MAX_CALLOUT_FRAME_BYTES, PREFACE,
};
use sszip_core::cache::owner_protocol::protocol_error::ProtocolError;

/// Maximum length of the body of a callout in bytes: a frame with its length field, and 256 bytes
/// for what precedes it.
pub(crate) const MAX_CALLOUT_BYTES: usize = MAX_CALLOUT_FRAME_BYTES + 256;

/// The purpose of a callout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CalloutRole {
    /// Messages, which are handled if no later ones were. The answer has the replies that are known.
    Data {
        /// Number of the callout among all of this role in its session.
        number: u32,
    },
    /// A query for events and late replies, which is answered when there are some.
    Poll {
        /// Maximum time until the answer, in milliseconds.
        wait: u32,
    },
    /// A long entry, in any order.
    Bulk,
}

/// The decoded body of a callout.
#[derive(Debug)]
pub(super) struct CalloutEnvelope<'a> {
    pub(super) role: CalloutRole,
    pub(super) process: OwnerClientName,
    /// Number of the session; 0: the first message requests one.
    pub(super) session: u64,
    /// Number of the last event that is in effect in the process.
    pub(super) applied: u64,
    /// The messages; a poll has none.
    pub(super) messages: Option<FrameMessages<'a>>,
}

/// The reason why the body of a callout is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EnvelopeError {
    /// The preface or the frame.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The envelope.
    #[error("the envelope is invalid")]
    Envelope,
    /// The frame is absent or incomplete, or bytes follow it.
    #[error("the callout must have one whole frame, a poll none")]
    Frame,
}

impl<'a> CalloutEnvelope<'a> {
    /// Decodes the body of a callout.
    ///
    /// # Errors
    /// [`EnvelopeError`].
    pub(super) fn decode_body(body: &'a [u8]) -> Result<Self, EnvelopeError> {
        if !check_preface(body)? {
            return Err(EnvelopeError::Envelope);
        }
        let mut bytes = EnvelopeBytes(body.get(PREFACE.len()..).unwrap_or_default());
        let [role, name_length] = bytes.split_array()?;
        let name = bytes.split_slice(usize::from(name_length))?;
        let name = std::str::from_utf8(name).ok();
        let process = name
            .and_then(OwnerClientName::new)
            .ok_or(EnvelopeError::Envelope)?;
        let session = u64::from_le_bytes(bytes.split_array()?);
        let number = u32::from_le_bytes(bytes.split_array()?);
        let applied = u64::from_le_bytes(bytes.split_array()?);
        let wait = u32::from_le_bytes(bytes.split_array()?);
        let role = match (role, number, wait) {
            (0, number, 0) => CalloutRole::Data { number },
            (1, 0, wait) => CalloutRole::Poll { wait },
            (2, 0, 0) => CalloutRole::Bulk,
            _ => return Err(EnvelopeError::Envelope),
        };
        let EnvelopeBytes(frame) = bytes;
        let messages = match (role, frame) {
            (CalloutRole::Poll { .. }, []) => None,
            (CalloutRole::Poll { .. }, _) => return Err(EnvelopeError::Frame),
            (_, frame) => match split_first_frame(frame, MAX_CALLOUT_FRAME_BYTES)? {
                Some((messages, [])) => Some(messages),
                _ => return Err(EnvelopeError::Frame),
            },
        };
        Ok(Self {
            role,
            process,
            session,
            applied,
            messages,
        })
    }
}

/// The bytes of a callout that were not decoded.
struct EnvelopeBytes<'a>(&'a [u8]);

impl<'a> EnvelopeBytes<'a> {
    fn split_array<const N: usize>(&mut self) -> Result<[u8; N], EnvelopeError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(EnvelopeError::Envelope)?;
        self.0 = rest;
        Ok(*array)
    }

    fn split_slice(&mut self, length: usize) -> Result<&'a [u8], EnvelopeError> {
        let (slice, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(EnvelopeError::Envelope)?;
        self.0 = rest;
        Ok(slice)
    }
}
