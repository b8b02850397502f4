//! Settings of routes, and the state that all of them share.

use std::sync::{Arc, LazyLock};

use super::panic::catch_panic_status;
use super::types::{borrow_slice, sszip_status, sszip_str};
use crate::cache::process::wake::{EventLoopId, WaitingRequestId, WokenRequestQueue};
use crate::cache::process::ProcessResources;
use crate::config::RouteConfig;

/// State of the process, shared by all configurations that it loads.
pub(super) static PROCESS: LazyLock<ProcessResources> = LazyLock::new(|| {
    let process = ProcessResources::default();
    process.shared.add_event_loop(WOKEN.clone());
    process
});

/// Wakeups of the process's only event loop, which `sszip_next_wakeup` returns.
pub(super) static WOKEN: LazyLock<Arc<WokenRequestQueue>> = LazyLock::new(Arc::default);

/// Returns the waiter of the request with this identity; `None` for 0: the
/// request does not wait.
pub(super) fn request_waiter_from_id(name: usize) -> Option<WaitingRequestId> {
    (name != 0).then(|| EventLoopId::default().waiter_of_request(name))
}

/// The settings of one route. They do not change: any number of threads may
/// use them at a time.
pub struct sszip_config(pub(super) Arc<RouteConfig>);

/// Borrows the bytes of a host's array of strings.
///
/// # Safety
/// `values` are `nvalues` valid strings that do not change during `'a`.
pub(super) unsafe fn borrow_strings<'a>(values: *const sszip_str, nvalues: usize) -> Vec<&'a [u8]> {
    // SAFETY: the caller's promise.
    let values = unsafe { borrow_slice(values, nvalues) };
    // SAFETY: the caller's promise.
    let values = values.iter().map(|value| unsafe { value.borrow_bytes() });
    values.collect()
}

/// Returns the core's name of a directive, without the prefix that a host puts
/// before it.
pub(super) fn core_directive_name(name: &[u8]) -> &str {
    match name.strip_prefix(b"sszip") {
        Some(b"") => "enable",
        Some([b'_', own @ ..]) => std::str::from_utf8(own).unwrap_or_default(),
        _ => "",
    }
}

/// Settings of a route that the host needs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_route_settings {
    /// Argument of `sszip_exchange_new`. Belongs to the configuration, and is
    /// valid until `sszip_validated_config_free`.
    pub config: *const sszip_config,
    /// sszip is enabled on the route.
    pub enable: bool,
    /// Responses of the route are cached.
    pub caches: bool,
    /// Requests of the route may need a lookup: call
    /// `sszip_exchange_required_body` before a request is sent.
    pub reads_requests: bool,
    /// Requests with a body are not forwarded without a lookup.
    pub has_policy: bool,
    /// Requests of the route may need a probe: call
    /// `sszip_exchange_take_probe`.
    pub sends_probes: bool,
    /// Maximum number of output buffers of one stream.
    pub buffers: usize,
    /// Size of each output buffer, in bytes.
    pub buffer_size: usize,
}

impl sszip_route_settings {
    pub(super) fn from_config(config: &sszip_config) -> Self {
        let rules = &config.0;
        Self {
            config,
            enable: rules.enable,
            caches: rules.is_cache_enabled(),
            reads_requests: rules.may_read_request_body(),
            has_policy: rules.active_call_policy().is_some(),
            sends_probes: rules.is_transcoding_enabled(),
            buffers: rules.buffers.number as usize,
            buffer_size: rules.buffers.size as usize,
        }
    }
}

/// Frees an object that the host owns.
///
/// # Safety
/// `object` is NULL or from `Box::into_raw` and not freed.
pub(super) unsafe fn free_boxed_object<T>(object: *mut T) {
    catch_panic_status(|| {
        if !object.is_null() {
            // SAFETY: not NULL; the caller's promise.
            drop(unsafe { Box::from_raw(object) });
        }
        sszip_status::SSZIP_STATUS_OK
    });
}
