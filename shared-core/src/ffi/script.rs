//! The script API: functions of the library for programs in the host.
//!
//! The library owns the results of these functions, and the error text in
//! `out`: they are valid until the next call of such a function on the same
//! thread, or `sszip_result_free`.

use std::cell::RefCell;

use super::config::PROCESS;
use super::panic::{boundary, write_result};
use super::status::{board_of, sszip_metrics_board};
use super::types::{slice_of, sszip_header, sszip_status, sszip_str};
use crate::bytes::Bytes;
use crate::cache::link::Head;
use crate::gzip::inflate::{gunzip, InflateError};
use crate::gzip::oneshot::{compressed_bound, gzip, OneshotError};
use crate::script::ssz_values::SszTypeName;
use crate::script::{cached_responses, calls, metrics, ssz_values, stored_values};

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

/// A metric of the host's workers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_metric {
    /// Name of the metric.
    pub name: sszip_str,
    /// Value of the metric.
    pub number: u64,
}

/// Selects an SSZ type; an empty string means that the property is not
/// specified.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_ssz_type {
    /// Name of the type as the consensus specifications write it, or a
    /// JSON-RPC method or the path of a Beacon API route, whose result is
    /// meant.
    pub name: sszip_str,
    /// Name of the fork.
    pub fork: sszip_str,
    /// Name of the preset.
    pub preset: sszip_str,
    /// Role of a JSON input: "value", "answer" or "auto".
    pub form: sszip_str,
    /// Path of a part of an SSZ value.
    pub path: sszip_str,
}

/// Result that the last call of a function on this thread returned.
#[derive(Default)]
struct ThreadResult {
    _bytes: Option<Bytes>,
    /// A body that the host wrote, or a decompressed body.
    _body: Vec<u8>,
    _calls: Vec<sszip_call>,
    _figures: (Vec<sszip_metric>, Vec<String>),
}

thread_local! {
    static THREAD_RESULT: RefCell<ThreadResult> = RefCell::default();
}

/// Replaces the result of this thread.
fn set_thread_result(result: ThreadResult) {
    THREAD_RESULT.with(|last| *last.borrow_mut() = result);
}

fn return_bytes(bytes: Bytes, out: *mut sszip_str) -> sszip_status {
    write_result!(out, sszip_str::from_bytes(&bytes));
    set_thread_result(ThreadResult {
        _bytes: Some(bytes),
        ..ThreadResult::default()
    });
    sszip_status::SSZIP_STATUS_OK
}

/// Returns the result of a function: bytes, none (NULL `data`), or the text of
/// an error.
fn return_result<B: Into<Bytes>, E: ToString>(
    result: Result<Option<B>, E>,
    out: *mut sszip_str,
) -> sszip_status {
    match result {
        Ok(Some(bytes)) => return_bytes(bytes.into(), out),
        Ok(None) => {
            write_result!(out, sszip_str::ABSENT);
            sszip_status::SSZIP_STATUS_OK
        }
        Err(why) => match return_bytes(why.to_string().into_bytes().into(), out) {
            sszip_status::SSZIP_STATUS_OK => sszip_status::SSZIP_STATUS_INVALID,
            other => other,
        },
    }
}

/// Frees the last result of this thread.
#[no_mangle]
pub extern "C" fn sszip_result_free() {
    boundary(|| {
        set_thread_result(ThreadResult::default());
        sszip_status::SSZIP_STATUS_OK
    });
}

/// Returns the value that a program stored under a name in this process's
/// memory; NULL `data`: there is none.
///
/// # Safety
/// `name` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_value_get(
    name: sszip_str,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let name = unsafe { name.bytes() };
        return_result(stored_values::get(&PROCESS.shared, name, now), out)
    })
}

/// Stores a value for `ttl` milliseconds. Writes to `out` the request that
/// stores it with the owner, which the caller sends unchanged; NULL `data`:
/// there is no owner.
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
    boundary(|| {
        // SAFETY: the function's contract.
        let (name, value) = unsafe { (name.bytes(), value.bytes()) };
        return_result(
            stored_values::set(&PROCESS.shared, name, value, ttl, now),
            out,
        )
    })
}

/// Removes a value. Writes to `out` the request to the owner that purges it in
/// all processes; NULL `data`: there is no owner.
///
/// # Safety
/// `name` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_value_delete(name: sszip_str, out: *mut sszip_str) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let name = unsafe { name.bytes() };
        return_result(stored_values::delete(&PROCESS.shared, name), out)
    })
}

/// Returns the request that looks a value up with the owner, and the
/// `generation` that `sszip_value_decode_reply` needs; NULL `data`: there is no owner.
///
/// # Safety
/// `name` is a valid string; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_value_lookup_request(
    name: sszip_str,
    out: *mut sszip_str,
    generation: *mut u64,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let request = stored_values::lookup_request(&PROCESS.shared, unsafe { name.bytes() });
        let known = request.as_ref().ok().and_then(Option::as_ref);
        write_result!(generation, known.map_or(0, |(_, generation)| *generation));
        return_result(request.map(|request| request.map(|(text, _)| text)), out)
    })
}

/// Decodes the owner's reply, head and body, to a request of
/// `sszip_value_lookup_request`. Returns the value, with the conventions of
/// `sszip_value_get`.
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
    boundary(|| {
        // SAFETY: the function's contract.
        let (name, reply) = unsafe { (name.bytes(), (head.bytes(), body.bytes())) };
        return_result(
            stored_values::accept_reply(&PROCESS.shared, name, reply, generation, now),
            out,
        )
    })
}

/// Returns the response that is stored in this process's memory under `key`,
/// 64 hexadecimal digits, with `id`, raw JSON, as the id of its call; NULL
/// `data`: there is none.
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
    boundary(|| {
        // SAFETY: the function's contract.
        let (key, id) = unsafe { (key.bytes(), id.bytes()) };
        let found = match blake3::Hash::from_hex(key) {
            Ok(key) => cached_responses::get(&PROCESS.shared, key.as_bytes(), id, now),
            Err(_) => Err("the key must be 64 hexadecimal digits".into()),
        };
        return_result(found, out)
    })
}

/// Returns the request to the owner that purges the entries that `query`
/// selects (docs/caching.md, Purging); NULL `data`: there is no owner.
///
/// # Safety
/// `query` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_purge_request(
    query: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let query = unsafe { query.bytes() };
        return_result(stored_values::purge(&PROCESS.shared, query), out)
    })
}

/// Parses the head of an owner reply, up to its empty line: returns its status
/// code and the length of its body in bytes.
///
/// # Safety
/// `head` is a valid string; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_reply_head(
    head: sszip_str,
    status: *mut u16,
    length: *mut usize,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let read = Head::parse(unsafe { head.bytes() });
        let read = read.ok().flatten();
        let Some((head, bytes)) = read.and_then(|head| Some((head.response.status, head.length?)))
        else {
            return sszip_status::SSZIP_STATUS_INVALID;
        };
        write_result!(status, head);
        write_result!(length, bytes);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Compresses `data` to one gzip member with a level of 0 to 12.
///
/// # Safety
/// `data` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_gzip(
    data: sszip_str,
    level: u8,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let data = unsafe { data.bytes() };
        let coded = gzip(data, level, compressed_bound(data.len()).saturating_add(1));
        let coded = coded.map(Some).map_err(|why| match why {
            OneshotError::Level(_) => "the level must be from 0 to 12",
            OneshotError::NotSmaller | OneshotError::OutOfMemory => "no memory",
        });
        return_result(coded, out)
    })
}

/// Decompresses gzip members to at most `max_length` bytes.
///
/// # Safety
/// `data` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_gunzip(
    data: sszip_str,
    max_length: usize,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let plain = gunzip(unsafe { data.bytes() }, max_length);
        let plain = plain.map(Some).map_err(|why| match why {
            InflateError::Bad => "not gzip, or damaged",
            InflateError::TooLarge => "longer than it may be",
            InflateError::OutOfMemory => "no memory",
        });
        return_result(plain, out)
    })
}

/// # Safety
/// `ssz_type` is NULL or valid with all that it points at.
unsafe fn with_ssz_type<B: Into<Bytes>>(
    ssz_type: *const sszip_ssz_type,
    out: *mut sszip_str,
    run: impl FnOnce(&SszTypeName<'_>, &str, &str) -> Result<B, String>,
) -> sszip_status {
    // SAFETY: the function's contract.
    let Some(names) = (unsafe { ssz_type.as_ref() }) else {
        return sszip_status::SSZIP_STATUS_NULL;
    };
    // SAFETY: the function's contract.
    let text = |text: sszip_str| std::str::from_utf8(unsafe { text.bytes() });
    let (Ok(name), Ok(fork), Ok(preset), Ok(form), Ok(path)) = (
        text(names.name),
        text(names.fork),
        text(names.preset),
        text(names.form),
        text(names.path),
    ) else {
        return return_result::<Vec<u8>, _>(Err("a name is not UTF-8"), out);
    };
    let ssz_type = SszTypeName { name, fork, preset };
    return_result(run(&ssz_type, form, path).map(Some), out)
}

/// Converts JSON to SSZ.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at, `json` a valid
/// string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_json_to_ssz(
    ssz_type: *const sszip_ssz_type,
    json: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    boundary(|| unsafe {
        with_ssz_type(ssz_type, out, |ssz_type, form, _| {
            ssz_values::to_ssz(ssz_type, form, json.bytes())
        })
    })
}

/// Converts SSZ to JSON.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
/// string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_to_json(
    ssz_type: *const sszip_ssz_type,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    boundary(|| unsafe {
        with_ssz_type(ssz_type, out, |ssz_type, _, path| {
            ssz_values::to_json(ssz_type, path, ssz.bytes())
        })
    })
}

/// Checks that SSZ is a valid value of the type. `out` is empty if it is.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
/// string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_check(
    ssz_type: *const sszip_ssz_type,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    boundary(|| unsafe {
        with_ssz_type(ssz_type, out, |ssz_type, _, _| {
            ssz_values::check(ssz_type, ssz.bytes()).map(|()| Vec::new())
        })
    })
}

/// Computes the hash tree root of SSZ: `0x` and 64 hexadecimal digits.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
/// string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_root(
    ssz_type: *const sszip_ssz_type,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    boundary(|| unsafe {
        with_ssz_type(ssz_type, out, |ssz_type, _, path| {
            ssz_values::root(ssz_type, path, ssz.bytes()).map(String::into_bytes)
        })
    })
}

/// Returns memory for a body of `length` bytes, into which the host writes the
/// body before `sszip_calls_parse`; NULL: memory is exhausted. Valid until the
/// next call of a function of the script API on this thread other than
/// `sszip_calls_parse`, or `sszip_result_free`.
#[no_mangle]
pub extern "C" fn sszip_calls_buffer(length: usize) -> *mut u8 {
    let mut body = Vec::new();
    if body.try_reserve_exact(length).is_err() {
        return std::ptr::null_mut();
    }
    body.resize(length, 0);
    let room = body.as_mut_ptr();
    boundary(|| {
        set_thread_result(ThreadResult {
            _body: body,
            ..ThreadResult::default()
        });
        sszip_status::SSZIP_STATUS_OK
    });
    room
}

/// Parses the calls of a request whose headers are `fields`: at most
/// `max_calls`, in a body of at most `max_bytes`, which is decompressed if it
/// has a content coding. The body lies in the host's memory or in the memory
/// of `sszip_calls_buffer`; the results point into it, or into the decompressed
/// body. On `SSZIP_STATUS_INVALID` a word for the error is written to `out`.
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
    boundary(|| {
        // SAFETY: the function's contract.
        let (fields, body) = unsafe { (slice_of(fields, nfields), body.bytes()) };
        let codings = fields.iter().filter_map(|field| {
            // SAFETY: the function's contract.
            let (name, value) = unsafe { (field.name.bytes(), field.value.bytes()) };
            name.eq_ignore_ascii_case(b"content-encoding")
                .then_some(value)
        });
        let plain = match calls::decode_body(body, codings, max_bytes) {
            Ok(plain) => plain,
            Err(no) => return return_result::<Vec<u8>, _>(Err(no), out),
        };
        let (found, batch) = match calls::read(&plain, max_calls) {
            Ok(found) => found,
            Err(no) => return return_result::<Vec<u8>, _>(Err(no), out),
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

/// Returns the metrics that the workers of the host counted.
///
/// # Safety
/// `board` is NULL or valid, and its memory was passed to `sszip_metrics_board_init`;
/// the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_metrics_board_read(
    board: *const sszip_metrics_board,
    figures: *mut *const sszip_metric,
    nfigures: *mut usize,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let board = match unsafe { board_of(board) } {
            Ok((board, worker)) => {
                // the gauges of this worker may be as old as its last request
                super::status::show(&PROCESS, board, worker);
                board
            }
            Err(status) => return status,
        };
        let (names, numbers): (Vec<_>, Vec<_>) = metrics::flat_metrics(board).into_iter().unzip();
        let found: Vec<sszip_metric> = names
            .iter()
            .zip(numbers)
            .map(|(name, number)| sszip_metric {
                name: sszip_str::from_bytes(name.as_bytes()),
                number,
            })
            .collect();
        write_result!(figures, found.as_ptr());
        write_result!(nfigures, found.len());
        set_thread_result(ThreadResult {
            _figures: (found, names),
            ..ThreadResult::default()
        });
        sszip_status::SSZIP_STATUS_OK
    })
}
