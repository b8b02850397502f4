//! Purge records, which decide whether an entry was purged without reading the store.
//!
//! Purges are numbered, and an entry has the number ("generation") of the newest purge when its
//! request was sent to the node. A purge covers the entries in its scope with a lower generation.
//! So no entry has to be found and deleted, a response that is in flight during a purge is refused
//! too, and later responses are stored as usual.
//!
//! There is a record for each scope, of its newest purge, and a limit of their number: one more
//! record purges everything, and too many block ranges in a namespace purge the namespace. That
//! costs requests to the node, and never leads to a wrong response.

use std::collections::{btree_map, BTreeMap};

use crate::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use crate::cache::resource::other_format_key;
use crate::cache::{CacheKey, CacheNamespace};

/// Maximum number of records.
pub const MAX_RECORDS: usize = 16_384;
/// Maximum number of block ranges in a namespace; each entry is compared with all of them.
pub const MAX_RANGES: usize = 1_024;

/// A change of a row to be stored for [`PurgeRecords::decode_purge_rows`]: a scope in postcard's
/// format, and its generation; `None` removes the row.
pub type PurgeRow = (Vec<u8>, Option<u64>);

/// The purges that are in effect, by scope, with the generation of the newest purge of each scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRecords {
    newest: u64,
    records: BTreeMap<PurgeScope, u64>,
}

impl PurgeRecords {
    /// Creates the records of a store without purges, with `generation` for the requests that are
    /// sent now: an entry with a lower generation belongs to a former store, and is refused.
    pub fn new(generation: u64) -> Self {
        Self {
            newest: generation,
            records: BTreeMap::from([(PurgeScope::Everything, generation)]),
        }
    }

    /// Returns the generation of a request that is sent to the node now.
    pub fn newest_purge_generation(&self) -> u64 {
        self.newest
    }

    /// Whether a recorded purge covers an entry: it is in the purge's scope and has a lower
    /// generation.
    pub fn is_entry_purged(&self, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        if about.generation >= self.newest {
            return false;
        }
        let of_method = |namespace| {
            let method = about.method.clone()?;
            Some(PurgeScope::Method { namespace, method })
        };
        let scopes = [
            Some(PurgeScope::Everything),
            Some(PurgeScope::Namespace(about.namespace)),
            of_method(None),
            of_method(Some(about.namespace)),
            Some(PurgeScope::Key(*key)),
            Some(PurgeScope::Key(other_format_key(key))),
        ];
        let named = scopes.iter().flatten();
        let named = named.filter_map(|scope| self.records.get(scope));
        let ranges = self.purged_block_ranges(about.namespace);
        let ranges = ranges.filter(|(range, _)| range.covers_entry(key, about));
        let mut purges = named.chain(ranges.map(|(_, purge)| purge));
        purges.any(|purge| about.generation < *purge)
    }

    /// Returns the recorded purges of block ranges in a namespace, in the order of their first
    /// blocks.
    fn purged_block_ranges(
        &self,
        namespace: CacheNamespace,
    ) -> btree_map::Range<'_, PurgeScope, u64> {
        let only = |block| PurgeScope::Blocks {
            namespace,
            from: block,
            to: block,
        };
        self.records.range(only(0)..=only(u64::MAX))
    }

    /// Records a purge of `scope` under a new generation. Returns its generation, and the changes
    /// of the rows for [`decode_purge_rows`](Self::decode_purge_rows). An empty range purges nothing.
    pub fn add_purge(&mut self, scope: &PurgeScope) -> (u64, Vec<PurgeRow>) {
        let generation = self.newest + 1;
        let changes = self.add_purge_at(scope, generation);
        (generation, changes)
    }

    /// Records a purge of `scope` under a generation that is not assigned here, and may be older
    /// than other records. Returns the changes of the rows, as [`add_purge`](Self::add_purge) does.
    pub fn add_purge_at(&mut self, scope: &PurgeScope, generation: u64) -> Vec<PurgeRow> {
        self.newest = self.newest.max(generation);
        let mut changes = vec![(NEWEST_ROW.to_vec(), Some(self.newest))];
        if !matches!(scope, PurgeScope::Blocks { from, to, .. } if from > to) {
            self.record_purge_scope(scope.clone(), generation, &mut changes);
        }
        if let PurgeScope::Blocks { namespace, .. } = *scope {
            if self.purged_block_ranges(namespace).count() > MAX_RANGES {
                let all = PurgeScope::Namespace(namespace);
                self.record_purge_scope(all, self.newest, &mut changes);
            }
        }
        if self.records.len() > MAX_RECORDS {
            self.record_purge_scope(PurgeScope::Everything, self.newest, &mut changes);
        }
        changes
    }

    /// Records a purge, and removes the records that it covers. A newer record of a scope stays.
    fn record_purge_scope(
        &mut self,
        scope: PurgeScope,
        generation: u64,
        changes: &mut Vec<PurgeRow>,
    ) {
        if self
            .records
            .get(&scope)
            .is_some_and(|newer| *newer > generation)
        {
            return;
        }
        if !matches!(scope, PurgeScope::Method { .. } | PurgeScope::Key(_)) {
            self.records.retain(|old, at| {
                let stays = *at > generation || !is_scope_covered_by(old, &scope);
                if !stays {
                    changes.push((purge_scope_row(old), None));
                }
                stays
            });
        }
        changes.push((purge_scope_row(&scope), Some(generation)));
        self.records.insert(scope, generation);
    }

    /// Number of recorded purge scopes, including everything, which always has a record.
    pub fn purge_record_count(&self) -> usize {
        self.records.len()
    }

    /// Returns all rows for [`decode_purge_rows`](Self::decode_purge_rows).
    pub fn encode_purge_rows(&self) -> Vec<(Vec<u8>, u64)> {
        let records = self.records.iter();
        let rows = records.map(|(scope, generation)| (purge_scope_row(scope), *generation));
        rows.chain([(NEWEST_ROW.to_vec(), self.newest)]).collect()
    }

    /// Loads the records from their rows, in any order. Returns `None` if a row is invalid.
    pub fn decode_purge_rows<'a>(rows: impl IntoIterator<Item = (&'a [u8], u64)>) -> Option<Self> {
        let mut purges = Self::new(0);
        for (row, generation) in rows {
            if row == NEWEST_ROW {
                purges.newest = generation;
                continue;
            }
            match postcard::take_from_bytes(row) {
                Ok((scope, [])) => purges.records.insert(scope, generation),
                _ => return None,
            };
        }
        Some(purges)
    }
}

/// Whether a purge of `all` covers a purge of `part`.
fn is_scope_covered_by(part: &PurgeScope, all: &PurgeScope) -> bool {
    match (all, part) {
        (PurgeScope::Everything, _) => true,
        (
            PurgeScope::Namespace(all),
            PurgeScope::Namespace(namespace)
            | PurgeScope::Blocks { namespace, .. }
            | PurgeScope::Method {
                namespace: Some(namespace),
                ..
            },
        ) => all == namespace,
        (
            PurgeScope::Blocks {
                namespace,
                from,
                to,
            },
            PurgeScope::Blocks {
                namespace: other,
                from: first,
                to: last,
            },
        ) => namespace == other && from <= first && last <= to,
        _ => false,
    }
}

/// Row key of the newest generation, which is no serialized scope.
const NEWEST_ROW: &[u8] = &[0xff];

/// Returns the key of the row that records a purge of this scope.
fn purge_scope_row(scope: &PurgeScope) -> Vec<u8> {
    // hashes, numbers and strings can always be serialized
    postcard::to_allocvec(scope).unwrap_or_default()
}
