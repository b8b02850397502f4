//! Copies of bytes that memory may be refused for.
//!
//! `to_vec`, `concat` and `Arc<[u8]>::from` end the process when there is no
//! memory, whatever the length. That will do for a header field; what is as
//! long as a body is copied here.

use std::ops::Deref;
use std::sync::Arc;

/// Bytes that several hold. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(Arc<Box<[u8]>>);

impl Bytes {
    /// A copy, exactly as long. `None` when memory is refused.
    pub fn copy_of(bytes: &[u8]) -> Option<Self> {
        copy_of(bytes).map(Self::from)
    }

    /// Whether both are the same piece of memory.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<Vec<u8>> for Bytes {
    /// Keeps what was allocated, up to the length.
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes.into_boxed_slice()))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A copy. `None` when memory is refused.
pub(crate) fn copy_of(bytes: &[u8]) -> Option<Vec<u8>> {
    concat([bytes])
}

/// All of `pieces` in a row. `None` when memory is refused.
pub(crate) fn concat<const N: usize>(pieces: [&[u8]; N]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    all.try_reserve_exact(pieces.iter().map(|piece| piece.len()).sum())
        .ok()?;
    for piece in pieces {
        all.extend_from_slice(piece);
    }
    Some(all)
}

/// Appends `more`. `None` when memory is refused; nothing has changed then.
pub(crate) fn extend(bytes: &mut Vec<u8>, more: &[u8]) -> Option<()> {
    bytes.try_reserve(more.len()).ok()?;
    bytes.extend_from_slice(more);
    Some(())
}

/// Appends one thing. `None` when memory is refused.
pub(crate) fn push<T>(all: &mut Vec<T>, one: T) -> Option<()> {
    all.try_reserve(1).ok()?;
    all.push(one);
    Some(())
}
