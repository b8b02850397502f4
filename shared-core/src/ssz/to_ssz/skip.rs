//! Reader of a value that belongs to no field. It must be valid JSON, and is discarded.

use super::scan::{json_token_kind, JsonTokenError};

/// Maximum nesting depth of arrays and objects, as in many parsers.
const MAX_SKIP_DEPTH: usize = 128;

/// A reader that validates and discards a JSON value, because it belongs to no field, and its
/// progress.
#[derive(Debug, Default)]
pub(super) struct JsonValueSkipper {
    /// Open arrays and objects, innermost last; true for an object.
    open: Vec<bool>,
    state: SkipState,
}

/// The part of the skipped value that is read next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SkipState {
    /// A value is next.
    #[default]
    Value,
    FirstElement,
    FirstKey,
    Key,
    Colon,
    /// A comma or a closing bracket is next.
    Next,
    /// Inside a string; true for a key.
    InString(bool),
    /// Inside a number.
    InNumber(NumberState),
    Done,
}

/// The part of a number that was read last, which decides what may follow (RFC 8259, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberState {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl JsonValueSkipper {
    /// Creates a reader for the rest of a string, which begins between two characters.
    pub(super) fn for_rest_of_string() -> Self {
        Self {
            open: Vec::new(),
            state: SkipState::InString(false),
        }
    }

    /// Continues to read at `at`. Returns the end of the input that was read, and whether the value
    /// ended. The rest of the input is the beginning of a token.
    pub(super) fn continue_skipping_value(
        &mut self,
        bytes: &[u8],
        mut at: usize,
    ) -> Result<(usize, bool), JsonTokenError> {
        loop {
            let before = at;
            match self.state {
                SkipState::Done => return Ok((at, true)),
                SkipState::InString(is_key) => {
                    let (end, is_over) = skip_string_rest(bytes, at)?;
                    at = end;
                    if !is_over {
                        return Ok((at, false));
                    }
                    match is_key {
                        true => self.state = SkipState::Colon,
                        false => self.end_value(),
                    }
                    continue;
                }
                SkipState::InNumber(number) => {
                    let (end, number) = skip_number_rest(bytes, at, number);
                    at = end;
                    self.state = SkipState::InNumber(number);
                    if at == bytes.len() {
                        return Ok((at, false));
                    }
                    use NumberState::{Exponent, Fraction, Integer, Zero};
                    if !matches!(number, Zero | Integer | Fraction | Exponent) {
                        return Err(JsonTokenError::new(at, "not a number"));
                    }
                    self.end_value();
                    continue;
                }
                _ => {}
            }
            at = super::scan::skip_white_space(bytes, at);
            let Some(first) = bytes.get(at) else {
                return Ok((at, false));
            };
            match (self.state, first) {
                (SkipState::FirstElement, b']') | (SkipState::FirstKey, b'}') => {
                    at += 1;
                    self.open.pop();
                    self.end_value();
                }
                (SkipState::FirstKey | SkipState::Key, b'"') => {
                    at += 1;
                    self.state = SkipState::InString(true);
                }
                (SkipState::Colon, b':') => {
                    at += 1;
                    self.state = SkipState::Value;
                }
                (SkipState::Next, b',') => {
                    at += 1;
                    self.state = match self.open.last() {
                        Some(true) => SkipState::Key,
                        _ => SkipState::Value,
                    };
                }
                (SkipState::Next, b'}' | b']') => {
                    if self.open.pop() != Some(*first == b'}') {
                        return Err(JsonTokenError::new(
                            at,
                            "expected the other closing bracket",
                        ));
                    }
                    at += 1;
                    self.end_value();
                }
                (SkipState::Value | SkipState::FirstElement, _) => {
                    match self.begin_skipped_value(bytes, at)? {
                        Some(end) => at = end,
                        None => return Ok((before.max(at), false)),
                    }
                }
                (_, _) => return Err(JsonTokenError::new(at, "invalid JSON")),
            }
        }
    }

    fn end_value(&mut self) {
        self.state = match self.open.is_empty() {
            true => SkipState::Done,
            false => SkipState::Next,
        };
    }

    /// Begins the value at `at`: opens an object or array, or reads a scalar. Returns its end;
    /// `None` if the token is incomplete.
    fn begin_skipped_value(
        &mut self,
        bytes: &[u8],
        at: usize,
    ) -> Result<Option<usize>, JsonTokenError> {
        let rest = &bytes[at..];
        let literal: &[u8] = match rest[0] {
            b'"' => {
                self.state = SkipState::InString(false);
                return Ok(Some(at + 1));
            }
            open @ (b'{' | b'[') => {
                if self.open.len() == MAX_SKIP_DEPTH {
                    return Err(JsonTokenError::new(
                        at,
                        format!("more than {MAX_SKIP_DEPTH} levels"),
                    ));
                }
                let is_object = open == b'{';
                self.open.push(is_object);
                self.state = match is_object {
                    true => SkipState::FirstKey,
                    false => SkipState::FirstElement,
                };
                return Ok(Some(at + 1));
            }
            b'-' => {
                self.state = SkipState::InNumber(NumberState::Minus);
                return Ok(Some(at + 1));
            }
            b'0' => {
                self.state = SkipState::InNumber(NumberState::Zero);
                return Ok(Some(at + 1));
            }
            b'1'..=b'9' => {
                self.state = SkipState::InNumber(NumberState::Integer);
                return Ok(Some(at + 1));
            }
            b't' => b"true",
            b'f' => b"false",
            b'n' => b"null",
            other => return Err(JsonTokenError::new(at, json_token_kind(other))),
        };
        if rest.starts_with(literal) {
            self.end_value();
            Ok(Some(at + literal.len()))
        } else if literal.starts_with(rest) {
            Ok(None)
        } else {
            Err(JsonTokenError::new(at, "invalid JSON"))
        }
    }
}

/// Continues within a string. Returns the end of the input that was read, and whether the string
/// ended.
fn skip_string_rest(bytes: &[u8], mut at: usize) -> Result<(usize, bool), JsonTokenError> {
    loop {
        let rest = &bytes[at..];
        let found = memchr::memchr2(b'"', b'\\', rest);
        let plain = &rest[..found.unwrap_or(rest.len())];
        let control = plain.iter().position(|byte| *byte < b' ');
        let plain = &plain[..control.unwrap_or(plain.len())];
        match std::str::from_utf8(plain) {
            Ok(_) if control.is_some() => {
                return Err(JsonTokenError::new(at + plain.len(), "a control character"));
            }
            Ok(_) => at += plain.len(),
            // the rest of a character is in the next piece
            Err(cut) if cut.error_len().is_none() && found.is_none() && control.is_none() => {
                return Ok((at + cut.valid_up_to(), false));
            }
            Err(bad) => return Err(JsonTokenError::new(at + bad.valid_up_to(), "not UTF-8")),
        }
        match bytes.get(at..) {
            None | Some([]) => return Ok((at, false)),
            Some([b'"', ..]) => return Ok((at + 1, true)),
            Some(escape) => {
                match decode_escape(escape).map_err(|wrong| JsonTokenError::new(at, wrong))? {
                    Some((_, len)) => at += len,
                    None => return Ok((at, false)),
                }
            }
        }
    }
}

/// Decodes the escape at the beginning of `bytes`: its UTF-16 unit and its length. `None` if it is
/// incomplete.
pub(super) fn decode_escape(bytes: &[u8]) -> Result<Option<(u16, usize)>, &'static str> {
    let unit = match bytes.get(1) {
        None => return Ok(None),
        Some(plain @ (b'"' | b'\\' | b'/')) => u16::from(*plain),
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => 10,
        Some(b'r') => 13,
        Some(b't') => 9,
        Some(b'u') => {
            let digits = &bytes[2..bytes.len().min(6)];
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return Err("not an escape sequence");
            }
            if digits.len() < 4 {
                return Ok(None);
            }
            let text = std::str::from_utf8(digits).unwrap_or_default();
            let unit = u16::from_str_radix(text, 16).map_err(|_| "not an escape sequence")?;
            return Ok(Some((unit, 6)));
        }
        Some(_) => return Err("not an escape sequence"),
    };
    Ok(Some((unit, 2)))
}

/// Advances past the characters of a number, and returns the position and the state after them. A
/// later piece may continue the number.
fn skip_number_rest(bytes: &[u8], mut at: usize, mut number: NumberState) -> (usize, NumberState) {
    use NumberState::{Exponent, Fraction, Integer, Minus, Point, Sign, Zero, E};
    while let Some(byte) = bytes.get(at) {
        number = match (number, byte) {
            (Minus, b'0') => Zero,
            (Minus, b'1'..=b'9') | (Integer, b'0'..=b'9') => Integer,
            (Zero | Integer, b'.') => Point,
            (Point | Fraction, b'0'..=b'9') => Fraction,
            (Zero | Integer | Fraction, b'e' | b'E') => E,
            (E, b'+' | b'-') => Sign,
            (E | Sign | Exponent, b'0'..=b'9') => Exponent,
            _ => break,
        };
        at += 1;
    }
    (at, number)
}
