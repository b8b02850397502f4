//! JSON to SSZ, while the pieces arrive.
//!
//! A machine with a stack of what is open reads the input once. It writes each
//! value where it belongs: fixed-size ones into the place that their container
//! or vector has made for them, the others at the end, in the order in which
//! they come; [`output`] puts right what must be in another. What is kept
//! besides the SSZ is a word for each element of the lists that are open.
//!
//! A field's name is mostly the one that follows the last: that is tried first;
//! and before, whether a container comes as a whole as most write it ([`template`]).

mod envelope;
mod frame;
mod hex;
mod inside;
mod output;
mod parts;
mod rlp;
mod scan;
mod skip;
mod template;
mod text;
mod value;
mod whole;

use self::frame::Frame;
use self::hex::{Hex, Stop};
use self::output::Output;
use self::rlp::Witness;
use self::scan::{skip_white, Wrong};
use self::skip::Skip;
use super::error::{Error, Problem};
use super::schema::{Fork, Preset, Schema, Type, TypeId};

pub use self::envelope::{Flags, Form};
pub use self::parts::Parts;

/// A name, a number or a header's object that is longer is refused: it is looked
/// at again with each piece of it. Bytes.
const MAX_TOKEN: usize = 1 << 13;

/// So many bytes of a piece are looked at together with the beginning of a
/// token that the last one ended with.
const JOINT: usize = 256;

/// A value in JSON, read as its pieces come.
#[derive(Debug)]
pub struct ToSsz<'s> {
    schema: &'s Schema,
    output: Output,
    stack: Vec<Frame<'s>>,
    expect: Expect<'s>,
    /// The beginning of a token.
    carry: Vec<u8>,
    /// Bytes of the input before it.
    consumed: u64,
    target: Target,
    /// What the envelope has said.
    version: Option<String>,
    flags: Flags,
    failed: Option<Error>,
}

/// What the value is to be.
#[derive(Clone, Debug)]
enum Target {
    Type(TypeId),
    /// The type of that name in the fork that the envelope's version names.
    Named(Preset, String),
    /// None: only the envelope is of interest.
    Nothing,
}

/// What is to come next.
#[derive(Debug)]
enum Expect<'s> {
    /// The whole value, in or without an envelope.
    Start(Form),
    /// A value. If its type has a size, it belongs there.
    Value(&'s Type, usize),
    /// A name, or `}` if so.
    Name { or_end: bool },
    /// An element, or `]` if so.
    Element { or_end: bool },
    /// The rest of a string of bytes.
    Hex(&'s Type, Hex),
    /// The rest of what no field wants.
    Skip(Skip),
    /// The rest of a witness.
    Rlp(Box<Witness<'s>>),
    /// The version, of an envelope.
    Version,
    /// A comma, or the end of what is open.
    Next,
    /// Nothing but white space.
    End,
}

/// Whether the input that is there was enough.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Got {
    All,
    /// What is left is the beginning of a token.
    Part,
}

/// What comes next inside of what is open, while the input lasts: nothing is
/// stored between two fields.
#[derive(Clone, Copy)]
enum Inside {
    /// A name, or `}` if so.
    Name(bool),
    /// An element, or `]` if so.
    Element(bool),
    /// A comma, or the end.
    Next,
    /// [`ToSsz::expect`] says.
    Stored(Got),
}

/// A JSON text as SSZ.
///
/// # Errors
/// Where it is no value of the type, and why.
pub fn to_ssz(schema: &Schema, ty: TypeId, json: &[u8]) -> Result<Vec<u8>, Error> {
    let mut reader = ToSsz::new(schema, ty, Form::Bare);
    // half of it is hex, mostly; what is short may be longer as SSZ
    let refused = |problem| Error::new(0, problem);
    reader.output.reserve(json.len() / 2).map_err(refused)?;
    reader.push(json)?;
    reader.end()
}

/// The version that an answer says, wherever in it.
///
/// # Errors
/// Where it is no answer, and why.
pub fn version(json: &[u8]) -> Result<Option<String>, Error> {
    let schema = Schema::of(Fork::Phase0, Preset::Mainnet);
    let mut reader = ToSsz::to(Target::Nothing, schema, Form::Enveloped);
    reader.push(json)?;
    let version = reader.version.take();
    reader.end()?;
    Ok(version)
}

impl<'s> ToSsz<'s> {
    /// Reads a value of a type.
    pub fn new(schema: &'s Schema, ty: TypeId, form: Form) -> Self {
        Self::to(Target::Type(ty), schema, form)
    }

    /// Reads a value in an envelope, of the type of that name in the fork that
    /// the envelope's `version` names, which must come before the value:
    /// otherwise it is [`Problem::NoVersion`], and [`version`] finds it.
    pub fn by_version(preset: Preset, name: &str) -> ToSsz<'static> {
        // until the version comes, any will do
        let schema = Schema::of(Fork::Phase0, preset);
        ToSsz::to(Target::Named(preset, name.into()), schema, Form::Enveloped)
    }

    /// Leaves so many zeros before the value, for who has to put something there.
    ///
    /// # Errors
    /// Memory is refused.
    pub fn behind(mut self, zeros: usize) -> Result<Self, Error> {
        let made = self.output.zeros(zeros);
        made.map_err(|problem| self.error(0, problem))?;
        Ok(self)
    }

    fn to(target: Target, schema: &'s Schema, form: Form) -> Self {
        Self {
            schema,
            output: Output::default(),
            stack: Vec::new(),
            expect: Expect::Start(form),
            carry: Vec::new(),
            consumed: 0,
            target,
            version: None,
            flags: Flags::default(),
            failed: None,
        }
    }

    /// The next piece of the text, of any size.
    ///
    /// # Errors
    /// Where the text is no value of the type, and why; the same again for all
    /// that follows.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let read = self.read_piece(piece);
        self.failed = read.as_ref().err().cloned();
        read
    }

    fn read_piece(&mut self, mut piece: &[u8]) -> Result<(), Error> {
        while !self.carry.is_empty() {
            let mut joint = std::mem::take(&mut self.carry);
            let carried = joint.len();
            // a long token is not read again for each few bytes of it
            let more = piece.len().min(JOINT.max(carried));
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

    /// The SSZ in one piece, once the text has ended.
    ///
    /// # Errors
    /// The text is no whole value.
    pub fn end(self) -> Result<Vec<u8>, Error> {
        let mut parts = self.end_in_parts()?;
        match parts.in_order() {
            Some(_) => Ok(parts.into_pieces().0),
            None => Err(Error::new(0, Problem::NoMemory(parts.len()))),
        }
    }

    /// The SSZ as it lies, once the text has ended: what is long is not moved.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub fn end_in_parts(mut self) -> Result<Parts, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        // a number has no end of its own
        if let (true, Expect::Skip(_)) = (self.carry.is_empty(), &self.expect) {
            self.run(b" ")?;
        }
        match self.expect {
            Expect::End if self.carry.is_empty() => {
                // no offset reaches further, so nothing of that length is a value
                match u32::try_from(self.output.len()) {
                    Ok(_) => Ok(self.output.end()),
                    Err(_) => Err(Error::because(0, "2^32 bytes of SSZ or more")),
                }
            }
            _ => Err(self.error(self.carry.len(), Problem::Ends)),
        }
    }

    /// The version that the envelope has said so far.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// What else it has said of the value so far.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// Makes room for so many bytes of SSZ, so that it need not grow.
    ///
    /// # Errors
    /// The memory was refused.
    pub fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        let refused = |problem| Error::new(0, problem);
        self.output.reserve(bytes).map_err(refused)
    }

    /// How many bytes of SSZ there are so far, with the offsets of lists that are open.
    pub fn written(&self) -> usize {
        self.output.len() + self.output.offsets()
    }

    /// How many bytes it takes for them.
    pub fn room(&self) -> usize {
        self.output.room()
    }

    /// Reads all whole tokens. How many bytes they are.
    fn run(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        match self.steps(bytes, &mut at) {
            Ok(()) => Ok(at),
            Err(Stop::Wrong(wrong)) => {
                // it begins in a piece that was read before
                self.consumed = self.consumed.saturating_sub(wrong.back as u64);
                Err(self.error(wrong.at, Problem::Because(wrong.why)))
            }
            Err(Stop::Refused(problem)) => Err(self.error(at, problem)),
        }
    }

    fn steps(&mut self, bytes: &[u8], at: &mut usize) -> Result<(), Stop> {
        loop {
            let got = match &mut self.expect {
                Expect::Name { or_end } => {
                    let inside = Inside::Name(*or_end);
                    self.inside(inside, bytes, at)?
                }
                Expect::Element { or_end } => {
                    let inside = Inside::Element(*or_end);
                    self.inside(inside, bytes, at)?
                }
                Expect::Next => self.inside(Inside::Next, bytes, at)?,
                Expect::Version => self.read_version(bytes, at)?,
                Expect::Value(ty, place) => {
                    let (ty, place) = (*ty, *place);
                    *at = skip_white(bytes, *at);
                    self.read(ty, place, bytes, at)?
                }
                Expect::Hex(ty, hex) => {
                    let (end, is_over) = hex.read(bytes, *at, &mut self.output)?;
                    *at = end;
                    match is_over {
                        false => Got::Part,
                        true => {
                            let (ty, hex) = (*ty, *hex);
                            self.end_hex(ty, hex, end)?;
                            self.expect = Expect::Next;
                            Got::All
                        }
                    }
                }
                Expect::Rlp(witness) => {
                    let (end, is_over) = witness.read(bytes, *at, &mut self.output)?;
                    *at = end;
                    match is_over {
                        false => Got::Part,
                        true => {
                            self.expect = Expect::Next;
                            Got::All
                        }
                    }
                }
                Expect::Skip(skip) => {
                    let (end, is_over) = skip.read(bytes, *at)?;
                    *at = end;
                    match is_over {
                        false => Got::Part,
                        true => {
                            self.expect = Expect::Next;
                            Got::All
                        }
                    }
                }
                Expect::Start(form) => {
                    let form = *form;
                    *at = skip_white(bytes, *at);
                    self.start(form, bytes, at)?
                }
                Expect::End => {
                    *at = skip_white(bytes, *at);
                    match *at < bytes.len() {
                        true => return Err(Wrong::new(*at, "more after the value").into()),
                        false => Got::Part,
                    }
                }
            };
            if got == Got::Part {
                return Ok(());
            }
        }
    }

    /// Reads on, inside of what is open, until there is something to store.
    fn inside(&mut self, mut inside: Inside, bytes: &[u8], at: &mut usize) -> Result<Got, Stop> {
        loop {
            inside = match inside {
                Inside::Name(or_end) => self.names(bytes, at, or_end)?,
                Inside::Element(or_end) => self.elements(bytes, at, or_end)?,
                Inside::Next => self.next(bytes, at)?,
                Inside::Stored(got) => return Ok(got),
            }
        }
    }

    /// After a value: what comes next of what is open.
    fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Inside, Stop> {
        let Some(frame) = self.stack.last_mut() else {
            self.expect = Expect::End;
            return Ok(Inside::Stored(Got::All));
        };
        frame.end_value();
        *at = skip_white(bytes, *at);
        let Some(sign) = bytes.get(*at) else {
            self.expect = Expect::Next;
            return Ok(Inside::Stored(Got::Part));
        };
        let (close, more) = match frame.is_object() {
            true => (b'}', Inside::Name(false)),
            false => (b']', Inside::Element(false)),
        };
        match *sign {
            b',' => {
                *at += 1;
                Ok(more)
            }
            sign if sign == close => {
                self.close(*at)?;
                *at += 1;
                Ok(Inside::Next)
            }
            _ => {
                let why = format!("a comma or {:?} should be here", char::from(close));
                Err(Wrong::new(*at, why).into())
            }
        }
    }

    /// `at` counts from the beginning of what is being read.
    #[cold]
    fn error(&self, at: usize, problem: Problem) -> Error {
        let error = Error::new(self.consumed + at as u64, problem);
        let steps = self.stack.iter().rev().filter_map(Frame::step);
        steps.fold(error, Error::inside)
    }
}

fn too_long() -> Problem {
    Problem::Because(format!("a name or number of more than {MAX_TOKEN} bytes"))
}

fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<(), Problem> {
    bytes.try_reserve(more).map_err(|_| Problem::NoMemory(more))
}
