//! Envelopes around values: `{"version": ..., "data": ...}` of the Beacon API, and
//! `{"jsonrpc": "2.0", "id": ..., "result": ...}` of JSON-RPC.

use super::scan::JsonTokenError;
use crate::ssz::error::{ErrorPathStep, SszErrorKind};

/// The form of the JSON input: the value alone, or an envelope around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonEnvelopeForm {
    /// The value without an envelope.
    Bare,
    /// An object with the value in `data` or `result`.
    Enveloped,
    /// Either one: an object whose first name is a field of the type is the value itself; any other
    /// object has it in `data` or `result`. If the type has a field of that name, the content of
    /// the member decides.
    Either,
}

/// The flags in the envelope of a Beacon API response; `None` where they are not present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvelopeFlags {
    /// Whether the execution client has not verified the value.
    pub execution_optimistic: Option<bool>,
    /// Whether the value is finalized.
    pub finalized: Option<bool>,
}

impl EnvelopeFlags {
    pub(super) fn flag_mut(&mut self, flag: EnvelopeFlag) -> &mut Option<bool> {
        match flag {
            EnvelopeFlag::Optimistic => &mut self.execution_optimistic,
            EnvelopeFlag::Finalized => &mut self.finalized,
        }
    }
}

/// The name of one of the [`EnvelopeFlags`], whose value is `true` or `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnvelopeFlag {
    Optimistic,
    Finalized,
}

/// The progress of an envelope whose end is not read yet.
#[derive(Debug, Default)]
pub(super) struct OpenEnvelope {
    /// Name of the member that contained the value.
    value: Option<&'static str>,
    version: bool,
    /// Whether each [`EnvelopeFlag`] is present, with any value.
    flags: [bool; 2],
    /// Whether the value is being read.
    pub(super) is_inside: bool,
}

/// The kind of an envelope's member, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EnvelopeMember {
    Value,
    Version,
    /// A flag: `true` or `false`; other values are ignored.
    Flag(EnvelopeFlag),
    /// An error, or `null`.
    Error,
    Other,
}

impl OpenEnvelope {
    /// Returns the role of a member of the envelope by its name. A second value or version is an
    /// error, whose position is `at`.
    pub(super) fn classify_member(
        &mut self,
        name: &[u8],
        at: usize,
    ) -> Result<EnvelopeMember, JsonTokenError> {
        self.is_inside = false;
        let value = match name {
            b"data" => "data",
            b"result" => "result",
            b"error" => return Ok(EnvelopeMember::Error),
            b"execution_optimistic" => return Ok(EnvelopeMember::Flag(EnvelopeFlag::Optimistic)),
            b"finalized" => return Ok(EnvelopeMember::Flag(EnvelopeFlag::Finalized)),
            b"version" if self.version => {
                return Err(JsonTokenError::new(at, "version occurs twice"))
            }
            b"version" => {
                self.version = true;
                return Ok(EnvelopeMember::Version);
            }
            _ => return Ok(EnvelopeMember::Other),
        };
        if let Some(before) = self.value.replace(value) {
            let why = match before == value {
                true => format!("{value} occurs twice"),
                false => "both data and result are present".into(),
            };
            return Err(JsonTokenError::new(at, why));
        }
        self.is_inside = true;
        Ok(EnvelopeMember::Value)
    }

    /// Records that the envelope has the flag. Returns whether it had it already.
    pub(super) fn record_flag(&mut self, flag: EnvelopeFlag) -> bool {
        std::mem::replace(&mut self.flags[flag as usize], true)
    }

    /// Returns the first step of an error's path: the member whose value is being read, or `None`
    /// outside of it.
    pub(super) fn current_error_path_step(&self) -> Option<ErrorPathStep> {
        let value = self.value.filter(|_| self.is_inside)?;
        Some(ErrorPathStep::Field(value.into()))
    }

    /// Returns an error if the envelope had no value.
    pub(super) fn check_complete(&self) -> Result<(), SszErrorKind> {
        match self.value {
            Some(_) => Ok(()),
            None => Err(SszErrorKind::NoValue),
        }
    }
}
