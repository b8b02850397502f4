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

/// Starts it, or starts it again.
///
/// # Errors
/// The system has no thread to give.
pub fn start(library: Library, wanted: Wanted) -> Result<(), std::io::Error> {
    *locked(&RESTS) = false;
    change(wanted);
    if LIBRARY.set(library).is_ok() {
        let thread = std::thread::Builder::new().name("sszip-owns".into());
        thread.spawn(move || serve(library))?;
    }
    Ok(())
}

/// It is to be another one.
pub fn change(wanted: Wanted) {
    *locked(&WANTED) = Some(wanted);
    IS_CHANGED.notify_one();
}

/// It ends: what it has in memory is stored.
pub fn end() {
    end_before(false);
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
        if let Some(new) = new {
            if settings.is_some() && !*rests {
                library.exit(false);
            }
            settings = Some(new.settings());
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
    let _ = std::panic::catch_unwind(|| end_before(true));
}

/// ... the end of the process, or not.
fn end_before(is_over: bool) {
    let Some(library) = LIBRARY.get() else {
        return;
    };
    let mut rests = locked(&RESTS);
    *rests = true;
    if library.exit(is_over) {
        return;
    }
    // The disk is slow, and threads still write to the store: what they use must not be
    // destroyed under them. What is not on the disk by now is lost as in a crash, and
    // nothing else is.
    extern "C" fn at_once() {
        // SAFETY: it takes a number.
        unsafe { libc::_exit(0) };
    }
    if is_over {
        at_once();
    }
    // SAFETY: the module stays until the process ends.
    unsafe { libc::atexit(at_once) };
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
