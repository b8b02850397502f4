//! Complete strings and names.

use std::borrow::Cow;

use super::scan::{json_string_end, not_a_string_error, skip_white_space, JsonTokenError};
use super::skip::decode_escape;
use crate::ssz::schema::ContainerLayout;

/// The result of reading a member's name and its colon.
pub(super) enum MemberNameToken<'t> {
    Here {
        name: Cow<'t, str>,
        end: usize,
    },
    /// The end of the object instead of a name.
    End,
    Part,
}

/// The result of reading a name and searching it among the fields of a container.
pub(super) enum FieldSearchResult {
    /// The index of the field, and the position after the colon.
    Field(usize, usize),
    Unknown(usize),
    End,
    Part,
}

/// Reads the name of a member at `at`, and finds the field of the container. `or_end`: the object
/// may end instead.
pub(super) fn read_field_name(
    container: &ContainerLayout,
    bytes: &[u8],
    at: usize,
    or_end: bool,
) -> Result<FieldSearchResult, JsonTokenError> {
    Ok(match read_member_name(bytes, at, or_end)? {
        MemberNameToken::Here { name, end } => match container.names.find_field(name.as_bytes()) {
            Some(field) => FieldSearchResult::Field(field, end),
            None => FieldSearchResult::Unknown(end),
        },
        MemberNameToken::End => FieldSearchResult::End,
        MemberNameToken::Part => FieldSearchResult::Part,
    })
}

/// Reads a member's name and its colon at `at`; with `or_end` the object may end there instead.
pub(super) fn read_member_name(
    bytes: &[u8],
    at: usize,
    or_end: bool,
) -> Result<MemberNameToken<'_>, JsonTokenError> {
    let rest = &bytes[at..];
    match rest.first() {
        None => return Ok(MemberNameToken::Part),
        Some(b'"') => {}
        Some(b'}') if or_end => return Ok(MemberNameToken::End),
        Some(_) => return Err(JsonTokenError::new(at, "expected a name")),
    }
    let Some((name, len)) =
        read_json_string(rest).map_err(|wrong| shift_error_position(at, wrong))?
    else {
        return Ok(MemberNameToken::Part);
    };
    let colon = skip_white_space(bytes, at + len);
    match bytes.get(colon) {
        None => Ok(MemberNameToken::Part),
        Some(b':') => Ok(MemberNameToken::Here {
            name,
            end: colon + 1,
        }),
        Some(_) => Err(JsonTokenError::new(colon, "expected a colon")),
    }
}

/// Reads a complete string, and returns its content with the length of its token; `None` if its end
/// is missing.
pub(super) fn read_json_string(
    bytes: &[u8],
) -> Result<Option<(Cow<'_, str>, usize)>, JsonTokenError> {
    match bytes.first() {
        None => return Ok(None),
        Some(b'"') => {}
        Some(other) => return Err(JsonTokenError::new(0, not_a_string_error(*other))),
    }
    let Some((len, escapes)) = json_string_end(bytes) else {
        return Ok(None);
    };
    let token = &bytes[..len];
    if !escapes {
        // control characters are not allowed
        let inner = &token[1..len - 1];
        if inner.iter().all(|byte| *byte >= b' ') {
            if let Ok(text) = std::str::from_utf8(inner) {
                return Ok(Some((text.into(), len)));
            }
        }
    }
    match serde_json::from_slice::<String>(token) {
        Ok(text) => Ok(Some((text.into(), len))),
        Err(bad) => Err(JsonTokenError::new(0, format!("invalid string: {bad}"))),
    }
}

/// The length in bytes of a string's token, or of the prefix of it that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenLength {
    Whole(usize),
    /// The length that was read; the rest of the token follows.
    Cut(usize),
}

/// Reads a string up to `most` bytes: the whole string, or a prefix of at
/// least `most` bytes.
pub(super) fn read_json_string_prefix(
    bytes: &[u8],
    most: u64,
) -> Result<Option<(Cow<'_, str>, TokenLength)>, JsonTokenError> {
    // one byte of text has at most six bytes of escapes; a surrogate pair has twelve for four bytes
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let longest = most.saturating_mul(6).saturating_add(16);
    let prefix = &bytes[..bytes.len().min(longest)];
    if let Some((text, len)) = read_json_string(prefix)? {
        return Ok(Some((text, TokenLength::Whole(len))));
    }
    if bytes.len() < longest {
        return Ok(None);
    }
    let mut end = 1;
    while let Some([first, ..]) = prefix.get(end..) {
        let unit = |at: usize| match prefix.get(at..) {
            Some(rest @ [b'\\', ..]) => {
                decode_escape(rest).map_err(|why| JsonTokenError::new(at, why))
            }
            _ => Ok(None),
        };
        if *first != b'\\' {
            end += 1;
            continue;
        }
        let Some((first, len)) = unit(end)? else {
            break;
        };
        let is_half = (0xd800..0xdc00).contains(&first);
        let other = if is_half { unit(end + len)? } else { None };
        if is_half && other.is_none() && prefix.len() - end < 12 {
            break;
        }
        end += len + other.map_or(0, |(_, len)| len);
    }
    if let Err(cut) = std::str::from_utf8(&prefix[..end]) {
        if cut.error_len().is_none() {
            end = cut.valid_up_to();
        }
    }
    let token = [&prefix[..end], b"\""].concat();
    match serde_json::from_slice::<String>(&token) {
        Ok(text) => Ok(Some((text.into(), TokenLength::Cut(end)))),
        Err(bad) => Err(JsonTokenError::new(0, format!("invalid string: {bad}"))),
    }
}

/// Returns the length of `literal` if `bytes` begin with it, or `None` if they end within it. For
/// other bytes the error's position is `at`.
pub(super) fn match_literal(
    bytes: &[u8],
    literal: &[u8],
    at: usize,
) -> Result<Option<usize>, JsonTokenError> {
    if bytes.starts_with(literal) {
        Ok(Some(literal.len()))
    } else if literal.starts_with(bytes) {
        Ok(None)
    } else {
        Err(JsonTokenError::new(at, "invalid JSON"))
    }
}

/// Adds `at` to the position of an error.
pub(super) fn shift_error_position(at: usize, wrong: JsonTokenError) -> JsonTokenError {
    JsonTokenError {
        at: at + wrong.at,
        ..wrong
    }
}
