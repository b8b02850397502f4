//! Entries go in and out.

use std::collections::BTreeMap;
#[cfg(feature = "faults")]
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::config::{Config, Room, Tables};
use super::control::Lasting;
#[cfg(feature = "faults")]
use super::marker;
use super::open::{OpenError, Opening};
use super::purges::Purges;
use super::record::Header;
use super::rocks::{Failure, Pinned, Rocks, Write};
use super::storing::{Event, Reason, Storing};
use super::{open, record};
use crate::cache::entry::about::About;
use crate::cache::Key;
use crate::lock::{locked, read};

/// An open store.
#[derive(Debug)]
pub struct Store {
    pub(super) rocks: Arc<Rocks>,
    pub(super) config: Config,
    pub(super) purges: RwLock<Purges>,
    pub(super) lasting: Mutex<Lasting>,
    pub(super) storing: Mutex<Storing>,
    /// Something was written since the last flush.
    pub(super) unflushed: AtomicBool,
    pub(super) flushing: Mutex<()>,
    /// Entries in [`Tables::ALL`] that were written before these are old: they
    /// leave with the next tables, or will have been here for too long.
    pub(super) old: [AtomicU64; 2],
    pub(super) aged: [AtomicU64; 2],
    /// The newest write before the last flush.
    pub(super) flushed: AtomicU64,
    pub(super) room: Mutex<Room>,
    /// Bytes written since the last flush was begun.
    pub(super) in_memory: AtomicU64,
    pub(super) read_errors: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) busy: AtomicU64,
}

/// Why something was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// RocksDB can't write; [`Store::next_event`] has it once, and it goes
    /// away by itself.
    #[error("{0}")]
    Off(Reason),
    /// Memory is full of what is being flushed: worth another try later, and
    /// no waiting.
    #[error("the disk is slower than what is to be stored")]
    Busy,
    /// Longer than [`Config::max_entry`], or what is said of it than 64 KiB.
    #[error("too large an entry")]
    TooLarge,
    /// It was purged while it was on its way.
    #[error("purged while it was on its way")]
    Purged,
    /// The marker file could not be written. For people.
    #[error("the marker file: {0}")]
    Marker(String),
}

/// An entry that was found. It keeps the database open, and the folder locked,
/// until it is dropped.
#[derive(Debug)]
pub struct Stored {
    value: Pinned,
    /// What it is.
    pub header: Header,
    sequence: u64,
    body: usize,
    /// It lies in the oldest quarter of a full store, or is old by
    /// [`Store::forget`], and leaves soon unless it is put again.
    pub is_old: bool,
}

impl Stored {
    fn is_fresh(&self, now: u64) -> bool {
        self.header.expires_at > now
    }
}

/// A key may have been stored in tables of both kinds: the newer one counts.
fn newer(one: Option<Stored>, other: Option<Stored>) -> Option<Stored> {
    let (Some(first), Some(second)) = (&one, &other) else {
        return one.or(other);
    };
    if first.sequence >= second.sequence {
        one
    } else {
        other
    }
}

/// It takes a disk to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits;

/// The body, where RocksDB has it.
impl AsRef<[u8]> for Stored {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Stored {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.value[self.body..]
    }
}

impl Store {
    /// Opens the store in `config.path`, and makes one if there is none or
    /// what is there is damaged. `now` in milliseconds since 1970.
    pub fn open(config: &Config, now: u64) -> Result<(Self, Opening), OpenError> {
        let opened = open::open(config, now)?;
        let store = Self {
            rocks: Arc::new(opened.rocks),
            config: config.clone(),
            purges: RwLock::new(opened.purges),
            lasting: Mutex::new(Lasting {
                marker: opened.marker,
                rows: BTreeMap::new(),
            }),
            storing: Mutex::default(),
            unflushed: AtomicBool::new(false),
            flushing: Mutex::new(()),
            old: [const { AtomicU64::new(0) }; 2],
            aged: [const { AtomicU64::new(0) }; 2],
            flushed: AtomicU64::new(0),
            room: Mutex::default(),
            in_memory: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        };
        // all that there is lies in tables
        store.note_flush(store.rocks.sequence());
        store.look_over();
        Ok((store, opened.opening))
    }

    /// Stores `body` under `key`, in place of what was there. It is found at
    /// once, and survives a crash from the next flush on.
    pub fn put(&self, key: &Key, header: &Header, body: &[u8]) -> Result<(), StoreError> {
        if body.len() as u64 > self.config.max_entry() {
            return Err(StoreError::TooLarge);
        }
        if self.refuses(key, &header.about) {
            return Err(StoreError::Purged);
        }
        let head = record::encode(key, header, self.rocks.sequence(), body.len());
        let head = head.ok_or(StoreError::TooLarge)?;
        let write = Write::Put {
            family: Tables::of(header.about.class).family(),
            key,
            value: [&head, body],
        };
        let length = (key.len() + head.len() + body.len()) as u64;
        self.take(length)?;
        let written = self.rocks.write(&[write], self.config.log_entries);
        if written.is_ok() {
            // after the write: what was acknowledged is flushed by the next
            // flush that finds this set
            self.unflushed.store(true, Ordering::SeqCst);
        }
        self.judge(written)?;
        self.flush_if_full();
        Ok(())
    }

    /// The entry under `key`, if it is fresh at `now` (milliseconds since
    /// 1970). What can't be read is a miss, and counted.
    pub fn get(&self, key: &Key, now: u64) -> Option<Stored> {
        self.stale(key).filter(|stored| stored.is_fresh(now))
    }

    /// The same if that can be told from memory and the page cache. Never
    /// waits for the disk.
    ///
    /// # Errors
    /// [`Waits`]: [`get`](Self::get) has to.
    pub fn get_ready(&self, key: &Key, now: u64) -> Result<Option<Stored>, Waits> {
        let [one, other] = Tables::ALL.map(|tables| {
            match self.rocks.get(tables.family(), key, true) {
                // counted when it is read the other way
                Err(_) => Err(Waits),
                Ok(value) => Ok(value.and_then(|value| self.found(key, tables, value))),
            }
        });
        Ok(newer(one?, other?).filter(|stored| stored.is_fresh(now)))
    }

    /// `false`: nothing is under `key`. Asks memory only, and never waits for
    /// the disk; most look-ups that find nothing can be answered by it.
    pub fn may_have(&self, key: &Key) -> bool {
        let mut families = Tables::ALL.map(Tables::family).into_iter();
        families.any(|family| self.rocks.may_have(family, key))
    }

    /// The entry under `key`, fresh or not; never one that was purged.
    pub fn stale(&self, key: &Key) -> Option<Stored> {
        let [one, other] =
            Tables::ALL.map(|tables| match self.rocks.get(tables.family(), key, false) {
                Ok(value) => self.found(key, tables, value?),
                Err(_) => {
                    self.read_errors.fetch_add(1, Ordering::Relaxed);
                    None
                }
            });
        newer(one, other)
    }

    /// What was read, unless it was purged or is damaged.
    fn found(&self, key: &Key, tables: Tables, value: Pinned) -> Option<Stored> {
        let Some((header, sequence, body)) = record::decode(key, &value) else {
            self.read_errors.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if self.refuses(key, &header.about) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let is_before =
            |old: &[AtomicU64; 2]| sequence < old[tables as usize].load(Ordering::Relaxed);
        Some(Stored {
            is_old: is_before(&self.old) || is_before(&self.aged),
            value,
            header,
            sequence,
            body,
        })
    }

    /// Whether that was purged.
    pub fn refuses(&self, key: &Key, about: &About) -> bool {
        read(&self.purges).refuses(key, about)
    }

    /// What a request that is sent to the node now has to carry in its
    /// [`About::generation`].
    pub fn generation(&self) -> u64 {
        read(&self.purges).generation()
    }

    /// Flushes, and gives the store up. Without it the same happens when the
    /// last user is gone, but nobody hears of a failure.
    pub fn close(self) -> Result<(), StoreError> {
        self.flush()
    }

    /// Makes in the folder `to` the store that a power cut at this moment would
    /// leave: with those names of files that were synced or, without
    /// `synced_names`, with all. For tests; `SSZIP_POWER_CUTS` has to be in the
    /// environment when the store is opened.
    #[cfg(feature = "faults")]
    pub fn power_cut(&self, to: &std::path::Path, synced_names: bool) -> io::Result<()> {
        // a marker that is newer than the database would be a loss
        std::fs::create_dir_all(to)?;
        marker::copy(&self.config.path, to)?;
        if !self.rocks.power_cut(&to.join(open::DATABASE), synced_names) {
            return Err(io::Error::other("no power cut was prepared, or it failed"));
        }
        Ok(())
    }

    /// The next thing to be logged.
    pub fn next_event(&self) -> Option<Event> {
        locked(&self.storing).next_event()
    }

    /// What RocksDB's answer to a write means.
    pub(super) fn judge(&self, written: Result<(), Failure>) -> Result<(), StoreError> {
        match written {
            Ok(()) => {
                let mut storing = locked(&self.storing);
                // memory may take what the disk does not yet
                if storing.off.is_some() && self.rocks.background_error().is_none() {
                    storing.off = None;
                }
                Ok(())
            }
            Err(failure) if failure.is_busy() => {
                self.busy.fetch_add(1, Ordering::Relaxed);
                Err(StoreError::Busy)
            }
            Err(failure) => {
                let reason = Reason::from(&failure);
                locked(&self.storing).off = Some(reason.clone());
                Err(StoreError::Off(reason))
            }
        }
    }
}
