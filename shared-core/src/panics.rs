//! Panics, and where they end.

use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs `body`; `None` if it panicked.
///
/// Asserting unwind safety is right because what `body` was working on is
/// either made to give up or documented to be good for nothing but being
/// dropped.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}
