//! What is wrong, and where.

use std::fmt;

/// Why a value can't be read. [`Display`](fmt::Display) writes
/// `body.attestations[3].data.slot, byte 1234: a leading zero`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// From the inside out.
    steps: Vec<Step>,
    at: u64,
    problem: Problem,
}

/// One step of a path into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A field of a container.
    Field(String),
    /// An element of a list or vector.
    Element(u64),
}

/// What is wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Anything that one line says; it begins with a noun or a verb in the
    /// third person.
    Because(String),
    /// The input ends inside a value.
    Ends,
    /// An answer without `data` or `result`.
    NoValue,
    /// An answer that is an error.
    Error,
    /// A result that is `null`, and of a type that is not.
    Null,
    /// The fork is to be what an answer's version says, and the value came before
    /// it.
    NoVersion,
    /// Memory was refused, of so many bytes.
    NoMemory(usize),
}

impl Error {
    /// `at` counts bytes of the input.
    pub(crate) fn new(at: impl TryInto<u64>, problem: Problem) -> Self {
        Self {
            steps: Vec::new(),
            at: at.try_into().unwrap_or(u64::MAX),
            problem,
        }
    }

    pub(crate) fn because(at: impl TryInto<u64>, why: impl Into<String>) -> Self {
        Self::new(at, Problem::Because(why.into()))
    }

    /// The value lies in this one.
    pub(crate) fn inside(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn in_field(self, name: &str) -> Self {
        self.inside(Step::Field(name.into()))
    }

    pub(crate) fn in_element(self, index: impl TryInto<u64>) -> Self {
        self.inside(Step::Element(index.try_into().unwrap_or(u64::MAX)))
    }

    /// Which byte of the input the value begins at, or the fault is at.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Where it is, as `body.attestations[3].data`; nothing if it is the whole.
    pub fn path(&self) -> String {
        let mut path = String::new();
        for step in self.steps.iter().rev() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                Step::Element(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.steps.is_empty() {
            write!(f, "{}, ", self.path())?;
        }
        write!(f, "byte {}: {}", self.at, self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Because(why) => f.write_str(why),
            Self::Ends => f.write_str("the input ends here, inside a value"),
            Self::NoValue => f.write_str("it has neither data nor result"),
            Self::Error => f.write_str("the answer is an error"),
            Self::Null => f.write_str("the result is null"),
            Self::NoVersion => f.write_str("no version before it says what it is"),
            Self::NoMemory(bytes) => write!(f, "{bytes} bytes of memory were refused"),
        }
    }
}

impl std::error::Error for Error {}
