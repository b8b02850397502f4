//! Patterns of method names: exact names, and prefixes that end in `*`. An exact name has
//! precedence over a prefix, and a longer prefix over a shorter one.

use std::cmp::Ordering;
use std::fmt;

/// A table of values by method name, whose rows are exact names and prefixes.
#[derive(Clone, Debug)]
pub struct MethodPatternTable<T> {
    /// Exact names, sorted without regard to case.
    names: Vec<PatternRow<T>>,
    /// Prefixes, the longest first.
    beginnings: Vec<PatternRow<T>>,
}

/// A row of the table: an exact name or a prefix, and its value.
#[derive(Clone, Debug)]
struct PatternRow<T> {
    /// The name as it was written, without its `*`.
    name: Box<[u8]>,
    value: T,
}

impl<T> Default for MethodPatternTable<T> {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            beginnings: Vec::new(),
        }
    }
}

/// The reason why a pattern of method names was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodPatternError {
    /// The pattern is neither the name of a method nor a prefix of names.
    Name,
    /// The table contains the pattern already.
    Duplicate,
}

impl fmt::Display for MethodPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MethodPatternError::Name => "a method name, or a prefix followed by \"*\"",
            MethodPatternError::Duplicate => {
                "a method or prefix that this block does not configure yet"
            }
        })
    }
}

impl std::error::Error for MethodPatternError {}

impl<T> MethodPatternTable<T> {
    /// Adds a row: a name, or a prefix with `*`, and its value.
    ///
    /// # Errors
    /// Returns [`MethodPatternError`] and leaves the table unchanged.
    pub fn add_method_pattern(
        &mut self,
        pattern: &[u8],
        value: T,
    ) -> Result<(), MethodPatternError> {
        let (name, is_beginning) = match pattern {
            [name @ .., b'*'] => (name, true),
            name => (name, false),
        };
        if name.is_empty() && !is_beginning || !name.iter().all(is_method_name_byte) {
            return Err(MethodPatternError::Name);
        }
        let patterns = match is_beginning {
            true => &mut self.beginnings,
            false => &mut self.names,
        };
        let is_there = |other: &PatternRow<T>| other.name.eq_ignore_ascii_case(name);
        if patterns.iter().any(is_there) {
            return Err(MethodPatternError::Duplicate);
        }
        patterns.push(PatternRow {
            name: name.into(),
            value,
        });
        match is_beginning {
            true => patterns.sort_by_key(|pattern| usize::MAX - pattern.name.len()),
            false => patterns.sort_by(|a, b| compare_ignoring_case(&a.name, &b.name)),
        }
        Ok(())
    }

    /// Returns the value for a method name without escapes. `is_of` is called for each pattern that
    /// matches without regard to case, with its value and whether the case matches, too, and
    /// returns whether the pattern applies.
    pub fn find_value_for_method(
        &self,
        method: &[u8],
        is_of: impl Fn(&T, bool) -> bool,
    ) -> Option<&T> {
        let found = |pattern: &PatternRow<T>| compare_ignoring_case(&pattern.name, method);
        if let Ok(at) = self.names.binary_search_by(found) {
            let pattern = &self.names[at];
            if is_of(&pattern.value, *pattern.name == *method) {
                return Some(&pattern.value);
            }
        }
        let of_beginning = self.beginnings.iter().find(|pattern| {
            let beginning = method.get(..pattern.name.len());
            beginning.is_some_and(|beginning| {
                beginning.eq_ignore_ascii_case(&pattern.name)
                    && is_of(&pattern.value, *beginning == *pattern.name)
            })
        });
        of_beginning.map(|pattern| &pattern.value)
    }
}

/// Whether the byte may occur in a name: it is no white space, needs no escape in JSON, and
/// does not separate the names of a list.
fn is_method_name_byte(byte: &u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b'*')
}

fn compare_ignoring_case(one: &[u8], other: &[u8]) -> Ordering {
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
