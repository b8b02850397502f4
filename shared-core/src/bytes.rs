//! Copies of bytes that report a refused allocation.
//!
//! `to_vec`, `concat` and `Arc<[u8]>::from` terminate the process if there is no memory,
//! whatever the length. That is acceptable for a header; bytes as long as a body are copied
//! here.

use std::ops::Deref;
use std::sync::Arc;

/// Minimum ratio of the visible bytes to the hidden bytes of [`SharedBytes`].
const MIN_VISIBLE_RATIO: usize = 64;

/// Immutable bytes in an allocation that clones share; a few bytes at its beginning may be hidden.
#[derive(Clone, Debug)]
pub struct SharedBytes {
    all: Arc<Box<[u8]>>,
    /// Number of hidden bytes before the visible ones.
    start: usize,
}

impl SharedBytes {
    /// Returns a copy without spare capacity. `None` if memory is refused.
    pub fn try_copy_from(bytes: &[u8]) -> Option<Self> {
        try_copy_bytes(bytes).map(Self::from)
    }

    /// Returns `bytes` from `start` on, without a copy if few bytes precede it. `None` if memory
    /// is refused, or `bytes` are shorter than `start`.
    pub fn try_tail_from_offset(bytes: Vec<u8>, start: usize) -> Option<Self> {
        let rest = bytes.get(start..)?;
        if rest.len() / MIN_VISIBLE_RATIO < start {
            return Self::try_copy_from(rest);
        }
        Some(Self {
            start,
            ..Self::from(bytes)
        })
    }

    /// Whether both share one allocation and start.
    pub fn is_same_allocation(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.all, &other.all) && self.start == other.start
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl From<Vec<u8>> for SharedBytes {
    /// Takes over the allocation, without its spare capacity.
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            all: Arc::new(bytes.into_boxed_slice()),
            start: 0,
        }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // the start is never beyond the end
        self.all.get(self.start..).unwrap_or(&[])
    }
}

/// Copies bytes into a new vector. `None` if memory is refused.
pub(crate) fn try_copy_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    try_concat_bytes([bytes])
}

/// Joins `pieces` in a new vector. `None` if memory is refused.
pub(crate) fn try_concat_bytes<const N: usize>(pieces: [&[u8]; N]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    all.try_reserve_exact(pieces.iter().map(|piece| piece.len()).sum())
        .ok()?;
    for piece in pieces {
        all.extend_from_slice(piece);
    }
    Some(all)
}

/// Appends `more` to a vector. `None` if memory is refused; `bytes` are unchanged then.
pub(crate) fn try_extend(bytes: &mut Vec<u8>, more: &[u8]) -> Option<()> {
    bytes.try_reserve(more.len()).ok()?;
    bytes.extend_from_slice(more);
    Some(())
}

/// Appends `one` to a vector. `None` if memory is refused.
pub(crate) fn try_push<T>(all: &mut Vec<T>, one: T) -> Option<()> {
    all.try_reserve(1).ok()?;
    all.push(one);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{SharedBytes, MIN_VISIBLE_RATIO};

    #[test]
    fn rest_of_bytes_is_copied_only_if_little_is_left() {
        let bytes: Vec<u8> = (0..=200).collect();
        for (start, is_copied) in [
            (0, false),
            (200 / MIN_VISIBLE_RATIO, false),
            (4, true),
            (201, true),
        ] {
            let rest = SharedBytes::try_tail_from_offset(bytes.clone(), start).unwrap();
            assert!(rest.is_same_allocation(&rest.clone()));
            assert_eq!(&rest[..], &bytes[start..]);
            assert_eq!(rest, SharedBytes::try_copy_from(&bytes[start..]).unwrap());
            assert_eq!(
                rest.all.len(),
                bytes.len() - if is_copied { start } else { 0 }
            );
        }
        assert!(SharedBytes::try_tail_from_offset(bytes, 202).is_none());
    }
}
