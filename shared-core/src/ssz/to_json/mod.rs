//! SSZ to JSON, written into a buffer as long as it has room.
//!
//! The JSON is minified, and its fields are in the order of the type. A container of short fields
//! is written at once where there is room ([`template`]).

mod number;
mod output;
mod rlp;
mod template;

use std::ops::Range;

use self::output::{read_checked_offset, JsonOutput};
use self::rlp::{NextRlpOutput, WitnessRlpWriter};
use super::check::{check_ssz, VariableElementRanges};
use super::error::{SszError, SszErrorKind};
use super::schema::{
    ContainerLayout, JsonRepresentationOverride, Schema, SszType, TypeId, TypeKind,
    FIELD_PREFIX_BYTES, OFFSET_LENGTH,
};

pub use self::output::MIN_JSON_BUFFER;

/// Maximum number of bytes of a string that is written at once. Longer ones are written as far as
/// there is room.
const MAX_SHORT_BYTES: usize = 256;

// a field's name, a short string and its closing quote, a number
const _: () = assert!(
    MIN_JSON_BUFFER > FIELD_PREFIX_BYTES + 2 * MAX_SHORT_BYTES + number::MAX_U256_DIGITS + 64
);

/// A converter of one SSZ value to JSON, which is written into buffers of the caller, one after the
/// other.
#[derive(Debug)]
pub struct SszToJson<'s, B> {
    schema: &'s Schema,
    ssz: B,
    stack: Vec<PartlyWrittenValue<'s>>,
    next: NextJsonOutput<'s>,
    rlp_keys: bool,
}

/// The part of the JSON that [`SszToJson::write_next`] writes next.
#[derive(Debug)]
enum NextJsonOutput<'s> {
    /// The whole value.
    Whole(&'s SszType, Range<usize>),
    /// A value without its constant beginning.
    Value(&'s SszType, Range<usize>),
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
enum PartlyWrittenValue<'s> {
    Fields {
        container: &'s ContainerLayout,
        range: Range<usize>,
        next: usize,
    },
    /// Elements of fixed size.
    Fixed {
        of: &'s SszType,
        size: usize,
        range: Range<usize>,
        is_first: bool,
    },
    /// Elements of variable size.
    Variable {
        of: &'s SszType,
        range: Range<usize>,
        next: usize,
        count: usize,
    },
    Union,
    Rlp(Box<WitnessRlpWriter>),
}

/// Converts an SSZ value to JSON in one buffer.
///
/// # Errors
/// The position and the reason if `ssz` is not a value of the type.
pub fn ssz_to_json(schema: &Schema, ty: TypeId, ssz: &[u8]) -> Result<Vec<u8>, SszError> {
    let mut writer = SszToJson::new(schema, ty, ssz)?;
    let mut json = Vec::new();
    // hex is twice as long; values that consist mostly of numbers are longer
    let likely = 2 * ssz.len() + ssz.len() / 4 + MIN_JSON_BUFFER;
    let refused = |_| SszError::new(0, SszErrorKind::NoMemory(likely));
    json.try_reserve(likely).map_err(refused)?;
    let mut room = [0; 1 << 14];
    loop {
        let len = writer.write_next(&mut room)?;
        if len == 0 {
            return Ok(json);
        }
        let refused = |_| SszError::new(0, SszErrorKind::NoMemory(len));
        json.try_reserve(len).map_err(refused)?;
        json.extend_from_slice(&room[..len]);
    }
}

impl<'s, B: AsRef<[u8]>> SszToJson<'s, B> {
    /// Creates a writer for `ssz`, which is [checked](check_ssz).
    ///
    /// # Errors
    /// The position and the reason if `ssz` is not a value of the type.
    pub fn new(schema: &'s Schema, ty: TypeId, ssz: B) -> Result<Self, SszError> {
        check_ssz(schema, ty, ssz.as_ref())?;
        let len = ssz.as_ref().len();
        Ok(Self {
            schema,
            ssz,
            stack: Vec::new(),
            next: NextJsonOutput::Whole(schema.type_by_id(ty), 0..len),
            rlp_keys: false,
        })
    }

    /// Adds a fourth list, of keys, to the RLP of a witness, without which geth from v1.16.4 on
    /// does not read it. The list is empty, because SSZ has no keys.
    pub fn with_empty_witness_keys(mut self) -> Self {
        self.rlp_keys = true;
        self
    }

    /// Writes the next part of the JSON into `to`, as far as there is room. Returns the number of
    /// bytes, or 0 at the end.
    ///
    /// # Errors
    /// The room is less than [`MIN_JSON_BUFFER`], memory is refused, or a witness can't be encoded
    /// as RLP.
    pub fn write_next(&mut self, to: &mut [u8]) -> Result<usize, SszError> {
        let ssz = self.ssz.as_ref();
        if to.len() < MIN_JSON_BUFFER {
            let why = format!("the buffer has {} bytes, not {MIN_JSON_BUFFER}", to.len());
            return Err(SszError::from_message(0, why));
        }
        let mut out = JsonOutput { to, len: 0 };
        if let (NextJsonOutput::Whole(ty, range), true) = (&self.next, out.has_remaining_bytes()) {
            out.put_bytes(ty.constant_json_prefix().as_bytes());
            self.next = NextJsonOutput::Value(ty, range.clone());
        }
        while out.has_remaining_bytes() {
            match &mut self.next {
                NextJsonOutput::Nothing | NextJsonOutput::Whole(..) => break,
                NextJsonOutput::Follows => {
                    let Some(frame) = self.stack.last_mut() else {
                        self.next = NextJsonOutput::Nothing;
                        break;
                    };
                    match frame.continue_open_value(self.schema, ssz, &mut out)? {
                        ValueWriteResult::Full => break,
                        ValueWriteResult::Value(ty, range) => {
                            self.next = NextJsonOutput::Value(ty, range);
                        }
                        ValueWriteResult::Hex(range) => {
                            self.next = NextJsonOutput::Hex(range, false);
                        }
                        ValueWriteResult::Over => {
                            self.stack.pop();
                        }
                    }
                }
                NextJsonOutput::Value(ty, range) => {
                    let (ty, range) = (*ty, range.clone());
                    let keys = self.rlp_keys;
                    self.next =
                        start_value(self.schema, &mut self.stack, ty, ssz, range, keys, &mut out)?;
                }
                NextJsonOutput::Hex(range, ends) => {
                    let ends = *ends;
                    let room = (out.remaining_capacity() - 1) / 2;
                    let now = range.start..range.end.min(range.start + room);
                    range.start = now.end;
                    let is_over = range.start == range.end;
                    out.put_hex(&ssz[now]);
                    if is_over {
                        out.put_bytes(if ends { b"\"" } else { b"" });
                        self.next = NextJsonOutput::Follows;
                    }
                }
                NextJsonOutput::Text(text, at) => {
                    let rest = &text[*at..];
                    let now = rest.len().min(out.remaining_capacity());
                    out.put_bytes(&rest[..now]);
                    *at += now;
                    if now == rest.len() {
                        self.next = NextJsonOutput::Follows;
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
    stack: &mut Vec<PartlyWrittenValue<'s>>,
    ty: &'s SszType,
    ssz: &[u8],
    range: Range<usize>,
    rlp_keys: bool,
    out: &mut JsonOutput<'_>,
) -> Result<NextJsonOutput<'s>, SszError> {
    let refused = |_| {
        SszError::new(
            0,
            SszErrorKind::NoMemory(size_of::<PartlyWrittenValue<'_>>()),
        )
    };
    stack.try_reserve(1).map_err(refused)?;
    if write_short_json_leaf(ty, &ssz[range.clone()], out) {
        return Ok(NextJsonOutput::Follows);
    }
    match &ty.kind {
        TypeKind::Container(container) if ty.json == JsonRepresentationOverride::Rlp => {
            let (witness, begin) = WitnessRlpWriter::new(schema, container, ssz, range, rlp_keys)?;
            out.put_hex(&begin);
            stack.push(PartlyWrittenValue::Rlp(Box::new(witness)));
        }
        TypeKind::Container(container) => stack.push(PartlyWrittenValue::Fields {
            container,
            range,
            next: 0,
        }),
        TypeKind::List(of, _) | TypeKind::Vector(of, _) => {
            let of = schema.type_by_id(*of);
            stack.push(match of.size {
                Some(size) => PartlyWrittenValue::Fixed {
                    of,
                    size,
                    range,
                    is_first: true,
                },
                None => PartlyWrittenValue::Variable {
                    of,
                    count: VariableElementRanges::new(ssz, range.clone())?.len(),
                    range,
                    next: 0,
                },
            });
        }
        TypeKind::Optional(of) => {
            let of = schema.type_by_id(*of);
            if range.start == range.end {
                out.put_bytes(b"null");
            } else {
                let skipped = if of.size.is_some() { 0 } else { OFFSET_LENGTH };
                out.put_bytes(of.constant_json_prefix().as_bytes());
                return Ok(NextJsonOutput::Value(of, range.start + skipped..range.end));
            }
        }
        TypeKind::Union(options) => {
            let selector = ssz[range.start];
            let option = options.iter().find(|(option, _)| *option == selector);
            let Some((_, of)) = option else {
                return Err(SszError::from_message(
                    range.start,
                    "the union has no such option",
                ));
            };
            let of = schema.type_by_id(*of);
            out.put_bytes(b"{\"selector\":\"");
            out.put_number(&[selector]);
            out.put_bytes(b"\",\"data\":");
            out.put_bytes(of.constant_json_prefix().as_bytes());
            stack.push(PartlyWrittenValue::Union);
            return Ok(NextJsonOutput::Value(of, range.start + 1..range.end));
        }
        TypeKind::Text(_) => {
            let text = std::str::from_utf8(&ssz[range.clone()])
                .map_err(|_| SszError::from_message(range.start, "not UTF-8"))?;
            // serialization of a string can't fail
            let json = serde_json::to_vec(text).unwrap_or_default();
            return Ok(NextJsonOutput::Text(json, 0));
        }
        // a long string of bytes
        _ => return Ok(NextJsonOutput::Hex(range, true)),
    }
    Ok(NextJsonOutput::Follows)
}

/// The result of writing a further part of a value whose JSON is incomplete.
enum ValueWriteResult<'s> {
    /// The buffer has no room.
    Full,
    Value(&'s SszType, Range<usize>),
    /// Bytes inside a string.
    Hex(Range<usize>),
    Over,
}

impl<'s> PartlyWrittenValue<'s> {
    /// Writes elements or fields until the buffer is full, a value must be opened, or all are
    /// written.
    #[inline(always)]
    fn continue_open_value(
        &mut self,
        schema: &'s Schema,
        ssz: &[u8],
        out: &mut JsonOutput<'_>,
    ) -> Result<ValueWriteResult<'s>, SszError> {
        match self {
            Self::Fields {
                container,
                range,
                next,
            } => {
                while let Some(field) = container.fields.get(*next) {
                    if !out.has_remaining_bytes() {
                        return Ok(ValueWriteResult::Full);
                    }
                    out.put_json_field_prefix(container.names.json_field_prefix(*next));
                    *next += 1;
                    let ty = schema.type_by_id(field.ty);
                    let at = range.start + field.offset;
                    let part = match ty.size {
                        Some(size) => at..at + size,
                        None => {
                            let rest = container.fields[*next..].iter();
                            let mut rest =
                                rest.filter(|field| schema.type_by_id(field.ty).size.is_none());
                            let end = match rest.next() {
                                Some(later) => {
                                    range.start
                                        + read_checked_offset(ssz, range.start + later.offset)
                                }
                                None => range.end,
                            };
                            range.start + read_checked_offset(ssz, at)..end
                        }
                    };
                    if !write_short_json_leaf(ty, &ssz[part.clone()], out) {
                        return Ok(ValueWriteResult::Value(ty, part));
                    }
                }
                out.put_bytes(b"}");
                Ok(ValueWriteResult::Over)
            }
            Self::Fixed {
                of,
                size,
                range,
                is_first,
            } => {
                while range.start < range.end {
                    if !out.has_remaining_bytes() {
                        return Ok(ValueWriteResult::Full);
                    }
                    if !*is_first {
                        out.put_bytes(b",");
                    }
                    *is_first = false;
                    out.put_bytes(of.constant_json_prefix().as_bytes());
                    let part = range.start..range.start + *size;
                    range.start = part.end;
                    if !write_short_json_leaf(of, &ssz[part.clone()], out) {
                        return Ok(ValueWriteResult::Value(of, part));
                    }
                }
                out.put_bytes(b"]");
                Ok(ValueWriteResult::Over)
            }
            Self::Variable {
                of,
                range,
                next,
                count,
            } => {
                while *next < *count {
                    if !out.has_remaining_bytes() {
                        return Ok(ValueWriteResult::Full);
                    }
                    if *next > 0 {
                        out.put_bytes(b",");
                    }
                    out.put_bytes(of.constant_json_prefix().as_bytes());
                    let at = range.start + *next * OFFSET_LENGTH;
                    *next += 1;
                    let end = match *next < *count {
                        true => range.start + read_checked_offset(ssz, at + OFFSET_LENGTH),
                        false => range.end,
                    };
                    let part = range.start + read_checked_offset(ssz, at)..end;
                    if !write_short_json_leaf(of, &ssz[part.clone()], out) {
                        return Ok(ValueWriteResult::Value(of, part));
                    }
                }
                out.put_bytes(b"]");
                Ok(ValueWriteResult::Over)
            }
            Self::Rlp(witness) => match witness.next_rlp_part(ssz)? {
                NextRlpOutput::Bytes(bytes, range) => {
                    out.put_hex(&bytes);
                    Ok(ValueWriteResult::Hex(range))
                }
                NextRlpOutput::Over => {
                    out.put_bytes(b"\"");
                    Ok(ValueWriteResult::Over)
                }
            },
            Self::Union => {
                out.put_bytes(b"}");
                Ok(ValueWriteResult::Over)
            }
        }
    }
}

/// Writes a short leaf without its constant beginning, or a container for which there is room.
/// Returns false if the value is neither.
#[inline(always)]
fn write_short_json_leaf(ty: &SszType, bytes: &[u8], out: &mut JsonOutput<'_>) -> bool {
    match &ty.kind {
        TypeKind::Uint(_) => {
            out.put_number(bytes);
            out.put_bytes(b"\"");
        }
        TypeKind::Quantity(_) => {
            out.put_quantity(bytes);
            out.put_bytes(b"\"");
        }
        TypeKind::ByteVector(_)
        | TypeKind::ByteList(_)
        | TypeKind::Bitvector(_)
        | TypeKind::Bitlist(_)
            if bytes.len() <= MAX_SHORT_BYTES =>
        {
            out.put_hex(bytes);
            out.put_bytes(b"\"");
        }
        TypeKind::Boolean => match bytes {
            [0] => out.put_bytes(b"false"),
            _ => out.put_bytes(b"true"),
        },
        TypeKind::Enum(words) => {
            let word = bytes.first().and_then(|word| words.get(usize::from(*word)));
            out.put_bytes(word.map_or("", |word| word).as_bytes());
            out.put_bytes(b"\"");
        }
        TypeKind::Container(container) if ty.json == JsonRepresentationOverride::Usual => {
            match &container.template {
                Some(template) => return template::write_by_template(template, bytes, out),
                None => return false,
            }
        }
        _ => return false,
    }
    true
}
