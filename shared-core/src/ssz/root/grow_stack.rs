//! Growth of the vectors that are used as stacks.

use crate::ssz::error::{SszError, SszErrorKind};

/// Extends a stack to the length `len` with copies of `with`; memory that is refused is an error,
/// no panic.
pub(super) fn try_grow_vec<T: Clone>(
    stack: &mut Vec<T>,
    len: usize,
    with: T,
) -> Result<(), SszError> {
    let more = len.saturating_sub(stack.len());
    match stack.try_reserve(more) {
        Ok(()) => {
            stack.resize(stack.len() + more, with);
            Ok(())
        }
        Err(_) => Err(SszError::new(
            0,
            SszErrorKind::NoMemory(more * size_of::<T>()),
        )),
    }
}
