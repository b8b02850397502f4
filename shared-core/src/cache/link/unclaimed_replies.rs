//! Replies and entries until their waiters claim them.

use crate::hash_keys::HashMap;
use std::sync::Arc;

use super::purge::OwnerAdminReply;
use crate::cache::entry::CacheEntry;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::CacheKey;

/// Entries, and what they are under.
pub(super) type KeyedEntries = Vec<(CacheKey, Arc<CacheEntry>)>;

#[derive(Debug, Default)]
pub(super) struct UnclaimedOwnerReplies {
    admin_replies: HashMap<WaitingRequestId, OwnerAdminReply>,
    /// And purges up to which one were known then.
    found: HashMap<WaitingRequestId, (KeyedEntries, u64)>,
}

impl UnclaimedOwnerReplies {
    /// What came of a purge, say; where memory is refused nothing is known of it.
    pub(super) fn insert_admin_reply(&mut self, waiter: WaitingRequestId, reply: OwnerAdminReply) {
        if self.admin_replies.try_reserve(1).is_ok() {
            self.admin_replies.insert(waiter, reply);
        }
    }

    /// What a look-up of several keys has found when that was the last purge.
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

    /// As long as that is the last purge still. `None`: nothing has come yet.
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
