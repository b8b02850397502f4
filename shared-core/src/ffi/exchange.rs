//! The exchange.

use std::sync::Arc;

use super::config::{free, sszip_config};
use super::panic::{borrow, borrow_mut, borrow_sized, boundary, caught, give};
use super::types::{
    slice_of, sszip_edit, sszip_end_action, sszip_field, sszip_flush, sszip_head_action,
    sszip_piece_action, sszip_progress, sszip_request_head, sszip_response_head, sszip_status,
    sszip_str,
};
use crate::allocator;
use crate::bytes::push;
use crate::exchange::transitions::State;
use crate::exchange::{
    EndAction, Exchange, Field, HeadAction, HeadEdit, Misuse, PieceAction, RequestHead,
    ResponseHead, StreamFailure,
};
use crate::mode::Mode;

/// One HTTP exchange: one a request. docs/exchange.md has the order of calls.
pub struct sszip_exchange {
    pub(super) exchange: Exchange,
    /// What the last call of an `_edits` function gave out.
    edits: Vec<sszip_edit>,
    /// What `sszip_exchange_upstream_vary` gave out.
    upstream_vary: Vec<u8>,
    /// What `sszip_exchange_body` gave out.
    body: Vec<sszip_str>,
}

/// A new exchange at a place with these settings. `SSZIP_STATUS_MEMORY` while
/// the process is short of memory.
///
/// # Safety
/// `config` is NULL or from `sszip_config_new` and not freed.
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
            Box::into_raw(Box::new(sszip_exchange::of(Exchange::new(config))))
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

impl sszip_exchange {
    pub(super) fn of(exchange: Exchange) -> Self {
        Self {
            exchange,
            edits: Vec::new(),
            upstream_vary: Vec::new(),
            body: Vec::new(),
        }
    }
}

/// Ends an exchange; what its functions gave out ends with it.
///
/// # Safety
/// `exchange` is NULL or from `sszip_exchange_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_free(exchange: *mut sszip_exchange) {
    // SAFETY: the function's contract.
    unsafe { free(exchange) }
}

/// The client's request head. Copies what it needs.
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
        let exchange = &mut borrow_mut!(exchange).exchange;
        let head = borrow_sized!(head);
        // SAFETY: the function's contract.
        done(exchange.request_head(unsafe {
            RequestHead {
                method: head.method.bytes(),
                target: head.target.bytes(),
                fields: fields_of(head.fields, head.nfields),
            }
        }))
    })
}

/// Changes to the head that the node gets. The list is valid until the next
/// call of an `_edits` function, its strings until `sszip_exchange_free`.
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

/// The response head. Copies what it needs. If the library fails inside, the
/// response passes without an edit, or, if it is to a part of a batch, is held
/// for a 502.
///
/// # Safety
/// `exchange` is NULL or valid; `head` is NULL or valid with all that it
/// points at; `action` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_response_head(
    exchange: *mut sszip_exchange,
    head: *const sszip_response_head,
    action: *mut sszip_head_action,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let head = borrow_sized!(head);
        let judged = caught(|| {
            // SAFETY: the function's contract.
            exchange.response_head(unsafe { response_head_of(head) })
        });
        let judged = judged.unwrap_or_else(|| {
            exchange.give_up(Mode::Failed)?;
            Ok(match exchange.state() {
                State::Collecting => HeadAction::Hold,
                _ => HeadAction::Pass,
            })
        });
        finish(judged, |judged| {
            give!(
                action,
                match judged {
                    HeadAction::Pass => sszip_head_action::SSZIP_HEAD_PASS,
                    HeadAction::Hold => sszip_head_action::SSZIP_HEAD_HOLD,
                    HeadAction::Stream => sszip_head_action::SSZIP_HEAD_STREAM,
                    HeadAction::Tee => sszip_head_action::SSZIP_HEAD_TEE,
                }
            );
            sszip_status::SSZIP_STATUS_OK
        })
    })
}

/// A piece of a held body. Copies it. If the library fails inside, the
/// exchange gives up.
///
/// # Safety
/// `exchange` is NULL or valid, `piece` a valid string; `action` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_piece(
    exchange: *mut sszip_exchange,
    piece: sszip_str,
    action: *mut sszip_piece_action,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        // SAFETY: the function's contract.
        let piece = unsafe { piece.bytes() };
        let taken = caught(|| exchange.piece(piece))
            .unwrap_or_else(|| exchange.give_up(Mode::Failed).map(|()| PieceAction::GiveUp));
        finish(taken, |taken| {
            if exchange.state() == State::Cut {
                return sszip_status::SSZIP_STATUS_MEMORY;
            }
            give!(action, piece_action(taken));
            sszip_status::SSZIP_STATUS_OK
        })
    })
}

/// The time to hold a head is over, or the node flushes. On
/// `SSZIP_PIECE_TAKEN` the host goes on holding.
///
/// # Safety
/// `exchange` is NULL or valid; `action` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_release(
    exchange: *mut sszip_exchange,
    action: *mut sszip_piece_action,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let released = caught(|| exchange.release())
            .unwrap_or_else(|| exchange.give_up(Mode::Failed).map(|()| PieceAction::GiveUp));
        finish(released, |released| {
            if exchange.state() == State::Cut {
                return sszip_status::SSZIP_STATUS_MEMORY;
            }
            give!(action, piece_action(released));
            sszip_status::SSZIP_STATUS_OK
        })
    })
}

/// For how long a held head, or what the encoder keeps of a stream, may be
/// held, in milliseconds; negative: until the body ends.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_hold_ms(
    exchange: *const sszip_exchange,
    out: *mut i64,
) -> sszip_status {
    boundary(|| {
        let hold_ms = borrow!(exchange).exchange.hold_ms();
        give!(
            out,
            hold_ms
                .and_then(|hold_ms| i64::try_from(hold_ms).ok())
                .unwrap_or(-1)
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Codes what was held, then `piece`, into `output`, as much as there is room
/// for. `flush` is an `sszip_flush`. On any status but `SSZIP_STATUS_OK` the
/// answer must be cut off visibly.
///
/// # Safety
/// `exchange` is NULL or valid, `piece` a valid string; `output` has room for
/// `room` bytes; `progress` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_stream(
    exchange: *mut sszip_exchange,
    piece: sszip_str,
    flush: u32,
    output: *mut u8,
    room: usize,
    progress: *mut sszip_progress,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        // SAFETY: the function's contract.
        let (piece, output) = unsafe { (piece.bytes(), room_of(output, room)) };
        let Some(flush) = sszip_flush::numbered(flush) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        match exchange.stream(piece, flush, output) {
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

/// The host saw the end of a held body. If the library fails inside, the
/// exchange gives up, or fails if the body is known not to be whole.
///
/// # Safety
/// `exchange` is NULL or valid; `action` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_end(
    exchange: *mut sszip_exchange,
    action: *mut sszip_end_action,
) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let ended = caught(|| exchange.end()).unwrap_or_else(|| exchange.end_without_coding());
        finish(ended, |end| {
            if exchange.state() == State::Cut && end != EndAction::Fail {
                return sszip_status::SSZIP_STATUS_MEMORY;
            }
            give!(
                action,
                match end {
                    EndAction::Code { off_loop: false } => sszip_end_action::SSZIP_END_CODE,
                    EndAction::Code { off_loop: true } => sszip_end_action::SSZIP_END_CODE_OFF_LOOP,
                    EndAction::Fail => sszip_end_action::SSZIP_END_FAIL,
                    EndAction::Stream => sszip_end_action::SSZIP_END_STREAM,
                    EndAction::GiveUp => sszip_end_action::SSZIP_END_GIVE_UP,
                }
            );
            sszip_status::SSZIP_STATUS_OK
        })
    })
}

/// The node went away while the head is held or the body streams.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_cut_short(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| done(borrow_mut!(exchange).exchange.cut_short()))
}

/// Runs the coder, milliseconds for each megabyte; any thread may call it,
/// while no other uses the exchange. If the library fails inside, the body is
/// the original. `SSZIP_STATUS_MEMORY`: there is no memory to put a batch
/// together, and a part of it is no answer.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_code(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let coded = caught(|| exchange.code());
        let coded = coded.unwrap_or_else(|| exchange.give_up(Mode::Failed));
        finish(coded, |()| match exchange.state() {
            State::Cut => sszip_status::SSZIP_STATUS_MEMORY,
            _ => sszip_status::SSZIP_STATUS_OK,
        })
    })
}

/// Changes to the head that the client gets. The list is valid until the next
/// call of an `_edits` function, its strings until `sszip_exchange_free`.
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

/// Whether the answer depends on `Accept-Encoding`: a host that writes that
/// `Vary` itself is to do so.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_varies(
    exchange: *const sszip_exchange,
    out: *mut bool,
) -> sszip_status {
    boundary(|| {
        give!(out, borrow!(exchange).exchange.varies());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What a cache between the exchange and the node should tell answers apart
/// by: the node's `Vary` value without the fields that the upstream edits make
/// the same for every request. Valid until the next call or
/// `sszip_exchange_free`.
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
        exchange.upstream_vary = exchange.exchange.upstream_vary(vary);
        give!(out, sszip_str::of(&exchange.upstream_vary));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Bytes to send right after the head, in pieces. The list is valid until the
/// next call, the bytes until `sszip_exchange_free`.
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
        // as many as a batch has answers
        let mut body = Vec::new();
        for piece in exchange.exchange.body() {
            if push(&mut body, sszip_str::of(piece)).is_none() {
                return sszip_status::SSZIP_STATUS_MEMORY;
            }
        }
        exchange.body = body;
        give!(npieces, exchange.body.len());
        give!(pieces, exchange.body.as_ptr());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What happened to the answer, for `sszip_mode_name`.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_mode(
    exchange: *const sszip_exchange,
    out: *mut u8,
) -> sszip_status {
    boundary(|| {
        give!(out, borrow!(exchange).exchange.mode() as u8);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Bytes of the body before it was coded and as the client gets it; the first
/// is 0 where the body was not coded.
///
/// # Safety
/// `exchange` is NULL or valid; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_sizes(
    exchange: *const sszip_exchange,
    received: *mut u64,
    sent: *mut u64,
) -> sszip_status {
    boundary(|| {
        let exchange = &borrow!(exchange).exchange;
        give!(received, exchange.received());
        give!(sent, exchange.sent());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// # Safety
/// `data` points at `len` bytes that nobody else uses during `'a`, or is NULL
/// with `len` 0.
unsafe fn room_of<'a>(data: *mut u8, len: usize) -> &'a mut [u8] {
    if len == 0 {
        &mut []
    } else {
        // SAFETY: not NULL since `len` is not 0; the caller's promise. Bytes
        // that were never written are read by nobody: the encoders only write.
        unsafe { std::slice::from_raw_parts_mut(data, len) }
    }
}

fn piece_action(action: PieceAction) -> sszip_piece_action {
    match action {
        PieceAction::Taken => sszip_piece_action::SSZIP_PIECE_TAKEN,
        PieceAction::GiveUp => sszip_piece_action::SSZIP_PIECE_GIVE_UP,
        PieceAction::Stream => sszip_piece_action::SSZIP_PIECE_STREAM,
    }
}

/// # Safety
/// `fields` are `nfields` fields of valid strings that stay as they are for
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

/// # Safety
/// All that `head` points at is valid and stays as it is for `'a`.
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
/// As of the `_edits` functions.
unsafe fn give_edits(
    exchange: *mut sszip_exchange,
    of: fn(&Exchange) -> &[HeadEdit],
    edits: *mut *const sszip_edit,
    nedits: *mut usize,
) -> sszip_status {
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        exchange.edits = of(&exchange.exchange)
            .iter()
            .map(|edit| sszip_edit {
                name: sszip_str::of(edit.name.as_bytes()),
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
    finish(result, |()| sszip_status::SSZIP_STATUS_OK)
}

fn finish<T>(result: Result<T, Misuse>, write: impl FnOnce(T) -> sszip_status) -> sszip_status {
    match result {
        Ok(value) => write(value),
        Err(_) => sszip_status::SSZIP_STATUS_MISUSE,
    }
}
