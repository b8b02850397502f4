//! Hooks of a filter's configuration, all on Envoy's main thread: the results
//! of its background requests. Envoy calls the hooks that the module defines.

#![allow(unsafe_code)] // the C ABI

use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::{EnvoyBuffer, EnvoyHeader, FilterConfigPtr};
use crate::background::BackgroundRequests;
use crate::config::FilterSettings;
use crate::envoy::{EnvoyBodySlices, EnvoyMessageHead};
use crate::hooks::catch_hook_panic;

/// # Safety
/// `config` is from `envoy_dynamic_module_on_http_filter_config_new`, and not destroyed.
unsafe fn call_with_background_requests(
    config: *const c_void,
    call: impl FnOnce(&BackgroundRequests),
) {
    // SAFETY: the function's contract.
    if let Some(filter) = unsafe { config.cast::<FilterSettings>().as_ref() } {
        // after the last of its requests ends, a worker may destroy the filter
        let background = Arc::clone(&filter.background);
        catch_hook_panic((), || call(&background));
    }
}

/// Passes the response head of a background request to its exchange.
///
/// # Safety
/// The caller meets the requirements of [`call_with_background_requests`]; `headers` are `number`
/// headers, valid during the call.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_headers(
    _envoy: FilterConfigPtr,
    config: *const c_void,
    id: u64,
    headers: *const EnvoyHeader,
    number: usize,
    is_all: bool,
) {
    // SAFETY: the function's contract.
    unsafe {
        call_with_background_requests(config, |background| {
            background.read_background_response_head(
                id,
                &EnvoyMessageHead::from_hook_headers(headers, number),
                is_all,
            );
        });
    }
}

/// Passes a piece of the response body of a background request to its exchange.
///
/// # Safety
/// The caller meets the requirements of [`call_with_background_requests`]; `body` is `pieces` slices,
/// valid during the call.
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_data(
    _envoy: FilterConfigPtr,
    config: *const c_void,
    id: u64,
    body: *const EnvoyBuffer,
    pieces: usize,
    _is_last: bool,
) {
    // SAFETY: the function's contract.
    unsafe {
        call_with_background_requests(config, |background| {
            background.read_background_response_piece(
                id,
                &EnvoyBodySlices::from_hook_slices(body, pieces),
            );
        });
    }
}

/// Ends a background request whose response is complete, trailers included.
///
/// # Safety
/// The caller meets the requirements of [`call_with_background_requests`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_complete(
    _envoy: FilterConfigPtr,
    config: *const c_void,
    id: u64,
) {
    // SAFETY: the function's contract.
    unsafe {
        call_with_background_requests(config, |background| {
            background.store_background_response(id);
        });
    };
}

/// Ends a background request that was reset.
///
/// # Safety
/// The caller meets the requirements of [`call_with_background_requests`].
#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_reset(
    _envoy: FilterConfigPtr,
    config: *const c_void,
    id: u64,
    _reason: u32,
) {
    // SAFETY: the function's contract.
    unsafe {
        call_with_background_requests(config, |background| {
            background.drop_reset_background_request(id);
        });
    };
}
