//! A strict scanner of JSON texts (RFC 8259): it checks whether a text is JSON, and locates its
//! members and elements. It builds no tree, allocates no memory and does not recurse.
//!
//! Beyond the grammar it rejects texts that receivers read differently or not at all: an unpaired
//! surrogate (RFC 8259, section 8.2), a byte order mark, nesting beyond [`MAX_DEPTH`]. Duplicate
//! names of members are left to callers that know the object.
//!
//! [`Scanner`] is a pull scanner: the caller steps into the containers whose parts it needs and
//! skips the other values completely; all of the text is checked in either case. Bytes beyond
//! ASCII are not checked within strings: a text from the network is passed to
//! [`Scanner::of_text`], which checks its UTF-8 first.

use std::ops::Range;

use super::simd_scan::{end_of_digits, end_of_plain};
use super::string::end_of_escape;

pub use super::scan_error::{ScanError, SyntaxErrorKind};

/// Maximum number of arrays and objects that may be open at once: eight times the depth of the
/// deepest trace. The EVM allows 1,024 nested calls; geth's `callTracer` writes each as an array
/// and an object.
pub const MAX_DEPTH: usize = 16_384;

/// Maximum depth of a value in the first pass. A deeper value is read again from its start, with
/// a record of open containers for the maximum depth.
const USUAL_DEPTH: usize = 512;

/// Words of a record of open containers, for either depth.
const USUAL_WORDS: usize = USUAL_DEPTH / WORD;
const MAX_WORDS: usize = MAX_DEPTH / WORD;
const WORD: usize = 64;

/// The kind of a JSON value, which its first byte shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    String,
    /// A number, which starts with `-` or a digit.
    Number,
    /// A boolean: `true` or `false`.
    Bool,
    /// The value `null`.
    Null,
}

impl ValueKind {
    /// Returns the kind of a value that starts with `byte`.
    pub fn from_first_byte(byte: u8) -> Option<ValueKind> {
        match byte {
            b'"' => Some(ValueKind::String),
            b'{' => Some(ValueKind::Object),
            b'[' => Some(ValueKind::Array),
            b'-' | b'0'..=b'9' => Some(ValueKind::Number),
            b't' | b'f' => Some(ValueKind::Bool),
            b'n' => Some(ValueKind::Null),
            _ => None,
        }
    }
}

/// A string that was read, as the span of its content without the quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Span of the content.
    pub content: Range<usize>,
    /// The string has escapes: its bytes are not its characters.
    pub escaped: bool,
}

/// A JSON value that was checked and skipped, as its span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Kind of the value.
    pub kind: ValueKind,
    /// Span of the value, with quotes and brackets, without white space around it.
    pub span: Range<usize>,
}

/// A strict reader of a JSON text, and its position in it. See the [module's](self) description.
///
/// `first_member` or `first_element` steps into a container, `next_member` or `next_element`
/// proceeds in it or leaves it; between them the member's or element's value is read in one of
/// these ways, too, or with `value`.
///
/// The helpers of the inner loop are always inlined: without that a trace of names and numbers is
/// scanned at 0.9 GB/s instead of 1.1.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Number of containers that the caller has stepped into.
    depth: usize,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner at the start of a text from the network.
    pub fn of_text(text: &'a [u8]) -> Result<Scanner<'a>, ScanError> {
        // most texts are ASCII, which is checked in half the time
        if text.is_ascii() {
            return Ok(Scanner::of_value(text));
        }
        match std::str::from_utf8(text) {
            Ok(_) => Ok(Scanner::of_value(text)),
            Err(error) => Err(ScanError {
                offset: error.valid_up_to(),
                fault: SyntaxErrorKind::Utf8,
            }),
        }
    }

    /// Creates a scanner at the start of a value from a text that was UTF-8.
    pub fn of_value(text: &'a [u8]) -> Scanner<'a> {
        Scanner {
            text,
            at: 0,
            depth: 0,
        }
    }

    /// Returns the kind of the next value, by its first byte, without reading it.
    #[inline]
    pub fn kind(&mut self) -> Result<ValueKind, ScanError> {
        self.white_space();
        ValueKind::from_first_byte(self.here()?).ok_or(self.fault(SyntaxErrorKind::Value))
    }

    /// Returns the position of the next value, if a value is next.
    #[inline]
    pub fn start(&mut self) -> usize {
        self.white_space();
        self.at
    }

    /// Returns the end of the last part that was read.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Steps into an object and reads its first member's name and colon; `None` if the object is
    /// empty, which leaves it.
    pub fn first_member(&mut self) -> Result<Option<Quoted>, ScanError> {
        self.enter(b'{')?;
        if self.here()? == b'}' {
            self.leave();
            return Ok(None);
        }
        self.name().map(Some)
    }

    /// Reads the name of the object's next member; `None` after the last one, which leaves the
    /// object.
    pub fn next_member(&mut self) -> Result<Option<Quoted>, ScanError> {
        if self.next_separator(b'}')? {
            self.name().map(Some)
        } else {
            Ok(None)
        }
    }

    /// Steps into an object like [`first_member`](Self::first_member), without reading the name;
    /// returns whether there is a member.
    pub(super) fn first_name(&mut self) -> Result<bool, ScanError> {
        self.enter(b'{')?;
        let some = self.here()? != b'}';
        if !some {
            self.leave();
        }
        Ok(some)
    }

    /// Proceeds to the next member like [`next_member`](Self::next_member), without reading the
    /// name; returns whether there is one.
    #[inline]
    pub(super) fn next_name(&mut self) -> Result<bool, ScanError> {
        self.next_separator(b'}')
    }

    /// Reads the name and the colon.
    #[inline]
    pub(super) fn member_name(&mut self) -> Result<Quoted, ScanError> {
        self.name()
    }

    /// Skips to the end of an element that is known to be valid.
    #[inline]
    pub(super) fn skip_known_element(&mut self, end: usize) {
        self.at = end;
    }

    /// Skips these bytes, if they are next. They must be a name and its colon, or a value whose
    /// end is certain.
    #[inline(always)]
    pub(super) fn skip_literal(&mut self, bytes: &[u8]) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found = rest.starts_with(bytes);
        if found {
            self.at += bytes.len();
        }
        found
    }

    /// Steps into an array; returns whether it has an element. An empty array is left.
    pub fn first_element(&mut self) -> Result<bool, ScanError> {
        self.enter(b'[')?;
        let some = self.here()? != b']';
        if !some {
            self.leave();
        }
        Ok(some)
    }

    /// Proceeds to the next element; returns whether there is one. If not, the array is left.
    pub fn next_element(&mut self) -> Result<bool, ScanError> {
        self.next_separator(b']')
    }

    /// Reads a string value, quotes included.
    pub fn string(&mut self) -> Result<Quoted, ScanError> {
        self.white_space();
        if self.here()? != b'"' {
            return Err(self.fault(SyntaxErrorKind::Value));
        }
        self.quoted()
    }

    /// Checks and skips a complete value.
    pub fn value(&mut self) -> Result<Value, ScanError> {
        let kind = self.kind()?;
        let start = self.at;
        match kind {
            ValueKind::String => {
                self.quoted()?;
            }
            ValueKind::Object | ValueKind::Array => match self.container::<USUAL_WORDS>() {
                Err(error) if error.fault == SyntaxErrorKind::Depth => {
                    self.at = start;
                    self.deep_container()?;
                }
                read => read?,
            },
            _ => self.scalar()?,
        }
        Ok(Value {
            kind,
            span: start..self.at,
        })
    }

    /// Checks that only white space is left.
    pub fn end(&mut self) -> Result<(), ScanError> {
        self.white_space();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(self.fault(SyntaxErrorKind::Trailing))
        }
    }

    /// Reads a deep container. The record of 2 KiB is initialized in this function only.
    #[cold]
    #[inline(never)]
    fn deep_container(&mut self) -> Result<(), ScanError> {
        self.container::<MAX_WORDS>()
    }

    /// Checks and skips a container. One iteration of the loop reads one value.
    fn container<const WORDS: usize>(&mut self) -> Result<(), ScanError> {
        let mut open = Open::<WORDS>::new();
        let most = (WORDS * WORD).min(MAX_DEPTH - self.depth);
        'value: loop {
            match self.here()? {
                b'"' => {
                    self.quoted()?;
                }
                bracket @ (b'{' | b'[') => {
                    if open.depth == most {
                        return Err(self.fault(SyntaxErrorKind::Depth));
                    }
                    let is_object = bracket == b'{';
                    open.push(is_object);
                    self.at += 1;
                    self.white_space();
                    // the closing bracket's code is two more than the opening one's
                    if self.here()? != bracket + 2 {
                        if is_object {
                            self.name()?;
                            self.white_space();
                        }
                        continue 'value;
                    }
                    self.at += 1;
                    open.pop();
                }
                _ => self.scalar()?,
            }
            loop {
                if open.depth == 0 {
                    return Ok(());
                }
                self.white_space();
                let is_object = open.is_object();
                match self.here()? {
                    b',' => {
                        self.at += 1;
                        self.white_space();
                        if is_object {
                            self.name()?;
                            self.white_space();
                        }
                        continue 'value;
                    }
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return Err(self.fault(SyntaxErrorKind::Separator)),
                }
                self.at += 1;
                open.pop();
            }
        }
    }

    /// Steps into a container that begins with `bracket`. Errors: it does not, or is nested too
    /// deep.
    fn enter(&mut self, bracket: u8) -> Result<(), ScanError> {
        self.white_space();
        if self.here()? != bracket {
            return Err(self.fault(SyntaxErrorKind::Value));
        }
        if self.depth == MAX_DEPTH {
            return Err(self.fault(SyntaxErrorKind::Depth));
        }
        self.depth += 1;
        self.at += 1;
        self.white_space();
        Ok(())
    }

    fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.at += 1;
    }

    /// Reads the comma before the next element or member, or the bracket `closing`; returns whether
    /// it was a comma.
    fn next_separator(&mut self, closing: u8) -> Result<bool, ScanError> {
        self.white_space();
        let byte = self.here()?;
        if byte == b',' {
            self.at += 1;
            self.white_space();
            Ok(true)
        } else if byte == closing {
            self.leave();
            Ok(false)
        } else {
            Err(self.fault(SyntaxErrorKind::Separator))
        }
    }

    /// Reads a member's name and its colon.
    #[inline(always)]
    fn name(&mut self) -> Result<Quoted, ScanError> {
        if self.here()? != b'"' {
            return Err(self.fault(SyntaxErrorKind::Name));
        }
        let name = self.quoted()?;
        self.white_space();
        if self.here()? != b':' {
            return Err(self.fault(SyntaxErrorKind::Colon));
        }
        self.at += 1;
        Ok(name)
    }

    /// Reads a string, from its first quote.
    #[inline(always)]
    fn quoted(&mut self) -> Result<Quoted, ScanError> {
        let start = self.at + 1;
        self.at = end_of_plain(self.text, start);
        let mut escaped = false;
        loop {
            match self.here()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at = end_of_escape(self.text, self.at)?;
                }
                _ => return Err(self.fault(SyntaxErrorKind::Control)),
            }
            self.at = end_of_plain(self.text, self.at);
        }
        let content = start..self.at;
        self.at += 1;
        Ok(Quoted { content, escaped })
    }

    /// Checks and skips a number, `true`, `false` or `null`.
    #[inline(always)]
    fn scalar(&mut self) -> Result<(), ScanError> {
        match self.here()? {
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => Err(self.fault(SyntaxErrorKind::Value)),
        }
    }

    #[inline(always)]
    fn word(&mut self, word: &[u8]) -> Result<(), ScanError> {
        if self.skip_literal(word) {
            return Ok(());
        }
        // locates the mismatch
        for &byte in word {
            if self.here()? != byte {
                return Err(self.fault(SyntaxErrorKind::Value));
            }
            self.at += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn number(&mut self) -> Result<(), ScanError> {
        if self.here()? == b'-' {
            self.at += 1;
        }
        if self.here()? == b'0' {
            self.at += 1;
            if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.fault(SyntaxErrorKind::Number));
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Skips one or more digits.
    #[inline(always)]
    fn digits(&mut self) -> Result<(), ScanError> {
        if !self.here()?.is_ascii_digit() {
            return Err(self.fault(SyntaxErrorKind::Number));
        }
        self.at = end_of_digits(self.text, self.at + 1);
        Ok(())
    }

    #[inline(always)]
    fn white_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Returns the next byte, which is required.
    #[inline(always)]
    fn here(&self) -> Result<u8, ScanError> {
        self.peek().ok_or(self.fault(SyntaxErrorKind::End))
    }

    #[inline(always)]
    fn fault(&self, fault: SyntaxErrorKind) -> ScanError {
        ScanError {
            offset: self.at,
            fault,
        }
    }
}

/// A record of the open arrays and objects, innermost last: one bit each, set for objects.
struct Open<const WORDS: usize> {
    bits: [u64; WORDS],
    depth: usize,
}

impl<const WORDS: usize> Open<WORDS> {
    fn new() -> Self {
        Self {
            bits: [0; WORDS],
            depth: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, is_object: bool) {
        let bit = 1 << (self.depth % WORD);
        let word = &mut self.bits[self.depth / WORD % WORDS];
        if is_object {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        self.depth += 1;
    }

    #[inline(always)]
    fn pop(&mut self) {
        self.depth -= 1;
    }

    /// Whether the innermost container is an object; a container must be open.
    #[inline(always)]
    fn is_object(&self) -> bool {
        let last = self.depth - 1;
        self.bits[last / WORD % WORDS] >> (last % WORD) & 1 == 1
    }
}

/// Checks that a whole text is one JSON value, and returns its kind and span.
pub fn check(text: &[u8]) -> Result<Value, ScanError> {
    let mut scanner = Scanner::of_text(text)?;
    let value = scanner.value()?;
    scanner.end()?;
    Ok(value)
}
