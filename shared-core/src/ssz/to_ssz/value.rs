//! Reader of values.

use super::frame::{ElementPositions, Elements, Fields, Frame, Union, NONE};
use super::hex::{self, Hex, HexError, WritePosition};
use super::names::{literal, shift_error, text, text_prefix, TokenLength};
use super::rlp::Witness;
use super::scan::{quantity, quoted_u256, quoted_u64, token_kind, TokenError};
use super::{template, InputState, MemberStep, NextToken, ToSsz, ValueSkipper};
use crate::ssz::check::{bitlist, bitvector};
use crate::ssz::error::SszErrorKind;
use crate::ssz::rlp::encode_header;
use crate::ssz::schema::{Container, Json, Kind, Limit, Type, TypeId, Words, OFFSET};

/// The result of reading a value as far as the input lasts.
pub(super) enum ReadProgress {
    Whole,
    /// The value was opened; its elements or fields follow.
    Opened(MemberStep),
    Part,
}

/// Advances by the sign that opens an array or an object.
fn expect_opening(first: u8, sign: u8, expected: &str, at: &mut usize) -> Result<(), HexError> {
    if first != sign {
        let why = format!("{}, not {expected}", token_kind(first));
        return Err(TokenError::new(*at, why).into());
    }
    *at += 1;
    Ok(())
}

impl<'s> ToSsz<'s> {
    /// Reads a value of the type `ty` at `at`, and stores the next token if it was opened or is
    /// incomplete. A fixed-size value is written to `place`.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputState, HexError> {
        Ok(match self.value(ty, place, bytes, at)? {
            ReadProgress::Whole => {
                self.expect = NextToken::Next;
                InputState::All
            }
            ReadProgress::Opened(inside) => self.inside(inside, bytes, at)?,
            ReadProgress::Part => InputState::Part,
        })
    }

    #[inline(always)]
    pub(super) fn value(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        let rest = &bytes[*at..];
        let len = match ty.kind {
            Kind::Uint(8) => quoted_u64(rest)
                .map_err(|wrong| shift_error(*at, wrong))?
                .map(|(value, len)| {
                    self.output.bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
                    len
                }),
            Kind::ByteVector(size) => {
                let to = &mut self.output.bytes[place..place + size];
                match hex::read_exact(rest, to) {
                    Some(len) => Some(len),
                    None => return self.hex(ty, place, bytes, at),
                }
            }
            Kind::ByteList(limit) => match hex::read_string(rest, limit.max(), &mut self.output)? {
                Some(len) => Some(len),
                None => return self.hex(ty, place, bytes, at),
            },
            _ => return self.read_value_by_kind(ty, place, bytes, at),
        };
        self.consumed(ty, place, len, at)
    }

    /// Advances by a token of the given length; `None` if the token is incomplete.
    #[inline(always)]
    fn consumed(
        &mut self,
        ty: &'s Type,
        place: usize,
        len: Option<usize>,
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        match len {
            Some(len) => {
                *at += len;
                Ok(ReadProgress::Whole)
            }
            None => {
                self.expect = NextToken::Value(ty, place);
                Ok(ReadProgress::Part)
            }
        }
    }

    fn read_value_by_kind(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        let rest = &bytes[*at..];
        let Some(first) = rest.first() else {
            return self.consumed(ty, place, None, at);
        };
        let len = match &ty.kind {
            Kind::Container(container) if ty.json == Json::Rlp => {
                return self.read_witness(ty, container, bytes, at);
            }
            Kind::Container(container) => {
                return self.read_container(ty, container, place, bytes, at);
            }
            Kind::Vector(of, len) => {
                expect_opening(*first, b'[', "an array", at)?;
                return self.open_list(*of, *len as u64, true, place);
            }
            Kind::List(of, limit) => {
                expect_opening(*first, b'[', "an array", at)?;
                return self.open_list(*of, limit.max(), false, place);
            }
            Kind::Union(options) => {
                expect_opening(*first, b'{', "an object", at)?;
                return self.open_union(options);
            }
            Kind::Bitlist(limit) => return self.read_bitlist(ty, *limit, place, bytes, at),
            Kind::Bitvector(bits) => return self.read_bitvector(ty, *bits, place, bytes, at),
            Kind::Optional(of) => return self.read_optional(ty, *of, place, bytes, at),
            Kind::Text(limit) => return self.read_truncated_text(ty, *limit, place, bytes, at),
            Kind::Boolean => self.read_boolean(place, rest, *at)?,
            Kind::Uint(size @ (1 | 2 | 4 | 8)) => {
                let read = quoted_u64(rest).map_err(|wrong| shift_error(*at, wrong))?;
                self.write_uint(
                    *size,
                    place,
                    *at,
                    read.map(|(value, len)| (value.to_le_bytes(), len)),
                )?
            }
            Kind::Uint(size) => {
                let read = quoted_u256(rest).map_err(|wrong| shift_error(*at, wrong))?;
                self.write_uint(*size, place, *at, read)?
            }
            Kind::Quantity(size) => self.read_quantity(*size, place, rest, *at)?,
            Kind::Enum(words) => self.read_enum(words, place, rest, *at)?,
            Kind::ByteVector(_) | Kind::ByteList(_) => None,
        };
        self.consumed(ty, place, len, at)
    }

    /// Reads an execution witness, whose byte strings are RLP in SSZ.
    fn read_witness(
        &mut self,
        ty: &'s Type,
        container: &'s Container,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        let mut witness = Witness::new(self.schema, ty, container, &mut self.output)?;
        let (end, is_over) = witness.read(bytes, *at, &mut self.output)?;
        *at = end;
        if is_over {
            return Ok(ReadProgress::Whole);
        }
        self.expect = NextToken::Rlp(Box::new(witness));
        Ok(ReadProgress::Part)
    }

    /// Reads an object by the template of its type if it has the usual form, and opens it otherwise.
    fn read_container(
        &mut self,
        ty: &'s Type,
        container: &'s Container,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        let rest = &bytes[*at..];
        if let Some(template) = &container.template {
            let place = ty.size.map(|_| place);
            if let Some(len) = template::read(template, rest, place, &mut self.output)? {
                return self.consumed(ty, 0, Some(len), at);
            }
        }
        expect_opening(rest[0], b'{', "an object", at)?;
        self.open_container(ty, container, place)
    }

    fn open_union(&mut self, options: &'s [(u8, TypeId)]) -> Result<ReadProgress, HexError> {
        self.open(Frame::Union(Union {
            options,
            chosen: None,
            has_data: false,
        }))?;
        Ok(ReadProgress::Opened(MemberStep::Name(true)))
    }

    fn read_bitlist(
        &mut self,
        ty: &'s Type,
        limit: Limit,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        let start = self.output.len();
        let most = limit.max().saturating_add(1).div_ceil(8);
        let Some(len) = hex::read_string(&bytes[*at..], most, &mut self.output)? else {
            return self.hex(ty, place, bytes, at);
        };
        bitlist(&self.output.bytes[start..], limit)
            .map_err(|why| TokenError::new(*at + len - 1, why))?;
        self.consumed(ty, place, Some(len), at)
    }

    fn read_bitvector(
        &mut self,
        ty: &'s Type,
        bits: usize,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        let to = &mut self.output.bytes[place..place + bits.div_ceil(8)];
        let Some(len) = hex::read_exact(&bytes[*at..], to) else {
            return self.hex(ty, place, bytes, at);
        };
        bitvector(to, bits).map_err(|why| TokenError::new(*at + len - 1, why))?;
        self.consumed(ty, place, Some(len), at)
    }

    /// Reads `null`, which is an empty list in SSZ, or a value, which is a list of one element.
    fn read_optional(
        &mut self,
        ty: &'s Type,
        of: TypeId,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        if let Ok(len) = literal(&bytes[*at..], b"null", *at) {
            return self.consumed(ty, place, len, at);
        }
        let of = self.schema.get(of);
        let place = match of.size {
            Some(size) => self.output.zeros(size)?,
            None => {
                let place = self.output.zeros(OFFSET)?;
                self.output.bytes[place] = OFFSET as u8;
                place
            }
        };
        self.read_value_cold(of, place, bytes, at)
    }

    /// Reads a text and truncates it to `limit` bytes, between two characters.
    fn read_truncated_text(
        &mut self,
        ty: &'s Type,
        limit: u64,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        let read = text_prefix(&bytes[*at..], limit).map_err(|wrong| shift_error(*at, wrong))?;
        let Some((text, len)) = read else {
            return self.consumed(ty, place, None, at);
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut ends = (0..=text.len().min(limit)).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        let text = &text[..end.unwrap_or(0)];
        let start = self.output.zeros(text.len())?;
        self.output.bytes[start..].copy_from_slice(text.as_bytes());
        match len {
            TokenLength::Whole(len) => self.consumed(ty, place, Some(len), at),
            TokenLength::Cut(len) => {
                *at += len;
                self.expect = NextToken::Skip(ValueSkipper::in_string());
                Ok(ReadProgress::Opened(MemberStep::Stored(InputState::All)))
            }
        }
    }

    /// Reads a boolean; returns the length of its token, or `None` if the token is incomplete.
    fn read_boolean(
        &mut self,
        place: usize,
        rest: &[u8],
        at: usize,
    ) -> Result<Option<usize>, HexError> {
        Ok(match rest[0] {
            b't' => literal(rest, b"true", at)?.inspect(|_| self.output.bytes[place] = 1),
            b'f' => literal(rest, b"false", at)?,
            other => {
                let why = format!("{}, not a boolean", token_kind(other));
                return Err(TokenError::new(at, why).into());
            }
        })
    }

    /// Reads a quantity; returns the length of its token, or `None` if the token is incomplete.
    fn read_quantity(
        &mut self,
        size: usize,
        place: usize,
        rest: &[u8],
        at: usize,
    ) -> Result<Option<usize>, HexError> {
        let Some((text, len)) = text(rest).map_err(|wrong| shift_error(at, wrong))? else {
            return Ok(None);
        };
        let value = quantity(&text).map_err(|why| TokenError::new(at, why))?;
        self.write_uint(size, place, at, Some((value, len)))
    }

    /// Reads a word of an enumeration; returns the length of its token, or `None` if the token is
    /// incomplete.
    fn read_enum(
        &mut self,
        words: &Words,
        place: usize,
        rest: &[u8],
        at: usize,
    ) -> Result<Option<usize>, HexError> {
        let Some((text, len)) = text(rest).map_err(|wrong| shift_error(at, wrong))? else {
            return Ok(None);
        };
        let Some(word) = words.find(&text) else {
            let why = format!("not one of {}", words.join(", "));
            return Err(TokenError::new(at, why).into());
        };
        self.output.bytes[place] = word;
        Ok(Some(len))
    }

    /// Writes a number, little-endian, with `size` bytes if it has no more; returns the length of
    /// its token.
    fn write_uint<const N: usize>(
        &mut self,
        size: usize,
        place: usize,
        at: usize,
        number: Option<([u8; N], usize)>,
    ) -> Result<Option<usize>, HexError> {
        let Some((value, len)) = number else {
            return Ok(None);
        };
        let (value, rest) = value.split_at(size);
        if rest.iter().any(|byte| *byte != 0) {
            let why = format!("more than {} bits", 8 * size);
            return Err(TokenError::new(at, why).into());
        }
        self.output.bytes[place..place + size].copy_from_slice(value);
        Ok(Some(len))
    }

    /// Calls [`value`](Self::value) without inlining, where speed does not matter.
    #[inline(never)]
    fn read_value_cold(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        self.value(ty, place, bytes, at)
    }

    pub(super) fn open(&mut self, frame: Frame<'s>) -> Result<(), SszErrorKind> {
        let refused = |_| SszErrorKind::NoMemory(size_of::<Frame<'_>>());
        self.stack.try_reserve(1).map_err(refused)?;
        self.stack.push(frame);
        Ok(())
    }

    fn open_container(
        &mut self,
        ty: &'s Type,
        container: &'s Container,
        place: usize,
    ) -> Result<ReadProgress, HexError> {
        let base = match ty.size {
            Some(_) => place,
            None => self.output.zeros(container.fixed_size)?,
        };
        let parts = self.output.begin_container();
        self.open(Frame::Container(Fields {
            container,
            base,
            seen: 0,
            next: 0,
            field: NONE,
            parts,
            is_fixed: ty.size.is_some(),
        }))?;
        Ok(ReadProgress::Opened(MemberStep::Name(true)))
    }

    fn open_list(
        &mut self,
        of: TypeId,
        most: u64,
        exactly: bool,
        place: usize,
    ) -> Result<ReadProgress, HexError> {
        let of = self.schema.get(of);
        let (places, base) = match of.size {
            Some(size) if exactly => (ElementPositions::Made(size), place),
            Some(size) => (ElementPositions::Added(size), self.output.len()),
            None => (
                ElementPositions::Variable(self.output.begin_list()),
                self.output.len(),
            ),
        };
        self.open(Frame::List(Elements {
            of,
            base,
            count: 0,
            most,
            exactly,
            places,
        }))?;
        Ok(ReadProgress::Opened(MemberStep::Element(true)))
    }

    /// Reads a string of bytes that is incomplete, invalid, or has escapes.
    fn hex(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        // white space may follow
        if *at == bytes.len() {
            return self.consumed(ty, place, None, at);
        }
        if ty.json == Json::Header && bytes[*at] == b'{' {
            return self.header(ty, place, bytes, at);
        }
        let place = match ty.size {
            Some(_) => WritePosition::At(place),
            None => WritePosition::End,
        };
        let most = match ty.kind {
            Kind::ByteVector(size) => size as u64,
            Kind::Bitvector(bits) => bits.div_ceil(8) as u64,
            Kind::ByteList(limit) => limit.max(),
            Kind::Bitlist(limit) => limit.max().saturating_add(1).div_ceil(8),
            _ => 0,
        };
        let mut hex = Hex::new(place, most);
        let (end, is_over) = hex.read(bytes, *at, &mut self.output)?;
        *at = end;
        if is_over {
            self.end_hex(ty, hex, end)?;
            return Ok(ReadProgress::Whole);
        }
        self.expect = NextToken::Hex(ty, hex);
        Ok(ReadProgress::Part)
    }

    /// Reads a header that is an object, which must be complete.
    fn header(
        &mut self,
        ty: &'s Type,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<ReadProgress, HexError> {
        let (end, is_over) = ValueSkipper::default().read(bytes, *at)?;
        if !is_over {
            return self.consumed(ty, place, None, at);
        }
        let wrong = |why| HexError::from(TokenError::new(*at, why));
        let header = encode_header(&bytes[*at..end]).map_err(wrong)?;
        if let Kind::ByteList(Limit::AtMost(most)) = ty.kind {
            if header.len() as u64 > most {
                return Err(wrong(format!("a header of more than {most} bytes")));
            }
        }
        let start = self.output.zeros(header.len())?;
        self.output.bytes[start..].copy_from_slice(&header);
        *at = end;
        Ok(ReadProgress::Whole)
    }

    /// Validates a string of bytes at its end. Errors are reported at its closing quote, because it
    /// may have begun in another piece.
    pub(super) fn end_hex(&self, ty: &Type, hex: Hex, end: usize) -> Result<(), HexError> {
        let count = hex.count() as usize;
        let wrong = |why: String| Err(TokenError::new(end - 1, why).into());
        if let Some(size) = ty.size.filter(|size| *size != count) {
            return wrong(format!("{count} bytes, not {size}"));
        }
        let bytes = &self.output.bytes;
        let bytes = match hex.place() {
            WritePosition::At(place) => &bytes[place..place + count],
            WritePosition::End => &bytes[bytes.len() - count..],
        };
        match ty.kind {
            Kind::Bitvector(bits) => bitvector(bytes, bits).or_else(wrong),
            Kind::Bitlist(limit) => bitlist(bytes, limit).or_else(wrong),
            _ => Ok(()),
        }
    }
}
