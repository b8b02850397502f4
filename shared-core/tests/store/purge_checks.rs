//! Purge checks, compared with a model that records all purges.

use sszip_core::hash_keys::HashMap;
use std::collections::BTreeMap;

use proptest::prelude::*;
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::store::{PurgeRecords, PurgeRow, MAX_RANGES, MAX_RECORDS};
use sszip_core::cache::{CacheKey, CacheNamespace};

use super::support::key;

/// The properties of an entry that purge checks compare.
#[derive(Clone, Debug)]
struct StoredEntry {
    key: CacheKey,
    about: StoredEntryAttributes,
}

impl StoredEntry {
    fn matches(&self, scope: &PurgeScope) -> bool {
        let about = &self.about;
        match scope {
            PurgeScope::Everything => true,
            PurgeScope::Namespace(namespace) => about.namespace == *namespace,
            PurgeScope::Method { namespace, method } => {
                namespace.is_none_or(|namespace| namespace == about.namespace)
                    && about.method.as_ref() == Some(method)
            }
            PurgeScope::Blocks {
                namespace,
                from,
                to,
            } => {
                about.namespace == *namespace
                    && from <= to
                    && about
                        .block
                        .is_none_or(|block| *from <= block && block <= *to)
            }
            PurgeScope::Key(key) => self.key == *key,
        }
    }
}

/// Returns whether the model refuses the entry: it compares all purges in turn.
fn refuses(purges: &[(PurgeScope, u64)], entry: &StoredEntry) -> bool {
    purges
        .iter()
        .any(|(scope, generation)| entry.about.generation < *generation && entry.matches(scope))
}

/// The rows on disk after a number of changes.
#[derive(Default)]
struct PurgeRows(BTreeMap<Vec<u8>, u64>);

impl PurgeRows {
    fn from_purges(purges: &PurgeRecords) -> Self {
        Self(purges.encode_purge_rows().into_iter().collect())
    }

    fn apply(&mut self, changes: Vec<PurgeRow>) {
        for (row, generation) in changes {
            match generation {
                Some(generation) => self.0.insert(row, generation),
                None => self.0.remove(&row),
            };
        }
    }

    fn load(&self) -> PurgeRecords {
        PurgeRecords::decode_purge_rows(self.0.iter().map(|(row, at)| (&row[..], *at))).unwrap()
    }
}

fn namespaces() -> impl Strategy<Value = CacheNamespace> {
    (0..3u8).prop_map(|n| [n; 16])
}

fn methods() -> impl Strategy<Value = Box<str>> {
    (0..3u8).prop_map(|n| format!("m{n}").into())
}

fn scopes() -> impl Strategy<Value = PurgeScope> {
    prop_oneof![
        1 => Just(PurgeScope::Everything),
        3 => namespaces().prop_map(PurgeScope::Namespace),
        6 => (proptest::option::of(namespaces()), methods()).prop_map(|(namespace, method)| {
            PurgeScope::Method { namespace, method }
        }),
        12 => (namespaces(), 0..20u64, 0..20u64).prop_map(|(namespace, from, to)| {
            PurgeScope::Blocks { namespace, from, to }
        }),
        6 => (0..8u64).prop_map(|n| PurgeScope::Key(key(n))),
    ]
}

fn entries() -> impl Strategy<Value = StoredEntry> {
    let block = proptest::option::of(0..20u64);
    let method = proptest::option::of(methods());
    (0..8u64, namespaces(), method, block, 90..150u64).prop_map(
        |(n, namespace, method, block, generation)| StoredEntry {
            key: key(n),
            about: StoredEntryAttributes {
                namespace,
                method,
                block,
                generation,
                ..entry(n).about
            },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Few purges are recorded exactly, on disk too.
    #[test]
    fn purge_check_refuses_exactly_the_purged_entries(
        scopes in proptest::collection::vec(scopes(), 0..40),
        entries in proptest::collection::vec(entries(), 1..60),
    ) {
        let mut purges = PurgeRecords::new(100);
        let mut rows = PurgeRows::from_purges(&purges);
        let mut all = vec![(PurgeScope::Everything, 100)];
        for scope in scopes {
            let (generation, changes) = purges.add_purge(&scope);
            prop_assert_eq!(generation, all.last().unwrap().1 + 1);
            rows.apply(changes);
            all.push((scope, generation));
        }
        let loaded = rows.load();
        prop_assert_eq!(&loaded, &purges);
        for entry in &entries {
            let refused = refuses(&all, entry);
            prop_assert_eq!(purges.is_entry_purged(&entry.key, &entry.about), refused, "{:?}", entry);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Purges with generations of their own are recorded exactly in any order.
    #[test]
    fn purges_with_generations_are_recorded_in_any_order(
        scopes in proptest::collection::vec((scopes(), 101..150u64), 0..40),
        entries in proptest::collection::vec(entries(), 1..60),
    ) {
        let mut purges = PurgeRecords::new(100);
        let mut rows = PurgeRows::from_purges(&purges);
        let mut all = vec![(PurgeScope::Everything, 100)];
        for (scope, generation) in scopes {
            rows.apply(purges.add_purge_at(&scope, generation));
            all.push((scope, generation));
        }
        prop_assert_eq!(&rows.load(), &purges);
        let newest = all.iter().map(|(_, generation)| *generation).max();
        prop_assert_eq!(Some(purges.newest_purge_generation()), newest);
        for entry in &entries {
            let refused = refuses(&all, entry);
            prop_assert_eq!(purges.is_entry_purged(&entry.key, &entry.about), refused, "{:?}", entry);
        }
    }
}

/// Checks that for any number of purges no purged entry is accepted, the records are bounded, and
/// the rows equal the records in memory.
fn check_many_purges(
    scopes: impl Iterator<Item = PurgeScope>,
    most: usize,
    entry_of: impl Fn(&PurgeScope) -> StoredEntry,
) {
    let mut purges = PurgeRecords::new(1);
    let mut rows = PurgeRows::from_purges(&purges);
    let mut newest = HashMap::default();
    for scope in scopes {
        let (generation, changes) = purges.add_purge(&scope);
        rows.apply(changes);
        newest.insert(scope, generation);
        assert!(
            purges.purge_record_count() <= most,
            "{} records",
            purges.purge_record_count()
        );
    }
    assert_eq!(rows.0.len(), purges.encode_purge_rows().len());
    assert_eq!(rows.load(), purges);
    for (scope, generation) in &newest {
        let mut entry = entry_of(scope);
        entry.about.generation = generation - 1;
        assert!(entry.matches(scope));
        assert!(
            purges.is_entry_purged(&entry.key, &entry.about),
            "{scope:?}"
        );
        entry.about.generation = purges.newest_purge_generation();
        assert!(
            !purges.is_entry_purged(&entry.key, &entry.about),
            "{scope:?}"
        );
    }
}

fn entry(n: u64) -> StoredEntry {
    StoredEntry {
        key: key(n),
        about: StoredEntryAttributes {
            class: LifetimeClass::Immutable,
            namespace: [0; 16],
            method: None,
            block: None,
            generation: 0,
            epoch: 0,
            height: None,
        },
    }
}

fn entry_with(namespace: CacheNamespace, method: Option<&str>, block: Option<u64>) -> StoredEntry {
    let mut entry = entry(1);
    entry.about.namespace = namespace;
    entry.about.method = method.map(Into::into);
    entry.about.block = block;
    entry
}

fn wide(n: u64) -> CacheNamespace {
    (u128::from(n) << 64).to_be_bytes()
}

#[test]
fn many_key_purges_are_bounded_and_in_effect() {
    let scopes = (0..20_000).map(|n| PurgeScope::Key(key(n)));
    check_many_purges(scopes, MAX_RECORDS, |scope| match scope {
        PurgeScope::Key(key) => StoredEntry {
            key: *key,
            ..entry(0)
        },
        _ => unreachable!(),
    });
}

/// Other entries stay accepted, until the records are merged into a purge of everything.
#[test]
fn key_purges_become_a_purge_of_everything_beyond_the_maximum() {
    let mut purges = PurgeRecords::new(1);
    let mut other = entry(u64::MAX);
    other.about.generation = 1;
    for n in 0..MAX_RECORDS as u64 {
        assert!(!purges.is_entry_purged(&other.key, &other.about), "{n}");
        purges.add_purge(&PurgeScope::Key(key(n)));
    }
    assert!(purges.is_entry_purged(&other.key, &other.about));
    assert_eq!(purges.purge_record_count(), 1);
}

#[test]
fn many_range_purges_are_bounded_and_in_effect() {
    let scopes = (0..6000u64).map(|n| {
        let from = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        PurgeScope::Blocks {
            namespace: wide(n % 3),
            from,
            to: from + n % 50,
        }
    });
    check_many_purges(scopes, 3 * (MAX_RANGES + 1) + 1, |scope| match scope {
        PurgeScope::Blocks {
            namespace, from, ..
        } => entry_with(*namespace, None, Some(*from)),
        _ => unreachable!(),
    });
}

#[test]
fn many_method_purges_are_bounded_and_in_effect() {
    let scopes = (0..20_000).map(|n| PurgeScope::Method {
        namespace: (n % 3 > 0).then(|| wide(n % 3)),
        method: format!("m{n}").into(),
    });
    check_many_purges(scopes, MAX_RECORDS, |scope| match scope {
        PurgeScope::Method { namespace, method } => {
            entry_with(namespace.unwrap_or([9; 16]), Some(method), None)
        }
        _ => unreachable!(),
    });
}

#[test]
fn many_namespace_purges_are_bounded_and_in_effect() {
    let scopes = (0..MAX_RECORDS as u64 + 300).map(|n| match n % 3 {
        0 => PurgeScope::Namespace(wide(n)),
        1 => PurgeScope::Method {
            namespace: Some(wide(n)),
            method: "m".into(),
        },
        _ => PurgeScope::Blocks {
            namespace: wide(n),
            from: 0,
            to: n,
        },
    });
    check_many_purges(scopes, MAX_RECORDS, |scope| match scope {
        PurgeScope::Namespace(namespace)
        | PurgeScope::Method {
            namespace: Some(namespace),
            ..
        }
        | PurgeScope::Blocks { namespace, .. } => entry_with(*namespace, Some("m"), Some(0)),
        _ => unreachable!(),
    });
}

#[test]
fn invalid_purge_rows_are_refused() {
    for row in [
        &b""[..],
        b"\xff\xff",
        b"\0\0",
        b"\x01123",
        b"\x02\0",
        b"\x02\x01123",
        b"\x03",
        b"\x04key",
        b"\x05",
    ] {
        assert!(
            PurgeRecords::decode_purge_rows([(row, 1)]).is_none(),
            "{row:?}"
        );
    }
}
