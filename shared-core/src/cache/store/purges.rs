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
    /// The name of the row: the scope, in postcard's format.
    pub row: Vec<u8>,
    /// What it says; `None` takes it out.
    pub generation: Option<u64>,
}

impl Change {
    fn of(scope: &Scope, generation: Option<u64>) -> Self {
        let row = row(scope);
        Self { row, generation }
    }
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

impl Range {
    fn scope(&self, namespace: Namespace) -> Scope {
        let Self { from, to, .. } = *self;
        Scope::Blocks {
            namespace,
            from,
            to,
        }
    }
}

type Methods = HashMap<Box<str>, u64>;

fn methods_of(
    namespace: Option<Namespace>,
    methods: &Methods,
) -> impl Iterator<Item = (Scope, u64)> + '_ {
    methods.iter().map(move |(method, generation)| {
        let method = method.clone();
        (Scope::Method { namespace, method }, *generation)
    })
}

/// What was purged of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Within {
    /// All of it; 0: never.
    all: u64,
    methods: Methods,
    /// Sorted by their beginnings and ends.
    ranges: Vec<Range>,
}

impl Within {
    fn records(&self, namespace: Namespace) -> impl Iterator<Item = (Scope, u64)> + '_ {
        let all = (self.all > 0).then_some((Scope::Namespace(namespace), self.all));
        let ranges = self.ranges.iter();
        let ranges = ranges.map(move |range| (range.scope(namespace), range.generation));
        let methods = methods_of(Some(namespace), &self.methods);
        all.into_iter().chain(methods).chain(ranges)
    }
}

/// The purges so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purges {
    newest: u64,
    everything: u64,
    /// In all namespaces.
    methods: Methods,
    namespaces: HashMap<Namespace, Within>,
    keys: HashMap<Key, u64>,
}

impl Purges {
    /// None so far, and `generation` for those who ask now: what carries an
    /// older one comes from a store that was here before, and is refused.
    pub fn new(generation: u64) -> Self {
        Self {
            newest: generation,
            everything: generation,
            methods: HashMap::new(),
            namespaces: HashMap::new(),
            keys: HashMap::new(),
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
        let older = |purge: u64| about.generation < purge;
        let older_method = |methods: &Methods| {
            let method = about.method.as_ref().and_then(|method| methods.get(method));
            method.is_some_and(|purge| older(*purge))
        };
        // what names no block may be about any
        let covered = |range: &Range| {
            let covers = |block| (range.from..=range.to).contains(&block);
            older(range.generation) && about.block.is_none_or(covers)
        };
        older(self.everything)
            || older_method(&self.methods)
            || self.namespaces.get(&about.namespace).is_some_and(|within| {
                older(within.all)
                    || older_method(&within.methods)
                    || within.ranges.iter().any(covered)
            })
            || self.keys.get(key).is_some_and(|purge| older(*purge))
    }

    /// A new purge. Gives its generation, and what has to be written so that
    /// [`load`](Self::load) knows of it. An empty range is a purge of nothing.
    pub fn add(&mut self, scope: &Scope) -> (u64, Vec<Change>) {
        self.newest += 1;
        let generation = Some(self.newest);
        let row = NEWEST.to_vec();
        let mut changes = vec![Change { row, generation }];
        if !matches!(scope, Scope::Blocks { from, to, .. } if from > to) {
            self.note(scope, self.newest, &mut changes);
            self.fold(&mut changes);
        }
        (self.newest, changes)
    }

    /// A purge, in place of those that it makes superfluous.
    fn note(&mut self, scope: &Scope, generation: u64, changes: &mut Vec<Change>) {
        let gone: Vec<_> = match scope {
            Scope::Everything => {
                let gone = self.records();
                *self = Self::new(self.newest);
                gone
            }
            Scope::Namespace(namespace) => {
                let within = self.namespaces.remove(namespace).unwrap_or_default();
                within.records(*namespace).collect()
            }
            Scope::Blocks {
                namespace,
                from,
                to,
            } => {
                let ranges = &mut self.namespaces.entry(*namespace).or_default().ranges;
                let is_covered = |old: &mut Range| *from <= old.from && old.to <= *to;
                let gone = ranges.extract_if(.., is_covered);
                gone.map(|range| (range.scope(*namespace), 0)).collect()
            }
            Scope::Method { .. } | Scope::Key(_) => Vec::new(),
        };
        changes.extend(gone.iter().map(|(scope, _)| Change::of(scope, None)));
        self.set(scope, generation);
        changes.push(Change::of(scope, Some(generation)));
    }

    /// A record, whatever others there are.
    fn set(&mut self, scope: &Scope, generation: u64) {
        match scope {
            Scope::Everything => self.everything = generation,
            Scope::Namespace(namespace) => {
                self.namespaces.entry(*namespace).or_default().all = generation;
            }
            Scope::Method { namespace, method } => {
                let methods = match namespace {
                    Some(namespace) => &mut self.namespaces.entry(*namespace).or_default().methods,
                    None => &mut self.methods,
                };
                methods.insert(method.clone(), generation);
            }
            Scope::Blocks {
                namespace,
                from,
                to,
            } => {
                let ranges = &mut self.namespaces.entry(*namespace).or_default().ranges;
                let place = ranges.partition_point(|range| (range.from, range.to) < (*from, *to));
                let (from, to) = (*from, *to);
                ranges.insert(
                    place,
                    Range {
                        from,
                        to,
                        generation,
                    },
                );
            }
            Scope::Key(key) => {
                self.keys.insert(*key, generation);
            }
        }
    }

    fn fold(&mut self, changes: &mut Vec<Change>) {
        for (namespace, within) in &mut self.namespaces {
            fold_ranges(*namespace, &mut within.ranges, changes);
        }
        let crowded = self.namespaces.iter();
        let crowded = crowded.filter(|(_, within)| within.methods.len() > MAX_METHODS);
        let newest = |namespace: &Namespace, within: &Within| {
            let generations = within.records(*namespace).map(|(_, generation)| generation);
            (Scope::Namespace(*namespace), generations.max().unwrap_or(0))
        };
        let crowded: Vec<_> = crowded.map(|(name, within)| newest(name, within)).collect();
        for (scope, newest) in crowded {
            self.note(&scope, newest, changes);
        }
        if self.methods.len() > MAX_METHODS
            || self.namespaces.len() > MAX_NAMESPACES
            || self.keys.len() > MAX_KEYS
        {
            self.note(&Scope::Everything, self.newest, changes);
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        let within = self
            .namespaces
            .values()
            .map(|within| usize::from(within.all > 0) + within.methods.len() + within.ranges.len());
        self.methods.len() + within.sum::<usize>() + self.keys.len()
    }

    /// Whether nothing was purged, or everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn records(&self) -> Vec<(Scope, u64)> {
        let mut records = vec![(Scope::Everything, self.everything)];
        records.extend(methods_of(None, &self.methods));
        for (namespace, within) in &self.namespaces {
            records.extend(within.records(*namespace));
        }
        let keys = self.keys.iter();
        records.extend(keys.map(|(key, generation)| (Scope::Key(*key), *generation)));
        records
    }

    /// All rows, as they are to be given to [`load`](Self::load).
    pub fn rows(&self) -> Vec<(Vec<u8>, u64)> {
        let records = self.records();
        let rows = records
            .iter()
            .map(|(scope, generation)| (row(scope), *generation));
        rows.chain([(NEWEST.to_vec(), self.newest)]).collect()
    }

    /// The judge that left these rows, in any order.
    pub fn load<'a>(rows: impl IntoIterator<Item = (&'a [u8], u64)>) -> Result<Self, UnknownRow> {
        let mut purges = Self::new(0);
        for (row, generation) in rows {
            if row == NEWEST {
                purges.newest = generation;
                continue;
            }
            match postcard::take_from_bytes(row) {
                Ok((scope, [])) => purges.set(&scope, generation),
                _ => return Err(UnknownRow),
            }
        }
        Ok(purges)
    }
}

/// Two neighbours with the least between them become one, until there are few
/// enough.
fn fold_ranges(namespace: Namespace, ranges: &mut Vec<Range>, changes: &mut Vec<Change>) {
    while ranges.len() > MAX_RANGES {
        let gap = |at: &usize| ranges[at + 1].from.saturating_sub(ranges[*at].to);
        let Some(at) = (0..ranges.len() - 1).min_by_key(gap) else {
            break;
        };
        let (left, right) = (ranges[at], ranges.remove(at + 1));
        ranges[at].to = left.to.max(right.to);
        ranges[at].generation = left.generation.max(right.generation);
        let gone = [left, right].map(|old| Change::of(&old.scope(namespace), None));
        changes.extend(gone);
        let joined = ranges[at];
        changes.push(Change::of(
            &joined.scope(namespace),
            Some(joined.generation),
        ));
    }
}

/// The row that says the newest generation: no scope has that name.
const NEWEST: &[u8] = &[0xff];

fn row(scope: &Scope) -> Vec<u8> {
    // hashes, numbers and words always can be
    postcard::to_allocvec(scope).unwrap_or_default()
}
