//! SSZ to JSON, written into a buffer as long as it has room.
//!
//! The JSON is minified, and its fields are in the order of the type. A container of short fields
//! is written at once where there is room ([`template`]).

mod number;
mod output;
mod rlp;
mod template;

use std::ops::Range;

use self::output::{offset, JsonOutput};
use self::rlp::{RlpStep, Witness};
use super::check::{check, Elements};
use super::error::{SszError, SszErrorKind};
use super::schema::{Container, Json, Kind, Schema, Type, TypeId, FIELD_PREFIX_BYTES, OFFSET};

pub use self::output::MIN_ROOM;

/// Maximum number of bytes of a string that is written at once. Longer ones are written as far as
/// there is room.
const MAX_SHORT_BYTES: usize = 256;

// a field's name, a short string and its closing quote, a number
const _: () = assert!(MIN_ROOM > FIELD_PREFIX_BYTES + 2 * MAX_SHORT_BYTES + number::DIGITS + 64);

/// A converter of one SSZ value to JSON, which is written into buffers of the caller, one after the
/// other.
#[derive(Debug)]
pub struct ToJson<'s, B> {
    schema: &'s Schema,
    ssz: B,
    stack: Vec<Frame<'s>>,
    next: WriteStep<'s>,
    rlp_keys: bool,
}

/// The part of the JSON that [`ToJson::write`] writes next.
#[derive(Debug)]
enum WriteStep<'s> {
    /// The whole value.
    Whole(&'s Type, Range<usize>),
    /// A value without its constant beginning.
    Value(&'s Type, Range<usize>),
    /// The rest of a string of bytes, and whether it ends after them.
    Hex(Range<usize>, bool),
    /// The rest of a text.
    Text(Vec<u8>, usize),
    /// The next part of the innermost open value.
    Follows,
    Nothing,
}

/// A container, list or other value whose JSON is written in part, on the stack of the converter.
#[derive(Debug)]
enum Frame<'s> {
    Fields {
        container: &'s Container,
        range: Range<usize>,
        next: usize,
    },
    /// Elements of fixed size.
    Fixed {
        of: &'s Type,
        size: usize,
        range: Range<usize>,
        is_first: bool,
    },
    /// Elements of variable size.
    Variable {
        of: &'s Type,
        range: Range<usize>,
        next: usize,
        count: usize,
    },
    Union,
    Rlp(Box<Witness>),
}

/// Converts an SSZ value to JSON in one buffer.
///
/// # Errors
/// The position and the reason if `ssz` is not a value of the type.
pub fn to_json(schema: &Schema, ty: TypeId, ssz: &[u8]) -> Result<Vec<u8>, SszError> {
    let mut writer = ToJson::new(schema, ty, ssz)?;
    let mut json = Vec::new();
    // hex is twice as long; values that consist mostly of numbers are longer
    let likely = 2 * ssz.len() + ssz.len() / 4 + MIN_ROOM;
    let refused = |_| SszError::new(0, SszErrorKind::NoMemory(likely));
    json.try_reserve(likely).map_err(refused)?;
    let mut room = [0; 1 << 14];
    loop {
        let len = writer.write(&mut room)?;
        if len == 0 {
            return Ok(json);
        }
        let refused = |_| SszError::new(0, SszErrorKind::NoMemory(len));
        json.try_reserve(len).map_err(refused)?;
        json.extend_from_slice(&room[..len]);
    }
}

impl<'s, B: AsRef<[u8]>> ToJson<'s, B> {
    /// Creates a writer for `ssz`, which is [`check`]ed.
    ///
    /// # Errors
    /// The position and the reason if `ssz` is not a value of the type.
    pub fn new(schema: &'s Schema, ty: TypeId, ssz: B) -> Result<Self, SszError> {
        check(schema, ty, ssz.as_ref())?;
        let len = ssz.as_ref().len();
        Ok(Self {
            schema,
            ssz,
            stack: Vec::new(),
            next: WriteStep::Whole(schema.get(ty), 0..len),
            rlp_keys: false,
        })
    }

    /// Adds a fourth list, of keys, to the RLP of a witness, without which geth from v1.16.4 on
    /// does not read it. The list is empty, because SSZ has no keys.
    pub fn with_rlp_keys(mut self) -> Self {
        self.rlp_keys = true;
        self
    }

    /// Writes the next part of the JSON into `to`, as far as there is room. Returns the number of
    /// bytes, or 0 at the end.
    ///
    /// # Errors
    /// The room is less than [`MIN_ROOM`], memory is refused, or a witness can't be encoded as RLP.
    pub fn write(&mut self, to: &mut [u8]) -> Result<usize, SszError> {
        let ssz = self.ssz.as_ref();
        if to.len() < MIN_ROOM {
            let why = format!("the buffer has {} bytes, not {MIN_ROOM}", to.len());
            return Err(SszError::from_message(0, why));
        }
        let mut out = JsonOutput { to, len: 0 };
        if let (WriteStep::Whole(ty, range), true) = (&self.next, out.has_room()) {
            out.put(ty.opening().as_bytes());
            self.next = WriteStep::Value(ty, range.clone());
        }
        while out.has_room() {
            match &mut self.next {
                WriteStep::Nothing | WriteStep::Whole(..) => break,
                WriteStep::Follows => {
                    let Some(frame) = self.stack.last_mut() else {
                        self.next = WriteStep::Nothing;
                        break;
                    };
                    match frame.resume(self.schema, ssz, &mut out)? {
                        Continuation::Full => break,
                        Continuation::Value(ty, range) => self.next = WriteStep::Value(ty, range),
                        Continuation::Hex(range) => self.next = WriteStep::Hex(range, false),
                        Continuation::Over => {
                            self.stack.pop();
                        }
                    }
                }
                WriteStep::Value(ty, range) => {
                    let (ty, range) = (*ty, range.clone());
                    let keys = self.rlp_keys;
                    self.next =
                        start_value(self.schema, &mut self.stack, ty, ssz, range, keys, &mut out)?;
                }
                WriteStep::Hex(range, ends) => {
                    let ends = *ends;
                    let room = (out.room() - 1) / 2;
                    let now = range.start..range.end.min(range.start + room);
                    range.start = now.end;
                    let is_over = range.start == range.end;
                    out.hex(&ssz[now]);
                    if is_over {
                        out.put(if ends { b"\"" } else { b"" });
                        self.next = WriteStep::Follows;
                    }
                }
                WriteStep::Text(text, at) => {
                    let rest = &text[*at..];
                    let now = rest.len().min(out.room());
                    out.put(&rest[..now]);
                    *at += now;
                    if now == rest.len() {
                        self.next = WriteStep::Follows;
                    }
                }
            }
        }
        Ok(out.len)
    }
}

/// Starts a value that is a long leaf or no leaf, and returns the next part of the output.
fn start_value<'s>(
    schema: &'s Schema,
    stack: &mut Vec<Frame<'s>>,
    ty: &'s Type,
    ssz: &[u8],
    range: Range<usize>,
    rlp_keys: bool,
    out: &mut JsonOutput<'_>,
) -> Result<WriteStep<'s>, SszError> {
    let refused = |_| SszError::new(0, SszErrorKind::NoMemory(size_of::<Frame<'_>>()));
    stack.try_reserve(1).map_err(refused)?;
    if write_leaf(ty, &ssz[range.clone()], out) {
        return Ok(WriteStep::Follows);
    }
    match &ty.kind {
        Kind::Container(container) if ty.json == Json::Rlp => {
            let (witness, begin) = Witness::new(schema, container, ssz, range, rlp_keys)?;
            out.hex(&begin);
            stack.push(Frame::Rlp(Box::new(witness)));
        }
        Kind::Container(container) => stack.push(Frame::Fields {
            container,
            range,
            next: 0,
        }),
        Kind::List(of, _) | Kind::Vector(of, _) => {
            let of = schema.get(*of);
            stack.push(match of.size {
                Some(size) => Frame::Fixed {
                    of,
                    size,
                    range,
                    is_first: true,
                },
                None => Frame::Variable {
                    of,
                    count: Elements::new(ssz, range.clone())?.len(),
                    range,
                    next: 0,
                },
            });
        }
        Kind::Optional(of) => {
            let of = schema.get(*of);
            if range.start == range.end {
                out.put(b"null");
            } else {
                let skipped = if of.size.is_some() { 0 } else { OFFSET };
                out.put(of.opening().as_bytes());
                return Ok(WriteStep::Value(of, range.start + skipped..range.end));
            }
        }
        Kind::Union(options) => {
            let selector = ssz[range.start];
            let option = options.iter().find(|(option, _)| *option == selector);
            let Some((_, of)) = option else {
                return Err(SszError::from_message(
                    range.start,
                    "the union has no such option",
                ));
            };
            let of = schema.get(*of);
            out.put(b"{\"selector\":\"");
            out.number(&[selector]);
            out.put(b"\",\"data\":");
            out.put(of.opening().as_bytes());
            stack.push(Frame::Union);
            return Ok(WriteStep::Value(of, range.start + 1..range.end));
        }
        Kind::Text(_) => {
            let text = std::str::from_utf8(&ssz[range.clone()])
                .map_err(|_| SszError::from_message(range.start, "not UTF-8"))?;
            // serialization of a string can't fail
            let json = serde_json::to_vec(text).unwrap_or_default();
            return Ok(WriteStep::Text(json, 0));
        }
        // a long string of bytes
        _ => return Ok(WriteStep::Hex(range, true)),
    }
    Ok(WriteStep::Follows)
}

/// The result of writing a further part of a value whose JSON is incomplete.
enum Continuation<'s> {
    /// The buffer has no room.
    Full,
    Value(&'s Type, Range<usize>),
    /// Bytes inside a string.
    Hex(Range<usize>),
    Over,
}

impl<'s> Frame<'s> {
    /// Writes elements or fields until the buffer is full, a value must be opened, or all are
    /// written.
    #[inline(always)]
    fn resume(
        &mut self,
        schema: &'s Schema,
        ssz: &[u8],
        out: &mut JsonOutput<'_>,
    ) -> Result<Continuation<'s>, SszError> {
        match self {
            Self::Fields {
                container,
                range,
                next,
            } => {
                while let Some(field) = container.fields.get(*next) {
                    if !out.has_room() {
                        return Ok(Continuation::Full);
                    }
                    out.put_field_prefix(container.names.lead(*next));
                    *next += 1;
                    let ty = schema.get(field.ty);
                    let at = range.start + field.offset;
                    let part = match ty.size {
                        Some(size) => at..at + size,
                        None => {
                            let rest = container.fields[*next..].iter();
                            let mut rest = rest.filter(|field| schema.get(field.ty).size.is_none());
                            let end = match rest.next() {
                                Some(later) => {
                                    range.start + offset(ssz, range.start + later.offset)
                                }
                                None => range.end,
                            };
                            range.start + offset(ssz, at)..end
                        }
                    };
                    if !write_leaf(ty, &ssz[part.clone()], out) {
                        return Ok(Continuation::Value(ty, part));
                    }
                }
                out.put(b"}");
                Ok(Continuation::Over)
            }
            Self::Fixed {
                of,
                size,
                range,
                is_first,
            } => {
                while range.start < range.end {
                    if !out.has_room() {
                        return Ok(Continuation::Full);
                    }
                    if !*is_first {
                        out.put(b",");
                    }
                    *is_first = false;
                    out.put(of.opening().as_bytes());
                    let part = range.start..range.start + *size;
                    range.start = part.end;
                    if !write_leaf(of, &ssz[part.clone()], out) {
                        return Ok(Continuation::Value(of, part));
                    }
                }
                out.put(b"]");
                Ok(Continuation::Over)
            }
            Self::Variable {
                of,
                range,
                next,
                count,
            } => {
                while *next < *count {
                    if !out.has_room() {
                        return Ok(Continuation::Full);
                    }
                    if *next > 0 {
                        out.put(b",");
                    }
                    out.put(of.opening().as_bytes());
                    let at = range.start + *next * OFFSET;
                    *next += 1;
                    let end = match *next < *count {
                        true => range.start + offset(ssz, at + OFFSET),
                        false => range.end,
                    };
                    let part = range.start + offset(ssz, at)..end;
                    if !write_leaf(of, &ssz[part.clone()], out) {
                        return Ok(Continuation::Value(of, part));
                    }
                }
                out.put(b"]");
                Ok(Continuation::Over)
            }
            Self::Rlp(witness) => match witness.next(ssz)? {
                RlpStep::Bytes(bytes, range) => {
                    out.hex(&bytes);
                    Ok(Continuation::Hex(range))
                }
                RlpStep::Over => {
                    out.put(b"\"");
                    Ok(Continuation::Over)
                }
            },
            Self::Union => {
                out.put(b"}");
                Ok(Continuation::Over)
            }
        }
    }
}

/// Writes a short leaf without its constant beginning, or a container for which there is room.
/// Returns false if the value is neither.
#[inline(always)]
fn write_leaf(ty: &Type, bytes: &[u8], out: &mut JsonOutput<'_>) -> bool {
    match &ty.kind {
        Kind::Uint(_) => {
            out.number(bytes);
            out.put(b"\"");
        }
        Kind::Quantity(_) => {
            out.quantity(bytes);
            out.put(b"\"");
        }
        Kind::ByteVector(_) | Kind::ByteList(_) | Kind::Bitvector(_) | Kind::Bitlist(_)
            if bytes.len() <= MAX_SHORT_BYTES =>
        {
            out.hex(bytes);
            out.put(b"\"");
        }
        Kind::Boolean => match bytes {
            [0] => out.put(b"false"),
            _ => out.put(b"true"),
        },
        Kind::Enum(words) => {
            let word = bytes.first().and_then(|word| words.get(usize::from(*word)));
            out.put(word.map_or("", |word| word).as_bytes());
            out.put(b"\"");
        }
        Kind::Container(container) if ty.json == Json::Usual => match &container.template {
            Some(template) => return template::write(template, bytes, out),
            None => return false,
        },
        _ => return false,
    }
    true
}
