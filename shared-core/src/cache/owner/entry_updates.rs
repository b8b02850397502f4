//! Replacement of an entry by another form of it: read strictly, found to be final, or
//! recompressed.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::memory_tier::OwnerMemoryEntry;
use super::state::Owner;
use crate::cache::class::LifetimeClass;
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::strict_check;
use crate::cache::entry::wire::as_immutable_entry;
use crate::cache::CacheKey;
use crate::lock::write_ignoring_poison;

impl Owner {
    /// Reads an [unchecked](OwnerMemoryEntry::length_if_unchecked) entry strictly (see
    /// `cache::entry::strict_check`), which must happen before any client receives it. The owner
    /// does so at the first hit, once for all processes. Returns `None` if the entry is no
    /// response, which removes it from memory, or if the allocation fails. Takes milliseconds per
    /// megabyte.
    pub fn check_entry_strictly(
        &self,
        key: &CacheKey,
        entry: &Arc<OwnerMemoryEntry>,
    ) -> Option<Arc<OwnerMemoryEntry>> {
        let Some(body) = strict_check::strictly_check_entry_bytes(entry.encoded_bytes()) else {
            self.memory.remove_same_entry(key, entry);
            return None;
        };
        let read = Arc::new(entry.with_encoded_bytes(body));
        if self.replace_in_memory(key, entry, &read) {
            return Some(read);
        }
        // another thread has read it already; an entry that was purged or filled again is read too
        Some(self.memory.find_checked_form(key, entry).unwrap_or(read))
    }

    /// Makes an entry final whose block was final when the node was queried: it is fresh for
    /// `fresh` milliseconds more. Returns `None` if it was purged or filled again, if it cannot be
    /// made final, or if the allocation fails.
    pub fn make_entry_immutable(
        &self,
        key: &CacheKey,
        entry: &Arc<OwnerMemoryEntry>,
        block: u64,
        fresh: u64,
        now: ClockReading,
    ) -> Option<Arc<OwnerMemoryEntry>> {
        let about = StoredEntryAttributes {
            class: LifetimeClass::Immutable,
            block: Some(block),
            height: Some(block),
            ..entry.entry_store_attributes().clone()
        };
        let body = as_immutable_entry(entry.encoded_bytes(), block)?;
        let made = self.new_memory_entry(about, body, fresh, now);
        let made = made
            .take_shareability(entry)
            .attach_block_anchor(entry.block_anchor());
        let made = Arc::new(made);
        self.replace_in_memory(key, entry, &made).then_some(made)
    }

    /// Replaces an entry that is to be stored by its
    /// [recompressed](crate::cache::entry::recompress::recompress_entry) body, and returns the
    /// entry to store instead. Returns `None` if it was purged or filled again: nothing is to be
    /// stored.
    pub fn replace_by_recompressed(
        &self,
        key: &CacheKey,
        entry: &Arc<OwnerMemoryEntry>,
        body: Vec<u8>,
    ) -> Option<Arc<OwnerMemoryEntry>> {
        let saved = entry.encoded_bytes().len().saturating_sub(body.len()) as u64;
        let other = Arc::new(entry.with_encoded_bytes(body));
        {
            // exclusive, as in `replace`
            let _effect = write_ignoring_poison(&self.effect);
            if self
                .owner_store
                .is_entry_purged(key, entry.entry_store_attributes())
                || self.memory.has_entry_of_other_fetch(key, entry)
            {
                return None;
            }
            // another thread may have read it; an entry that has left memory is stored as well
            self.memory.replace_entry_if(
                key,
                |there| there.is_form_of_same_response(entry),
                &other,
            );
        }
        if saved > 0 {
            let counters = &self.counters;
            counters.recompressed.fetch_add(1, Ordering::Relaxed);
            counters.saved.fetch_add(saved, Ordering::Relaxed);
        }
        Some(other)
    }

    /// Replaces `entry` in memory by `by`, unless it was purged or replaced. Returns whether it
    /// was.
    fn replace_in_memory(
        &self,
        key: &CacheKey,
        entry: &Arc<OwnerMemoryEntry>,
        by: &Arc<OwnerMemoryEntry>,
    ) -> bool {
        // exclusive: no fill comes in between; purges compare the generation, which does not change
        let _effect = write_ignoring_poison(&self.effect);
        let is_it = |there: &Arc<OwnerMemoryEntry>| Arc::ptr_eq(there, entry);
        !self
            .owner_store
            .is_entry_purged(key, by.entry_store_attributes())
            && self.memory.replace_entry_if(key, is_it, by)
    }
}
