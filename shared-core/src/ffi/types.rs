//! Plain data that crosses the boundary.

use std::ffi::c_char;
use std::slice;

use super::job::sszip_job;
use super::known_field::sszip_known_field;
use crate::cache::stale::Failure;
use crate::gzip;
use crate::gzip::stream::Flush;

/// What became of a call. Values are never reused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_status {
    /// Done; the results are written.
    SSZIP_STATUS_OK = 0,
    /// A pointer that must not be NULL was.
    SSZIP_STATUS_NULL = 1,
    /// The library failed inside. The object is only good for `_free`.
    SSZIP_STATUS_PANIC = 2,
    /// The call is not allowed in the object's present state.
    SSZIP_STATUS_MISUSE = 3,
    /// A directive's name or value was not accepted; a text says why.
    SSZIP_STATUS_INVALID = 4,
    /// The stream encoder failed: the answer must be cut off visibly.
    SSZIP_STATUS_ENCODER = 5,
    /// The body ended short of the length that the node gave: the answer must
    /// be cut off visibly.
    SSZIP_STATUS_SHORT = 6,
    /// Memory was refused. Of `sszip_exchange_new`: the request passes without
    /// one; of others: there is nothing to send, and the answer is a failure.
    SSZIP_STATUS_MEMORY = 7,
}

/// Bytes that somebody else owns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_str {
    /// NULL only if `len` is 0.
    pub data: *const u8,
    /// Bytes.
    pub len: usize,
}

impl sszip_str {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    pub(super) const ABSENT: Self = Self {
        data: std::ptr::null(),
        len: 0,
    };

    /// # Safety
    /// `data` points at `len` readable bytes, or is NULL with `len` 0; they
    /// stay as they are for `'a`.
    pub(super) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { slice_of(self.data, self.len) }
    }
}

/// A header field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_field {
    /// As it came, in any case.
    pub name: sszip_str,
    /// Without the white space around it.
    pub value: sszip_str,
}

/// A change to a message head: the field shall have this value and no other.
/// `value.data` NULL: the field shall go.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_edit {
    /// As it is to be written.
    pub name: sszip_str,
    /// NULL `data` removes the field.
    pub value: sszip_str,
    /// Which field that is.
    pub field: sszip_known_field,
}

/// A request head as the host saw it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_request_head {
    /// `sizeof(sszip_request_head)`, so that the struct may grow.
    pub size: usize,
    /// The method.
    pub method: sszip_str,
    /// Path and query, as the client sent them or, where the proxy has rewritten
    /// them, as that came out.
    pub target: sszip_str,
    /// All header fields, `Host` among them.
    pub fields: *const sszip_field,
    /// How many.
    pub nfields: usize,
}

/// A look-up of stored answers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_asked {
    /// `sizeof(sszip_asked)`, so that the struct may grow.
    pub size: usize,
    /// What keeps answers of one chain apart from those of another; NULL
    /// `data`: which node the place passes requests to, `port`, `host` and the
    /// request's target.
    pub name_space: sszip_str,
    /// Which node that is, as the configuration names it, if each request has its
    /// own; NULL `data`: the place's.
    pub url: sszip_str,
    /// The host that is asked, as the proxy itself reads it.
    pub host: sszip_str,
    /// The port on which the proxy was asked.
    pub port: u16,
    /// The request's body, if it is whole; else as much of its beginning as is in memory.
    pub body: sszip_str,
    /// What the host has of it: one of `sszip_request_body`.
    pub body_is: u32,
    /// Milliseconds of `CLOCK_MONOTONIC`, read for this event, here and
    /// wherever else there is a `now` of this type.
    pub now: u64,
    /// What is stored is not to be sent; the node's answer replaces it.
    pub bypass: bool,
    /// By what `sszip_next_woken` is to name this request; 0: it will not
    /// wait.
    pub waiter: usize,
    /// The host's own rules allow a content coding here.
    pub coding_allowed: bool,
    /// Of a batch the node is to be asked for all or nothing.
    pub whole: bool,
    /// The host has other filters, which may change bodies, and calls
    /// `sszip_exchange_beside`.
    pub filters: bool,
    /// The host writes `Vary: Accept-Encoding` itself.
    pub host_writes_vary: bool,
    /// The host's configuration tells the node which codings the client accepts,
    /// whatever the upstream edits say.
    pub forwards_codings: bool,
    /// Nothing tells the place from others that pass the same requests elsewhere: without
    /// a `name_space` it is not looked up.
    pub unnamed: bool,
}

/// A request's body, as the host has it at a look-up.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_request_body {
    /// All of it is in memory, or there is none and none is needed.
    SSZIP_BODY_WHOLE = 0,
    /// The host has not read it, and could.
    SSZIP_BODY_UNREAD = 1,
    /// It could not be kept in memory, or read.
    SSZIP_BODY_UNAVAILABLE = 2,
}

/// What came of opening a connection to the cache's owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_link_opened {
    /// It is open, or will be.
    SSZIP_LINK_OPEN = 0,
    /// It could not be opened.
    SSZIP_LINK_FAILED = 1,
    /// Nobody listens where the owner would: it was refused, or there is no
    /// socket.
    SSZIP_LINK_ABSENT = 2,
}

/// What to do with a connection to the cache's owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_link_need {
    /// Nothing, with none of them.
    SSZIP_LINK_NOTHING = 0,
    /// Open it, then `sszip_link_connected`.
    SSZIP_LINK_CONNECT = 1,
    /// Write `sszip_link_output`, each time with `sszip_link_written`, until
    /// there is none.
    SSZIP_LINK_WRITE = 2,
    /// Close it.
    SSZIP_LINK_CLOSE = 3,
    /// Call `sszip_link_tick`.
    SSZIP_LINK_TICK = 4,
}

/// What a host is to do next.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_do {
    /// Nothing, until something happens: what was shown was taken.
    SSZIP_DO_AWAIT = 0,
    /// Send the request to the node.
    SSZIP_DO_FORWARD = 1,
    /// The same, with `sszip_exchange_request_body` as its body.
    SSZIP_DO_FORWARD_REWRITTEN = 2,
    /// Send a stored answer: `sszip_exchange_status`, the head edits as the
    /// whole head, and `sszip_exchange_body`.
    SSZIP_DO_RESPOND = 3,
    /// Look up again once `sszip_next_woken` names it, or after
    /// `sszip_exchange_next_timer`; perhaps to wait again.
    SSZIP_DO_WAIT = 4,
    /// Make the head edits, send the head, let the body through.
    SSZIP_DO_PASS = 5,
    /// The same, and show each piece of the body to `sszip_exchange_piece`.
    SSZIP_DO_SHOW = 6,
    /// Keep the head back, and show the body to `sszip_exchange_piece`.
    SSZIP_DO_HOLD = 7,
    /// Make the head edits, send the head, and the body through
    /// `sszip_exchange_stream`, with the piece that was shown last.
    SSZIP_DO_STREAM = 8,
    /// Make the head edits, send the head and `sszip_exchange_body`, which is
    /// all of it.
    SSZIP_DO_SEND = 9,
    /// The same, then the piece that was shown last, and the rest as it comes.
    SSZIP_DO_SEND_THEN_PASS = 10,
    /// Run `job` on a thread that serves no connections, then
    /// `sszip_exchange_done`.
    SSZIP_DO_RUN = 11,
    /// Nothing was sent, and there is nothing to send: answer 502. `why` says
    /// why.
    SSZIP_DO_FAIL = 12,
}

/// What a host is to do next, and with what.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_step {
    /// What to do.
    pub act: sszip_do,
    /// The host's own from here on; NULL unless it is to be run.
    pub job: *mut sszip_job,
    /// For logs, ended by NUL; static. NULL unless the answer fails.
    pub why: *const c_char,
}

/// What a look-up needs of the host.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_need {
    /// There will be none: send the request to the node.
    SSZIP_NEED_NOTHING = 0,
    /// Nothing more: call `sszip_exchange_look_up`.
    SSZIP_NEED_LOOK_UP = 1,
    /// The request's body: read it, then call `sszip_exchange_look_up`.
    SSZIP_NEED_BODY = 2,
    /// The same, wherever the host keeps it: in a file, too.
    SSZIP_NEED_WHOLE_BODY = 3,
}

/// A response head as the host saw it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_response_head {
    /// `sizeof(sszip_response_head)`, so that the struct may grow.
    pub size: usize,
    /// All header fields. `Content-Length` may be among them or not.
    pub fields: *const sszip_field,
    /// How many.
    pub nfields: usize,
    /// Length of the body in bytes, or negative where the head does not give
    /// it.
    pub content_length: i64,
    /// The wall clock, in seconds since 1970.
    pub now: u64,
    /// The status code.
    pub status: u16,
    /// A body without a length ends visibly (chunked, HTTP/2), not with its
    /// connection.
    pub delimited: bool,
    /// The operator wants pieces to go through as they come.
    pub unbuffered: bool,
    /// The answer becomes a part of another one.
    pub subrequest: bool,
    /// The host's own rules allow a content coding here.
    pub coding_allowed: bool,
    /// The host writes `Vary: Accept-Encoding` itself.
    pub host_writes_vary: bool,
}

/// What others of the host's filters make of an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_beside {
    /// Nothing.
    SSZIP_BESIDE_NOTHING = 0,
    /// They change its body.
    SSZIP_BESIDE_CHANGED = 1,
    /// The same, and all that the node sends of it is to be in memory when it is
    /// shown to `sszip_exchange_node_piece`.
    SSZIP_BESIDE_APART = 2,
}

/// How the node failed a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_failure {
    /// By the status of its answer.
    SSZIP_FAILURE_STATUS = 0,
    /// It went away before its answer's head.
    SSZIP_FAILURE_ERROR = 1,
    /// It took too long.
    SSZIP_FAILURE_TIMEOUT = 2,
    /// What it answered is not HTTP.
    SSZIP_FAILURE_INVALID_HEADER = 3,
    /// No connection to it could be opened.
    SSZIP_FAILURE_CONNECT = 4,
}

impl sszip_failure {
    /// What a host passes as one; `None`: it is none.
    pub(super) fn numbered(number: u32, status: u16) -> Option<Failure> {
        Some(match number {
            0 => Failure::Status(status),
            1 => Failure::Error,
            2 => Failure::Timeout,
            3 => Failure::InvalidHeader,
            4 => Failure::Connect,
            _ => return None,
        })
    }
}

/// How far `sszip_exchange_stream` is to bring a piece.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_flush {
    /// It may keep some, to code it better with what follows.
    SSZIP_FLUSH_NONE = 0,
    /// All that was given can be decoded from what is written.
    SSZIP_FLUSH_SYNC = 1,
    /// It is the last piece.
    SSZIP_FLUSH_FINISH = 2,
}

impl sszip_flush {
    /// What a host passes as one; `None`: it is none.
    pub(super) fn numbered(number: u32) -> Option<Flush> {
        Some(match number {
            0 => Flush::None,
            1 => Flush::Sync,
            2 => Flush::Finish,
            _ => return None,
        })
    }
}

/// What a call of `sszip_exchange_stream` did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_progress {
    /// Bytes of the piece that were taken.
    pub consumed: usize,
    /// Bytes that were written.
    pub written: usize,
    /// All was taken, and flushed as asked. If not, there was no room: call
    /// again with what is left and the same flush.
    pub complete: bool,
}

/// The version that this is. Static.
#[no_mangle]
pub extern "C" fn sszip_version() -> sszip_str {
    sszip_str::of(env!("CARGO_PKG_VERSION").as_bytes())
}

/// What compresses on this machine, for logs. To be called after any fork.
/// Static.
#[no_mangle]
pub extern "C" fn sszip_coders() -> sszip_str {
    let text: &[u8] = match gzip::has_isal() {
        true => b"ISA-L",
        false => b"libdeflate and zlib-rs (ISA-L, libisal.so.2, is not there)",
    };
    sszip_str::of(text)
}

/// # Safety
/// `data` points at `len` initialised `T`s, or is NULL with `len` 0; they
/// stay as they are for `'a`.
pub(super) unsafe fn slice_of<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        &[]
    } else {
        // SAFETY: not NULL since `len` is not 0; the caller's promise.
        unsafe { slice::from_raw_parts(data, len) }
    }
}
