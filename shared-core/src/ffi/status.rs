//! Metrics of workers, and the status page that reports them.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::config::{waiter_of, PROCESS};
use super::exchange::{sszip_exchange, write_step};
use super::panic::{borrow_mut, borrow_sized, boundary, sized};
use super::types::{sszip_lookup_request, sszip_status, sszip_step, sszip_str};
use crate::cache::process::Process;
use crate::exchange::StatusRequest;
use crate::metrics::{gauges, ExchangeTally, GAUGES};
use crate::status::board::MetricsBoard;

/// Maximum age of the gauges of a worker that has work.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// Shared memory in which the workers of a host count.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_metrics_board {
    /// `sizeof(sszip_metrics_board)`, so that the struct may grow.
    pub size: usize,
    /// `sszip_metrics_board_size()` bytes that all workers share. The host owns
    /// them.
    pub memory: *mut c_void,
    /// Number of this worker: no other live worker has the same.
    pub worker: usize,
    /// Name and version of the host: "nginx/1.22.1".
    pub host: sszip_str,
}

/// Returns the size in bytes of the memory that the counters occupy.
#[no_mangle]
pub extern "C" fn sszip_metrics_board_size() -> usize {
    MetricsBoard::LENGTH * size_of::<u64>()
}

/// Initializes the counters, before the first use. The memory is zeroed, or
/// contains counters already, which are kept if this version wrote them.
///
/// # Safety
/// `memory` is NULL or points at `sszip_metrics_board_size()` bytes, aligned for
/// `uint64_t`, which are used for nothing else from here on.
#[no_mangle]
pub unsafe extern "C" fn sszip_metrics_board_init(memory: *mut c_void) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        match unsafe { numbers(memory) }.and_then(|numbers| MetricsBoard::init(numbers, wall())) {
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
/// `memory` is NULL or points at the bytes of `sszip_metrics_board_size`, aligned
/// for `uint64_t`, which are used for nothing else.
unsafe fn numbers(memory: *mut c_void) -> Option<&'static [AtomicU64]> {
    let first: *const AtomicU64 = memory.cast_const().cast();
    // SAFETY: the function's contract; every access to it is atomic.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, MetricsBoard::LENGTH) })
}

/// Counts a finished exchange. Later calls for the same exchange count
/// nothing.
///
/// # Safety
/// `exchange` is NULL or valid; `board` is NULL or valid, and its memory was
/// passed to `sszip_metrics_board_init`.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_count(
    exchange: *mut sszip_exchange,
    board: *const sszip_metrics_board,
) -> sszip_status {
    thread_local! { static SHOWN: Cell<Option<Instant>> = const { Cell::new(None) } }
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { numbers(board.memory) }.and_then(MetricsBoard::attach) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let now = Instant::now();
        let elapsed = now.duration_since(exchange.since).as_micros();
        if let Some(tally) = exchange.driver.metrics(u64::try_from(elapsed).ok()) {
            counters.count(board.worker, &tally);
        }
        if SHOWN.get().is_none_or(|shown| now >= shown + SHOWN_EVERY) {
            SHOWN.set(Some(now));
            show_open(exchange, counters, board.worker);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Counts the verified hits and upstream errors of the process since the last
/// call, and updates the gauges of memory and of waiting requests, since no
/// client may come to this worker for a long time. Call it after each event of
/// the host's loop that may end an exchange, and when a request begins to
/// wait.
///
/// # Safety
/// `board` is NULL or valid, and its memory was passed to `sszip_metrics_board_init`.
#[no_mangle]
pub unsafe extern "C" fn sszip_metrics_board_set_gauges(
    board: *const sszip_metrics_board,
) -> sszip_status {
    boundary(|| {
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { numbers(board.memory) }.and_then(MetricsBoard::attach) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        if let Some(tally) = ExchangeTally::from_process(&PROCESS.shared) {
            counters.count(board.worker, &tally);
        }
        counters.set_request_gauges(board.worker, &PROCESS);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Resets the gauges of a worker, when it starts, since it may replace one
/// that died, and when it ends. The counters keep their values.
///
/// # Safety
/// `board` is NULL or valid, and its memory was passed to `sszip_metrics_board_init`.
#[no_mangle]
pub unsafe extern "C" fn sszip_board_clear(board: *const sszip_metrics_board) -> sszip_status {
    boundary(|| {
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { numbers(board.memory) }.and_then(MetricsBoard::attach) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        counters.set_gauges(board.worker, [0; GAUGES.len()]);
        sszip_status::SSZIP_STATUS_OK
    })
}

fn show_open(exchange: &sszip_exchange, counters: MetricsBoard, worker: usize) {
    if let Some(open) = exchange.driver.exchange() {
        show(&open.config().process, counters, worker);
    }
}

pub(super) fn show(process: &Process, counters: MetricsBoard, worker: usize) {
    counters.set_gauges(worker, gauges(process, 0));
}

/// Returns the counters of a board and the number of the worker.
///
/// # Safety
/// `board` is NULL or valid, and its memory was passed to `sszip_metrics_board_init`.
pub(super) unsafe fn board_of(
    board: *const sszip_metrics_board,
) -> Result<(MetricsBoard, usize), sszip_status> {
    // SAFETY: the function's contract.
    let board = unsafe { sized(board) }?;
    // SAFETY: the function's contract.
    let counters = unsafe { numbers(board.memory) }.and_then(MetricsBoard::attach);
    let counters = counters.ok_or(sszip_status::SSZIP_STATUS_MISUSE)?;
    Ok((counters, board.worker))
}

/// Responds to a status request, in place of a lookup and with its actions.
/// `method` is the request's method; `request->waiter` must not be 0.
///
/// # Safety
/// `exchange` is NULL or valid, `method` and `query` are valid strings;
/// `request` is NULL or valid with all that it points at; `board` is NULL or
/// valid, and its memory was passed to `sszip_metrics_board_init`; `step` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_report_status(
    exchange: *mut sszip_exchange,
    method: sszip_str,
    query: sszip_str,
    request: *const sszip_lookup_request,
    board: *const sszip_metrics_board,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        let request = borrow_sized!(request);
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { numbers(board.memory) }.and_then(MetricsBoard::attach) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        show_open(exchange, counters, board.worker);
        // SAFETY: the function's contract.
        let reported = unsafe {
            exchange.driver.report_status(&StatusRequest {
                method: method.bytes(),
                query: query.bytes(),
                host: &String::from_utf8_lossy(board.host.bytes()),
                board: counters,
                waiter: waiter_of(request.waiter),
                now: request.now,
                wall: wall(),
            })
        };
        // SAFETY: the function's contract.
        unsafe { write_step(reported, step) }
    })
}
