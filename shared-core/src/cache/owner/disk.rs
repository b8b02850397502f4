//! The store interface of the owner: `cache::store` in production, a model in tests.

use std::fmt;
use std::sync::Arc;

use super::tracker::{ChainIdentity, ChainRecord, FinalityMark};
use crate::bytes::try_copy_bytes;
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
pub use crate::cache::store::{
    EntryRecordAttributes, ReadWouldBlock, StoreStatus, StoreWriteRejection,
};
use crate::cache::{CacheKey, CacheNamespace};

/// An entry that a lookup in the store has found, with its times and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskEntry {
    /// The attributes and times of the entry.
    pub header: EntryRecordAttributes,
    /// The bytes of the entry, opaque to the owner.
    pub body: EntryBytes,
    /// Whether the entry will be dropped soon, so that a request should write it again.
    pub is_old: bool,
}

/// The serialized bytes of an entry, on the heap or pinned in the store's memory.
#[derive(Clone)]
pub enum EntryBytes {
    /// Bytes on the heap.
    Owned(Vec<u8>),
    /// Bytes in the memory of the store, pinned as long as this value lives.
    Pinned(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl EntryBytes {
    /// Copies the bytes to the heap; unchanged if the allocation fails.
    #[must_use]
    pub fn into_owned(self) -> Self {
        match &self {
            Self::Owned(_) => self,
            Self::Pinned(pinned) => try_copy_bytes((**pinned).as_ref()).map_or(self, Self::Owned),
        }
    }
}

impl AsRef<[u8]> for EntryBytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Pinned(pinned) => (**pinned).as_ref(),
        }
    }
}

impl PartialEq for EntryBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for EntryBytes {}

impl fmt::Debug for EntryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_lent = matches!(self, Self::Pinned(_));
        f.debug_struct("EntryBytes")
            .field("length", &self.as_ref().len())
            .field("is_lent", &is_lent)
            .finish()
    }
}

/// The interface of the owner to the store on disk: RocksDB in production, a model in tests. Every
/// method may wait for a disk, unless it is documented never to wait.
pub trait OwnerStore: Send + Sync {
    /// Number of purges so far. Never waits.
    fn purge_generation(&self) -> u64;

    /// Returns the entry under `key`, fresh or not, unless it was purged. An entry that cannot be
    /// read is absent.
    fn read_entry(&self, key: &CacheKey, now: ClockReading) -> Option<DiskEntry>;

    /// Returns the entry under `key`, if the store can read it without a disk. Never waits.
    ///
    /// # Errors
    /// [`ReadWouldBlock`]: only [`read_entry`](Self::read_entry) can determine it.
    fn read_entry_nonblocking(
        &self,
        key: &CacheKey,
        now: ClockReading,
    ) -> Result<Option<DiskEntry>, ReadWouldBlock>;

    /// Whether [`read_entry`](Self::read_entry) may find an entry. Never waits.
    fn may_contain_key(&self, key: &CacheKey) -> bool;

    /// Writes the serialized bytes of an entry under `key`, in place of the former entry. It need
    /// not survive a crash.
    ///
    /// # Errors
    /// [`StoreWriteRejection`].
    fn put_entry(
        &self,
        key: &CacheKey,
        header: &EntryRecordAttributes,
        body: &[u8],
    ) -> Result<(), StoreWriteRejection>;

    /// Purges entries, and returns the new generation. [`read_entry`](Self::read_entry) and
    /// [`is_entry_purged`](Self::is_entry_purged) apply the purge afterwards, also after a crash or
    /// a power loss. A purge of a namespace, or of everything, also removes the
    /// [record](Self::read_chain_record) of its chain.
    ///
    /// # Errors
    /// [`StoreWriteRejection`]: the purge is in effect in this process only, and must be repeated.
    fn purge_entries(&self, scope: &PurgeScope) -> Result<u64, StoreWriteRejection>;

    /// Reads the recorded identity and finality mark of a namespace's chain.
    ///
    /// # Errors
    /// [`StoreWriteRejection`]: the record cannot be read.
    fn read_chain_record(
        &self,
        namespace: &CacheNamespace,
    ) -> Result<ChainRecord, StoreWriteRejection>;

    /// Records the chain identity of a namespace, and that none of its blocks is final, as durably
    /// as a purge.
    ///
    /// # Errors
    /// [`StoreWriteRejection`].
    fn record_chain_identity(
        &self,
        namespace: &CacheNamespace,
        identity: &ChainIdentity,
    ) -> Result<(), StoreWriteRejection>;

    /// Records the newest final block, or that no block is final. The record need not survive a
    /// crash, but an entry that is written later must not survive without it.
    ///
    /// # Errors
    /// [`StoreWriteRejection`].
    fn record_finality_mark(
        &self,
        namespace: &CacheNamespace,
        mark: Option<&FinalityMark>,
    ) -> Result<(), StoreWriteRejection>;

    /// Whether a purge covers an entry whose request was sent to the node under the generation in
    /// `about`. Never waits.
    fn is_entry_purged(&self, key: &CacheKey, about: &StoredEntryAttributes) -> bool;

    /// Records a fill of `key`, and returns whether it was filled before: the entry is then worth
    /// a write to disk. Never waits.
    fn record_fill_for_admission(&self, key: &CacheKey, now: ClockReading) -> bool;

    /// Writes the memtables to disk, so that a crash does not lose them.
    ///
    /// # Errors
    /// [`StoreWriteRejection`].
    fn flush_memtables(&self) -> Result<(), StoreWriteRejection>;

    /// Drops entries that were written more than `goes` milliseconds ago, in large units and hence
    /// some of them later. From then on entries that were written more than `renews` milliseconds
    /// ago [are old](DiskEntry::is_old).
    fn drop_entries_older_than(&self, goes: u64, renews: u64, now: ClockReading);

    /// Takes the next line about the health of the store for the log, or returns `None` if there is
    /// none.
    fn next_log_line(&self) -> Option<String>;

    /// Reads the figures of the store for the owner's status.
    fn store_status(&self) -> StoreStatus;
}
