//! Exchanges: heads, bodies and edits.

use std::sync::Arc;
use std::time::Instant;

use super::config::{free_boxed_object, sszip_config};
use super::exchange_types::{
    sszip_action, sszip_flush, sszip_head_edit, sszip_header, sszip_job, sszip_progress,
    sszip_request_head, sszip_response_head, sszip_step,
};
use super::known_header::sszip_known_header;
use super::panic::{
    borrow, borrow_mut, borrow_sized, catch_panic, catch_panic_status, check_results, write_result,
};
use super::types::{borrow_slice, sszip_status, sszip_str};
use crate::allocator;
use crate::bytes::try_push;
use crate::exchange::drive::{ExchangeDriver, HostStep};
use crate::exchange::{
    BodyStreamError, Exchange, HeadEdit, Header, HostMisuse, RequestHead, ResponseHead,
};

/// One HTTP exchange; each request has its own. docs/exchange.md describes the
/// order of calls.
pub struct sszip_exchange {
    pub(super) driver: ExchangeDriver,
    /// Time at which the exchange was created.
    pub(super) since: Instant,
    /// Result of the last call of an `_edits` function.
    edits: Vec<sszip_head_edit>,
    /// Result of the last call of `sszip_exchange_upstream_vary`.
    upstream_vary: Vec<u8>,
    /// Result of the last call of `sszip_exchange_body`.
    body: Vec<sszip_str>,
    /// Result of the last call of `sszip_exchange_variable` or
    /// `sszip_exchange_probe_path`.
    pub(super) text: Vec<u8>,
}

/// Creates an exchange on the route that has these settings. The host owns it,
/// and ends it with `sszip_exchange_free`; it may outlive `config`.
///
/// # Errors
/// `SSZIP_STATUS_MEMORY`: the process is short of memory.
///
/// # Safety
/// `config` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_new(
    config: *const sszip_config,
    out: *mut *mut sszip_exchange,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        let config = Arc::clone(&borrow!(config).0);
        let drop_stored = || {
            if let Some(hot) = config.process.shared.hot_tier() {
                hot.clear();
            }
        };
        if !allocator::has_memory_for_new_work(drop_stored) {
            return sszip_status::SSZIP_STATUS_MEMORY;
        }
        write_result!(
            out,
            Box::into_raw(Box::new(sszip_exchange::from_driver(ExchangeDriver::new(
                config
            ))))
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

impl sszip_exchange {
    pub(super) fn from_driver(driver: ExchangeDriver) -> Self {
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

/// Frees an exchange and all its results. A job of it stays valid; the host
/// ends it with `sszip_job_store`.
///
/// # Safety
/// `exchange` is NULL or valid, and is not used after the call.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_free(exchange: *mut sszip_exchange) {
    // SAFETY: the function's contract.
    unsafe { free_boxed_object(exchange) }
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
    catch_panic_status(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        let head = borrow_sized!(head);
        // SAFETY: the function's contract.
        misuse_status(driver.handle_request_head(unsafe {
            RequestHead {
                method: head.method.borrow_bytes(),
                target: head.target.borrow_bytes(),
                fields: borrow_headers(head.fields, head.nfields),
            }
        }))
    })
}

/// Returns the changes to the request head that the upstream receives. An edit
/// with the name `:method` replaces the method. The list is valid until the
/// next call of this function or of `sszip_exchange_head_edits` for the
/// exchange, its strings until the end of the exchange.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_upstream_edits(
    exchange: *mut sszip_exchange,
    edits: *mut *const sszip_head_edit,
    nedits: *mut usize,
) -> sszip_status {
    // SAFETY: the function's contract.
    unsafe { write_head_edits(exchange, Exchange::upstream_edits, edits, nedits) }
}

/// Reads the response head, and returns the next action. Copies what the
/// exchange needs. If the library fails inside, the response passes without an
/// edit; the response to a part of a batch is buffered and becomes a 502; the
/// response to a request that accepts only SSZ, where the upstream sends JSON,
/// becomes `SSZIP_ACTION_FAIL`.
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
    catch_panic_status(|| {
        check_results!(step);
        let exchange = borrow_mut!(exchange);
        let head = borrow_sized!(head);
        let elapsed = exchange.since.elapsed().as_micros();
        let driver = &mut exchange.driver;
        driver.record_upstream_latency(u64::try_from(elapsed).unwrap_or(u64::MAX));
        // SAFETY: the function's contract.
        let judged = driver.handle_response_head(unsafe { convert_host_response_head(head) });
        // SAFETY: the function's contract.
        unsafe { write_host_step(judged, step) }
    })
}

/// Continues an exchange whose response head the host cannot pass for lack of
/// memory. The result is the same as if the library had failed in
/// `sszip_exchange_response_head`.
///
/// # Safety
/// `exchange` is NULL or valid; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_response_head_unavailable(
    exchange: *mut sszip_exchange,
    step: *mut sszip_step,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(step);
        let judged = borrow_mut!(exchange).driver.handle_head_without_memory();
        // SAFETY: the function's contract.
        unsafe { write_host_step(judged, step) }
    })
}

/// Reads a piece of the body, after `SSZIP_ACTION_BUFFER` and
/// `SSZIP_ACTION_OBSERVE`, and returns the next action. Copies the piece. If
/// the library fails inside, the exchange stops buffering and sends the
/// original.
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
    catch_panic_status(|| {
        check_results!(step);
        let driver = &mut borrow_mut!(exchange).driver;
        // SAFETY: the function's contract.
        let taken = driver.handle_body_piece(unsafe { piece.borrow_bytes() });
        // SAFETY: the function's contract.
        unsafe { write_host_step(taken, step) }
    })
}

/// Ends the buffering window, because its time is over or the upstream
/// flushes. After `SSZIP_ACTION_AWAIT` the host continues to buffer.
///
/// # Safety
/// `exchange` is NULL or valid; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_end_buffering(
    exchange: *mut sszip_exchange,
    step: *mut sszip_step,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(step);
        let released = borrow_mut!(exchange).driver.end_buffering();
        // SAFETY: the function's contract.
        unsafe { write_host_step(released, step) }
    })
}

/// Returns the number of bytes of the body to read at a time after
/// `SSZIP_ACTION_BUFFER`; 0: the host's own number.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_read_size(exchange: *const sszip_exchange) -> usize {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_ref() };
    let bytes =
        exchange.and_then(|exchange| catch_panic(|| exchange.driver.body_read_size()).flatten());
    bytes.unwrap_or(0)
}

/// Returns the number of milliseconds after which the host must act: call
/// `sszip_exchange_end_buffering`, flush a stream whose whole input was
/// written, repeat the lookup after `SSZIP_ACTION_WAIT`, or cancel a probe.
/// Negative: no timer is due.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_next_timer(exchange: *const sszip_exchange) -> i64 {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_ref() };
    let ms =
        exchange.and_then(|exchange| catch_panic(|| exchange.driver.next_timeout_ms()).flatten());
    ms.and_then(|ms| i64::try_from(ms).ok()).unwrap_or(-1)
}

/// Compresses the buffered body, then `piece`, into `output`, up to `capacity`
/// bytes, and writes the number of bytes to `progress`; both are the host's
/// memory. `flush` is an `sszip_flush`.
///
/// # Errors
/// `SSZIP_STATUS_ENCODER`, `SSZIP_STATUS_SHORT`: the host must truncate the
/// response visibly, and `output` must not be sent.
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
    catch_panic_status(|| {
        check_results!(progress);
        let driver = &mut borrow_mut!(exchange).driver;
        // SAFETY: the function's contract.
        let (piece, output) = unsafe {
            (
                piece.borrow_bytes(),
                borrow_host_output_mut(output, capacity),
            )
        };
        let Some(flush) = sszip_flush::from_flush_number(flush) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        match driver.encode_body_piece(piece, flush, output) {
            Ok(step) => {
                write_result!(
                    progress,
                    sszip_progress {
                        consumed: step.consumed,
                        written: step.written,
                        complete: step.complete,
                    }
                );
                sszip_status::SSZIP_STATUS_OK
            }
            Err(BodyStreamError::Misuse(_)) => sszip_status::SSZIP_STATUS_MISUSE,
            Err(BodyStreamError::Encoder) => sszip_status::SSZIP_STATUS_ENCODER,
            Err(BodyStreamError::Short) => sszip_status::SSZIP_STATUS_SHORT,
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
    catch_panic_status(|| {
        check_results!(step);
        let ended = borrow_mut!(exchange).driver.handle_body_end();
        // SAFETY: the function's contract.
        unsafe { write_host_step(ended, step) }
    })
}

/// Ends a body that the upstream truncated while the head is withheld, and
/// returns the next action. Only a response that does not depend on the
/// missing bytes is sent: a stored response in place of the upstream's, or a
/// batch, with the responses that are complete.
///
/// # Safety
/// `exchange` is NULL or valid; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_end_truncated(
    exchange: *mut sszip_exchange,
    step: *mut sszip_step,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(step);
        let ended = borrow_mut!(exchange).driver.handle_truncated_body();
        // SAFETY: the function's contract.
        unsafe { write_host_step(ended, step) }
    })
}

/// Aborts the exchange: the upstream's connection ended while the head is
/// withheld or the body streams.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_abort(exchange: *mut sszip_exchange) -> sszip_status {
    catch_panic_status(|| misuse_status(borrow_mut!(exchange).driver.abort_response()))
}

/// Returns the changes to the response head that the client receives, after an
/// action to send it. The list is valid until the next call of this function
/// or of `sszip_exchange_upstream_edits` for the exchange; its strings until
/// `sszip_exchange_filtered_hit_head`, or the end of the exchange.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_head_edits(
    exchange: *mut sszip_exchange,
    edits: *mut *const sszip_head_edit,
    nedits: *mut usize,
) -> sszip_status {
    // SAFETY: the function's contract.
    unsafe { write_head_edits(exchange, Exchange::head_edits, edits, nedits) }
}

/// Returns whether the response depends on `Accept-Encoding`: a host that
/// writes that `Vary` itself must write it.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_varies_on_accept_encoding(
    exchange: *const sszip_exchange,
) -> bool {
    // SAFETY: the function's contract.
    unsafe { call_with_open_exchange(exchange, Exchange::varies_on_accept_encoding) }
        .unwrap_or(false)
}

/// Returns the `Vary` value for a cache between the exchange and the upstream:
/// the upstream's value without the headers that the upstream edits set to one
/// value for every request. Valid until the next call of this function for the
/// exchange, or the end of the exchange.
///
/// # Errors
/// `SSZIP_STATUS_MISUSE`: a job has the exchange.
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
    catch_panic_status(|| {
        check_results!(out);
        let exchange = borrow_mut!(exchange);
        // SAFETY: the function's contract.
        let vary = unsafe { vary.borrow_bytes() };
        exchange.upstream_vary = match exchange.driver.available_exchange() {
            Some(open) => open.vary_without_upstream_edits(vary),
            None => return sszip_status::SSZIP_STATUS_MISUSE,
        };
        write_result!(out, sszip_str::from_bytes(&exchange.upstream_vary));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns the bytes to send directly after the head, as a list of pieces,
/// after an action to send them. The list is valid until the next call of this
/// function for the exchange; the bytes until
/// `sszip_exchange_filtered_hit_head`, or the end of the exchange.
///
/// # Errors
/// `SSZIP_STATUS_MEMORY`: memory for the list is exhausted.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_body(
    exchange: *mut sszip_exchange,
    pieces: *mut *const sszip_str,
    npieces: *mut usize,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(pieces, npieces);
        let exchange = borrow_mut!(exchange);
        // a batch has as many pieces as responses
        let mut body = Vec::new();
        if let Some(open) = exchange.driver.available_exchange() {
            let mut pieces = open.body_slices();
            let all =
                pieces.try_for_each(|piece| try_push(&mut body, sszip_str::from_bytes(piece)));
            if all.is_none() {
                return sszip_status::SSZIP_STATUS_MEMORY;
            }
        }
        exchange.body = body;
        write_result!(npieces, exchange.body.len());
        write_result!(pieces, exchange.body.as_ptr());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Calls a function with the exchange; `None` if it is NULL, or a job holds
/// it, or the library failed.
///
/// # Safety
/// `exchange` is NULL or valid.
pub(super) unsafe fn call_with_open_exchange<T>(
    exchange: *const sszip_exchange,
    of: impl FnOnce(&Exchange) -> T,
) -> Option<T> {
    // SAFETY: the caller's promise.
    let open = unsafe { exchange.as_ref() }?.driver.available_exchange()?;
    catch_panic(|| of(open))
}

/// Calls a function with the exchange's driver; `None` if the exchange is NULL
/// or the library failed.
///
/// # Safety
/// `exchange` is NULL or valid.
pub(super) unsafe fn call_with_driver<T>(
    exchange: *mut sszip_exchange,
    action: impl FnOnce(&mut ExchangeDriver) -> T,
) -> Option<T> {
    // SAFETY: the caller's promise.
    let driver = &mut unsafe { exchange.as_mut() }?.driver;
    catch_panic(|| action(driver))
}

/// Borrows the host's output buffer.
///
/// # Safety
/// `data` points at `len` bytes that no one else uses during `'a`, or is NULL
/// with `len` 0.
unsafe fn borrow_host_output_mut<'a>(data: *mut u8, len: usize) -> &'a mut [u8] {
    if len == 0 {
        &mut []
    } else {
        // SAFETY: not NULL since `len` is not 0; the caller's promise. The
        // encoders only write, so uninitialised bytes are never read.
        unsafe { std::slice::from_raw_parts_mut(data, len) }
    }
}

/// Writes the next action of the host to `out`; a misuse writes nothing.
///
/// # Safety
/// `out` is NULL or points at memory of its type.
pub(super) unsafe fn write_host_step(
    step: Result<HostStep, HostMisuse>,
    out: *mut sszip_step,
) -> sszip_status {
    let Ok(step) = step else {
        return sszip_status::SSZIP_STATUS_MISUSE;
    };
    let (mut job, mut reason) = (std::ptr::null_mut(), std::ptr::null());
    let action = match step {
        HostStep::Await => sszip_action::SSZIP_ACTION_AWAIT,
        HostStep::Forward => sszip_action::SSZIP_ACTION_FORWARD,
        HostStep::ForwardRewritten => sszip_action::SSZIP_ACTION_FORWARD_REWRITTEN,
        HostStep::Respond => sszip_action::SSZIP_ACTION_RESPOND,
        HostStep::Wait => sszip_action::SSZIP_ACTION_WAIT,
        HostStep::Pass => sszip_action::SSZIP_ACTION_PASS,
        HostStep::Observe => sszip_action::SSZIP_ACTION_OBSERVE,
        HostStep::Buffer => sszip_action::SSZIP_ACTION_BUFFER,
        HostStep::Stream => sszip_action::SSZIP_ACTION_STREAM,
        HostStep::Send => sszip_action::SSZIP_ACTION_SEND,
        HostStep::SendThenPass => sszip_action::SSZIP_ACTION_SEND_THEN_PASS,
        HostStep::RunJob(owned) => {
            job = sszip_job::into_raw(owned);
            sszip_action::SSZIP_ACTION_RUN_JOB
        }
        HostStep::Fail(failure) => {
            reason = failure.reason_description().as_ptr();
            sszip_action::SSZIP_ACTION_FAIL
        }
    };
    write_result!(
        out,
        sszip_step {
            action,
            job,
            reason
        }
    );
    sszip_status::SSZIP_STATUS_OK
}

/// Borrows the names and values of a host's array of headers.
///
/// # Safety
/// `fields` are `nfields` fields of valid strings that do not change during
/// `'a`.
pub(super) unsafe fn borrow_headers<'a>(
    fields: *const sszip_header,
    nfields: usize,
) -> impl Iterator<Item = Header<'a>> + Clone {
    // SAFETY: the caller's promise.
    let fields = unsafe { borrow_slice(fields, nfields) };
    fields.iter().map(|field| {
        // SAFETY: the caller's promise.
        unsafe { (field.name.borrow_bytes(), field.value.borrow_bytes()) }
    })
}

/// Converts a response head of the host to one of the core.
///
/// # Safety
/// Everything that `head` points at is valid and does not change during `'a`.
pub(super) unsafe fn convert_host_response_head<'a>(
    head: &sszip_response_head,
) -> ResponseHead<impl Iterator<Item = Header<'a>> + Clone> {
    ResponseHead {
        status: head.status,
        content_length: u64::try_from(head.content_length).ok(),
        // SAFETY: the caller's promise.
        fields: unsafe { borrow_headers(head.fields, head.nfields) },
        now: head.now,
        delimited: head.delimited,
        unbuffered: head.unbuffered,
        subrequest: head.subrequest,
        coding_allowed: head.coding_allowed,
        host_writes_vary: head.host_writes_vary,
    }
}

/// Writes a list of head edits of the exchange to the results.
///
/// # Safety
/// `exchange` is NULL or valid; the results are NULL or point at memory of
/// their type.
unsafe fn write_head_edits(
    exchange: *mut sszip_exchange,
    of: fn(&Exchange) -> &[HeadEdit],
    edits: *mut *const sszip_head_edit,
    nedits: *mut usize,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(edits, nedits);
        let exchange = borrow_mut!(exchange);
        let open = exchange.driver.available_exchange();
        exchange.edits = open
            .map_or(&[][..], of)
            .iter()
            .map(|edit| sszip_head_edit {
                name: sszip_str::from_bytes(edit.name.as_bytes()),
                field: sszip_known_header::from_name(edit.name.as_bytes()),
                value: match &edit.value {
                    Some(value) => sszip_str::from_bytes(value),
                    None => sszip_str::ABSENT,
                },
            })
            .collect();
        write_result!(nedits, exchange.edits.len());
        write_result!(edits, exchange.edits.as_ptr());
        sszip_status::SSZIP_STATUS_OK
    })
}

fn misuse_status(result: Result<(), HostMisuse>) -> sszip_status {
    match result {
        Ok(()) => sszip_status::SSZIP_STATUS_OK,
        Err(_) => sszip_status::SSZIP_STATUS_MISUSE,
    }
}
