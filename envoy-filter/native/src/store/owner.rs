//! The owner in this process, while a filter uses the store. A thread starts
//! it, performs its work, and restarts it when its settings change.
//!
//! Envoy's main thread may end the process at any time, and would destroy
//! RocksDB's static objects while the store is in use or is being opened. All
//! filters are destroyed before that, on the main thread, and the last one ends
//! the owner.

#![allow(unsafe_code)] // calls of C at the end of the process

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::owner_library::{OwnerLibrary, OwnerStartSettings};

/// Time to wait for further changes, in milliseconds: the filters of one
/// configuration change the settings one after the other.
const SETTLING_MS: u64 = 50;

/// Interval between checks while no owner is wanted, in milliseconds.
const IDLE_CHECK_MS: u64 = 3_600_000;

static LIBRARY: OnceLock<OwnerLibrary> = OnceLock::new();

/// Settings that are not passed to the owner yet.
static PENDING_SETTINGS: Mutex<Option<OwnerStartSettings>> = Mutex::new(None);
static IS_CHANGED: Condvar = Condvar::new();

/// No filter uses the owner. Locked while the library is called.
static IS_OWNER_UNUSED: Mutex<bool> = Mutex::new(false);

/// Starts the thread that runs the owner, or permits it to run again; [`queue_owner_settings`] sets
/// its settings afterwards.
///
/// # Errors
/// No thread is available.
pub fn start_owner_thread(library: OwnerLibrary) -> Result<(), std::io::Error> {
    *lock_ignoring_poison(&IS_OWNER_UNUSED) = false;
    if LIBRARY.set(library).is_ok() {
        let thread = std::thread::Builder::new().name("sszip-owns".into());
        thread.spawn(move || run_owner_thread(library))?;
    }
    Ok(())
}

/// Sets the settings of the owner, which its thread applies soon.
pub fn queue_owner_settings(wanted: OwnerStartSettings) {
    *lock_ignoring_poison(&PENDING_SETTINGS) = Some(wanted);
    IS_CHANGED.notify_one();
}

/// Runs the owner with the newest settings, step by step, until the process ends. It rests while no
/// filter uses it.
fn run_owner_thread(library: OwnerLibrary) {
    let mut settings = None;
    let mut is_at_exit = [false; 2];
    loop {
        if lock_ignoring_poison(&PENDING_SETTINGS).is_some() {
            std::thread::sleep(Duration::from_millis(SETTLING_MS));
        }
        let new = lock_ignoring_poison(&PENDING_SETTINGS).take();
        let rests = lock_ignoring_poison(&IS_OWNER_UNUSED);
        if let Some(new) = new {
            let is_other = settings.as_ref().is_some_and(|known| *known != new);
            if is_other && !*rests && !library.exit_owner(false) {
                register_immediate_exit();
            }
            settings = Some(new);
        }
        let mut after = IDLE_CHECK_MS;
        if let (Some(settings), false) = (&settings, *rests) {
            register_owner_exit_handler(&mut is_at_exit[0]);
            let ran = library.run_owner_step(settings);
            after = ran.0;
            if ran.1 {
                // registered before RocksDB's own functions, which exist by now
                register_owner_exit_handler(&mut is_at_exit[1]);
            }
        }
        drop(rests);
        let wanted = lock_ignoring_poison(&PENDING_SETTINGS);
        let timeout = Duration::from_millis(after);
        drop(IS_CHANGED.wait_timeout_while(wanted, timeout, |wanted| wanted.is_none()));
    }
}

/// Registers the function that stops the owner if the process exits without destroying its filters.
fn register_owner_exit_handler(is_registered: &mut bool) {
    if !std::mem::replace(is_registered, true) {
        // SAFETY: the module stays until the process ends. If registration
        // fails, entries in memory are lost, as in a crash.
        unsafe { libc::atexit(handle_process_exit) };
    }
}

extern "C" fn handle_process_exit() {
    let _ = std::panic::catch_unwind(|| stop_owner(true, || false));
}

/// Stops the owner and stores the entries of its memory, unless a filter uses it. `is_exit`:
/// the process ends as well.
pub fn stop_owner(is_exit: bool, is_used: impl FnOnce() -> bool) {
    let Some(library) = LIBRARY.get() else {
        return;
    };
    let mut rests = lock_ignoring_poison(&IS_OWNER_UNUSED);
    if is_used() {
        return;
    }
    *rests = true;
    if library.exit_owner(is_exit) {
        return;
    }
    if is_exit {
        exit_process_now();
    }
    register_immediate_exit();
}

/// Registers an immediate exit for the end of the process, because threads still write to a slow
/// disk: their objects must not be destroyed meanwhile. Entries that are not on disk by then are
/// lost, as in a crash; no others are.
fn register_immediate_exit() {
    // SAFETY: the module stays until the process ends.
    unsafe { libc::atexit(exit_immediately) };
}

/// Ends the process without destroying objects that threads still use.
extern "C" fn exit_immediately() {
    // ends an owner that was started meanwhile
    handle_process_exit();
    exit_process_now();
}

fn exit_process_now() {
    // SAFETY: the argument is a number.
    unsafe { libc::_exit(0) };
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
