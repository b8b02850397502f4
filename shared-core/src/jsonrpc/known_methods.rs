//! Names of the methods that nodes, rollups and development chains have: the cached ones of the
//! [method table](super::methods), and the ones that are not cached, with the reason.
//!
//! The names serve warnings about misspelt names in a configuration, and the documentation. A name
//! that is missing here is as good as any other everywhere else.

use super::methods::{self, MethodClass};
use super::stateful_methods;
use super::uncached_methods::UNCACHED_METHODS;

pub use super::uncached_methods::UncachedDependency;

/// Whether a node is known to have a method of exactly this name.
pub fn is_known_method(name: &str) -> bool {
    methods::method_table_index(name.as_bytes()).is_some() || uncached_dependency(name).is_some()
}

/// Returns the dependency for which the responses of a method are not cached; `None` for cached
/// methods and for unknown ones.
pub fn uncached_dependency(name: &str) -> Option<UncachedDependency> {
    let mut groups = UNCACHED_METHODS.iter();
    let group = groups.find(|(_, names)| names.binary_search(&name).is_ok());
    group.map(|(dependency, _)| *dependency)
}

/// Returns the names of all methods that are not cached, in no particular order.
pub fn uncached_method_names() -> impl Iterator<Item = &'static str> {
    let groups = UNCACHED_METHODS.iter();
    groups.flat_map(|(_, names)| names.iter().copied())
}

/// Returns all known names, each one once, in no particular order.
pub fn known_method_names() -> impl Iterator<Item = &'static str> {
    let rows = methods::all_method_table_rows().iter();
    let cached = rows.filter(|row| row.class != MethodClass::Never);
    cached.map(|row| row.name).chain(uncached_method_names())
}

/// Whether a known name has this text before its first underscore.
pub fn is_known_namespace(namespace: &str) -> bool {
    let has_name = known_method_names().any(|name| name.split('_').next() == Some(namespace));
    has_name || stateful_methods::STATEFUL_NAMESPACES.contains(&namespace)
}

#[cfg(test)]
mod tests {
    use super::{
        is_known_method, is_known_namespace, known_method_names, methods, stateful_methods,
        uncached_dependency, uncached_method_names, MethodClass, UncachedDependency,
        UNCACHED_METHODS,
    };

    #[test]
    fn uncached_names_are_sorted_and_in_one_group() {
        let groups = UNCACHED_METHODS.iter().zip(UncachedDependency::ALL);
        for ((dependency, names), expected) in groups {
            assert_eq!(*dependency, expected);
            assert!(names.is_sorted_by(|a, b| a < b), "{dependency:?}");
            for name in *names {
                assert_eq!(uncached_dependency(name), Some(expected), "{name}");
                assert!(name.contains('_') && name.is_ascii(), "{name}");
            }
        }
    }

    #[test]
    fn method_is_cached_or_has_an_uncached_dependency_but_not_both() {
        for row in methods::all_method_table_rows() {
            let is_uncached = row.class == MethodClass::Never;
            assert_eq!(
                uncached_dependency(row.name).is_some(),
                is_uncached,
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn stateful_names_are_not_described_as_names_that_only_read() {
        let reads = [UncachedDependency::Blocks, UncachedDependency::OtherChain];
        for name in uncached_method_names() {
            let dependency = uncached_dependency(name).unwrap();
            let is_stateful = stateful_methods::is_stateful_method(name.as_bytes());
            assert!(!is_stateful || !reads.contains(&dependency), "{name}");
            assert!(
                is_stateful || dependency != UncachedDependency::Effect,
                "{name} changes something, and an operator may cache it"
            );
        }
    }

    #[test]
    fn every_listed_name_and_its_namespace_are_known() {
        for name in known_method_names() {
            assert!(is_known_method(name), "{name}");
            assert!(
                is_known_namespace(name.split('_').next().unwrap()),
                "{name}"
            );
        }
        for name in ["", "eth", "eth_", "eth_Call", "eth_callx"] {
            assert!(!is_known_method(name), "{name}");
        }
        assert!(
            is_known_namespace("vault") && !is_known_namespace("") && !is_known_namespace("et")
        );
    }
}
