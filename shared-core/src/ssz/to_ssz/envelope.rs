//! What an API puts around a value: `{"version": ..., "data": ...}` of the
//! Beacon API, `{"jsonrpc": "2.0", "id": ..., "result": ...}` of JSON-RPC.

use super::scan::Wrong;
use crate::ssz::error::{Problem, Step};

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The value alone.
    Bare,
    /// An object that has it as `data` or `result`.
    Enveloped,
    /// An object whose first name is a field of the type's is the value itself;
    /// any other object has it as `data` or `result`. Where the type has such a
    /// field, what is in it decides.
    Either,
}

/// What an envelope of the Beacon API says of its value; `None`: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The execution client has not verified it.
    pub execution_optimistic: Option<bool>,
    /// It will not change any more.
    pub finalized: Option<bool>,
}

impl Flags {
    pub(super) fn of(&mut self, flag: Flag) -> &mut Option<bool> {
        match flag {
            Flag::Optimistic => &mut self.execution_optimistic,
            Flag::Finalized => &mut self.finalized,
        }
    }
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    Optimistic,
    Finalized,
}

/// An envelope that is open.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    /// Under which name the value came.
    value: Option<&'static str>,
    version: bool,
    /// The value is being read.
    pub(super) is_inside: bool,
}

/// What is to be done with a member of an envelope.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Member {
    Value,
    Version,
    /// `true` or `false`, or another value that says nothing.
    Flag(Flag),
    /// `null`, or what went wrong.
    Error,
    Other,
}

impl Envelope {
    pub(super) fn member(&mut self, name: &[u8], at: usize) -> Result<Member, Wrong> {
        self.is_inside = false;
        let value = match name {
            b"data" => "data",
            b"result" => "result",
            b"error" => return Ok(Member::Error),
            b"execution_optimistic" => return Ok(Member::Flag(Flag::Optimistic)),
            b"finalized" => return Ok(Member::Flag(Flag::Finalized)),
            b"version" if self.version => return Err(Wrong::new(at, "version is there twice")),
            b"version" => {
                self.version = true;
                return Ok(Member::Version);
            }
            _ => return Ok(Member::Other),
        };
        if let Some(before) = self.value.replace(value) {
            let why = match before == value {
                true => format!("{value} is there twice"),
                false => "both data and result are there".into(),
            };
            return Err(Wrong::new(at, why));
        }
        self.is_inside = true;
        Ok(Member::Value)
    }

    pub(super) fn step(&self) -> Option<Step> {
        let value = self.value.filter(|_| self.is_inside)?;
        Some(Step::Field(value.into()))
    }

    pub(super) fn close(&self) -> Result<(), Problem> {
        match self.value {
            Some(_) => Ok(()),
            None => Err(Problem::NoValue),
        }
    }
}
