//! The store: entries on disk, in RocksDB, without its write-ahead log.
//!
//! Entries can be fetched from the node again, so they are written once, when a memtable is
//! flushed, and a crash loses the entries of the last moments. All families are flushed together,
//! so that a crash keeps a prefix of the writes: no entry without the rows that were written before
//! it. Purges can't be fetched again: they are flushed, with all writes before them, before they
//! are acknowledged.
//!
//! ```text
//!        put                   purge, put_durable
//!         │                     │ flush all,
//!         ▼                     ▼ then the marker (marker.rs)
//!  immutable │ aging         control
//!  the entries, FIFO         purges and other durable rows
//! ```
//!
//! SST files are removed in the order in which they were written, once their class exceeds its
//! share of `max_size`. A hit reports whether its entry will be removed soon
//! ([`StoredEntry::is_old`]), and the entry may be stored again. [`DiskEntryStore::drop_expired_sst_files`]
//! removes SST files by age.
//!
//! This is a library: it opens no socket, reads no clock, and starts no thread (RocksDB does, at
//! [`DiskEntryStore::open_store`]). All methods may be called by any thread, and may wait for the disk;
//! [`DiskEntryStore::put_entry`] never waits for a flush. A process must not fork after opening. Nothing is
//! flushed by time: the owner calls [`DiskEntryStore::flush`] periodically.
//!
//! | file           | concern                                         |
//! |----------------|-------------------------------------------------|
//! | `record`       | header of an entry                              |
//! | `entries`      | [`DiskEntryStore`]: reads and writes of entries          |
//! | `flush`        | flushes, and retries after a full disk          |
//! | `purges`       | records of purges; needs no RocksDB             |
//! | `admission`    | admission of entries; needs no RocksDB          |
//! | `durable`      | durable writes; with `control` and `marker`     |
//! | `expiry`       | expiry of SST files                             |
//! | `store_health` | health of the store, and its events for the log |
//! | `open`         | locks, damage, setting aside                    |
//! | `config`       | shares of `max_size`                            |
//! | `rocks`        | RocksDB (`rocks.cc`)                            |

mod admission;
mod config;
mod control;
mod durable;
mod entries;
mod expiry;
mod flush;
mod marker;
mod open;
mod purges;
mod record;
pub mod rocks;
mod status;
mod store_health;

pub use admission::AdmissionFilter;
pub use config::{StoreConfig, MIN_SIZE};
pub use entries::{DiskEntryStore, ReadWouldBlock, StoreWriteRejection, StoredEntry};
pub use open::{StoreDamage, StoreOpenError, StoreOpenOutcome};
pub use purges::{PurgeRecords, PurgeRow, MAX_RANGES, MAX_RECORDS};
pub use record::EntryRecordAttributes;
pub use status::StoreStatus;
pub use store_health::{StoreHealthChange, StoreWriteOutageReason};
