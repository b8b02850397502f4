//! Reader of batch responses that extracts only the positions and ids of their elements.
//!
//! Clients read more than JSON-RPC allows: unknown members, responses without `jsonrpc`, ids
//! that are `null`. A response that [`response`](super::response) refuses to store is still a
//! response for them, and this reader finds it. The reader enforces the grammar of JSON (RFC
//! 8259), so that no element breaks the array into which it is inserted, and no more than that:
//! nesting has no limit, strings may have any bytes beyond ASCII and any escaped code unit.

use std::ops::Range;

use super::simd_scan::{digits_end, plain_string_run_end};
use crate::bytes::try_push;

/// One response in a node's response to a batch, as the spans of its parts in the text; `None` for
/// absent members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchResponseSpans {
    /// Span of the response.
    pub span: Range<usize>,
    /// Id, if it is a string, a number or `null`.
    pub id: Option<Range<usize>>,
    /// Value of `result`.
    pub result: Option<Range<usize>>,
    /// Value of `error`.
    pub error: Option<Range<usize>>,
}

/// The shape of a node's response to a batch: an array of responses, a single object, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchResponseJsonKind {
    /// An array of responses.
    Array,
    /// A single object.
    Object,
    /// Another value, or no JSON from its beginning on.
    Other,
}

/// The responses to a batch that a text contains, as far as it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedBatchResponses {
    /// The value that contains the responses.
    pub shape: BatchResponseJsonKind,
    /// Complete responses, in the order of the text.
    pub all: Vec<BatchResponseSpans>,
    /// The text is JSON from its beginning to its end.
    pub is_whole: bool,
}

impl ParsedBatchResponses {
    /// Returns the elements of an empty array.
    pub const fn empty_array() -> Self {
        Self {
            shape: BatchResponseJsonKind::Array,
            all: Vec::new(),
            is_whole: true,
        }
    }
}

/// The error of memory that was refused while responses were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// The reason why reading ends before the text does.
enum BatchReadError {
    Syntax,
    Memory,
}

/// Reads a node's response to a batch: an array of responses, or a single one.
///
/// # Errors
/// [`OutOfMemory`].
pub fn read_batch_responses(text: &[u8]) -> Result<ParsedBatchResponses, OutOfMemory> {
    // some encoders begin with a byte order mark
    let start = if text.starts_with(b"\xEF\xBB\xBF") {
        3
    } else {
        0
    };
    let mut reader = BatchElementReader {
        text,
        at: start,
        open: OpenJsonContainers::default(),
    };
    let mut elements = ParsedBatchResponses {
        shape: BatchResponseJsonKind::Other,
        all: Vec::new(),
        is_whole: false,
    };
    match reader.read_elements(&mut elements) {
        Ok(()) => elements.is_whole = true,
        Err(BatchReadError::Syntax) => {}
        Err(BatchReadError::Memory) => return Err(OutOfMemory),
    }
    Ok(elements)
}

/// A reader of a node's response to a batch: the text, the position in it, and the containers that
/// are open there.
struct BatchElementReader<'a> {
    text: &'a [u8],
    at: usize,
    open: OpenJsonContainers,
}

impl BatchElementReader<'_> {
    /// Reads the array or the single object, and appends its responses.
    fn read_elements(&mut self, to: &mut ParsedBatchResponses) -> Result<(), BatchReadError> {
        self.skip_white_space();
        match self.peek_required_byte()? {
            b'[' => {
                to.shape = BatchResponseJsonKind::Array;
                self.at += 1;
                self.read_array(&mut to.all)?;
            }
            b'{' => {
                to.shape = BatchResponseJsonKind::Object;
                let element = self.read_batch_element()?;
                try_push(&mut to.all, element).ok_or(BatchReadError::Memory)?;
            }
            _ => self.skip_value()?,
        }
        self.skip_white_space();
        match self.peek_byte() {
            None => Ok(()),
            Some(_) => Err(BatchReadError::Syntax),
        }
    }

    /// Reads an array after its opening bracket.
    fn read_array(&mut self, to: &mut Vec<BatchResponseSpans>) -> Result<(), BatchReadError> {
        self.skip_white_space();
        if self.peek_required_byte()? == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_white_space();
            let is_number = matches!(self.peek_required_byte()?, b'-' | b'0'..=b'9');
            let element = self.read_batch_element()?;
            if is_number && self.peek_byte().is_none() {
                // more digits may have been cut off
                return Err(BatchReadError::Syntax);
            }
            try_push(to, element).ok_or(BatchReadError::Memory)?;
            self.skip_white_space();
            self.at += 1;
            match self.text[self.at - 1..].first() {
                Some(b',') => {}
                Some(b']') => return Ok(()),
                _ => return Err(BatchReadError::Syntax),
            }
        }
    }

    /// Reads one element, and returns the spans of its parts. An element that is not an object has
    /// no parts.
    fn read_batch_element(&mut self) -> Result<BatchResponseSpans, BatchReadError> {
        let mut element = BatchResponseSpans {
            span: self.at..self.at,
            ..BatchResponseSpans::default()
        };
        match self.peek_required_byte()? {
            b'{' => {
                self.at += 1;
                self.read_members(&mut element)?;
            }
            _ => self.skip_value()?,
        }
        element.span.end = self.at;
        Ok(element)
    }

    /// Reads an object after its opening brace. The last of several members with one name counts,
    /// as in clients.
    fn read_members(&mut self, element: &mut BatchResponseSpans) -> Result<(), BatchReadError> {
        self.skip_white_space();
        if self.peek_required_byte()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_white_space();
            let name = self.read_string()?;
            self.skip_colon()?;
            let start = self.at;
            let is_scalar = !matches!(self.peek_required_byte()?, b'{' | b'[' | b't' | b'f');
            self.skip_value()?;
            let value = start..self.at;
            match &self.text[name] {
                b"id" => element.id = is_scalar.then_some(value),
                b"result" => element.result = Some(value),
                b"error" => element.error = Some(value),
                _ => {}
            }
            self.skip_white_space();
            self.at += 1;
            match self.text[self.at - 1..].first() {
                Some(b',') => {}
                Some(b'}') => return Ok(()),
                _ => return Err(BatchReadError::Syntax),
            }
        }
    }

    /// Skips one JSON value of any depth.
    fn skip_value(&mut self) -> Result<(), BatchReadError> {
        self.open.clear();
        'value: loop {
            match self.peek_required_byte()? {
                b'"' => {
                    self.read_string()?;
                }
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    self.skip_white_space();
                    let is_object = bracket == b'{';
                    // the closing bracket's code is two more than the opening one's
                    if self.peek_required_byte()? != bracket + 2 {
                        self.open.push(is_object)?;
                        if is_object {
                            self.read_string()?;
                            self.skip_colon()?;
                        }
                        continue 'value;
                    }
                    self.at += 1;
                }
                _ => self.skip_scalar()?,
            }
            loop {
                let Some(is_object) = self.open.is_innermost_container_object() else {
                    return Ok(());
                };
                self.skip_white_space();
                match self.peek_required_byte()? {
                    b',' => {
                        self.at += 1;
                        self.skip_white_space();
                        if is_object {
                            self.read_string()?;
                            self.skip_colon()?;
                        }
                        continue 'value;
                    }
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return Err(BatchReadError::Syntax),
                }
                self.at += 1;
                self.open.pop();
            }
        }
    }

    /// Skips a colon and the white space around it.
    fn skip_colon(&mut self) -> Result<(), BatchReadError> {
        self.skip_white_space();
        if self.peek_required_byte()? != b':' {
            return Err(BatchReadError::Syntax);
        }
        self.at += 1;
        self.skip_white_space();
        Ok(())
    }

    /// Reads a string, and returns its content without the quotes.
    fn read_string(&mut self) -> Result<Range<usize>, BatchReadError> {
        if self.peek_required_byte()? != b'"' {
            return Err(BatchReadError::Syntax);
        }
        let start = self.at + 1;
        self.at = start;
        loop {
            self.at = plain_string_run_end(self.text, self.at);
            match self.peek_required_byte()? {
                b'"' => break,
                b'\\' => self.skip_escape()?,
                _ => return Err(BatchReadError::Syntax),
            }
        }
        self.at += 1;
        Ok(start..self.at - 1)
    }

    /// Advances past an escape sequence; the position is at its backslash.
    fn skip_escape(&mut self) -> Result<(), BatchReadError> {
        let is_hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
        self.at += match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => match self.text.get(self.at + 2..self.at + 6) {
                Some(digits) if is_hex(digits) => 6,
                _ => return Err(BatchReadError::Syntax),
            },
            _ => return Err(BatchReadError::Syntax),
        };
        Ok(())
    }

    /// Advances past `true`, `false`, `null` or a number.
    fn skip_scalar(&mut self) -> Result<(), BatchReadError> {
        let word: &[u8] = match self.peek_required_byte()? {
            b't' => b"true",
            b'f' => b"false",
            b'n' => b"null",
            _ => return self.skip_number(),
        };
        match self.text[self.at..].starts_with(word) {
            true => self.at += word.len(),
            false => return Err(BatchReadError::Syntax),
        }
        Ok(())
    }

    /// Advances past a number; an incomplete part is an error.
    fn skip_number(&mut self) -> Result<(), BatchReadError> {
        if self.peek_required_byte()? == b'-' {
            self.at += 1;
        }
        match self.peek_required_byte()? {
            b'0' => self.at += 1,
            _ => self.skip_digits()?,
        }
        if self.peek_byte() == Some(b'.') {
            self.at += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek_byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek_byte() {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        Ok(())
    }

    /// Skips one or more digits.
    fn skip_digits(&mut self) -> Result<(), BatchReadError> {
        let end = digits_end(self.text, self.at);
        if end == self.at {
            return Err(BatchReadError::Syntax);
        }
        self.at = end;
        Ok(())
    }

    fn skip_white_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek_byte() {
            self.at += 1;
        }
    }

    fn peek_byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Returns the next byte without advancing; the end of the text is a syntax error.
    fn peek_required_byte(&self) -> Result<u8, BatchReadError> {
        self.peek_byte().ok_or(BatchReadError::Syntax)
    }
}

/// The arrays and objects that are open, innermost last: one bit each, set for objects.
#[derive(Default)]
struct OpenJsonContainers {
    bits: Vec<u64>,
    depth: usize,
}

impl OpenJsonContainers {
    fn clear(&mut self) {
        self.bits.clear();
        self.depth = 0;
    }

    /// Records that a container was opened. An error means that memory is refused.
    fn push(&mut self, is_object: bool) -> Result<(), BatchReadError> {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.bits.len() {
            try_push(&mut self.bits, 0).ok_or(BatchReadError::Memory)?;
        }
        if let Some(bits) = self.bits.get_mut(word) {
            *bits = *bits & !(1 << bit) | u64::from(is_object) << bit;
        }
        self.depth += 1;
        Ok(())
    }

    /// Records that the innermost container was closed.
    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Whether the innermost container is an object; `None` if none is open.
    fn is_innermost_container_object(&self) -> Option<bool> {
        let last = self.depth.checked_sub(1)?;
        let bits = self.bits.get(last / 64)?;
        Some(bits >> (last % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{
        read_batch_responses, BatchResponseJsonKind, BatchResponseSpans, ParsedBatchResponses,
    };

    fn texts<'a>(text: &'a str, elements: &ParsedBatchResponses) -> Vec<&'a str> {
        let spans = elements.all.iter().map(|one| one.span.clone());
        spans.map(|span| &text[span]).collect()
    }

    #[test]
    fn responses_that_may_not_be_stored_are_found() {
        for (text, ids) in [
            (r#"[{"id":1,"result":1}]"#, &[Some("1")][..]),
            (
                r#" [ {"meta":{"id":7},"id":"a","error":null} , {"id":null} ] "#,
                &[Some("\"a\""), Some("null")],
            ),
            (
                r#"[{"id":{}},{"id":true},{},1,"id",[1]]"#,
                &[None, None, None, None, None, None],
            ),
            (r#"[{"id":1,"id":-2.5e7}]"#, &[Some("-2.5e7")]),
            (r#"[{"id":1,"result":"\ud800"}]"#, &[Some("1")]),
            ("[]", &[]),
        ] {
            let elements = read_batch_responses(text.as_bytes()).unwrap();
            let found: Vec<_> = elements
                .all
                .iter()
                .map(|one| one.id.clone().map(|id| &text[id]))
                .collect();
            assert_eq!(
                (elements.shape, elements.is_whole, &found[..]),
                (BatchResponseJsonKind::Array, true, ids),
                "{text}"
            );
        }
    }

    #[test]
    fn complete_responses_are_found_in_truncated_text() {
        let text = r#"[{"id":1,"result":[{"a":"]"}]},{"id":2},{"id":3,"result":[1,2]}]"#;
        let whole = read_batch_responses(text.as_bytes()).unwrap();
        for cut in 0..text.len() {
            let elements = read_batch_responses(&text.as_bytes()[..cut]).unwrap();
            assert!(!elements.is_whole, "{cut}");
            let ended = |one: &&BatchResponseSpans| one.span.end <= cut;
            let expected = whole.all.iter().take_while(ended).count();
            // an element at the end of the text may be incomplete
            assert_eq!(elements.all, whole.all[..expected], "{cut}");
        }
        let doubled = format!("{text}{text}");
        let elements = read_batch_responses(doubled.as_bytes()).unwrap();
        assert!(!elements.is_whole);
        assert_eq!(elements.all, whole.all);
    }

    #[test]
    fn number_at_the_truncation_is_no_element() {
        let text = "[1,-20 ,3.5e10,true,\"a\"]";
        let whole = read_batch_responses(text.as_bytes()).unwrap();
        for cut in 0..text.len() {
            let elements = read_batch_responses(&text.as_bytes()[..cut]).unwrap();
            assert!(whole.all.starts_with(&elements.all), "{cut}");
        }
    }

    #[test]
    fn single_object_is_distinguished_from_an_array() {
        let text = r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#;
        let elements = read_batch_responses(text.as_bytes()).unwrap();
        assert_eq!(
            (elements.shape, elements.is_whole),
            (BatchResponseJsonKind::Object, true)
        );
        let one = &elements.all[0];
        assert_eq!(&text[one.error.clone().unwrap()], r#"{"code":1}"#);
        assert_eq!(texts(text, &elements), [text]);
        for text in ["", " ", "null", "\"[1]\"", "<html>", "1", "\u{feff}"] {
            let elements = read_batch_responses(text.as_bytes()).unwrap();
            assert_eq!(
                (elements.shape, elements.all),
                (BatchResponseJsonKind::Other, vec![])
            );
        }
        let marked = read_batch_responses("\u{feff}[1]".as_bytes()).unwrap();
        assert_eq!(
            (marked.shape, marked.is_whole),
            (BatchResponseJsonKind::Array, true)
        );
    }

    #[test]
    fn deeply_nested_text_is_read_without_a_limit() {
        let deep = format!(
            "{}{}",
            "[{\"a\":".repeat(5000),
            "1".to_owned() + &"}]".repeat(5000)
        );
        let text = format!("[{{\"id\":1,\"result\":{deep}}},{{\"id\":2}}]");
        let elements = read_batch_responses(text.as_bytes()).unwrap();
        assert!(elements.is_whole && elements.all.len() == 2);
        let mixed = text.replacen("}]}]", "}]]}", 1);
        assert!(!read_batch_responses(mixed.as_bytes()).unwrap().is_whole);
    }

    #[test]
    fn malformed_json_is_not_whole() {
        for text in [
            "[01]",
            "[-]",
            "[1.]",
            "[1e]",
            "[tru]",
            "[nul]",
            "[\"\\x\"]",
            "[\"\\u12g4\"]",
            "[\"\n\"]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "[}",
            "{]",
            "[1]]",
            "[{\"a\":[1}]",
            "[.5]",
            "[+1]",
            "['a']",
            "[1]x",
            "[NaN]",
        ] {
            assert!(
                !read_batch_responses(text.as_bytes()).unwrap().is_whole,
                "{text}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn reader_agrees_with_serde_json(text in "[\\[\\]{}:,\"a\\\\u0-9 .eE+tfn-]{0,12}|\\[(\\{(\"id\":1|\"a\":\\[\\])?\\},?){0,3}\\]") {
            let elements = read_batch_responses(text.as_bytes()).unwrap();
            let parsed = serde_json::from_str::<&RawValue>(&text);
            // serde_json reads strings as text, and so rejects invalid code units
            if parsed.is_ok() {
                assert!(elements.is_whole, "{text}");
            }
            if elements.is_whole && !text.contains("\\u") {
                assert!(parsed.is_ok(), "{text}");
            }
            if let (Ok(parsed), BatchResponseJsonKind::Array) = (serde_json::from_str::<Vec<&RawValue>>(&text), elements.shape) {
                let parsed: Vec<_> = parsed.iter().map(|one| one.get()).collect();
                assert_eq!(texts(&text, &elements), parsed);
            }
        }
    }
}
