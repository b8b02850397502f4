//! The owner in this process, as long as a filter uses the store: a thread starts it,
//! takes it further, and starts it anew when it is to be another one.
//!
//! Envoy's main thread may end the process at any moment, and RocksDB's static objects
//! would be destroyed while it is in use, or is being opened. But all filters end before
//! that, on the main thread, and the last one ends the owner.

#![allow(unsafe_code)] // what is done at the process's end is told to C

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::library::{Library, Settings};
use super::Wanted;

/// What filters of one configuration want is said one after the other. Milliseconds.
const SETTLING: u64 = 50;

/// How long an owner that is not wanted is not looked at. Milliseconds.
const RESTING: u64 = 3_600_000;

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// What the owner is to be, and has not been told.
static WANTED: Mutex<Option<Wanted>> = Mutex::new(None);
static IS_CHANGED: Condvar = Condvar::new();

/// Nobody uses it. Held while the library is called.
static RESTS: Mutex<bool> = Mutex::new(false);

/// It may run from now on; what it is to be is said by [`change`] after that.
///
/// # Errors
/// The system has no thread to give.
pub fn start(library: Library) -> Result<(), std::io::Error> {
    *locked(&RESTS) = false;
    if LIBRARY.set(library).is_ok() {
        let thread = std::thread::Builder::new().name("sszip-owns".into());
        thread.spawn(move || serve(library))?;
    }
    Ok(())
}

/// It is to be this one.
pub fn change(wanted: Wanted) {
    *locked(&WANTED) = Some(wanted);
    IS_CHANGED.notify_one();
}

/// It ends, unless somebody uses it again: what it has in memory is stored.
pub fn end_unless(is_used: impl FnOnce() -> bool) {
    end(false, is_used);
}

fn serve(library: Library) {
    let mut settings = None;
    let mut is_at_exit = [false; 2];
    loop {
        if locked(&WANTED).is_some() {
            std::thread::sleep(Duration::from_millis(SETTLING));
        }
        let new = locked(&WANTED).take();
        let rests = locked(&RESTS);
        if let Some(new) = new.map(|wanted| wanted.settings()) {
            let is_other = settings.as_ref().is_some_and(|known| *known != new);
            if is_other && !*rests && !library.exit(false) {
                leave_behind();
            }
            settings = Some(new);
        }
        let mut after = RESTING;
        if let (Some(settings), false) = (&settings, *rests) {
            at_exit(&mut is_at_exit[0]);
            let ran = library.run(settings);
            after = ran.0;
            if ran.1 {
                // before RocksDB's own, which are there by now
                at_exit(&mut is_at_exit[1]);
            }
        }
        drop(rests);
        let wanted = locked(&WANTED);
        let patience = Duration::from_millis(after);
        drop(IS_CHANGED.wait_timeout_while(wanted, patience, |wanted| wanted.is_none()));
    }
}

impl Wanted {
    fn settings(&self) -> Settings {
        let store = &self.store;
        Settings {
            socket: store.socket(),
            path: store.data(),
            max_size: store.max_size.unwrap_or(0),
            memory: store.memory.unwrap_or(0),
            max_entry: self.max_entry,
            inactive: store.inactive.unwrap_or(0),
            no_recompress: store.recompress == Some(false),
            heads: self.follows.to_json(),
        }
    }
}

/// Where the process ends without its filters.
fn at_exit(is_registered: &mut bool) {
    if !std::mem::replace(is_registered, true) {
        // SAFETY: the module stays until the process ends. Refused: as in a crash,
        // what is in memory only is lost.
        unsafe { libc::atexit(process_ends) };
    }
}

extern "C" fn process_ends() {
    let _ = std::panic::catch_unwind(|| end(true, || false));
}

/// `is_over`: so does the process.
fn end(is_over: bool, is_used: impl FnOnce() -> bool) {
    let Some(library) = LIBRARY.get() else {
        return;
    };
    let mut rests = locked(&RESTS);
    if is_used() {
        return;
    }
    *rests = true;
    if library.exit(is_over) {
        return;
    }
    if is_over {
        at_once();
    }
    leave_behind();
}

/// The disk is slow, and threads still write to the store: what they use must not be
/// destroyed under them when the process ends. What is not on the disk by then is lost as
/// in a crash, and nothing else is.
fn leave_behind() {
    // SAFETY: the module stays until the process ends.
    unsafe { libc::atexit(end_at_once) };
}

extern "C" fn end_at_once() {
    // one that was started since
    process_ends();
    at_once();
}

fn at_once() {
    // SAFETY: it takes a number.
    unsafe { libc::_exit(0) };
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
