//! The link to the cache's owner: the host opens the connections and carries
//! bytes.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use super::config::PROCESS;
use super::panic::{boundary, caught, give};
use super::types::{sszip_link_need, sszip_status, sszip_str};
use crate::cache::link::{Link, Need, News};
use crate::cache::process::ownership::Owner;
use crate::cache::tip_floor::{Floors, Table};
use crate::config::plan::Plan;

/// Joins this process to the owner of a store. What the owner sends beyond
/// the longest entry that the plan allows is not taken.
pub(super) fn join(plan: &Plan) {
    let link = LINK.get_or_init(|| Arc::new(Link::of_process(plan.max_entry())));
    link.set_deadline(plan.lookup_timeout());
    PROCESS.shared.join(Arc::clone(link) as Arc<dyn Owner>);
}

/// One for the process.
static LINK: OnceLock<Arc<Link>> = OnceLock::new();

fn link() -> Option<&'static Link> {
    LINK.get().map(|link| &**link)
}

/// The bytes of memory that tell all workers of a host which heads are over.
#[no_mangle]
pub extern "C" fn sszip_heads_length() -> usize {
    Table::LENGTH * size_of::<u64>()
}

/// Shares that memory with the host's other workers: to be called after the process is
/// configured, and before it serves.
///
/// # Safety
/// `memory` is NULL or `sszip_heads_length()` bytes that were zeroed before any process had
/// them, aligned for `uint64_t`, and that stay until the process ends.
#[no_mangle]
pub unsafe extern "C" fn sszip_heads_share(memory: *mut c_void) -> sszip_status {
    boundary(|| {
        let first: *const AtomicU64 = memory.cast_const().cast();
        if first.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        // SAFETY: not NULL; the function's contract; all that is done to it is atomic.
        let numbers = unsafe { std::slice::from_raw_parts(first, Table::LENGTH) };
        if let (Some(link), Some(table)) = (link(), Table::of(numbers)) {
            link.chains.share(Floors::Table(table));
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What the host is to do with the connection `slot`, a small number. To be
/// asked until `SSZIP_LINK_NOTHING` after each call that changes something:
/// look-ups, fills, frees and the other functions of the link.
///
/// # Safety
/// `slot` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_link_next(slot: *mut usize) -> sszip_link_need {
    let need = caught(|| link().and_then(Link::need));
    let (need, at) = match need.flatten() {
        Some(Need::Connect(at)) => (sszip_link_need::SSZIP_LINK_CONNECT, at),
        Some(Need::Write(at)) => (sszip_link_need::SSZIP_LINK_WRITE, at),
        Some(Need::Close(at)) => (sszip_link_need::SSZIP_LINK_CLOSE, at),
        Some(Need::Tick) => (sszip_link_need::SSZIP_LINK_TICK, 0),
        None => (sszip_link_need::SSZIP_LINK_NOTHING, 0),
    };
    if !slot.is_null() {
        // SAFETY: not NULL; the function's contract.
        unsafe { slot.write(at) };
    }
    need
}

/// The connection was tried at `now`; `opened`, an `sszip_link_opened`, says what
/// came of it.
#[no_mangle]
pub extern "C" fn sszip_link_connected(slot: usize, opened: u32, now: u64) -> sszip_status {
    boundary(|| {
        let (is_open, is_absent) = match opened {
            0 => (true, false),
            1 => (false, false),
            2 => (false, true),
            _ => return sszip_status::SSZIP_STATUS_MISUSE,
        };
        if let Some(link) = link() {
            if is_absent {
                link.absent(&PROCESS.shared, now);
            }
            link.connected(&PROCESS.shared, slot, is_open, now);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What is to be written to the connection: up to `room` pieces, one after the
/// other, and in `count` how many there are; 0: nothing is. Valid until the next
/// call of a function of the link.
///
/// # Safety
/// `out` points at memory for `room` of its type, `count` at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_link_output(
    slot: usize,
    out: *mut sszip_str,
    room: usize,
    count: *mut usize,
) -> sszip_status {
    boundary(|| {
        if out.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        let mut given = 0;
        if let Some(link) = link() {
            link.write(slot, |pieces| {
                for piece in pieces.take(room) {
                    // SAFETY: not NULL, and there is room: the contract.
                    unsafe { out.add(given).write(sszip_str::of(piece)) };
                    given += 1;
                }
                0
            });
        }
        give!(count, given);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// So many bytes of it are written.
#[no_mangle]
pub extern "C" fn sszip_link_written(slot: usize, bytes: usize) -> sszip_status {
    boundary(|| {
        if let Some(link) = link() {
            link.write(slot, |_| bytes);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Room for bytes from the connection, until the next call of a function of
/// the link.
///
/// # Errors
/// `SSZIP_STATUS_MISUSE`: there is none; close it.
///
/// # Safety
/// The results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_link_room(
    slot: usize,
    data: *mut *mut u8,
    len: *mut usize,
) -> sszip_status {
    boundary(|| {
        let mut room = (std::ptr::null_mut(), 0);
        let is_open = link().is_some_and(|link| {
            link.room(slot, |bytes| {
                room = (bytes.as_mut_ptr().cast::<u8>(), bytes.len());
            })
        });
        if !is_open {
            return sszip_status::SSZIP_STATUS_MISUSE;
        }
        give!(data, room.0);
        give!(len, room.1);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// So many bytes came into the room.
///
/// # Safety
/// They are written, and no other function of the link was called since
/// `sszip_link_room`.
#[no_mangle]
pub unsafe extern "C" fn sszip_link_filled(slot: usize, bytes: usize, now: u64) -> sszip_status {
    boundary(|| {
        if let Some(link) = link() {
            // SAFETY: the function's contract.
            unsafe { link.filled(&PROCESS.shared, slot, bytes, now) };
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The connection is closed, by the owner or by the host.
#[no_mangle]
pub extern "C" fn sszip_link_closed(slot: usize, now: u64) -> sszip_status {
    boundary(|| {
        if let Some(link) = link() {
            link.closed(&PROCESS.shared, slot, now);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Sends what was asked, ends what took too long, and says after how many
/// milliseconds it is to be called again at the latest; 0: never.
#[no_mangle]
pub extern "C" fn sszip_link_tick(now: u64) -> u64 {
    caught(|| link().map_or(0, |link| link.tick(&PROCESS.shared, now))).unwrap_or(0)
}

/// What the operator should know of the owner: once when it has not answered for
/// some seconds (`is_bad`), and when it answers again. To be asked after
/// `sszip_link_tick`; empty: nothing. Static; it goes on from the owner's name.
///
/// # Safety
/// `is_bad` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_link_news(now: u64, is_bad: *mut bool) -> sszip_str {
    let news = caught(|| link().and_then(|link| link.news(now))).flatten();
    let text = news.map_or("", News::text);
    if !is_bad.is_null() {
        // SAFETY: not NULL; the function's contract.
        unsafe { is_bad.write(news.is_some_and(News::is_bad)) };
    }
    sszip_str::of(text.as_bytes())
}
