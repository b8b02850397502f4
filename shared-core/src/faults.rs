//! Fault injection for tests of hosts: failures that can't be provoked from outside (a panic, an
//! allocation that fails).
//!
//! Compiled to nothing unless the feature `faults` is enabled. With it, the environment variable
//! `SSZIP_FAULT` names the fault of the process.

/// A failure that a test build can inject into this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedTestFault {
    /// Panic while a response head is evaluated.
    PanicHead,
    /// Panic while a piece of a body is buffered.
    PanicBody,
    /// Panic during the compression.
    PanicCompress,
    /// Panic in the encoder of a stream.
    PanicStream,
    /// Failure of the compression.
    FailCompress,
    /// Refusal of memory for a buffered body or an encoder.
    FailAlloc,
    /// Report of another interface than the header's `SSZIP_ABI`.
    #[cfg(feature = "ffi")]
    OtherAbi,
    /// Abort when a durable write is in memory, before it is flushed.
    #[cfg(feature = "store")]
    DieUnflushed,
    /// Abort after a durable write, before the marker file counts it.
    #[cfg(feature = "store")]
    DieWritten,
    /// Abort when a new database was created, before its marker file.
    #[cfg(feature = "store")]
    DieMade,
    /// Abort before RocksDB opens the database.
    #[cfg(feature = "store")]
    DieOpening,
    /// Failure of the store's first flush.
    #[cfg(feature = "store")]
    FailFlush,
}

/// Whether `fault` is injected in this process.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) fn is_fault_injected(_fault: InjectedTestFault) -> bool {
    false
}

/// Whether `fault` is injected in this process.
#[cfg(feature = "faults")]
pub(crate) fn is_fault_injected(fault: InjectedTestFault) -> bool {
    use std::sync::OnceLock;

    static CHOSEN: OnceLock<Option<InjectedTestFault>> = OnceLock::new();
    *CHOSEN.get_or_init(read_fault) == Some(fault)
}

/// Whether `fault` is injected in a process that reads its configuration, which may still set the
/// variable for the processes that it forks.
#[cfg(all(feature = "ffi", not(feature = "faults")))]
#[inline(always)]
pub(crate) fn is_fault_injected_before_fork(_fault: InjectedTestFault) -> bool {
    false
}

/// Whether `fault` is injected in a process that reads its configuration, which may still set the
/// variable for the processes that it forks.
#[cfg(all(feature = "ffi", feature = "faults"))]
pub(crate) fn is_fault_injected_before_fork(fault: InjectedTestFault) -> bool {
    read_fault() == Some(fault)
}

/// Returns the fault that the environment variable `SSZIP_FAULT` names.
#[cfg(feature = "faults")]
fn read_fault() -> Option<InjectedTestFault> {
    match std::env::var("SSZIP_FAULT").as_deref() {
        Ok("panic-head") => Some(InjectedTestFault::PanicHead),
        Ok("panic-body") => Some(InjectedTestFault::PanicBody),
        Ok("panic-compress") => Some(InjectedTestFault::PanicCompress),
        Ok("panic-stream") => Some(InjectedTestFault::PanicStream),
        Ok("fail-compress") => Some(InjectedTestFault::FailCompress),
        Ok("fail-alloc") => Some(InjectedTestFault::FailAlloc),
        #[cfg(feature = "ffi")]
        Ok("other-abi") => Some(InjectedTestFault::OtherAbi),
        #[cfg(feature = "store")]
        Ok("die-unflushed") => Some(InjectedTestFault::DieUnflushed),
        #[cfg(feature = "store")]
        Ok("die-written") => Some(InjectedTestFault::DieWritten),
        #[cfg(feature = "store")]
        Ok("die-made") => Some(InjectedTestFault::DieMade),
        #[cfg(feature = "store")]
        Ok("die-opening") => Some(InjectedTestFault::DieOpening),
        #[cfg(feature = "store")]
        Ok("fail-flush") => Some(InjectedTestFault::FailFlush),
        _ => None,
    }
}

/// Panics if `fault` is injected.
#[inline(always)]
#[allow(clippy::panic)] // the purpose of this function
pub(crate) fn panic_if_injected(fault: InjectedTestFault) {
    if is_fault_injected(fault) {
        panic!("injected fault: {fault:?}");
    }
}

/// Aborts the process if `fault` is injected, as `kill -9` would.
#[cfg(feature = "store")]
#[inline(always)]
pub(crate) fn abort_if_injected(fault: InjectedTestFault) {
    if is_fault_injected(fault) {
        std::process::abort();
    }
}

/// Whether `fault` is injected; `true` for the first call only.
#[cfg(feature = "store")]
#[inline(always)]
pub(crate) fn is_fault_injected_once(fault: InjectedTestFault) -> bool {
    use std::sync::atomic::{AtomicBool, Ordering};

    static HAPPENED: AtomicBool = AtomicBool::new(false);
    is_fault_injected(fault) && !HAPPENED.swap(true, Ordering::Relaxed)
}
