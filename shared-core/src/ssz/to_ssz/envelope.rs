//! Envelopes around values: `{"version": ..., "data": ...}` of the Beacon API, and
//! `{"jsonrpc": "2.0", "id": ..., "result": ...}` of JSON-RPC.

use super::scan::TokenError;
use crate::ssz::error::{SszErrorKind, Step};

/// The form of the JSON input: the value alone, or an envelope around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputForm {
    /// The value without an envelope.
    Bare,
    /// An object with the value in `data` or `result`.
    Enveloped,
    /// Either one: an object whose first name is a field of the type is the value itself; any other
    /// object has it in `data` or `result`. If the type has a field of that name, the content of
    /// the member decides.
    Either,
}

/// Flags in an envelope of the Beacon API; `None` where they are not present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvelopeFlags {
    /// Whether the execution client has not verified the value.
    pub execution_optimistic: Option<bool>,
    /// Whether the value is finalized.
    pub finalized: Option<bool>,
}

impl EnvelopeFlags {
    pub(super) fn slot(&mut self, flag: Flag) -> &mut Option<bool> {
        match flag {
            Flag::Optimistic => &mut self.execution_optimistic,
            Flag::Finalized => &mut self.finalized,
        }
    }
}

/// A member of an envelope of the Beacon API that is `true` or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    Optimistic,
    Finalized,
}

/// The progress of an envelope whose end is not read yet.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    /// Name of the member that contained the value.
    value: Option<&'static str>,
    version: bool,
    /// Whether the value is being read.
    pub(super) is_inside: bool,
}

/// The kind of an envelope's member, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Member {
    Value,
    Version,
    /// A flag: `true` or `false`; other values are ignored.
    Flag(Flag),
    /// An error, or `null`.
    Error,
    Other,
}

impl Envelope {
    pub(super) fn member(&mut self, name: &[u8], at: usize) -> Result<Member, TokenError> {
        self.is_inside = false;
        let value = match name {
            b"data" => "data",
            b"result" => "result",
            b"error" => return Ok(Member::Error),
            b"execution_optimistic" => return Ok(Member::Flag(Flag::Optimistic)),
            b"finalized" => return Ok(Member::Flag(Flag::Finalized)),
            b"version" if self.version => return Err(TokenError::new(at, "version occurs twice")),
            b"version" => {
                self.version = true;
                return Ok(Member::Version);
            }
            _ => return Ok(Member::Other),
        };
        if let Some(before) = self.value.replace(value) {
            let why = match before == value {
                true => format!("{value} occurs twice"),
                false => "both data and result are present".into(),
            };
            return Err(TokenError::new(at, why));
        }
        self.is_inside = true;
        Ok(Member::Value)
    }

    pub(super) fn step(&self) -> Option<Step> {
        let value = self.value.filter(|_| self.is_inside)?;
        Some(Step::Field(value.into()))
    }

    pub(super) fn close(&self) -> Result<(), SszErrorKind> {
        match self.value {
            Some(_) => Ok(()),
            None => Err(SszErrorKind::NoValue),
        }
    }
}
