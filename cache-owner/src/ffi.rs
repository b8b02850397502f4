//! The C ABI, for a host that opens this library in a process that it provides for it.
//! `include/sszip_owner.h` is generated from this file and is its manual; a test compares the two.
#![allow(non_camel_case_types)]

use std::collections::VecDeque;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sszip_core::config::head_source::HeadSource;
use sszip_core::config::head_sources::head_sources_from_json;
use sszip_core::lock::lock_ignoring_poison;
use sszip_core::log::escape_log_text;

use crate::config::OwnerConfig;
use crate::log::{LogFunction, LogLevel};
use crate::open_gate::StoreOpenAttemptGate;
use crate::open_store::create_store_opener;
use crate::owner_lifecycle::{OwnerLifecycleStage, RunningOwnerHandle};

/// The value that `sszip_owner_abi` returns if this header fits the library.
pub const SSZIP_OWNER_ABI: u32 = 5;

/// Maximum number of log lines that wait to be fetched; the oldest are dropped.
const MOST_LINES: usize = 256;

/// Time until the host calls again: for an owner that serves, for its log; for one that does not
/// serve yet; and for one that failed.
const SERVING_INTERVAL: Duration = Duration::from_millis(250);
const WAITING_INTERVAL: Duration = Duration::from_millis(20);
const FAILED_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum time that a call waits for an attempt to open the store: for a host without other work,
/// and for one that serves others, which is enough to begin an attempt.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
const OPEN_TIMEOUT_WITH_OTHERS: Duration = Duration::from_millis(10);

/// Maximum time that a process waits at its exit: the master process of nginx kills its workers
/// after some three seconds.
const STOP: Duration = Duration::from_secs(2);

/// The severity of a log line. Values are never reused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_owner_level {
    /// A notice that needs no action.
    SSZIP_OWNER_NOTICE = 0,
    /// An error that an operator should look at.
    SSZIP_OWNER_ERROR = 1,
}

/// The settings of an owner. Zero means the default, if one is named.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_owner_config {
    /// sizeof(sszip_owner_config).
    pub size: usize,
    /// Absolute path of the socket. Only the user of this process may
    /// connect.
    pub socket: *const c_char,
    /// Length of `socket` in bytes.
    pub socket_len: usize,
    /// Absolute path of the store's directory, which is created if needed.
    pub path: *const c_char,
    /// Length of `path` in bytes.
    pub path_len: usize,
    /// Maximum size of the store on disk in bytes; default 10 GiB.
    pub max_size: u64,
    /// Maximum size of the entries in memory in bytes; default 256 MiB.
    pub memory: u64,
    /// Maximum length of an entry in bytes; default 64 MiB.
    pub max_entry: u64,
    /// Number of threads that serve; default 1.
    pub threads: u32,
    /// Idle timeout of a connection in milliseconds; default one minute.
    pub idle_timeout: u64,
    /// Interval between flushes of the store in milliseconds; default one
    /// minute.
    pub flush_interval: u64,
    /// Inactivity period in milliseconds after which entries are removed;
    /// by default they stay as long as there is space.
    pub inactive: u64,
    /// Not zero: entries that never change are not recompressed before they
    /// are written to disk.
    pub no_recompress: u8,
    /// The followed nodes, at most one per namespace; default none. JSON: an
    /// array with an array of strings per node, which has the name of the
    /// namespace and then the arguments of the directive sszip_cache_head
    /// (docs/directives.md):
    /// [["mainnet", "http://127.0.0.1:8545", "interval=500ms"]].
    pub heads: *const c_char,
    /// Length of `heads` in bytes.
    pub heads_len: usize,
}

/// The owner's log lines that wait until the host calls the library.
type LogQueue = Arc<Mutex<VecDeque<(LogLevel, String)>>>;

/// Receives a log line that ends with NUL and is valid during the call.
pub type sszip_owner_log =
    Option<unsafe extern "C" fn(level: sszip_owner_level, line: *const c_char)>;

/// The owner of this process from its start on, with its open gate and its queued log lines.
struct ProcessOwner {
    running: RunningOwnerHandle,
    gate: StoreOpenAttemptGate,
    lines: LogQueue,
}

/// The only owner of this process.
static OWNER: Mutex<Option<ProcessOwner>> = Mutex::new(None);

/// Returns the ABI of the library, which must be SSZIP_OWNER_ABI.
#[no_mangle]
pub extern "C" fn sszip_owner_abi() -> u32 {
    SSZIP_OWNER_ABI
}

/// Returns the version of the library, a static string that ends with NUL.
/// Exists since ABI 4.
#[no_mangle]
pub extern "C" fn sszip_owner_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Starts the owner of this process unless it runs, on threads that take no
/// signals, and advances it. The host calls this after any fork, and again
/// after the returned number of milliseconds; the process must not fork
/// afterwards. `config` is read only when an owner is started; when the owner
/// has ended, the next call starts one again. Log lines go to `log`.
///
/// An attempt to open the store begins only during this call, which waits for
/// it so that the process does not exit in the meantime: for two seconds at
/// most, or just long enough to begin an attempt if the process has `others` to
/// serve. Such a process must call sszip_owner_exit before it exits. An atexit
/// handler that does so must be registered when the owner runs, and again once
/// it `serves`.
///
/// # Safety
/// `config` points at a sszip_owner_config whose strings are readable; `log` is
/// a function, or NULL; `serves` is writable, or NULL.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_run(
    config: *const sszip_owner_config,
    others: bool,
    log: sszip_owner_log,
    serves: *mut bool,
) -> u64 {
    let mut own = lock_ignoring_poison(&OWNER);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        if own.is_none() {
            // SAFETY: the caller's promise.
            *own = Some(unsafe { start_owner_from_config(config) }?);
        }
        Ok(advance_owner_lifecycle(
            &mut own,
            if others {
                OPEN_TIMEOUT_WITH_OTHERS
            } else {
                OPEN_TIMEOUT
            },
            log,
        ))
    }));
    let ran = ran.unwrap_or_else(|_| Err("internal error".into()));
    let (is_serving, after) = ran.unwrap_or_else(|text: String| {
        let line = format!("cannot start the owner of the store: {text}");
        log_line(log, LogLevel::Error, &line);
        (false, FAILED_INTERVAL)
    });
    if !serves.is_null() {
        // SAFETY: not NULL; the caller's promise.
        unsafe { serves.write(is_serving) };
    }
    u64::try_from(after.as_millis()).unwrap_or(u64::MAX)
}

/// Waits for an attempt to open the store, logs, and removes an owner that has ended. Returns
/// whether the owner serves, and the time until the next call.
fn advance_owner_lifecycle(
    own: &mut Option<ProcessOwner>,
    limit: Duration,
    log: sszip_owner_log,
) -> (bool, Duration) {
    let Some(owner) = own else {
        return (false, FAILED_INTERVAL);
    };
    if owner.running.owner_lifecycle_state() == OwnerLifecycleStage::Waiting
        && owner.gate.wait_for_open_attempt(limit)
    {
        owner.running.wait_until_owner_serves(limit);
    }
    let state = owner.running.owner_lifecycle_state();
    owner.log_queued_lines(log);
    match state {
        OwnerLifecycleStage::Serving => (true, SERVING_INTERVAL),
        OwnerLifecycleStage::Waiting | OwnerLifecycleStage::Closing => (false, WAITING_INTERVAL),
        OwnerLifecycleStage::Ended => {
            let _ = owner.running.stop_owner_within(Duration::ZERO);
            *own = None;
            (false, FAILED_INTERVAL)
        }
    }
}

/// Stops the owner of this process, if there is one: the entries in its memory
/// are stored, and the socket is removed. Waits for two seconds at most. Returns
/// false if the owner has not ended by then; it continues to end, and the process
/// must exit without destroying what its threads use.
///
/// # Safety
/// `log` is a function, or NULL.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_exit(log: sszip_owner_log) -> bool {
    let owner = lock_ignoring_poison(&OWNER).take();
    let Some(mut owner) = owner else {
        return true;
    };
    owner.log_queued_lines(log);
    catch_unwind(AssertUnwindSafe(|| owner.running.stop_owner_within(STOP))).unwrap_or(false)
}

impl ProcessOwner {
    fn log_queued_lines(&self, log: sszip_owner_log) {
        let next = || lock_ignoring_poison(&self.lines).pop_front();
        while let Some((level, line)) = next() {
            log_line(log, level, &line);
        }
    }
}

fn log_line(log: sszip_owner_log, level: LogLevel, line: &str) {
    let (Some(log), Ok(line)) = (log, CString::new(&*escape_log_text(line))) else {
        return;
    };
    let level = match level {
        LogLevel::Notice => sszip_owner_level::SSZIP_OWNER_NOTICE,
        LogLevel::Error => sszip_owner_level::SSZIP_OWNER_ERROR,
    };
    // SAFETY: the promise of the caller that passed it.
    unsafe { log(level, line.as_ptr()) };
}

/// # Safety
/// The safety conditions of `sszip_owner_run`.
unsafe fn start_owner_from_config(
    config: *const sszip_owner_config,
) -> Result<ProcessOwner, String> {
    if config.is_null() {
        return Err("the configuration is missing".into());
    }
    // SAFETY: not NULL; the first member, for any version of the header.
    let size = unsafe { ptr::addr_of!((*config).size).read() };
    if size != size_of::<sszip_owner_config>() {
        return Err(
            "the configuration has the layout of another version; install module and \
                    library of one build"
                .into(),
        );
    }
    // SAFETY: it has the expected size.
    let settings = unsafe { config.read() };
    // SAFETY: the caller's promise.
    let (socket, path) = unsafe {
        (
            parse_absolute_path(settings.socket, settings.socket_len, "socket")?,
            parse_absolute_path(settings.path, settings.path_len, "path")?,
        )
    };
    let mut config =
        OwnerConfig::from_socket_and_store_paths(PathBuf::from(socket), PathBuf::from(path));
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    config.max_size = or(settings.max_size, config.max_size);
    config.memory = or(settings.memory, config.memory);
    config.max_entry = or(settings.max_entry, config.max_entry);
    config.idle_timeout = or(settings.idle_timeout, config.idle_timeout);
    config.flush_interval = or(settings.flush_interval, config.flush_interval);
    config.inactive = (settings.inactive != 0).then_some(settings.inactive);
    config.recompress = settings.no_recompress == 0;
    // SAFETY: the caller's promise.
    config.follows = unsafe { parse_head_sources(settings.heads, settings.heads_len)? };
    if settings.threads != 0 {
        config.threads = settings.threads.min(64) as usize;
    }
    let lines = LogQueue::default();
    let log: LogFunction = {
        let lines = Arc::clone(&lines);
        Arc::new(move |level, line| {
            let mut lines = lock_ignoring_poison(&lines);
            if lines.len() == MOST_LINES {
                lines.pop_front();
            }
            lines.push_back((level, line.to_owned()));
        })
    };
    // the host may close it at its exit
    sszip_core::cache::store::rocks::prepare_rocks_statics();
    let gate = StoreOpenAttemptGate::default();
    let open = gate.gate_store_opener(create_store_opener(
        &config.path,
        config.max_size,
        Arc::clone(&log),
    ));
    let running = RunningOwnerHandle::start_owner_threads(config, open, log)
        .map_err(|error| error.to_string())?;
    Ok(ProcessOwner {
        running,
        gate,
        lines,
    })
}

/// # Safety
/// `data` points at `length` readable bytes, or is NULL.
unsafe fn parse_head_sources(
    data: *const c_char,
    length: usize,
) -> Result<Vec<(String, HeadSource)>, String> {
    if data.is_null() || length == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: not NULL; the caller's promise.
    head_sources_from_json(unsafe { slice::from_raw_parts(data.cast::<u8>(), length) })
}

/// # Safety
/// `data` points at `length` readable bytes, or is NULL.
unsafe fn parse_absolute_path(
    data: *const c_char,
    length: usize,
    name: &str,
) -> Result<String, String> {
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
