//! Directives and settings.

use std::sync::{Arc, LazyLock};

use super::files::with_files;
use super::panic::{borrow, borrow_mut, boundary, give};
use super::types::{slice_of, sszip_status, sszip_str};
use crate::allocator;
use crate::cache::process::wake::{EventLoop, Queue, Waiter};
use crate::cache::process::Process;
use crate::config::{Config, Directives, Source};
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
#[derive(Default)]
pub struct sszip_directives {
    directives: Directives,
    /// What the last call of `sszip_directives_set` had to say.
    said: String,
}

/// The settings of a place, ready for exchanges. Immutable.
pub struct sszip_config(pub(super) Arc<Config>);

/// An empty block.
///
/// # Safety
/// `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_directives_new(out: *mut *mut sszip_directives) -> sszip_status {
    boundary(|| {
        give!(out, Box::into_raw(Box::default()));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Takes the directive `name`, as docs/directives.md has it, with its arguments.
/// `at` says where it stands, for people; files that it names are relative to
/// `base`.
///
/// On `SSZIP_STATUS_INVALID` `said` goes on from the directive's name and says
/// what is allowed, for the operator; nothing has changed then. On
/// `SSZIP_STATUS_OK` it says what the operator should know of the directive all
/// the same, and is empty where there is nothing. Valid until the next call.
///
/// # Safety
/// `directives` is NULL or from `sszip_directives_new` and not freed; `values`
/// are `nvalues` valid strings, and so are `name`, `at` and `base`; `said` points
/// at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_directives_set(
    directives: *mut sszip_directives,
    name: sszip_str,
    values: *const sszip_str,
    nvalues: usize,
    at: sszip_str,
    base: sszip_str,
    said: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let sszip_directives {
            directives,
            said: text,
        } = borrow_mut!(directives);
        // SAFETY: the function's contract.
        let (name, values) = unsafe { (name.bytes(), values_of(values, nvalues)) };
        // SAFETY: the function's contract.
        let (at, base) = unsafe { (at.bytes(), base.bytes()) };
        let name = own_name(name);
        let set = with_files(name, &values, base).and_then(|values| {
            let values: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
            let source = Source {
                at: &String::from_utf8_lossy(at),
            };
            let set = directives.set_at(name, &values, source);
            set.map_err(|error| error.to_string())
        });
        let status = match set {
            Ok(()) => sszip_status::SSZIP_STATUS_OK,
            Err(_) => sszip_status::SSZIP_STATUS_INVALID,
        };
        *text = match set {
            Ok(()) => directives.take_warning().unwrap_or_default(),
            Err(error) => error,
        };
        give!(said, sszip_str::of(text.as_bytes()));
        status
    })
}

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
        let names = unsafe { values_of(names, nnames) };
        directives.directives.hide(names.into_iter());
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
        let outer = &borrow!(outer).directives;
        borrow_mut!(directives).directives.inherit(outer);
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
        let config = borrow!(directives).directives.resolve(PROCESS.clone());
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
        if config.caches() {
            config.process.shared.start(share, share, 1);
        }
        exchange::prepare();
        allocator::keep_freed();
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What a host has to know of a place's settings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_rules {
    /// sszip acts there.
    pub enable: bool,
    /// Answers are cached there.
    pub caches: bool,
    /// Requests may be [needed](super::cache::sszip_exchange_need) before they are
    /// sent.
    pub reads: bool,
    /// How many buffers a stream has at most.
    pub buffers: usize,
    /// Bytes of each.
    pub buffer_size: usize,
}

/// Some of the settings.
///
/// # Safety
/// `config` is NULL or from `sszip_config_new` and not freed; `out` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_config_rules(
    config: *const sszip_config,
    out: *mut sszip_rules,
) -> sszip_status {
    boundary(|| {
        let config = &borrow!(config).0;
        give!(
            out,
            sszip_rules {
                enable: config.enable,
                caches: config.caches(),
                reads: config.caches() || config.transcodes(),
                buffers: config.buffers.number as usize,
                buffer_size: config.buffers.size as usize,
            }
        );
        sszip_status::SSZIP_STATUS_OK
    })
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
