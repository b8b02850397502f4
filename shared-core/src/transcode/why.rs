//! Why an answer can't be had in the other format.

use std::fmt;

use super::chain::ForkDigest;
use crate::cache::reason::Reason;
use crate::mode::Mode;
use crate::ssz::{Error, Fork, Problem};

/// Why an answer can't be had in the other format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing names its fork before its value. It is never guessed.
    NoVersion,
    /// It is of a fork that is not known, or that has no such type.
    Fork(String),
    /// Its head and its envelope name two forks.
    TwoVersions(&'static str, String),
    /// The node has not said yet which forks its chain has.
    NoDigests,
    /// It stands for none of them.
    Digest(ForkDigest),
    /// It is of a fork that was not, or not any more, at that slot.
    NotThen(Fork, u64),
    /// It is no value of its type.
    Invalid(Error),
    /// It is an error, or null.
    Nothing,
    /// Its JSON says more than its SSZ.
    More,
    /// Its type is not known.
    Untyped,
    /// Its status is not that of a whole value.
    Status(u16),
    /// Its SSZ is longer than `sszip_ssz_max_size`. Bytes.
    Length(u64),
    /// It has a content coding that can't be read.
    Coding,
    /// It must not be changed.
    NoTransform,
    /// Memory was refused.
    Memory,
    /// It is long, and as many of those are being made as may be at a time.
    Busy,
    /// Something has failed inside.
    Failed,
}

impl Why {
    /// The same as a word, for logs and metrics.
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

    /// Whether that is over soon, whoever asks for it.
    pub fn passes(&self) -> bool {
        matches!(self, Why::Memory | Why::Busy)
    }

    /// The same, of what is not stored.
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
