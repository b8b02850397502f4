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

    pub(super) fn at(mut self, source: &'static str, line: usize) -> Self {
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
pub(super) enum Token<'t> {
    Name(&'t str),
    Number(u64),
    Quoted(&'t str),
    Sign(char),
}

/// A reader of the tokens that are left of a line.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'t> {
    rest: &'t str,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            rest: text.split('#').next().unwrap_or_default(),
        }
    }

    /// Returns the next token without consuming it.
    pub(super) fn peek(&self) -> Result<Option<Token<'t>>, SchemaError> {
        self.clone().next()
    }

    pub(super) fn next(&mut self) -> Result<Option<Token<'t>>, SchemaError> {
        let rest = self.rest.trim_start();
        let Some(first) = rest.chars().next() else {
            self.rest = rest;
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
        self.rest = rest;
        Ok(Some(match first {
            '"' => Token::Quoted(&token[1..len - 1]),
            '0'..='9' => Token::Number(
                token
                    .replace('_', "")
                    .parse()
                    .map_err(|_| SchemaError::new(format!("{token} is not a number of 64 bits")))?,
            ),
            c if is_word(c) => Token::Name(token),
            _ if token == "**" => Token::Sign('^'),
            _ if token == "//" => Token::Sign('/'),
            c => Token::Sign(c),
        }))
    }

    /// Consumes the sign if it is the next token. Returns whether it was.
    pub(super) fn accept(&mut self, sign: char) -> Result<bool, SchemaError> {
        let is_next = self.peek()? == Some(Token::Sign(sign));
        if is_next {
            self.next()?;
        }
        Ok(is_next)
    }

    pub(super) fn expect(&mut self, sign: char) -> Result<(), SchemaError> {
        match self.accept(sign)? {
            true => Ok(()),
            false => Err(self.unexpected(&format!("{sign:?}"))),
        }
    }

    pub(super) fn name(&mut self) -> Result<&'t str, SchemaError> {
        match self.peek()? {
            Some(Token::Name(name)) => {
                self.next()?;
                Ok(name)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    pub(super) fn end(&self) -> Result<(), SchemaError> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end")),
        }
    }

    pub(super) fn unexpected(&self, wanted: &str) -> SchemaError {
        SchemaError::new(match self.rest.trim() {
            "" => format!("expected {wanted} at the end"),
            rest => format!("expected {wanted} before {rest:?}"),
        })
    }

    pub(super) fn rest(&self) -> &'t str {
        self.rest.trim()
    }
}
