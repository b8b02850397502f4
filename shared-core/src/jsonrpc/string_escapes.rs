//! Escapes in strings.

use super::scan_error::{JsonScanError, SyntaxErrorKind};

/// Checks an escape, or two that form a surrogate pair, from the backslash at `at` on; returns
/// the end.
#[cold]
pub fn check_string_escape(text: &[u8], at: usize) -> Result<usize, JsonScanError> {
    let error = |offset, fault| JsonScanError { offset, fault };
    let unpaired = error(at, SyntaxErrorKind::Surrogate);
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => return Ok(at + 2),
        Some(b'u') => {}
        Some(_) => return Err(error(at + 1, SyntaxErrorKind::Escape)),
        None => return Err(error(at + 1, SyntaxErrorKind::End)),
    }
    match read_code_unit(text, at + 2)? {
        0xD800..=0xDBFF => {}
        0xDC00..=0xDFFF => return Err(unpaired),
        _ => return Ok(at + 6),
    }
    for (offset, expected) in [(at + 6, b'\\'), (at + 7, b'u')] {
        match text.get(offset) {
            Some(&byte) if byte == expected => {}
            Some(_) => return Err(unpaired),
            None => return Err(error(offset, SyntaxErrorKind::End)),
        }
    }
    match read_code_unit(text, at + 8)? {
        0xDC00..=0xDFFF => Ok(at + 12),
        _ => Err(unpaired),
    }
}

/// Reads the four hexadecimal digits of an escape `\u`, which are a UTF-16 code unit.
fn read_code_unit(text: &[u8], at: usize) -> Result<u32, JsonScanError> {
    (at..at + 4).try_fold(0, |unit, offset| {
        let error = |fault| JsonScanError { offset, fault };
        let byte = *text.get(offset).ok_or(error(SyntaxErrorKind::End))?;
        let digit = char::from(byte)
            .to_digit(16)
            .ok_or(error(SyntaxErrorKind::Escape))?;
        Ok(unit << 4 | digit)
    })
}
