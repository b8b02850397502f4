//! The C ABI, for a host that opens this library in a process it has for it.
//! `include/sszip_owner.h` is generated from this file and is its manual; a
//! test compares the two.
#![allow(non_camel_case_types)]

use std::collections::VecDeque;
use std::ffi::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sszip_core::config::follow::Follow;
use sszip_core::config::follows::from_json;

use crate::config::{Config, Time};
use crate::gate::Gate;
use crate::log::{Level, Log};
use crate::open::store;
use crate::run::{Running, State};

/// What `sszip_owner_abi` returns if this header fits the library.
pub const SSZIP_OWNER_ABI: u32 = 4;

/// Lines of the log that wait to be fetched; the oldest are dropped.
const MOST_LINES: usize = 256;

/// What an owner is doing. Values are never reused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_owner_state {
    /// Another owner has the store, or there is none to be had: it is tried
    /// again.
    SSZIP_OWNER_WAITING = 0,
    /// It serves.
    SSZIP_OWNER_SERVING = 1,
    /// It was stopped, and writes down what it has.
    SSZIP_OWNER_CLOSING = 2,
    /// It is over; without a stop only if it can't serve, as the log says.
    SSZIP_OWNER_ENDED = 3,
}

/// How much a line of the log matters. Values are never reused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_owner_level {
    /// Something to be expected.
    SSZIP_OWNER_NOTICE = 0,
    /// Somebody should look at it.
    SSZIP_OWNER_ERROR = 1,
}

/// What an owner is to be. Zero means the default where one is named.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_owner_config {
    /// sizeof(sszip_owner_config).
    pub size: usize,
    /// Where it listens: an absolute path. Only this process's user may
    /// connect.
    pub socket: *const c_char,
    /// Bytes of it.
    pub socket_len: usize,
    /// The store's folder: an absolute path. It is made if need be.
    pub path: *const c_char,
    /// Bytes of it.
    pub path_len: usize,
    /// What the store may take on disk, in bytes; 10 GiB.
    pub max_size: u64,
    /// What entries may take in memory, in bytes; 256 MiB.
    pub memory: u64,
    /// The longest entry, in bytes; 64 MiB.
    pub max_entry: u64,
    /// Threads that serve; 1.
    pub threads: u32,
    /// How long a connection may say nothing, in milliseconds; a minute.
    pub idle_timeout: u64,
    /// How often what the store has in memory is written down, in
    /// milliseconds; a minute.
    pub flush_interval: u64,
    /// For how long what nobody asks for is kept, in milliseconds; for as long
    /// as there is room.
    pub inactive: u64,
    /// Not zero: entries that never change are not made smaller before they go
    /// to the disk.
    pub no_recompress: u8,
    /// The nodes that are followed, one for a namespace; none. JSON: an array
    /// that has for each an array of strings, the name of the namespace and
    /// then the words of README's sszip_cache_head:
    /// [["mainnet", "http://127.0.0.1:8545", "interval=500ms"]].
    pub heads: *const c_char,
    /// Bytes of it.
    pub heads_len: usize,
}

type Lines = Arc<Mutex<VecDeque<(Level, String)>>>;

/// An owner that was started.
pub struct sszip_owner {
    running: Running,
    gate: Gate,
    lines: Lines,
}

/// The ABI that the library has: it must be SSZIP_OWNER_ABI.
#[no_mangle]
pub extern "C" fn sszip_owner_abi() -> u32 {
    SSZIP_OWNER_ABI
}

/// The version that the library is of, ended by NUL; there since ABI 4. Static.
#[no_mangle]
pub extern "C" fn sszip_owner_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Starts an owner, in threads that take no signals, and returns at once. To
/// be called after any fork; the process must not fork afterwards. NULL if
/// that fails; `error`, of `error_size` bytes, says why then, ended by NUL.
///
/// # Safety
/// As the header says: `config` points at a sszip_owner_config whose strings
/// are readable; `error` at so many writable bytes, or it is NULL and the size
/// 0.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_start(
    config: *const sszip_owner_config,
    error: *mut c_char,
    error_size: usize,
) -> *mut sszip_owner {
    let started = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise.
        unsafe { start(config) }
    }));
    let text = match started {
        Ok(Ok(owner)) => return Box::into_raw(Box::new(owner)),
        Ok(Err(text)) => text,
        Err(_) => "the library failed inside".into(),
    };
    // SAFETY: the caller's promise.
    unsafe { write_text(&text, error, error_size) };
    ptr::null_mut()
}

/// What it is doing. SSZIP_OWNER_ENDED for NULL. An attempt to open the store
/// begins while this is called, and only then, and is waited for, so that the
/// process does not exit meanwhile: to be called until it serves, and now and
/// then. Until it does a call takes as long as an attempt, but not more than
/// `limit` milliseconds, of which 10 are enough to begin one. With fewer than it
/// takes the process has to stop the owner before it exits. A handler of atexit
/// that is to stop it has to be registered when it serves.
///
/// # Safety
/// `owner` is NULL or from sszip_owner_start, and was not stopped.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_poll(
    owner: *const sszip_owner,
    limit: u64,
) -> sszip_owner_state {
    // SAFETY: the caller's promise.
    let Some(owner) = (unsafe { owner.as_ref() }) else {
        return sszip_owner_state::SSZIP_OWNER_ENDED;
    };
    let limit = Duration::from_millis(limit);
    if owner.running.state() == State::Waiting && owner.gate.wait(limit) {
        owner.running.wait_while_waiting(limit);
    }
    match owner.running.state() {
        State::Waiting => sszip_owner_state::SSZIP_OWNER_WAITING,
        State::Serving => sszip_owner_state::SSZIP_OWNER_SERVING,
        State::Closing => sszip_owner_state::SSZIP_OWNER_CLOSING,
        State::Ended => sszip_owner_state::SSZIP_OWNER_ENDED,
    }
}

/// Takes the oldest line of its log: whether there was one. It is written to
/// `line`, of `line_size` bytes, and ended by NUL; what is beyond is cut off.
/// Never waits; to be called now and then.
///
/// # Safety
/// `owner` is NULL or from sszip_owner_start, and was not stopped; `level` and
/// `line` are writable.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_log(
    owner: *const sszip_owner,
    level: *mut sszip_owner_level,
    line: *mut c_char,
    line_size: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let Some(owner) = (unsafe { owner.as_ref() }) else {
        return false;
    };
    let next = owner
        .lines
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop_front();
    let Some((said, text)) = next else {
        return false;
    };
    let said = match said {
        Level::Notice => sszip_owner_level::SSZIP_OWNER_NOTICE,
        Level::Error => sszip_owner_level::SSZIP_OWNER_ERROR,
    };
    // SAFETY: the caller's promise.
    unsafe {
        if !level.is_null() {
            level.write(said);
        }
        write_text(&text, line, line_size);
    }
    true
}

/// Asks it to end, and returns at once: sszip_owner_poll says when it has.
///
/// # Safety
/// `owner` is NULL or from sszip_owner_start, and was not stopped.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_end(owner: *const sszip_owner) {
    // SAFETY: the caller's promise.
    if let Some(owner) = unsafe { owner.as_ref() } {
        owner.running.stop();
    }
}

/// Ends it: what it has in memory is stored, and the socket removed. Waits for
/// `limit` milliseconds at most; false if it has not ended by then, and goes on
/// ending: the process should exit. `owner` must not be used any more in any
/// case. NULL has ended.
///
/// # Safety
/// `owner` is NULL or from sszip_owner_start, and was not stopped.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_stop(owner: *mut sszip_owner, limit: u64) -> bool {
    if owner.is_null() {
        return true;
    }
    // SAFETY: not NULL; from Box::into_raw, and given up by the caller.
    let mut owner = unsafe { Box::from_raw(owner) };
    catch_unwind(AssertUnwindSafe(|| {
        owner.running.join(Duration::from_millis(limit))
    }))
    .unwrap_or(false)
}

/// # Safety
/// As `sszip_owner_start`.
unsafe fn start(config: *const sszip_owner_config) -> Result<sszip_owner, String> {
    if config.is_null() {
        return Err("there is no configuration".into());
    }
    // SAFETY: not NULL; its first member, whatever the caller's header.
    let size = unsafe { ptr::addr_of!((*config).size).read() };
    if size != size_of::<sszip_owner_config>() {
        return Err("the configuration is that of another version".into());
    }
    // SAFETY: it has the size that it should have.
    let given = unsafe { config.read() };
    // SAFETY: the caller's promise.
    let (socket, path) = unsafe {
        (
            text(given.socket, given.socket_len, "socket")?,
            text(given.path, given.path_len, "path")?,
        )
    };
    let mut config = Config::of(PathBuf::from(socket), PathBuf::from(path));
    let or = |given: u64, default: u64| if given == 0 { default } else { given };
    config.max_size.0 = or(given.max_size, config.max_size.0);
    config.memory.0 = or(given.memory, config.memory.0);
    config.max_entry.0 = or(given.max_entry, config.max_entry.0);
    config.idle_timeout.0 = or(given.idle_timeout, config.idle_timeout.0);
    config.flush_interval.0 = or(given.flush_interval, config.flush_interval.0);
    config.inactive = (given.inactive != 0).then_some(Time(given.inactive));
    config.recompress = given.no_recompress == 0;
    // SAFETY: the caller's promise.
    config.follows = unsafe { follows(given.heads, given.heads_len)? };
    if given.threads != 0 {
        config.threads.0 = given.threads.min(64) as usize;
    }
    let lines = Lines::default();
    let log: Log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |level, line| {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == MOST_LINES {
                lines.pop_front();
            }
            lines.push_back((level, line.to_owned()));
        })
    };
    // the host may close it at its exit
    sszip_core::cache::store::rocks::prepare();
    let gate = Gate::default();
    let open = gate.guard(store(&config.path, config.max_size.0, Arc::clone(&log)));
    let running =
        Running::start(config.settings(), open, log).map_err(|error| error.to_string())?;
    Ok(sszip_owner {
        running,
        gate,
        lines,
    })
}

/// # Safety
/// `data` points at `length` readable bytes, or is NULL.
unsafe fn follows(data: *const c_char, length: usize) -> Result<Vec<(String, Follow)>, String> {
    if data.is_null() || length == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: not NULL; the caller's promise.
    from_json(unsafe { slice::from_raw_parts(data.cast::<u8>(), length) })
}

/// # Safety
/// `data` points at `length` readable bytes, or is NULL.
unsafe fn text(data: *const c_char, length: usize, name: &str) -> Result<String, String> {
    if data.is_null() || length == 0 {
        return Err(format!("{name} is missing"));
    }
    // SAFETY: not NULL; the caller's promise.
    let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), length) };
    match std::str::from_utf8(bytes) {
        Ok(text) if text.starts_with('/') && !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(format!("{name} is not an absolute path")),
    }
}

/// # Safety
/// `to` points at `size` writable bytes, or is NULL.
unsafe fn write_text(text: &str, to: *mut c_char, size: usize) {
    if to.is_null() || size == 0 {
        return;
    }
    let length = text.len().min(size - 1);
    // SAFETY: not NULL, and `length` and the NUL are within the size.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), to, length);
        to.add(length).write(0);
    }
}
