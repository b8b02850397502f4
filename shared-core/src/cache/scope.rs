//! What tells answers to the same call apart: where it was asked, by whom,
//! and what else the node makes its answers depend on.

use std::collections::HashMap;
use std::sync::Arc;

use super::own::Own;
use crate::jsonrpc::key::Keys;

/// Fields that say who asks.
pub const CREDENTIALS: &[&str] = &["authorization", "cookie"];

/// How many places may have answers that vary. Beyond it one is learnt anew for
/// each that comes. With [`MOST_NAMES`] of them each the table takes 1.5 MB.
const MOST_PLACES: usize = 4096;

/// How long the names of the fields that a place's answers vary on may be,
/// together.
const MOST_NAMES: usize = 256;

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

    /// Sets what answers vary on here. Which fields these are is a part of it:
    /// processes that share a store, and one that was started anew, may have
    /// learnt different ones.
    pub fn vary(&mut self, fields: &Fields, names: Option<Names>) {
        self.bytes.truncate(self.place);
        for name in names.iter().flat_map(|names| names.split(BETWEEN)) {
            self.bytes
                .extend_from_slice(&(name.len() as u64).to_le_bytes());
            self.bytes.extend_from_slice(name.as_bytes());
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
            .flat_map(|names| names.split(BETWEEN))
            .any(|known| known == name)
    }
}

/// Names of fields, in lower case and in order.
type Names = Arc<str>;

/// What stands between them: no name of a field has it.
const BETWEEN: char = '\n';

/// A hash of a [`Scope`]'s place: clients choose names of places, and their
/// length.
type PlaceHash = [u8; 16];

/// What an answer's `Vary` means to a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// The scope has it already.
    Covered,
    /// The scope is to be set again, with these names.
    New(Names),
    /// There are too many: the answer can't be kept.
    TooMany,
}

/// What answers turned out to depend on, for each place where they do. It saves
/// a second look-up, and no more: what is forgotten here, or was learnt by
/// another process, is not found, and never found in place of another.
///
/// It is read at each look-up, and learns little: with several event loops each
/// has a copy.
#[derive(Debug, Default)]
pub struct Varying(Own<HashMap<PlaceHash, Names>>);

impl Varying {
    /// There are so many event loops. A second call changes nothing.
    pub fn spread(&self, event_loops: usize) {
        self.0.spread(event_loops);
    }

    /// The fields that answers of this place depend on.
    pub fn names(&self, scope: &Scope) -> Option<Names> {
        let places = self.0.lock();
        if places.is_empty() {
            return None;
        }
        places.get(&hash_of(scope.place())).cloned()
    }

    /// An answer depends on `names` (in lower case).
    pub fn learn(&self, scope: &Scope, names: &[String]) -> Learnt {
        if names.iter().all(|name| scope.covers(name)) {
            return Learnt::Covered;
        }
        let place = hash_of(scope.place());
        // what the scope has too: it may be forgotten here
        let had = scope.names.iter().flat_map(|names| names.split(BETWEEN));
        let learnt: Vec<&str> = had.chain(names.iter().map(|name| &**name)).collect();
        let known = self.0.lock().get(&place).cloned();
        let all = with(known.as_deref(), &learnt);
        if all.len() > MOST_NAMES {
            return Learnt::TooMany;
        }
        self.0.each(|places| {
            // others may have learnt more meanwhile
            let known = places.get(&place).map(|known| &**known);
            let mut names = with(known, &learnt);
            if names.len() > MOST_NAMES {
                names.clone_from(&all);
            }
            if places.len() >= MOST_PLACES && !places.contains_key(&place) {
                let other = places.keys().next().copied();
                other.and_then(|other| places.remove(&other));
            }
            if places.try_reserve(1).is_ok() {
                places.insert(place, names.into());
            }
        });
        Learnt::New(all.into())
    }
}

/// All these names, each once and in order.
fn with(known: Option<&str>, learnt: &[&str]) -> String {
    let known = known.unwrap_or("").split(BETWEEN);
    let known = known.filter(|name| !name.is_empty());
    let mut all: Vec<&str> = known.chain(learnt.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all.join(&*BETWEEN.to_string())
}

fn hash_of(place: &[u8]) -> PlaceHash {
    let mut hash = PlaceHash::default();
    hash.copy_from_slice(&blake3::hash(place).as_bytes()[..16]);
    hash
}

#[cfg(test)]
mod tests {
    use super::{Fields, Learnt, Scope, Varying, MOST_PLACES};

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
        let learnt = Learnt::New("origin".into());
        assert_eq!(varying.learn(&place, &["origin".into()]), learnt);
        let of = |origin| {
            let mut scope = place.clone();
            scope.vary(&fields(&[("Origin", origin)]), varying.names(&place));
            scope
        };
        assert_ne!(of("https://a").bytes(), of("https://b").bytes());
        assert_eq!(of("https://a").bytes(), of("https://a").bytes());
        assert_eq!(varying.learn(&of("x"), &["origin".into()]), Learnt::Covered);
        assert_eq!(varying.names(&scope(&["there"])), None);
    }

    /// Two processes with one store had learnt different fields of a place, and
    /// one's answer for a value was the other's for the same value of another
    /// field.
    #[test]
    fn what_was_learnt_elsewhere_is_another_scope() {
        let asked = fields(&[("X-Tenant", "a"), ("X-Lang", "a")]);
        let learnt = |name: &str| {
            let varying = Varying::default();
            let mut scope = scope(&["here"]);
            varying.learn(&scope, &[name.to_string()]);
            scope.vary(&asked, varying.names(&scope));
            scope
        };
        let (tenant, lang) = (learnt("x-tenant"), learnt("x-lang"));
        assert_ne!(tenant.bytes(), lang.bytes());
        assert_ne!(tenant.bytes(), scope(&["here"]).bytes());
        assert_ne!(tenant.bytes(), learnt("x-absent").bytes());
    }

    #[test]
    fn what_a_scope_has_is_not_lost_where_it_was_forgotten() {
        let mut place = scope(&["here"]);
        place.vary(&fields(&[]), Some("x-tenant".into()));
        let learnt = Varying::default().learn(&place, &["x-lang".into()]);
        assert_eq!(learnt, Learnt::New("x-lang\nx-tenant".into()));
    }

    #[test]
    fn what_one_event_loop_learns_all_know() {
        let varying = Varying::default();
        varying.spread(3);
        let place = scope(&["here"]);
        let learn = |name: &str| varying.learn(&place, &[name.into()]);
        std::thread::scope(|scope| {
            for name in ["x-tenant", "x-lang", "origin"] {
                scope.spawn(move || learn(name));
            }
        });
        std::thread::scope(|scope| {
            for _ in 0..6 {
                let names = || varying.names(&place);
                scope.spawn(move || {
                    let all = "origin\nx-lang\nx-tenant";
                    assert_eq!(names().as_deref(), Some(all));
                });
            }
        });
    }

    #[test]
    fn places_leave_the_table_one_by_one() {
        let varying = Varying::default();
        let long = "x".repeat(8000);
        let place = |number: usize| scope(&[&long, &number.to_string()]);
        for number in 0..MOST_PLACES + 10 {
            varying.learn(&place(number), &["origin".into()]);
        }
        let kept = (0..MOST_PLACES + 10)
            .filter(|number| varying.names(&place(*number)).is_some())
            .count();
        assert_eq!(kept, MOST_PLACES);
    }

    #[test]
    fn names_without_end_are_not_kept() {
        let names: Vec<String> = (0..100).map(|number| format!("x-{number}")).collect();
        let learnt = Varying::default().learn(&scope(&["here"]), &names);
        assert_eq!(learnt, Learnt::TooMany);
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
