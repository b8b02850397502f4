//! Stored answers.

use std::borrow::Cow;
use std::sync::Arc;

use super::config::{waiter_of, PROCESS, WOKEN};
use super::exchange::{ask, fields_of, give_step, read, response_head_of, sszip_exchange};
use super::job::sszip_job;
use super::panic::{borrow_mut, borrow_sized, boundary, caught, give};
use super::types::{
    slice_of, sszip_asked, sszip_beside, sszip_failure, sszip_field, sszip_need,
    sszip_request_body, sszip_response_head, sszip_status, sszip_step, sszip_str,
};
use crate::cache::reason::Reason;
use crate::exchange::drive::{Beside, BodyLength, Driver, Need, RequestBody};
use crate::exchange::{Asked, Exchange, Purge};
use crate::log;

/// What a look-up needs, of a request with a body of `length` bytes; 0: it has
/// none; negative: that will be known at its end. Asked again after
/// `SSZIP_NEED_BODY` or `SSZIP_NEED_WHOLE_BODY`, it has been read; after the look-up nothing is needed,
/// unless it is to be made again.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_need(
    exchange: *mut sszip_exchange,
    length: i64,
) -> sszip_need {
    let length = u64::try_from(length).map_or(BodyLength::Unknown, BodyLength::Known);
    // SAFETY: the function's contract.
    match unsafe { ask(exchange, |driver| driver.need(length)) } {
        Some(Need::LookUp) => sszip_need::SSZIP_NEED_LOOK_UP,
        Some(Need::Body) => sszip_need::SSZIP_NEED_BODY,
        Some(Need::WholeBody) => sszip_need::SSZIP_NEED_WHOLE_BODY,
        Some(Need::Nothing) | None => sszip_need::SSZIP_NEED_NOTHING,
    }
}

/// Takes the memory for a copy of the request's body, of so many bytes, which the host
/// has in several places and makes for the look-up: it is given back when that has been
/// done. `false`: there is not enough, and the look-up is without a body.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_room(
    exchange: *mut sszip_exchange,
    bytes: usize,
) -> bool {
    // SAFETY: the function's contract.
    unsafe { ask(exchange, |driver| driver.take_room(bytes)) }.unwrap_or(false)
}

/// Looks for stored answers to the request. If the library fails inside, the
/// request goes to the node.
///
/// # Safety
/// `exchange` is NULL or valid; `asked` is NULL or valid with all that it
/// points at; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_look_up(
    exchange: *mut sszip_exchange,
    asked: *const sszip_asked,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        let asked = borrow_sized!(asked);
        const WHOLE: u32 = sszip_request_body::SSZIP_BODY_WHOLE as u32;
        const UNREAD: u32 = sszip_request_body::SSZIP_BODY_UNREAD as u32;
        const UNAVAILABLE: u32 = sszip_request_body::SSZIP_BODY_UNAVAILABLE as u32;
        let config = driver.exchange().map(|open| Arc::clone(open.config()));
        // SAFETY: the function's contract.
        let url = (!asked.url.data.is_null()).then(|| unsafe { asked.url.bytes() });
        let is_named = !asked.name_space.data.is_null();
        let place = match &config {
            Some(config) if !is_named => config.destination.text(url),
            _ => Cow::default(),
        };
        // SAFETY: the function's contract.
        let (body, asked) = unsafe {
            let known = Asked {
                namespace: is_named.then(|| asked.name_space.bytes()),
                place: &place,
                unnamed: asked.unnamed,
                local: false,
                host: asked.host.bytes(),
                port: asked.port,
                // of one that is not there, its beginning
                body: asked.body.bytes(),
                now: asked.now,
                coding_allowed: asked.coding_allowed,
                whole: asked.whole,
                filters: asked.filters,
                host_writes_vary: asked.host_writes_vary,
                forwards_codings: asked.forwards_codings,
                waiter: waiter_of(asked.waiter),
                bypass: asked.bypass,
                never_anew: false,
            };
            let body = match asked.body_is {
                WHOLE => RequestBody::Whole(asked.body.bytes()),
                UNREAD => RequestBody::Unread,
                UNAVAILABLE => RequestBody::Unavailable,
                _ => return sszip_status::SSZIP_STATUS_MISUSE,
            };
            (body, known)
        };
        let found = driver.look_up(body, asked);
        // SAFETY: the function's contract.
        unsafe { give_step(found, step) }
    })
}

/// Purges what `query` says (docs/caching.md, Purging), instead of a look-up, and
/// with steps of one. `method` is the request's; of `asked`, `name_space` is where
/// the query does not say it, and `waiter` must not be 0.
///
/// # Safety
/// `exchange` is NULL or valid, `method` and `query` are valid strings; `asked` is
/// NULL or valid with all that it points at; `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_purge(
    exchange: *mut sszip_exchange,
    method: sszip_str,
    query: sszip_str,
    asked: *const sszip_asked,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        let asked = borrow_sized!(asked);
        let Some(waiter) = waiter_of(asked.waiter) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        // SAFETY: the function's contract.
        let purge = unsafe {
            let name = asked.name_space;
            Purge {
                method: method.bytes(),
                query: query.bytes(),
                namespace: (!name.data.is_null()).then(|| name.bytes()),
                waiter,
                now: asked.now,
            }
        };
        // SAFETY: the function's contract.
        unsafe { give_step(driver.purge(&purge), step) }
    })
}

/// After a look-up that found something: an exchange that awaits the response
/// head of a request like this one, which the host is to make in the background;
/// NULL: none is to be made. It is freed like any other.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_update(
    exchange: *mut sszip_exchange,
) -> *mut sszip_exchange {
    // SAFETY: the function's contract.
    let update = unsafe { ask(exchange, Driver::take_update) }.flatten();
    update.map_or(std::ptr::null_mut(), |update| {
        Box::into_raw(Box::new(sszip_exchange::of(update)))
    })
}

/// Before anything else becomes of the request: an exchange that awaits the response
/// head of a GET without a body, which the host is to make in the background, to
/// `sszip_exchange_path_of_inquiry` of this request's path; NULL: none is to be made.
/// To be called until then. `url` is where the request goes, if each has its own; NULL
/// `data`: the place's. If `sszip_exchange_next_timer` is over before there is an answer,
/// the host drops it. It is freed like any other.
///
/// # Safety
/// `exchange` is NULL or valid, `url` a valid string.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_inquiry(
    exchange: *mut sszip_exchange,
    url: sszip_str,
    now: u64,
) -> *mut sszip_exchange {
    // SAFETY: the function's contract.
    let inquiry = unsafe {
        let url = (!url.data.is_null()).then(|| url.bytes());
        ask(exchange, |driver| driver.take_inquiry(url, now))
    };
    inquiry.flatten().map_or(std::ptr::null_mut(), |inquiry| {
        Box::into_raw(Box::new(sszip_exchange::of(inquiry)))
    })
}

/// Of an exchange of `sszip_exchange_take_inquiry`: the path that is to be asked in
/// place of `path`, which is the request's. Valid until the next call, or
/// `sszip_exchange_free`. `SSZIP_STATUS_MISUSE`: there is none.
///
/// # Safety
/// `exchange` is NULL or valid, `path` a valid string; `out` points at memory of its
/// type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_path_of_inquiry(
    exchange: *mut sszip_exchange,
    path: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        // SAFETY: the function's contract.
        let path = unsafe { path.bytes() };
        let Some(path) = exchange.driver.path_of_inquiry(path) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        exchange.text = path;
        give!(out, sszip_str::of(&exchange.text));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The node fails the request: to be said before the head of what the client
/// would get, of which `status` is the status. `failure` is an `sszip_failure`.
/// Whether a stored answer will be sent in its place.
///
/// # Safety
/// `exchange` is NULL or valid; `stands_in` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_fails(
    exchange: *mut sszip_exchange,
    failure: u32,
    status: u16,
    now: u64,
    stands_in: *mut bool,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        let Some(failure) = sszip_failure::numbered(failure, status) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        give!(stands_in, driver.fails(failure, now));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The same as `sszip_exchange_fails` would say; nothing is said.
///
/// # Safety
/// `exchange` is NULL or valid; `stands_in` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_would_stand_in(
    exchange: *mut sszip_exchange,
    failure: u32,
    status: u16,
    now: u64,
    stands_in: *mut bool,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        let Some(failure) = sszip_failure::numbered(failure, status) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let said = driver.tell(|exchange| exchange.would_stand_in(failure, now));
        give!(stands_in, said.unwrap_or(false));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The body of the request that goes to the node, after
/// `SSZIP_DO_FORWARD_REWRITTEN`. Valid until `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_request_body(exchange: *const sszip_exchange) -> sszip_str {
    // SAFETY: the function's contract.
    let body = unsafe { read(exchange, |exchange| sszip_str::of(exchange.request_body())) };
    body.unwrap_or(sszip_str::ABSENT)
}

/// Path and query of what the node is to be asked for, after
/// `SSZIP_DO_FORWARD_REWRITTEN`; none: those that were shown. Valid until
/// `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_request_target(
    exchange: *const sszip_exchange,
) -> sszip_str {
    // SAFETY: the function's contract.
    let target = unsafe {
        read(exchange, |exchange| {
            sszip_str::of(exchange.request_target())
        })
    };
    target.unwrap_or(sszip_str::ABSENT)
}

/// The status of a stored answer; 0: there is none.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_status(exchange: *const sszip_exchange) -> u16 {
    // SAFETY: the function's contract.
    unsafe { read(exchange, Exchange::status) }.unwrap_or(0)
}

/// Nothing of the answer is to be stored: the operator says so
/// (`sszip_no_cache`).
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_no_store(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        driver.tell(|exchange| exchange.not_stored(Reason::NoCache));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The host has rewritten where the node's answer points to, for this client:
/// it is not stored.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_redirected(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        driver.tell(|exchange| exchange.not_stored(Reason::Redirect));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// All of the answer is with the host: what is to be stored of it is, or a job
/// is to be run for that, and ends with `sszip_job_store`; NULL: nothing is left
/// to do. `sszip_next_woken` may have something to say then.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_sent(
    exchange: *mut sszip_exchange,
    now: u64,
) -> *mut sszip_job {
    // SAFETY: the function's contract.
    let job = unsafe { ask(exchange, |driver| driver.sent(now)) }.flatten();
    job.map_or(std::ptr::null_mut(), sszip_job::given)
}

/// The response head as the node sent it, before the host has hidden, added or
/// changed anything; before `sszip_exchange_response_head`, where the host can
/// tell. If its status says that the node fails, and `sszip_exchange_fails` was
/// not called, `failure`, an `sszip_failure`, says how. `replaced`: a stored answer
/// takes the place of the node's, with `sszip_exchange_status` and the head edits
/// as the whole head.
///
/// # Safety
/// `exchange` is NULL or valid; `head` is NULL or valid with all that it
/// points at; `replaced` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_node_head(
    exchange: *mut sszip_exchange,
    head: *const sszip_response_head,
    failure: u32,
    now: u64,
    replaced: *mut bool,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        let head = borrow_sized!(head);
        let Some(failure) = sszip_failure::numbered(failure, head.status) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        // SAFETY: the function's contract.
        match driver.node_head(unsafe { response_head_of(head) }, failure, now) {
            Ok(by_stored) => give!(replaced, by_stored),
            Err(_) => return sszip_status::SSZIP_STATUS_MISUSE,
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Of an answer whose head is about to be shown to
/// `sszip_exchange_response_head`, or of a stored one that is about to be sent:
/// whether others of the host's filters change the body, as it seems, whether
/// they code it, and whether its head gives its length.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_beside(
    exchange: *mut sszip_exchange,
    changes: bool,
    codes: bool,
    has_length: bool,
) -> sszip_beside {
    // SAFETY: the function's contract.
    match unsafe { ask(exchange, |driver| driver.beside(changes, codes, has_length)) } {
        Some(Beside::Changed) => sszip_beside::SSZIP_BESIDE_CHANGED,
        Some(Beside::Apart) => sszip_beside::SSZIP_BESIDE_APART,
        Some(Beside::Nothing) | None => sszip_beside::SSZIP_BESIDE_NOTHING,
    }
}

/// Whether it was seen, and not known before, that others change bodies at this
/// place: the operator should know. To be asked after `sszip_exchange_beside` and
/// `sszip_exchange_sent`; it is said once.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_is_news(exchange: *mut sszip_exchange) -> bool {
    // SAFETY: the function's contract.
    unsafe { ask(exchange, Driver::is_news) }.unwrap_or(false)
}

/// So many bytes of the body as the node sent it, after
/// `sszip_exchange_node_head`, and before anybody has changed it; `data` is NULL
/// where they are not in memory. `last`: that is its end. What comes of it is as of
/// `sszip_exchange_sent`.
///
/// # Safety
/// `exchange` is NULL or valid; `data` points at `len` bytes or is NULL.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_node_piece(
    exchange: *mut sszip_exchange,
    data: *const u8,
    len: usize,
    last: bool,
    now: u64,
) -> *mut sszip_job {
    // SAFETY: the function's contract.
    let piece = (!data.is_null()).then(|| unsafe { slice_of(data, len) });
    let show = |driver: &mut Driver| driver.node_piece(piece, len as u64, last, now);
    // SAFETY: the function's contract.
    let job = unsafe { ask(exchange, show) }.flatten();
    job.map_or(std::ptr::null_mut(), sszip_job::given)
}

/// The fields of a stored answer's head as they have become on their way to the
/// client; if others change its body it is sent in identity after all. Asks for
/// the head edits and the body anew. `SSZIP_STATUS_MEMORY`: it can't be sent.
///
/// # Safety
/// `exchange` is NULL or valid; `fields` are `nfields` fields of valid strings.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_stored_head(
    exchange: *mut sszip_exchange,
    fields: *const sszip_field,
    nfields: usize,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        // SAFETY: the function's contract.
        let fields = unsafe { fields_of(fields, nfields) };
        match driver.stored_head(fields) {
            true => sszip_status::SSZIP_STATUS_OK,
            false => sszip_status::SSZIP_STATUS_MEMORY,
        }
    })
}

/// Whether an answer of that media type and length (negative: not known) would
/// be coded, or is a stored one that is, or a part of a batch: until then it is
/// not for other coders. `false` for NULL.
///
/// # Safety
/// `exchange` is NULL or valid, `content_type` a valid string.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_would_code(
    exchange: *const sszip_exchange,
    content_type: sszip_str,
    length: i64,
) -> bool {
    // SAFETY: the function's contract.
    let (exchange, content_type) = unsafe { (exchange.as_ref(), content_type.bytes()) };
    let length = u64::try_from(length).ok();
    let open = exchange.and_then(|exchange| exchange.driver.exchange());
    open.is_some_and(|exchange| {
        caught(|| exchange.would_code(content_type, length)).unwrap_or(false)
    })
}

/// Whether something is to be stored of the answer that is awaited: it is
/// worth having even when the client has gone. `false` for NULL.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_is_filling(exchange: *const sszip_exchange) -> bool {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_ref() };
    let open = exchange.and_then(|exchange| exchange.driver.exchange());
    open.is_some_and(Exchange::is_filling)
}

/// Nothing more comes of the exchange, and nobody waits for it; what it gave out
/// is valid until `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_abandon(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| {
        borrow_mut!(exchange).driver.abandon();
        sszip_status::SSZIP_STATUS_OK
    })
}

/// A line for the error log, about hits that were verified: as much of it as there is
/// room for is written to `text`, and its length is given back; 0: there is none. To be
/// asked until then after something was stored.
///
/// # Safety
/// `text` is NULL, or `size` bytes can be written there.
#[no_mangle]
pub unsafe extern "C" fn sszip_next_line(text: *mut u8, size: usize) -> usize {
    let line = caught(|| PROCESS.shared.verified.take_line()).flatten();
    let Some(line) = line.filter(|_| !text.is_null()) else {
        return 0;
    };
    let line = log::escaped(&line);
    let length = line.len().min(size);
    // SAFETY: the function's contract; a line of ours is none of the host's memory.
    unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), text, length) };
    length
}

/// Writes what others have said for a line of a log, without what would begin another line
/// or steer a terminal: as much of it as there is room for. Its length is given back.
///
/// # Safety
/// `said` is a valid string; `text` is NULL, or `size` bytes can be written there.
#[no_mangle]
pub unsafe extern "C" fn sszip_log_text(said: sszip_str, text: *mut u8, size: usize) -> usize {
    // SAFETY: the function's contract.
    let line = caught(|| log::escaped_bytes(unsafe { said.bytes() }));
    let Some(line) = line.filter(|_| !text.is_null()) else {
        return 0;
    };
    let length = line.len().min(size);
    // SAFETY: the function's contract; a line of ours is none of the host's memory.
    unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), text, length) };
    length
}

/// A request that waits and is to be looked up again: its `waiter`, or 0. To
/// be asked until 0 after something was stored and after an exchange was freed.
#[no_mangle]
pub extern "C" fn sszip_next_woken() -> usize {
    caught(|| WOKEN.next()).flatten().unwrap_or(0)
}
