//! The exchange.

use std::sync::Arc;

use super::config::{free, sszip_config};
use super::panic::{borrow, borrow_mut, boundary, caught, give};
use super::types::{
    slice_of, sszip_edit, sszip_end_action, sszip_field, sszip_head_action, sszip_piece_action,
    sszip_response_head, sszip_status, sszip_str,
};
use crate::exchange::{
    EndAction, Exchange, Field, HeadAction, HeadEdit, Misuse, PieceAction, ResponseHead,
};
use crate::mode::Mode;

/// One HTTP exchange: one a request. docs/exchange.md has the order of calls.
pub struct sszip_exchange {
    exchange: Exchange,
    /// What the last call of an `_edits` function gave out.
    edits: Vec<sszip_edit>,
    /// What `sszip_exchange_upstream_vary` gave out.
    upstream_vary: Vec<u8>,
}

/// A new exchange at a place with these settings.
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
        give!(
            out,
            Box::into_raw(Box::new(sszip_exchange {
                exchange: Exchange::new(config),
                edits: Vec::new(),
                upstream_vary: Vec::new(),
            }))
        );
        sszip_status::SSZIP_STATUS_OK
    })
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
/// `exchange` is NULL or valid; `method` and the `nfields` fields are valid
/// strings.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_request_head(
    exchange: *mut sszip_exchange,
    method: sszip_str,
    fields: *const sszip_field,
    nfields: usize,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let (method, fields) = unsafe { (method.bytes(), fields_of(fields, nfields)) };
        done(borrow_mut!(exchange).exchange.request_head(method, fields))
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
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        exchange.edits = listed(exchange.exchange.upstream_edits());
        give!(nedits, exchange.edits.len());
        give!(edits, exchange.edits.as_ptr());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The response head. Copies what it needs. If the library fails inside, the
/// response passes without an edit.
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
        let head = borrow!(head);
        if head.size != size_of::<sszip_response_head>() {
            return sszip_status::SSZIP_STATUS_MISUSE;
        }
        let judged = caught(|| {
            exchange.response_head(ResponseHead {
                status: head.status,
                content_length: u64::try_from(head.content_length).ok(),
                // SAFETY: the function's contract.
                fields: unsafe { fields_of(head.fields, head.nfields) },
                subrequest: head.subrequest,
                coding_allowed: head.coding_allowed,
                host_writes_vary: head.host_writes_vary,
            })
        });
        let judged =
            judged.unwrap_or_else(|| exchange.give_up(Mode::Failed).map(|()| HeadAction::Pass));
        finish(judged, |judged| {
            give!(
                action,
                match judged {
                    HeadAction::Pass => sszip_head_action::SSZIP_HEAD_PASS,
                    HeadAction::Hold => sszip_head_action::SSZIP_HEAD_HOLD,
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
            give!(
                action,
                match taken {
                    PieceAction::Taken => sszip_piece_action::SSZIP_PIECE_TAKEN,
                    PieceAction::GiveUp => sszip_piece_action::SSZIP_PIECE_GIVE_UP,
                }
            );
            sszip_status::SSZIP_STATUS_OK
        })
    })
}

/// The host saw the end of a held body.
///
/// # Safety
/// `exchange` is NULL or valid; `action` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_end(
    exchange: *mut sszip_exchange,
    action: *mut sszip_end_action,
) -> sszip_status {
    boundary(|| {
        finish(borrow_mut!(exchange).exchange.end(), |end| {
            give!(
                action,
                match end {
                    EndAction::Code { off_loop: false } => sszip_end_action::SSZIP_END_CODE,
                    EndAction::Code { off_loop: true } => sszip_end_action::SSZIP_END_CODE_OFF_LOOP,
                    EndAction::Fail => sszip_end_action::SSZIP_END_FAIL,
                }
            );
            sszip_status::SSZIP_STATUS_OK
        })
    })
}

/// The node went away while the head is held.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_cut_short(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| done(borrow_mut!(exchange).exchange.cut_short()))
}

/// Runs the coder, milliseconds for each megabyte; any thread may call it,
/// while no other uses the exchange. If the library fails inside, the body is
/// the original.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_code(exchange: *mut sszip_exchange) -> sszip_status {
    boundary(|| {
        let exchange = &mut borrow_mut!(exchange).exchange;
        let coded = caught(|| exchange.code());
        done(coded.unwrap_or_else(|| exchange.give_up(Mode::Failed)))
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
    boundary(|| {
        let exchange = borrow_mut!(exchange);
        exchange.edits = listed(exchange.exchange.head_edits());
        give!(nedits, exchange.edits.len());
        give!(edits, exchange.edits.as_ptr());
        sszip_status::SSZIP_STATUS_OK
    })
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

/// Bytes to send right after the head. They stay as they are until
/// `sszip_exchange_free`.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_body(
    exchange: *const sszip_exchange,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        give!(out, sszip_str::of(borrow!(exchange).exchange.body()));
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

/// Length in bytes of the held body as the node sent it. With the length of
/// `sszip_exchange_body` it gives the ratio.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_received(
    exchange: *const sszip_exchange,
    out: *mut usize,
) -> sszip_status {
    boundary(|| {
        give!(out, borrow!(exchange).exchange.received());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// # Safety
/// `fields` are `nfields` fields of valid strings that stay as they are for
/// `'a`.
unsafe fn fields_of<'a>(
    fields: *const sszip_field,
    nfields: usize,
) -> impl Iterator<Item = Field<'a>> {
    // SAFETY: the caller's promise.
    let fields = unsafe { slice_of(fields, nfields) };
    fields.iter().map(|field| {
        // SAFETY: the caller's promise.
        unsafe { (field.name.bytes(), field.value.bytes()) }
    })
}

fn listed(edits: &[HeadEdit]) -> Vec<sszip_edit> {
    edits
        .iter()
        .map(|edit| sszip_edit {
            name: sszip_str::of(edit.name.as_bytes()),
            value: match &edit.value {
                Some(value) => sszip_str::of(value),
                None => sszip_str::ABSENT,
            },
        })
        .collect()
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
