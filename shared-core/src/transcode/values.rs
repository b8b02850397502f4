//! Values of one SSZ type: the type's name, and the conversion to JSON.

use super::error::TranscodeError;
use super::format::BodyFormat;
use crate::ssz::to_json::MIN_JSON_BUFFER;
use crate::ssz::{EnvelopeFlags, Fork, Preset, Schema, SszToJson, TypeId, UnorderedSszParts};

/// A callback of the host, which returns whether a buffer may grow to the given number of bytes.
pub type ReserveCallback<'a> = &'a mut dyn FnMut(usize) -> bool;

/// Bytes of JSON that are written at a time.
const JSON_PIECE_LENGTH: usize = 16 << 10;

/// The result of a conversion: the body in the other format, and the facts that its envelope named.
#[derive(Debug)]
pub struct TranscodedBody {
    /// The body.
    pub body: UnorderedSszParts,
    /// The format of the body.
    pub format: BodyFormat,
    /// The fork that only the envelope has named, and that the response's head is to name.
    pub fork: Option<&'static str>,
    /// The flags of the envelope.
    pub flags: EnvelopeFlags,
    /// The type of the body, if it is SSZ.
    pub of: Option<(&'static Schema, TypeId)>,
    /// Whether the SSZ that was converted to JSON has the requested root. True if no root was
    /// requested.
    pub has_requested_root: bool,
}

/// Estimates the length of the JSON of `ssz` bytes of SSZ: hex is twice as long, and values that
/// consist mostly of numbers are longer.
pub(super) fn estimated_json_length(ssz: u64) -> usize {
    let ssz = usize::try_from(ssz).unwrap_or(usize::MAX);
    ssz.saturating_mul(2)
        .saturating_add(ssz / 4)
        .saturating_add(JSON_PIECE_LENGTH)
}

/// Appends the JSON of a value, without an envelope, to `body`, and leaves room for one byte.
pub(super) fn write_ssz_as_json(
    schema: &'static Schema,
    ty: TypeId,
    ssz: &[u8],
    body: &mut Vec<u8>,
    may_take: ReserveCallback<'_>,
) -> Result<(), TranscodeError> {
    let writer = SszToJson::new(schema, ty, ssz)?;
    if body.capacity() == 0 {
        grow_json_buffer(body, estimated_json_length(ssz.len() as u64), may_take)?;
    }
    write_remaining_json(writer, body, may_take)
}

/// Appends the rest of the JSON of a value, which may be written in part, and leaves room for one
/// byte.
pub(super) fn write_remaining_json(
    mut writer: SszToJson<'_, &[u8]>,
    body: &mut Vec<u8>,
    may_take: ReserveCallback<'_>,
) -> Result<(), TranscodeError> {
    const _: () = assert!(JSON_PIECE_LENGTH >= MIN_JSON_BUFFER);
    let mut piece = [0; JSON_PIECE_LENGTH];
    loop {
        let written = writer.write_next(&mut piece)?;
        grow_json_buffer(body, written + 1, may_take)?;
        if written == 0 {
            return Ok(());
        }
        body.extend_from_slice(&piece[..written]);
    }
}

/// Reserves memory for `more` bytes, if the host permits, and grows the buffer by at least a
/// quarter.
pub(super) fn grow_json_buffer(
    body: &mut Vec<u8>,
    more: usize,
    may_take: ReserveCallback<'_>,
) -> Result<(), TranscodeError> {
    let needed = body.len().saturating_add(more);
    if needed <= body.capacity() {
        return Ok(());
    }
    let room = needed.max(body.capacity() + body.capacity() / 4);
    if !may_take(room) {
        return Err(TranscodeError::Memory);
    }
    let more = room - body.len();
    body.try_reserve_exact(more)
        .map_err(|_| TranscodeError::Memory)
}

/// Parses the fork's name in a header or an envelope. Errors: the fork is unknown.
pub(super) fn parse_fork(name: &[u8]) -> Result<Fork, TranscodeError> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    name.parse().map_err(|_| TranscodeError::Fork(name))
}

/// Parses the value of a header, `true` or `false` in any letter case; `None` for any other value.
pub(super) fn parse_header_bool(value: &[u8]) -> Option<bool> {
    match () {
        () if value.eq_ignore_ascii_case(b"true") => Some(true),
        () if value.eq_ignore_ascii_case(b"false") => Some(false),
        () => None,
    }
}

/// Finds the type `name` in a fork. Errors: the fork has no such type.
pub(super) fn find_type_in_fork(
    name: &str,
    fork: Fork,
    preset: Preset,
) -> Result<(&'static Schema, TypeId), TranscodeError> {
    let schema = Schema::for_fork(fork, preset);
    let ty = schema.find_type(name);
    let ty = ty.ok_or_else(|| TranscodeError::Fork(fork.name().into()))?;
    Ok((schema, ty))
}
