//! The bodies of callouts, which are the preface, an envelope and a frame, and of their answers,
//! which are the preface and a frame.

use super::client_name::OwnerClientName;
use super::frame::{
    check_preface, split_first_frame, FrameMessages, MAX_CALLOUT_FRAME_BYTES, PREFACE,
};
use super::outgoing_frame::OutgoingFrame;
use super::owner_message::{OwnerMessage, RefusalReason};
use super::process_message::{ProcessMessage, SessionRequest};
use super::protocol_error::ProtocolError;

/// Maximum length of the body of a callout in bytes: a frame with its length field, and 256 bytes
/// for what precedes it.
pub const MAX_CALLOUT_BYTES: usize = MAX_CALLOUT_FRAME_BYTES + 256;

/// Length of an envelope without the name in bytes.
const ENVELOPE_BYTES: usize = 26;

/// The purpose of a callout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalloutRole {
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
}

/// The envelope of a callout, and the messages in its frame.
#[derive(Debug)]
pub struct CalloutEnvelope<'a> {
    /// Purpose of the callout.
    pub role: CalloutRole,
    /// Name of the process.
    pub process: OwnerClientName,
    /// Number of the session; 0: the first message requests one.
    pub session: u64,
    /// Number of the last event that is in effect in the process.
    pub applied: u64,
    /// The messages; a poll has none.
    pub messages: Option<FrameMessages<'a>>,
}

/// The reason why the body of a callout is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
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
    pub fn decode_body(body: &'a [u8]) -> Result<Self, EnvelopeError> {
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
            _ => return Err(EnvelopeError::Envelope),
        };
        let EnvelopeBytes(frame) = bytes;
        let messages = match (role, frame) {
            (CalloutRole::Poll { .. }, []) => None,
            (CalloutRole::Poll { .. }, _) => return Err(EnvelopeError::Frame),
            (CalloutRole::Data { .. }, frame) => {
                match split_first_frame(frame, MAX_CALLOUT_FRAME_BYTES)? {
                    Some((messages, [])) => Some(messages),
                    _ => return Err(EnvelopeError::Frame),
                }
            }
        };
        Ok(Self {
            role,
            process,
            session,
            applied,
            messages,
        })
    }

    /// Takes the first message, which is the request for a session if the callout has none.
    ///
    /// # Errors
    /// [`EnvelopeError`]: the first message is another one, or the request of another process.
    pub fn take_session_request(&mut self) -> Result<SessionRequest, EnvelopeError> {
        let messages = self.messages.as_mut().ok_or(EnvelopeError::Frame)?;
        let first = messages.next().ok_or(EnvelopeError::Frame)??;
        match ProcessMessage::decode_message(&first)? {
            Some(ProcessMessage::Hello(request)) if request.process == self.process => {
                Ok(SessionRequest {
                    polls: true,
                    ..request
                })
            }
            _ => Err(EnvelopeError::Envelope),
        }
    }
}

/// Returns the body of a callout with an envelope and a frame; a poll has no frame. Returns `None` if
/// memory is refused.
pub fn encode_callout_body(
    role: CalloutRole,
    process: &OwnerClientName,
    session: u64,
    applied: u64,
    frame: Option<&OutgoingFrame>,
) -> Option<Vec<u8>> {
    let (role, number, wait) = match role {
        CalloutRole::Data { number } => (0, number, 0),
        CalloutRole::Poll { wait } => (1, 0, wait),
    };
    let name = process.as_str().as_bytes();
    let mut body = Vec::new();
    let envelope_length = PREFACE.len() + ENVELOPE_BYTES + name.len();
    body.try_reserve_exact(envelope_length + frame.map_or(0, OutgoingFrame::byte_length))
        .ok()?;
    body.extend_from_slice(&PREFACE);
    body.extend_from_slice(&[role, u8::try_from(name.len()).ok()?]);
    body.extend_from_slice(name);
    body.extend_from_slice(&session.to_le_bytes());
    body.extend_from_slice(&number.to_le_bytes());
    body.extend_from_slice(&applied.to_le_bytes());
    body.extend_from_slice(&wait.to_le_bytes());
    for piece in frame.iter().flat_map(|frame| frame.pieces()) {
        body.extend_from_slice(piece);
    }
    Some(body)
}

/// The answer to a callout.
#[derive(Debug)]
pub enum CalloutAnswer {
    /// A frame.
    Frame(OutgoingFrame),
    /// The preface alone: a later callout was handled before, or the process has ended the session.
    Empty,
    /// The session is unknown or was refused.
    Refused(RefusalReason),
}

impl CalloutAnswer {
    /// Returns the body of the answer, or `None` if memory is refused.
    pub fn encode(&self) -> Option<Vec<u8>> {
        match self {
            Self::Frame(frame) => encode_callout_answer(Some(frame)),
            Self::Empty => encode_callout_answer(None),
            Self::Refused(reason) => {
                let mut frame = OutgoingFrame::for_callout()?;
                let refusal = OwnerMessage::Refused(*reason);
                refusal.append_to_frame(&mut frame).ok()?;
                encode_callout_answer(Some(&frame))
            }
        }
    }
}

/// Returns the body of the answer to a callout; one without a frame is the preface alone. Returns
/// `None` if memory is refused.
pub fn encode_callout_answer(frame: Option<&OutgoingFrame>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    body.try_reserve_exact(PREFACE.len() + frame.map_or(0, OutgoingFrame::byte_length))
        .ok()?;
    body.extend_from_slice(&PREFACE);
    for piece in frame.iter().flat_map(|frame| frame.pieces()) {
        body.extend_from_slice(piece);
    }
    Some(body)
}

/// Returns the messages in the answer to a callout, or `None` if it is the preface alone.
///
/// # Errors
/// [`ProtocolError`].
pub fn decode_callout_answer(body: &[u8]) -> Result<Option<FrameMessages<'_>>, ProtocolError> {
    if !check_preface(body)? {
        return Err(ProtocolError::UnknownPreface);
    }
    match body.get(PREFACE.len()..).unwrap_or_default() {
        [] => Ok(None),
        frame => match split_first_frame(frame, MAX_CALLOUT_FRAME_BYTES)? {
            Some((messages, [])) => Ok(Some(messages)),
            _ => Err(ProtocolError::FrameContents),
        },
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
