//! The script API: functions of the library for programs in the host.
//!
//! The library owns the results of these functions, and the error text in
//! `out`: they are valid until the next call of such a function on the same
//! thread, or `sszip_result_free`. The header calls them thread results.

use std::cell::RefCell;

use super::config::PROCESS;
use super::exchange_types::sszip_header;
use super::panic::{catch_panic_status, check_results, write_result};
use super::types::{borrow_slice, sszip_status, sszip_str};
use crate::bytes::SharedBytes;
use crate::gzip::inflate::{gunzip_reserved, InflateError};
use crate::gzip::oneshot::{compressed_bound, gzip_oneshot, OneshotError};
use crate::script::owner_http::OwnerReplyHead;
use crate::script::{cached_responses, request_calls, stored_values};
use crate::zstd::decompress_zstd;
use crate::zstd::oneshot::{zstd_compressed_bound, zstd_oneshot_into};

/// A call of a JSON-RPC request. Its strings point into the request body, or
/// into the library's decoded copy of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_call {
    /// Name of the method.
    pub method: sszip_str,
    /// Raw JSON of the id; NULL `data`: there is none.
    pub id: sszip_str,
    /// Raw JSON of the params; NULL `data`: there are none.
    pub params: sszip_str,
}

/// The memory of the last result that a thread received from the script API,
/// which stays valid until the thread's next result.
#[derive(Default)]
struct ScriptThreadResult {
    _bytes: Option<SharedBytes>,
    /// A body that the host wrote, or a decompressed body.
    _body: Vec<u8>,
    _calls: Vec<sszip_call>,
}

thread_local! {
    static THREAD_RESULT: RefCell<ScriptThreadResult> = RefCell::default();
}

/// Replaces the thread result of this thread, whose memory is freed.
fn set_thread_result(result: ScriptThreadResult) {
    THREAD_RESULT.with(|last| *last.borrow_mut() = result);
}

/// Writes the position of `bytes` to `out`, and keeps them until the thread's next result.
fn return_result_bytes(bytes: SharedBytes, out: *mut sszip_str) -> sszip_status {
    write_result!(out, sszip_str::from_bytes(&bytes));
    set_thread_result(ScriptThreadResult {
        _bytes: Some(bytes),
        ..ScriptThreadResult::default()
    });
    sszip_status::SSZIP_STATUS_OK
}

/// Writes the result of a function of the script API to `out`: bytes, none
/// (NULL `data`), or the text of an error.
pub(super) fn return_thread_result<B: Into<SharedBytes>, E: ToString>(
    result: Result<Option<B>, E>,
    out: *mut sszip_str,
) -> sszip_status {
    match result {
        Ok(Some(bytes)) => return_result_bytes(bytes.into(), out),
        Ok(None) => {
            write_result!(out, sszip_str::ABSENT);
            sszip_status::SSZIP_STATUS_OK
        }
        Err(why) => match return_result_bytes(why.to_string().into_bytes().into(), out) {
            sszip_status::SSZIP_STATUS_OK => sszip_status::SSZIP_STATUS_INVALID,
            other => other,
        },
    }
}

/// Writes a compressed body or the text of its error to `out`; `level_error` is
/// the text for an unknown level.
fn return_compressed(
    coded: Result<Vec<u8>, OneshotError>,
    level_error: &str,
    out: *mut sszip_str,
) -> sszip_status {
    let coded = coded.map(Some).map_err(|error| match error {
        OneshotError::Level(_) => level_error,
        OneshotError::NotSmaller | OneshotError::OutOfMemory => "out of memory",
    });
    return_thread_result(coded, out)
}

/// Writes a decompressed body or the text of its error to `out`; `damage_error`
/// is the text for a body that cannot be decompressed.
fn return_decompressed(
    plain: Result<Vec<u8>, InflateError>,
    damage_error: &str,
    out: *mut sszip_str,
) -> sszip_status {
    let plain = plain.map(Some).map_err(|error| match error {
        InflateError::Bad => damage_error,
        InflateError::TooLarge => "the decompressed data is longer than the limit",
        InflateError::OutOfMemory => "out of memory",
    });
    return_thread_result(plain, out)
}

/// Frees the thread result of this thread. Not needed before another call.
#[no_mangle]
pub extern "C" fn sszip_result_free() {
    catch_panic_status(|| {
        set_thread_result(ScriptThreadResult::default());
        sszip_status::SSZIP_STATUS_OK
    });
}

/// Writes to `out` the value that a program stored under a name in this
/// process's memory; NULL `data`: there is none; on `SSZIP_STATUS_INVALID` an
/// error text. `out` is a thread result.
///
/// # Safety
/// `name` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_value_get(
    name: sszip_str,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let name = unsafe { name.borrow_bytes() };
        return_thread_result(stored_values::stored_value(&PROCESS.shared, name, now), out)
    })
}

/// Stores a value for `ttl` milliseconds. Writes to `out` the request that
/// stores it with the owner, which the caller sends unchanged; NULL `data`:
/// there is no owner; on `SSZIP_STATUS_INVALID` an error text. `out` is a
/// thread result.
///
/// # Safety
/// `name` and `value` are valid strings; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_value_set(
    name: sszip_str,
    value: sszip_str,
    ttl: u64,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let (name, value) = unsafe { (name.borrow_bytes(), value.borrow_bytes()) };
        return_thread_result(
            stored_values::set_stored_value(&PROCESS.shared, name, value, ttl, now),
            out,
        )
    })
}

/// Removes a value. Writes to `out` the request to the owner that purges it in
/// all processes; NULL `data`: there is no owner; on `SSZIP_STATUS_INVALID` an
/// error text. `out` is a thread result.
///
/// # Safety
/// `name` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_value_delete(name: sszip_str, out: *mut sszip_str) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let name = unsafe { name.borrow_bytes() };
        return_thread_result(
            stored_values::delete_stored_value(&PROCESS.shared, name),
            out,
        )
    })
}

/// Writes to `out` the request that looks a value up with the owner, and to
/// `generation` the number that `sszip_value_decode_reply` needs; NULL `data`:
/// there is no owner; on `SSZIP_STATUS_INVALID` an error text to `out`. `out`
/// is a thread result.
///
/// # Safety
/// `name` is a valid string; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_value_lookup_request(
    name: sszip_str,
    out: *mut sszip_str,
    generation: *mut u64,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out, generation);
        // SAFETY: the function's contract.
        let request =
            stored_values::value_lookup_request(&PROCESS.shared, unsafe { name.borrow_bytes() });
        let known = request.as_ref().ok().and_then(Option::as_ref);
        write_result!(generation, known.map_or(0, |(_, generation)| *generation));
        return_thread_result(request.map(|request| request.map(|(text, _)| text)), out)
    })
}

/// Decodes the owner's reply, head and body, to a request of
/// `sszip_value_lookup_request`. Writes the value to `out`; NULL `data`: there
/// is none; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.
///
/// # Safety
/// The strings are valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_value_decode_reply(
    name: sszip_str,
    head: sszip_str,
    body: sszip_str,
    generation: u64,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let (name, reply) = unsafe {
            (
                name.borrow_bytes(),
                (head.borrow_bytes(), body.borrow_bytes()),
            )
        };
        return_thread_result(
            stored_values::accept_value_lookup_reply(&PROCESS.shared, name, reply, generation, now),
            out,
        )
    })
}

/// Writes to `out` the response that is stored in this process's memory under
/// `key`, 64 hexadecimal digits, with `id`, raw JSON, as the id of its call;
/// NULL `data`: there is none; on `SSZIP_STATUS_INVALID` an error text. `out`
/// is a thread result.
///
/// # Safety
/// The strings are valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_cached_response_get(
    key: sszip_str,
    id: sszip_str,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let (key, id) = unsafe { (key.borrow_bytes(), id.borrow_bytes()) };
        let found = match blake3::Hash::from_hex(key) {
            Ok(key) => {
                cached_responses::cached_call_response(&PROCESS.shared, key.as_bytes(), id, now)
            }
            Err(_) => Err("the key must be 64 hexadecimal digits".into()),
        };
        return_thread_result(found, out)
    })
}

/// Writes to `out` the request to the owner that purges the entries that
/// `query` selects (docs/caching.md, Purging); NULL `data`: there is no owner;
/// on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.
///
/// # Safety
/// `query` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_purge_request(
    query: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let query = unsafe { query.borrow_bytes() };
        return_thread_result(
            stored_values::build_scope_purge_request(&PROCESS.shared, query),
            out,
        )
    })
}

/// Parses the head of an owner reply, up to its empty line: writes its status
/// code to `status`, and the length of its body in bytes to `length`.
///
/// # Errors
/// `SSZIP_STATUS_INVALID`: `head` is no head of an owner reply; no text is
/// written.
///
/// # Safety
/// `head` is a valid string; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_reply_head(
    head: sszip_str,
    status: *mut u16,
    length: *mut usize,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(status, length);
        // SAFETY: the function's contract.
        let read = OwnerReplyHead::parse(unsafe { head.borrow_bytes() });
        let read = read.ok().flatten();
        let Some((head, bytes)) = read.map(|head| (head.status, head.length)) else {
            return sszip_status::SSZIP_STATUS_INVALID;
        };
        write_result!(status, head);
        write_result!(length, bytes);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Compresses `data` to one gzip member with a level of 0 to 12. Writes it to
/// `out`; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.
///
/// # Safety
/// `data` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_gzip(
    data: sszip_str,
    level: u8,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let data = unsafe { data.borrow_bytes() };
        let coded = gzip_oneshot(data, level, compressed_bound(data.len()).saturating_add(1));
        return_compressed(coded, "the level must be from 0 to 12", out)
    })
}

/// Decompresses gzip members to at most `max_length` bytes. Writes them to
/// `out`; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.
///
/// # Safety
/// `data` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_gunzip(
    data: sszip_str,
    max_length: usize,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let plain = gunzip_reserved(unsafe { data.borrow_bytes() }, max_length);
        return_decompressed(plain, "the data is not gzip, or is damaged", out)
    })
}

/// Compresses `data` to one zstd frame with a level of 1 to 19. Writes it to
/// `out`; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.
///
/// # Safety
/// `data` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_zstd(
    data: sszip_str,
    level: u8,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let data = unsafe { data.borrow_bytes() };
        let limit = zstd_compressed_bound(data.len());
        let coded = zstd_oneshot_into(data, level, limit, Vec::new());
        return_compressed(coded, "the level must be from 1 to 19", out)
    })
}

/// Decompresses zstd frames, with windows of at most 8 MiB, to at most
/// `max_length` bytes. Writes them to `out`; on `SSZIP_STATUS_INVALID` an
/// error text. `out` is a thread result.
///
/// # Safety
/// `data` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_unzstd(
    data: sszip_str,
    max_length: usize,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let plain = decompress_zstd(unsafe { data.borrow_bytes() }, max_length, |_| true);
        return_decompressed(plain, "the data is not zstd, or is damaged", out)
    })
}

/// Returns memory for a body of `length` bytes, into which the host writes the
/// body before `sszip_calls_parse`; NULL: memory is exhausted. The memory is a
/// thread result, and may be passed to one call of `sszip_calls_parse`.
#[no_mangle]
pub extern "C" fn sszip_calls_buffer(length: usize) -> *mut u8 {
    let mut body = Vec::new();
    if body.try_reserve_exact(length).is_err() {
        return std::ptr::null_mut();
    }
    body.resize(length, 0);
    let room = body.as_mut_ptr();
    catch_panic_status(|| {
        set_thread_result(ScriptThreadResult {
            _body: body,
            ..ScriptThreadResult::default()
        });
        sszip_status::SSZIP_STATUS_OK
    });
    room
}

/// Parses the calls of a request whose headers are `fields`: at most
/// `max_calls`, in a body of at most `max_bytes`, which is decompressed if it
/// has a content coding. The body is in the host's memory, or in the memory of
/// this thread's last `sszip_calls_buffer`. Writes the list of calls to
/// `calls` and `ncalls`, and to `is_batch` whether the request is a batch; on
/// `SSZIP_STATUS_INVALID` a word for the error to `out`. The list and the word
/// are thread results. The strings of the calls point into `body`, which the
/// host keeps as long, or into a thread result.
///
/// # Safety
/// `fields` are `nfields` valid fields, and `body` is a valid string; the
/// results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_calls_parse(
    fields: *const sszip_header,
    nfields: usize,
    body: sszip_str,
    max_bytes: usize,
    max_calls: usize,
    calls: *mut *const sszip_call,
    ncalls: *mut usize,
    is_batch: *mut bool,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(calls, ncalls, is_batch, out);
        // SAFETY: the function's contract.
        let (fields, body) = unsafe { (borrow_slice(fields, nfields), body.borrow_bytes()) };
        let codings = fields.iter().filter_map(|field| {
            // SAFETY: the function's contract.
            let (name, value) = unsafe { (field.name.borrow_bytes(), field.value.borrow_bytes()) };
            name.eq_ignore_ascii_case(b"content-encoding")
                .then_some(value)
        });
        let plain = match request_calls::decode_request_body(body, codings, max_bytes) {
            Ok(plain) => plain,
            Err(no) => return return_thread_result::<Vec<u8>, _>(Err(no), out),
        };
        let (found, batch) = match request_calls::parse_request_calls(&plain, max_calls) {
            Ok(found) => found,
            Err(no) => return return_thread_result::<Vec<u8>, _>(Err(no), out),
        };
        let text = |text: Option<&[u8]>| text.map_or(sszip_str::ABSENT, sszip_str::from_bytes);
        let found: Vec<sszip_call> = found
            .iter()
            .map(|call| sszip_call {
                method: sszip_str::from_bytes(call.method),
                id: text(call.id),
                params: text(call.params),
            })
            .collect();
        write_result!(calls, found.as_ptr());
        write_result!(ncalls, found.len());
        write_result!(is_batch, batch);
        THREAD_RESULT.with(|result| {
            let mut result = result.borrow_mut();
            result._calls = found;
            // a borrowed body is the host's, or in the result already
            if let std::borrow::Cow::Owned(decoded) = plain {
                result._body = decoded;
            }
        });
        sszip_status::SSZIP_STATUS_OK
    })
}
