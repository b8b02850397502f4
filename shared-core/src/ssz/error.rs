//! Errors with their position in the input.

use std::fmt;

/// The error of an SSZ value, or of its JSON, that can't be read: the reason, the path and the
/// position. [`Display`](fmt::Display) writes
/// `body.attestations[3].data.slot, byte 1234: a leading zero`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SszError {
    /// Path from the innermost value outwards.
    steps: Vec<ErrorPathStep>,
    byte_offset: u64,
    error_kind: SszErrorKind,
}

/// One step of the path from a whole value to the part in which an error is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorPathStep {
    /// A field of a container.
    Field(String),
    /// An element of a list or vector.
    Element(u64),
}

/// The reason of an [`SszError`]: the rule that the value breaks, or the cause for which its reader
/// stops.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SszErrorKind {
    /// Any other error in one line, which begins with a noun or a verb in the third person.
    Because(String),
    /// The input ends within a value.
    Ends,
    /// A response without `data` or `result`.
    NoValue,
    /// The response is an error.
    Error,
    /// The result is `null`, which its type does not allow.
    Null,
    /// The response's version is to determine the fork, and the value precedes it.
    NoVersion,
    /// An allocation of the given number of bytes was refused.
    NoMemory(usize),
}

impl SszError {
    /// Creates an error at byte `at` of the input, with an empty path.
    pub(crate) fn new(at: impl TryInto<u64>, problem: SszErrorKind) -> Self {
        Self {
            steps: Vec::new(),
            byte_offset: at.try_into().unwrap_or(u64::MAX),
            error_kind: problem,
        }
    }

    pub(crate) fn from_message(at: impl TryInto<u64>, why: impl Into<String>) -> Self {
        Self::new(at, SszErrorKind::Because(why.into()))
    }

    /// Prepends a step to the path: the caller is the reader of the enclosing value.
    pub(crate) fn prepend_path_step(mut self, step: ErrorPathStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Adds a field to the front of the error's path, which is built from the value outwards.
    pub(crate) fn prepend_field(self, name: &str) -> Self {
        self.prepend_path_step(ErrorPathStep::Field(name.into()))
    }

    /// Adds an element's index to the front of the error's path, which is built from the value
    /// outwards.
    pub(crate) fn prepend_element(self, index: impl TryInto<u64>) -> Self {
        self.prepend_path_step(ErrorPathStep::Element(index.try_into().unwrap_or(u64::MAX)))
    }

    /// Returns the position in the input, in bytes, at which the value begins or the error is.
    pub fn byte_offset(&self) -> u64 {
        self.byte_offset
    }

    /// Returns the rule that is broken, without path and position.
    pub fn error_kind(&self) -> &SszErrorKind {
        &self.error_kind
    }

    /// Returns the path of the value, as `body.attestations[3].data`; empty for the whole value.
    pub fn value_path(&self) -> String {
        let mut path = String::new();
        for step in self.steps.iter().rev() {
            match step {
                ErrorPathStep::Field(name) if path.is_empty() => path.push_str(name),
                ErrorPathStep::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                ErrorPathStep::Element(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }
}

impl fmt::Display for SszError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.steps.is_empty() {
            write!(f, "{}, ", self.value_path())?;
        }
        write!(f, "byte {}: {}", self.byte_offset, self.error_kind)
    }
}

impl fmt::Display for SszErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Because(why) => f.write_str(why),
            Self::Ends => f.write_str("the input ends within a value"),
            Self::NoValue => f.write_str("data and result are missing"),
            Self::Error => f.write_str("the response is an error"),
            Self::Null => f.write_str("the result is null"),
            Self::NoVersion => f.write_str("no version precedes the value"),
            Self::NoMemory(bytes) => write!(f, "can't allocate {bytes} bytes of memory"),
        }
    }
}

impl std::error::Error for SszError {}
