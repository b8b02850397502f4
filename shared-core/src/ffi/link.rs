//! The link to the owner: the host opens the connection and carries the
//! bytes.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use super::config::PROCESS;
use super::panic::{catch_panic, catch_panic_status, check_results, write_result};
use super::types::{sszip_status, sszip_str};
use crate::cache::link::{LinkAction, OwnerHealthChange, OwnerLink};
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::tip_floor::{SharedTipFloorBackend, TipFloorTable};
use crate::config::validated::ValidatedConfig;

/// Result of opening a connection to the owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_connect_result {
    /// The connection is open, or its opening is in progress.
    SSZIP_CONNECT_OPEN = 0,
    /// The connection could not be opened.
    SSZIP_CONNECT_FAILED = 1,
    /// No process listens at the owner's address: the connection was refused,
    /// or the socket does not exist.
    SSZIP_CONNECT_REFUSED = 2,
}

/// Next action for the connection to the owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_link_action {
    /// No action is needed.
    SSZIP_LINK_NOTHING = 0,
    /// Open the connection, then call `sszip_link_connected`.
    SSZIP_LINK_CONNECT = 1,
    /// Write the pieces of `sszip_link_output`, and call
    /// `sszip_link_bytes_written` after each write, until there are none.
    SSZIP_LINK_WRITE = 2,
    /// Close the connection.
    SSZIP_LINK_CLOSE = 3,
    /// Call `sszip_link_tick`.
    SSZIP_LINK_TICK = 4,
}

/// Joins this process to the owner of a store. Replies that are longer than
/// the longest entry that the plan allows are refused.
pub(super) fn connect_process_to_owner(plan: &ValidatedConfig) {
    let link =
        LINK.get_or_init(|| Arc::new(OwnerLink::link_for_process(plan.largest_entry_limit())));
    link.set_lookup_timeout(plan.lookup_timeout());
    PROCESS
        .shared
        .set_owner_client(Arc::clone(link) as Arc<dyn OwnerClient>);
}

/// The process's only link.
static LINK: OnceLock<Arc<OwnerLink>> = OnceLock::new();

/// Returns the link to the owner, or `None` before it was created.
fn owner_link() -> Option<&'static OwnerLink> {
    LINK.get().map(|link| &**link)
}

/// Returns the size in bytes of the memory in which all workers of a host
/// share their tip floors.
#[no_mangle]
pub extern "C" fn sszip_tip_floors_size() -> usize {
    TipFloorTable::LENGTH * size_of::<u64>()
}

/// Attaches the memory in which the workers of the host share their tip
/// floors. Call it once, after `sszip_validated_config_start` and before the
/// first exchange; without an owner it has no effect. The memory is the
/// host's, and is used until the process ends.
///
/// # Safety
/// `memory` is NULL or `sszip_tip_floors_size()` bytes, aligned for
/// `uint64_t`, which were zero before the first process attached them and stay
/// until the process ends.
#[no_mangle]
pub unsafe extern "C" fn sszip_tip_floors_attach(memory: *mut c_void) -> sszip_status {
    catch_panic_status(|| {
        let first: *const AtomicU64 = memory.cast_const().cast();
        if first.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        // SAFETY: not NULL; the function's contract; every access to it is
        // atomic.
        let numbers = unsafe { std::slice::from_raw_parts(first, TipFloorTable::LENGTH) };
        if let (Some(link), Some(table)) =
            (owner_link(), TipFloorTable::from_zeroed_atomics(numbers))
        {
            link.chains
                .set_shared_tip_floors(SharedTipFloorBackend::Table(table));
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns the next action for the connection to the owner. Call it until it
/// returns `SSZIP_LINK_NOTHING`: after `sszip_validated_config_start`, after
/// each other function of this section, and after each call that may send a
/// request to the owner (a lookup, a purge, a call that stores a response, and
/// the end of an exchange or a job).
#[no_mangle]
pub extern "C" fn sszip_link_next_action() -> sszip_link_action {
    let action = catch_panic(|| owner_link().and_then(OwnerLink::next_action));
    match action.flatten() {
        Some(LinkAction::Connect) => sszip_link_action::SSZIP_LINK_CONNECT,
        Some(LinkAction::Write) => sszip_link_action::SSZIP_LINK_WRITE,
        Some(LinkAction::Close) => sszip_link_action::SSZIP_LINK_CLOSE,
        Some(LinkAction::Tick) => sszip_link_action::SSZIP_LINK_TICK,
        None => sszip_link_action::SSZIP_LINK_NOTHING,
    }
}

/// Reports the result of opening the connection, an `sszip_connect_result`, at
/// the time `now`.
#[no_mangle]
pub extern "C" fn sszip_link_connected(result: u32, now: u64) -> sszip_status {
    catch_panic_status(|| {
        let (is_open, is_absent) = match result {
            0 => (true, false),
            1 => (false, false),
            2 => (false, true),
            _ => return sszip_status::SSZIP_STATUS_MISUSE,
        };
        if let Some(link) = owner_link() {
            if is_absent {
                link.handle_connection_refused(&PROCESS.shared, now);
            }
            link.handle_connection_opened(&PROCESS.shared, is_open, now);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns the bytes to write to the connection at the time `now`: at most
/// `capacity` pieces, in order, in the host's array `out`, and their number in
/// `count`; 0: there is nothing to write. The pieces are valid until the next
/// call of a function of this section.
///
/// # Safety
/// `out` points at memory for `capacity` of its type, `count` at memory of its
/// type.
#[no_mangle]
pub unsafe extern "C" fn sszip_link_output(
    out: *mut sszip_str,
    capacity: usize,
    count: *mut usize,
    now: u64,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out, count);
        let mut written = 0;
        if let Some(link) = owner_link() {
            link.pass_unwritten_pieces(&PROCESS.shared, now, |pieces| {
                for piece in pieces.take(capacity) {
                    // SAFETY: not NULL, and there is room: the contract.
                    unsafe { out.add(written).write(sszip_str::from_bytes(piece)) };
                    written += 1;
                }
                0
            });
        }
        write_result!(count, written);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Reports that `bytes` bytes of the output were written.
#[no_mangle]
pub extern "C" fn sszip_link_bytes_written(bytes: usize) -> sszip_status {
    catch_panic_status(|| {
        if let Some(link) = owner_link() {
            link.report_written_bytes(bytes);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns the buffer into which the host reads from the connection: `len`
/// bytes of the library. Valid until the next call of a function of this
/// section.
///
/// # Errors
/// `SSZIP_STATUS_MISUSE`: there is no buffer; close the connection.
///
/// # Safety
/// The results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_link_read_buffer(
    data: *mut *mut u8,
    len: *mut usize,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(data, len);
        let mut room = (std::ptr::null_mut(), 0);
        let is_open = owner_link().is_some_and(|link| {
            link.pass_read_buffer(|bytes| {
                room = (bytes.as_mut_ptr(), bytes.len());
            })
        });
        if !is_open {
            return sszip_status::SSZIP_STATUS_MISUSE;
        }
        write_result!(data, room.0);
        write_result!(len, room.1);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Reports that `bytes` bytes were read into the buffer of
/// `sszip_link_read_buffer`. No other function of this section was called in
/// between.
#[no_mangle]
pub extern "C" fn sszip_link_bytes_read(bytes: usize, now: u64) -> sszip_status {
    catch_panic_status(|| {
        if let Some(link) = owner_link() {
            link.report_read_bytes(&PROCESS.shared, bytes, now);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Reports that the owner or the host closed the connection.
#[no_mangle]
pub extern "C" fn sszip_link_closed(now: u64) -> sszip_status {
    catch_panic_status(|| {
        if let Some(link) = owner_link() {
            link.handle_connection_closed(&PROCESS.shared, now);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Ends requests that took too long, and reopens the connection. Returns the
/// number of milliseconds after which it must be called again at the latest;
/// 0: no call is due.
#[no_mangle]
pub extern "C" fn sszip_link_tick(now: u64) -> u64 {
    catch_panic(|| owner_link().map_or(0, |link| link.tick(&PROCESS.shared, now))).unwrap_or(0)
}

/// Returns a change of the owner's health for the log: once when the owner has
/// not responded for some seconds, and once when it responds again; empty: no
/// change. Static; the text continues a line that begins with the owner's
/// name. Writes to `is_bad`, unless that is NULL, whether the owner does not
/// respond. Call it after `sszip_link_tick`.
///
/// # Safety
/// `is_bad` is NULL or points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_link_health_change(now: u64, is_bad: *mut bool) -> sszip_str {
    let change =
        catch_panic(|| owner_link().and_then(|link| link.take_owner_health_change(now))).flatten();
    let text = change.map_or("", OwnerHealthChange::owner_health_log_text);
    if !is_bad.is_null() {
        // SAFETY: not NULL; the function's contract.
        unsafe { is_bad.write(change.is_some_and(OwnerHealthChange::is_owner_outage)) };
    }
    sszip_str::from_bytes(text.as_bytes())
}
