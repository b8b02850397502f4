//! The C ABI, for a host that opens this library in a process it has for it.
//! `include/sszip_owner.h` is generated from this file and is its manual; a
//! test compares the two.
#![allow(non_camel_case_types)]

use std::collections::VecDeque;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sszip_core::config::follow::Follow;
use sszip_core::config::follows::from_json;
use sszip_core::lock::locked;
use sszip_core::log::escaped;

use crate::config::Config;
use crate::gate::Gate;
use crate::log::{Level, Log};
use crate::open::store;
use crate::run::{Running, State};

/// What `sszip_owner_abi` returns if this header fits the library.
pub const SSZIP_OWNER_ABI: u32 = 5;

/// Lines of the log that wait to be fetched; the oldest are dropped.
const MOST_LINES: usize = 256;

/// How soon the host is to call again: of an owner that serves, for its log; of
/// one that does not yet; and of one that failed.
const SERVES: Duration = Duration::from_millis(250);
const WAITS: Duration = Duration::from_millis(20);
const FAILED: Duration = Duration::from_secs(60);

/// For how long the store's opening holds a host that has nothing else to do,
/// and one that has: enough to begin an attempt.
const ALONE: Duration = Duration::from_secs(2);
const BUSY: Duration = Duration::from_millis(10);

/// For how long a process that exits is held: nginx's master kills after some
/// three seconds.
const STOP: Duration = Duration::from_secs(2);

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

/// Takes a line of the log, ended by NUL; valid during the call.
pub type sszip_owner_say =
    Option<unsafe extern "C" fn(level: sszip_owner_level, line: *const c_char)>;

/// An owner that was started.
struct Owner {
    running: Running,
    gate: Gate,
    lines: Lines,
}

/// The process's only one.
static OWNER: Mutex<Option<Owner>> = Mutex::new(None);

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

/// Starts the process's owner unless it runs, in threads that take no signals,
/// and takes it further: to be called after any fork, and again after as many
/// milliseconds as are returned; the process must not fork afterwards. `config`
/// is looked at only when one is started, which is tried again when it has
/// ended. What there is to log goes to `say`.
///
/// An attempt to open the store begins while this is called, and only then, and
/// is waited for, so that the process does not exit meanwhile: for two seconds
/// at most, or just long enough to begin one, if it has `others` to serve. Such a
/// process has to call sszip_owner_exit before it exits. A handler of atexit that
/// does so has to be registered when the owner runs, and again once it `serves`.
///
/// # Safety
/// As the header says: `config` points at a sszip_owner_config whose strings
/// are readable; `say` is a function, or NULL; `serves` is writable, or NULL.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_run(
    config: *const sszip_owner_config,
    others: bool,
    say: sszip_owner_say,
    serves: *mut bool,
) -> u64 {
    let mut own = locked(&OWNER);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        if own.is_none() {
            // SAFETY: the caller's promise.
            *own = Some(unsafe { start(config) }?);
        }
        Ok(go_on(&mut own, if others { BUSY } else { ALONE }, say))
    }));
    let ran = ran.unwrap_or_else(|_| Err("the library failed inside".into()));
    let (is_serving, after) = ran.unwrap_or_else(|text: String| {
        let line = format!("the store can't be started: {text}");
        tell(say, Level::Error, &line);
        (false, FAILED)
    });
    if !serves.is_null() {
        // SAFETY: not NULL; the caller's promise.
        unsafe { serves.write(is_serving) };
    }
    u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
}

/// Whether it serves, and how soon it wants to go on.
fn go_on(own: &mut Option<Owner>, limit: Duration, say: sszip_owner_say) -> (bool, Duration) {
    let Some(owner) = own else {
        return (false, FAILED);
    };
    if owner.running.state() == State::Waiting && owner.gate.wait(limit) {
        owner.running.wait_while_waiting(limit);
    }
    let state = owner.running.state();
    owner.tell_all(say);
    match state {
        State::Serving => (true, SERVES),
        State::Waiting | State::Closing => (false, WAITS),
        State::Ended => {
            let _ = owner.running.join(Duration::ZERO);
            *own = None;
            (false, FAILED)
        }
    }
}

/// Ends the process's owner, if there is one: what it has in memory is stored,
/// and the socket removed. Waits for two seconds at most; false if it has not
/// ended by then, and goes on ending: the process has to exit without
/// destroying what its threads use.
///
/// # Safety
/// `say` is a function, or NULL.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_exit(say: sszip_owner_say) -> bool {
    let owner = locked(&OWNER).take();
    let Some(mut owner) = owner else {
        return true;
    };
    owner.tell_all(say);
    catch_unwind(AssertUnwindSafe(|| owner.running.join(STOP))).unwrap_or(false)
}

impl Owner {
    fn tell_all(&self, say: sszip_owner_say) {
        let next = || locked(&self.lines).pop_front();
        while let Some((level, line)) = next() {
            tell(say, level, &line);
        }
    }
}

fn tell(say: sszip_owner_say, level: Level, line: &str) {
    let (Some(say), Ok(line)) = (say, CString::new(&*escaped(line))) else {
        return;
    };
    let level = match level {
        Level::Notice => sszip_owner_level::SSZIP_OWNER_NOTICE,
        Level::Error => sszip_owner_level::SSZIP_OWNER_ERROR,
    };
    // SAFETY: the promise of who gave it.
    unsafe { say(level, line.as_ptr()) };
}

/// # Safety
/// As `sszip_owner_run`.
unsafe fn start(config: *const sszip_owner_config) -> Result<Owner, String> {
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
    config.max_size = or(given.max_size, config.max_size);
    config.memory = or(given.memory, config.memory);
    config.max_entry = or(given.max_entry, config.max_entry);
    config.idle_timeout = or(given.idle_timeout, config.idle_timeout);
    config.flush_interval = or(given.flush_interval, config.flush_interval);
    config.inactive = (given.inactive != 0).then_some(given.inactive);
    config.recompress = given.no_recompress == 0;
    // SAFETY: the caller's promise.
    config.follows = unsafe { follows(given.heads, given.heads_len)? };
    if given.threads != 0 {
        config.threads = given.threads.min(64) as usize;
    }
    let lines = Lines::default();
    let log: Log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |level, line| {
            let mut lines = locked(&lines);
            if lines.len() == MOST_LINES {
                lines.pop_front();
            }
            lines.push_back((level, line.to_owned()));
        })
    };
    // the host may close it at its exit
    sszip_core::cache::store::rocks::prepare();
    let gate = Gate::default();
    let open = gate.guard(store(&config.path, config.max_size, Arc::clone(&log)));
    let running = Running::start(config, open, log).map_err(|error| error.to_string())?;
    Ok(Owner {
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
