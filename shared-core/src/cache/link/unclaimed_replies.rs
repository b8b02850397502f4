//! Replies of the owner that their waiters have not claimed yet.

use crate::hash_keys::HashMap;
use std::sync::Arc;

use super::purge::OwnerAdminReply;
use crate::cache::entry::CacheEntry;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::CacheKey;

/// Entries with their keys.
pub(super) type KeyedEntries = Vec<(CacheKey, Arc<CacheEntry>)>;

/// Replies of the owner, by the waiters that have not claimed them yet.
#[derive(Debug, Default)]
pub(super) struct UnclaimedOwnerReplies {
    admin_replies: HashMap<WaitingRequestId, OwnerAdminReply>,
    /// Entries of batches, with the purge generation when they were received.
    found: HashMap<WaitingRequestId, (KeyedEntries, u64)>,
}

impl UnclaimedOwnerReplies {
    /// Inserts the reply to a purge or a status request; drops it if memory is refused.
    pub(super) fn insert_admin_reply(&mut self, waiter: WaitingRequestId, reply: OwnerAdminReply) {
        if self.admin_replies.try_reserve(1).is_ok() {
            self.admin_replies.insert(waiter, reply);
        }
    }

    /// Inserts the entries that were found for a batch under this purge generation; drops them if
    /// memory is refused.
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

    /// Takes the reply to a purge or a status request, if it was received.
    pub(super) fn take_admin_reply(&mut self, waiter: WaitingRequestId) -> Option<OwnerAdminReply> {
        self.admin_replies.remove(&waiter)
    }

    /// Takes the entries that were found for a batch; none of them if `generation` is another one
    /// than when they were received. Returns `None` if the reply was not received yet.
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
