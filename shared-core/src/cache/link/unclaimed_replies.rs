//! Replies and entries until their waiters claim them.

use crate::hash_keys::HashMap;
use std::sync::Arc;

use super::purge::OwnerAdminReply;
use crate::cache::entry::CacheEntry;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::CacheKey;

/// Entries with their keys.
pub(super) type KeyedEntries = Vec<(CacheKey, Arc<CacheEntry>)>;

/// Replies and entries whose waiters were woken and have not claimed them.
#[derive(Debug, Default)]
pub(super) struct UnclaimedOwnerReplies {
    admin_replies: HashMap<WaitingRequestId, OwnerAdminReply>,
    /// Entries of batch lookups, with the purge generation when they were found.
    found: HashMap<WaitingRequestId, (KeyedEntries, u64)>,
}

impl UnclaimedOwnerReplies {
    /// Records the reply to a purge or a status query. Without memory it is dropped.
    pub(super) fn insert_admin_reply(&mut self, waiter: WaitingRequestId, reply: OwnerAdminReply) {
        if self.admin_replies.try_reserve(1).is_ok() {
            self.admin_replies.insert(waiter, reply);
        }
    }

    /// Records the entries that a batch lookup has found under a purge generation.
    pub(super) fn insert_found_entries(
        &mut self,
        waiter: WaitingRequestId,
        entries: KeyedEntries,
        generation: u64,
    ) {
        if self.found.try_reserve(1).is_ok() {
            self.found.insert(waiter, (entries, generation));
        }
    }

    pub(super) fn take_admin_reply(&mut self, waiter: WaitingRequestId) -> Option<OwnerAdminReply> {
        self.admin_replies.remove(&waiter)
    }

    /// Takes the entries of a batch lookup, none if they were purged since. Returns `None` if the
    /// lookup is not complete.
    pub(super) fn take_found_entries(
        &mut self,
        waiter: WaitingRequestId,
        generation: u64,
    ) -> Option<KeyedEntries> {
        let (entries, known) = self.found.remove(&waiter)?;
        let is_current = known == generation;
        Some(if is_current { entries } else { Vec::new() })
    }
}
