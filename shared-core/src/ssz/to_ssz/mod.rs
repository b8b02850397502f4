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
mod members;
mod names;
mod output;
mod parts;
mod rlp;
mod scan;
mod skip;
mod template;
mod value;

use self::frame::Frame;
use self::hex::{Hex, HexError};
use self::output::Output;
use self::rlp::Witness;
use self::scan::{skip_white, TokenError};
use self::skip::ValueSkipper;
use super::error::{SszError, SszErrorKind};
use super::schema::{Fork, Preset, Schema, Type, TypeId};

pub use self::envelope::{EnvelopeFlags, InputForm};
pub use self::parts::Parts;

/// Maximum length of a name, a number or a header's object in bytes: such tokens are scanned again
/// with each piece.
const MAX_TOKEN: usize = 1 << 13;

/// Number of bytes of a piece that are joined to the beginning of a token at the end of the last
/// one.
const MAX_JOINED_BYTES: usize = 256;

/// A converter of one value from JSON to SSZ, which receives the JSON in pieces of any size.
#[derive(Debug)]
pub struct ToSsz<'s> {
    schema: &'s Schema,
    output: Output,
    stack: Vec<Frame<'s>>,
    expect: NextToken<'s>,
    /// The beginning of an incomplete token.
    carry: Vec<u8>,
    /// Number of input bytes before `carry`.
    consumed: u64,
    target: Target,
    /// The version in the envelope.
    version: Option<String>,
    flags: EnvelopeFlags,
    failed: Option<SszError>,
}

/// The type of the value that is converted, as far as it is known before the input.
#[derive(Clone, Debug)]
enum Target {
    Type(TypeId),
    /// The named type in the fork that the envelope's version names.
    Named(Preset, String),
    /// No type: only the envelope is read.
    Nothing,
}

/// The token that the converter expects next, which is stored between two pieces.
#[derive(Debug)]
enum NextToken<'s> {
    /// The whole value, with or without an envelope.
    Start(InputForm),
    /// A value, and its position in the output if its type has a fixed size.
    Value(&'s Type, usize),
    /// A name, or `}` if `or_end`.
    Name { or_end: bool },
    /// An element, or `]` if `or_end`.
    Element { or_end: bool },
    /// The rest of a string of bytes.
    Hex(&'s Type, Hex),
    /// The rest of a skipped value.
    Skip(ValueSkipper),
    /// The rest of a witness.
    Rlp(Box<Witness<'s>>),
    /// The version of an envelope.
    Version,
    /// A comma, or the end of the innermost open value.
    Next,
    /// White space only.
    End,
}

/// The reason why reading stops: the input was sufficient, or it ends within a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputState {
    All,
    /// The rest of the input is the beginning of a token.
    Part,
}

/// The token that follows within an open value: a step that is not stored while the input lasts, so
/// that nothing is stored between two fields.
#[derive(Clone, Copy)]
enum MemberStep {
    /// A name, or `}` if true.
    Name(bool),
    /// An element, or `]` if true.
    Element(bool),
    /// A comma, or the end.
    Next,
    /// The token in [`ToSsz::expect`].
    Stored(InputState),
}

/// Converts a JSON text to SSZ.
///
/// # Errors
/// The position and the reason if the text is not a value of the type.
pub fn to_ssz(schema: &Schema, ty: TypeId, json: &[u8]) -> Result<Vec<u8>, SszError> {
    let mut reader = ToSsz::new(schema, ty, InputForm::Bare);
    // most of the text is hex; the SSZ of a short text may be longer
    let refused = |problem| SszError::new(0, problem);
    reader.output.reserve(json.len() / 2).map_err(refused)?;
    reader.push(json)?;
    reader.end()
}

/// Returns the version of a response, at any position in its envelope.
///
/// # Errors
/// The position and the reason if the text is not a response.
pub fn version(json: &[u8]) -> Result<Option<String>, SszError> {
    let schema = Schema::for_fork(Fork::Phase0, Preset::Mainnet);
    let mut reader = ToSsz::with_target(Target::Nothing, schema, InputForm::Enveloped);
    reader.push(json)?;
    let version = reader.version.take();
    reader.end()?;
    Ok(version)
}

impl<'s> ToSsz<'s> {
    /// Creates a reader for a value of a type.
    pub fn new(schema: &'s Schema, ty: TypeId, form: InputForm) -> Self {
        Self::with_target(Target::Type(ty), schema, form)
    }

    /// Creates a reader for a value in an envelope, of the named type in the fork that the
    /// envelope's `version` names. The version must precede the value: otherwise the error is
    /// [`SszErrorKind::NoVersion`], and [`version`] finds the version.
    pub fn by_version(preset: Preset, name: &str) -> ToSsz<'static> {
        // any schema until the version is read
        let schema = Schema::for_fork(Fork::Phase0, preset);
        ToSsz::with_target(
            Target::Named(preset, name.into()),
            schema,
            InputForm::Enveloped,
        )
    }

    /// Reserves a number of zero bytes before the value, which the caller overwrites.
    ///
    /// # Errors
    /// Memory is refused.
    pub fn with_prefix(mut self, zeros: usize) -> Result<Self, SszError> {
        let made = self.output.zeros(zeros);
        made.map_err(|problem| self.error(0, problem))?;
        Ok(self)
    }

    fn with_target(target: Target, schema: &'s Schema, form: InputForm) -> Self {
        Self {
            schema,
            output: Output::default(),
            stack: Vec::new(),
            expect: NextToken::Start(form),
            carry: Vec::new(),
            consumed: 0,
            target,
            version: None,
            flags: EnvelopeFlags::default(),
            failed: None,
        }
    }

    /// Reads the next piece of the text, of any size.
    ///
    /// # Errors
    /// The position and the reason if the text is not a value of the type. All later calls return
    /// the same error.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), SszError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let read = self.read_piece(piece);
        self.failed = read.as_ref().err().cloned();
        read
    }

    fn read_piece(&mut self, mut piece: &[u8]) -> Result<(), SszError> {
        while !self.carry.is_empty() {
            let mut joint = std::mem::take(&mut self.carry);
            let carried = joint.len();
            // bounded, so that a long token is not scanned again for every few bytes
            let more = piece.len().min(MAX_JOINED_BYTES.max(carried));
            reserve(&mut joint, more).map_err(|problem| self.error(carried, problem))?;
            joint.extend_from_slice(&piece[..more]);
            let used = self.run(&joint)?;
            self.consumed += used as u64;
            if let Some(used) = used.checked_sub(carried) {
                piece = &piece[used..];
                break;
            }
            joint.drain(..used);
            self.carry = joint;
            piece = &piece[more..];
            if self.carry.len() > MAX_TOKEN {
                return Err(self.error(0, too_long()));
            }
            if piece.is_empty() {
                return Ok(());
            }
        }
        let used = self.run(piece)?;
        self.consumed += used as u64;
        let rest = &piece[used..];
        if rest.len() > MAX_TOKEN {
            return Err(self.error(0, too_long()));
        }
        let mut carry = std::mem::take(&mut self.carry);
        reserve(&mut carry, rest.len()).map_err(|problem| self.error(0, problem))?;
        carry.extend_from_slice(rest);
        self.carry = carry;
        Ok(())
    }

    /// Ends the text, and returns the SSZ in one piece.
    ///
    /// # Errors
    /// The text is not a complete value.
    pub fn end(self) -> Result<Vec<u8>, SszError> {
        let mut parts = self.end_in_parts()?;
        match parts.in_order() {
            Some(_) => Ok(parts.into_pieces().0),
            None => Err(SszError::new(0, SszErrorKind::NoMemory(parts.len()))),
        }
    }

    /// Ends the text, and returns the SSZ in parts: long ones are not moved.
    ///
    /// # Errors
    /// The errors of [`end`](Self::end).
    pub fn end_in_parts(mut self) -> Result<Parts, SszError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // a number at the end of the text has no terminator
        if let (true, NextToken::Skip(_)) = (self.carry.is_empty(), &self.expect) {
            self.run(b" ")?;
        }
        match self.expect {
            NextToken::End if self.carry.is_empty() => {
                // offsets have 32 bits, so that no longer value is valid
                match u32::try_from(self.output.len()) {
                    Ok(_) => Ok(self.output.end()),
                    Err(_) => Err(SszError::from_message(0, "2^32 bytes of SSZ or more")),
                }
            }
            _ => Err(self.error(self.carry.len(), SszErrorKind::Ends)),
        }
    }

    /// Returns the fork name in the envelope's `version`, as far as it was read.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns the flags of the envelope, as far as they were read.
    pub fn flags(&self) -> EnvelopeFlags {
        self.flags
    }

    /// Reserves memory for `bytes` bytes of SSZ, so that the buffer need not grow.
    ///
    /// # Errors
    /// Memory is refused.
    pub fn make_room(&mut self, bytes: usize) -> Result<(), SszError> {
        let refused = |problem| SszError::new(0, problem);
        self.output.reserve(bytes).map_err(refused)
    }

    /// Returns the number of bytes of SSZ so far, including the offsets of open lists.
    pub fn written(&self) -> usize {
        self.output.len() + self.output.offsets()
    }

    /// Returns the number of bytes of memory that the output occupies.
    pub fn room(&self) -> usize {
        self.output.room()
    }

    /// Reads all complete tokens of the input, and returns their length in bytes.
    fn run(&mut self, bytes: &[u8]) -> Result<usize, SszError> {
        let mut at = 0;
        match self.read_tokens(bytes, &mut at) {
            Ok(()) => Ok(at),
            Err(HexError::Wrong(wrong)) => {
                // the error is in a piece that was read before
                self.consumed = self.consumed.saturating_sub(wrong.back as u64);
                Err(self.error(wrong.at, SszErrorKind::Because(wrong.why)))
            }
            Err(HexError::Refused(problem)) => Err(self.error(at, problem)),
        }
    }

    fn read_tokens(&mut self, bytes: &[u8], at: &mut usize) -> Result<(), HexError> {
        loop {
            let got = match &mut self.expect {
                NextToken::Name { or_end } => {
                    let inside = MemberStep::Name(*or_end);
                    self.inside(inside, bytes, at)?
                }
                NextToken::Element { or_end } => {
                    let inside = MemberStep::Element(*or_end);
                    self.inside(inside, bytes, at)?
                }
                NextToken::Next => self.inside(MemberStep::Next, bytes, at)?,
                NextToken::Version => self.read_version(bytes, at)?,
                NextToken::Value(ty, place) => {
                    let (ty, place) = (*ty, *place);
                    *at = skip_white(bytes, *at);
                    self.read(ty, place, bytes, at)?
                }
                NextToken::Hex(ty, hex) => {
                    let (end, is_over) = hex.read(bytes, *at, &mut self.output)?;
                    *at = end;
                    match is_over {
                        false => InputState::Part,
                        true => {
                            let (ty, hex) = (*ty, *hex);
                            self.end_hex(ty, hex, end)?;
                            self.expect = NextToken::Next;
                            InputState::All
                        }
                    }
                }
                NextToken::Rlp(witness) => {
                    let (end, is_over) = witness.read(bytes, *at, &mut self.output)?;
                    *at = end;
                    match is_over {
                        false => InputState::Part,
                        true => {
                            self.expect = NextToken::Next;
                            InputState::All
                        }
                    }
                }
                NextToken::Skip(skip) => {
                    let (end, is_over) = skip.read(bytes, *at)?;
                    *at = end;
                    match is_over {
                        false => InputState::Part,
                        true => {
                            self.expect = NextToken::Next;
                            InputState::All
                        }
                    }
                }
                NextToken::Start(form) => {
                    let form = *form;
                    *at = skip_white(bytes, *at);
                    self.start(form, bytes, at)?
                }
                NextToken::End => {
                    *at = skip_white(bytes, *at);
                    match *at < bytes.len() {
                        true => return Err(TokenError::new(*at, "data after the value").into()),
                        false => InputState::Part,
                    }
                }
            };
            if got == InputState::Part {
                return Ok(());
            }
        }
    }

    /// Reads on within open values until a token must be stored, because the input ends or a value
    /// is opened.
    fn inside(
        &mut self,
        mut inside: MemberStep,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputState, HexError> {
        loop {
            inside = match inside {
                MemberStep::Name(or_end) => self.names(bytes, at, or_end)?,
                MemberStep::Element(or_end) => self.elements(bytes, at, or_end)?,
                MemberStep::Next => self.next(bytes, at)?,
                MemberStep::Stored(got) => return Ok(got),
            }
        }
    }

    /// Reads the comma or the closing bracket after a value, and returns the step that follows.
    fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<MemberStep, HexError> {
        let Some(frame) = self.stack.last_mut() else {
            self.expect = NextToken::End;
            return Ok(MemberStep::Stored(InputState::All));
        };
        frame.end_value();
        *at = skip_white(bytes, *at);
        let Some(sign) = bytes.get(*at) else {
            self.expect = NextToken::Next;
            return Ok(MemberStep::Stored(InputState::Part));
        };
        let (close, more) = match frame.is_object() {
            true => (b'}', MemberStep::Name(false)),
            false => (b']', MemberStep::Element(false)),
        };
        match *sign {
            b',' => {
                *at += 1;
                Ok(more)
            }
            sign if sign == close => {
                self.close(*at)?;
                *at += 1;
                Ok(MemberStep::Next)
            }
            _ => {
                let why = format!("expected a comma or {:?}", char::from(close));
                Err(TokenError::new(*at, why).into())
            }
        }
    }

    /// Creates an error with the path of the open values. `at` counts from the beginning of the
    /// bytes that are being read.
    #[cold]
    fn error(&self, at: usize, problem: SszErrorKind) -> SszError {
        let error = SszError::new(self.consumed + at as u64, problem);
        let steps = self.stack.iter().rev().filter_map(Frame::step);
        steps.fold(error, SszError::inside)
    }
}

fn too_long() -> SszErrorKind {
    SszErrorKind::Because(format!("a name or number of more than {MAX_TOKEN} bytes"))
}

fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<(), SszErrorKind> {
    bytes
        .try_reserve(more)
        .map_err(|_| SszErrorKind::NoMemory(more))
}
