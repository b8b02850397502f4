//! Size of the store, and the shares of its column families.

use std::path::PathBuf;

use crate::cache::class::LifetimeClass;

use super::rocks::FamilyOptions;

/// The directory, the size and the buffer sizes of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Directory of the store, which is created if necessary and must contain nothing else.
    pub path: PathBuf,
    /// Maximum number of bytes on disk, including memtables that are being written. At least
    /// [`MIN_SIZE`].
    pub max_size: u64,
    /// Bytes of entries at which a flush begins. Entries since the last flush are in memtables, up
    /// to [`StoreConfig::max_memtable_memory`] bytes, and are written by a clean stop.
    pub write_buffer: u64,
    /// Bytes of SST blocks that RocksDB caches, apart from indexes. The page cache of the system
    /// does most of the caching.
    pub block_cache: u64,
    /// Whether entries are written to the write-ahead log too: more is written, and less is lost in
    /// a crash. It serves measurements of its cost.
    pub log_entries: bool,
}

/// Minimum size of a store in bytes.
pub const MIN_SIZE: u64 = 16 << 20;

/// Number of the control family; families are numbered in the order of opening.
pub(super) const CONTROL_FAMILY: usize = 0;

/// A column family of entries. Entries with similar lifetimes share SST files, so that short-lived
/// entries do not evict the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LifetimeColumnFamily {
    /// Entries that are valid as long as the chain is.
    Immutable,
    /// Entries with a lifetime, such as HTTP resources.
    Aging,
}

impl LifetimeColumnFamily {
    pub(super) const ALL: [Self; 2] = [Self::Immutable, Self::Aging];

    /// Returns the column family in which entries of a class are stored.
    pub(super) fn family_for_class(class: LifetimeClass) -> Self {
        match class {
            LifetimeClass::Immutable => Self::Immutable,
            _ => Self::Aging,
        }
    }

    /// Returns the number of the column family, in the order of opening.
    pub(super) fn column_family_number(self) -> usize {
        1 + self as usize
    }
}

/// The size limits and the compaction setting that RocksDB has at present for the families of
/// [`LifetimeColumnFamily::ALL`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnFamilySizeLimits {
    /// Maximum bytes of SST files; 0 before it was set.
    pub(super) sizes: [u64; 2],
    /// Whether SST files are compacted.
    pub(super) joins: bool,
}

impl StoreConfig {
    /// Returns the default configuration of a store of `max_size` bytes.
    pub fn new(path: impl Into<PathBuf>, max_size: u64) -> Self {
        Self {
            path: path.into(),
            max_size,
            write_buffer: (max_size / 64).clamp(256 << 10, 16 << 20),
            block_cache: 8 << 20,
            log_entries: false,
        }
    }

    /// Maximum size of the memtables in bytes, without RocksDB's overhead.
    pub fn max_memtable_memory(&self) -> u64 {
        // one set of memtables is filled while another is flushed
        2 * self.max_unflushed_store_bytes()
    }

    /// Maximum number of bytes that are written between two flushes. A flush begins at
    /// [`StoreConfig::write_buffer`], or as soon as the flush in progress has ended. At twice as
    /// many bytes writes are refused, except an entry, of any length, that begins below.
    pub(super) fn max_unflushed_store_bytes(&self) -> u64 {
        2 * self.write_buffer + self.max_entry_length()
    }

    /// Maximum length of a stored body in bytes: an SST file of several bodies must not be a large
    /// part of the store.
    pub fn max_entry_length(&self) -> u64 {
        self.max_size / 64
    }

    /// Maximum length of a compacted SST file in bytes. A lookup queries the filter of each SST
    /// file, and each is an open file, so that a store should have some hundred of them, regardless
    /// of its size: eight neighbours of similar size are compacted unless the result would be
    /// longer than this (docs/decisions/014).
    pub fn max_compacted_file(&self) -> u64 {
        self.max_size / 40
    }

    /// Bytes of SST files with entries. A file is written before the oldest is dropped, and others
    /// may wait for it; a compacted file is written before its inputs are dropped, and nothing is
    /// dropped meanwhile.
    fn max_entry_file_bytes(&self) -> u64 {
        let reserve = 8 * self.write_buffer + 2 * self.max_compacted_file();
        self.max_size.saturating_sub(reserve).max(self.max_size / 2)
    }

    /// Guaranteed bytes of a family, which the other one can't take.
    fn guaranteed_family_bytes(&self, tables: LifetimeColumnFamily) -> u64 {
        match tables {
            LifetimeColumnFamily::Immutable => self.max_entry_file_bytes() / 4 * 3,
            LifetimeColumnFamily::Aging => self.max_entry_file_bytes() / 4,
        }
    }

    /// Returns the bytes that each of [`LifetimeColumnFamily::ALL`] may keep if they use `used` bytes: the
    /// unused part of one share belongs to the other family until the first one grows.
    pub(super) fn allocate_family_space(&self, used: [u64; 2]) -> [u64; 2] {
        let margin = 2 * self.write_buffer;
        let [immutable, aging] =
            LifetimeColumnFamily::ALL.map(|tables| self.guaranteed_family_bytes(tables));
        [
            self.max_entry_file_bytes() - aging.min(used[1] + margin),
            self.max_entry_file_bytes() - immutable.min(used[0] + margin),
        ]
    }

    /// Returns the options of the column families, in the order of their numbers.
    pub(super) fn family_options(&self) -> [FamilyOptions; 3] {
        let family = |name, fifo_size| FamilyOptions {
            name,
            fifo_size,
            write_buffer: self.write_buffer,
            // with RocksDB's overhead
            memtable: 2 * self.max_unflushed_store_bytes() + (8 << 20),
            joined: self.max_compacted_file(),
        };
        [
            family("default", 0),
            // until their use is known
            family("immutable", self.max_entry_file_bytes()),
            family("aging", self.max_entry_file_bytes()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::StoreConfig;

    #[test]
    fn unused_share_of_a_family_belongs_to_the_other() {
        let config = StoreConfig::new("/", 1 << 30);
        let (all, margin) = (config.max_entry_file_bytes(), 2 * config.write_buffer);
        assert!(all > (1 << 30) / 5 * 4);
        assert_eq!(
            config.allocate_family_space([0, 0]),
            [all - margin, all - margin]
        );
        let (immutable, aging) = (all - all / 4, all - all / 4 * 3);
        assert_eq!(
            config.allocate_family_space([all, 0]),
            [all - margin, aging]
        );
        assert_eq!(
            config.allocate_family_space([0, all]),
            [immutable, all - margin]
        );
        assert_eq!(config.allocate_family_space([all, all]), [immutable, aging]);
        // one family is full, and the other one grows
        for used in (0..all / 4).step_by(1 << 20) {
            let [immutable, _] = config.allocate_family_space([all, used]);
            assert!(immutable + used <= all, "{used}");
        }
    }
}
