//! The boundary at which panics are caught.

use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs `body`; `None` if it panicked.
///
/// Unwind safety is asserted because callers either send the original of the exchange that
/// `body` was changing, or only drop it.
pub(crate) fn catch_panic<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}
