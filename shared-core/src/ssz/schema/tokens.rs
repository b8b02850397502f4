//! Tokens of a type table's lines.

use std::fmt;

/// The error of an invalid type table or type expression: the reason, and the table's name and
/// line, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// Table and line, or `None` if the error is not in a table.
    pub(super) place: Option<(&'static str, usize)>,
    pub(super) why: String,
}

impl SchemaError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self {
            place: None,
            why: why.into(),
        }
    }

    /// Adds the source and its line, unless the error has a location.
    pub(super) fn with_location(mut self, source: &'static str, line: usize) -> Self {
        self.place.get_or_insert((source, line));
        self
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((source, line)) = self.place {
            write!(f, "{source}.types:{line}: ")?;
        }
        f.write_str(&self.why)
    }
}

impl std::error::Error for SchemaError {}

/// A token of a type expression: a word, a number or a sign; `**` is `^`, `//` is `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeToken<'t> {
    Name(&'t str),
    Number(u64),
    Quoted(&'t str),
    Sign(char),
}

/// A tokenizer of a type expression or a line of a type table, and the text that is left of it.
#[derive(Clone, Debug)]
pub(super) struct TypeTokenizer<'t> {
    remaining_text: &'t str,
}

impl<'t> TypeTokenizer<'t> {
    /// Creates a tokenizer for one line of a type table; a comment from `#` on is ignored.
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            remaining_text: text.split('#').next().unwrap_or_default(),
        }
    }

    /// Returns the next token without consuming it.
    pub(super) fn peek_token(&self) -> Result<Option<TypeToken<'t>>, SchemaError> {
        self.clone().next_token()
    }

    /// Reads the next token; `None` at the end of the line.
    pub(super) fn next_token(&mut self) -> Result<Option<TypeToken<'t>>, SchemaError> {
        let rest = self.remaining_text.trim_start();
        let Some(first) = rest.chars().next() else {
            self.remaining_text = rest;
            return Ok(None);
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = match first {
            '*' if rest.starts_with("**") => Some(2),
            '/' if rest.starts_with("//") => Some(2),
            '"' => rest[1..].find('"').map(|len| len + 2),
            c if is_word(c) => Some(rest.find(|c| !is_word(c)).unwrap_or(rest.len())),
            '[' | ']' | '(' | ')' | '{' | '}' | ',' | ':' | '*' | '+' | '=' | '-' => Some(1),
            _ => None,
        };
        let Some(len) = len else {
            return Err(SchemaError::new(format!("unexpected {first:?}")));
        };
        let (token, rest) = rest.split_at(len);
        self.remaining_text = rest;
        Ok(Some(match first {
            '"' => TypeToken::Quoted(&token[1..len - 1]),
            '0'..='9' => TypeToken::Number(
                token
                    .replace('_', "")
                    .parse()
                    .map_err(|_| SchemaError::new(format!("{token} is not a number of 64 bits")))?,
            ),
            c if is_word(c) => TypeToken::Name(token),
            _ if token == "**" => TypeToken::Sign('^'),
            _ if token == "//" => TypeToken::Sign('/'),
            c => TypeToken::Sign(c),
        }))
    }

    /// Consumes the sign if it is the next token. Returns whether it was.
    pub(super) fn accept_punctuation(&mut self, sign: char) -> Result<bool, SchemaError> {
        let is_next = self.peek_token()? == Some(TypeToken::Sign(sign));
        if is_next {
            self.next_token()?;
        }
        Ok(is_next)
    }

    /// Advances past `sign`; any other token is an error.
    pub(super) fn expect_punctuation(&mut self, sign: char) -> Result<(), SchemaError> {
        match self.accept_punctuation(sign)? {
            true => Ok(()),
            false => Err(self.unexpected_token_error(&format!("{sign:?}"))),
        }
    }

    /// Reads a name; any other token is an error, and is not consumed.
    pub(super) fn expect_name(&mut self) -> Result<&'t str, SchemaError> {
        match self.peek_token()? {
            Some(TypeToken::Name(name)) => {
                self.next_token()?;
                Ok(name)
            }
            _ => Err(self.unexpected_token_error("a name")),
        }
    }

    /// Returns an error if a token follows.
    pub(super) fn expect_end(&self) -> Result<(), SchemaError> {
        match self.peek_token()? {
            None => Ok(()),
            Some(_) => Err(self.unexpected_token_error("the end")),
        }
    }

    pub(super) fn unexpected_token_error(&self, wanted: &str) -> SchemaError {
        SchemaError::new(match self.remaining_text.trim() {
            "" => format!("expected {wanted} at the end"),
            rest => format!("expected {wanted} before {rest:?}"),
        })
    }

    pub(super) fn remaining_text(&self) -> &'t str {
        self.remaining_text.trim()
    }
}
