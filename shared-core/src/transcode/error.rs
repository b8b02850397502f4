//! Reasons why a response is not available in the other format.

use std::fmt;

use super::chain_spec::ForkDigest;
use crate::cache::reason::Reason;
use crate::response_mode::ResponseMode;
use crate::ssz::{Fork, SszError, SszErrorKind};

/// The reason why a body is not available in the other format, as logs, metrics and 406 responses
/// name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranscodeError {
    /// No fork is named before the value. The fork is never guessed.
    NoVersion,
    /// The fork is not known, or has no such type.
    Fork(String),
    /// Head and envelope name two different forks.
    TwoVersions(&'static str, String),
    /// The fork schedule of the node's chain is not known yet.
    NoDigests,
    /// The fork digest is not known.
    Digest(ForkDigest),
    /// The fork is not active at the slot.
    ForkNotActive(Fork, u64),
    /// The value is not valid for its type.
    Invalid(SszError),
    /// The response is an error, or null.
    NoValue,
    /// The JSON has members that SSZ does not have.
    ExtraJson,
    /// The type of the value is not known.
    Untyped,
    /// The response's status is not 200.
    Status(u16),
    /// The SSZ is longer than `sszip_ssz_max_size`, in bytes.
    Length(u64),
    /// The body has a content coding that can't be decoded.
    Coding,
    /// The response must not be transformed.
    NoTransform,
    /// Memory was refused.
    Memory,
    /// The body is long, and the maximum number of long conversions is running.
    Busy,
    /// An internal error.
    Failed,
}

impl TranscodeError {
    /// Returns the mode that logs and metrics show for the error.
    pub fn error_response_mode(&self) -> ResponseMode {
        match self {
            TranscodeError::NoVersion | TranscodeError::ExtraJson => ResponseMode::SszVersion,
            TranscodeError::Fork(_) | TranscodeError::TwoVersions(..) => ResponseMode::SszFork,
            TranscodeError::NoDigests
            | TranscodeError::Digest(_)
            | TranscodeError::ForkNotActive(..) => ResponseMode::SszFork,
            TranscodeError::Invalid(_) => ResponseMode::SszInvalid,
            TranscodeError::NoValue | TranscodeError::Untyped | TranscodeError::Status(_) => {
                ResponseMode::SszNothing
            }
            TranscodeError::Length(_) => ResponseMode::SszLength,
            TranscodeError::Coding => ResponseMode::Encoded,
            TranscodeError::NoTransform => ResponseMode::NoTransform,
            TranscodeError::Memory => ResponseMode::Memory,
            TranscodeError::Busy => ResponseMode::SszBusy,
            TranscodeError::Failed => ResponseMode::Failed,
        }
    }

    /// Whether the error is temporary and independent of the client.
    pub fn is_temporary(&self) -> bool {
        matches!(self, TranscodeError::Memory | TranscodeError::Busy)
    }

    /// Returns the reason for which a response with this error is not stored.
    pub fn not_cached_reason(&self) -> Reason {
        match self {
            TranscodeError::NoVersion | TranscodeError::ExtraJson => Reason::SszVersion,
            TranscodeError::Fork(_) | TranscodeError::TwoVersions(..) => Reason::SszFork,
            TranscodeError::NoDigests
            | TranscodeError::Digest(_)
            | TranscodeError::ForkNotActive(..) => Reason::SszFork,
            TranscodeError::Invalid(_) | TranscodeError::NoValue => Reason::SszInvalid,
            TranscodeError::Untyped | TranscodeError::Status(_) => Reason::Type,
            TranscodeError::Length(_) => Reason::SszLength,
            TranscodeError::Coding => Reason::Coding,
            TranscodeError::NoTransform => Reason::NoTransform,
            TranscodeError::Memory => Reason::Memory,
            TranscodeError::Busy => Reason::SszBusy,
            TranscodeError::Failed => Reason::Type,
        }
    }
}

impl From<SszError> for TranscodeError {
    fn from(error: SszError) -> Self {
        match error.error_kind() {
            SszErrorKind::NoMemory(_) => TranscodeError::Memory,
            SszErrorKind::NoVersion => TranscodeError::NoVersion,
            SszErrorKind::Error | SszErrorKind::Null => TranscodeError::NoValue,
            _ => TranscodeError::Invalid(error),
        }
    }
}

impl fmt::Display for TranscodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TranscodeError::NoVersion => f.write_str("no fork is named before the value"),
            TranscodeError::Fork(name) => {
                write!(f, "fork {name:?} is unknown, or does not have the type")
            }
            TranscodeError::TwoVersions(head, body) => {
                write!(f, "the head names the fork {head}, the body {body:?}")
            }
            TranscodeError::NoDigests => f.write_str("the node's fork schedule is not known yet"),
            TranscodeError::Digest(digest) => {
                let digest = const_hex::encode(digest);
                write!(f, "the fork digest 0x{digest} is unknown")
            }
            TranscodeError::ForkNotActive(fork, slot) => {
                write!(f, "the fork {fork} is not active at slot {slot}")
            }
            TranscodeError::Invalid(error) => error.fmt(f),
            TranscodeError::Length(most) => write!(f, "the SSZ is longer than {most} bytes"),
            TranscodeError::NoValue => f.write_str("it is an error or null"),
            TranscodeError::ExtraJson => {
                f.write_str("its JSON has members that its SSZ does not have")
            }
            TranscodeError::Untyped => {
                f.write_str("the node sent another format, and its type is not known")
            }
            TranscodeError::Status(status) => write!(f, "its status is {status}, not 200"),
            TranscodeError::Coding => f.write_str("its content coding is not supported"),
            TranscodeError::NoTransform => f.write_str("it has Cache-Control: no-transform"),
            TranscodeError::Memory => f.write_str("memory is short"),
            TranscodeError::Busy => {
                f.write_str("too many long conversions are running; repeat the request")
            }
            TranscodeError::Failed => f.write_str("internal error"),
        }
    }
}

impl std::error::Error for TranscodeError {}
