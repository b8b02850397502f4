//! The store: entries on disk, in RocksDB, without its write-ahead log.
//!
//! Entries can be had again from the node, so they are written once, when a
//! memtable is flushed, and a crash loses those of the last moments; all
//! families are flushed together, so that it keeps a beginning of what was
//! written: no entry without what was noted before it. Purges can't be had
//! again: they are flushed, with what was written before, before they are
//! acknowledged.
//!
//! ```text
//!        put                   purge, control_put
//!         │                     │ flush all,
//!         ▼                     ▼ then the marker (marker.rs)
//!  immutable │ aging         control
//!  the entries, FIFO         purges and what else must last
//! ```
//!
//! Tables leave in the order in which they were written, once their class has
//! more than its share of `max_size`. A hit says when its entry is about to
//! leave ([`Stored::is_old`]), and may be put again. [`Store::forget`] lets go of
//! tables for their age.
//!
//! This is a library: it opens no socket, reads no clock, and starts no thread
//! (RocksDB does, at [`Store::open`]). All methods may be called by any thread,
//! and may wait for the disk; [`Store::put`] never waits for a flush. A process
//! must not fork after opening. Nothing flushes by time: the owner calls
//! [`Store::flush`] now and then.
//!
//! | file        | concern                                              |
//! |-------------|------------------------------------------------------|
//! | `record`    | the head of an entry                                 |
//! | `entries`   | [`Store`]: entries in and out                        |
//! | `flushing`  | from memory to the disk, and a full disk             |
//! | `purges`    | which entries were purged; needs no RocksDB          |
//! | `admission` | what is worth storing; needs no RocksDB              |
//! | `lasting`   | purges, and what else must last; `control`, `marker` |
//! | `age`       | tables that are old                                  |
//! | `storing`   | on or off, and what the log hears of it              |
//! | `open`      | locks, damage, setting aside                         |
//! | `config`    | how `max_size` is shared out                         |
//! | `rocks`     | RocksDB (`rocks.cc`)                                 |

mod admission;
mod age;
mod config;
mod control;
mod entries;
mod flushing;
mod lasting;
mod marker;
mod open;
mod purges;
mod record;
pub mod rocks;
mod status;
mod storing;

pub use admission::Admission;
pub use config::{Config, MIN_SIZE};
pub use entries::{Store, StoreError, Stored, Waits};
pub use open::{Damage, OpenError, Opening};
pub use purges::{Change, Purges, MAX_RANGES, MAX_RECORDS};
pub use record::Header;
pub use status::Status;
pub use storing::{Event, Reason};
