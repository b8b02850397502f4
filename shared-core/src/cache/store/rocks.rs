//! Bindings to RocksDB: a safe interface to `rocks.cc`, which `build.rs` compiles against the
//! distribution's headers.
//!
//! The module does not know what is stored. All of it may be called by any thread. RocksDB starts
//! its own threads when it is opened, with the signal mask of the caller, so that a process that
//! handles signals on other threads blocks them first. A process must not fork afterwards: the
//! child would wait for threads that it does not have.
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

    /// The result of a call of the shim (`rocks.cc`): RocksDB's code, and the text of an error.
    #[repr(C)]
    pub struct RocksCallStatus {
        pub code: u8,
        pub subcode: u8,
        pub message: [c_char; 254],
    }

    /// Bytes that the caller of the shim owns for the time of the call.
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    pub struct ByteSlice {
        pub data: *const u8,
        pub size: usize,
    }

    /// The options of one column family, as [`FamilyOptions`](super::FamilyOptions) has them.
    #[repr(C)]
    pub struct RawColumnFamilyOptions {
        pub name: ByteSlice,
        pub fifo_size: u64,
        pub write_buffer: u64,
        pub memtable: u64,
        pub joined: u64,
    }

    /// The path, the families and the block cache with which a database is opened.
    #[repr(C)]
    pub struct RawOpenOptions {
        pub path: ByteSlice,
        pub families: *const RawColumnFamilyOptions,
        pub family_count: usize,
        pub block_cache: u64,
        pub create: u8,
    }

    /// A change of one row, as [`RowChange`](super::RowChange) has it.
    #[repr(C)]
    pub struct RowWrite {
        pub family: u32,
        pub remove: u8,
        pub key: ByteSlice,
        pub value: [ByteSlice; 2],
    }

    pub enum Database {}
    pub enum PinnedBytes {}
    pub enum RawIterator {}

    extern "C" {
        pub fn sszip_rocks_open(
            options: *const RawOpenOptions,
            status: *mut RocksCallStatus,
        ) -> *mut Database;
        pub fn sszip_rocks_prepare();
        pub fn sszip_rocks_close(db: NonNull<Database>, status: *mut RocksCallStatus);
        pub fn sszip_rocks_write(
            db: NonNull<Database>,
            writes: *const RowWrite,
            count: usize,
            wal: u8,
            status: *mut RocksCallStatus,
        );
        pub fn sszip_rocks_set_fifo(
            db: NonNull<Database>,
            family: u32,
            size: u64,
            joins: u8,
            status: *mut RocksCallStatus,
        );
        pub fn sszip_rocks_drop_before(
            db: NonNull<Database>,
            family: u32,
            made: u64,
            status: *mut RocksCallStatus,
        ) -> usize;
        pub fn sszip_rocks_get(
            db: NonNull<Database>,
            family: u32,
            key: *const ByteSlice,
            ready: u8,
            out: *mut ByteSlice,
            status: *mut RocksCallStatus,
        ) -> *mut PinnedBytes;
        pub fn sszip_rocks_may_have(
            db: NonNull<Database>,
            family: u32,
            key: *const ByteSlice,
        ) -> u8;
        pub fn sszip_rocks_value_free(value: NonNull<PinnedBytes>);
        pub fn sszip_rocks_flush(db: NonNull<Database>, status: *mut RocksCallStatus);
        pub fn sszip_rocks_begin_flush(db: NonNull<Database>, status: *mut RocksCallStatus) -> u8;
        pub fn sszip_rocks_resume(db: NonNull<Database>, status: *mut RocksCallStatus);
        pub fn sszip_rocks_background(db: NonNull<Database>, status: *mut RocksCallStatus);
        pub fn sszip_rocks_iterate(
            db: NonNull<Database>,
            family: u32,
            from: *const ByteSlice,
            to: *const ByteSlice,
            status: *mut RocksCallStatus,
        ) -> *mut RawIterator;
        pub fn sszip_rocks_next(
            iterator: NonNull<RawIterator>,
            first: u8,
            key: *mut ByteSlice,
            value: *mut ByteSlice,
            status: *mut RocksCallStatus,
        ) -> u8;
        pub fn sszip_rocks_iterator_free(iterator: NonNull<RawIterator>);
        pub fn sszip_rocks_files(
            db: NonNull<Database>,
            family: u32,
            out: *mut super::SstFile,
            room: usize,
        ) -> usize;
        pub fn sszip_rocks_sequence(db: NonNull<Database>) -> u64;
        pub fn sszip_rocks_property(
            db: NonNull<Database>,
            family: u32,
            name: *const ByteSlice,
        ) -> u64;
        pub fn sszip_rocks_written(db: NonNull<Database>, out: *mut [u64; 3]);
        #[cfg(feature = "faults")]
        pub fn sszip_rocks_power_cut(
            db: NonNull<Database>,
            to: *const ByteSlice,
            synced_names: u8,
        ) -> u8;
    }
}

/// An error that RocksDB has reported, with its code and its message. Callers query its meaning;
/// the text is for logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RocksError {
    code: u8,
    subcode: u8,
    message: String,
}

impl RocksError {
    /// Creates an error that RocksDB has no code for.
    pub(super) fn from_message(message: &str) -> Self {
        Self {
            code: u8::MAX,
            subcode: 0,
            message: message.into(),
        }
    }

    /// Whether the disk is full.
    pub fn is_no_space(&self) -> bool {
        self.subcode == 4 // kNoSpace
    }

    /// Whether the memtables are full because a flush is in progress, which is temporary.
    pub fn is_write_stalled(&self) -> bool {
        matches!(self.code, 7 | 13) // kIncomplete, kTryAgain
    }
}

impl ffi::RocksCallStatus {
    fn new() -> Self {
        Self {
            code: 0,
            subcode: 0,
            message: [0; 254],
        }
    }

    /// Returns the error that a function of the shim reported, or `Ok` if its code is 0.
    fn status_to_result(&self) -> Result<(), RocksError> {
        if self.code == 0 {
            return Ok(());
        }
        // SAFETY: each function of rocks.cc ends it with a NUL.
        let message = unsafe { CStr::from_ptr(self.message.as_ptr()) };
        Err(RocksError {
            code: self.code,
            subcode: self.subcode,
            message: message.to_string_lossy().into_owned(),
        })
    }
}

/// Makes a call that reports a status.
fn call_with_rocks_status<T>(
    call: impl FnOnce(&mut ffi::RocksCallStatus) -> T,
) -> Result<T, RocksError> {
    let mut status = ffi::RocksCallStatus::new();
    let made = call(&mut status);
    status.status_to_result().map(|()| made)
}

impl From<&[u8]> for ffi::ByteSlice {
    fn from(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            size: bytes.len(),
        }
    }
}

/// The options with which a column family is opened: its size limit and its buffers.
#[derive(Clone, Copy, Debug)]
pub struct FamilyOptions {
    /// Name of the family; the first one is `default`.
    pub name: &'static str,
    /// Maximum bytes of SST files, beyond which the oldest are dropped; 0: levelled compaction,
    /// which drops none.
    pub fifo_size: u64,
    /// Bytes at which a flush begins, approximately.
    pub write_buffer: u64,
    /// Upper bound of the bytes that are written between two flushes; at this size RocksDB would
    /// flush by itself.
    pub memtable: u64,
    /// Maximum bytes of a compacted SST file, with `fifo_size`.
    pub joined: u64,
}

/// A change of one row in a batch, all of whose changes are written or none.
#[derive(Clone, Copy, Debug)]
pub enum RowChange<'a> {
    /// Stores a value, whose parts are concatenated.
    Put {
        /// Number of the family, in the order of opening.
        family: usize,
        /// Key in the family.
        key: &'a [u8],
        /// Parts of the value.
        value: [&'a [u8]; 2],
    },
    /// Removes a row.
    Remove {
        /// Number of the family, in the order of opening.
        family: usize,
        /// Key in the family.
        key: &'a [u8],
    },
}

/// The size, age and sequence numbers of one SST file of a column family.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SstFile {
    /// Size on disk in bytes.
    pub size: u64,
    /// Sequence number of the oldest write in it.
    pub smallest_sequence: u64,
    /// Sequence number of the newest write in it.
    pub largest_sequence: u64,
    /// Time of the flush or compaction that created it, in seconds since 1970; no write in it is
    /// newer. 0 if it is unknown.
    pub made: u64,
}

/// The numbers of bytes that RocksDB has written since the database was opened, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RocksWrittenBytes {
    /// Bytes written to the write-ahead log.
    #[serde(rename = "written_wal")]
    pub wal: u64,
    /// Bytes written by flushes of memtables.
    #[serde(rename = "written_flush")]
    pub flush: u64,
    /// Bytes written by compactions of SST files.
    #[serde(rename = "written_compaction")]
    pub compaction: u64,
}

/// An open RocksDB database, which its last owner closes.
#[derive(Debug)]
pub struct RocksDatabase {
    db: NonNull<ffi::Database>,
    /// Lock file, which is closed after the database.
    _lock: Option<File>,
}

// SAFETY: rocksdb::DB and the other members of the shim's struct may be used by any number of
// threads (db.h), and closed by any one.
unsafe impl Send for RocksDatabase {}
// SAFETY: as above.
unsafe impl Sync for RocksDatabase {}

/// Creates RocksDB's static objects, for a process that will register a handler with `atexit`: the
/// handler then runs before they are destroyed.
pub fn prepare_rocks_statics() {
    // SAFETY: it has no arguments, and may be called by any thread.
    unsafe { ffi::sszip_rocks_prepare() };
}

impl RocksDatabase {
    /// Opens the database at `path`. With `create`, missing parts are created.
    pub fn open_database(
        path: &Path,
        families: &[FamilyOptions],
        block_cache: u64,
        create: bool,
    ) -> Result<Self, RocksError> {
        let families: Vec<_> = families
            .iter()
            .map(|family| ffi::RawColumnFamilyOptions {
                name: family.name.as_bytes().into(),
                fifo_size: family.fifo_size,
                write_buffer: family.write_buffer,
                memtable: family.memtable,
                joined: family.joined,
            })
            .collect();
        let options = ffi::RawOpenOptions {
            path: path.as_os_str().as_encoded_bytes().into(),
            families: families.as_ptr(),
            family_count: families.len(),
            block_cache,
            create: create.into(),
        };
        // SAFETY: all that `options` points to lives until the call is over.
        let db =
            call_with_rocks_status(|status| unsafe { ffi::sszip_rocks_open(&options, status) })?;
        NonNull::new(db)
            .map(|db| Self { db, _lock: None })
            .ok_or_else(|| RocksError::from_message("no database and no error"))
    }

    /// Keeps a lock file open until the database is closed.
    pub fn retain_lock_until_close(&mut self, lock: File) {
        self._lock = Some(lock);
    }

    /// Writes all of `writes` or none to the memtables, and with `wal` to the write-ahead log.
    /// Fails ([`RocksError::is_write_stalled`]) instead of waiting for a flush.
    pub fn write(&self, writes: &[RowChange<'_>], wal: bool) -> Result<(), RocksError> {
        let empty = ffi::ByteSlice::from(&[][..]);
        let writes: Vec<_> = writes
            .iter()
            .map(|write| match *write {
                RowChange::Put { family, key, value } => ffi::RowWrite {
                    family: family as u32,
                    remove: 0,
                    key: key.into(),
                    value: value.map(ffi::ByteSlice::from),
                },
                RowChange::Remove { family, key } => ffi::RowWrite {
                    family: family as u32,
                    remove: 1,
                    key: key.into(),
                    value: [empty; 2],
                },
            })
            .collect();
        let (all, count) = (writes.as_ptr(), writes.len());
        // SAFETY: RocksDB copies what the batch points to before it returns.
        call_with_rocks_status(|status| unsafe {
            ffi::sszip_rocks_write(self.db, all, count, wal.into(), status);
        })
    }

    /// Changes [`FamilyOptions::fifo_size`] of a family that had one, and whether its SST files are
    /// compacted.
    pub fn set_fifo_compaction_options(
        &self,
        family: usize,
        size: u64,
        joins: bool,
    ) -> Result<(), RocksError> {
        // SAFETY: the database is open as long as `self` lives.
        call_with_rocks_status(|status| unsafe {
            ffi::sszip_rocks_set_fifo(self.db, family as u32, size, joins.into(), status);
        })
    }

    /// Drops the oldest SST files of a FIFO family that were created before `made` (seconds since
    /// 1970), and returns their number. Files in a compaction stay.
    pub fn drop_sst_files_before(&self, family: usize, made: u64) -> Result<usize, RocksError> {
        // SAFETY: the database is open as long as `self` lives.
        call_with_rocks_status(|status| unsafe {
            ffi::sszip_rocks_drop_before(self.db, family as u32, made, status)
        })
    }

    /// Returns the value of `key` in `family`, pinned in RocksDB's memory. It keeps the database
    /// open. With `ready`, a value that is neither in memory nor in the page cache is an error, and
    /// the call never waits for the disk.
    pub fn get(
        self: &Arc<Self>,
        family: usize,
        key: &[u8],
        ready: bool,
    ) -> Result<Option<PinnedValue>, RocksError> {
        let mut status = ffi::RocksCallStatus::new();
        let mut bytes = ffi::ByteSlice::from(&[][..]);
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
            Some(value) => Ok(Some(PinnedValue {
                value,
                bytes,
                _db: Arc::clone(self),
            })),
            None if status.code == 1 => Ok(None), // kNotFound
            None => status.status_to_result().map(|()| None),
        }
    }

    /// Writes the memtables of all families to disk atomically. Flushes run one after another.
    pub fn flush(&self) -> Result<(), RocksError> {
        self.call_shim(ffi::sszip_rocks_flush)
    }

    /// Begins a flush of all families without waiting. Returns `false` if one is in progress.
    pub fn begin_flush(&self) -> Result<bool, RocksError> {
        // SAFETY: the database is open as long as `self` lives.
        let begun = call_with_rocks_status(|status| unsafe {
            ffi::sszip_rocks_begin_flush(self.db, status)
        })?;
        Ok(begun != 0)
    }

    /// Resumes writing after a background error, with a flush. RocksDB does not retry by itself.
    pub fn resume_database_writes(&self) -> Result<(), RocksError> {
        self.call_shim(ffi::sszip_rocks_resume)
    }

    /// Returns the background error that keeps RocksDB from writing, if there is one.
    pub fn background_error(&self) -> Option<RocksError> {
        self.call_shim(ffi::sszip_rocks_background).err()
    }

    fn call_shim(
        &self,
        function: unsafe extern "C" fn(NonNull<ffi::Database>, *mut ffi::RocksCallStatus),
    ) -> Result<(), RocksError> {
        // SAFETY: the database is open as long as `self` lives.
        call_with_rocks_status(|status| unsafe { function(self.db, status) })
    }

    /// Returns the rows of `family` from `from` up to, but not including, `to`.
    pub fn iterate_key_range(
        &self,
        family: usize,
        from: &[u8],
        to: &[u8],
    ) -> Result<RowIterator<'_>, RocksError> {
        let (from, to) = (from.into(), to.into());
        // an iterator of a failed call is freed
        let rows = call_with_rocks_status(|status| {
            // SAFETY: both bounds are copied before the call returns.
            let iterator =
                unsafe { ffi::sszip_rocks_iterate(self.db, family as u32, &from, &to, status) };
            NonNull::new(iterator).map(|iterator| RowIterator {
                iterator,
                first: true,
                _db: PhantomData,
            })
        })?;
        rows.ok_or_else(|| RocksError::from_message("no iterator and no error"))
    }

    /// Returns the SST files of `family`, the newest first.
    pub fn sst_files(&self, family: usize) -> Vec<SstFile> {
        let mut tables = vec![SstFile::default(); 256];
        loop {
            // SAFETY: there is space for the given number of files.
            let count = unsafe {
                ffi::sszip_rocks_files(self.db, family as u32, tables.as_mut_ptr(), tables.len())
            };
            if count <= tables.len() {
                tables.truncate(count);
                return tables;
            }
            // there may be more files at the next call
            tables.resize(count * 2, SstFile::default());
        }
    }

    /// Returns the sequence number of the newest write. Numbers only grow, but numbers of writes
    /// that a crash has lost are reused.
    pub fn newest_write_sequence(&self) -> u64 {
        // SAFETY: the database is open as long as `self` lives.
        unsafe { ffi::sszip_rocks_sequence(self.db) }
    }

    /// Whether `key` may be in `family`. It reads memory only, and never waits.
    pub fn may_contain_key(&self, family: usize, key: &[u8]) -> bool {
        // SAFETY: the key is read before the call returns.
        unsafe { ffi::sszip_rocks_may_have(self.db, family as u32, &key.into()) != 0 }
    }

    /// Returns a numeric property of `family` (db.h); 0 if it is unknown.
    pub fn rocks_family_property(&self, family: usize, name: &str) -> u64 {
        // SAFETY: the name is read before the call returns.
        unsafe { ffi::sszip_rocks_property(self.db, family as u32, &name.as_bytes().into()) }
    }

    /// Returns the bytes written since the database was opened.
    pub fn rocks_written_bytes(&self) -> RocksWrittenBytes {
        let mut out = [0; 3];
        // SAFETY: `out` has the three elements that are written.
        unsafe { ffi::sszip_rocks_written(self.db, &mut out) };
        let [wal, flush, compaction] = out;
        RocksWrittenBytes {
            wal,
            flush,
            compaction,
        }
    }

    /// Writes to the directory `to` what a power cut would leave now: with the file names that were
    /// synced or, without `synced_names`, with all names. Returns `false` if that failed, or if
    /// `SSZIP_POWER_CUTS` was not set when the database was opened.
    #[cfg(feature = "faults")]
    pub fn power_cut(&self, to: &Path, synced_names: bool) -> bool {
        let to = to.as_os_str().as_encoded_bytes().into();
        // SAFETY: the path is read before the call returns.
        unsafe { ffi::sszip_rocks_power_cut(self.db, &to, synced_names.into()) != 0 }
    }
}

impl Drop for RocksDatabase {
    fn drop(&mut self) {
        let mut status = ffi::RocksCallStatus::new();
        // SAFETY: the database has no other user, and is closed once. Callers that need the error
        // flush before.
        unsafe { ffi::sszip_rocks_close(self.db, &mut status) };
    }
}

/// A value in RocksDB's memory: in a block of its cache, or in a read buffer.
#[derive(Debug)]
pub struct PinnedValue {
    value: NonNull<ffi::PinnedBytes>,
    bytes: ffi::ByteSlice,
    /// Database that owns the block.
    _db: Arc<RocksDatabase>,
}

// SAFETY: nothing in a PinnableSlice belongs to the thread that made it, and
// what it pins is counted atomically (cache.h).
unsafe impl Send for PinnedValue {}
// SAFETY: it is only read until it is dropped.
unsafe impl Sync for PinnedValue {}

impl Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.bytes.size == 0 {
            return &[];
        }
        // SAFETY: the bytes stay until the value is freed, by `drop`.
        unsafe { std::slice::from_raw_parts(self.bytes.data, self.bytes.size) }
    }
}

impl Drop for PinnedValue {
    fn drop(&mut self) {
        // SAFETY: ours since `get`, freed once, before the database.
        unsafe { ffi::sszip_rocks_value_free(self.value) }
    }
}

/// The key and the value of one row, valid until the iterator moves on.
pub type RocksRow<'a> = (&'a [u8], &'a [u8]);

/// An iterator over the rows of a column family in a range of keys, in the order of the keys.
#[derive(Debug)]
pub struct RowIterator<'a> {
    iterator: NonNull<ffi::RawIterator>,
    first: bool,
    _db: PhantomData<&'a RocksDatabase>,
}

impl RowIterator<'_> {
    /// Returns the next row, which is valid until the following call; `None` after the last.
    pub fn next_row(&mut self) -> Result<Option<RocksRow<'_>>, RocksError> {
        let mut status = ffi::RocksCallStatus::new();
        let (mut key, mut value) = (ffi::ByteSlice::from(&[][..]), ffi::ByteSlice::from(&[][..]));
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
            status.status_to_result()?;
            if found == 0 {
                return Ok(None);
            }
            let slice = |bytes: ffi::ByteSlice| match bytes.size {
                0 => &[][..],
                size => std::slice::from_raw_parts(bytes.data, size),
            };
            Ok(Some((slice(key), slice(value))))
        }
    }
}

impl Drop for RowIterator<'_> {
    fn drop(&mut self) {
        // SAFETY: ours since `rows`, freed once, before the database.
        unsafe { ffi::sszip_rocks_iterator_free(self.iterator) }
    }
}
