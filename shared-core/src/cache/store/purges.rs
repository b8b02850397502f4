//! Which entries were purged: a judge that needs no look at what is stored.
//!
//! Purges are numbered, and an entry carries the number ("generation") that was
//! the newest when its request was sent to the node. A purge refuses what
//! matches its scope and is older than itself. So nothing has to be found and
//! deleted, an answer that was on its way during a purge is refused too, and
//! what is asked for afterwards is stored as usual.
//!
//! There is a record for each scope, of its newest purge, and a bound on their
//! number: one more purges everything, and of too many ranges of blocks in a
//! namespace, all of that. It costs look-ups at the node, never a wrong answer.

use std::collections::{btree_map, BTreeMap};

use crate::cache::entry::about::{About, Scope};
use crate::cache::resource::other_form;
use crate::cache::{Key, Namespace};

/// Records, of whatever.
pub const MAX_RECORDS: usize = 16_384;
/// Ranges of blocks in a namespace: an entry is held against each of them.
pub const MAX_RANGES: usize = 1_024;

/// The name of a row that is to be kept for [`Purges::load`], a scope in
/// postcard's format, and what it says; `None` takes it out.
pub type Change = (Vec<u8>, Option<u64>);

/// The purges so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purges {
    newest: u64,
    records: BTreeMap<Scope, u64>,
}

impl Purges {
    /// None so far, and `generation` for those who ask now: what carries an
    /// older one comes from a store that was here before, and is refused.
    pub fn new(generation: u64) -> Self {
        Self {
            newest: generation,
            records: BTreeMap::from([(Scope::Everything, generation)]),
        }
    }

    /// What a request that is sent to the node now has to carry.
    pub fn generation(&self) -> u64 {
        self.newest
    }

    /// Whether an entry was purged.
    pub fn refuses(&self, key: &Key, about: &About) -> bool {
        if about.generation >= self.newest {
            return false;
        }
        let of_method = |namespace| {
            let method = about.method.clone()?;
            Some(Scope::Method { namespace, method })
        };
        let scopes = [
            Some(Scope::Everything),
            Some(Scope::Namespace(about.namespace)),
            of_method(None),
            of_method(Some(about.namespace)),
            Some(Scope::Key(*key)),
            Some(Scope::Key(other_form(key))),
        ];
        let named = scopes.iter().flatten();
        let named = named.filter_map(|scope| self.records.get(scope));
        let ranges = self.ranges(about.namespace);
        let ranges = ranges.filter(|(range, _)| range.covers(key, about));
        let mut purges = named.chain(ranges.map(|(_, purge)| purge));
        purges.any(|purge| about.generation < *purge)
    }

    /// The ranges of blocks that were purged of a namespace.
    fn ranges(&self, namespace: Namespace) -> btree_map::Range<'_, Scope, u64> {
        let only = |block| Scope::Blocks {
            namespace,
            from: block,
            to: block,
        };
        self.records.range(only(0)..=only(u64::MAX))
    }

    /// A new purge. Gives its generation, and what has to be written so that
    /// [`load`](Self::load) knows of it. An empty range is a purge of nothing.
    pub fn add(&mut self, scope: &Scope) -> (u64, Vec<Change>) {
        self.newest += 1;
        let mut changes = vec![(NEWEST.to_vec(), Some(self.newest))];
        if !matches!(scope, Scope::Blocks { from, to, .. } if from > to) {
            self.note(scope.clone(), &mut changes);
        }
        if let Scope::Blocks { namespace, .. } = *scope {
            if self.ranges(namespace).count() > MAX_RANGES {
                self.note(Scope::Namespace(namespace), &mut changes);
            }
        }
        if self.records.len() > MAX_RECORDS {
            self.note(Scope::Everything, &mut changes);
        }
        (self.newest, changes)
    }

    /// A purge, in place of those that it makes superfluous.
    fn note(&mut self, scope: Scope, changes: &mut Vec<Change>) {
        if !matches!(scope, Scope::Method { .. } | Scope::Key(_)) {
            self.records.retain(|old, _| {
                let stays = !is_part(old, &scope);
                if !stays {
                    changes.push((row(old), None));
                }
                stays
            });
        }
        changes.push((row(&scope), Some(self.newest)));
        self.records.insert(scope, self.newest);
    }

    /// How many records there are, that of everything among them.
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// All rows, as they are to be given to [`load`](Self::load).
    pub fn rows(&self) -> Vec<(Vec<u8>, u64)> {
        let records = self.records.iter();
        let rows = records.map(|(scope, generation)| (row(scope), *generation));
        rows.chain([(NEWEST.to_vec(), self.newest)]).collect()
    }

    /// The judge that left these rows, in any order; `None`: no purge can have left
    /// one of them.
    pub fn load<'a>(rows: impl IntoIterator<Item = (&'a [u8], u64)>) -> Option<Self> {
        let mut purges = Self::new(0);
        for (row, generation) in rows {
            if row == NEWEST {
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

/// Whether a purge of `all` leaves nothing to one of `part`.
fn is_part(part: &Scope, all: &Scope) -> bool {
    match (all, part) {
        (Scope::Everything, _) => true,
        (
            Scope::Namespace(all),
            Scope::Namespace(namespace)
            | Scope::Blocks { namespace, .. }
            | Scope::Method {
                namespace: Some(namespace),
                ..
            },
        ) => all == namespace,
        (
            Scope::Blocks {
                namespace,
                from,
                to,
            },
            Scope::Blocks {
                namespace: other,
                from: first,
                to: last,
            },
        ) => namespace == other && from <= first && last <= to,
        _ => false,
    }
}

/// The row that says the newest generation: no scope has that name.
const NEWEST: &[u8] = &[0xff];

fn row(scope: &Scope) -> Vec<u8> {
    // hashes, numbers and words always can be
    postcard::to_allocvec(scope).unwrap_or_default()
}
