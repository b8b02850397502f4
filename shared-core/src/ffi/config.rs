//! Directives and settings.

use std::sync::{Arc, LazyLock};

use super::panic::{borrow, borrow_mut, boundary, give};
use super::types::{slice_of, sszip_status, sszip_str};
use crate::allocator;
use crate::cache::process::wake::{EventLoop, Queue, Waiter};
use crate::cache::process::Process;
use crate::config::{Config, Directives};
use crate::exchange;

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

/// What one block of a configuration says.
pub struct sszip_directives(pub(super) Directives);

/// The settings of a place, ready for exchanges. Immutable.
pub struct sszip_config(pub(super) Arc<Config>);

/// An empty block.
///
/// # Safety
/// `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_directives_new(out: *mut *mut sszip_directives) -> sszip_status {
    boundary(|| {
        give!(
            out,
            Box::into_raw(Box::new(sszip_directives(Directives::default())))
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Takes the directive `name`, as docs/directives.md has it, with its arguments.
///
/// On `SSZIP_STATUS_INVALID` a text that says what is allowed, for the
/// operator, is written to `text`, cut to `text_size` bytes and without a NUL;
/// `text_len` is its length. Nothing has changed then.
///
/// On `SSZIP_STATUS_OK` the same is written of what the operator should know of
/// the directive all the same; `text_len` is 0 where there is nothing.
///
/// # Safety
/// `directives` is NULL or from `sszip_directives_new` and not freed; `values`
/// are `nvalues` valid strings; `text` has room for `text_size` bytes.
#[no_mangle]
pub unsafe extern "C" fn sszip_directives_set(
    directives: *mut sszip_directives,
    name: sszip_str,
    values: *const sszip_str,
    nvalues: usize,
    text: *mut u8,
    text_size: usize,
    text_len: *mut usize,
) -> sszip_status {
    boundary(|| {
        let directives = borrow_mut!(directives);
        // SAFETY: the function's contract.
        let (name, values) = unsafe { (name.bytes(), slice_of(values, nvalues)) };
        // SAFETY: the function's contract.
        let values: Vec<&[u8]> = values
            .iter()
            .map(|value| unsafe { value.bytes() })
            .collect();
        match directives.0.set(own_name(name), &values) {
            Ok(()) => {
                let warning = directives.0.take_warning().unwrap_or_default();
                // SAFETY: the function's contract.
                unsafe { say(&warning, text, text_size, text_len) };
                sszip_status::SSZIP_STATUS_OK
            }
            // SAFETY: the function's contract.
            Err(error) => unsafe { say(&error.to_string(), text, text_size, text_len) },
        }
    })
}

/// What the core calls a directive: hosts that have others put a prefix before
/// it.
fn own_name(name: &[u8]) -> &str {
    match name.strip_prefix(b"sszip") {
        Some(b"") => "enable",
        Some([b'_', own @ ..]) => std::str::from_utf8(own).unwrap_or_default(),
        _ => "",
    }
}

/// Fields of the node's answers that the host's own configuration hides from
/// clients here. Blocks inside do not inherit them.
///
/// # Safety
/// `directives` is NULL or from `sszip_directives_new` and not freed; `names`
/// are `nnames` valid strings.
#[no_mangle]
pub unsafe extern "C" fn sszip_directives_hide(
    directives: *mut sszip_directives,
    names: *const sszip_str,
    nnames: usize,
) -> sszip_status {
    boundary(|| {
        let directives = borrow_mut!(directives);
        // SAFETY: the function's contract.
        let names = unsafe { slice_of(names, nnames) };
        // SAFETY: the function's contract.
        directives
            .0
            .hide(names.iter().map(|name| unsafe { name.bytes() }));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Takes from the enclosing block what this one does not say.
///
/// # Safety
/// Both are NULL or from `sszip_directives_new`, not freed, and not the same.
#[no_mangle]
pub unsafe extern "C" fn sszip_directives_inherit(
    directives: *mut sszip_directives,
    outer: *const sszip_directives,
) -> sszip_status {
    boundary(|| {
        borrow_mut!(directives).0.inherit(&borrow!(outer).0);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// # Safety
/// `directives` is NULL or from `sszip_directives_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_directives_free(directives: *mut sszip_directives) {
    // SAFETY: the function's contract.
    unsafe { free(directives) }
}

/// The settings that `directives` say, with defaults for the rest.
///
/// # Safety
/// `directives` is NULL or from `sszip_directives_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_config_new(
    directives: *const sszip_directives,
    out: *mut *mut sszip_config,
) -> sszip_status {
    boundary(|| {
        let config = borrow!(directives).0.resolve(PROCESS.clone());
        give!(out, Box::into_raw(Box::new(sszip_config(Arc::new(config)))));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Prepares the process that will serve, one of `processes`, after any fork:
/// makes the hot tier, with its share of `cache_memory`, if `config` has a cache,
/// opens what would else be opened when it is needed first, and there may be no
/// memory, and sets how the C library keeps what is freed.
/// Without it nothing is cached.
///
/// # Safety
/// `config` is NULL or from `sszip_config_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_process_start(
    config: *const sszip_config,
    processes: usize,
) -> sszip_status {
    boundary(|| {
        let config = &borrow!(config).0;
        let share = config.cache.memory / processes.max(1) as u64;
        if config.enable && config.cache.enable {
            config.process.shared.start(share, share, 1);
        }
        exchange::prepare();
        allocator::keep_freed();
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Whether answers are cached at a place with these settings. `false` for
/// NULL.
///
/// # Safety
/// `config` is NULL or from `sszip_config_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_config_caches(config: *const sszip_config) -> bool {
    // SAFETY: the function's contract.
    unsafe { config.as_ref() }.is_some_and(|config| config.0.enable && config.0.cache.enable)
}

/// Whether these settings have a cache that never acts, since sszip is off.
/// `false` for NULL.
///
/// # Safety
/// `config` is NULL or from `sszip_config_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_config_caches_in_vain(config: *const sszip_config) -> bool {
    // SAFETY: the function's contract.
    unsafe { config.as_ref() }.is_some_and(|config| !config.0.enable && config.0.cache.enable)
}

/// The longest entry that is kept at a place with these settings, in bytes
/// before compression. 0 for NULL.
///
/// # Safety
/// `config` is NULL or from `sszip_config_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_config_max_entry(config: *const sszip_config) -> u64 {
    // SAFETY: the function's contract.
    unsafe { config.as_ref() }.map_or(0, |config| config.0.cache.max_entry)
}

/// Whether sszip acts at a place with these settings. `false` for NULL.
///
/// # Safety
/// `config` is NULL or from `sszip_config_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_config_enabled(config: *const sszip_config) -> bool {
    // SAFETY: the function's contract.
    unsafe { config.as_ref() }.is_some_and(|config| config.0.enable)
}

/// Exchanges made from it go on.
///
/// # Safety
/// `config` is NULL or from `sszip_config_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_config_free(config: *mut sszip_config) {
    // SAFETY: the function's contract.
    unsafe { free(config) }
}

/// Writes what is wrong with a configuration, cut to `size` bytes.
///
/// # Safety
/// `text` is NULL or has room for `size` bytes; `len` is NULL or points at
/// memory of its type.
pub(super) unsafe fn say(
    message: &str,
    text: *mut u8,
    size: usize,
    len: *mut usize,
) -> sszip_status {
    if !text.is_null() {
        let length = message.len().min(size);
        // SAFETY: not NULL; the caller's promise.
        unsafe { text.copy_from_nonoverlapping(message.as_ptr(), length) };
        give!(len, length);
    }
    sszip_status::SSZIP_STATUS_INVALID
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
