//! The vary table: the request headers on which the responses of each route depend.

use std::collections::HashMap;

use super::own::Own;
use crate::cache::scope::{name_of, Names, Scope, BETWEEN};

/// Maximum number of routes in the table. Beyond it each new route replaces the least recently used
/// one. With [`MOST_NAMES`] for each of them the table takes 1.7 MB.
const MOST_PLACES: usize = 4096;

/// Maximum length of a route's header names in bytes, in total.
const MOST_NAMES: usize = 256;

/// A hash of the route part of a [`Scope`]: clients choose the names of routes and their length.
type PlaceHash = [u8; 16];

/// The effect of a response's `Vary` on a vary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// The vary key covers the header names already.
    Covered,
    /// The vary key has to be made again, with these names.
    New(Names),
    /// There are too many names: the response can't be stored.
    TooMany,
}

/// The header names of each route whose responses vary. The table saves a second lookup and decides
/// nothing else: a response whose names are forgotten here, or were recorded by another process, is
/// not found, and is never sent in place of another one.
///
/// Each lookup reads the table and few change it: with several event loops each has a copy.
#[derive(Debug, Default)]
pub struct Varying(Own<Places>);

/// A table of fixed size. Clients choose the names of routes, so that many routes that are looked
/// up once must not replace a route in use: the least recently used one is replaced.
#[derive(Debug, Default)]
struct Places {
    places: HashMap<PlaceHash, Known>,
    /// Number of lookups and insertions.
    uses: u64,
}

#[derive(Debug)]
struct Known {
    names: Names,
    /// Number of the last use.
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

    /// Inserts the names of a route, unless memory is refused.
    fn insert(&mut self, place: PlaceHash, names: Names) {
        if self.places.len() >= MOST_PLACES && !self.places.contains_key(&place) {
            // takes some microseconds, which is little compared with a response of the node
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
    /// Creates the tables of `event_loops` event loops. Only the first call has an effect.
    pub fn spread(&self, event_loops: usize) {
        self.0.spread(event_loops);
    }

    /// Returns the header names on which responses of the vary key's route depend.
    pub fn names(&self, scope: &Scope) -> Option<Names> {
        let mut table = self.0.lock();
        if table.places.is_empty() {
            return None;
        }
        table.used(&name_of(scope.place())).cloned()
    }

    /// Records that a response depends on the headers `names` (in lower case).
    pub fn learn(&self, scope: &Scope, names: &[String]) -> Learnt {
        if names.iter().all(|name| scope.covers(name)) {
            return Learnt::Covered;
        }
        let place = name_of(scope.place());
        // the names of the vary key are included: they may be forgotten here
        let had = scope.names.iter().flat_map(|names| names.split(BETWEEN));
        let learnt: Vec<&str> = had.chain(names.iter().map(|name| &**name)).collect();
        let known = self.0.lock().get(&place).cloned();
        let all = with(known.as_deref(), &learnt);
        if all.len() > MOST_NAMES {
            return Learnt::TooMany;
        }
        self.0.each(|places| {
            // other threads may have recorded more names meanwhile
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

/// Returns all names, each once and in order.
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
    fn recorded_headers_distinguish_requests_of_their_route() {
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

    /// Two processes with one store recorded different headers of a route, and the response for a
    /// value of one header was sent for the same value of the other header.
    #[test]
    fn vary_keys_with_different_headers_are_different() {
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
    fn header_names_of_the_vary_key_are_recorded_again_when_forgotten() {
        let mut place = scope(&["here"]);
        place.vary(&fields(&[]), Some("x-tenant".into()));
        let learnt = Varying::default().learn(&place, &["x-lang".into()]);
        assert_eq!(learnt, Learnt::New("x-lang\nx-tenant".into()));
    }

    #[test]
    fn header_names_recorded_by_one_event_loop_are_known_to_all() {
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
    fn routes_beyond_the_limit_replace_one_route_each() {
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
    fn routes_in_use_are_not_replaced_by_routes_that_are_used_once() {
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
    fn too_many_header_names_are_rejected() {
        let names: Vec<String> = (0..100).map(|number| format!("x-{number}")).collect();
        let learnt = Varying::default().learn(&scope(&["here"]), &names);
        assert_eq!(learnt, Learnt::TooMany);
    }

    #[test]
    fn header_names_are_recorded_up_to_the_maximum_length() {
        let learn = |length| Varying::default().learn(&scope(&["here"]), &["x".repeat(length)]);
        let longest = Learnt::New("x".repeat(MOST_NAMES).into());
        assert_eq!(learn(MOST_NAMES), longest);
        assert_eq!(learn(MOST_NAMES + 1), Learnt::TooMany);
    }
}
