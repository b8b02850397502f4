//! What workers count, and what is told of it.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::config::{waiter_of, PROCESS};
use super::exchange::{give_step, sszip_exchange};
use super::panic::{borrow_mut, borrow_sized, boundary, sized};
use super::types::{sszip_asked, sszip_status, sszip_step, sszip_str};
use crate::cache::process::Process;
use crate::exchange::Tell;
use crate::metrics::{gauges, Tally, GAUGES};
use crate::status::board::Board;

/// What there is at a time is shown at most that old, by a worker that has work.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// Where the workers of a host count.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_board {
    /// `sizeof(sszip_board)`, so that the struct may grow.
    pub size: usize,
    /// `sszip_board_length()` bytes that all of them share.
    pub memory: *mut c_void,
    /// Which of them this one is: no other that lives at that time has the same number.
    pub worker: usize,
    /// The host and its version: "nginx/1.22.1".
    pub host: sszip_str,
}

/// The bytes that counters take.
#[no_mangle]
pub extern "C" fn sszip_board_length() -> usize {
    Board::LENGTH * size_of::<u64>()
}

/// Before anything is counted in memory that is zeroed, or has counters already: those
/// stay if they are this version's.
///
/// # Safety
/// `memory` is NULL or that of [`sszip_board`], aligned for `uint64_t`, and used for
/// nothing else from here on.
#[no_mangle]
pub unsafe extern "C" fn sszip_board_begin(memory: *mut c_void) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        match unsafe { numbers(memory) }.and_then(|numbers| Board::begin(numbers, wall())) {
            Some(_) => sszip_status::SSZIP_STATUS_OK,
            None => sszip_status::SSZIP_STATUS_MISUSE,
        }
    })
}

fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// # Safety
/// As of [`sszip_board_begin`].
unsafe fn numbers(memory: *mut c_void) -> Option<&'static [AtomicU64]> {
    let first: *const AtomicU64 = memory.cast_const().cast();
    // SAFETY: the function's contract; all that is done to it is atomic.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, Board::LENGTH) })
}

/// Counts an exchange of which no more comes, once.
///
/// # Safety
/// `exchange` is NULL or valid; `board` is NULL or valid, and what it points at was begun.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_count(
    exchange: *mut sszip_exchange,
    board: *const sszip_board,
) -> sszip_status {
    thread_local! { static SHOWN: Cell<Option<Instant>> = const { Cell::new(None) } }
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { numbers(board.memory) }.and_then(Board::of) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let now = Instant::now();
        let elapsed = now.duration_since(exchange.since).as_micros();
        if let Some(tally) = exchange.driver.tally(u64::try_from(elapsed).ok()) {
            counters.count(board.worker, &tally);
        }
        if SHOWN.get().is_none_or(|shown| now >= shown + SHOWN_EVERY) {
            SHOWN.set(Some(now));
            show_open(exchange, counters, board.worker);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Counts the verified hits and upstream errors of the process since the last call, and the last
/// exchange that was counted, and shows what its requests take of memory and how many wait: no
/// client may come to this worker after that for long. To be called whenever the host's loop has handled an event that an exchange
/// may have ended with, and when a request begins to wait.
///
/// # Safety
/// `board` is as of `sszip_exchange_count`.
#[no_mangle]
pub unsafe extern "C" fn sszip_board_refresh(board: *const sszip_board) -> sszip_status {
    boundary(|| {
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { numbers(board.memory) }.and_then(Board::of) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        if let Some(tally) = Tally::of_process(&PROCESS.shared) {
            counters.count(board.worker, &tally);
        }
        counters.show_requests(board.worker, &PROCESS);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Shows that a worker has nothing in memory: to be called when it begins, since another one may
/// have died in its place, and when it ends. What it counted stays.
///
/// # Safety
/// `board` is as of `sszip_exchange_count`.
#[no_mangle]
pub unsafe extern "C" fn sszip_board_clear(board: *const sszip_board) -> sszip_status {
    boundary(|| {
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { numbers(board.memory) }.and_then(Board::of) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        counters.show(board.worker, [0; GAUGES.len()]);
        sszip_status::SSZIP_STATUS_OK
    })
}

fn show_open(exchange: &sszip_exchange, counters: Board, worker: usize) {
    if let Some(open) = exchange.driver.exchange() {
        show(&open.config().process, counters, worker);
    }
}

pub(super) fn show(process: &Process, counters: Board, worker: usize) {
    counters.show(worker, gauges(process, 0));
}

/// Where it is counted, and by which worker.
///
/// # Safety
/// As of [`sszip_exchange_count`].
pub(super) unsafe fn board_of(board: *const sszip_board) -> Result<(Board, usize), sszip_status> {
    // SAFETY: the function's contract.
    let board = unsafe { sized(board) }?;
    // SAFETY: the function's contract.
    let counters = unsafe { numbers(board.memory) }.and_then(Board::of);
    let counters = counters.ok_or(sszip_status::SSZIP_STATUS_MISUSE)?;
    Ok((counters, board.worker))
}

/// Answers a request to see how it all goes, instead of a look-up, and with steps of one.
/// `method` is the request's, and of `asked` `waiter` must not be 0.
///
/// # Safety
/// `exchange` is NULL or valid, `method` and `query` are valid strings; `asked` is NULL or
/// valid with all that it points at; `board` is as of `sszip_exchange_count`; `step` points
/// at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_tell_status(
    exchange: *mut sszip_exchange,
    method: sszip_str,
    query: sszip_str,
    asked: *const sszip_asked,
    board: *const sszip_board,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        let asked = borrow_sized!(asked);
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { numbers(board.memory) }.and_then(Board::of) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        show_open(exchange, counters, board.worker);
        // SAFETY: the function's contract.
        let told = unsafe {
            exchange.driver.tell_status(&Tell {
                method: method.bytes(),
                query: query.bytes(),
                host: &String::from_utf8_lossy(board.host.bytes()),
                board: counters,
                waiter: waiter_of(asked.waiter),
                now: asked.now,
                wall: wall(),
            })
        };
        // SAFETY: the function's contract.
        unsafe { give_step(told, step) }
    })
}
