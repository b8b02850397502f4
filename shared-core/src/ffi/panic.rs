//! The boundary that panics don't cross.

use std::panic::{catch_unwind, AssertUnwindSafe};

use super::types::sszip_status;

/// Runs a function body; a panic becomes `SSZIP_STATUS_PANIC`.
pub(super) fn boundary(body: impl FnOnce() -> sszip_status) -> sszip_status {
    caught(body).unwrap_or(sszip_status::SSZIP_STATUS_PANIC)
}

/// Runs `body`; `None` if it panicked.
///
/// Asserting unwind safety is right because what `body` was working on is
/// either made to give up or documented to be good for `_free` only.
pub(super) fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}

/// `$pointer` as a reference, or a return of `SSZIP_STATUS_NULL`.
macro_rules! borrow {
    ($pointer:expr) => {
        // SAFETY: the header: a pointer to an object is NULL or came from its
        // `_new` and was not freed, and no other thread uses it now.
        match unsafe { $pointer.as_ref() } {
            Some(reference) => reference,
            None => return sszip_status::SSZIP_STATUS_NULL,
        }
    };
}

/// `$pointer` as a mutable reference, or a return of `SSZIP_STATUS_NULL`.
macro_rules! borrow_mut {
    ($pointer:expr) => {
        // SAFETY: as for `borrow!`; results point at memory of their type.
        match unsafe { $pointer.as_mut() } {
            Some(reference) => reference,
            None => return sszip_status::SSZIP_STATUS_NULL,
        }
    };
}

/// Writes a result, or returns `SSZIP_STATUS_NULL`.
macro_rules! give {
    ($out:expr, $value:expr) => {{
        if $out.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        let value = $value;
        // SAFETY: not NULL; the header: results point at memory of their type.
        unsafe { $out.write(value) };
    }};
}

pub(super) use {borrow, borrow_mut, give};
