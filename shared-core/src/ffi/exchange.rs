//! Exchanges: heads, bodies and edits.

use std::sync::Arc;
use std::time::Instant;

use super::config::{free, sszip_config};
use super::job::sszip_job;
use super::known_field::sszip_known_field;
use super::panic::{borrow, borrow_mut, borrow_sized, boundary, caught, give};
use super::types::{
    slice_of, sszip_do, sszip_edit, sszip_field, sszip_flush, sszip_progress, sszip_request_head,
    sszip_response_head, sszip_status, sszip_step, sszip_str,
};
use crate::allocator;
use crate::bytes::push;
use crate::exchange::drive::{Driver, Step};
use crate::exchange::{
    Exchange, Field, HeadEdit, Misuse, RequestHead, ResponseHead, StreamFailure,
};

/// One HTTP exchange; each request has its own. docs/exchange.md has the order
/// of calls.
pub struct sszip_exchange {
    pub(super) driver: Driver,
    /// Time at which the exchange was created.
    pub(super) since: Instant,
    /// Result of the last call of an `_edits` function.
    edits: Vec<sszip_edit>,
    /// Result of the last call of `sszip_exchange_upstream_vary`.
    upstream_vary: Vec<u8>,
    /// Result of the last call of `sszip_exchange_body`.
    body: Vec<sszip_str>,
    /// Result of the last call of `sszip_exchange_variable` or
    /// `sszip_exchange_path_of_inquiry`.
    pub(super) text: Vec<u8>,
}

/// Creates an exchange on the route that has these settings. The host owns it
/// and frees it with `sszip_exchange_free`; it may outlive `config`. Returns
/// `SSZIP_STATUS_MEMORY` while the process is short of memory.
///
/// # Safety
/// `config` is NULL or from `sszip_plan_add`, and its plan is not freed; `out`
/// points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_new(
    config: *const sszip_config,
    out: *mut *mut sszip_exchange,
) -> sszip_status {
    boundary(|| {
        let config = Arc::clone(&borrow!(config).0);
        let drop_stored = || {
            if let Some(hot) = config.process.shared.hot() {
                hot.clear();
            }
        };
        if !allocator::is_over(drop_stored) {
            return sszip_status::SSZIP_STATUS_MEMORY;
        }
        give!(
            out,
            Box::into_raw(Box::new(sszip_exchange::of(Driver::new(config))))
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

impl sszip_exchange {
    pub(super) fn of(driver: Driver) -> Self {
        Self {
            driver,
            since: Instant::now(),
            edits: Vec::new(),
            upstream_vary: Vec::new(),
            body: Vec::new(),
            text: Vec::new(),
        }
    }
}

/// Frees an exchange and all its results.
///
/// # Safety
/// `exchange` is NULL or from a function that returns a new exchange, and not
/// freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_free(exchange: *mut sszip_exchange) {
    // SAFETY: the function's contract.
    unsafe { free(exchange) }
}

/// Reads the client's request head. Copies what the exchange needs.
///
/// # Safety
/// `exchange` is NULL or valid; `head` is NULL or valid with all that it
/// points at.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_request_head(
    exchange: *mut sszip_exchange,
    head: *const sszip_request_head,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        let head = borrow_sized!(head);
        // SAFETY: the function's contract.
        done(driver.request_head(unsafe {
            RequestHead {
                method: head.method.bytes(),
                target: head.target.bytes(),
                fields: fields_of(head.fields, head.nfields),
            }
        }))
    })
}

/// Returns the changes to the request head that the upstream receives. The
/// list is valid until the next call of an `_edits` function for the exchange,
/// its strings until `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_upstream_edits(
    exchange: *mut sszip_exchange,
    edits: *mut *const sszip_edit,
    nedits: *mut usize,
) -> sszip_status {
    // SAFETY: the function's contract.
    unsafe { give_edits(exchange, Exchange::upstream_edits, edits, nedits) }
}

/// Reads the response head, and returns the next action. Copies what the
/// exchange needs. If the library fails inside, the response passes without an
/// edit; the response to a part of a batch is buffered and becomes a 502; the
/// response to a request that accepts only SSZ, where the upstream sends JSON,
/// becomes `SSZIP_DO_FAIL`.
///
/// # Safety
/// `exchange` is NULL or valid; `head` is NULL or valid with all that it
/// points at; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_response_head(
    exchange: *mut sszip_exchange,
    head: *const sszip_response_head,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        let elapsed = exchange.since.elapsed().as_micros();
        let driver = &mut exchange.driver;
        driver.node_answered_after(u64::try_from(elapsed).unwrap_or(u64::MAX));
        let head = borrow_sized!(head);
        // SAFETY: the function's contract.
        let judged = driver.response_head(unsafe { response_head_of(head) });
        // SAFETY: the function's contract.
        unsafe { give_step(judged, step) }
    })
}

/// Continues an exchange whose response head the host cannot pass for lack of
/// memory. The result is the same as if the library had failed in
/// `sszip_exchange_response_head`.
///
/// # Safety
/// `exchange` is NULL or valid; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_no_response_head(
    exchange: *mut sszip_exchange,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let judged = borrow_mut!(exchange).driver.no_response_head();
        // SAFETY: the function's contract.
        unsafe { give_step(judged, step) }
    })
}

/// Reads a piece of the body, after `SSZIP_DO_HOLD` and `SSZIP_DO_SHOW`, and
/// returns the next action. Copies the piece. If the library fails inside, the
/// exchange stops buffering and sends the original.
///
/// # Safety
/// `exchange` is NULL or valid, `piece` a valid string; `step` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_piece(
    exchange: *mut sszip_exchange,
    piece: sszip_str,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        // SAFETY: the function's contract.
        let taken = driver.piece(unsafe { piece.bytes() });
        // SAFETY: the function's contract.
        unsafe { give_step(taken, step) }
    })
}

/// Ends the buffering window, because its time is over or the upstream
/// flushes. After `SSZIP_DO_AWAIT` the host continues to buffer.
///
/// # Safety
/// `exchange` is NULL or valid; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_release(
    exchange: *mut sszip_exchange,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let released = borrow_mut!(exchange).driver.release();
        // SAFETY: the function's contract.
        unsafe { give_step(released, step) }
    })
}

/// Returns the number of bytes of the body to read at a time after
/// `SSZIP_DO_HOLD`; 0: the host's own number.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_read_size(exchange: *const sszip_exchange) -> usize {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_ref() };
    let bytes = exchange.and_then(|exchange| caught(|| exchange.driver.read_size()).flatten());
    bytes.unwrap_or(0)
}

/// Returns the number of milliseconds after which the host must act: call
/// `sszip_exchange_release`, flush a stream whose whole input was written,
/// repeat the lookup after `SSZIP_DO_WAIT`, or cancel a probe. Negative: no
/// timer is due.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_next_timer(exchange: *const sszip_exchange) -> i64 {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_ref() };
    let ms = exchange.and_then(|exchange| caught(|| exchange.driver.next_timer()).flatten());
    ms.and_then(|ms| i64::try_from(ms).ok()).unwrap_or(-1)
}

/// Compresses the buffered body, then `piece`, into `output`, up to `capacity`
/// bytes. `flush` is an `sszip_flush`. On any status other than
/// `SSZIP_STATUS_OK` the host must truncate the response visibly.
///
/// # Safety
/// `exchange` is NULL or valid, `piece` a valid string; `output` has room for
/// `capacity` bytes; `progress` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_stream(
    exchange: *mut sszip_exchange,
    piece: sszip_str,
    flush: u32,
    output: *mut u8,
    capacity: usize,
    progress: *mut sszip_progress,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        // SAFETY: the function's contract.
        let (piece, output) = unsafe { (piece.bytes(), room_of(output, capacity)) };
        let Some(flush) = sszip_flush::numbered(flush) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        match driver.stream(piece, flush, output) {
            Ok(step) => {
                give!(
                    progress,
                    sszip_progress {
                        consumed: step.consumed,
                        written: step.written,
                        complete: step.complete,
                    }
                );
                sszip_status::SSZIP_STATUS_OK
            }
            Err(StreamFailure::Misuse(_)) => sszip_status::SSZIP_STATUS_MISUSE,
            Err(StreamFailure::Encoder) => sszip_status::SSZIP_STATUS_ENCODER,
            Err(StreamFailure::Short) => sszip_status::SSZIP_STATUS_SHORT,
        }
    })
}

/// Ends a buffered body at its end, and returns the next action. If the
/// library fails inside, the exchange sends the original, or fails if the body
/// is known to be truncated.
///
/// # Safety
/// `exchange` is NULL or valid; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_end(
    exchange: *mut sszip_exchange,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let ended = borrow_mut!(exchange).driver.end();
        // SAFETY: the function's contract.
        unsafe { give_step(ended, step) }
    })
}

/// Ends a body that the upstream truncated while the head is withheld, and
/// returns the action for what can be sent nevertheless.
///
/// # Safety
/// `exchange` is NULL or valid; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_end_early(
    exchange: *mut sszip_exchange,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let ended = borrow_mut!(exchange).driver.end_early();
        // SAFETY: the function's contract.
        unsafe { give_step(ended, step) }
    })
}

/// Aborts the exchange: the upstream's connection ended while the head is
/// withheld or the body streams.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_cut_short(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| done(borrow_mut!(exchange).driver.cut_short()))
}

/// Returns the changes to the response head that the client receives. The list
/// is valid until the next call of an `_edits` function for the exchange, its
/// strings until `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_head_edits(
    exchange: *mut sszip_exchange,
    edits: *mut *const sszip_edit,
    nedits: *mut usize,
) -> sszip_status {
    // SAFETY: the function's contract.
    unsafe { give_edits(exchange, Exchange::head_edits, edits, nedits) }
}

/// Returns whether the response depends on `Accept-Encoding`: a host that
/// writes that `Vary` itself must write it.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_varies(exchange: *const sszip_exchange) -> bool {
    // SAFETY: the function's contract.
    unsafe { read(exchange, Exchange::varies) }.unwrap_or(false)
}

/// Returns the `Vary` value for a cache between the exchange and the upstream:
/// the upstream's value without the headers that the upstream edits set to one
/// value for every request. Valid until the next call of this function for the
/// exchange, or `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid, `vary` a valid string; `out` points at memory
/// of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_upstream_vary(
    exchange: *mut sszip_exchange,
    vary: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        // SAFETY: the function's contract.
        let vary = unsafe { vary.bytes() };
        exchange.upstream_vary = match exchange.driver.exchange() {
            Some(open) => open.upstream_vary(vary),
            None => return sszip_status::SSZIP_STATUS_MISUSE,
        };
        give!(out, sszip_str::of(&exchange.upstream_vary));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns the bytes to send directly after the head, as a list of pieces. The
/// list is valid until the next call of this function for the exchange, the
/// bytes until `sszip_exchange_free`. `SSZIP_STATUS_MEMORY`: memory for the list
/// is exhausted.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_body(
    exchange: *mut sszip_exchange,
    pieces: *mut *const sszip_str,
    npieces: *mut usize,
) -> sszip_status {
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        // a batch has as many pieces as responses
        let mut body = Vec::new();
        if let Some(open) = exchange.driver.exchange() {
            let mut pieces = open.body();
            let all = pieces.try_for_each(|piece| push(&mut body, sszip_str::of(piece)));
            if all.is_none() {
                return sszip_status::SSZIP_STATUS_MEMORY;
            }
        }
        exchange.body = body;
        give!(npieces, exchange.body.len());
        give!(pieces, exchange.body.as_ptr());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Reads a property of the exchange; `None` if it is NULL, or a job holds it,
/// or the library failed.
///
/// # Safety
/// `exchange` is NULL or valid.
pub(super) unsafe fn read<T>(
    exchange: *const sszip_exchange,
    of: impl FnOnce(&Exchange) -> T,
) -> Option<T> {
    // SAFETY: the caller's promise.
    let open = unsafe { exchange.as_ref() }?.driver.exchange()?;
    caught(|| of(open))
}

/// Calls a function of the exchange's driver; `None` if the exchange is NULL
/// or the library failed.
///
/// # Safety
/// `exchange` is NULL or valid.
pub(super) unsafe fn ask<T>(
    exchange: *mut sszip_exchange,
    what: impl FnOnce(&mut Driver) -> T,
) -> Option<T> {
    // SAFETY: the caller's promise.
    let driver = &mut unsafe { exchange.as_mut() }?.driver;
    caught(|| what(driver))
}

/// `data` points at `len` bytes that no one else uses during `'a`, or is NULL
/// with `len` 0.
unsafe fn room_of<'a>(data: *mut u8, len: usize) -> &'a mut [u8] {
    if len == 0 {
        &mut []
    } else {
        // SAFETY: not NULL since `len` is not 0; the caller's promise. The
        // encoders only write, so uninitialised bytes are never read.
        unsafe { std::slice::from_raw_parts_mut(data, len) }
    }
}

/// Writes the next action; a misuse writes nothing.
///
/// # Safety
/// `out` is NULL or points at memory of its type.
pub(super) unsafe fn give_step(step: Result<Step, Misuse>, out: *mut sszip_step) -> sszip_status {
    let Ok(step) = step else {
        return sszip_status::SSZIP_STATUS_MISUSE;
    };
    let (mut job, mut why) = (std::ptr::null_mut(), std::ptr::null());
    let act = match step {
        Step::Await => sszip_do::SSZIP_DO_AWAIT,
        Step::Forward => sszip_do::SSZIP_DO_FORWARD,
        Step::ForwardRewritten => sszip_do::SSZIP_DO_FORWARD_REWRITTEN,
        Step::Respond => sszip_do::SSZIP_DO_RESPOND,
        Step::Wait => sszip_do::SSZIP_DO_WAIT,
        Step::Pass => sszip_do::SSZIP_DO_PASS,
        Step::Show => sszip_do::SSZIP_DO_SHOW,
        Step::Hold => sszip_do::SSZIP_DO_HOLD,
        Step::Stream => sszip_do::SSZIP_DO_STREAM,
        Step::Send => sszip_do::SSZIP_DO_SEND,
        Step::SendThenPass => sszip_do::SSZIP_DO_SEND_THEN_PASS,
        Step::OffLoop(owned) => {
            job = sszip_job::given(owned);
            sszip_do::SSZIP_DO_RUN
        }
        Step::Fail(failure) => {
            why = failure.text().as_ptr();
            sszip_do::SSZIP_DO_FAIL
        }
    };
    give!(out, sszip_step { act, job, why });
    sszip_status::SSZIP_STATUS_OK
}

/// `fields` are `nfields` fields of valid strings that do not change during
/// `'a`.
pub(super) unsafe fn fields_of<'a>(
    fields: *const sszip_field,
    nfields: usize,
) -> impl Iterator<Item = Field<'a>> + Clone {
    // SAFETY: the caller's promise.
    let fields = unsafe { slice_of(fields, nfields) };
    fields.iter().map(|field| {
        // SAFETY: the caller's promise.
        unsafe { (field.name.bytes(), field.value.bytes()) }
    })
}

/// Everything that `head` points at is valid and does not change during `'a`.
pub(super) unsafe fn response_head_of<'a>(
    head: &sszip_response_head,
) -> ResponseHead<impl Iterator<Item = Field<'a>> + Clone> {
    ResponseHead {
        status: head.status,
        content_length: u64::try_from(head.content_length).ok(),
        // SAFETY: the caller's promise.
        fields: unsafe { fields_of(head.fields, head.nfields) },
        now: head.now,
        delimited: head.delimited,
        unbuffered: head.unbuffered,
        subrequest: head.subrequest,
        coding_allowed: head.coding_allowed,
        host_writes_vary: head.host_writes_vary,
    }
}

/// # Safety
/// `exchange` is NULL or valid; the results are NULL or point at memory of
/// their type.
unsafe fn give_edits(
    exchange: *mut sszip_exchange,
    of: fn(&Exchange) -> &[HeadEdit],
    edits: *mut *const sszip_edit,
    nedits: *mut usize,
) -> sszip_status {
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        let open = exchange.driver.exchange();
        exchange.edits = open
            .map_or(&[][..], of)
            .iter()
            .map(|edit| sszip_edit {
                name: sszip_str::of(edit.name.as_bytes()),
                field: sszip_known_field::of(edit.name.as_bytes()),
                value: match &edit.value {
                    Some(value) => sszip_str::of(value),
                    None => sszip_str::ABSENT,
                },
            })
            .collect();
        give!(nedits, exchange.edits.len());
        give!(edits, exchange.edits.as_ptr());
        sszip_status::SSZIP_STATUS_OK
    })
}

fn done(result: Result<(), Misuse>) -> sszip_status {
    match result {
        Ok(()) => sszip_status::SSZIP_STATUS_OK,
        Err(_) => sszip_status::SSZIP_STATUS_MISUSE,
    }
}
