//! Stored answers.

use super::config::{free, waiter_of, WOKEN};
use super::exchange::{fields_of, response_head_of, sszip_exchange};
use super::panic::{borrow, borrow_mut, borrow_sized, boundary, caught, give};
use super::types::{
    sszip_asked, sszip_failure, sszip_field, sszip_look_up, sszip_response_head, sszip_status,
    sszip_str,
};
use crate::cache::reason::Reason;
use crate::exchange::{Asked, CacheNeed, Exchange, Fill, LookUp};

/// An answer on its way into the cache. It outlives its exchange.
pub struct sszip_fill(Box<Fill>);

/// The longest body of the request, in bytes, with which
/// `sszip_exchange_look_up` is to be called; 0: it is to be called without
/// one; -1: it is not to be called; -2: it is to be called without the body,
/// whatever that is.
///
/// # Safety
/// `exchange` is NULL or valid; `most` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_cache_need(
    exchange: *const sszip_exchange,
    most: *mut i64,
) -> sszip_status {
    boundary(|| {
        let need = borrow!(exchange).exchange.cache_need();
        give!(
            most,
            match need {
                CacheNeed::Nothing => -1,
                CacheNeed::Place => -2,
                CacheNeed::NoBody => 0,
                CacheNeed::Body { most } => i64::try_from(most).unwrap_or(i64::MAX),
            }
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Looks for stored answers to the request. If the library fails inside, the
/// request goes to the node.
///
/// # Safety
/// `exchange` is NULL or valid; `asked` is NULL or valid with all that it
/// points at; `action` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_look_up(
    exchange: *mut sszip_exchange,
    asked: *const sszip_asked,
    action: *mut sszip_look_up,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let asked = borrow_sized!(asked);
        // SAFETY: the function's contract.
        let asked = unsafe {
            Asked {
                namespace: (!asked.name_space.data.is_null()).then(|| asked.name_space.bytes()),
                place: asked.place.bytes(),
                host: asked.host.bytes(),
                port: asked.port,
                body: asked.body.bytes(),
                now: asked.now,
                monotonic: asked.monotonic,
                coding_allowed: asked.coding_allowed,
                whole: asked.whole,
                host_writes_vary: asked.host_writes_vary,
                waiter: waiter_of(asked.waiter),
                bypass: asked.bypass,
            }
        };
        let found = match caught(|| exchange.look_up(asked)) {
            Some(Ok(found)) => found,
            Some(Err(_)) => return sszip_status::SSZIP_STATUS_MISUSE,
            None => {
                exchange.forget_look_up();
                LookUp::Forward
            }
        };
        give!(
            action,
            match found {
                LookUp::Forward => sszip_look_up::SSZIP_LOOK_UP_FORWARD,
                LookUp::Respond => sszip_look_up::SSZIP_LOOK_UP_RESPOND,
                LookUp::ForwardRewritten => sszip_look_up::SSZIP_LOOK_UP_FORWARD_REWRITTEN,
                LookUp::RespondOffLoop => sszip_look_up::SSZIP_LOOK_UP_RESPOND_OFF_LOOP,
                LookUp::Wait => sszip_look_up::SSZIP_LOOK_UP_WAIT,
            }
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// For how long to wait after `SSZIP_LOOK_UP_WAIT`, in milliseconds.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_wait_ms(
    exchange: *const sszip_exchange,
    out: *mut u64,
) -> sszip_status {
    boundary(|| {
        give!(out, borrow!(exchange).exchange.wait_ms());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// After `SSZIP_LOOK_UP_RESPOND` and `SSZIP_LOOK_UP_RESPOND_OFF_LOOP`, before
/// anything else: an exchange that awaits the response head of a request like
/// this one, which the host is to make in the background; NULL: none is to be
/// made. It is freed like any other.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_update(
    exchange: *mut sszip_exchange,
    out: *mut *mut sszip_exchange,
) -> sszip_status {
    boundary(|| {
        // it can be taken once
        if out.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        let update = borrow_mut!(exchange).exchange.take_update();
        give!(
            out,
            update.map_or(std::ptr::null_mut(), |update| Box::into_raw(Box::new(
                sszip_exchange::of(update)
            )))
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The node fails the request: to be said before `sszip_exchange_response_head`
/// with what the client would get, of which `status` is the status. `failure` is
/// an `sszip_failure`. `now` and `monotonic` are as in `sszip_asked`. Whether a
/// stored answer will be sent in its place.
///
/// # Safety
/// `exchange` is NULL or valid; `stands_in` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_fails(
    exchange: *mut sszip_exchange,
    failure: u32,
    status: u16,
    now: u64,
    monotonic: u64,
    stands_in: *mut bool,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let Some(failure) = sszip_failure::numbered(failure, status) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        give!(stands_in, exchange.fails(failure, now, monotonic));
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
    monotonic: u64,
    stands_in: *mut bool,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let Some(failure) = sszip_failure::numbered(failure, status) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        give!(stands_in, exchange.would_stand_in(failure, now, monotonic));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The body of the request that goes to the node, after
/// `SSZIP_LOOK_UP_FORWARD_REWRITTEN`. Valid until `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_request_body(
    exchange: *const sszip_exchange,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        give!(
            out,
            sszip_str::of(borrow!(exchange).exchange.request_body())
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The status of a stored answer.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_status(
    exchange: *const sszip_exchange,
    out: *mut u16,
) -> sszip_status {
    boundary(|| {
        give!(out, borrow!(exchange).exchange.status());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// A piece of a body that passes. Copies it, within the limits.
///
/// # Safety
/// `exchange` is NULL or valid, `piece` a valid string.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_observe(
    exchange: *mut sszip_exchange,
    piece: sszip_str,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        // SAFETY: the function's contract.
        match exchange.observe(unsafe { piece.bytes() }) {
            Ok(()) => sszip_status::SSZIP_STATUS_OK,
            Err(_) => sszip_status::SSZIP_STATUS_MISUSE,
        }
    })
}

/// Nothing of the answer is to be stored: the operator says so
/// (`sszip_no_cache`).
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_no_store(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| {
        borrow_mut!(exchange).exchange.not_stored(Reason::NoCache);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What is to be stored, once all of the answer is with the host; NULL for
/// nothing. `off_loop`: `sszip_fill_build` belongs on a thread that serves no
/// connections.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_fill(
    exchange: *mut sszip_exchange,
    fill: *mut *mut sszip_fill,
    off_loop: *mut bool,
) -> sszip_status {
    // SAFETY: the function's contract.
    unsafe { give_fill(exchange, Exchange::take_fill, fill, off_loop) }
}

/// # Safety
/// As of `sszip_exchange_take_fill`.
unsafe fn give_fill(
    exchange: *mut sszip_exchange,
    take: fn(&mut Exchange) -> Option<Box<Fill>>,
    fill: *mut *mut sszip_fill,
    off_loop: *mut bool,
) -> sszip_status {
    boundary(|| {
        // it can be taken once
        if fill.is_null() || off_loop.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        let taken = take(&mut borrow_mut!(exchange).exchange);
        give!(off_loop, taken.as_ref().is_some_and(|fill| fill.is_long()));
        give!(
            fill,
            taken.map_or(std::ptr::null_mut(), |fill| Box::into_raw(Box::new(
                sszip_fill(fill)
            )))
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The response head as the node sent it, before the host has hidden, added or
/// changed anything; before `sszip_exchange_response_head`, where the host can
/// tell. `replaced`: a stored answer takes the place of the node's, with
/// `sszip_exchange_status` and the head edits as the whole head.
///
/// # Safety
/// `exchange` is NULL or valid; `head` is NULL or valid with all that it
/// points at; `replaced` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_node_head(
    exchange: *mut sszip_exchange,
    head: *const sszip_response_head,
    replaced: *mut bool,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let head = borrow_sized!(head);
        // SAFETY: the function's contract.
        let head = unsafe { response_head_of(head) };
        match caught(|| exchange.node_head(head)) {
            Some(Ok(by_stored)) => give!(replaced, by_stored),
            Some(Err(_)) => return sszip_status::SSZIP_STATUS_MISUSE,
            None => {
                // nothing of it is stored, and the rest goes on
                exchange.not_stored(Reason::Memory);
                give!(replaced, false);
            }
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The host changes the body before it comes here: what is stored comes by
/// `sszip_exchange_observe_node`. `wanted`: there is something to be stored.
///
/// # Safety
/// `exchange` is NULL or valid; `wanted` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_keep_apart(
    exchange: *mut sszip_exchange,
    wanted: *mut bool,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        exchange.keep_apart();
        give!(wanted, exchange.is_apart());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// A piece of the body as the node sent it.
///
/// # Safety
/// `exchange` is NULL or valid, `piece` a valid string.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_observe_node(
    exchange: *mut sszip_exchange,
    piece: sszip_str,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        // SAFETY: the function's contract.
        exchange.observe_node(unsafe { piece.bytes() });
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The end of the body as the node sent it; as `sszip_exchange_take_fill`.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_node_fill(
    exchange: *mut sszip_exchange,
    fill: *mut *mut sszip_fill,
    off_loop: *mut bool,
) -> sszip_status {
    // SAFETY: the function's contract.
    unsafe { give_fill(exchange, Exchange::take_node_fill, fill, off_loop) }
}

/// The node has sent so many bytes of a body that is not kept apart: to be said
/// before `sszip_exchange_end` and `sszip_exchange_take_fill`, by a host that
/// can tell. `changed`: something has changed it on its way here, and it is not
/// stored.
///
/// # Safety
/// `exchange` is NULL or valid; `changed` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_node_sent(
    exchange: *mut sszip_exchange,
    bytes: u64,
    changed: *mut bool,
) -> sszip_status {
    boundary(|| {
        give!(changed, borrow_mut!(exchange).exchange.node_sent(bytes));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The fields of a stored answer's head as they have become on their way to the
/// client; asks for the head edits anew, `Vary` among them.
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
        let exchange = &mut borrow_mut!(exchange).exchange;
        // SAFETY: the function's contract.
        exchange.stored_head(unsafe { fields_of(fields, nfields) });
        sszip_status::SSZIP_STATUS_OK
    })
}

/// A stored answer that is about to be sent is to be sent in identity after
/// all, since the host changes it. Asks for the head edits and the body anew.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_uncode(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| match borrow_mut!(exchange).exchange.uncode() {
        true => sszip_status::SSZIP_STATUS_OK,
        false => sszip_status::SSZIP_STATUS_MEMORY,
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
    exchange.is_some_and(|exchange| {
        let would_code = || exchange.exchange.would_code(content_type, length);
        caught(would_code).unwrap_or(false)
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
    unsafe { exchange.as_ref() }.is_some_and(|exchange| exchange.exchange.is_filling())
}

/// Nothing more comes of the exchange, and nobody waits for it; what it gave out
/// is valid until `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_abandon(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| {
        borrow_mut!(exchange).exchange.abandon();
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The host does not look the request up, though `sszip_exchange_cache_need`
/// asked for it: its body is too long (`SSZIP_REASON_REQUEST_LENGTH`) or not in
/// memory (`SSZIP_REASON_BODY_ON_DISK`).
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_not_looked_up(
    exchange: *mut sszip_exchange,
    reason: u8,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let Some(reason) = Reason::ALL.get(usize::from(reason)) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        exchange.not_looked_up(*reason);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The request is longer than `sszip_cache_max_request`.
pub const SSZIP_REASON_REQUEST_LENGTH: u8 = 5;

/// There is no memory for what is stored.
pub const SSZIP_REASON_MEMORY: u8 = 15;

/// The request's body is in a file.
pub const SSZIP_REASON_BODY_ON_DISK: u8 = 6;

const _: () = assert!(
    Reason::RequestLength as u8 == SSZIP_REASON_REQUEST_LENGTH
        && Reason::BodyOnDisk as u8 == SSZIP_REASON_BODY_ON_DISK
        && Reason::Memory as u8 == SSZIP_REASON_MEMORY
);

/// Why the answer is no hit, or is not stored: a token for logs, static; empty
/// where there is nothing to say.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_reason(
    exchange: *const sszip_exchange,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let reason = borrow!(exchange).exchange.reason();
        give!(out, sszip_str::of(reason.name().as_bytes()));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Prepares it to be stored, milliseconds for each megabyte; any thread may
/// call it, while no other uses the fill.
///
/// # Safety
/// `fill` is NULL or from `sszip_exchange_take_fill` and neither published
/// nor freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_fill_build(fill: *mut sszip_fill) -> sszip_status {
    boundary(|| {
        borrow_mut!(fill).0.build();
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Stores it and frees it. `now` is of the clock of the look-ups.
/// `sszip_next_woken` may have something to say then.
///
/// # Safety
/// `fill` is NULL or from `sszip_exchange_take_fill` and neither published
/// nor freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_fill_publish(fill: *mut sszip_fill, now: u64) -> sszip_status {
    boundary(|| {
        if fill.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        // SAFETY: not NULL; the function's contract.
        unsafe { Box::from_raw(fill) }.0.publish(now);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Stores nothing.
///
/// # Safety
/// `fill` is NULL or from `sszip_exchange_take_fill` and neither published
/// nor freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_fill_free(fill: *mut sszip_fill) {
    // SAFETY: the function's contract.
    unsafe { free(fill) }
}

/// A request that waits and is to be looked up again: its `waiter`, or 0. To
/// be asked until 0 after a fill was published and after an exchange or a fill
/// was freed.
#[no_mangle]
pub extern "C" fn sszip_next_woken() -> usize {
    caught(|| WOKEN.next()).flatten().unwrap_or(0)
}

/// What the cache had to do with the answer, in nginx's words; empty: nothing.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_cache_status(
    exchange: *const sszip_exchange,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let status = borrow!(exchange).exchange.cache_status().name();
        give!(out, sszip_str::of(status.as_bytes()));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The key of a single answer, 64 hexadecimal digits, is written to `text`;
/// `*len` is 0 where there is none.
///
/// # Safety
/// `exchange` is NULL or valid; `text` points at 64 bytes, `len` at memory of
/// its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_cache_key(
    exchange: *const sszip_exchange,
    text: *mut u8,
    len: *mut usize,
) -> sszip_status {
    boundary(|| {
        let key = borrow!(exchange).exchange.cache_key();
        let hex = key.map(|key| blake3::Hash::from_bytes(*key).to_hex());
        let hex = hex.as_ref().map_or("", |hex| hex.as_str());
        if text.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        // SAFETY: not NULL, and room for a key by the function's contract.
        unsafe { std::ptr::copy_nonoverlapping(hex.as_ptr(), text, hex.len()) };
        give!(len, hex.len());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The method of a single JSON-RPC call as it stood in the request, and the
/// number of calls in a batch, and how many of those were answered from the
/// cache; empty and 0 where they are not known. Valid until the next look-up or `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_call(
    exchange: *const sszip_exchange,
    method: *mut sszip_str,
    batch_size: *mut usize,
    batch_hits: *mut usize,
) -> sszip_status {
    boundary(|| {
        let exchange = &borrow!(exchange).exchange;
        give!(method, sszip_str::of(exchange.rpc_method()));
        give!(batch_size, exchange.batch_size().unwrap_or(0));
        give!(batch_hits, exchange.batch_hits());
        sszip_status::SSZIP_STATUS_OK
    })
}
