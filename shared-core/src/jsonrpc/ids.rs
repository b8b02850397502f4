//! Ids of a batch's calls and answers.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::sync::LazyLock;

/// An empty map from ids.
///
/// All have the process's keys. A map's own would be made of a thread-local
/// variable, whose first use in a thread allocates in C, which ends the process
/// if that is refused.
pub(crate) fn by_id<'a, T>() -> HashMap<&'a [u8], T> {
    HashMap::with_hasher(KEYS.clone())
}

static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Makes the keys of [`by_id`].
pub(crate) fn prepare() {
    LazyLock::force(&KEYS);
}

/// How often each occurs. `None` when memory is refused.
pub(crate) fn counted<'a>(ids: impl Iterator<Item = &'a [u8]>) -> Option<HashMap<&'a [u8], usize>> {
    let mut counts = by_id();
    for id in ids {
        counts.try_reserve(1).ok()?;
        *counts.entry(id).or_default() += 1;
    }
    Some(counts)
}
