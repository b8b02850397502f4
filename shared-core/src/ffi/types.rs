//! Types and functions that all sections of the header use.

use std::slice;

use crate::faults::{is_fault_injected_before_fork, InjectedTestFault};

/// The value that `sszip_abi` returns if the library fits this header. It is
/// incremented with every change for which a host must be compiled again.
pub const SSZIP_ABI: u32 = 4;

/// Result of a call. Values are never reused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_status {
    /// The call succeeded; the results are written.
    SSZIP_STATUS_OK = 0,
    /// A pointer that must not be NULL is NULL. The call had no effect.
    SSZIP_STATUS_NULL = 1,
    /// The library failed inside. The object may only be ended.
    SSZIP_STATUS_PANIC = 2,
    /// The call is not allowed in the object's present state; or the number of
    /// an enum or a `size` is not one of this version, and the call had no
    /// effect.
    SSZIP_STATUS_MISUSE = 3,
    /// A directive, a name or a value is not accepted. The description of the
    /// function states whether it writes an error text.
    SSZIP_STATUS_INVALID = 4,
    /// The streaming encoder failed: the host must truncate the response
    /// visibly.
    SSZIP_STATUS_ENCODER = 5,
    /// The body ended before the length that the upstream announced: the host
    /// must truncate the response visibly.
    SSZIP_STATUS_SHORT = 6,
    /// Memory is exhausted. After `sszip_exchange_new` the request passes
    /// without an exchange; after any other function there is no response to
    /// send, and the request fails.
    SSZIP_STATUS_MEMORY = 7,
}

/// Bytes that the library or the host owns, and not NUL-terminated. The
/// function that returns them states for how long they are valid.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_str {
    /// First byte. If `len` is 0, it may be NULL, and must not be read.
    pub data: *const u8,
    /// Length in bytes.
    pub len: usize,
}

impl sszip_str {
    /// Returns a view of `bytes`, which must outlive it.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    pub(super) const ABSENT: Self = Self {
        data: std::ptr::null(),
        len: 0,
    };

    /// Borrows the bytes of the string.
    ///
    /// # Safety
    /// `data` points at `len` readable bytes, or is NULL with `len` 0; they do
    /// not change during `'a`.
    pub(super) unsafe fn borrow_bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { borrow_slice(self.data, self.len) }
    }
}

/// Returns the version of the library's interface. The host compares it with
/// `SSZIP_ABI` before any other call.
#[no_mangle]
pub extern "C" fn sszip_abi() -> u32 {
    match is_fault_injected_before_fork(InjectedTestFault::OtherAbi) {
        true => SSZIP_ABI + 1,
        false => SSZIP_ABI,
    }
}

/// Returns the version of the library, for logs. Static.
#[no_mangle]
pub extern "C" fn sszip_version() -> sszip_str {
    sszip_str::from_bytes(env!("CARGO_PKG_VERSION").as_bytes())
}

/// Borrows a host's array.
///
/// # Safety
/// `data` points at `len` initialised `T`s, or is NULL with `len` 0; they do
/// not change during `'a`.
pub(super) unsafe fn borrow_slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        &[]
    } else {
        // SAFETY: not NULL since `len` is not 0; the caller's promise.
        unsafe { slice::from_raw_parts(data, len) }
    }
}
