//! What answers turned out to depend on besides their targets.

use std::collections::HashMap;

use super::own::Own;
use crate::cache::scope::{name_of, Names, Scope, BETWEEN};

/// How many places may have answers that vary. Beyond it each new place replaces the
/// least recently used one. With [`MOST_NAMES`] of them each the table takes 1.7 MB.
const MOST_PLACES: usize = 4096;

/// How long the names of the fields that a place's answers vary on may be,
/// together.
const MOST_NAMES: usize = 256;

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
pub struct Varying(Own<Places>);

/// A table of fixed size. Clients choose the names of places, so that a place which is in
/// use must not be replaced by many that are looked up once: the least recently used one is.
#[derive(Debug, Default)]
struct Places {
    places: HashMap<PlaceHash, Known>,
    /// Look-ups and insertions so far.
    uses: u64,
}

#[derive(Debug)]
struct Known {
    names: Names,
    /// The last use, by number.
    used: u64,
}

impl Places {
    fn get(&self, place: &PlaceHash) -> Option<&Names> {
        self.places.get(place).map(|known| &known.names)
    }

    fn used(&mut self, place: &PlaceHash) -> Option<&Names> {
        let known = self.places.get_mut(place)?;
        self.uses += 1;
        known.used = self.uses;
        Some(&known.names)
    }

    /// Without memory for it nothing is learnt.
    fn insert(&mut self, place: PlaceHash, names: Names) {
        if self.places.len() >= MOST_PLACES && !self.places.contains_key(&place) {
            // some microseconds, beside an answer of the node
            let oldest = self.places.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(place, _)| *place) {
                self.places.remove(&oldest);
            }
        }
        if self.places.try_reserve(1).is_ok() {
            self.uses += 1;
            let used = self.uses;
            self.places.insert(place, Known { names, used });
        }
    }
}

impl Varying {
    /// There are so many event loops. A second call changes nothing.
    pub fn spread(&self, event_loops: usize) {
        self.0.spread(event_loops);
    }

    /// The fields that answers of this place depend on.
    pub fn names(&self, scope: &Scope) -> Option<Names> {
        let mut table = self.0.lock();
        if table.places.is_empty() {
            return None;
        }
        table.used(&name_of(scope.place())).cloned()
    }

    /// An answer depends on `names` (in lower case).
    pub fn learn(&self, scope: &Scope, names: &[String]) -> Learnt {
        if names.iter().all(|name| scope.covers(name)) {
            return Learnt::Covered;
        }
        let place = name_of(scope.place());
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
            places.insert(place, names.into());
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

#[cfg(test)]
mod tests {
    use super::{Learnt, Varying, MOST_NAMES, MOST_PLACES};
    use crate::cache::scope::tests::{fields, scope};

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
    fn places_in_use_are_not_replaced_by_many_that_are_used_once() {
        let varying = Varying::default();
        let place = |name: &str, number: usize| scope(&[name, &number.to_string()]);
        for number in 0..100 {
            varying.learn(&place("own", number), &["origin".into()]);
        }
        for number in 0..3 * MOST_PLACES {
            varying.learn(&place("other", number), &["origin".into()]);
            varying.names(&place("other", number));
            varying.names(&place("own", number % 100));
        }
        let kept = |number: usize| varying.names(&place("own", number)).is_some();
        assert!((0..100).all(kept));
    }

    #[test]
    fn names_without_end_are_not_kept() {
        let names: Vec<String> = (0..100).map(|number| format!("x-{number}")).collect();
        let learnt = Varying::default().learn(&scope(&["here"]), &names);
        assert_eq!(learnt, Learnt::TooMany);
    }

    #[test]
    fn names_are_learnt_up_to_their_longest_length() {
        let learn = |length| Varying::default().learn(&scope(&["here"]), &["x".repeat(length)]);
        let longest = Learnt::New("x".repeat(MOST_NAMES).into());
        assert_eq!(learn(MOST_NAMES), longest);
        assert_eq!(learn(MOST_NAMES + 1), Learnt::TooMany);
    }
}
