//! What is said of methods: by their names, and by beginnings of names with a `*` after
//! them. A name beats a beginning, and a longer beginning a shorter one.

use std::cmp::Ordering;
use std::fmt;

/// Something of methods.
#[derive(Clone, Debug)]
pub struct Patterns<T> {
    /// In the order of the alphabet, whatever their case.
    names: Vec<Pattern<T>>,
    /// The longest first.
    beginnings: Vec<Pattern<T>>,
}

#[derive(Clone, Debug)]
struct Pattern<T> {
    /// As it was written, without its `*`.
    name: Box<[u8]>,
    says: T,
}

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            beginnings: Vec::new(),
        }
    }
}

/// Why a pattern was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It is no name of a method, nor the beginning of any.
    Name,
    /// There is one for that already.
    Twice,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PatternError::Name => "the name of a method, or the beginning of names with a \"*\"",
            PatternError::Twice => "a method, or a beginning, that no other rule here has",
        })
    }
}

impl std::error::Error for PatternError {}

impl<T> Patterns<T> {
    /// One more.
    ///
    /// # Errors
    /// [`PatternError`]; nothing is changed then.
    pub fn add(&mut self, pattern: &[u8], says: T) -> Result<(), PatternError> {
        let (name, is_beginning) = match pattern {
            [name @ .., b'*'] => (name, true),
            name => (name, false),
        };
        if name.is_empty() && !is_beginning || !name.iter().all(is_of_name) {
            return Err(PatternError::Name);
        }
        let patterns = match is_beginning {
            true => &mut self.beginnings,
            false => &mut self.names,
        };
        let is_there = |other: &Pattern<T>| other.name.eq_ignore_ascii_case(name);
        if patterns.iter().any(is_there) {
            return Err(PatternError::Twice);
        }
        patterns.push(Pattern {
            name: name.into(),
            says,
        });
        match is_beginning {
            true => patterns.sort_by_key(|pattern| usize::MAX - pattern.name.len()),
            false => patterns.sort_by(|a, b| in_any_case(&a.name, &b.name)),
        }
        Ok(())
    }

    /// What is said of a method of that name, without escapes. `is_of` is asked of each
    /// that is it in any case of its letters, and told whether it is to the letter.
    pub fn find(&self, method: &[u8], is_of: impl Fn(&T, bool) -> bool) -> Option<&T> {
        let found = |pattern: &Pattern<T>| in_any_case(&pattern.name, method);
        if let Ok(at) = self.names.binary_search_by(found) {
            let pattern = &self.names[at];
            if is_of(&pattern.says, *pattern.name == *method) {
                return Some(&pattern.says);
            }
        }
        let of_beginning = self.beginnings.iter().find(|pattern| {
            let beginning = method.get(..pattern.name.len());
            beginning.is_some_and(|beginning| {
                beginning.eq_ignore_ascii_case(&pattern.name)
                    && is_of(&pattern.says, *beginning == *pattern.name)
            })
        });
        of_beginning.map(|pattern| &pattern.says)
    }
}

/// What is neither a blank nor to be escaped in JSON, nor would be taken for two names in
/// a list.
fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b'*')
}

fn in_any_case(one: &[u8], other: &[u8]) -> Ordering {
    let lower = |name: &[u8], at: usize| name.get(at).map(u8::to_ascii_lowercase);
    let mut at = 0;
    loop {
        match (lower(one, at), lower(other, at)) {
            (None, None) => return Ordering::Equal,
            (a, b) if a != b => return a.cmp(&b),
            _ => at += 1,
        }
    }
}
