//! Reader of values.

use super::frame::{
    ListElementPlacement, OpenContainer, OpenJsonValue, OpenSszList, OpenUnion, NO_FIELD,
};
use super::hex::{self, DecodedHexDestination, HexReader, JsonToSszError};
use super::json_strings::{
    match_literal, read_json_string, read_json_string_prefix, shift_error_position, TokenLength,
};
use super::rlp::WitnessRlpReader;
use super::scan::{
    json_token_kind, parse_quantity, read_quoted_u256, read_quoted_u64, JsonTokenError,
};
use super::{
    template, ExpectedMemberToken, ExpectedToken, InputCompleteness, JsonToSsz, JsonValueSkipper,
};
use crate::ssz::check::{check_bitlist, check_bitvector};
use crate::ssz::error::SszErrorKind;
use crate::ssz::rlp::encode_header;
use crate::ssz::schema::{
    ContainerLayout, EnumJsonWords, JsonRepresentationOverride, ListLimit, SszType, TypeId,
    TypeKind, OFFSET_LENGTH,
};

/// The result of reading a value as far as the input lasts.
pub(super) enum JsonValueReadResult {
    Whole,
    /// The value was opened; its elements or fields follow.
    Opened(ExpectedMemberToken),
    Part,
}

/// Advances by the sign that opens an array or an object.
fn expect_opening(
    first: u8,
    sign: u8,
    expected: &str,
    at: &mut usize,
) -> Result<(), JsonToSszError> {
    if first != sign {
        let why = format!("{}, not {expected}", json_token_kind(first));
        return Err(JsonTokenError::new(*at, why).into());
    }
    *at += 1;
    Ok(())
}

impl<'s> JsonToSsz<'s> {
    /// Reads a value of the type `ty` at `at`, and stores the next token if it was opened or is
    /// incomplete. A fixed-size value is written to `place`.
    #[inline(always)]
    pub(super) fn read_or_suspend_value(
        &mut self,
        ty: &'s SszType,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<InputCompleteness, JsonToSszError> {
        Ok(match self.read_value(ty, place, bytes, at)? {
            JsonValueReadResult::Whole => {
                self.expect = ExpectedToken::Next;
                InputCompleteness::All
            }
            JsonValueReadResult::Opened(inside) => self.read_members(inside, bytes, at)?,
            JsonValueReadResult::Part => InputCompleteness::Part,
        })
    }

    /// Reads the value at `at`, or opens a container. A value of fixed size is written to `place`.
    /// `at` is advanced past the bytes that were read.
    #[inline(always)]
    pub(super) fn read_value(
        &mut self,
        ty: &'s SszType,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let rest = &bytes[*at..];
        let len = match ty.kind {
            TypeKind::Uint(8) => read_quoted_u64(rest)
                .map_err(|wrong| shift_error_position(*at, wrong))?
                .map(|(value, len)| {
                    self.output.bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
                    len
                }),
            TypeKind::ByteVector(size) => {
                let to = &mut self.output.bytes[place..place + size];
                match hex::read_exact_hex(rest, to) {
                    Some(len) => Some(len),
                    None => return self.read_hex_slow_path(ty, place, bytes, at),
                }
            }
            TypeKind::ByteList(limit) => {
                match hex::read_hex_string(rest, limit.max_elements(), &mut self.output)? {
                    Some(len) => Some(len),
                    None => return self.read_hex_slow_path(ty, place, bytes, at),
                }
            }
            _ => return self.read_value_by_kind(ty, place, bytes, at),
        };
        self.advance_or_await_token(ty, place, len, at)
    }

    /// Advances by a token of the given length; `None` if the token is incomplete.
    #[inline(always)]
    fn advance_or_await_token(
        &mut self,
        ty: &'s SszType,
        place: usize,
        len: Option<usize>,
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        match len {
            Some(len) => {
                *at += len;
                Ok(JsonValueReadResult::Whole)
            }
            None => {
                self.expect = ExpectedToken::Value(ty, place);
                Ok(JsonValueReadResult::Part)
            }
        }
    }

    /// Reads values of the kinds that have no fast path in [`read_value`](Self::read_value).
    fn read_value_by_kind(
        &mut self,
        ty: &'s SszType,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let rest = &bytes[*at..];
        let Some(first) = rest.first() else {
            return self.advance_or_await_token(ty, place, None, at);
        };
        let len = match &ty.kind {
            TypeKind::Container(container) if ty.json == JsonRepresentationOverride::Rlp => {
                return self.read_execution_witness(ty, container, bytes, at);
            }
            TypeKind::Container(container) => {
                return self.read_container_object(ty, container, place, bytes, at);
            }
            TypeKind::Vector(of, len) => {
                expect_opening(*first, b'[', "an array", at)?;
                return self.open_list(*of, *len as u64, true, place);
            }
            TypeKind::List(of, limit) => {
                expect_opening(*first, b'[', "an array", at)?;
                return self.open_list(*of, limit.max_elements(), false, place);
            }
            TypeKind::Union(options) => {
                expect_opening(*first, b'{', "an object", at)?;
                return self.open_union(options);
            }
            TypeKind::Bitlist(limit) => return self.read_bitlist(ty, *limit, place, bytes, at),
            TypeKind::Bitvector(bits) => return self.read_bitvector(ty, *bits, place, bytes, at),
            TypeKind::Optional(of) => return self.read_nullable_value(ty, *of, place, bytes, at),
            TypeKind::Text(limit) => {
                return self.read_and_truncate_text(ty, *limit, place, bytes, at)
            }
            TypeKind::Boolean => self.read_boolean(place, rest, *at)?,
            TypeKind::Uint(size @ (1 | 2 | 4 | 8)) => {
                let read =
                    read_quoted_u64(rest).map_err(|wrong| shift_error_position(*at, wrong))?;
                self.write_ssz_uint(
                    *size,
                    place,
                    *at,
                    read.map(|(value, len)| (value.to_le_bytes(), len)),
                )?
            }
            TypeKind::Uint(size) => {
                let read =
                    read_quoted_u256(rest).map_err(|wrong| shift_error_position(*at, wrong))?;
                self.write_ssz_uint(*size, place, *at, read)?
            }
            TypeKind::Quantity(size) => self.read_quantity(*size, place, rest, *at)?,
            TypeKind::Enum(words) => self.read_enum_word(words, place, rest, *at)?,
            TypeKind::ByteVector(_) | TypeKind::ByteList(_) => None,
        };
        self.advance_or_await_token(ty, place, len, at)
    }

    /// Reads an execution witness, whose byte strings are RLP in SSZ.
    fn read_execution_witness(
        &mut self,
        ty: &'s SszType,
        container: &'s ContainerLayout,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let mut witness = WitnessRlpReader::new(self.schema, ty, container, &mut self.output)?;
        let (end, is_over) = witness.continue_witness_rlp(bytes, *at, &mut self.output)?;
        *at = end;
        if is_over {
            return Ok(JsonValueReadResult::Whole);
        }
        self.expect = ExpectedToken::Rlp(Box::new(witness));
        Ok(JsonValueReadResult::Part)
    }

    /// Reads an object by the template of its type if it has the usual form, and opens it otherwise.
    fn read_container_object(
        &mut self,
        ty: &'s SszType,
        container: &'s ContainerLayout,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let rest = &bytes[*at..];
        if let Some(template) = &container.template {
            let place = ty.size.map(|_| place);
            if let Some(len) = template::read_by_template(template, rest, place, &mut self.output)?
            {
                return self.advance_or_await_token(ty, 0, Some(len), at);
            }
        }
        expect_opening(rest[0], b'{', "an object", at)?;
        self.open_container(ty, container, place)
    }

    fn open_union(
        &mut self,
        options: &'s [(u8, TypeId)],
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        self.push_open_value(OpenJsonValue::Union(OpenUnion {
            options,
            chosen: None,
            has_data: false,
        }))?;
        Ok(JsonValueReadResult::Opened(ExpectedMemberToken::Name(true)))
    }

    /// Reads a bitlist in hex, appends it to the output, and checks its length and its delimiting
    /// bit.
    fn read_bitlist(
        &mut self,
        ty: &'s SszType,
        limit: ListLimit,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let start = self.output.len();
        let most = limit.max_elements().saturating_add(1).div_ceil(8);
        let Some(len) = hex::read_hex_string(&bytes[*at..], most, &mut self.output)? else {
            return self.read_hex_slow_path(ty, place, bytes, at);
        };
        check_bitlist(&self.output.bytes[start..], limit)
            .map_err(|why| JsonTokenError::new(*at + len - 1, why))?;
        self.advance_or_await_token(ty, place, Some(len), at)
    }

    /// Reads a bitvector in hex to `place`, and checks that its padding bits are zero.
    fn read_bitvector(
        &mut self,
        ty: &'s SszType,
        bits: usize,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let to = &mut self.output.bytes[place..place + bits.div_ceil(8)];
        let Some(len) = hex::read_exact_hex(&bytes[*at..], to) else {
            return self.read_hex_slow_path(ty, place, bytes, at);
        };
        check_bitvector(to, bits).map_err(|why| JsonTokenError::new(*at + len - 1, why))?;
        self.advance_or_await_token(ty, place, Some(len), at)
    }

    /// Reads `null`, which is an empty list in SSZ, or a value, which is a list of one element.
    fn read_nullable_value(
        &mut self,
        ty: &'s SszType,
        of: TypeId,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        if let Ok(len) = match_literal(&bytes[*at..], b"null", *at) {
            return self.advance_or_await_token(ty, place, len, at);
        }
        let of = self.schema.type_by_id(of);
        let place = match of.size {
            Some(size) => self.output.append_zeros(size)?,
            None => {
                let place = self.output.append_zeros(OFFSET_LENGTH)?;
                self.output.bytes[place] = OFFSET_LENGTH as u8;
                place
            }
        };
        self.read_value_not_inlined(of, place, bytes, at)
    }

    /// Reads a text and truncates it to `limit` bytes, between two characters.
    fn read_and_truncate_text(
        &mut self,
        ty: &'s SszType,
        limit: u64,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let read = read_json_string_prefix(&bytes[*at..], limit)
            .map_err(|wrong| shift_error_position(*at, wrong))?;
        let Some((text, len)) = read else {
            return self.advance_or_await_token(ty, place, None, at);
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut ends = (0..=text.len().min(limit)).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        let text = &text[..end.unwrap_or(0)];
        let start = self.output.append_zeros(text.len())?;
        self.output.bytes[start..].copy_from_slice(text.as_bytes());
        match len {
            TokenLength::Whole(len) => self.advance_or_await_token(ty, place, Some(len), at),
            TokenLength::Cut(len) => {
                *at += len;
                self.expect = ExpectedToken::Skip(JsonValueSkipper::for_rest_of_string());
                Ok(JsonValueReadResult::Opened(ExpectedMemberToken::Stored(
                    InputCompleteness::All,
                )))
            }
        }
    }

    /// Reads a boolean; returns the length of its token, or `None` if the token is incomplete.
    fn read_boolean(
        &mut self,
        place: usize,
        rest: &[u8],
        at: usize,
    ) -> Result<Option<usize>, JsonToSszError> {
        Ok(match rest[0] {
            b't' => match_literal(rest, b"true", at)?.inspect(|_| self.output.bytes[place] = 1),
            b'f' => match_literal(rest, b"false", at)?,
            other => {
                let why = format!("{}, not a boolean", json_token_kind(other));
                return Err(JsonTokenError::new(at, why).into());
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
    ) -> Result<Option<usize>, JsonToSszError> {
        let Some((text, len)) =
            read_json_string(rest).map_err(|wrong| shift_error_position(at, wrong))?
        else {
            return Ok(None);
        };
        let value = parse_quantity(&text).map_err(|why| JsonTokenError::new(at, why))?;
        self.write_ssz_uint(size, place, at, Some((value, len)))
    }

    /// Reads a word of an enumeration; returns the length of its token, or `None` if the token is
    /// incomplete.
    fn read_enum_word(
        &mut self,
        words: &EnumJsonWords,
        place: usize,
        rest: &[u8],
        at: usize,
    ) -> Result<Option<usize>, JsonToSszError> {
        let Some((text, len)) =
            read_json_string(rest).map_err(|wrong| shift_error_position(at, wrong))?
        else {
            return Ok(None);
        };
        let Some(word) = words.enum_word_value(&text) else {
            let why = format!("not one of {}", words.join(", "));
            return Err(JsonTokenError::new(at, why).into());
        };
        self.output.bytes[place] = word;
        Ok(Some(len))
    }

    /// Writes a number, little-endian, with `size` bytes if it has no more; returns the length of
    /// its token.
    fn write_ssz_uint<const N: usize>(
        &mut self,
        size: usize,
        place: usize,
        at: usize,
        number: Option<([u8; N], usize)>,
    ) -> Result<Option<usize>, JsonToSszError> {
        let Some((value, len)) = number else {
            return Ok(None);
        };
        let (value, rest) = value.split_at(size);
        if rest.iter().any(|byte| *byte != 0) {
            let why = format!("more than {} bits", 8 * size);
            return Err(JsonTokenError::new(at, why).into());
        }
        self.output.bytes[place..place + size].copy_from_slice(value);
        Ok(Some(len))
    }

    /// Calls [`read_value`](Self::read_value) without inlining, where speed does not matter.
    #[inline(never)]
    fn read_value_not_inlined(
        &mut self,
        ty: &'s SszType,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        self.read_value(ty, place, bytes, at)
    }

    pub(super) fn push_open_value(&mut self, frame: OpenJsonValue<'s>) -> Result<(), SszErrorKind> {
        let refused = |_| SszErrorKind::NoMemory(size_of::<OpenJsonValue<'_>>());
        self.stack.try_reserve(1).map_err(refused)?;
        self.stack.push(frame);
        Ok(())
    }

    /// Opens a container whose opening bracket was read. The fixed part is at `place`, or appended
    /// as zeros if the size varies.
    fn open_container(
        &mut self,
        ty: &'s SszType,
        container: &'s ContainerLayout,
        place: usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let base = match ty.size {
            Some(_) => place,
            None => self.output.append_zeros(container.fixed_size)?,
        };
        let parts = self.output.begin_ssz_container();
        self.push_open_value(OpenJsonValue::Container(OpenContainer {
            container,
            base,
            seen: 0,
            next: 0,
            field: NO_FIELD,
            parts,
            is_fixed: ty.size.is_some(),
        }))?;
        Ok(JsonValueReadResult::Opened(ExpectedMemberToken::Name(true)))
    }

    /// Opens a list or a vector whose opening bracket was read. `exactly`: the number of elements
    /// must be `most`.
    fn open_list(
        &mut self,
        of: TypeId,
        most: u64,
        exactly: bool,
        place: usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let of = self.schema.type_by_id(of);
        let (places, base) = match of.size {
            Some(size) if exactly => (ListElementPlacement::Made(size), place),
            Some(size) => (ListElementPlacement::Added(size), self.output.len()),
            None => (
                ListElementPlacement::Variable(self.output.begin_variable_list()),
                self.output.len(),
            ),
        };
        self.push_open_value(OpenJsonValue::List(OpenSszList {
            of,
            base,
            count: 0,
            most,
            exactly,
            places,
        }))?;
        Ok(JsonValueReadResult::Opened(ExpectedMemberToken::Element(
            true,
        )))
    }

    /// Reads a string of bytes that is incomplete, invalid, or has escapes.
    fn read_hex_slow_path(
        &mut self,
        ty: &'s SszType,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        // white space may follow
        if *at == bytes.len() {
            return self.advance_or_await_token(ty, place, None, at);
        }
        if ty.json == JsonRepresentationOverride::Header && bytes[*at] == b'{' {
            return self.read_execution_header_object(ty, place, bytes, at);
        }
        let place = match ty.size {
            Some(_) => DecodedHexDestination::At(place),
            None => DecodedHexDestination::End,
        };
        let most = match ty.kind {
            TypeKind::ByteVector(size) => size as u64,
            TypeKind::Bitvector(bits) => bits.div_ceil(8) as u64,
            TypeKind::ByteList(limit) => limit.max_elements(),
            TypeKind::Bitlist(limit) => limit.max_elements().saturating_add(1).div_ceil(8),
            _ => 0,
        };
        let mut hex = HexReader::new(place, most);
        let (end, is_over) = hex.continue_hex_string(bytes, *at, &mut self.output)?;
        *at = end;
        if is_over {
            self.validate_complete_hex_value(ty, hex, end)?;
            return Ok(JsonValueReadResult::Whole);
        }
        self.expect = ExpectedToken::Hex(ty, hex);
        Ok(JsonValueReadResult::Part)
    }

    /// Reads a header that is an object, which must be complete.
    fn read_execution_header_object(
        &mut self,
        ty: &'s SszType,
        place: usize,
        bytes: &[u8],
        at: &mut usize,
    ) -> Result<JsonValueReadResult, JsonToSszError> {
        let (end, is_over) = JsonValueSkipper::default().continue_skipping_value(bytes, *at)?;
        if !is_over {
            return self.advance_or_await_token(ty, place, None, at);
        }
        let wrong = |why| JsonToSszError::from(JsonTokenError::new(*at, why));
        let header = encode_header(&bytes[*at..end]).map_err(wrong)?;
        if let TypeKind::ByteList(ListLimit::AtMost(most)) = ty.kind {
            if header.len() as u64 > most {
                return Err(wrong(format!("a header of more than {most} bytes")));
            }
        }
        let start = self.output.append_zeros(header.len())?;
        self.output.bytes[start..].copy_from_slice(&header);
        *at = end;
        Ok(JsonValueReadResult::Whole)
    }

    /// Validates a string of bytes at its end. Errors are reported at its closing quote, because it
    /// may have begun in another piece.
    pub(super) fn validate_complete_hex_value(
        &self,
        ty: &SszType,
        hex: HexReader,
        end: usize,
    ) -> Result<(), JsonToSszError> {
        let count = hex.decoded_byte_count() as usize;
        let wrong = |why: String| Err(JsonTokenError::new(end - 1, why).into());
        if let Some(size) = ty.size.filter(|size| *size != count) {
            return wrong(format!("{count} bytes, not {size}"));
        }
        let bytes = &self.output.bytes;
        let bytes = match hex.write_position() {
            DecodedHexDestination::At(place) => &bytes[place..place + count],
            DecodedHexDestination::End => &bytes[bytes.len() - count..],
        };
        match ty.kind {
            TypeKind::Bitvector(bits) => check_bitvector(bytes, bits).or_else(wrong),
            TypeKind::Bitlist(limit) => check_bitlist(bytes, limit).or_else(wrong),
            _ => Ok(()),
        }
    }
}
