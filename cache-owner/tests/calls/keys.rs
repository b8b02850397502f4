//! The keys of the test, and the kinds of responses under them.

use sszip_core::cache::{CacheKey, CacheNamespace};

pub const NAMESPACE: CacheNamespace = [0xab; 16];

/// Number of the keys.
pub const KEYS: u8 = 4;

/// The kind of response under a key, which determines when it becomes invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EntryKind {
    /// The configuration of the node.
    Config,
    /// The head.
    Tip,
    /// A block by its number.
    Block(u64),
}

pub fn entry_kind(key_number: u8) -> EntryKind {
    match key_number {
        0 => EntryKind::Config,
        1 => EntryKind::Tip,
        // the first of these blocks is final from the start
        2 => EntryKind::Block(3),
        _ => EntryKind::Block(12),
    }
}

/// Returns a key that looks like a hash, on which the owner relies.
pub fn cache_key(key_number: u8) -> CacheKey {
    let mut state = u64::from(key_number) + 1;
    [(); 32].map(|()| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    })
}
