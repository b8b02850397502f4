//! The error of the JSON scanner.

use std::fmt;

/// The error of a text that is not JSON: the broken rule, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonScanError {
    /// Position in bytes from the start of the text.
    pub offset: usize,
    /// Rule that is broken there.
    pub fault: SyntaxErrorKind,
}

/// The rule of JSON that a text breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxErrorKind {
    /// The text is not UTF-8 (RFC 8259, section 8.1).
    Utf8,
    /// The text ends where more has to follow.
    End,
    /// No valid value is where one is required.
    Value,
    /// A leading zero, or a sign, point or exponent without its digits.
    Number,
    /// An object's member does not start with a string.
    Name,
    /// No colon follows a member's name.
    Colon,
    /// Neither a comma nor the right bracket follows a member or element.
    Separator,
    /// A control character in a string.
    Control,
    /// An escape that JSON does not have.
    Escape,
    /// One half of a surrogate pair without the other.
    Surrogate,
    /// The text opens more than [`MAX_DEPTH`](super::scan::MAX_DEPTH) arrays and objects.
    Depth,
    /// The text's one value is followed by more than white space.
    Trailing,
}

impl fmt::Display for JsonScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not JSON: {:?} at byte {}", self.fault, self.offset)
    }
}

impl std::error::Error for JsonScanError {}
