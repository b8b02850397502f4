//! Ids of the calls and responses of a batch.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Creates an empty map whose keys are ids of calls.
///
/// All maps use the process's hash keys. A map with keys of its own would read a thread-local
/// variable, whose first use in a thread allocates in C, which ends the process if memory is
/// refused.
pub(crate) fn by_id<'a, T>() -> HashMap<&'a [u8], T> {
    HashMap::with_hasher(KEYS.clone())
}

static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Creates the hash keys of [`by_id`].
pub(crate) fn prepare() {
    LazyLock::force(&KEYS);
}

/// Counts how often each id occurs. Returns `None` if memory is refused.
pub(crate) fn counted<'a>(ids: impl Iterator<Item = &'a [u8]>) -> Option<HashMap<&'a [u8], usize>> {
    let mut counts = by_id();
    for id in ids {
        counts.try_reserve(1).ok()?;
        *counts.entry(id).or_default() += 1;
    }
    Some(counts)
}
