//! What tells answers to the same call apart: where it was asked, by whom,
//! and what else the node makes its answers depend on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::jsonrpc::key::Keys;

/// Fields that say who asks.
pub const CREDENTIALS: &[&str] = &["authorization", "cookie"];

/// How many places may have answers that vary. Beyond it all is learnt anew.
const MOST_PLACES: usize = 4096;

/// How many fields a place's answers may vary on.
const MOST_NAMES: usize = 16;

/// The fields of a request head, kept for as long as its answer may turn out
/// to depend on them.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    /// Ends of name and value of each.
    ends: Vec<(usize, usize)>,
}

impl Fields {
    /// Makes room for so many usual ones.
    pub fn make_room(&mut self, fields: usize) {
        // refused: it will be found out later
        let _ = self.ends.try_reserve(fields);
        let _ = self.bytes.try_reserve(fields * 48);
    }

    /// Adds a field.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((name_end, self.bytes.len()));
    }

    /// All of them: name, value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(name_end, value_end)| {
            let field = (
                &self.bytes[start..name_end],
                &self.bytes[name_end..value_end],
            );
            start = value_end;
            field
        })
    }

    /// The values of the fields of that name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}

/// An injective encoding of all of it: each part with its length before it.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    bytes: Vec<u8>,
    /// The namespace ends here.
    namespace: usize,
    /// Where what answers vary on starts; the place is before it.
    place: usize,
    names: Option<Names>,
}

impl Scope {
    /// An empty one, with room for a usual place.
    pub fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(128),
            ..Self::default()
        }
    }

    /// Adds a part of the place.
    pub fn push(&mut self, part: &[u8]) {
        self.bytes
            .extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(part);
        self.place = self.bytes.len();
    }

    /// What was pushed up to now is the namespace.
    pub fn end_namespace(&mut self) {
        self.namespace = self.bytes.len();
    }

    /// The encoding of the namespace.
    pub fn namespace(&self) -> &[u8] {
        &self.bytes[..self.namespace]
    }

    /// Adds the values of the named fields to the place.
    pub fn push_fields(&mut self, fields: &Fields, names: &[&str]) {
        for name in names {
            self.push_values(fields, name);
        }
        self.place = self.bytes.len();
    }

    /// Sets what answers vary on here.
    pub fn vary(&mut self, fields: &Fields, names: Option<Names>) {
        self.bytes.truncate(self.place);
        for name in names.iter().flat_map(|names| names.iter()) {
            self.push_members(fields, name);
        }
        self.names = names;
    }

    /// The field as one line, without the white space around commas (RFC 9111,
    /// 4.1).
    fn push_members(&mut self, fields: &Fields, name: &str) {
        let mut line = Vec::new();
        let mut present = false;
        for value in fields.values(name) {
            for member in value.split(|byte| *byte == b',') {
                if present {
                    line.push(b',');
                }
                present = true;
                line.extend_from_slice(member.trim_ascii());
            }
        }
        self.bytes.push(u8::from(present));
        self.bytes
            .extend_from_slice(&(line.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(&line);
    }

    fn push_values(&mut self, fields: &Fields, name: &str) {
        let count = fields.values(name).count() as u64;
        self.bytes.extend_from_slice(&count.to_le_bytes());
        for value in fields.values(name) {
            self.bytes
                .extend_from_slice(&(value.len() as u64).to_le_bytes());
            self.bytes.extend_from_slice(value);
        }
    }

    /// The encoding.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What keys of calls in this scope are made with.
    pub fn keys(&self) -> Keys {
        Keys::of(&self.bytes)
    }

    fn place(&self) -> &[u8] {
        &self.bytes[..self.place]
    }

    fn covers(&self, name: &str) -> bool {
        self.names
            .iter()
            .flat_map(|names| names.iter())
            .any(|known| known == name)
    }
}

/// Names of fields, in lower case.
type Names = Arc<[String]>;

/// What answers turned out to depend on, for each place where they do.
#[derive(Debug, Default)]
pub struct Varying(Mutex<HashMap<Box<[u8]>, Names>>);

impl Varying {
    /// The fields, in lower case, that answers of this place depend on.
    pub fn names(&self, scope: &Scope) -> Option<Names> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(scope.place())
            .cloned()
    }

    /// An answer depends on `names` (in lower case). `Some(true)`: so the
    /// scope says already. `Some(false)`: it is known from now on, and the
    /// scope is to be set again. `None`: it can't be kept.
    pub fn learn(&self, scope: &Scope, names: &[String]) -> Option<bool> {
        if names.iter().all(|name| scope.covers(name)) {
            return Some(true);
        }
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST_PLACES && !places.contains_key(scope.place()) {
            // clients choose names of places
            places.clear();
        }
        let known = places
            .entry(scope.place().into())
            .or_insert_with(|| Arc::new([]));
        let mut all: Vec<String> = known.iter().chain(names).cloned().collect();
        all.sort_unstable();
        all.dedup();
        if all.len() > MOST_NAMES {
            return None;
        }
        *known = all.into();
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, Scope, Varying};

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    fn scope(parts: &[&str]) -> Scope {
        let mut scope = Scope::default();
        for part in parts {
            scope.push(part.as_bytes());
        }
        scope
    }

    #[test]
    fn parts_that_are_put_together_otherwise_are_another_scope() {
        assert_ne!(scope(&["ab", "c"]).bytes(), scope(&["a", "bc"]).bytes());
        assert_ne!(scope(&["a", ""]).bytes(), scope(&["a"]).bytes());
    }

    #[test]
    fn what_was_learnt_tells_requests_of_that_place_apart() {
        let varying = Varying::default();
        let place = scope(&["here"]);
        assert_eq!(varying.names(&place), None);
        assert_eq!(varying.learn(&place, &["origin".into()]), Some(false));
        let of = |origin| {
            let mut scope = place.clone();
            scope.vary(&fields(&[("Origin", origin)]), varying.names(&place));
            scope
        };
        assert_ne!(of("https://a").bytes(), of("https://b").bytes());
        assert_eq!(of("https://a").bytes(), of("https://a").bytes());
        assert_eq!(varying.learn(&of("x"), &["origin".into()]), Some(true));
        assert_eq!(varying.names(&scope(&["there"])), None);
    }

    #[test]
    fn a_field_that_is_absent_is_not_one_that_is_empty() {
        let names: super::Names = ["origin".to_string()].into();
        let (mut absent, mut empty) = (scope(&["here"]), scope(&["here"]));
        absent.vary(&fields(&[]), Some(names.clone()));
        empty.vary(&fields(&[("Origin", "")]), Some(names));
        assert_ne!(absent.bytes(), empty.bytes());
    }
}
