//! RocksDB, as far as it is needed here: a safe face of `rocks.cc`, which is
//! compiled by `build.rs` against the distribution's headers.
//!
//! Nothing here knows what is stored. All of it may be called by any thread;
//! RocksDB starts its own when it is opened, with the signal mask of the
//! caller, so that a process that wants signals elsewhere blocks them first. A
//! process must not fork afterwards: the child would wait for threads that it
//! does not have.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use serde::Serialize;

mod ffi {
    use super::{c_char, NonNull};

    #[repr(C)]
    pub struct Status {
        pub code: u8,
        pub subcode: u8,
        pub message: [c_char; 254],
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    pub struct Bytes {
        pub data: *const u8,
        pub size: usize,
    }

    #[repr(C)]
    pub struct Family {
        pub name: Bytes,
        pub fifo_size: u64,
        pub write_buffer: u64,
        pub memtable: u64,
        pub joined: u64,
    }

    #[repr(C)]
    pub struct Options {
        pub path: Bytes,
        pub families: *const Family,
        pub family_count: usize,
        pub block_cache: u64,
        pub create: u8,
    }

    #[repr(C)]
    pub struct Write {
        pub family: u32,
        pub remove: u8,
        pub key: Bytes,
        pub value: [Bytes; 2],
    }

    pub enum Db {}
    pub enum Value {}
    pub enum Iterator {}

    extern "C" {
        pub fn sszip_rocks_open(options: *const Options, status: *mut Status) -> *mut Db;
        pub fn sszip_rocks_prepare();
        pub fn sszip_rocks_close(db: NonNull<Db>, status: *mut Status);
        pub fn sszip_rocks_write(
            db: NonNull<Db>,
            writes: *const Write,
            count: usize,
            wal: u8,
            status: *mut Status,
        );
        pub fn sszip_rocks_set_fifo(
            db: NonNull<Db>,
            family: u32,
            size: u64,
            joins: u8,
            status: *mut Status,
        );
        pub fn sszip_rocks_drop_before(
            db: NonNull<Db>,
            family: u32,
            made: u64,
            status: *mut Status,
        ) -> usize;
        pub fn sszip_rocks_get(
            db: NonNull<Db>,
            family: u32,
            key: *const Bytes,
            ready: u8,
            out: *mut Bytes,
            status: *mut Status,
        ) -> *mut Value;
        pub fn sszip_rocks_may_have(db: NonNull<Db>, family: u32, key: *const Bytes) -> u8;
        pub fn sszip_rocks_value_free(value: NonNull<Value>);
        pub fn sszip_rocks_flush(db: NonNull<Db>, status: *mut Status);
        pub fn sszip_rocks_begin_flush(db: NonNull<Db>, status: *mut Status) -> u8;
        pub fn sszip_rocks_resume(db: NonNull<Db>, status: *mut Status);
        pub fn sszip_rocks_background(db: NonNull<Db>, status: *mut Status);
        pub fn sszip_rocks_iterate(
            db: NonNull<Db>,
            family: u32,
            from: *const Bytes,
            to: *const Bytes,
            status: *mut Status,
        ) -> *mut Iterator;
        pub fn sszip_rocks_next(
            iterator: NonNull<Iterator>,
            first: u8,
            key: *mut Bytes,
            value: *mut Bytes,
            status: *mut Status,
        ) -> u8;
        pub fn sszip_rocks_iterator_free(iterator: NonNull<Iterator>);
        pub fn sszip_rocks_files(
            db: NonNull<Db>,
            family: u32,
            out: *mut super::Table,
            room: usize,
        ) -> usize;
        pub fn sszip_rocks_sequence(db: NonNull<Db>) -> u64;
        pub fn sszip_rocks_property(db: NonNull<Db>, family: u32, name: *const Bytes) -> u64;
        pub fn sszip_rocks_written(db: NonNull<Db>, out: *mut [u64; 3]);
        #[cfg(feature = "faults")]
        pub fn sszip_rocks_power_cut(db: NonNull<Db>, to: *const Bytes, synced_names: u8) -> u8;
    }
}

/// What RocksDB said. Callers ask what it means; the text is for logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    code: u8,
    subcode: u8,
    message: String,
}

impl Failure {
    /// One that RocksDB has no words for.
    pub(super) fn other(message: &str) -> Self {
        Self {
            code: u8::MAX,
            subcode: 0,
            message: message.into(),
        }
    }

    /// The disk is full.
    pub fn is_no_space(&self) -> bool {
        self.subcode == 4 // kNoSpace
    }

    /// Memory is full of what is to be flushed: a matter of the moment.
    pub fn is_busy(&self) -> bool {
        matches!(self.code, 7 | 13) // kIncomplete, kTryAgain
    }
}

impl ffi::Status {
    fn new() -> Self {
        Self {
            code: 0,
            subcode: 0,
            message: [0; 254],
        }
    }

    fn result(&self) -> Result<(), Failure> {
        if self.code == 0 {
            return Ok(());
        }
        // SAFETY: each function of rocks.cc ends it with a NUL.
        let message = unsafe { CStr::from_ptr(self.message.as_ptr()) };
        Err(Failure {
            code: self.code,
            subcode: self.subcode,
            message: message.to_string_lossy().into_owned(),
        })
    }
}

/// Makes a call that says how it went.
fn checked<T>(call: impl FnOnce(&mut ffi::Status) -> T) -> Result<T, Failure> {
    let mut status = ffi::Status::new();
    let made = call(&mut status);
    status.result().map(|()| made)
}

impl From<&[u8]> for ffi::Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            size: bytes.len(),
        }
    }
}

/// A column family, as it is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name; the first family's is `default`.
    pub name: &'static str,
    /// Bytes of tables that it keeps, the oldest going first; 0 is levelled
    /// compaction, which keeps all.
    pub fifo_size: u64,
    /// About so many bytes are flushed at once.
    pub write_buffer: u64,
    /// More bytes than are ever written between two flushes. RocksDB would begin
    /// one by itself.
    pub memtable: u64,
    /// Bytes of the longest table that others are joined to, with `fifo_size`.
    pub joined: u64,
}

/// One change of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// The parts of the value are stored one after the other.
    Put {
        /// The number of the family, in the order of opening.
        family: usize,
        /// Its key there.
        key: &'a [u8],
        /// What it gets.
        value: [&'a [u8]; 2],
    },
    /// Takes a row out.
    Remove {
        /// The number of the family, in the order of opening.
        family: usize,
        /// Its key there.
        key: &'a [u8],
    },
}

/// A table of a family.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its bytes on disk.
    pub size: u64,
    /// The number of the oldest write in it.
    pub smallest_sequence: u64,
    /// The number of the newest write in it.
    pub largest_sequence: u64,
    /// When it was flushed, or joined from others, in seconds since 1970: not
    /// before anything in it was written. 0 if that is unknown.
    pub made: u64,
}

/// Bytes written since the opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// To the write-ahead log.
    #[serde(rename = "written_wal")]
    pub wal: u64,
    /// By flushes of memtables.
    #[serde(rename = "written_flush")]
    pub flush: u64,
    /// By compactions, which join tables.
    #[serde(rename = "written_compaction")]
    pub compaction: u64,
}

/// An open database; the last of its owners closes it.
#[derive(Debug)]
pub struct Rocks {
    db: NonNull<ffi::Db>,
    /// Let go after the database is closed.
    _lock: Option<File>,
}

// SAFETY: rocksdb::DB and what the shim keeps beside it may be used by any
// number of threads (db.h), and closed by any one.
unsafe impl Send for Rocks {}
// SAFETY: as above.
unsafe impl Sync for Rocks {}

/// Makes RocksDB's own static objects, for a process that will register a
/// handler with `atexit`: it then runs before they are destroyed.
pub fn prepare() {
    // SAFETY: it has no arguments, and may be called by any thread.
    unsafe { ffi::sszip_rocks_prepare() };
}

impl Rocks {
    /// Opens what lies at `path`. With `create` what is missing is made.
    pub fn open(
        path: &Path,
        families: &[Family],
        block_cache: u64,
        create: bool,
    ) -> Result<Self, Failure> {
        let families: Vec<_> = families
            .iter()
            .map(|family| ffi::Family {
                name: family.name.as_bytes().into(),
                fifo_size: family.fifo_size,
                write_buffer: family.write_buffer,
                memtable: family.memtable,
                joined: family.joined,
            })
            .collect();
        let options = ffi::Options {
            path: path.as_os_str().as_encoded_bytes().into(),
            families: families.as_ptr(),
            family_count: families.len(),
            block_cache,
            create: create.into(),
        };
        // SAFETY: all that `options` points to lives until the call is over.
        let db = checked(|status| unsafe { ffi::sszip_rocks_open(&options, status) })?;
        NonNull::new(db)
            .map(|db| Self { db, _lock: None })
            .ok_or_else(|| Failure::other("no database and no error"))
    }

    /// Holds a lock file until the database is closed.
    pub fn keep(&mut self, lock: File) {
        self._lock = Some(lock);
    }

    /// Writes all of `writes` or nothing into memory, until the next flush, and with
    /// `wal` into the write-ahead log. Refused ([`Failure::is_busy`]) rather than
    /// made to wait for a flush.
    pub fn write(&self, writes: &[Write<'_>], wal: bool) -> Result<(), Failure> {
        let empty = ffi::Bytes::from(&[][..]);
        let writes: Vec<_> = writes
            .iter()
            .map(|write| match *write {
                Write::Put { family, key, value } => ffi::Write {
                    family: family as u32,
                    remove: 0,
                    key: key.into(),
                    value: value.map(ffi::Bytes::from),
                },
                Write::Remove { family, key } => ffi::Write {
                    family: family as u32,
                    remove: 1,
                    key: key.into(),
                    value: [empty; 2],
                },
            })
            .collect();
        let (all, count) = (writes.as_ptr(), writes.len());
        // SAFETY: RocksDB copies what the batch points to before it returns.
        checked(|status| unsafe {
            ffi::sszip_rocks_write(self.db, all, count, wal.into(), status);
        })
    }

    /// Changes [`Family::fifo_size`] of a family that had one, and whether its
    /// tables are joined.
    pub fn set_fifo(&self, family: usize, size: u64, joins: bool) -> Result<(), Failure> {
        // SAFETY: the database is open as long as `self` lives.
        checked(|status| unsafe {
            ffi::sszip_rocks_set_fifo(self.db, family as u32, size, joins.into(), status);
        })
    }

    /// Drops the oldest tables of a family with FIFO, if they were made before
    /// that time (seconds since 1970). Those that are being joined stay.
    pub fn drop_before(&self, family: usize, made: u64) -> Result<usize, Failure> {
        // SAFETY: the database is open as long as `self` lives.
        checked(|status| unsafe {
            ffi::sszip_rocks_drop_before(self.db, family as u32, made, status)
        })
    }

    /// What `family` has under `key`, pinned where it lies. It keeps the
    /// database open. Only if it is `ready`, in memory or in the page cache:
    /// otherwise a failure, and no waiting.
    pub fn get(
        self: &Arc<Self>,
        family: usize,
        key: &[u8],
        ready: bool,
    ) -> Result<Option<Pinned>, Failure> {
        let mut status = ffi::Status::new();
        let mut bytes = ffi::Bytes::from(&[][..]);
        // SAFETY: the key is read before the call returns.
        let value = unsafe {
            ffi::sszip_rocks_get(
                self.db,
                family as u32,
                &key.into(),
                ready.into(),
                &mut bytes,
                &mut status,
            )
        };
        match NonNull::new(value) {
            Some(value) => Ok(Some(Pinned {
                value,
                bytes,
                _db: Arc::clone(self),
            })),
            None if status.code == 1 => Ok(None), // kNotFound
            None => status.result().map(|()| None),
        }
    }

    /// Writes the memtables of all families to disk, as one step. One flush
    /// after the other.
    pub fn flush(&self) -> Result<(), Failure> {
        self.call(ffi::sszip_rocks_flush)
    }

    /// The same, but waits for nothing: `false` if one is on its way.
    pub fn begin_flush(&self) -> Result<bool, Failure> {
        // SAFETY: the database is open as long as `self` lives.
        let begun = checked(|status| unsafe { ffi::sszip_rocks_begin_flush(self.db, status) })?;
        Ok(begun != 0)
    }

    /// Tries to write again after a background error, by a flush. RocksDB does
    /// not try by itself.
    pub fn resume(&self) -> Result<(), Failure> {
        self.call(ffi::sszip_rocks_resume)
    }

    /// The background error that keeps RocksDB from writing, if there is one.
    pub fn background_error(&self) -> Option<Failure> {
        self.call(ffi::sszip_rocks_background).err()
    }

    fn call(
        &self,
        function: unsafe extern "C" fn(NonNull<ffi::Db>, *mut ffi::Status),
    ) -> Result<(), Failure> {
        // SAFETY: the database is open as long as `self` lives.
        checked(|status| unsafe { function(self.db, status) })
    }

    /// The rows of `family` from `from` on, before `to`.
    pub fn rows(&self, family: usize, from: &[u8], to: &[u8]) -> Result<Rows<'_>, Failure> {
        let (from, to) = (from.into(), to.into());
        // there may be one though it failed: it is freed then
        let rows = checked(|status| {
            // SAFETY: both bounds are copied before the call returns.
            let iterator =
                unsafe { ffi::sszip_rocks_iterate(self.db, family as u32, &from, &to, status) };
            NonNull::new(iterator).map(|iterator| Rows {
                iterator,
                first: true,
                _db: PhantomData,
            })
        })?;
        rows.ok_or_else(|| Failure::other("no iterator and no error"))
    }

    /// The tables of `family`, the newest first.
    pub fn tables(&self, family: usize) -> Vec<Table> {
        let mut tables = vec![Table::default(); 256];
        loop {
            // SAFETY: there is room for as many as are said.
            let count = unsafe {
                ffi::sszip_rocks_files(self.db, family as u32, tables.as_mut_ptr(), tables.len())
            };
            if count <= tables.len() {
                tables.truncate(count);
                return tables;
            }
            // more may come before the next call
            tables.resize(count * 2, Table::default());
        }
    }

    /// The number of the newest write. Numbers only grow, but those of writes
    /// that a crash has lost are given again.
    pub fn sequence(&self) -> u64 {
        // SAFETY: the database is open as long as `self` lives.
        unsafe { ffi::sszip_rocks_sequence(self.db) }
    }

    /// `false`: nothing is under `key`. Asks memory only, and so never waits.
    pub fn may_have(&self, family: usize, key: &[u8]) -> bool {
        // SAFETY: the key is read before the call returns.
        unsafe { ffi::sszip_rocks_may_have(self.db, family as u32, &key.into()) != 0 }
    }

    /// A property of `family` that is a number (db.h); 0 if it is unknown.
    pub fn property(&self, family: usize, name: &str) -> u64 {
        // SAFETY: the name is read before the call returns.
        unsafe { ffi::sszip_rocks_property(self.db, family as u32, &name.as_bytes().into()) }
    }

    /// Bytes written since the opening.
    pub fn written(&self) -> Written {
        let mut out = [0; 3];
        // SAFETY: `out` has the three places that are written.
        unsafe { ffi::sszip_rocks_written(self.db, &mut out) };
        let [wal, flush, compaction] = out;
        Written {
            wal,
            flush,
            compaction,
        }
    }

    /// Writes to the folder `to` what a power cut would leave now: of names
    /// that were synced or, without `synced_names`, of all. `false` if it
    /// failed, or if `SSZIP_POWER_CUTS` was not set when it was opened.
    #[cfg(feature = "faults")]
    pub fn power_cut(&self, to: &Path, synced_names: bool) -> bool {
        let to = to.as_os_str().as_encoded_bytes().into();
        // SAFETY: the path is read before the call returns.
        unsafe { ffi::sszip_rocks_power_cut(self.db, &to, synced_names.into()) != 0 }
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        let mut status = ffi::Status::new();
        // SAFETY: nobody has the database any more; it is closed once. Whoever
        // wants to know of a failure flushes before.
        unsafe { ffi::sszip_rocks_close(self.db, &mut status) };
    }
}

/// A value where RocksDB has it: in a block of its cache, or in a buffer that
/// it was read into.
#[derive(Debug)]
pub struct Pinned {
    value: NonNull<ffi::Value>,
    bytes: ffi::Bytes,
    /// The block belongs to the database.
    _db: Arc<Rocks>,
}

// SAFETY: nothing in a PinnableSlice belongs to the thread that made it, and
// what it pins is counted atomically (cache.h).
unsafe impl Send for Pinned {}
// SAFETY: it is only read until it is dropped.
unsafe impl Sync for Pinned {}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.bytes.size == 0 {
            return &[];
        }
        // SAFETY: the bytes stay until the value is freed, by `drop`.
        unsafe { std::slice::from_raw_parts(self.bytes.data, self.bytes.size) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: ours since `get`, freed once, before the database.
        unsafe { ffi::sszip_rocks_value_free(self.value) }
    }
}

/// A key and its value.
pub type Row<'a> = (&'a [u8], &'a [u8]);

/// Rows in the order of their keys.
#[derive(Debug)]
pub struct Rows<'a> {
    iterator: NonNull<ffi::Iterator>,
    first: bool,
    _db: PhantomData<&'a Rocks>,
}

impl Rows<'_> {
    /// The next row, until the one after; `None` after the last.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, Failure> {
        let mut status = ffi::Status::new();
        let (mut key, mut value) = (ffi::Bytes::from(&[][..]), ffi::Bytes::from(&[][..]));
        let first = std::mem::replace(&mut self.first, false);
        // SAFETY: the iterator is ours, and `self` is borrowed mutably as long
        // as the row is in use.
        unsafe {
            let found = ffi::sszip_rocks_next(
                self.iterator,
                first.into(),
                &mut key,
                &mut value,
                &mut status,
            );
            status.result()?;
            if found == 0 {
                return Ok(None);
            }
            let slice = |bytes: ffi::Bytes| match bytes.size {
                0 => &[][..],
                size => std::slice::from_raw_parts(bytes.data, size),
            };
            Ok(Some((slice(key), slice(value))))
        }
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        // SAFETY: ours since `rows`, freed once, before the database.
        unsafe { ffi::sszip_rocks_iterator_free(self.iterator) }
    }
}
