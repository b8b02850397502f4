//! Lookups, stored responses and what the cache learns from upstream
//! responses.

use std::borrow::Cow;
use std::sync::Arc;

use super::config::request_waiter_from_id;
use super::exchange::{
    borrow_headers, call_with_driver, call_with_open_exchange, convert_host_response_head,
    sszip_exchange, write_host_step,
};
use super::exchange_types::{
    sszip_failure, sszip_header, sszip_job, sszip_lookup_request, sszip_other_filters,
    sszip_request_body, sszip_required_body, sszip_response_head, sszip_step,
};
use super::panic::{
    borrow_mut, borrow_sized, catch_panic, catch_panic_status, check_results, write_result,
};
use super::types::{borrow_slice, sszip_status, sszip_str};
use crate::cache::reason::Reason;
use crate::exchange::drive::{
    BodyLength, ExchangeDriver, OtherFiltersEffect, RequestBodyAvailability, RequiredBody,
};
use crate::exchange::{Exchange, LookupRequest, PurgeHttpRequest};
use crate::negotiate::cache_control::has_only_if_cached;

/// Returns the part of the request body that a lookup requires, for a request
/// with a body of `length` bytes; 0: there is no body; negative: the length is
/// unknown until its end. A second call after `SSZIP_NEED_BODY` or
/// `SSZIP_NEED_WHOLE_BODY` means that the body was read. After the lookup
/// nothing is required, unless the lookup is to be repeated.
/// `SSZIP_NEED_NOTHING` for NULL.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_required_body(
    exchange: *mut sszip_exchange,
    length: i64,
) -> sszip_required_body {
    let length = u64::try_from(length).map_or(BodyLength::Unknown, BodyLength::Known);
    // SAFETY: the function's contract.
    match unsafe { call_with_driver(exchange, |driver| driver.required_body(length)) } {
        Some(RequiredBody::LookUp) => sszip_required_body::SSZIP_NEED_LOOK_UP,
        Some(RequiredBody::Body) => sszip_required_body::SSZIP_NEED_BODY,
        Some(RequiredBody::WholeBody) => sszip_required_body::SSZIP_NEED_WHOLE_BODY,
        Some(RequiredBody::Nothing) | None => sszip_required_body::SSZIP_NEED_NOTHING,
    }
}

/// Reserves memory for a copy of `bytes` bytes of the request body, which the
/// host assembles for the lookup because it stores the body in several
/// buffers. The copy is the host's; the lookup releases the reservation.
/// `false`: the memory budget is exhausted, and the lookup takes place without
/// a body.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_reserve_body_copy(
    exchange: *mut sszip_exchange,
    bytes: usize,
) -> bool {
    // SAFETY: the function's contract.
    unsafe { call_with_driver(exchange, |driver| driver.reserve_body_copy(bytes)) }.unwrap_or(false)
}

/// Whether a request with this header must not reach the upstream
/// (`only-if-cached`, RFC 9111, 5.2.1.7), for requests whose exchange lacks
/// memory: allocates nothing. `false` for NULL.
///
/// # Safety
/// `header` is NULL or valid with the strings that it points at.
#[no_mangle]
pub unsafe extern "C" fn sszip_header_forbids_upstream(header: *const sszip_header) -> bool {
    // SAFETY: the function's contract.
    let Some(header) = (unsafe { header.as_ref() }) else {
        return false;
    };
    // SAFETY: the function's contract.
    let (name, value) = unsafe { (header.name.borrow_bytes(), header.value.borrow_bytes()) };
    let is_forbidden = || name.eq_ignore_ascii_case(b"cache-control") && has_only_if_cached(value);
    catch_panic(is_forbidden).unwrap_or(false)
}

/// Looks up stored responses to the request, and returns the next action. If
/// the library fails inside, the request is forwarded.
///
/// # Safety
/// `exchange` is NULL or valid; `request` is NULL or valid with all that it
/// points at; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_lookup(
    exchange: *mut sszip_exchange,
    request: *const sszip_lookup_request,
    step: *mut sszip_step,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(step);
        let driver = &mut borrow_mut!(exchange).driver;
        let request = borrow_sized!(request);
        const WHOLE: u32 = sszip_request_body::SSZIP_BODY_WHOLE as u32;
        const UNREAD: u32 = sszip_request_body::SSZIP_BODY_AWAITS_CONTINUE as u32;
        const UNAVAILABLE: u32 = sszip_request_body::SSZIP_BODY_UNAVAILABLE as u32;
        let config = driver
            .available_exchange()
            .map(|open| Arc::clone(open.route_config()));
        // SAFETY: the function's contract.
        let url = (!request.url.data.is_null()).then(|| unsafe { request.url.borrow_bytes() });
        let is_named = !request.name_space.data.is_null();
        let place = match &config {
            Some(config) if !is_named => config.destination.destination_text(url),
            _ => Cow::default(),
        };
        // SAFETY: the function's contract.
        let (body, request) = unsafe {
            let known = LookupRequest {
                namespace: is_named.then(|| request.name_space.borrow_bytes()),
                place: &place,
                unnamed: false,
                // the route's handler may respond itself
                local: request.route_unnamed && !is_named,
                host: request.host.borrow_bytes(),
                port: request.port,
                // of one that is not there, its beginning
                body: request.body.borrow_bytes(),
                now: request.now,
                coding_allowed: request.coding_allowed,
                whole: request.no_split,
                filters: request.has_other_filters,
                host_writes_vary: request.host_writes_vary,
                forwards_codings: request.forwards_codings,
                waiter: request_waiter_from_id(request.waiter),
                bypass: request.bypass,
                no_background_update: false,
            };
            let body = match request.body_state {
                WHOLE => RequestBodyAvailability::Whole(request.body.borrow_bytes()),
                UNREAD => RequestBodyAvailability::AwaitsContinue,
                UNAVAILABLE => RequestBodyAvailability::Unavailable,
                _ => return sszip_status::SSZIP_STATUS_MISUSE,
            };
            (body, known)
        };
        let found = driver.lookup_under_policy(body, request);
        // SAFETY: the function's contract.
        unsafe { write_host_step(found, step) }
    })
}

/// Purges the entries that `query` selects (docs/caching.md, Purging), in
/// place of a lookup and with its actions. `method` is the request's method.
/// `request->name_space` is the namespace of a query without one;
/// `request->waiter` must not be 0.
///
/// # Safety
/// `exchange` is NULL or valid, `method` and `query` are valid strings;
/// `request` is NULL or valid with all that it points at; `step` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_purge(
    exchange: *mut sszip_exchange,
    method: sszip_str,
    query: sszip_str,
    request: *const sszip_lookup_request,
    step: *mut sszip_step,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(step);
        let driver = &mut borrow_mut!(exchange).driver;
        let request = borrow_sized!(request);
        let Some(waiter) = request_waiter_from_id(request.waiter) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        // SAFETY: the function's contract.
        let purge = unsafe {
            let name = request.name_space;
            PurgeHttpRequest {
                method: method.borrow_bytes(),
                query: query.borrow_bytes(),
                namespace: (!name.data.is_null()).then(|| name.borrow_bytes()),
                waiter,
                now: request.now,
            }
        };
        // SAFETY: the function's contract.
        unsafe { write_host_step(driver.handle_purge_request(&purge), step) }
    })
}

/// Returns an exchange for a background update, after a lookup that found an
/// entry, forwards a part of a batch or waits; NULL: no further update is due.
/// Call it until it returns NULL: other requests, or this one, wait for these
/// responses. The host sends a copy of this request in the background, with
/// `sszip_exchange_request_body` of the new exchange as its body if that is not
/// empty, and continues the new exchange with the response head. It owns the
/// new exchange, and ends it with `sszip_exchange_free`, also if it cannot send
/// the request; either exchange may be freed first.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_background_update(
    exchange: *mut sszip_exchange,
) -> *mut sszip_exchange {
    // SAFETY: the function's contract.
    let update =
        unsafe { call_with_driver(exchange, ExchangeDriver::take_background_update) }.flatten();
    update.map_or(std::ptr::null_mut(), |update| {
        Box::into_raw(Box::new(sszip_exchange::from_driver(update)))
    })
}

/// Returns an exchange for a probe, before the request is processed any
/// further; NULL: no probe is due. Call it until it returns NULL. The host
/// sends a GET without a body to the path that
/// `sszip_exchange_probe_path` derives from this request's path, and
/// continues the new exchange with the response head. `url` is the upstream of
/// this request if it differs from request to request; NULL `data`: the
/// route's upstream. The host cancels the probe if there is no response after
/// `sszip_exchange_next_timer` milliseconds. It owns the new exchange, and
/// ends it with `sszip_exchange_free`; either exchange may be freed first.
///
/// # Safety
/// `exchange` is NULL or valid, `url` a valid string.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_probe(
    exchange: *mut sszip_exchange,
    url: sszip_str,
    now: u64,
) -> *mut sszip_exchange {
    // SAFETY: the function's contract.
    let probe = unsafe {
        let url = (!url.data.is_null()).then(|| url.borrow_bytes());
        call_with_driver(exchange, |driver| driver.take_node_probe(url, now))
    };
    probe.flatten().map_or(std::ptr::null_mut(), |probe| {
        Box::into_raw(Box::new(sszip_exchange::from_driver(probe)))
    })
}

/// Returns the path of a probe, for an exchange of
/// `sszip_exchange_take_probe`, in place of `path`, which is the request's
/// path. Valid until the next call of this function or of
/// `sszip_exchange_variable` for the exchange, or the end of the exchange.
///
/// # Errors
/// `SSZIP_STATUS_MISUSE`: the exchange is no probe.
///
/// # Safety
/// `exchange` is NULL or valid, `path` a valid string; `out` points at memory
/// of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_probe_path(
    exchange: *mut sszip_exchange,
    path: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        let exchange = borrow_mut!(exchange);
        // SAFETY: the function's contract.
        let path = unsafe { path.borrow_bytes() };
        let Some(path) = exchange.driver.probe_path(path) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        exchange.text = path;
        write_result!(out, sszip_str::from_bytes(&exchange.text));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Reports that the upstream failed the request, before the head of the host's
/// own error response, whose status is `status`. `failure` is an
/// `sszip_failure`. Writes to `serves_stale` whether a stale response is sent
/// in its place.
///
/// # Safety
/// `exchange` is NULL or valid; `serves_stale` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_upstream_failed(
    exchange: *mut sszip_exchange,
    failure: u32,
    status: u16,
    now: u64,
    serves_stale: *mut bool,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(serves_stale);
        let driver = &mut borrow_mut!(exchange).driver;
        let Some(failure) = sszip_failure::from_failure_number(failure, status) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        write_result!(serves_stale, driver.handle_upstream_failure(failure, now));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Writes to `serves_stale` the result that `sszip_exchange_upstream_failed`
/// would have, without reporting a failure.
///
/// # Safety
/// `exchange` is NULL or valid; `serves_stale` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_would_serve_stale(
    exchange: *mut sszip_exchange,
    failure: u32,
    status: u16,
    now: u64,
    serves_stale: *mut bool,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(serves_stale);
        let driver = &mut borrow_mut!(exchange).driver;
        let Some(failure) = sszip_failure::from_failure_number(failure, status) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let exchange = driver.available_exchange_mut();
        let is_served = exchange.is_some_and(|it| it.would_serve_stale(failure, now));
        write_result!(serves_stale, is_served);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns the body of the upstream request, after
/// `SSZIP_ACTION_FORWARD_REWRITTEN`. Valid until the end of the exchange.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_request_body(exchange: *const sszip_exchange) -> sszip_str {
    // SAFETY: the function's contract.
    let body = unsafe {
        call_with_open_exchange(exchange, |exchange| {
            sszip_str::from_bytes(exchange.upstream_request_body())
        })
    };
    body.unwrap_or(sszip_str::ABSENT)
}

/// Returns the path and query of the upstream request, after
/// `SSZIP_ACTION_FORWARD_REWRITTEN`; empty: the request's own target. Valid
/// until the end of the exchange.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_request_target(
    exchange: *const sszip_exchange,
) -> sszip_str {
    // SAFETY: the function's contract.
    let target = unsafe {
        call_with_open_exchange(exchange, |exchange| {
            sszip_str::from_bytes(exchange.upstream_request_target())
        })
    };
    target.unwrap_or(sszip_str::ABSENT)
}

/// Returns the status code of a stored response; 0: there is none.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_status(exchange: *const sszip_exchange) -> u16 {
    // SAFETY: the function's contract.
    unsafe { call_with_open_exchange(exchange, Exchange::stored_response_status) }.unwrap_or(0)
}

/// Prevents the response from being stored, because the operator excludes it
/// (directive `no_cache`).
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_no_store(exchange: *mut sszip_exchange) -> sszip_status {
    catch_panic_status(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        if let Some(exchange) = driver.available_exchange_mut() {
            exchange.reject_storage(Reason::NoCache);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Prevents the response from being stored, because the host rewrote the
/// target of its redirect for this client.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_redirected(exchange: *mut sszip_exchange) -> sszip_status {
    catch_panic_status(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        if let Some(exchange) = driver.available_exchange_mut() {
            exchange.reject_storage(Reason::Redirect);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Reports that the host received the whole response, so that it is stored.
/// Returns the job that stores it, which the host owns, runs, and ends with
/// `sszip_job_store`; NULL: there is nothing left to do.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_response_sent(
    exchange: *mut sszip_exchange,
    now: u64,
) -> *mut sszip_job {
    // SAFETY: the function's contract.
    let job =
        unsafe { call_with_driver(exchange, |driver| driver.handle_response_sent(now)) }.flatten();
    job.map_or(std::ptr::null_mut(), sszip_job::into_raw)
}

/// Reads the response head as the upstream sent it, before the host hides,
/// adds or changes a header. A host that has this head calls the function
/// before `sszip_exchange_response_head`, which reads the changed head.
/// `failure`, an `sszip_failure`, is the way
/// in which the upstream failed if the status is a failure and
/// `sszip_exchange_upstream_failed` was not called. Writes to `replaced`
/// whether a stored response replaces the upstream's, with
/// `sszip_exchange_status` and the head edits as the whole head.
///
/// # Safety
/// `exchange` is NULL or valid; `head` is NULL or valid with all that it
/// points at; `replaced` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_upstream_head(
    exchange: *mut sszip_exchange,
    head: *const sszip_response_head,
    failure: u32,
    now: u64,
    replaced: *mut bool,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(replaced);
        let driver = &mut borrow_mut!(exchange).driver;
        let head = borrow_sized!(head);
        let Some(failure) = sszip_failure::from_failure_number(failure, head.status) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        // SAFETY: the function's contract.
        match driver.handle_upstream_head(unsafe { convert_host_response_head(head) }, failure, now)
        {
            Ok(by_stored) => write_result!(replaced, by_stored),
            Err(_) => return sszip_status::SSZIP_STATUS_MISUSE,
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Reports whether the host's other filters appear to change the body
/// (`changes`) and compress it (`compresses`), and whether its head has a
/// length. Call it before `sszip_exchange_response_head`, or before a stored
/// response is sent. Returns the effect of the other filters.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_other_filters(
    exchange: *mut sszip_exchange,
    changes: bool,
    compresses: bool,
    has_length: bool,
) -> sszip_other_filters {
    // SAFETY: the function's contract.
    match unsafe {
        call_with_driver(exchange, |driver| {
            driver.record_host_filter_effect(changes, compresses, has_length)
        })
    } {
        Some(OtherFiltersEffect::BodyChanged) => {
            sszip_other_filters::SSZIP_OTHER_FILTERS_BODY_CHANGED
        }
        Some(OtherFiltersEffect::SeparateCopy) => {
            sszip_other_filters::SSZIP_OTHER_FILTERS_SEPARATE_COPY
        }
        Some(OtherFiltersEffect::None) | None => sszip_other_filters::SSZIP_OTHER_FILTERS_NONE,
    }
}

/// Returns whether filter detection found for the first time that other
/// filters change bodies on this route, which the host logs. Returns `true`
/// once; call it after `sszip_exchange_other_filters` and
/// `sszip_exchange_response_sent`.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_is_new_filter_detection(
    exchange: *mut sszip_exchange,
) -> bool {
    // SAFETY: the function's contract.
    unsafe { call_with_driver(exchange, ExchangeDriver::take_new_filter_detection) }
        .unwrap_or(false)
}

/// Reads `len` bytes of the body as the upstream sent it, after
/// `sszip_exchange_upstream_head` and before another filter changes it; `data`
/// is NULL if they are not in memory. `last`: the body ends with them. Returns
/// a job that stores the response, which the host owns, runs, and ends with
/// `sszip_job_store`; NULL: there is nothing left to do.
///
/// # Safety
/// `exchange` is NULL or valid; `data` points at `len` bytes or is NULL.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_upstream_piece(
    exchange: *mut sszip_exchange,
    data: *const u8,
    len: usize,
    last: bool,
    now: u64,
) -> *mut sszip_job {
    // SAFETY: the function's contract.
    let piece = (!data.is_null()).then(|| unsafe { borrow_slice(data, len) });
    let show =
        |driver: &mut ExchangeDriver| driver.handle_upstream_piece(piece, len as u64, last, now);
    // SAFETY: the function's contract.
    let job = unsafe { call_with_driver(exchange, show) }.flatten();
    job.map_or(std::ptr::null_mut(), sszip_job::into_raw)
}

/// Reads the headers of a stored response after the host's other filters
/// changed its head; if they change the body, the response is sent in
/// identity. Ends the results of `sszip_exchange_head_edits` and
/// `sszip_exchange_body`: call these functions again.
///
/// # Errors
/// `SSZIP_STATUS_MEMORY`: the response cannot be sent.
///
/// # Safety
/// `exchange` is NULL or valid; `fields` are `nfields` fields of valid
/// strings.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_filtered_hit_head(
    exchange: *mut sszip_exchange,
    fields: *const sszip_header,
    nfields: usize,
) -> sszip_status {
    catch_panic_status(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        // SAFETY: the function's contract.
        let fields = unsafe { borrow_headers(fields, nfields) };
        match driver.apply_filtered_hit_head(fields) {
            true => sszip_status::SSZIP_STATUS_OK,
            false => sszip_status::SSZIP_STATUS_MEMORY,
        }
    })
}

/// Returns whether a response of this media type and length (negative:
/// unknown) would be compressed, or is a compressed stored response or a part
/// of a batch; other filters must not compress it before. `false` for NULL.
///
/// # Safety
/// `exchange` is NULL or valid, `content_type` a valid string.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_would_compress(
    exchange: *const sszip_exchange,
    content_type: sszip_str,
    length: i64,
) -> bool {
    // SAFETY: the function's contract.
    let (exchange, content_type) = unsafe { (exchange.as_ref(), content_type.borrow_bytes()) };
    let length = u64::try_from(length).ok();
    let open = exchange.and_then(|exchange| exchange.driver.available_exchange());
    open.is_some_and(|exchange| {
        catch_panic(|| exchange.would_compress(content_type, length)).unwrap_or(false)
    })
}

/// Returns whether the awaited response is stored, so that it is worth
/// fetching although the client is gone. `false` for NULL.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_is_filling(exchange: *const sszip_exchange) -> bool {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_ref() };
    let open = exchange.and_then(|exchange| exchange.driver.available_exchange());
    open.is_some_and(Exchange::has_active_fill)
}

/// Detaches an exchange whose client and host need nothing more of it: it
/// waits for nothing and stores nothing. Its results stay valid until the end
/// of the exchange.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_detach(exchange: *mut sszip_exchange) -> sszip_status {
    catch_panic_status(|| {
        borrow_mut!(exchange).driver.abandon_client_exchange();
        sszip_status::SSZIP_STATUS_OK
    })
}
