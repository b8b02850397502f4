//! Ids of the calls and responses of a batch.

use crate::hash_keys::HashMap;

/// Counts how often each id occurs. Returns `None` if memory is refused.
pub(crate) fn count_call_ids<'a>(
    ids: impl Iterator<Item = &'a [u8]>,
) -> Option<HashMap<&'a [u8], usize>> {
    let mut counts = HashMap::default();
    for id in ids {
        counts.try_reserve(1).ok()?;
        *counts.entry(id).or_default() += 1;
    }
    Some(counts)
}
