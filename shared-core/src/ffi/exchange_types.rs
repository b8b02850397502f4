//! Types of the exchange: heads, actions, and the input of lookups.

use std::ffi::c_char;

use super::known_header::sszip_known_header;
use super::types::sszip_str;
use crate::cache::use_stale::UpstreamFailure;
use crate::exchange::drive::OffLoopJob;
use crate::gzip::stream::FlushMode;

/// A header field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_header {
    /// Name as received, in any case.
    pub name: sszip_str,
    /// Value without surrounding white space.
    pub value: sszip_str,
}

/// A change to one header of a message head: the header is set to the value,
/// in place of all present values, or removed if `value.data` is NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_head_edit {
    /// Name as it is to be written.
    pub name: sszip_str,
    /// New value; NULL `data` removes the header.
    pub value: sszip_str,
    /// Number of the header, for hosts that store it in a member of its own.
    pub field: sszip_known_header,
}

/// A request head as the host received it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_request_head {
    /// `sizeof(sszip_request_head)`, so that the struct may grow.
    pub size: usize,
    /// Request method.
    pub method: sszip_str,
    /// Path and query as the client sent them, or as the proxy rewrote them.
    pub target: sszip_str,
    /// All headers, `Host` included.
    pub fields: *const sszip_header,
    /// Number of headers.
    pub nfields: usize,
}

/// Input of a lookup of stored responses.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_lookup_request {
    /// `sizeof(sszip_lookup_request)`, so that the struct may grow.
    pub size: usize,
    /// Namespace, which separates the responses of one chain from the
    /// responses of other chains. NULL `data`: the library derives it from the
    /// route's upstream, `port`, `host` and the request's target.
    pub name_space: sszip_str,
    /// URL of the upstream as the configuration names it, if it differs from
    /// request to request; NULL `data`: the route's upstream.
    pub url: sszip_str,
    /// Host name of the request as the proxy itself determines it.
    pub host: sszip_str,
    /// Port on which the proxy received the request.
    pub port: u16,
    /// Request body, if it is complete; otherwise the part of its beginning
    /// that is in memory.
    pub body: sszip_str,
    /// State of the request body: an `sszip_request_body`.
    pub body_state: u32,
    /// Milliseconds of `CLOCK_MONOTONIC`, read for this event; every parameter
    /// `now` of type `uint64_t` has this unit.
    pub now: u64,
    /// Do not send a stored response; the upstream's response replaces it.
    pub bypass: bool,
    /// Identity by which `sszip_next_wakeup` returns this request; 0: the
    /// request does not wait.
    pub waiter: usize,
    /// The host's own rules allow a content coding for this response.
    pub coding_allowed: bool,
    /// Forward a batch as a whole or not at all: it is not split.
    pub no_split: bool,
    /// The host has other filters that may change bodies, and calls
    /// `sszip_exchange_other_filters`.
    pub has_other_filters: bool,
    /// The host writes `Vary: Accept-Encoding` itself.
    pub host_writes_vary: bool,
    /// The host's configuration forwards the client's accepted codings to the
    /// upstream, whatever the upstream edits specify.
    pub forwards_codings: bool,
    /// The host does not know the upstream of the route, and may respond
    /// itself: requests without a `name_space` are not looked up.
    pub route_unnamed: bool,
}

/// State of a request body at a lookup.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_request_body {
    /// The whole body is in memory, or the request has none and needs none.
    SSZIP_BODY_WHOLE = 0,
    /// The host has not read the body yet, because the client waits for the
    /// status 100; the host can read it.
    SSZIP_BODY_AWAITS_CONTINUE = 1,
    /// The body cannot be kept in memory, or reading it failed.
    SSZIP_BODY_UNAVAILABLE = 2,
}

/// Next action of the host.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_action {
    /// Wait for the next event; the piece was accepted.
    SSZIP_ACTION_AWAIT = 0,
    /// Send the request to the upstream.
    SSZIP_ACTION_FORWARD = 1,
    /// Send the request to the upstream with `sszip_exchange_request_body` as
    /// its body and, if it is not empty, `sszip_exchange_request_target` as
    /// its target.
    SSZIP_ACTION_FORWARD_REWRITTEN = 2,
    /// Send a stored response: `sszip_exchange_status`, the head edits as the
    /// whole head, and `sszip_exchange_body`.
    SSZIP_ACTION_RESPOND = 3,
    /// Repeat the lookup when `sszip_next_wakeup` returns the request's waiter,
    /// or after `sszip_exchange_next_timer` milliseconds, which are 0 after a
    /// job; the result may be this action again.
    SSZIP_ACTION_WAIT = 4,
    /// Apply the head edits, send the head, and pass the body unchanged.
    SSZIP_ACTION_PASS = 5,
    /// Apply the head edits, send the head, pass the body unchanged, and feed
    /// each piece of it to `sszip_exchange_piece`.
    SSZIP_ACTION_OBSERVE = 6,
    /// Withhold the head, and feed each piece of the body to
    /// `sszip_exchange_piece`.
    SSZIP_ACTION_BUFFER = 7,
    /// Apply the head edits, send the head, and send the body through
    /// `sszip_exchange_stream`, beginning with the last piece that was passed
    /// to `sszip_exchange_piece`, if any.
    SSZIP_ACTION_STREAM = 8,
    /// Apply the head edits, send the head and `sszip_exchange_body`, which is
    /// the whole body.
    SSZIP_ACTION_SEND = 9,
    /// Apply the head edits, send the head, `sszip_exchange_body` and the last
    /// piece that was fed, then pass the rest of the body unchanged.
    SSZIP_ACTION_SEND_THEN_PASS = 10,
    /// Run `job` on a thread that serves no connections, then call
    /// `sszip_exchange_job_done`.
    SSZIP_ACTION_RUN_JOB = 11,
    /// No head was sent, and there is no response to send: respond with 502.
    /// `reason` is the reason.
    SSZIP_ACTION_FAIL = 12,
}

/// Work that takes too long for an event loop. The host that received it owns
/// it, may run it on any thread, and ends it with one call of
/// `sszip_exchange_job_done` or `sszip_job_store`.
pub struct sszip_job(pub(super) OffLoopJob);

impl sszip_job {
    pub(super) fn into_raw(job: OffLoopJob) -> *mut Self {
        Box::into_raw(Box::new(Self(job)))
    }
}

/// Next action of the host, with its parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_step {
    /// Action.
    pub action: sszip_action,
    /// Job that the host owns from here on; NULL unless the action is
    /// `SSZIP_ACTION_RUN_JOB`.
    pub job: *mut sszip_job,
    /// Reason for logs, NUL-terminated and static; NULL unless the action is
    /// `SSZIP_ACTION_FAIL`.
    pub reason: *const c_char,
}

/// Part of the request body that a lookup requires.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_required_body {
    /// No lookup takes place: send the request to the upstream.
    SSZIP_NEED_NOTHING = 0,
    /// No part of the body is required: call `sszip_exchange_lookup`.
    SSZIP_NEED_LOOK_UP = 1,
    /// The body is required in memory: read it, then call
    /// `sszip_exchange_lookup`.
    SSZIP_NEED_BODY = 2,
    /// The whole body is required, in memory or in a file: read it, then call
    /// `sszip_exchange_lookup`.
    SSZIP_NEED_WHOLE_BODY = 3,
}

/// A response head as the host received it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_response_head {
    /// `sizeof(sszip_response_head)`, so that the struct may grow.
    pub size: usize,
    /// All headers. `Content-Length` may be omitted.
    pub fields: *const sszip_header,
    /// Number of headers.
    pub nfields: usize,
    /// Length of the body in bytes; negative: the head does not contain it.
    pub content_length: i64,
    /// Wall clock, in seconds since 1970.
    pub now: u64,
    /// Status code.
    pub status: u16,
    /// The end of a body without a length is visible (chunked, HTTP/2);
    /// otherwise it is the end of the connection.
    pub delimited: bool,
    /// The operator wants pieces to be sent without buffering.
    pub unbuffered: bool,
    /// The response becomes a part of another response.
    pub subrequest: bool,
    /// The host's own rules allow a content coding for this response.
    pub coding_allowed: bool,
    /// The host writes `Vary: Accept-Encoding` itself.
    pub host_writes_vary: bool,
}

/// Effect of the host's other filters on a response.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_other_filters {
    /// The other filters do not change the body.
    SSZIP_OTHER_FILTERS_NONE = 0,
    /// The other filters change the body.
    SSZIP_OTHER_FILTERS_BODY_CHANGED = 1,
    /// The other filters change the body, and every piece of the upstream's
    /// body must be in memory when it is passed to
    /// `sszip_exchange_upstream_piece`.
    SSZIP_OTHER_FILTERS_SEPARATE_COPY = 2,
}

/// Way in which the upstream failed a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_failure {
    /// The upstream responded with a status that is a failure.
    SSZIP_FAILURE_STATUS = 0,
    /// The connection ended before the response head.
    SSZIP_FAILURE_ERROR = 1,
    /// The upstream timed out.
    SSZIP_FAILURE_TIMEOUT = 2,
    /// The response is not valid HTTP.
    SSZIP_FAILURE_INVALID_HEADER = 3,
    /// No connection to the upstream could be opened.
    SSZIP_FAILURE_CONNECT = 4,
}

impl sszip_failure {
    /// Returns the failure with this number and status; `None` for a number
    /// that is not an `sszip_failure`.
    pub(super) fn from_failure_number(number: u32, status: u16) -> Option<UpstreamFailure> {
        Some(match number {
            0 => UpstreamFailure::Status(status),
            1 => UpstreamFailure::Error,
            2 => UpstreamFailure::Timeout,
            3 => UpstreamFailure::InvalidHeader,
            4 => UpstreamFailure::Connect,
            _ => return None,
        })
    }
}

/// Amount of input that a call of `sszip_exchange_stream` must emit.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_flush {
    /// The encoder may retain input, to compress it better with the input that
    /// follows.
    SSZIP_FLUSH_NONE = 0,
    /// All input so far can be decoded from the output so far.
    SSZIP_FLUSH_SYNC = 1,
    /// The piece is the last one.
    SSZIP_FLUSH_FINISH = 2,
}

impl sszip_flush {
    /// Returns the flush mode with this number; `None` for a number that is not
    /// an `sszip_flush`.
    pub(super) fn from_flush_number(number: u32) -> Option<FlushMode> {
        Some(match number {
            0 => FlushMode::None,
            1 => FlushMode::Sync,
            2 => FlushMode::Finish,
            _ => return None,
        })
    }
}

/// Progress of one call of `sszip_exchange_stream`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_progress {
    /// Bytes of the piece that were consumed.
    pub consumed: usize,
    /// Bytes that were written to the output.
    pub written: usize,
    /// All input was consumed and flushed as requested. Otherwise the output
    /// is full: call again with the rest of the piece and the same flush.
    pub complete: bool,
}
