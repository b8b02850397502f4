//! The C ABI, for a host that opens this library in a process that it provides for it.
//! `include/sszip_owner.h` is generated from this file and is its manual; a test compares the two.
#![allow(non_camel_case_types)]

use std::collections::VecDeque;
use std::ffi::{c_char, c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use sszip_core::cache::owner_protocol::owner_message::LeaseReply;
use sszip_core::cache::CacheKey;
use sszip_core::config::fleet::FleetSettings;
use sszip_core::config::head_source::HeadSource;
use sszip_core::config::head_sources::head_sources_from_json;
use sszip_core::lock::{lock_ignoring_poison, write_ignoring_poison};
use sszip_core::log::escape_log_text;

use crate::config::OwnerConfig;
use crate::direct_calls::{DirectCalls, FoundBytes};
use crate::log::{LogFunction, LogLevel};
use crate::open_gate::StoreOpenAttemptGate;
use crate::open_store::create_store_opener;
use crate::owner_lifecycle::{OwnerLifecycleStage, RunningOwnerHandle};

/// The value that `sszip_owner_abi` returns if this header fits the library.
pub const SSZIP_OWNER_ABI: u32 = 7;

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
    /// The fleet through which entries are shared; default none. JSON: an
    /// object as sszip_validated_config_store returns it, whose member `url`
    /// is an argument of the directive sszip_cache_fleet.
    pub fleet: *const c_char,
    /// Length of `fleet` in bytes.
    pub fleet_len: usize,
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

/// The direct calls of the owner that was started last. `OWNER` is locked for too long.
static DIRECT_CALLS: RwLock<Option<Arc<DirectCalls>>> = RwLock::new(None);

/// The result of a direct lookup. Values are never reused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_owner_lookup_result {
    /// The call was not handled: send the lookup over a connection.
    SSZIP_OWNER_NOT_HANDLED = 0,
    /// The entry exists, and was passed to the function.
    SSZIP_OWNER_FOUND = 1,
    /// The entry is absent, and no lease was requested.
    SSZIP_OWNER_MISSING = 2,
    /// The entry is absent, and the process has the lease.
    SSZIP_OWNER_LEASE_GRANTED = 3,
    /// The entry is absent, and another process has the lease: an event follows.
    SSZIP_OWNER_LEASE_PENDING = 4,
    /// The entry is absent, and the maximum number of leases is reached.
    SSZIP_OWNER_LEASES_FULL = 5,
}

/// An entry that a direct lookup has found.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_owner_entry {
    /// Generation of the newest purge before the lookup.
    pub generation: u64,
    /// Remaining lifetime in milliseconds.
    pub fresh: u64,
    /// Milliseconds since the request was sent to the node.
    pub age: u64,
    /// The serialized entry, valid during the call.
    pub bytes: *const u8,
    /// Length of `bytes`.
    pub length: usize,
}

/// Receives the entry that a direct lookup has found, and the lookup's
/// `context`.
pub type sszip_owner_found =
    Option<unsafe extern "C" fn(context: *mut c_void, entry: *const sszip_owner_entry)>;

/// An entry that a direct call stores.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_owner_store {
    /// Head of the message Store (docs/owner-protocol.md).
    pub head: *const u8,
    /// Length of `head`.
    pub head_len: usize,
    /// First part of the serialized entry.
    pub first: *const u8,
    /// Length of `first`.
    pub first_len: usize,
    /// The rest of the serialized entry.
    pub rest: *const u8,
    /// Length of `rest`.
    pub rest_len: usize,
}

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

/// Looks up a key, of 32 bytes, for the session of this process with that
/// number, as the message Lookup does. `lease` is the maximum duration of the
/// lease that is requested if there is no entry, in milliseconds; 0: none is
/// requested. `fleet_wait` is the time for which the process can wait for an
/// entry of another machine, in milliseconds; 0: the response is not shared
/// between machines. An entry is passed to `found` before this returns.
///
/// Direct calls replace messages of a session that this process has opened over
/// a connection to the owner that runs in it (docs/owner-protocol.md, Direct
/// calls). They never wait, and any thread may make them at any time, also while
/// the owner starts and stops. Exist since ABI 6.
///
/// # Safety
/// `key` points at 32 readable bytes; `found` is a function that does not
/// unwind, or NULL.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_direct_lookup(
    session: u64,
    key: *const u8,
    lease: u32,
    fleet_wait: u16,
    found: sszip_owner_found,
    context: *mut c_void,
) -> sszip_owner_lookup_result {
    let (Some(found), false) = (found, key.is_null()) else {
        return sszip_owner_lookup_result::SSZIP_OWNER_NOT_HANDLED;
    };
    // SAFETY: not NULL; the caller's promise.
    let key = unsafe { key.cast::<CacheKey>().read() };
    let pass = |entry: FoundBytes<'_>| {
        let entry = sszip_owner_entry {
            generation: entry.generation,
            fresh: entry.fresh,
            age: entry.age,
            bytes: entry.bytes.as_ptr(),
            length: entry.bytes.len(),
        };
        // SAFETY: the caller's promise.
        unsafe { found(context, &raw const entry) };
    };
    let result = call_owner(|calls| calls.lookup(session, &key, lease, fleet_wait, pass));
    match result {
        None => sszip_owner_lookup_result::SSZIP_OWNER_NOT_HANDLED,
        Some(Ok(())) => sszip_owner_lookup_result::SSZIP_OWNER_FOUND,
        Some(Err(LeaseReply::NoLease)) => sszip_owner_lookup_result::SSZIP_OWNER_MISSING,
        Some(Err(LeaseReply::Granted)) => sszip_owner_lookup_result::SSZIP_OWNER_LEASE_GRANTED,
        Some(Err(LeaseReply::Pending)) => sszip_owner_lookup_result::SSZIP_OWNER_LEASE_PENDING,
        Some(Err(LeaseReply::Full)) => sszip_owner_lookup_result::SSZIP_OWNER_LEASES_FULL,
    }
}

/// Stores an entry that the session of this process with that number has
/// fetched, and ends its lease, as the message Store does; the owner copies the
/// entry. Returns false if the call was not handled: send the entry over a
/// connection. See sszip_owner_direct_lookup.
///
/// # Safety
/// `store` is NULL, or points at a sszip_owner_store whose parts are readable.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_direct_store(
    session: u64,
    store: *const sszip_owner_store,
) -> bool {
    if store.is_null() {
        return false;
    }
    // SAFETY: not NULL; the caller's promise.
    let (head, parts) = unsafe {
        let store = store.read();
        let head = readable_bytes(store.head, store.head_len);
        let first = readable_bytes(store.first, store.first_len);
        (head, [first, readable_bytes(store.rest, store.rest_len)])
    };
    call_owner(|calls| calls.store(session, head, parts).then_some(())).is_some()
}

/// Ends a lease of the session of this process with that number, on a key of 32
/// bytes, as the message Release does. Returns false if the call was not
/// handled: send the message over a connection. See sszip_owner_direct_lookup.
///
/// # Safety
/// `key` is NULL, or points at 32 readable bytes.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_direct_release(session: u64, key: *const u8) -> bool {
    if key.is_null() {
        return false;
    }
    // SAFETY: not NULL; the caller's promise.
    let key = unsafe { key.cast::<CacheKey>().read() };
    call_owner(|calls| calls.release(session, &key).then_some(())).is_some()
}

/// Calls the owner of this process, if there is one. A panic is a call that was not handled.
fn call_owner<T>(call: impl FnOnce(&DirectCalls) -> Option<T>) -> Option<T> {
    let calls = DIRECT_CALLS.try_read().ok()?;
    let calls = calls.as_deref()?;
    catch_unwind(AssertUnwindSafe(|| call(calls)))
        .ok()
        .flatten()
}

/// # Safety
/// `data` points at `length` readable bytes for as long as the slice is used, or is NULL.
unsafe fn readable_bytes<'a>(data: *const u8, length: usize) -> &'a [u8] {
    match data.is_null() {
        true => &[],
        // SAFETY: not NULL; the caller's promise.
        false => unsafe { slice::from_raw_parts(data, length) },
    }
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
    // SAFETY: the caller's promise.
    config.fleet = unsafe { parse_fleet_settings(settings.fleet, settings.fleet_len)? };
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
    *write_ignoring_poison(&DIRECT_CALLS) = Some(Arc::clone(running.direct_calls()));
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
unsafe fn parse_fleet_settings(
    data: *const c_char,
    length: usize,
) -> Result<Option<FleetSettings>, String> {
    if data.is_null() || length == 0 {
        return Ok(None);
    }
    // SAFETY: not NULL; the caller's promise.
    let json = unsafe { slice::from_raw_parts(data.cast::<u8>(), length) };
    FleetSettings::from_json(json).map(Some)
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
