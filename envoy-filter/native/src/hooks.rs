//! What Envoy calls.

#![allow(unsafe_code)] // pointers of C come in

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::rc::Rc;

use sszip_core::cache::stale::Failure;

use crate::abi::{
    BodyStatus, EnvoyBuffer, EnvoyHeader, FilterConfigPtr, FilterPtr, HeadersStatus,
    LocalReplyStatus, LogLevel, TrailersStatus, VERSION,
};
use crate::background::{BEGIN, GIVE_WAY};
use crate::config::{Filter as FilterConfig, Route};
use crate::envoy::{self, log, Stream};
use crate::metrics::SHOW;
use crate::stream::{Act, Exchange, Outcome};

/// A stream's filter. Envoy may end it while one of its hooks runs, which then has
/// it still.
struct Filter {
    config: *const FilterConfig,
    exchange: RefCell<Exchange>,
    has_failed: Cell<bool>,
    /// The client does not keep up with what was sent.
    is_behind: Cell<bool>,
    /// What the last hook has said: Envoy ignores calls to go on then, though it was a
    /// hook of the other direction.
    goes_on: Cell<bool>,
}

type Handle = Rc<Filter>;

/// Runs what a hook does; `otherwise` is the answer if that fails.
pub fn guarded<T>(otherwise: T, what: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|_| {
        let _ = catch_unwind(|| log(LogLevel::Error, "a hook has panicked"));
        otherwise
    })
}

/// Why a hook has done nothing.
enum Undone {
    /// There is no exchange, or it is in use by a hook further out, whose call has
    /// brought this one about.
    InUse,
    /// It has panicked, now or before. What Envoy was not to keep may be lost: the
    /// stream is broken off.
    Failed,
}

/// A stream's filter, which is there as long as this is.
///
/// # Safety
/// `filter` is NULL or from `envoy_dynamic_module_on_http_filter_new`, and not
/// destroyed.
unsafe fn handle(filter: *const c_void) -> Option<Handle> {
    let filter: *const Filter = filter.cast();
    if filter.is_null() {
        return None;
    }
    // SAFETY: the function's contract.
    unsafe {
        Rc::increment_strong_count(filter);
        Some(Rc::from_raw(filter))
    }
}

impl Filter {
    /// What a hook does with the exchange.
    fn with<T>(&self, stream: Stream, what: impl FnOnce(&mut Exchange) -> T) -> Result<T, Undone> {
        if self.has_failed.get() {
            return Err(Undone::Failed);
        }
        let Ok(mut exchange) = self.exchange.try_borrow_mut() else {
            return Err(Undone::InUse);
        };
        let done = catch_unwind(AssertUnwindSafe(|| what(&mut exchange)));
        drop(exchange);
        done.map_err(|_| {
            self.fails(stream);
            Undone::Failed
        })
    }

    fn fails(&self, stream: Stream) {
        self.has_failed.set(true);
        guarded((), || {
            log(LogLevel::Error, "a stream's hook has panicked");
            stream.reset("sszip: a hook has panicked");
        });
    }

    /// What a hook does, and then what comes of it, with nothing in use.
    fn act(&self, stream: Stream, what: impl FnOnce(&mut Exchange) -> Act) -> Outcome {
        let act = match self.with(stream, what) {
            Ok(act) => act,
            Err(Undone::InUse) => return Outcome::Continue,
            Err(Undone::Failed) => return Outcome::Ended(None),
        };
        let done = catch_unwind(AssertUnwindSafe(|| act.perform(stream, &self.is_behind)));
        let Ok(outcome) = done else {
            self.fails(stream);
            return Outcome::Ended(None);
        };
        let Outcome::Ended(Some(left)) = outcome else {
            return outcome;
        };
        // its stream is over where that can't be kept
        let _ = self.with(stream, |exchange| exchange.wait_for_client(left));
        Outcome::Ended(None)
    }
}

/// What a hook does of a stream.
///
/// # Safety
/// As of [`handle`].
unsafe fn act(
    stream: FilterPtr,
    filter: *const c_void,
    what: impl FnOnce(&mut Exchange, Stream, &Filter) -> Act,
) -> Outcome {
    let stream = Stream::new(stream);
    // SAFETY: the function's contract.
    let Some(filter) = (unsafe { handle(filter) }) else {
        return Outcome::Continue;
    };
    let outcome = filter.act(stream, |exchange| what(exchange, stream, &filter));
    filter.goes_on.set(matches!(outcome, Outcome::Continue));
    outcome
}

fn headers_status(outcome: &Outcome) -> HeadersStatus {
    match outcome {
        Outcome::Continue => HeadersStatus::Continue,
        Outcome::Wait | Outcome::Keep | Outcome::Ended(_) => HeadersStatus::StopIteration,
    }
}

fn body_status(outcome: &Outcome) -> BodyStatus {
    match outcome {
        Outcome::Continue => BodyStatus::Continue,
        Outcome::Keep => BodyStatus::StopIterationAndBuffer,
        Outcome::Wait | Outcome::Ended(_) => BodyStatus::StopIterationNoBuffer,
    }
}

fn trailers_status(outcome: &Outcome) -> TrailersStatus {
    match outcome {
        Outcome::Continue => TrailersStatus::Continue,
        Outcome::Wait | Outcome::Keep | Outcome::Ended(_) => TrailersStatus::StopIteration,
    }
}

/// What was read of a configuration, for Envoy to keep; NULL: it is not right, and the
/// log says why.
///
/// # Safety
/// The text is there for the time of the call.
unsafe fn configured<T>(
    json: EnvoyBuffer,
    read: impl FnOnce(&[u8]) -> Result<T, String>,
) -> *const c_void {
    // SAFETY: the function's contract.
    guarded(ptr::null(), || match read(unsafe { json.bytes() }) {
        Ok(config) => Box::into_raw(Box::new(config)).cast_const().cast(),
        Err(error) => {
            log(LogLevel::Error, &error);
            ptr::null()
        }
    })
}

/// The module was loaded.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    VERSION
}

/// Reads a filter's configuration; NULL: it is not right, and the log says why.
///
/// # Safety
/// The text is there for the time of the call.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    envoy: FilterConfigPtr,
    _name: EnvoyBuffer,
    config: EnvoyBuffer,
) -> *const c_void {
    let envoy = envoy::FilterConfig::new(envoy);
    // SAFETY: the function's contract.
    unsafe { configured(config, |json| FilterConfig::new(json, envoy)) }
}

/// It has asked to be told something, on the main thread.
///
/// # Safety
/// It is from `envoy_dynamic_module_on_http_filter_config_new`, and not destroyed.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    envoy: FilterConfigPtr,
    config: *const c_void,
    event: u64,
) {
    guarded((), || {
        // SAFETY: the function's contract.
        let config = unsafe { config.cast::<FilterConfig>().as_ref() };
        let envoy = envoy::FilterConfig::new(envoy);
        match (config, event) {
            (Some(config), SHOW) => config.metrics.show(envoy),
            (Some(config), BEGIN) => config.background.begin(envoy),
            (Some(config), GIVE_WAY) => config.background.give_way(envoy),
            _ => {}
        }
    });
}

/// Nobody uses it any more, but the main thread may be in the hooks of its requests.
///
/// # Safety
/// It is from `envoy_dynamic_module_on_http_filter_config_new`.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: *mut c_void) {
    guarded((), || {
        let config = config.cast::<FilterConfig>();
        // SAFETY: the function's contract.
        if let Some(config) = unsafe { config.as_ref() } {
            config.background.end();
        }
        // SAFETY: the function's contract, and no hook of its requests has it any more.
        drop(unsafe { Box::from_raw(config) });
    });
}

/// Reads a route's configuration; NULL: it is not right, and the log says why.
///
/// # Safety
/// The text is there for the time of the call.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_new(
    _name: EnvoyBuffer,
    config: EnvoyBuffer,
) -> *const c_void {
    // SAFETY: the function's contract.
    unsafe { configured(config, Route::new) }
}

/// Nobody uses it any more.
///
/// # Safety
/// It is from `envoy_dynamic_module_on_http_filter_per_route_config_new`.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(
    config: *mut c_void,
) {
    guarded((), || {
        // SAFETY: the function's contract.
        drop(unsafe { Box::from_raw(config.cast::<Route>()) });
    });
}

/// A stream begins.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_new(
    config: *const c_void,
    _stream: FilterPtr,
) -> *const c_void {
    guarded(ptr::null(), || {
        let filter = Rc::new(Filter {
            config: config.cast(),
            exchange: RefCell::new(Exchange::new()),
            has_failed: Cell::new(false),
            is_behind: Cell::new(false),
            goes_on: Cell::new(false),
        });
        Handle::into_raw(filter).cast()
    })
}

/// It has ended.
///
/// # Safety
/// The filter is from `envoy_dynamic_module_on_http_filter_new`.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_destroy(filter: *const c_void) {
    if filter.is_null() {
        return;
    }
    guarded((), || {
        // SAFETY: the function's contract.
        let filter = unsafe { Handle::from_raw(filter.cast()) };
        let exchange = filter.exchange.try_borrow_mut();
        if let Ok(mut exchange) = exchange {
            exchange.leave();
        };
    });
}

/// The request's head.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    stream: FilterPtr,
    filter: *const c_void,
    is_all: bool,
) -> HeadersStatus {
    // SAFETY: the function's contract; a stream does not outlive its configuration.
    let outcome = unsafe {
        act(stream, filter, |exchange, stream, filter| {
            match filter.config.as_ref() {
                Some(config) => {
                    exchange.counts_to(&config.metrics);
                    let settings = config.of(stream.route_config::<Route>());
                    exchange.request_head(stream, &settings, config, is_all)
                }
                None => Act::Continue,
            }
        })
    };
    headers_status(&outcome)
}

/// A piece of the request's body.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    stream: FilterPtr,
    filter: *const c_void,
    is_last: bool,
) -> BodyStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        act(stream, filter, |exchange, stream, _| {
            exchange.request_body(stream, is_last)
        })
    };
    match outcome {
        // what waits for a job waits with what was kept
        Outcome::Wait => BodyStatus::StopIterationAndBuffer,
        outcome => body_status(&outcome),
    }
}

/// The request's trailers.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(
    stream: FilterPtr,
    filter: *const c_void,
) -> TrailersStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        act(stream, filter, |exchange, stream, _| {
            exchange.request_trailers(stream)
        })
    };
    trailers_status(&outcome)
}

/// The response's head.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    stream: FilterPtr,
    filter: *const c_void,
    is_all: bool,
) -> HeadersStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        act(stream, filter, |exchange, stream, _| {
            exchange.response_head(stream, is_all)
        })
    };
    headers_status(&outcome)
}

/// A piece of the response's body.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    stream: FilterPtr,
    filter: *const c_void,
    is_last: bool,
) -> BodyStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        act(stream, filter, |exchange, stream, _| {
            exchange.response_body(stream, is_last)
        })
    };
    body_status(&outcome)
}

/// The response's trailers.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    stream: FilterPtr,
    filter: *const c_void,
) -> TrailersStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        act(stream, filter, |exchange, stream, _| {
            exchange.response_trailers(stream)
        })
    };
    trailers_status(&outcome)
}

/// Something that the stream has asked to be told.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    stream: FilterPtr,
    filter: *const c_void,
    event: u64,
) {
    let stream = Stream::new(stream);
    // SAFETY: the function's contract.
    let Some(filter) = (unsafe { handle(filter) }) else {
        return;
    };
    let mut is_request = false;
    let outcome = filter.act(stream, |exchange| {
        is_request = exchange.is_request();
        exchange.scheduled(stream, event, !filter.goes_on.get())
    });
    if let Outcome::Continue = outcome {
        filter.goes_on.set(true);
        match is_request {
            true => stream.continue_decoding(),
            false => stream.continue_encoding(),
        }
    }
}

/// Envoy answers by itself.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_local_reply(
    stream: FilterPtr,
    filter: *const c_void,
    status: u32,
    details: EnvoyBuffer,
    _is_reset: bool,
) -> LocalReplyStatus {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { handle(filter) } {
        let stream = Stream::new(stream);
        // there is nothing to be told to one that is in use
        // SAFETY: Envoy's, for the time of this call.
        let failure = Failure::of_envoy(status, unsafe { details.bytes() });
        let _ = filter.with(stream, |exchange| exchange.local_reply(stream, failure));
    }
    LocalReplyStatus::Continue
}

/// The stream is complete, and will be destroyed.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    stream: FilterPtr,
    filter: *const c_void,
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { handle(filter) } {
        let stream = Stream::new(stream);
        // there is nothing to be told to one that is in use
        let _ = filter.with(stream, |exchange| exchange.complete(stream));
    }
}

/// No callouts are made.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
    _result: u32,
    _headers: *const EnvoyHeader,
    _number: usize,
    _body: *const EnvoyBuffer,
    _pieces: usize,
) {
}

/// No streams are started.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_headers(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
    _headers: *const EnvoyHeader,
    _number: usize,
    _is_all: bool,
) {
}

/// No streams are started.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_data(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
    _body: *const EnvoyBuffer,
    _pieces: usize,
    _is_last: bool,
) {
}

/// No streams are started.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_trailers(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
    _headers: *const EnvoyHeader,
    _number: usize,
) {
}

/// No streams are started.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
) {
}

/// No streams are started.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
    _reason: u32,
) {
}

/// The client does not keep up: Envoy stops reading from the node by itself, and what
/// is ours waits.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    _stream: FilterPtr,
    filter: *const c_void,
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { handle(filter) } {
        filter.is_behind.set(true);
    }
}

/// It does again.
///
/// # Safety
/// As of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    stream: FilterPtr,
    filter: *const c_void,
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { handle(filter) } {
        filter.is_behind.set(false);
        let stream = Stream::new(stream);
        // one that is in use goes on by itself
        let _ = filter.with(stream, |exchange| exchange.caught_up(stream));
    }
}
