//! Which entries were purged: a judge that needs no look at what is stored.
//!
//! Purges are numbered, and an entry carries the number ("generation") that was
//! the newest when its request was sent to the node. A purge refuses what
//! matches its scope and is older than itself. So nothing has to be found and
//! deleted, an answer that was on its way during a purge is refused too, and
//! what is asked for afterwards is stored as usual.
//!
//! There is a record for each scope, of its newest purge, and a bound on their
//! number: beyond it records are folded into one that refuses what they do, and
//! some more. That costs look-ups at the node, never a wrong answer.
//!
//! | too many                | become                                          |
//! |-------------------------|-------------------------------------------------|
//! | keys                    | a purge of everything                           |
//! | ranges in a namespace   | the two nearest become one                      |
//! | methods of a namespace  | a purge of the namespace                        |
//! | methods of all of them  | a purge of everything                           |
//! | namespaces              | a purge of everything                           |

use std::collections::HashMap;

use crate::cache::entry::about::{About, Scope};
use crate::cache::{Key, Namespace};

/// Key purges.
pub const MAX_KEYS: usize = 16_384;
/// Ranges of blocks in a namespace.
pub const MAX_RANGES: usize = 64;
/// Methods of a namespace.
pub const MAX_METHODS: usize = 64;
/// Namespaces that anything was purged of.
pub const MAX_NAMESPACES: usize = 256;

/// A row to be kept for [`Purges::load`], or to be taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The name of the row.
    pub row: Vec<u8>,
    /// What it says; `None` takes it out.
    pub generation: Option<u64>,
}

/// A row that no purge can have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    from: u64,
    to: u64,
    generation: u64,
}

/// The purges so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purges {
    newest: u64,
    everything: u64,
    namespaces: HashMap<Namespace, u64>,
    methods: HashMap<Option<Namespace>, HashMap<Box<str>, u64>>,
    /// Sorted by their beginnings.
    ranges: HashMap<Namespace, Vec<Range>>,
    keys: HashMap<Key, u64>,
}

impl Purges {
    /// None so far, and `generation` for those who ask now: what carries an
    /// older one comes from a store that was here before, and is refused.
    pub fn new(generation: u64) -> Self {
        Self {
            newest: generation,
            everything: generation,
            namespaces: HashMap::new(),
            methods: HashMap::new(),
            ranges: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    /// What a request that is sent to the node now has to carry.
    pub fn generation(&self) -> u64 {
        self.newest
    }

    /// Whether an entry was purged.
    pub fn refuses(&self, key: &Key, about: &About) -> bool {
        let older = |purge: Option<&u64>| purge.is_some_and(|purge| about.generation < *purge);
        if about.generation >= self.newest {
            return false;
        }
        let method_of = |namespace: &Option<Namespace>| {
            let methods = self.methods.get(namespace)?;
            methods.get(about.method.as_ref()?)
        };
        about.generation < self.everything
            || older(self.namespaces.get(&about.namespace))
            || older(method_of(&Some(about.namespace)))
            || older(method_of(&None))
            || {
                let ranges = self.ranges.get(&about.namespace);
                let mut ranges = ranges.into_iter().flatten();
                ranges.any(|range| {
                    // what names no block may be about any
                    let covers = |block| (range.from..=range.to).contains(&block);
                    about.block.is_none_or(covers) && about.generation < range.generation
                })
            }
            || older(self.keys.get(key))
    }

    /// A new purge. Gives its generation, and what has to be written so that
    /// [`load`](Self::load) knows of it. An empty range is a purge of nothing.
    pub fn add(&mut self, scope: &Scope) -> (u64, Vec<Change>) {
        self.newest += 1;
        let generation = self.newest;
        let mut changes = vec![put(NEWEST.to_vec(), generation)];
        self.note(scope, generation, &mut changes);
        self.fold(&mut changes);
        (generation, changes)
    }

    fn note(&mut self, scope: &Scope, generation: u64, changes: &mut Vec<Change>) {
        match scope {
            Scope::Everything => {
                changes.extend(self.rows().into_iter().map(|(row, _)| remove(row)));
                *self = Self::new(self.newest);
                changes.push(put(NEWEST.to_vec(), generation));
            }
            Scope::Namespace(namespace) => {
                self.forget_within(namespace, changes);
                self.namespaces.insert(*namespace, generation);
            }
            Scope::Method { namespace, method } => {
                let methods = self.methods.entry(*namespace).or_default();
                methods.insert(method.clone(), generation);
            }
            Scope::Blocks {
                namespace,
                from,
                to,
            } => {
                if from > to {
                    return;
                }
                let ranges = self.ranges.entry(*namespace).or_default();
                ranges.retain(|old| {
                    let covered = from <= &old.from && &old.to <= to;
                    if covered {
                        changes.push(remove(range_row(namespace, old.from, old.to)));
                    }
                    !covered
                });
                let place = ranges.partition_point(|range| range.from < *from);
                ranges.insert(
                    place,
                    Range {
                        from: *from,
                        to: *to,
                        generation,
                    },
                );
            }
            Scope::Key(key) => {
                self.keys.insert(*key, generation);
            }
        }
        changes.push(put(row(scope), generation));
    }

    /// What a purge of the namespace makes superfluous.
    fn forget_within(&mut self, namespace: &Namespace, changes: &mut Vec<Change>) {
        for range in self.ranges.remove(namespace).unwrap_or_default() {
            changes.push(remove(range_row(namespace, range.from, range.to)));
        }
        let methods = self.methods.remove(&Some(*namespace)).unwrap_or_default();
        for method in methods.into_keys() {
            changes.push(remove(method_row(&Some(*namespace), &method)));
        }
    }

    fn fold(&mut self, changes: &mut Vec<Change>) {
        self.fold_ranges(changes);
        let newest_of = |methods: &HashMap<_, u64>| methods.values().copied().max();
        let crowded: Vec<_> = self
            .methods
            .iter()
            .filter(|(_, methods)| methods.len() > MAX_METHODS)
            .filter_map(|(namespace, methods)| Some((*namespace, newest_of(methods)?)))
            .collect();
        for (namespace, generation) in crowded {
            match namespace {
                Some(namespace) => {
                    let generation =
                        generation.max(self.namespaces.get(&namespace).copied().unwrap_or(0));
                    self.fold_namespace(namespace, generation, changes);
                }
                None => self.note(&Scope::Everything, self.newest, changes),
            }
        }
        let within = self.methods.keys().flatten().chain(self.ranges.keys());
        if self.namespaces.len() > MAX_NAMESPACES
            || within.count() > MAX_NAMESPACES
            || self.keys.len() > MAX_KEYS
        {
            self.note(&Scope::Everything, self.newest, changes);
        }
    }

    /// A purge of the namespace in place of purges in it, which are all as old
    /// as it, or older. Ranges may be newer than the methods, so that they
    /// count too.
    fn fold_namespace(&mut self, namespace: Namespace, generation: u64, changes: &mut Vec<Change>) {
        let ranges = self.ranges.get(&namespace).into_iter().flatten();
        let newest = ranges.map(|range| range.generation).max().unwrap_or(0);
        self.note(
            &Scope::Namespace(namespace),
            generation.max(newest),
            changes,
        );
    }

    /// Two neighbours with the least between them, until there are few enough.
    fn fold_ranges(&mut self, changes: &mut Vec<Change>) {
        for (namespace, ranges) in &mut self.ranges {
            while ranges.len() > MAX_RANGES {
                let gap = |at: &usize| ranges[at + 1].from.saturating_sub(ranges[*at].to);
                let Some(at) = (0..ranges.len() - 1).min_by_key(gap) else {
                    break;
                };
                let (left, right) = (ranges[at], ranges.remove(at + 1));
                let joined = Range {
                    from: left.from,
                    to: left.to.max(right.to),
                    generation: left.generation.max(right.generation),
                };
                ranges[at] = joined;
                for old in [left, right] {
                    changes.push(remove(range_row(namespace, old.from, old.to)));
                }
                let row = range_row(namespace, joined.from, joined.to);
                changes.push(put(row, joined.generation));
            }
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.namespaces.len()
            + self.methods.values().map(HashMap::len).sum::<usize>()
            + self.ranges.values().map(Vec::len).sum::<usize>()
            + self.keys.len()
    }

    /// Whether nothing was purged, or everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows, as they are to be given to [`load`](Self::load).
    pub fn rows(&self) -> Vec<(Vec<u8>, u64)> {
        let mut rows = vec![
            (NEWEST.to_vec(), self.newest),
            (row(&Scope::Everything), self.everything),
        ];
        let namespaces = self.namespaces.iter();
        rows.extend(namespaces.map(|(name, at)| (row(&Scope::Namespace(*name)), *at)));
        for (namespace, methods) in &self.methods {
            let methods = methods.iter();
            rows.extend(methods.map(|(method, at)| (method_row(namespace, method), *at)));
        }
        for (namespace, ranges) in &self.ranges {
            let ranges = ranges.iter();
            rows.extend(
                ranges.map(|range| (range_row(namespace, range.from, range.to), range.generation)),
            );
        }
        rows.extend(
            self.keys
                .iter()
                .map(|(key, at)| (row(&Scope::Key(*key)), *at)),
        );
        rows
    }

    /// The judge that left these rows, in any order.
    pub fn load<'a>(rows: impl IntoIterator<Item = (&'a [u8], u64)>) -> Result<Self, UnknownRow> {
        let mut purges = Self::new(0);
        for (row, generation) in rows {
            purges.load_row(row, generation).ok_or(UnknownRow)?;
        }
        for ranges in purges.ranges.values_mut() {
            ranges.sort_unstable_by_key(|range| range.from);
        }
        Ok(purges)
    }

    fn load_row(&mut self, row: &[u8], generation: u64) -> Option<()> {
        let (tag, rest) = row.split_first()?;
        match *tag {
            b'n' if rest.is_empty() => self.newest = generation,
            b'e' if rest.is_empty() => self.everything = generation,
            b's' => {
                self.namespaces.insert(rest.try_into().ok()?, generation);
            }
            b'm' => {
                let methods = self.methods.entry(None).or_default();
                methods.insert(std::str::from_utf8(rest).ok()?.into(), generation);
            }
            b'M' => {
                let (namespace, method) = rest.split_first_chunk()?;
                let methods = self.methods.entry(Some(*namespace)).or_default();
                methods.insert(std::str::from_utf8(method).ok()?.into(), generation);
            }
            b'b' => {
                let (namespace, rest) = rest.split_first_chunk()?;
                let (from, to) = rest.split_first_chunk()?;
                self.ranges.entry(*namespace).or_default().push(Range {
                    from: u64::from_be_bytes(*from),
                    to: u64::from_be_bytes(to.try_into().ok()?),
                    generation,
                });
            }
            b'k' => {
                self.keys.insert(rest.try_into().ok()?, generation);
            }
            _ => return None,
        }
        Some(())
    }
}

const NEWEST: &[u8] = b"n";

fn put(row: Vec<u8>, generation: u64) -> Change {
    Change {
        row,
        generation: Some(generation),
    }
}

fn remove(row: Vec<u8>) -> Change {
    Change {
        row,
        generation: None,
    }
}

fn row(scope: &Scope) -> Vec<u8> {
    match scope {
        Scope::Everything => b"e".to_vec(),
        Scope::Namespace(namespace) => [b"s", &namespace[..]].concat(),
        Scope::Method { namespace, method } => method_row(namespace, method),
        Scope::Blocks {
            namespace,
            from,
            to,
        } => range_row(namespace, *from, *to),
        Scope::Key(key) => [b"k", &key[..]].concat(),
    }
}

fn method_row(namespace: &Option<Namespace>, method: &str) -> Vec<u8> {
    match namespace {
        Some(namespace) => [b"M", &namespace[..], method.as_bytes()].concat(),
        None => [b"m", method.as_bytes()].concat(),
    }
}

fn range_row(namespace: &Namespace, from: u64, to: u64) -> Vec<u8> {
    [
        b"b",
        &namespace[..],
        &from.to_be_bytes()[..],
        &to.to_be_bytes()[..],
    ]
    .concat()
}
