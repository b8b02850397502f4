//! Settings, and what all of them share.

use std::sync::{Arc, LazyLock};

use super::panic::boundary;
use super::types::{slice_of, sszip_status, sszip_str};
use crate::cache::process::wake::{EventLoop, Queue, Waiter};
use crate::cache::process::Process;
use crate::config::Config;

/// One for the process, however many configurations it has seen.
pub(super) static PROCESS: LazyLock<Process> = LazyLock::new(|| {
    let process = Process::default();
    process.shared.event_loop(WOKEN.clone());
    process
});

/// Those of its only event loop, which `sszip_next_woken` gives out.
pub(super) static WOKEN: LazyLock<Arc<Queue>> = LazyLock::new(Arc::default);

/// One that waits there; 0: it does not.
pub(super) fn waiter_of(name: usize) -> Option<Waiter> {
    (name != 0).then(|| EventLoop::default().waiter(name))
}

/// The settings of a place, ready for exchanges. Immutable.
pub struct sszip_config(pub(super) Arc<Config>);

/// # Safety
/// `values` are `nvalues` valid strings that stay as they are for `'a`.
pub(super) unsafe fn values_of<'a>(values: *const sszip_str, nvalues: usize) -> Vec<&'a [u8]> {
    // SAFETY: the caller's promise.
    let values = unsafe { slice_of(values, nvalues) };
    // SAFETY: the caller's promise.
    let values = values.iter().map(|value| unsafe { value.bytes() });
    values.collect()
}

/// What the core calls a directive: hosts that have others put a prefix before
/// it.
pub(super) fn own_name(name: &[u8]) -> &str {
    match name.strip_prefix(b"sszip") {
        Some(b"") => "enable",
        Some([b'_', own @ ..]) => std::str::from_utf8(own).unwrap_or_default(),
        _ => "",
    }
}

/// What a host has to know of a place's settings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_rules {
    /// For `sszip_exchange_new`; the plan's, and freed with it.
    pub config: *const sszip_config,
    /// sszip acts there.
    pub enable: bool,
    /// Answers are cached there.
    pub caches: bool,
    /// Requests may be [needed](super::cache::sszip_exchange_need) before they are
    /// sent.
    pub reads: bool,
    /// No request with a body goes on there unless it was looked up.
    pub judges: bool,
    /// Requests may have [something to ask](super::cache::sszip_exchange_take_inquiry).
    pub inquires: bool,
    /// How many buffers a stream has at most.
    pub buffers: usize,
    /// Bytes of each.
    pub buffer_size: usize,
}

impl sszip_rules {
    pub(super) fn of(config: &sszip_config) -> Self {
        let rules = &config.0;
        Self {
            config,
            enable: rules.enable,
            caches: rules.caches(),
            reads: rules.reads(),
            judges: rules.policy().is_some(),
            inquires: rules.transcodes(),
            buffers: rules.buffers.number as usize,
            buffer_size: rules.buffers.size as usize,
        }
    }
}

/// # Safety
/// `object` is NULL or from `Box::into_raw` and not freed.
pub(super) unsafe fn free<T>(object: *mut T) {
    boundary(|| {
        if !object.is_null() {
            // SAFETY: not NULL; the caller's promise.
            drop(unsafe { Box::from_raw(object) });
        }
        sszip_status::SSZIP_STATUS_OK
    });
}
