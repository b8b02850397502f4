//! What programs in the host may use of the library.
//!
//! What these functions give out, and `out` where they say why not, is the library's: it is
//! valid until the next call of one of them on this thread, or `sszip_given_free`.

use std::cell::RefCell;

use super::config::PROCESS;
use super::panic::{boundary, give};
use super::status::{board_of, sszip_board};
use super::types::{slice_of, sszip_field, sszip_status, sszip_str};
use crate::bytes::Bytes;
use crate::cache::link::Head;
use crate::gzip::inflate::{gunzip, InflateError};
use crate::gzip::oneshot::{bound, gzip, OneshotError};
use crate::script::values::What;
use crate::script::{calls, figures, kept, stored, values};

/// A call of a request. What it points at lies in the request's body.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_call {
    /// The method's name.
    pub method: sszip_str,
    /// The id, raw JSON; NULL `data`: there is none.
    pub id: sszip_str,
    /// The same of the params.
    pub params: sszip_str,
}

/// Something that was counted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_figure {
    /// What it is.
    pub name: sszip_str,
    /// How many.
    pub number: u64,
}

/// Which SSZ type; what is empty was not said.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_what {
    /// As the specs write it; or a method of JSON-RPC, or the path of a route of the
    /// Beacon API, for what that gives.
    pub name: sszip_str,
    /// Of which fork.
    pub fork: sszip_str,
    /// Of which preset.
    pub preset: sszip_str,
    /// Of JSON, what it is: "value", "answer" or "auto".
    pub form: sszip_str,
    /// Of SSZ, which part is meant.
    pub path: sszip_str,
}

/// What a thread was given last.
#[derive(Default)]
struct Given {
    _bytes: Option<Bytes>,
    /// A body that the host has written, or what it is without its coding.
    _body: Vec<u8>,
    _calls: Vec<sszip_call>,
    _figures: (Vec<sszip_figure>, Vec<String>),
}

thread_local! {
    static GIVEN: RefCell<Given> = RefCell::default();
}

/// Keeps what is given out, in place of what was.
fn keep(given: Given) {
    GIVEN.with(|last| *last.borrow_mut() = given);
}

fn lend(bytes: Bytes, out: *mut sszip_str) -> sszip_status {
    give!(out, sszip_str::of(&bytes));
    keep(Given {
        _bytes: Some(bytes),
        ..Given::default()
    });
    sszip_status::SSZIP_STATUS_OK
}

/// What a function gives: bytes, none (NULL `data`), or why not.
fn answer<B: Into<Bytes>, E: ToString>(
    result: Result<Option<B>, E>,
    out: *mut sszip_str,
) -> sszip_status {
    match result {
        Ok(Some(bytes)) => lend(bytes.into(), out),
        Ok(None) => {
            give!(out, sszip_str::ABSENT);
            sszip_status::SSZIP_STATUS_OK
        }
        Err(why) => match lend(why.to_string().into_bytes().into(), out) {
            sszip_status::SSZIP_STATUS_OK => sszip_status::SSZIP_STATUS_INVALID,
            other => other,
        },
    }
}

/// Frees what this thread was given last.
#[no_mangle]
pub extern "C" fn sszip_given_free() {
    boundary(|| {
        keep(Given::default());
        sszip_status::SSZIP_STATUS_OK
    });
}

/// The value that a program keeps under a name in this process's memory; NULL `data`:
/// there is none.
///
/// # Safety
/// `name` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_kept_get(
    name: sszip_str,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let name = unsafe { name.bytes() };
        answer(kept::get(&PROCESS.shared, name, now), out)
    })
}

/// Keeps a value for `ttl` milliseconds. `out` is the request to the owner of a store, to
/// be sent as it is, that gives it the value; NULL `data`: there is no owner.
///
/// # Safety
/// `name` and `value` are valid strings; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_kept_set(
    name: sszip_str,
    value: sszip_str,
    ttl: u64,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let (name, value) = unsafe { (name.bytes(), value.bytes()) };
        answer(kept::set(&PROCESS.shared, name, value, ttl, now), out)
    })
}

/// Forgets a value. `out` is the request to the owner that purges it everywhere; NULL
/// `data`: there is no owner.
///
/// # Safety
/// `name` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_kept_delete(name: sszip_str, out: *mut sszip_str) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let name = unsafe { name.bytes() };
        answer(kept::delete(&PROCESS.shared, name), out)
    })
}

/// The request that looks a value up with the owner, and the `generation` that
/// `sszip_kept_take` has to know; NULL `data`: there is no owner.
///
/// # Safety
/// `name` is a valid string; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_kept_look_up(
    name: sszip_str,
    out: *mut sszip_str,
    generation: *mut u64,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let asked = kept::look_up(&PROCESS.shared, unsafe { name.bytes() });
        let known = asked.as_ref().ok().and_then(Option::as_ref);
        give!(generation, known.map_or(0, |(_, generation)| *generation));
        answer(asked.map(|asked| asked.map(|(text, _)| text)), out)
    })
}

/// What the owner has answered to that, head and body: the value, as `sszip_kept_get`
/// gives it.
///
/// # Safety
/// The strings are valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_kept_take(
    name: sszip_str,
    head: sszip_str,
    body: sszip_str,
    generation: u64,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let (name, said) = unsafe { (name.bytes(), (head.bytes(), body.bytes())) };
        answer(
            kept::take(&PROCESS.shared, name, said, generation, now),
            out,
        )
    })
}

/// The answer of a node that is stored in this process's memory under `key`, 64 hex digits,
/// to a call under `id`, raw JSON; NULL `data`: there is none.
///
/// # Safety
/// The strings are valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_stored_get(
    key: sszip_str,
    id: sszip_str,
    now: u64,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let (key, id) = unsafe { (key.bytes(), id.bytes()) };
        let found = match blake3::Hash::from_hex(key) {
            Ok(key) => stored::get(&PROCESS.shared, key.as_bytes(), id, now),
            Err(_) => Err("the key must be 64 hexadecimal digits".into()),
        };
        answer(found, out)
    })
}

/// The request to the owner that purges what `query` says (docs/caching.md, Purging); NULL
/// `data`: there is no owner.
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
        answer(kept::purge(&PROCESS.shared, query), out)
    })
}

/// The head of an answer of the owner's, up to its empty line: its status, and how many
/// bytes the body has.
///
/// # Safety
/// `head` is a valid string; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_owner_head(
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
        give!(status, head);
        give!(length, bytes);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// `data` as one gzip member, by a level of 0 to 12.
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
        let coded = gzip(data, level, bound(data.len()).saturating_add(1));
        let coded = coded.map(Some).map_err(|why| match why {
            OneshotError::Level(_) => "the level must be from 0 to 12",
            OneshotError::NotSmaller | OneshotError::OutOfMemory => "no memory",
        });
        answer(coded, out)
    })
}

/// What gzip members were made of, at most `most` bytes.
///
/// # Safety
/// `data` is a valid string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_gunzip(
    data: sszip_str,
    most: usize,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let plain = gunzip(unsafe { data.bytes() }, most);
        let plain = plain.map(Some).map_err(|why| match why {
            InflateError::Bad => "not gzip, or damaged",
            InflateError::TooLarge => "longer than it may be",
            InflateError::OutOfMemory => "no memory",
        });
        answer(plain, out)
    })
}

/// # Safety
/// `what` is NULL or valid with all that it points at.
unsafe fn with_what<B: Into<Bytes>>(
    what: *const sszip_what,
    out: *mut sszip_str,
    run: impl FnOnce(&What<'_>, &str, &str) -> Result<B, String>,
) -> sszip_status {
    // SAFETY: the function's contract.
    let Some(said) = (unsafe { what.as_ref() }) else {
        return sszip_status::SSZIP_STATUS_NULL;
    };
    // SAFETY: the function's contract.
    let text = |text: sszip_str| std::str::from_utf8(unsafe { text.bytes() });
    let (Ok(name), Ok(fork), Ok(preset), Ok(form), Ok(path)) = (
        text(said.name),
        text(said.fork),
        text(said.preset),
        text(said.form),
        text(said.path),
    ) else {
        return answer::<Vec<u8>, _>(Err("a name is not UTF-8"), out);
    };
    let what = What { name, fork, preset };
    answer(run(&what, form, path).map(Some), out)
}

/// SSZ of JSON.
///
/// # Safety
/// `what` is NULL or valid with all that it points at, `json` a valid string; `out` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_json_to_ssz(
    what: *const sszip_what,
    json: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    boundary(|| unsafe {
        with_what(what, out, |what, form, _| {
            values::to_ssz(what, form, json.bytes())
        })
    })
}

/// JSON of SSZ.
///
/// # Safety
/// As of `sszip_json_to_ssz`.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_to_json(
    what: *const sszip_what,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    boundary(|| unsafe {
        with_what(what, out, |what, _, path| {
            values::to_json(what, path, ssz.bytes())
        })
    })
}

/// Whether SSZ is a value of the type, by each rule: `out` is empty then.
///
/// # Safety
/// As of `sszip_json_to_ssz`.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_check(
    what: *const sszip_what,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    boundary(|| unsafe {
        with_what(what, out, |what, _, _| {
            values::check(what, ssz.bytes()).map(|()| Vec::new())
        })
    })
}

/// The root of SSZ, `0x` and 64 hex digits.
///
/// # Safety
/// As of `sszip_json_to_ssz`.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_root(
    what: *const sszip_what,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    boundary(|| unsafe {
        with_what(what, out, |what, _, path| {
            values::root(what, path, ssz.bytes()).map(String::into_bytes)
        })
    })
}

/// Memory for a body of `length` bytes, which the host writes there for
/// `sszip_calls_read`; NULL: there is not enough.
#[no_mangle]
pub extern "C" fn sszip_calls_room(length: usize) -> *mut u8 {
    let mut body = Vec::new();
    if body.try_reserve_exact(length).is_err() {
        return std::ptr::null_mut();
    }
    body.resize(length, 0);
    let room = body.as_mut_ptr();
    boundary(|| {
        keep(Given {
            _body: body,
            ..Given::default()
        });
        sszip_status::SSZIP_STATUS_OK
    });
    room
}

/// The calls of a request, of whose head these are the fields: at most `most_calls`, in a
/// body of at most `most_bytes`, which is decoded if it is coded. It is anywhere, or in the
/// memory of `sszip_calls_room`; what is given out points at it, or at what was decoded.
/// `out` is where it says why not, in a word.
///
/// # Safety
/// `fields` are `nfields` valid fields, and `body` is a valid string; the results point at
/// memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_calls_read(
    fields: *const sszip_field,
    nfields: usize,
    body: sszip_str,
    most_bytes: usize,
    most_calls: usize,
    read: *mut *const sszip_call,
    nread: *mut usize,
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
        let plain = match calls::plain(body, codings, most_bytes) {
            Ok(plain) => plain,
            Err(no) => return answer::<Vec<u8>, _>(Err(no), out),
        };
        let (found, batch) = match calls::read(&plain, most_calls) {
            Ok(found) => found,
            Err(no) => return answer::<Vec<u8>, _>(Err(no), out),
        };
        let text = |text: Option<&[u8]>| text.map_or(sszip_str::ABSENT, sszip_str::of);
        let found: Vec<sszip_call> = found
            .iter()
            .map(|call| sszip_call {
                method: sszip_str::of(call.method),
                id: text(call.id),
                params: text(call.params),
            })
            .collect();
        give!(read, found.as_ptr());
        give!(nread, found.len());
        give!(is_batch, batch);
        GIVEN.with(|given| {
            let mut given = given.borrow_mut();
            given._calls = found;
            // what is borrowed lies with the host, or there already
            if let std::borrow::Cow::Owned(decoded) = plain {
                given._body = decoded;
            }
        });
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What the workers of the host have counted.
///
/// # Safety
/// `board` is as of `sszip_exchange_count`; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_board_figures(
    board: *const sszip_board,
    read: *mut *const sszip_figure,
    nread: *mut usize,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let board = match unsafe { board_of(board) } {
            Ok((board, worker)) => {
                // what this one has is not as old as its last request
                super::status::show(&PROCESS, board, worker);
                board
            }
            Err(status) => return status,
        };
        let (names, numbers): (Vec<_>, Vec<_>) = figures::all(board).into_iter().unzip();
        let found: Vec<sszip_figure> = names
            .iter()
            .zip(numbers)
            .map(|(name, number)| sszip_figure {
                name: sszip_str::of(name.as_bytes()),
                number,
            })
            .collect();
        give!(read, found.as_ptr());
        give!(nread, found.len());
        keep(Given {
            _figures: (found, names),
            ..Given::default()
        });
        sszip_status::SSZIP_STATUS_OK
    })
}
