//! State of the process: its start, its logs and its event loop.

use super::config::{PROCESS, WOKEN};
use super::link;
use super::panic::{borrow, catch_panic, catch_panic_status};
use super::types::{sszip_status, sszip_str};
use super::validated_config::sszip_validated_config;
use crate::exchange::drive::OffLoopJob;
use crate::{allocator, exchange, gzip, log};

/// Prepares a worker process, one of `processes`, for a configuration. Changes
/// the process, not the configuration: creates the hot tier with the worker's
/// share of `cache_memory`, if a route caches; allocates what would otherwise
/// be allocated on first use, when memory may be exhausted; configures how the
/// C library retains freed memory; and joins the owner of a store, to which
/// the host opens the connections after `sszip_link_next_action`. Call it
/// after the last fork and before the first exchange; a second call for a
/// configuration has no effect. Without this call nothing is cached.
///
/// # Safety
/// `config` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_start(
    config: *const sszip_validated_config,
    processes: usize,
) -> sszip_status {
    catch_panic_status(|| {
        let config = borrow!(config);
        let mut routes = config.configs.iter().map(|route| &route.0);
        if let Some(route) = routes.find(|route| route.is_cache_enabled()) {
            let share = route.cache.memory / processes.max(1) as u64;
            route.process.shared.start_hot_tier(share, share, 1);
        }
        exchange::initialize_process_globals();
        allocator::configure_malloc();
        if config.plan.owner_socket().is_some() {
            link::connect_process_to_owner(&config.plan);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns the names of the codec libraries in use on this machine, for logs.
/// Static. Call it after the last fork.
#[no_mangle]
pub extern "C" fn sszip_coders() -> sszip_str {
    let text: &[u8] = match gzip::has_isal() {
        true => b"ISA-L",
        false => b"libdeflate and zlib-rs (ISA-L, libisal.so.2, is not there)",
    };
    sszip_str::from_bytes(text)
}

/// Returns the maximum number of jobs that a process should run at a time; the
/// host queues the others. 1 if the library fails inside. Call it after the
/// last fork, when the process is bound to its processors.
#[no_mangle]
pub extern "C" fn sszip_max_running_jobs() -> usize {
    catch_panic(OffLoopJob::max_concurrent_jobs).unwrap_or(1)
}

/// Returns the `waiter` of a waiting request whose lookup is to be repeated,
/// once; 0: there is none. The waiter of a freed or detached exchange is not
/// returned. Call it until it returns 0 after each call that may end a wait:
/// for an exchange or a job that stores a response or ends, and of the section
/// Owner link.
#[no_mangle]
pub extern "C" fn sszip_next_wakeup() -> usize {
    catch_panic(|| WOKEN.next_woken_id()).flatten().unwrap_or(0)
}

/// Writes the next line for the error log about verified hits to `text`,
/// truncated to `size` bytes, and returns its length; 0: there is none. Each
/// line is written once. Call it until it returns 0 after a response was
/// stored.
///
/// # Safety
/// `text` is NULL, or `size` bytes can be written there.
#[no_mangle]
pub unsafe extern "C" fn sszip_next_log_line(text: *mut u8, size: usize) -> usize {
    let line = catch_panic(|| PROCESS.shared.verified.take_log_line()).flatten();
    let Some(line) = line.filter(|_| !text.is_null()) else {
        return 0;
    };
    let line = log::escape_log_text(&line);
    let length = line.len().min(size);
    // SAFETY: the function's contract; the line and the host's memory do not
    // overlap.
    unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), text, length) };
    length
}

/// Escapes text from other programs for a line of a log, so that it cannot
/// begin a new line or control a terminal. Writes it to `text`, truncated to
/// `size` bytes, and returns its length.
///
/// # Safety
/// `input` is a valid string; `text` is NULL, or `size` bytes can be written
/// there.
#[no_mangle]
pub unsafe extern "C" fn sszip_escape_log_text(
    input: sszip_str,
    text: *mut u8,
    size: usize,
) -> usize {
    // SAFETY: the function's contract.
    let line = catch_panic(|| log::escape_log_bytes(unsafe { input.borrow_bytes() }));
    let Some(line) = line.filter(|_| !text.is_null()) else {
        return 0;
    };
    let length = line.len().min(size);
    // SAFETY: the function's contract; the line and the host's memory do not
    // overlap.
    unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), text, length) };
    length
}
