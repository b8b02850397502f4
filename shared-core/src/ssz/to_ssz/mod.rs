//! JSON to SSZ, streaming.
//!
//! A state machine with a stack of open values reads the input once. It writes each value to its
//! position: fixed-size values into the room that their container or vector has reserved, the
//! others at the end, in the order of the input; [`output`] corrects the order where SSZ has
//! another one. Besides the SSZ it stores one word for each element of the open lists.
//!
//! The name of a field is usually the one after the last, which is tried first; before that, a
//! whole container in the usual notation is tried ([`template`]).

mod envelope;
mod envelope_values;
mod frame;
mod hex;
mod json_strings;
mod members;
mod output;
mod rlp;
mod scan;
mod skip;
mod template;
mod unordered_parts;
mod value;

use self::frame::OpenJsonValue;
use self::hex::{HexReader, JsonToSszError};
use self::output::SszOutput;
use self::rlp::WitnessRlpReader;
use self::scan::{skip_white_space, JsonTokenError};
use self::skip::JsonValueSkipper;
use super::error::{SszError, SszErrorKind};
use super::schema::{Fork, Preset, Schema, SszType, TypeId};

pub use self::envelope::{EnvelopeFlags, JsonEnvelopeForm};
pub use self::unordered_parts::UnorderedSszParts;

/// Maximum length of a name, a number or a header's object in bytes: such tokens are scanned again
/// with each piece.
const MAX_RESCANNED_TOKEN: usize = 1 << 13;

/// Number of bytes of a piece that are joined to the beginning of a token at the end of the last
/// one.
const MAX_JOINED_BYTES: usize = 256;

/// A converter of one value from JSON to SSZ, which receives the JSON in pieces of any size.
#[derive(Debug)]
pub struct JsonToSsz<'s> {
    schema: &'s Schema,
    output: SszOutput,
    stack: Vec<OpenJsonValue<'s>>,
    expect: ExpectedToken<'s>,
    /// The beginning of an incomplete token.
    carry: Vec<u8>,
    /// Number of input bytes before `carry`.
    consumed: u64,
    target: TargetSszType,
    /// The version in the envelope.
    envelope_version: Option<String>,
    envelope_flags: EnvelopeFlags,
    failed: Option<SszError>,
}

/// The type of the value that is converted, as far as it is known before the input.
#[derive(Clone, Debug)]
enum TargetSszType {
    Type(TypeId),
    /// The named type in the fork that the envelope's version names.
    Named(Preset, String),
    /// No type: only the envelope is read.
    Nothing,
}

/// The token that the converter expects next, which is stored between two pieces.
#[derive(Debug)]
enum ExpectedToken<'s> {
    /// The whole value, with or without an envelope.
    Start(JsonEnvelopeForm),
    /// A value, and its position in the output if its type has a fixed size.
    Value(&'s SszType, usize),
    /// A name, or `}` if `or_end`.
    Name { or_end: bool },
    /// An element, or `]` if `or_end`.
    Element { or_end: bool },
    /// The rest of a string of bytes.
    Hex(&'s SszType, HexReader),
    /// The rest of a skipped value.
    Skip(JsonValueSkipper),
    /// The rest of a witness.
    Rlp(Box<WitnessRlpReader<'s>>),
    /// The version of an envelope.
    Version,
    /// A comma, or the end of the innermost open value.
    Next,
    /// White space only.
    End,
}

/// The state of the input when reading stops: the expected tokens were read, or the input ends
/// within one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputCompleteness {
    All,
    /// The rest of the input is the beginning of a token.
    Part,
}

/// The token that the converter expects next within an open value. It is stored as a [`ExpectedToken`]
/// only when the input ends, not between two fields.
#[derive(Clone, Copy)]
enum ExpectedMemberToken {
    /// A name, or `}` if true.
    Name(bool),
    /// An element, or `]` if true.
    Element(bool),
    /// A comma, or the end.
    Next,
    /// The token in [`JsonToSsz::expect`].
    Stored(InputCompleteness),
}

/// Converts a JSON text to SSZ.
///
/// # Errors
/// The position and the reason if the text is not a value of the type.
pub fn json_to_ssz(schema: &Schema, ty: TypeId, json: &[u8]) -> Result<Vec<u8>, SszError> {
    let mut reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Bare);
    // most of the text is hex; the SSZ of a short text may be longer
    let refused = |problem| SszError::new(0, problem);
    reader
        .output
        .reserve_bytes(json.len() / 2)
        .map_err(refused)?;
    reader.feed_json_piece(json)?;
    reader.finish()
}

/// Returns the version of a response, at any position in its envelope.
///
/// # Errors
/// The position and the reason if the text is not a response.
pub fn read_envelope_version(json: &[u8]) -> Result<Option<String>, SszError> {
    let schema = Schema::for_fork(Fork::Phase0, Preset::Mainnet);
    let mut reader =
        JsonToSsz::with_target(TargetSszType::Nothing, schema, JsonEnvelopeForm::Enveloped);
    reader.feed_json_piece(json)?;
    let version = reader.envelope_version.take();
    reader.finish()?;
    Ok(version)
}

impl<'s> JsonToSsz<'s> {
    /// Creates a reader for a value of a type.
    pub fn new(schema: &'s Schema, ty: TypeId, form: JsonEnvelopeForm) -> Self {
        Self::with_target(TargetSszType::Type(ty), schema, form)
    }

    /// Creates a reader for a value in an envelope, of the named type in the fork that the
    /// envelope's `version` names. The version must precede the value: otherwise the error is
    /// [`SszErrorKind::NoVersion`], and [`read_envelope_version`] finds the version.
    pub fn for_versioned_envelope(preset: Preset, name: &str) -> JsonToSsz<'static> {
        // any schema until the version is read
        let schema = Schema::for_fork(Fork::Phase0, preset);
        JsonToSsz::with_target(
            TargetSszType::Named(preset, name.into()),
            schema,
            JsonEnvelopeForm::Enveloped,
        )
    }

    /// Reserves a number of zero bytes before the value, which the caller overwrites.
    ///
    /// # Errors
    /// Memory is refused.
    pub fn with_reserved_zero_prefix(mut self, zeros: usize) -> Result<Self, SszError> {
        let made = self.output.append_zeros(zeros);
        made.map_err(|problem| self.error_at(0, problem))?;
        Ok(self)
    }

    /// Creates a converter that has read nothing yet.
    fn with_target(target: TargetSszType, schema: &'s Schema, form: JsonEnvelopeForm) -> Self {
        Self {
            schema,
            output: SszOutput::default(),
            stack: Vec::new(),
            expect: ExpectedToken::Start(form),
            carry: Vec::new(),
            consumed: 0,
            target,
            envelope_version: None,
            envelope_flags: EnvelopeFlags::default(),
            failed: None,
        }
    }

    /// Reads the next piece of the text, of any size.
    ///
    /// # Errors
    /// The position and the reason if the text is not a value of the type. All later calls return
    /// the same error.
    pub fn feed_json_piece(&mut self, piece: &[u8]) -> Result<(), SszError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let read = self.read_piece(piece);
        self.failed = read.as_ref().err().cloned();
        read
    }

    /// Reads a piece of the text after the bytes that are left of earlier pieces, and keeps an
    /// incomplete token at its end for the next piece.
    fn read_piece(&mut self, mut piece: &[u8]) -> Result<(), SszError> {
        while !self.carry.is_empty() {
            let mut joint = std::mem::take(&mut self.carry);
            let carried = joint.len();
            // bounded, so that a long token is not scanned again for every few bytes
            let more = piece.len().min(MAX_JOINED_BYTES.max(carried));
            try_reserve_bytes(&mut joint, more)
                .map_err(|problem| self.error_at(carried, problem))?;
            joint.extend_from_slice(&piece[..more]);
            let used = self.read_complete_tokens(&joint)?;
            self.consumed += used as u64;
            if let Some(used) = used.checked_sub(carried) {
                piece = &piece[used..];
                break;
            }
            joint.drain(..used);
            self.carry = joint;
            piece = &piece[more..];
            if self.carry.len() > MAX_RESCANNED_TOKEN {
                return Err(self.error_at(0, token_too_long_error()));
            }
            if piece.is_empty() {
                return Ok(());
            }
        }
        let used = self.read_complete_tokens(piece)?;
        self.consumed += used as u64;
        let rest = &piece[used..];
        if rest.len() > MAX_RESCANNED_TOKEN {
            return Err(self.error_at(0, token_too_long_error()));
        }
        let mut carry = std::mem::take(&mut self.carry);
        try_reserve_bytes(&mut carry, rest.len()).map_err(|problem| self.error_at(0, problem))?;
        carry.extend_from_slice(rest);
        self.carry = carry;
        Ok(())
    }

    /// Ends the text, and returns the SSZ in one piece.
    ///
    /// # Errors
    /// The text is not a complete value.
    pub fn finish(self) -> Result<Vec<u8>, SszError> {
        let mut parts = self.finish_in_parts()?;
        match parts.move_parts_into_order() {
            Some(_) => Ok(parts.into_buffer_with_order().0),
            None => Err(SszError::new(0, SszErrorKind::NoMemory(parts.len()))),
        }
    }

    /// Ends the text, and returns the SSZ in parts: long ones are not moved.
    ///
    /// # Errors
    /// The errors of [`finish`](Self::finish).
    pub fn finish_in_parts(mut self) -> Result<UnorderedSszParts, SszError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // a number at the end of the text has no terminator
        if let (true, ExpectedToken::Skip(_)) = (self.carry.is_empty(), &self.expect) {
            self.read_complete_tokens(b" ")?;
        }
        match self.expect {
            ExpectedToken::End if self.carry.is_empty() => {
                // offsets have 32 bits, so that no longer value is valid
                match u32::try_from(self.output.len()) {
                    Ok(_) => Ok(self.output.into_ssz_parts()),
                    Err(_) => Err(SszError::from_message(0, "2^32 bytes of SSZ or more")),
                }
            }
            _ => Err(self.error_at(self.carry.len(), SszErrorKind::Ends)),
        }
    }

    /// Returns the fork name in the envelope's `version`, as far as it was read.
    pub fn envelope_version(&self) -> Option<&str> {
        self.envelope_version.as_deref()
    }

    /// Returns the flags of the envelope, as far as they were read.
    pub fn envelope_flags(&self) -> EnvelopeFlags {
        self.envelope_flags
    }

    /// Reserves memory for `bytes` bytes of SSZ, so that the buffer need not grow.
    ///
    /// # Errors
    /// Memory is refused.
    pub fn reserve_ssz(&mut self, bytes: usize) -> Result<(), SszError> {
        let refused = |problem| SszError::new(0, problem);
        self.output.reserve_bytes(bytes).map_err(refused)
    }

    /// Returns the number of bytes of SSZ so far, including the offsets of open lists.
    pub fn written_bytes(&self) -> usize {
        self.output.len() + self.output.pending_offset_bytes()
    }

    /// Returns the number of bytes of memory that the output occupies.
    pub fn occupied_output_memory(&self) -> usize {
        self.output.occupied_output_memory()
    }

    /// Reads all complete tokens of the input, and returns their length in bytes.
    fn read_complete_tokens(&mut self, bytes: &[u8]) -> Result<usize, SszError> {
        let mut at = 0;
        match self.read_tokens(bytes, &mut at) {
            Ok(()) => Ok(at),
            Err(JsonToSszError::Wrong(wrong)) => {
                // the error is in a piece that was read before
                self.consumed = self.consumed.saturating_sub(wrong.back as u64);
                Err(self.error_at(wrong.at, SszErrorKind::Because(wrong.why)))
            }
            Err(JsonToSszError::Refused(problem)) => Err(self.error_at(at, problem)),
        }
    }

    /// Reads tokens until the bytes end. `at` is advanced past the last complete token.
    fn read_tokens(&mut self, bytes: &[u8], at: &mut usize) -> Result<(), JsonToSszError> {
        loop {
            let got = match &mut self.expect {
                ExpectedToken::Name { or_end } => {
                    let inside = ExpectedMemberToken::Name(*or_end);
                    self.read_members(inside, bytes, at)?
                }
                ExpectedToken::Element { or_end } => {
                    let inside = ExpectedMemberToken::Element(*or_end);
                    self.read_members(inside, bytes, at)?
                }
                ExpectedToken::Next => self.read_members(ExpectedMemberToken::Next, bytes, at)?,
                ExpectedToken::Version => self.read_envelope_version_value(bytes, at)?,
                ExpectedToken::Value(ty, place) => {
                    let (ty, place) = (*ty, *place);
                    *at = skip_white_space(bytes, *at);
                    self.read_or_suspend_value(ty, place, bytes, at)?
                }
                ExpectedToken::Hex(ty, hex) => {
                    let (end, is_over) = hex.continue_hex_string(bytes, *at, &mut self.output)?;
                    *at = end;
                    match is_over {
                        false => InputCompleteness::Part,
                        true => {
                            let (ty, hex) = (*ty, *hex);
                            self.validate_complete_hex_value(ty, hex, end)?;
                            self.expect = ExpectedToken::Next;
                            InputCompleteness::All
                        }
                    }
                }
                ExpectedToken::Rlp(witness) => {
                    let (end, is_over) =
                        witness.continue_witness_rlp(bytes, *at, &mut self.output)?;
                    *at = end;
                    match is_over {
                        false => InputCompleteness::Part,
                        true => {
                            self.expect = ExpectedToken::Next;
                            InputCompleteness::All
                        }
                    }
                }
                ExpectedToken::Skip(skip) => {
                    let (end, is_over) = skip.continue_skipping_value(bytes, *at)?;
                    *at = end;
                    match is_over {
                        false => InputCompleteness::Part,
                        true => {
                            self.expect = ExpectedToken::Next;
                            InputCompleteness::All
                        }
                    }
                }
                ExpectedToken::Start(form) => {
                    let form = *form;
                    *at = skip_white_space(bytes, *at);
                    self.detect_envelope_at_start(form, bytes, at)?
                }
                ExpectedToken::End => {
                    *at = skip_white_space(bytes, *at);
                    match *at < bytes.len() {
                        true => return Err(JsonTokenError::new(*at, "data after the value").into()),
                        false => InputCompleteness::Part,
                    }
                }
            };
            if got == InputCompleteness::Part {
                return Ok(());
            }
        }
    }

    /// Reads on within the open objects and arrays, until the input ends or a value is opened whose
    /// first token must be stored.
    fn read_members(
        &mut self,
        mut inside: ExpectedMemberToken,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputCompleteness, JsonToSszError> {
        loop {
            inside = match inside {
                ExpectedMemberToken::Name(or_end) => {
                    self.read_container_members(bytes, at, or_end)?
                }
                ExpectedMemberToken::Element(or_end) => self.read_elements(bytes, at, or_end)?,
                ExpectedMemberToken::Next => self.read_separator(bytes, at)?,
                ExpectedMemberToken::Stored(got) => return Ok(got),
            }
        }
    }

    /// Reads the comma or the closing bracket after a value, and returns the step that follows.
    fn read_separator(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ExpectedMemberToken, JsonToSszError> {
        let Some(frame) = self.stack.last_mut() else {
            self.expect = ExpectedToken::End;
            return Ok(ExpectedMemberToken::Stored(InputCompleteness::All));
        };
        frame.mark_value_complete();
        *at = skip_white_space(bytes, *at);
        let Some(sign) = bytes.get(*at) else {
            self.expect = ExpectedToken::Next;
            return Ok(ExpectedMemberToken::Stored(InputCompleteness::Part));
        };
        let (close, more) = match frame.is_object() {
            true => (b'}', ExpectedMemberToken::Name(false)),
            false => (b']', ExpectedMemberToken::Element(false)),
        };
        match *sign {
            b',' => {
                *at += 1;
                Ok(more)
            }
            sign if sign == close => {
                self.close_innermost(*at)?;
                *at += 1;
                Ok(ExpectedMemberToken::Next)
            }
            _ => {
                let why = format!("expected a comma or {:?}", char::from(close));
                Err(JsonTokenError::new(*at, why).into())
            }
        }
    }

    /// Creates an error with the path of the open values. `at` counts from the beginning of the
    /// bytes that are being read.
    #[cold]
    fn error_at(&self, at: usize, problem: SszErrorKind) -> SszError {
        let error = SszError::new(self.consumed + at as u64, problem);
        let steps = self
            .stack
            .iter()
            .rev()
            .filter_map(OpenJsonValue::current_error_path_step);
        steps.fold(error, SszError::prepend_path_step)
    }
}

fn token_too_long_error() -> SszErrorKind {
    SszErrorKind::Because(format!(
        "a name or number of more than {MAX_RESCANNED_TOKEN} bytes"
    ))
}

fn try_reserve_bytes(bytes: &mut Vec<u8>, more: usize) -> Result<(), SszErrorKind> {
    bytes
        .try_reserve(more)
        .map_err(|_| SszErrorKind::NoMemory(more))
}
