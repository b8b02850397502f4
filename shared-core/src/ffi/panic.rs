//! The panic boundary: no panic crosses the C ABI.

use super::types::sszip_status;
pub(super) use crate::panics::catch_panic;

/// Runs the body of a function of the C ABI; a panic becomes
/// `SSZIP_STATUS_PANIC`.
pub(super) fn catch_panic_status(body: impl FnOnce() -> sszip_status) -> sszip_status {
    catch_panic(body).unwrap_or(sszip_status::SSZIP_STATUS_PANIC)
}

/// Returns `SSZIP_STATUS_NULL` from the function if the pointer to a result is
/// NULL. A function checks them first, so that such a call has no effect.
macro_rules! check_results {
    ($($out:expr),+) => {
        if $($out.is_null())||+ {
            return sszip_status::SSZIP_STATUS_NULL;
        }
    };
}

/// Borrows `$pointer`; returns `SSZIP_STATUS_NULL` from the function if it is
/// NULL.
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

/// Borrows `$pointer` mutably; returns `SSZIP_STATUS_NULL` from the function
/// if it is NULL.
macro_rules! borrow_mut {
    ($pointer:expr) => {
        // SAFETY: as for `borrow!`; results point at memory of their type.
        match unsafe { $pointer.as_mut() } {
            Some(reference) => reference,
            None => return sszip_status::SSZIP_STATUS_NULL,
        }
    };
}

/// Borrows a struct that begins with its size. Returns from the function
/// `SSZIP_STATUS_NULL` if the pointer is NULL, and `SSZIP_STATUS_MISUSE` if
/// the host was compiled with another version of the struct.
macro_rules! borrow_sized {
    ($pointer:expr) => {
        // SAFETY: the header: it is NULL, or valid for the size that it
        // contains.
        match unsafe { super::panic::borrow_struct_of_exact_size($pointer) } {
            Ok(reference) => reference,
            Err(status) => return status,
        }
    };
}

/// Borrows a host's struct that begins with its size, if that is `T`'s.
///
/// # Safety
/// `pointer` is NULL, or points at a struct that begins with its size in bytes
/// and is valid if that is `T`'s.
pub(super) unsafe fn borrow_struct_of_exact_size<'a, T>(
    pointer: *const T,
) -> Result<&'a T, sszip_status> {
    if pointer.is_null() {
        return Err(sszip_status::SSZIP_STATUS_NULL);
    }
    // the struct may be shorter than `T`
    // SAFETY: not NULL; the caller's promise.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size != size_of::<T>() {
        return Err(sszip_status::SSZIP_STATUS_MISUSE);
    }
    // SAFETY: it has the size of `T`; the caller's promise.
    Ok(unsafe { &*pointer })
}

/// Writes a result to `$out`; returns `SSZIP_STATUS_NULL` from the function if
/// `$out` is NULL.
macro_rules! write_result {
    ($out:expr, $value:expr) => {{
        if $out.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        let value = $value;
        // SAFETY: not NULL; the header: results point at memory of their type.
        unsafe { $out.write(value) };
    }};
}

pub(super) use {borrow, borrow_mut, borrow_sized, check_results, write_result};
