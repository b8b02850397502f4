//! Reasons why a response is not available in the other format.

use std::fmt;

use super::chain::ForkDigest;
use crate::cache::reason::Reason;
use crate::mode::Mode;
use crate::ssz::{Error, Fork, Problem};

/// The reason why a response is not available in the other format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
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
    NotThen(Fork, u64),
    /// The value is not valid for its type.
    Invalid(Error),
    /// The response is an error, or null.
    Nothing,
    /// The JSON has members that SSZ does not have.
    More,
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

impl Why {
    /// The mode of the error, for logs and metrics.
    pub fn mode(&self) -> Mode {
        match self {
            Why::NoVersion | Why::More => Mode::SszVersion,
            Why::Fork(_) | Why::TwoVersions(..) => Mode::SszFork,
            Why::NoDigests | Why::Digest(_) | Why::NotThen(..) => Mode::SszFork,
            Why::Invalid(_) => Mode::SszInvalid,
            Why::Nothing | Why::Untyped | Why::Status(_) => Mode::SszNothing,
            Why::Length(_) => Mode::SszLength,
            Why::Coding => Mode::Encoded,
            Why::NoTransform => Mode::NoTransform,
            Why::Memory => Mode::Memory,
            Why::Busy => Mode::SszBusy,
            Why::Failed => Mode::Failed,
        }
    }

    /// Whether the error is temporary and independent of the client.
    pub fn passes(&self) -> bool {
        matches!(self, Why::Memory | Why::Busy)
    }

    /// The reason for a response that is not stored.
    pub fn reason(&self) -> Reason {
        match self {
            Why::NoVersion | Why::More => Reason::SszVersion,
            Why::Fork(_) | Why::TwoVersions(..) => Reason::SszFork,
            Why::NoDigests | Why::Digest(_) | Why::NotThen(..) => Reason::SszFork,
            Why::Invalid(_) | Why::Nothing => Reason::SszInvalid,
            Why::Untyped | Why::Status(_) => Reason::Type,
            Why::Length(_) => Reason::SszLength,
            Why::Coding => Reason::Coding,
            Why::NoTransform => Reason::NoTransform,
            Why::Memory => Reason::Memory,
            Why::Busy => Reason::SszBusy,
            Why::Failed => Reason::Type,
        }
    }
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        match error.problem() {
            Problem::NoMemory(_) => Why::Memory,
            Problem::NoVersion => Why::NoVersion,
            Problem::Error | Problem::Null => Why::Nothing,
            _ => Why::Invalid(error),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoVersion => f.write_str("nothing names its fork before its value"),
            Why::Fork(name) => write!(f, "fork {name:?} is not known, or has no such type"),
            Why::TwoVersions(head, body) => {
                write!(f, "its head names the fork {head}, its body {body:?}")
            }
            Why::NoDigests => f.write_str("the node has not said yet which forks there are"),
            Why::Digest(digest) => {
                let digest = const_hex::encode(digest);
                write!(f, "the fork digest 0x{digest} is not known")
            }
            Why::NotThen(fork, slot) => write!(f, "slot {slot} is not of the fork {fork}"),
            Why::Invalid(error) => error.fmt(f),
            Why::Length(most) => write!(f, "it is more than {most} bytes of SSZ"),
            Why::Nothing => f.write_str("it is an error, or null"),
            Why::More => f.write_str("its JSON says more than its SSZ"),
            Why::Untyped => f.write_str("the node has it in another format only"),
            Why::Status(status) => write!(f, "its status is {status}, and not 200"),
            Why::Coding => f.write_str("its content coding can't be read"),
            Why::NoTransform => f.write_str("it must not be changed"),
            Why::Memory => f.write_str("there is no memory for it"),
            Why::Busy => f.write_str("too many long ones are being made now"),
            Why::Failed => f.write_str("something has failed"),
        }
    }
}

impl std::error::Error for Why {}
