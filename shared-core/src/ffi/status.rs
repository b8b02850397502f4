//! Metrics of workers, and the status page that reports them.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::config::{request_waiter_from_id, PROCESS};
use super::exchange::{sszip_exchange, write_host_step};
use super::exchange_types::{sszip_lookup_request, sszip_step};
use super::panic::{
    borrow_mut, borrow_sized, borrow_struct_of_exact_size, catch_panic_status, check_results,
    write_result,
};
use super::types::{sszip_status, sszip_str};
use crate::cache::process::ProcessResources;
use crate::exchange::StatusPageRequest;
use crate::metrics::{gauge_values, ExchangeMetricsTally, GAUGES};
use crate::script::metrics::flat_metrics;
use crate::status::metrics_board::MetricsBoard;

/// Maximum age of the gauges of a worker that has work.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// Shared memory in which the workers of a host count, and the number of one
/// worker. Functions change the memory, not the struct.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_metrics_board {
    /// `sizeof(sszip_metrics_board)`, so that the struct may grow.
    pub size: usize,
    /// Memory that all workers share, initialized by
    /// `sszip_metrics_board_init`. The host owns it.
    pub memory: *mut c_void,
    /// Number of this worker. No other live worker has the same, and one
    /// thread at a time counts with it.
    pub worker: usize,
    /// Milliseconds of `CLOCK_MONOTONIC`, read for this call.
    pub now: u64,
    /// Name and version of the host: "nginx/1.22.1".
    pub host: sszip_str,
}

/// A metric of the host's workers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_metric {
    /// Name of the metric.
    pub name: sszip_str,
    /// Value of the metric.
    pub number: u64,
}

/// Returns the size in bytes of the memory that the counters occupy.
#[no_mangle]
pub extern "C" fn sszip_metrics_board_size() -> usize {
    MetricsBoard::LENGTH * size_of::<u64>()
}

/// Initializes the counters, before the first use. The memory is zeroed, or
/// contains counters already. Counters of this version of the library are
/// kept; otherwise they begin at 0, and their history at `now`. The memory is
/// the host's; the library uses it only in calls to which a
/// `sszip_metrics_board` with it is passed.
///
/// # Safety
/// `memory` is NULL or points at `sszip_metrics_board_size()` bytes, aligned
/// for `uint64_t`, which are used for nothing else as long as boards have it.
#[no_mangle]
pub unsafe extern "C" fn sszip_metrics_board_init(memory: *mut c_void, now: u64) -> sszip_status {
    catch_panic_status(|| {
        // SAFETY: the function's contract.
        let numbers = unsafe { borrow_board_memory(memory) };
        match numbers
            .and_then(|numbers| MetricsBoard::init_shared_board(numbers, unix_seconds(), now))
        {
            Some(_) => sszip_status::SSZIP_STATUS_OK,
            None => sszip_status::SSZIP_STATUS_NULL,
        }
    })
}

/// Returns the Unix time in seconds, or 0 before 1970.
fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Borrows the memory of a metrics board as its values; `None` if it is NULL.
///
/// # Safety
/// `memory` is NULL or points at the bytes of `sszip_metrics_board_size`,
/// aligned for `uint64_t`, which are used for nothing else.
unsafe fn borrow_board_memory(memory: *mut c_void) -> Option<&'static [AtomicU64]> {
    let first: *const AtomicU64 = memory.cast_const().cast();
    // SAFETY: the function's contract; every access to it is atomic.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, MetricsBoard::LENGTH) })
}

/// Counts a finished exchange. Later calls for the same exchange count
/// nothing.
///
/// # Safety
/// `exchange` is NULL or valid; `board` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_count(
    exchange: *mut sszip_exchange,
    board: *const sszip_metrics_board,
) -> sszip_status {
    thread_local! { static SHOWN: Cell<Option<Instant>> = const { Cell::new(None) } }
    catch_panic_status(|| {
        let exchange = borrow_mut!(exchange);
        // SAFETY: the function's contract.
        let (counters, board) = match unsafe { borrow_board(board) } {
            Ok(board) => board,
            Err(status) => return status,
        };
        let now = Instant::now();
        let elapsed = now.duration_since(exchange.since).as_micros();
        if let Some(tally) = exchange
            .driver
            .take_exchange_tally(u64::try_from(elapsed).ok())
        {
            counters.add_exchange(board.worker, &tally, board.now);
        }
        if SHOWN.get().is_none_or(|shown| now >= shown + SHOWN_EVERY) {
            SHOWN.set(Some(now));
            update_exchange_gauges(exchange, counters, board.worker);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Counts the verified hits and upstream errors of the process since the last
/// call, and updates the gauges of memory and of waiting requests. Call it
/// after each event of the host's loop that may end an exchange, and when a
/// request begins to wait: no other request may reach this worker for a long
/// time.
///
/// # Safety
/// `board` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_metrics_board_set_gauges(
    board: *const sszip_metrics_board,
) -> sszip_status {
    catch_panic_status(|| {
        // SAFETY: the function's contract.
        let (counters, board) = match unsafe { borrow_board(board) } {
            Ok(board) => board,
            Err(status) => return status,
        };
        if let Some(tally) = ExchangeMetricsTally::take_process_tally(&PROCESS.shared) {
            counters.add_exchange(board.worker, &tally, board.now);
        }
        counters.set_request_gauges(board.worker, &PROCESS);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Resets the gauges of a worker, when it starts, since it may replace one
/// that died, and when it ends. The counters keep their values.
///
/// # Safety
/// `board` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_metrics_board_reset_gauges(
    board: *const sszip_metrics_board,
) -> sszip_status {
    catch_panic_status(|| {
        // SAFETY: the function's contract.
        let (counters, board) = match unsafe { borrow_board(board) } {
            Ok(board) => board,
            Err(status) => return status,
        };
        counters.set_gauges(board.worker, [0; GAUGES.len()]);
        sszip_status::SSZIP_STATUS_OK
    })
}

fn update_exchange_gauges(exchange: &sszip_exchange, counters: MetricsBoard, worker: usize) {
    if let Some(open) = exchange.driver.available_exchange() {
        update_gauges(&open.route_config().process, counters, worker);
    }
}

fn update_gauges(process: &ProcessResources, counters: MetricsBoard, worker: usize) {
    counters.set_gauges(worker, gauge_values(process, 0));
}

/// Borrows a host's metrics board, and attaches the counters in its memory.
///
/// # Safety
/// `board` is NULL or valid.
unsafe fn borrow_board<'a>(
    board: *const sszip_metrics_board,
) -> Result<(MetricsBoard, &'a sszip_metrics_board), sszip_status> {
    // SAFETY: the function's contract.
    let board = unsafe { borrow_struct_of_exact_size(board) }?;
    // SAFETY: the function's contract.
    let counters =
        unsafe { borrow_board_memory(board.memory) }.and_then(MetricsBoard::attach_shared_board);
    let counters = counters.ok_or(sszip_status::SSZIP_STATUS_NULL)?;
    Ok((counters, board))
}

/// Responds to a status request, in place of a lookup and with its actions.
/// `method` is the request's method; `request->waiter` must not be 0.
///
/// # Safety
/// `exchange` is NULL or valid, `method` and `query` are valid strings;
/// `request` is NULL or valid with all that it points at; `board` is NULL or
/// valid with all that it points at; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_report_status(
    exchange: *mut sszip_exchange,
    method: sszip_str,
    query: sszip_str,
    request: *const sszip_lookup_request,
    board: *const sszip_metrics_board,
    step: *mut sszip_step,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(step);
        let exchange = borrow_mut!(exchange);
        let request = borrow_sized!(request);
        let board = borrow_sized!(board);
        // SAFETY: the function's contract.
        let Some(counters) = unsafe { borrow_board_memory(board.memory) }
            .and_then(MetricsBoard::attach_shared_board)
        else {
            return sszip_status::SSZIP_STATUS_NULL;
        };
        update_exchange_gauges(exchange, counters, board.worker);
        // SAFETY: the function's contract.
        let reported = unsafe {
            exchange
                .driver
                .respond_with_status_page(&StatusPageRequest {
                    method: method.borrow_bytes(),
                    query: query.borrow_bytes(),
                    host: &String::from_utf8_lossy(board.host.borrow_bytes()),
                    board: counters,
                    waiter: request_waiter_from_id(request.waiter),
                    now: request.now,
                    wall: unix_seconds(),
                })
        };
        // SAFETY: the function's contract.
        unsafe { write_host_step(reported, step) }
    })
}

/// Returns the metrics that the workers of the host counted, and updates the
/// gauges of this worker. The list and its strings are valid until the same
/// thread calls this function again.
///
/// # Safety
/// `board` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_metrics_board_read(
    board: *const sszip_metrics_board,
    metrics: *mut *const sszip_metric,
    nmetrics: *mut usize,
) -> sszip_status {
    type Metrics = (Vec<sszip_metric>, Vec<String>);
    thread_local! { static LAST: RefCell<Metrics> = RefCell::default() }
    catch_panic_status(|| {
        check_results!(metrics, nmetrics);
        // SAFETY: the function's contract.
        let (counters, board) = match unsafe { borrow_board(board) } {
            Ok(board) => board,
            Err(status) => return status,
        };
        // the gauges of this worker may be as old as its last request
        update_gauges(&PROCESS, counters, board.worker);
        let (names, numbers): (Vec<_>, Vec<_>) = flat_metrics(counters).into_iter().unzip();
        let found: Vec<sszip_metric> = names
            .iter()
            .zip(numbers)
            .map(|(name, number)| sszip_metric {
                name: sszip_str::from_bytes(name.as_bytes()),
                number,
            })
            .collect();
        write_result!(metrics, found.as_ptr());
        write_result!(nmetrics, found.len());
        LAST.set((found, names));
        sszip_status::SSZIP_STATUS_OK
    })
}
