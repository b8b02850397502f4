//! Hooks of streams and configurations: the functions that Envoy calls.

#![allow(unsafe_code)] // the C ABI

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::rc::Rc;

use sszip_core::cache::use_stale::UpstreamFailure;

use crate::abi::{
    BodyStatus, EnvoyBuffer, EnvoyHeader, FilterConfigPtr, FilterPtr, HeadersStatus,
    LocalReplyStatus, LogLevel, TrailersStatus, VERSION,
};
use crate::background::{BEGIN, GIVE_WAY};
use crate::config::{FilterSettings as FilterConfig, RouteOverrides};
use crate::envoy::{self, log, Stream};
use crate::metrics::SHOW;
use crate::stream::{Exchange, Outcome, StreamAction};

/// The filter of one stream. Envoy may destroy it while one of its hooks runs;
/// the hook then still holds a reference.
struct Filter {
    config: *const FilterConfig,
    exchange: RefCell<Exchange>,
    has_failed: Cell<bool>,
    /// The client reads more slowly than the response is sent.
    is_behind: Cell<bool>,
    /// The last hook returned `Continue`: Envoy then ignores calls to resume,
    /// even if it was a hook of the other direction.
    goes_on: Cell<bool>,
}

type FilterHandle = Rc<Filter>;

/// Runs the body of a hook, and returns `otherwise` if the body panics.
pub fn guarded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        let _ = catch_unwind(|| log(LogLevel::Error, "internal error: a hook has panicked"));
        otherwise
    })
}

/// The reason why a hook did nothing: the exchange is in use or has failed.
enum HookError {
    /// The exchange does not exist, or an outer hook uses it, whose call to Envoy led
    /// to this hook.
    InUse,
    /// The exchange has panicked, now or before. Bytes that Envoy does not
    /// buffer may be lost: the stream is reset.
    Failed,
}

/// References a stream's filter, so that it exists until the reference is
/// dropped.
///
/// # Safety
/// `filter` is NULL or from `envoy_dynamic_module_on_http_filter_new`, and not
/// destroyed.
unsafe fn handle(filter: *const c_void) -> Option<FilterHandle> {
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
    /// Runs `call` with the stream's exchange, unless it is in use; a panic ends the exchange.
    fn with<T>(
        &self,
        stream: Stream,
        call: impl FnOnce(&mut Exchange) -> T,
    ) -> Result<T, HookError> {
        if self.has_failed.get() {
            return Err(HookError::Failed);
        }
        let Ok(mut exchange) = self.exchange.try_borrow_mut() else {
            return Err(HookError::InUse);
        };
        let done = catch_unwind(AssertUnwindSafe(|| call(&mut exchange)));
        drop(exchange);
        done.map_err(|_| {
            self.fail_stream(stream);
            HookError::Failed
        })
    }

    fn fail_stream(&self, stream: Stream) {
        self.has_failed.set(true);
        guarded((), || {
            log(
                LogLevel::Error,
                "internal error: a hook of a stream has panicked; the stream is reset",
            );
            stream.reset("sszip: a hook has panicked");
        });
    }

    /// Runs `call` with the stream's exchange, and performs the returned action after the exchange
    /// is released.
    fn perform(&self, stream: Stream, call: impl FnOnce(&mut Exchange) -> StreamAction) -> Outcome {
        let act = match self.with(stream, call) {
            Ok(act) => act,
            Err(HookError::InUse) => return Outcome::Continue,
            Err(HookError::Failed) => return Outcome::Ended(None),
        };
        let done = catch_unwind(AssertUnwindSafe(|| act.perform(stream, &self.is_behind)));
        let Ok(outcome) = done else {
            self.fail_stream(stream);
            return Outcome::Ended(None);
        };
        let Outcome::Ended(Some(left)) = outcome else {
            return outcome;
        };
        // the stream is over if the rest cannot be stored
        let _ = self.with(stream, |exchange| exchange.wait_for_client(left));
        Outcome::Ended(None)
    }
}

/// Runs the body of a hook of a stream on the stream's exchange.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
unsafe fn act(
    stream: FilterPtr,
    filter: *const c_void,
    call: impl FnOnce(&mut Exchange, Stream, &Filter) -> StreamAction,
) -> Outcome {
    let stream = Stream::new(stream);
    // SAFETY: the function's contract.
    let Some(filter) = (unsafe { handle(filter) }) else {
        return Outcome::Continue;
    };
    let outcome = filter.perform(stream, |exchange| call(exchange, stream, &filter));
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

/// Parses a configuration, which Envoy keeps; NULL: it is invalid, and the
/// error is logged.
///
/// # Safety
/// The text is valid during the call.
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

/// Reports the ABI version when the module is loaded.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    VERSION
}

/// Parses a filter's configuration; NULL: it is invalid, and the error is
/// logged.
///
/// # Safety
/// The text is valid during the call.
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

/// Handles an event of a filter's configuration, on the main thread.
///
/// # Safety
/// `config` is from `envoy_dynamic_module_on_http_filter_config_new`, and not
/// destroyed.
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
            (Some(config), SHOW) => config.metrics.set_gauges(envoy),
            (Some(config), BEGIN) => config.background.begin(envoy),
            (Some(config), GIVE_WAY) => config.background.yield_to_streams(envoy),
            _ => {}
        }
    });
}

/// Destroys a filter's configuration, which no stream uses any more. The main
/// thread may be in the hooks of its background requests.
///
/// # Safety
/// `config` is from `envoy_dynamic_module_on_http_filter_config_new`.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: *mut c_void) {
    guarded((), || {
        let config = config.cast::<FilterConfig>();
        // SAFETY: the function's contract.
        if let Some(config) = unsafe { config.as_ref() } {
            config.background.end();
        }
        // SAFETY: the function's contract, and no hook of its requests uses it
        // any more.
        drop(unsafe { Box::from_raw(config) });
    });
}

/// Parses a route's configuration; NULL: it is invalid, and the error is
/// logged.
///
/// # Safety
/// The text is valid during the call.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_new(
    _name: EnvoyBuffer,
    config: EnvoyBuffer,
) -> *const c_void {
    // SAFETY: the function's contract.
    unsafe { configured(config, RouteOverrides::new) }
}

/// Destroys a route's configuration, which no stream uses any more.
///
/// # Safety
/// `config` is from `envoy_dynamic_module_on_http_filter_per_route_config_new`.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(
    config: *mut c_void,
) {
    guarded((), || {
        // SAFETY: the function's contract.
        drop(unsafe { Box::from_raw(config.cast::<RouteOverrides>()) });
    });
}

/// Creates the filter of a stream.
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
        FilterHandle::into_raw(filter).cast()
    })
}

/// Destroys the filter of a stream.
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
        let filter = unsafe { FilterHandle::from_raw(filter.cast()) };
        let exchange = filter.exchange.try_borrow_mut();
        if let Ok(mut exchange) = exchange {
            exchange.release();
        };
    });
}

/// Handles the request head.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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
                    exchange.metrics_target(&config.metrics);
                    let settings = config.for_request(stream.route_config::<RouteOverrides>());
                    exchange.request_head(stream, &settings, config, is_all)
                }
                None => StreamAction::Continue,
            }
        })
    };
    headers_status(&outcome)
}

/// Handles a piece of the request body.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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
        // while a job runs, Envoy also keeps the bytes that are buffered
        Outcome::Wait => BodyStatus::StopIterationAndBuffer,
        outcome => body_status(&outcome),
    }
}

/// Handles the request trailers.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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

/// Handles the response head.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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

/// Handles a piece of the response body.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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

/// Handles the response trailers.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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

/// Handles an event of the stream's scheduler.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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
    let outcome = filter.perform(stream, |exchange| {
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

/// Handles a local reply of Envoy.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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
        // an exchange in use does not need the notification
        // SAFETY: Envoy's bytes, valid during the call.
        let failure = UpstreamFailure::from_envoy(status, unsafe { details.bytes() });
        let _ = filter.with(stream, |exchange| exchange.local_reply(stream, failure));
    }
    LocalReplyStatus::Continue
}

/// Ends the exchange of a complete stream, which Envoy destroys next.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    stream: FilterPtr,
    filter: *const c_void,
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { handle(filter) } {
        let stream = Stream::new(stream);
        // an exchange in use does not need the notification
        let _ = filter.with(stream, |exchange| exchange.complete(stream));
    }
}

/// Does nothing: the filter sends no such callouts.
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

/// Does nothing: the filter starts no such streams.
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

/// Does nothing: the filter starts no such streams.
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

/// Does nothing: the filter starts no such streams.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_trailers(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
    _headers: *const EnvoyHeader,
    _number: usize,
) {
}

/// Does nothing: the filter starts no such streams.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
) {
}

/// Does nothing: the filter starts no such streams.
#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
    _reason: u32,
) {
}

/// Suspends the filter's own responses, because the client reads slowly. Envoy
/// itself suspends reading from the upstream.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
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

/// Resumes the filter's own responses, because the client reads again.
///
/// # Safety
/// The caller meets the requirements of [`handle`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    stream: FilterPtr,
    filter: *const c_void,
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { handle(filter) } {
        filter.is_behind.set(false);
        let stream = Stream::new(stream);
        // an exchange in use resumes by itself
        let _ = filter.with(stream, |exchange| exchange.writable_again(stream));
    }
}
