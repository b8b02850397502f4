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
    LocalReplyHookStatus, LogLevel, TrailersStatus, VERSION,
};
use crate::background::{BEGIN_EVENT, YIELD_EVENT};
use crate::config::{FilterSettings as FilterConfig, RouteOverrides};
use crate::envoy::{self, write_envoy_log, EnvoyStreamHandle};
use crate::metrics::UPDATE_GAUGES_EVENT;
use crate::stream::{HookOutcome, StreamAction, StreamExchange};

/// The filter's state of one stream, to which Envoy has a pointer. Envoy may destroy it while one
/// of its hooks runs; the hook then still holds a reference.
struct EnvoyStreamFilter {
    config: *const FilterConfig,
    exchange: RefCell<StreamExchange>,
    has_failed: Cell<bool>,
    /// The client reads more slowly than the response is sent.
    is_behind: Cell<bool>,
    /// The last hook returned `Continue`: Envoy then ignores calls to resume,
    /// even if it was a hook of the other direction.
    is_redirected: Cell<bool>,
}

/// A reference to the filter's state of a stream.
type StreamFilterHandle = Rc<EnvoyStreamFilter>;

/// Runs the body of a hook, and returns `otherwise` if the body panics.
pub fn catch_hook_panic<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        let _ = catch_unwind(|| {
            write_envoy_log(LogLevel::Error, "internal error: a hook has panicked");
        });
        otherwise
    })
}

/// The reason why a hook has no access to the stream's exchange.
enum StreamExchangeAccessError {
    /// The exchange does not exist, or an outer hook uses it, whose call to Envoy led
    /// to this hook.
    InUse,
    /// The exchange has panicked, now or before. Bytes that Envoy does not
    /// buffer may be lost: the stream is reset.
    Failed,
}

/// Takes a reference to the filter's state of a stream, which keeps it alive while a hook runs.
///
/// # Safety
/// `filter` is NULL or from `envoy_dynamic_module_on_http_filter_new`, and not
/// destroyed.
unsafe fn borrow_filter(filter: *const c_void) -> Option<StreamFilterHandle> {
    let filter: *const EnvoyStreamFilter = filter.cast();
    if filter.is_null() {
        return None;
    }
    // SAFETY: the function's contract.
    unsafe {
        Rc::increment_strong_count(filter);
        Some(Rc::from_raw(filter))
    }
}

impl EnvoyStreamFilter {
    /// Runs `call` with the stream's exchange, unless it is in use; a panic ends the exchange.
    fn call_with_stream_exchange<T>(
        &self,
        stream: EnvoyStreamHandle,
        call: impl FnOnce(&mut StreamExchange) -> T,
    ) -> Result<T, StreamExchangeAccessError> {
        if self.has_failed.get() {
            return Err(StreamExchangeAccessError::Failed);
        }
        let Ok(mut exchange) = self.exchange.try_borrow_mut() else {
            return Err(StreamExchangeAccessError::InUse);
        };
        let done = catch_unwind(AssertUnwindSafe(|| call(&mut exchange)));
        drop(exchange);
        done.map_err(|_| {
            self.reset_panicked_stream(stream);
            StreamExchangeAccessError::Failed
        })
    }

    /// Logs that a hook has panicked, and resets the stream.
    fn reset_panicked_stream(&self, stream: EnvoyStreamHandle) {
        self.has_failed.set(true);
        catch_hook_panic((), || {
            write_envoy_log(
                LogLevel::Error,
                "internal error: a hook of a stream has panicked; the stream is reset",
            );
            stream.reset_stream("sszip: a hook has panicked");
        });
    }

    /// Runs `call` with the stream's exchange, and performs the returned action after the exchange
    /// is released.
    fn run_hook_action(
        &self,
        stream: EnvoyStreamHandle,
        call: impl FnOnce(&mut StreamExchange) -> StreamAction,
    ) -> HookOutcome {
        let act = match self.call_with_stream_exchange(stream, call) {
            Ok(act) => act,
            Err(StreamExchangeAccessError::InUse) => return HookOutcome::Continue,
            Err(StreamExchangeAccessError::Failed) => return HookOutcome::Ended(None),
        };
        let done = catch_unwind(AssertUnwindSafe(|| {
            act.perform_hook_action(stream, &self.is_behind)
        }));
        let Ok(outcome) = done else {
            self.reset_panicked_stream(stream);
            return HookOutcome::Ended(None);
        };
        let HookOutcome::Ended(Some(left)) = outcome else {
            return outcome;
        };
        // the stream is over if the rest cannot be stored
        let _ =
            self.call_with_stream_exchange(stream, |exchange| exchange.keep_unsent_response(left));
        HookOutcome::Ended(None)
    }
}

/// Runs the body of a hook of a stream on the stream's exchange.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
unsafe fn run_filter_hook(
    stream: FilterPtr,
    filter: *const c_void,
    call: impl FnOnce(&mut StreamExchange, EnvoyStreamHandle, &EnvoyStreamFilter) -> StreamAction,
) -> HookOutcome {
    let stream = EnvoyStreamHandle::new(stream);
    // SAFETY: the function's contract.
    let Some(filter) = (unsafe { borrow_filter(filter) }) else {
        return HookOutcome::Continue;
    };
    let outcome = filter.run_hook_action(stream, |exchange| call(exchange, stream, &filter));
    filter
        .is_redirected
        .set(matches!(outcome, HookOutcome::Continue));
    outcome
}

fn headers_status(outcome: &HookOutcome) -> HeadersStatus {
    match outcome {
        HookOutcome::Continue => HeadersStatus::Continue,
        HookOutcome::Wait | HookOutcome::Keep | HookOutcome::Ended(_) => {
            HeadersStatus::StopIteration
        }
    }
}

/// Returns Envoy's status for a body hook. Only [`HookOutcome::Keep`] lets Envoy buffer the piece.
fn body_status(outcome: &HookOutcome) -> BodyStatus {
    match outcome {
        HookOutcome::Continue => BodyStatus::Continue,
        HookOutcome::Keep => BodyStatus::StopIterationAndBuffer,
        HookOutcome::Wait | HookOutcome::Ended(_) => BodyStatus::StopIterationNoBuffer,
    }
}

fn trailers_status(outcome: &HookOutcome) -> TrailersStatus {
    match outcome {
        HookOutcome::Continue => TrailersStatus::Continue,
        HookOutcome::Wait | HookOutcome::Keep | HookOutcome::Ended(_) => {
            TrailersStatus::StopIteration
        }
    }
}

/// Parses a configuration, which Envoy keeps; NULL: it is invalid, and the
/// error is logged.
///
/// # Safety
/// The text is valid during the call.
unsafe fn parse_envoy_configuration<T>(
    json: EnvoyBuffer,
    read: impl FnOnce(&[u8]) -> Result<T, String>,
) -> *const c_void {
    // SAFETY: the function's contract.
    catch_hook_panic(ptr::null(), || match read(unsafe { json.as_slice() }) {
        Ok(config) => Box::into_raw(Box::new(config)).cast_const().cast(),
        Err(error) => {
            write_envoy_log(LogLevel::Error, &error);
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
    let envoy = envoy::FilterConfigHandle::new(envoy);
    // SAFETY: the function's contract.
    unsafe { parse_envoy_configuration(config, |json| FilterConfig::new(json, envoy)) }
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
    catch_hook_panic((), || {
        // SAFETY: the function's contract.
        let config = unsafe { config.cast::<FilterConfig>().as_ref() };
        let envoy = envoy::FilterConfigHandle::new(envoy);
        match (config, event) {
            (Some(config), UPDATE_GAUGES_EVENT) => config.metrics.update_gauges(envoy),
            (Some(config), BEGIN_EVENT) => config.background.send_queued_background_requests(envoy),
            (Some(config), YIELD_EVENT) => config.background.drop_background_requests(envoy),
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
    catch_hook_panic((), || {
        let config = config.cast::<FilterConfig>();
        // SAFETY: the function's contract.
        if let Some(config) = unsafe { config.as_ref() } {
            config.background.wait_until_callouts_end();
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
    unsafe { parse_envoy_configuration(config, RouteOverrides::new) }
}

/// Destroys a route's configuration, which no stream uses any more.
///
/// # Safety
/// `config` is from `envoy_dynamic_module_on_http_filter_per_route_config_new`.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(
    config: *mut c_void,
) {
    catch_hook_panic((), || {
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
    catch_hook_panic(ptr::null(), || {
        let filter = Rc::new(EnvoyStreamFilter {
            config: config.cast(),
            exchange: RefCell::new(StreamExchange::new()),
            has_failed: Cell::new(false),
            is_behind: Cell::new(false),
            is_redirected: Cell::new(false),
        });
        StreamFilterHandle::into_raw(filter).cast()
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
    catch_hook_panic((), || {
        // SAFETY: the function's contract.
        let filter = unsafe { StreamFilterHandle::from_raw(filter.cast()) };
        let exchange = filter.exchange.try_borrow_mut();
        if let Ok(mut exchange) = exchange {
            exchange.release_stream();
        };
    });
}

/// Handles the request head.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    stream: FilterPtr,
    filter: *const c_void,
    is_all: bool,
) -> HeadersStatus {
    // SAFETY: the function's contract; a stream does not outlive its configuration.
    let outcome = unsafe {
        run_filter_hook(stream, filter, |exchange, stream, filter| {
            match filter.config.as_ref() {
                Some(config) => {
                    exchange.set_metrics(&config.metrics);
                    let settings =
                        config.settings_for_request(stream.route_config::<RouteOverrides>());
                    exchange.handle_request_head(stream, &settings, config, is_all)
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
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    stream: FilterPtr,
    filter: *const c_void,
    is_last: bool,
) -> BodyStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        run_filter_hook(stream, filter, |exchange, stream, _| {
            exchange.handle_request_body(stream, is_last)
        })
    };
    match outcome {
        // while a job runs, Envoy also keeps the bytes that are buffered
        HookOutcome::Wait => BodyStatus::StopIterationAndBuffer,
        outcome => body_status(&outcome),
    }
}

/// Handles the request trailers.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(
    stream: FilterPtr,
    filter: *const c_void,
) -> TrailersStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        run_filter_hook(stream, filter, |exchange, stream, _| {
            exchange.handle_request_trailers(stream)
        })
    };
    trailers_status(&outcome)
}

/// Handles the response head.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    stream: FilterPtr,
    filter: *const c_void,
    is_all: bool,
) -> HeadersStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        run_filter_hook(stream, filter, |exchange, stream, _| {
            exchange.handle_response_head(stream, is_all)
        })
    };
    headers_status(&outcome)
}

/// Handles a piece of the response body.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    stream: FilterPtr,
    filter: *const c_void,
    is_last: bool,
) -> BodyStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        run_filter_hook(stream, filter, |exchange, stream, _| {
            exchange.handle_response_body(stream, is_last)
        })
    };
    body_status(&outcome)
}

/// Handles the response trailers.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    stream: FilterPtr,
    filter: *const c_void,
) -> TrailersStatus {
    // SAFETY: the function's contract.
    let outcome = unsafe {
        run_filter_hook(stream, filter, |exchange, stream, _| {
            exchange.handle_response_trailers(stream)
        })
    };
    trailers_status(&outcome)
}

/// Handles an event of the stream's scheduler.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    stream: FilterPtr,
    filter: *const c_void,
    event: u64,
) {
    let stream = EnvoyStreamHandle::new(stream);
    // SAFETY: the function's contract.
    let Some(filter) = (unsafe { borrow_filter(filter) }) else {
        return;
    };
    let mut is_request = false;
    let outcome = filter.run_hook_action(stream, |exchange| {
        is_request = exchange.is_request_direction_stopped();
        exchange.handle_scheduled_event(stream, event, !filter.is_redirected.get())
    });
    if let HookOutcome::Continue = outcome {
        filter.is_redirected.set(true);
        match is_request {
            true => stream.continue_request_decoding(),
            false => stream.continue_response_encoding(),
        }
    }
}

/// Handles a local reply of Envoy.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_local_reply(
    stream: FilterPtr,
    filter: *const c_void,
    status: u32,
    details: EnvoyBuffer,
    _is_reset: bool,
) -> LocalReplyHookStatus {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { borrow_filter(filter) } {
        let stream = EnvoyStreamHandle::new(stream);
        // an exchange in use does not need the notification
        // SAFETY: Envoy's bytes, valid during the call.
        let failure =
            UpstreamFailure::from_envoy_local_reply(status, unsafe { details.as_slice() });
        let _ = filter.call_with_stream_exchange(stream, |exchange| {
            exchange.handle_envoy_local_reply(stream, failure);
        });
    }
    LocalReplyHookStatus::Continue
}

/// Ends the exchange of a complete stream, which Envoy destroys next.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    stream: FilterPtr,
    filter: *const c_void,
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { borrow_filter(filter) } {
        let stream = EnvoyStreamHandle::new(stream);
        // an exchange in use does not need the notification
        let _ = filter
            .call_with_stream_exchange(stream, |exchange| exchange.finish_stream_exchange(stream));
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
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    _stream: FilterPtr,
    filter: *const c_void,
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { borrow_filter(filter) } {
        filter.is_behind.set(true);
    }
}

/// Resumes the filter's own responses, because the client reads again.
///
/// # Safety
/// The caller meets the requirements of [`borrow_filter`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    stream: FilterPtr,
    filter: *const c_void,
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { borrow_filter(filter) } {
        filter.is_behind.set(false);
        let stream = EnvoyStreamHandle::new(stream);
        // an exchange in use resumes by itself
        let _ = filter.call_with_stream_exchange(stream, |exchange| {
            exchange.schedule_unsent_response(stream);
        });
    }
}
