//! The vary table: the request headers on which the responses of each route depend.

use crate::hash_keys::HashMap;

use super::per_loop::PerEventLoopTable;
use crate::cache::vary_key::{truncated_blake3, VaryHeaderNames, VaryKey, NAME_SEPARATOR};

/// Maximum number of routes in the table. Beyond it each new route replaces the least recently used
/// one. With [`MAX_NAMES_LENGTH`] for each of them the table takes 1.7 MB.
const MAX_ROUTES: usize = 4096;

/// Maximum length of a route's header names in bytes, in total.
const MAX_NAMES_LENGTH: usize = 256;

/// A hash of the route part of a [`VaryKey`]: clients choose the names of routes and their length.
type RouteHash = [u8; 16];

/// The action of a fill after its response's `Vary` was recorded for the route of a vary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VaryTableUpdateOutcome {
    /// The vary key covers the header names already.
    Covered,
    /// The vary key has to be made again, with these names.
    New(VaryHeaderNames),
    /// There are too many names: the response can't be stored.
    TooMany,
}

/// The names of the request headers on which the responses of each route depend, recorded from
/// their `Vary`. The table saves a second lookup and decides nothing else: a response whose names
/// are forgotten here, or were recorded by another process, is not found, and is never sent in
/// place of another one.
///
/// Each lookup reads the table and few change it: with several event loops each has a copy.
#[derive(Debug, Default)]
pub struct VaryTable(PerEventLoopTable<RouteVaryTable>);

/// The header names of the routes that one event loop has looked up, in a table of fixed size.
/// Clients choose the names of routes, so that many routes that are looked up once must not replace
/// a route in use: the least recently used one is replaced.
#[derive(Debug, Default)]
struct RouteVaryTable {
    places: HashMap<RouteHash, RouteVaryHeaders>,
    /// Number of lookups and insertions.
    uses: u64,
}

/// The header names of one route, and the time of their last use.
#[derive(Debug)]
struct RouteVaryHeaders {
    names: VaryHeaderNames,
    /// Number of the last use.
    used: u64,
}

impl RouteVaryTable {
    fn get(&self, place: &RouteHash) -> Option<&VaryHeaderNames> {
        self.places.get(place).map(|known| &known.names)
    }

    /// Returns the names for a route, and marks them as the most recently used.
    fn get_and_touch(&mut self, place: &RouteHash) -> Option<&VaryHeaderNames> {
        let known = self.places.get_mut(place)?;
        self.uses += 1;
        known.used = self.uses;
        Some(&known.names)
    }

    /// Inserts the names of a route, unless memory is refused.
    fn insert(&mut self, place: RouteHash, names: VaryHeaderNames) {
        if self.places.len() >= MAX_ROUTES && !self.places.contains_key(&place) {
            // takes some microseconds, which is little compared with a response of the node
            let oldest = self.places.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(place, _)| *place) {
                self.places.remove(&oldest);
            }
        }
        if self.places.try_reserve(1).is_ok() {
            self.uses += 1;
            let used = self.uses;
            self.places.insert(place, RouteVaryHeaders { names, used });
        }
    }
}

impl VaryTable {
    /// Creates a table for each of `event_loops` event loops, instead of one that all share. Only
    /// the first call has an effect.
    pub fn create_loop_tables(&self, event_loops: usize) {
        self.0.create_loop_tables(event_loops);
    }

    /// Returns the names of the headers on which responses of the vary key's route depend, or
    /// `None` if none are recorded.
    pub fn recorded_vary_names(&self, scope: &VaryKey) -> Option<VaryHeaderNames> {
        let mut table = self.0.lock_own_loop_table();
        if table.places.is_empty() {
            return None;
        }
        table
            .get_and_touch(&truncated_blake3(scope.route_key_bytes()))
            .cloned()
    }

    /// Records that a response depends on the headers `names` (in lower case).
    pub fn record_vary_names(&self, scope: &VaryKey, names: &[String]) -> VaryTableUpdateOutcome {
        if names.iter().all(|name| scope.covers_header(name)) {
            return VaryTableUpdateOutcome::Covered;
        }
        let place = truncated_blake3(scope.route_key_bytes());
        // the names of the vary key are included: they may be forgotten here
        let had = scope
            .vary_header_names
            .iter()
            .flat_map(|names| names.split(NAME_SEPARATOR));
        let recorded: Vec<&str> = had.chain(names.iter().map(|name| &**name)).collect();
        let known = self.0.lock_own_loop_table().get(&place).cloned();
        let all = merge_header_names(known.as_deref(), &recorded);
        if all.len() > MAX_NAMES_LENGTH {
            return VaryTableUpdateOutcome::TooMany;
        }
        self.0.for_each_loop_table(|places| {
            // other threads may have recorded more names meanwhile
            let known = places.get(&place).map(|known| &**known);
            let mut names = merge_header_names(known, &recorded);
            if names.len() > MAX_NAMES_LENGTH {
                names.clone_from(&all);
            }
            places.insert(place, names.into());
        });
        VaryTableUpdateOutcome::New(all.into())
    }
}

/// Returns all names, each once and in order.
fn merge_header_names(known: Option<&str>, recorded: &[&str]) -> String {
    let known = known.unwrap_or("").split(NAME_SEPARATOR);
    let known = known.filter(|name| !name.is_empty());
    let mut all: Vec<&str> = known.chain(recorded.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all.join(&*NAME_SEPARATOR.to_string())
}

#[cfg(test)]
mod tests {
    use super::{VaryTable, VaryTableUpdateOutcome, MAX_NAMES_LENGTH, MAX_ROUTES};
    use crate::cache::vary_key::tests::{fields, scope};

    #[test]
    fn recorded_headers_distinguish_requests_of_their_route() {
        let varying = VaryTable::default();
        let place = scope(&["here"]);
        assert_eq!(varying.recorded_vary_names(&place), None);
        let recorded = VaryTableUpdateOutcome::New("origin".into());
        assert_eq!(
            varying.record_vary_names(&place, &["origin".into()]),
            recorded
        );
        let of = |origin| {
            let mut scope = place.clone();
            scope.encode_vary_header_values(
                &fields(&[("Origin", origin)]),
                varying.recorded_vary_names(&place),
            );
            scope
        };
        assert_ne!(
            of("https://a").vary_key_bytes(),
            of("https://b").vary_key_bytes()
        );
        assert_eq!(
            of("https://a").vary_key_bytes(),
            of("https://a").vary_key_bytes()
        );
        assert_eq!(
            varying.record_vary_names(&of("x"), &["origin".into()]),
            VaryTableUpdateOutcome::Covered
        );
        assert_eq!(varying.recorded_vary_names(&scope(&["there"])), None);
    }

    /// Two processes with one store recorded different headers of a route, and the response for a
    /// value of one header was sent for the same value of the other header.
    #[test]
    fn vary_keys_with_different_headers_are_different() {
        let request_headers = fields(&[("X-Tenant", "a"), ("X-Lang", "a")]);
        let recorded = |name: &str| {
            let varying = VaryTable::default();
            let mut scope = scope(&["here"]);
            varying.record_vary_names(&scope, &[name.to_string()]);
            scope.encode_vary_header_values(&request_headers, varying.recorded_vary_names(&scope));
            scope
        };
        let (tenant, lang) = (recorded("x-tenant"), recorded("x-lang"));
        assert_ne!(tenant.vary_key_bytes(), lang.vary_key_bytes());
        assert_ne!(tenant.vary_key_bytes(), scope(&["here"]).vary_key_bytes());
        assert_ne!(
            tenant.vary_key_bytes(),
            recorded("x-absent").vary_key_bytes()
        );
    }

    #[test]
    fn header_names_of_the_vary_key_are_recorded_again_when_forgotten() {
        let mut place = scope(&["here"]);
        place.encode_vary_header_values(&fields(&[]), Some("x-tenant".into()));
        let recorded = VaryTable::default().record_vary_names(&place, &["x-lang".into()]);
        assert_eq!(
            recorded,
            VaryTableUpdateOutcome::New("x-lang\nx-tenant".into())
        );
    }

    #[test]
    fn header_names_recorded_by_one_event_loop_are_known_to_all() {
        let varying = VaryTable::default();
        varying.create_loop_tables(3);
        let place = scope(&["here"]);
        let learn = |name: &str| varying.record_vary_names(&place, &[name.into()]);
        std::thread::scope(|scope| {
            for name in ["x-tenant", "x-lang", "origin"] {
                scope.spawn(move || learn(name));
            }
        });
        std::thread::scope(|scope| {
            for _ in 0..6 {
                let names = || varying.recorded_vary_names(&place);
                scope.spawn(move || {
                    let all = "origin\nx-lang\nx-tenant";
                    assert_eq!(names().as_deref(), Some(all));
                });
            }
        });
    }

    #[test]
    fn routes_beyond_the_limit_replace_one_route_each() {
        let varying = VaryTable::default();
        let long = "x".repeat(8000);
        let place = |number: usize| scope(&[&long, &number.to_string()]);
        for number in 0..MAX_ROUTES + 10 {
            varying.record_vary_names(&place(number), &["origin".into()]);
        }
        let known = (0..MAX_ROUTES + 10)
            .filter(|number| varying.recorded_vary_names(&place(*number)).is_some())
            .count();
        assert_eq!(known, MAX_ROUTES);
    }

    #[test]
    fn routes_in_use_are_not_replaced_by_routes_that_are_used_once() {
        let varying = VaryTable::default();
        let place = |name: &str, number: usize| scope(&[name, &number.to_string()]);
        for number in 0..100 {
            varying.record_vary_names(&place("own", number), &["origin".into()]);
        }
        for number in 0..3 * MAX_ROUTES {
            varying.record_vary_names(&place("other", number), &["origin".into()]);
            varying.recorded_vary_names(&place("other", number));
            varying.recorded_vary_names(&place("own", number % 100));
        }
        let is_known = |number: usize| varying.recorded_vary_names(&place("own", number)).is_some();
        assert!((0..100).all(is_known));
    }

    #[test]
    fn header_names_are_recorded_up_to_the_maximum_length() {
        let learn = |length: usize| {
            let names = ["a".to_owned(), "x".repeat(length - 2)];
            VaryTable::default().record_vary_names(&scope(&["here"]), &names)
        };
        let longest = format!("a\n{}", "x".repeat(MAX_NAMES_LENGTH - 2));
        let recorded = VaryTableUpdateOutcome::New(longest.into());
        assert_eq!(learn(MAX_NAMES_LENGTH), recorded);
        assert_eq!(learn(MAX_NAMES_LENGTH + 1), VaryTableUpdateOutcome::TooMany);
    }
}
