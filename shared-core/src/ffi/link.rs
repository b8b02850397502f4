//! The link to the cache's owner: the host opens the connections and carries
//! bytes.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::config::{waiter_of, PROCESS};
use super::panic::{boundary, caught, give};
use super::types::{sszip_link_need, sszip_status, sszip_str};
use crate::cache::link::{problem, purge_request, Bounds, Link, Need};
use crate::cache::process::ownership::Owner;

/// Joins this process to the owner of a store, after any fork; a second call
/// changes nothing. `max_entry` is the longest entry that is kept anywhere, in
/// bytes: what the owner sends beyond it is not taken. `sszip_link_tick` opens
/// the connections.
#[no_mangle]
pub extern "C" fn sszip_link_start(max_entry: u64) -> sszip_status {
    boundary(|| {
        let link = LINK.get_or_init(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let started = since.unwrap_or_default().as_nanos();
            let name = format!("{}-{started:x}", std::process::id());
            let bounds = Bounds {
                // and its head
                max_body: usize::try_from(max_entry).map_or(usize::MAX, |most| most + (64 << 10)),
                ..Bounds::default()
            };
            Arc::new(Link::new(name, bounds))
        });
        PROCESS.shared.join(Arc::clone(link) as Arc<dyn Owner>);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// One for the process.
static LINK: OnceLock<Arc<Link>> = OnceLock::new();

fn link() -> Option<&'static Link> {
    LINK.get().map(|link| &**link)
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

/// Starts a purge: `query` says what of (docs/caching.md, Purging), `name_space` is the
/// namespace where it does not; NULL `data`: there is none. If `*status` is 0
/// then, `waiter`, not 0, is woken (`sszip_next_woken`) and is to call
/// `sszip_purge_claim`; otherwise that is the status of the answer, and its
/// body, JSON, is in `text`, cut to `size` bytes, of `*len`.
///
/// # Safety
/// `query` and `name_space` are valid strings; `text` points at `size` bytes,
/// the results at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_purge_start(
    query: sszip_str,
    name_space: sszip_str,
    waiter: usize,
    now: u64,
    status: *mut u16,
    text: *mut u8,
    size: usize,
    len: *mut usize,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let (query, own) = unsafe {
            let own = (!name_space.data.is_null()).then(|| name_space.bytes());
            (query.bytes(), own)
        };
        let Some(waiter) = waiter_of(waiter) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let (code, body) = match purge_request(query, own) {
            Err(bad) => (400, problem(400, &bad.to_string())),
            Ok(body) => match link().map(|link| link.purge(body, waiter, now)) {
                Some(true) => (0, String::new()),
                Some(false) => (503, problem(503, "memory is short: nothing is purged")),
                None => {
                    let detail = "this process has no link to a cache's owner: nothing is purged";
                    (503, problem(503, detail))
                }
            },
        };
        // SAFETY: the function's contract.
        unsafe { copy(body.as_bytes(), text, size, len) };
        give!(status, code);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What came of a purge, as `sszip_purge_start` gives it; the status is never
/// 0. To be called also by one that was not woken and goes.
///
/// # Safety
/// `text` points at `size` bytes, the results at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_purge_claim(
    waiter: usize,
    status: *mut u16,
    text: *mut u8,
    size: usize,
    len: *mut usize,
) -> sszip_status {
    boundary(|| {
        let Some(waiter) = waiter_of(waiter) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let claimed = link().and_then(|link| link.claim_purge(waiter));
        if let (Some(link), None) = (link(), &claimed) {
            link.forget(waiter);
            PROCESS.shared.forget(waiter);
        }
        let (code, body) = claimed.unwrap_or_else(|| {
            let text = "the cache's owner has not answered: the purge may hold or not";
            (504, problem(504, text).into())
        });
        // SAFETY: the function's contract.
        unsafe { copy(&body, text, size, len) };
        give!(status, code);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// # Safety
/// `to` points at `size` bytes, `len` at memory of its type.
unsafe fn copy(from: &[u8], to: *mut u8, size: usize, len: *mut usize) {
    let length = from.len().min(size);
    if !to.is_null() {
        // SAFETY: not NULL; the function's contract.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, length) };
    }
    if !len.is_null() {
        // SAFETY: not NULL; the function's contract.
        unsafe { len.write(length) };
    }
}

/// Whether the owner answers.
#[no_mangle]
pub extern "C" fn sszip_link_is_up() -> bool {
    caught(|| link().is_some_and(|link| link.is_up())).unwrap_or(false)
}
