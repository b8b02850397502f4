//! Failures on demand, for tests of hosts: what a host must survive can't be
//! provoked from outside (a panic, an allocation that fails).
//!
//! Compiled to nothing unless the feature `faults` is on. With it, the
//! environment variable `SSZIP_FAULT` names the fault of the process.

/// Places where a test build can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Panic while a response head is judged.
    PanicHead,
    /// Panic while a piece of a body is collected.
    PanicBody,
    /// Panic in the coder.
    PanicCompress,
    /// Panic in the encoder of a stream.
    PanicStream,
    /// The coder reports a failure.
    FailCompress,
    /// Memory for a held body or an encoder is refused.
    FailAlloc,
    /// Die when a lasting write is in memory, before it is flushed.
    #[cfg(feature = "store")]
    DieUnflushed,
    /// Die after a lasting write, before the marker file counts it.
    #[cfg(feature = "store")]
    DieWritten,
    /// Die when a new database is made, before its marker file is.
    #[cfg(feature = "store")]
    DieMade,
    /// Die when RocksDB is about to open.
    #[cfg(feature = "store")]
    DieOpening,
    /// The first flush of the store fails.
    #[cfg(feature = "store")]
    FailFlush,
}

/// Whether `fault` is to happen in this process.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn injected(_fault: Fault) -> bool {
    false
}

/// Whether `fault` is to happen in this process.
#[cfg(feature = "faults")]
pub(crate) fn injected(fault: Fault) -> bool {
    use std::sync::OnceLock;

    static CHOSEN: OnceLock<Option<Fault>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| match std::env::var("SSZIP_FAULT").as_deref() {
        Ok("panic-head") => Some(Fault::PanicHead),
        Ok("panic-body") => Some(Fault::PanicBody),
        Ok("panic-compress") => Some(Fault::PanicCompress),
        Ok("panic-stream") => Some(Fault::PanicStream),
        Ok("fail-compress") => Some(Fault::FailCompress),
        Ok("fail-alloc") => Some(Fault::FailAlloc),
        #[cfg(feature = "store")]
        Ok("die-unflushed") => Some(Fault::DieUnflushed),
        #[cfg(feature = "store")]
        Ok("die-written") => Some(Fault::DieWritten),
        #[cfg(feature = "store")]
        Ok("die-made") => Some(Fault::DieMade),
        #[cfg(feature = "store")]
        Ok("die-opening") => Some(Fault::DieOpening),
        #[cfg(feature = "store")]
        Ok("fail-flush") => Some(Fault::FailFlush),
        _ => None,
    });
    *chosen == Some(fault)
}

/// Panics if `fault` is injected.
#[inline(always)]
#[allow(clippy::panic)] // the purpose of this function
pub(crate) fn panic_if(fault: Fault) {
    if injected(fault) {
        panic!("injected fault: {fault:?}");
    }
}

/// Ends the process on the spot if `fault` is injected, as `kill -9` would.
#[cfg(feature = "store")]
#[inline(always)]
pub(crate) fn die_if(fault: Fault) {
    if injected(fault) {
        std::process::abort();
    }
}

/// Whether `fault` is to happen, the first time that this is asked.
#[cfg(feature = "store")]
#[inline(always)]
pub(crate) fn injected_once(fault: Fault) -> bool {
    use std::sync::atomic::{AtomicBool, Ordering};

    static HAPPENED: AtomicBool = AtomicBool::new(false);
    injected(fault) && !HAPPENED.swap(true, Ordering::Relaxed)
}
