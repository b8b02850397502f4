//! Whether standard output was closed when the program started. Rust opens /dev/null in place of a
//! closed descriptor before `main` runs, and writes to that succeed; so the check runs before it.

#![allow(unsafe_code)] // before main there is no other way

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the program started.
pub fn was_stdout_closed_at_start() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
#[used]
#[link_section = ".init_array"]
static CHECK_BEFORE_MAIN: extern "C" fn() = record_closed_stdout;

#[cfg(target_os = "linux")]
extern "C" fn record_closed_stdout() {
    // SAFETY: it takes numbers only, and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags == -1, Ordering::Relaxed);
}
