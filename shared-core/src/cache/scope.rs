//! What tells answers to the same call apart: where it was asked, by whom,
//! and what else the node makes its answers depend on.

use std::sync::Arc;

use super::Namespace;
use crate::jsonrpc::key::Keys;

/// Fields that tell answers apart often, and say nothing of who asks.
const OF_ANYBODY: [&str; 4] = ["accept", "accept-encoding", "accept-language", "origin"];

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

    /// Makes it the only field of that name.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        let mut fields = Fields::default();
        for (other, value) in self.iter() {
            if !other.eq_ignore_ascii_case(name) {
                fields.push(other, value);
            }
        }
        fields.push(name, value);
        *self = fields;
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
    pub(super) names: Option<Names>,
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
        self.push_part(part);
        self.place = self.bytes.len();
    }

    fn push_part(&mut self, part: &[u8]) {
        self.bytes
            .extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(part);
    }

    /// What was pushed up to now is the namespace.
    pub fn end_namespace(&mut self) {
        self.namespace = self.bytes.len();
    }

    /// The names of the fields that it varies on.
    pub fn names(&self) -> Option<&Names> {
        self.names.as_ref()
    }

    /// The encoding of the namespace.
    pub fn namespace(&self) -> &[u8] {
        &self.bytes[..self.namespace]
    }

    /// Adds the named fields to the place, as a hash of their names and values: what
    /// remembers calls has scopes for longer than their requests last, and is not to have
    /// credentials.
    pub fn push_hashed<'a>(&mut self, fields: &Fields, names: impl Iterator<Item = &'a str>) {
        let mut all = Self::default();
        for name in names {
            all.push_part(name.as_bytes());
            all.push_values(fields, name);
        }
        self.push(blake3::hash(&all.bytes).as_bytes());
    }

    /// Sets what answers vary on here. Which fields these are is a part of it:
    /// processes that share a store, and one that was started anew, may have
    /// learnt different ones.
    pub fn vary(&mut self, fields: &Fields, names: Option<Names>) {
        self.bytes.truncate(self.place);
        for name in names.iter().flat_map(|names| names.split(BETWEEN)) {
            self.push_part(name.as_bytes());
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
        match OF_ANYBODY.contains(&name) {
            true => self.push_part(&line),
            // as of credentials, which it may be
            false => self.push_part(blake3::hash(&line).as_bytes()),
        }
    }

    fn push_values(&mut self, fields: &Fields, name: &str) {
        let count = fields.values(name).count() as u64;
        self.bytes.extend_from_slice(&count.to_le_bytes());
        for value in fields.values(name) {
            self.push_part(value);
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

    /// The encoding of the place.
    pub(super) fn place(&self) -> &[u8] {
        &self.bytes[..self.place]
    }

    /// Whether that is among what answers vary on here.
    pub(super) fn covers(&self, name: &str) -> bool {
        self.names
            .iter()
            .flat_map(|names| names.split(BETWEEN))
            .any(|known| known == name)
    }
}

/// What a namespace is known by that an operator has named.
pub fn named(namespace: &[u8]) -> Namespace {
    let mut scope = Scope::default();
    scope.push(namespace);
    name_of(&scope.bytes)
}

/// What others know a namespace by, or a place, of its encoding.
pub fn name_of(encoding: &[u8]) -> Namespace {
    let mut name = Namespace::default();
    name.copy_from_slice(&blake3::hash(encoding).as_bytes()[..16]);
    name
}

/// Names of fields, in lower case and in order.
pub type Names = Arc<str>;

/// What stands between them: no name of a field has it.
pub(super) const BETWEEN: char = '\n';

#[cfg(test)]
pub(super) mod tests {
    use super::{Fields, Scope};

    pub(in crate::cache) fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    pub(in crate::cache) fn scope(parts: &[&str]) -> Scope {
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
    fn who_asks_is_told_apart_and_not_kept() {
        let of = |lines: &[(&str, &str)], names: &[&str]| {
            let mut scope = scope(&["here"]);
            scope.push_hashed(&fields(lines), names.iter().copied());
            scope.bytes().to_vec()
        };
        let both = ["authorization", "x-api-key"];
        let all = [
            of(&[], &[]),
            of(&[], &both[..1]),
            of(&[], &both[1..]),
            of(&[], &both),
            of(&[("Authorization", "secret")], &both),
            of(&[("Authorization", "other")], &both),
            of(&[("Authorization", "secret")], &both[..1]),
            of(&[("X-Api-Key", "secret")], &both[1..]),
            of(&[("X-Api-Key", "secret")], &both),
            of(&[("X-Api-Key", "")], &both),
            of(&[("X-Api-Key", "secret"), ("X-Api-Key", "")], &both),
            of(
                &[("X-Api-Key", "secret"), ("Authorization", "secret")],
                &both,
            ),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(!all[..n].contains(one), "{n}");
            assert!(!one.windows(6).any(|part| part == b"secret"), "{n}");
        }
        let again = of(&[("x-api-KEY", "secret"), ("Accept", "a")], &both);
        assert_eq!(again, all[8]);
    }

    #[test]
    fn what_answers_vary_on_may_be_credentials() {
        let mut varied = scope(&["here"]);
        varied.vary(&fields(&[("X-Token", "secret")]), Some("x-token".into()));
        let mut other = scope(&["here"]);
        other.vary(&fields(&[("X-Token", "secrets")]), Some("x-token".into()));
        assert_ne!(varied.bytes(), other.bytes());
        let mut parts = varied.bytes().windows(6);
        assert!(!parts.any(|part| part == b"secret"));
    }

    #[test]
    fn a_field_that_is_absent_is_not_one_that_is_empty() {
        let names: super::Names = "origin".into();
        let (mut absent, mut empty) = (scope(&["here"]), scope(&["here"]));
        absent.vary(&fields(&[]), Some(names.clone()));
        empty.vary(&fields(&[("Origin", "")]), Some(names));
        assert_ne!(absent.bytes(), empty.bytes());
    }
}
