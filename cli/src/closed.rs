//! Whether there was an output when the program began. Rust opens /dev/null for
//! what is closed before `main` does anything, and writing to that succeeds:
//! the question is asked before it.

#![allow(unsafe_code)] // before main there is no other way

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// What was started had no standard output.
pub fn was_stdout_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
#[used]
#[link_section = ".init_array"]
static ASK: extern "C" fn() = ask;

#[cfg(target_os = "linux")]
extern "C" fn ask() {
    // SAFETY: it takes numbers only, and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags == -1, Ordering::Relaxed);
}
