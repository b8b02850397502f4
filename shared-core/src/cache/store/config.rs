//! How large the store may be, and how its room is shared out.

use std::path::PathBuf;

use crate::cache::class::Class;

use super::rocks::Family;

/// What an owner says of its store.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder it lies in, made if need be; nothing else may be in it.
    pub path: PathBuf,
    /// Bytes that it may take on disk, memtables being written included. At
    /// least [`MIN_SIZE`].
    pub max_size: u64,
    /// So many bytes are flushed at once. What was stored since the last flush
    /// is in memtables, up to [`Config::memory`] bytes, and a clean stop
    /// writes it.
    pub write_buffer: u64,
    /// Bytes of tables that RocksDB keeps in memory, apart from their indexes.
    /// The system's page cache does most of it.
    pub block_cache: u64,
    /// Entries go through the write-ahead log too: more is written, and less
    /// lost by a crash. To measure what it costs.
    pub log_entries: bool,
}

/// The least that a store is useful with.
pub const MIN_SIZE: u64 = 16 << 20;

/// The families, in the order in which they are opened.
pub(super) const CONTROL: usize = 0;

/// Entries that are kept for as long as each other, roughly, have tables of their
/// own, so that short-lived ones don't drive out the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// Of what is true for as long as the chain is.
    Immutable,
    /// Of what has a lifetime, as HTTP resources have.
    Aging,
}

impl Tables {
    pub(super) const ALL: [Self; 2] = [Self::Immutable, Self::Aging];

    /// Those of a class.
    pub(super) fn of(class: Class) -> Self {
        match class {
            Class::Immutable => Self::Immutable,
            _ => Self::Aging,
        }
    }

    /// The family of its entries.
    pub(super) fn family(self) -> usize {
        1 + self as usize
    }
}

/// What RocksDB was told of the tables of [`Tables::ALL`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes that they may have; 0 before it was told.
    pub(super) sizes: [u64; 2],
    /// They are joined.
    pub(super) joins: bool,
}

impl Config {
    /// The defaults for a store of `max_size` bytes.
    pub fn new(path: impl Into<PathBuf>, max_size: u64) -> Self {
        Self {
            path: path.into(),
            max_size,
            write_buffer: (max_size / 64).clamp(256 << 10, 16 << 20),
            block_cache: 8 << 20,
            log_entries: false,
        }
    }

    /// The most that memtables take, in bytes, but for what RocksDB has beside
    /// each.
    pub fn memory(&self) -> u64 {
        // while some are flushed others are filled
        2 * self.memtable()
    }

    /// Bytes that are written between two flushes, at most: one is begun at
    /// [`Config::write_buffer`] and, if another is on its way, as soon as that
    /// is done; at twice as much nothing more is taken, except an entry, however
    /// long, before.
    pub(super) fn memtable(&self) -> u64 {
        2 * self.write_buffer + self.max_entry()
    }

    /// The longest body that is stored, in bytes: a table of several may not
    /// be a large part of all.
    pub fn max_entry(&self) -> u64 {
        self.max_size / 64
    }

    /// The longest table that others are joined to, in bytes. A look-up asks each
    /// table's filter, and each is an open file, so that a store is to have some
    /// hundred of them, however large it is: eight neighbours of about one size are
    /// joined unless they would be longer than this (docs/decisions/014).
    pub fn joined(&self) -> u64 {
        self.max_size / 40
    }

    /// Bytes of tables of entries. A table is written before the oldest is
    /// dropped, and others may wait behind it; a joined one before those that are
    /// in it, and nothing is dropped meanwhile.
    fn entries(&self) -> u64 {
        let reserve = 8 * self.write_buffer + 2 * self.joined();
        self.max_size.saturating_sub(reserve).max(self.max_size / 2)
    }

    /// Bytes of tables that the others can't take from them.
    fn share(&self, tables: Tables) -> u64 {
        match tables {
            Tables::Immutable => self.entries() / 4 * 3,
            Tables::Aging => self.entries() / 4,
        }
    }

    /// Bytes that each of [`Tables::ALL`] may keep, where they have
    /// `used` so many: what one leaves of its share is the other's until it
    /// grows.
    pub(super) fn share_out(&self, used: [u64; 2]) -> [u64; 2] {
        let margin = 2 * self.write_buffer;
        let [immutable, aging] = Tables::ALL.map(|tables| self.share(tables));
        [
            self.entries() - aging.min(used[1] + margin),
            self.entries() - immutable.min(used[0] + margin),
        ]
    }

    pub(super) fn families(&self) -> [Family; 3] {
        let family = |name, fifo_size| Family {
            name,
            fifo_size,
            write_buffer: self.write_buffer,
            // and what RocksDB has beside it
            memtable: 2 * self.memtable() + (8 << 20),
            joined: self.joined(),
        };
        [
            family("default", 0),
            // until it is known what they use
            family("immutable", self.entries()),
            family("aging", self.entries()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn what_one_class_leaves_the_other_may_take() {
        let config = Config::new("/", 1 << 30);
        let (all, margin) = (config.entries(), 2 * config.write_buffer);
        assert!(all > (1 << 30) / 5 * 4);
        assert_eq!(config.share_out([0, 0]), [all - margin, all - margin]);
        let (immutable, aging) = (all - all / 4, all - all / 4 * 3);
        assert_eq!(config.share_out([all, 0]), [all - margin, aging]);
        assert_eq!(config.share_out([0, all]), [immutable, all - margin]);
        assert_eq!(config.share_out([all, all]), [immutable, aging]);
        // full of one, and the other grows
        for used in (0..all / 4).step_by(1 << 20) {
            let [immutable, _] = config.share_out([all, used]);
            assert!(immutable + used <= all, "{used}");
        }
    }
}
