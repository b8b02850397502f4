//! Work on an entry after the response: strict reading, recompression, storing, and sharing with the
//! fleet; or a query to the node whether the entry is final.

use std::sync::Arc;

use sszip_core::cache::freshness::FinalityUpgrade;
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::state::OwnerHit;
use sszip_core::cache::owner::Owner;
use sszip_core::cache::CacheKey;

use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;

/// An entry that a background task reads strictly, recompresses and writes to the store. If it is
/// not written, it is offered again on its next request, or at the end of the owner.
struct PendingEntryWrite {
    entry: Arc<OwnerMemoryEntry>,
    is_to_be_stored: bool,
    is_to_be_shared: bool,
}

impl Drop for PendingEntryWrite {
    fn drop(&mut self) {
        if self.is_to_be_stored {
            self.entry.mark_store_rejected();
        }
    }
}

impl OwnerRequestExecutor {
    /// Returns the form of a found entry that may be sent, if any, and stores the entry in the
    /// background if needed. `room` is the number of bytes that may still be [read at
    /// once](crate::engine::INLINE_CHECK_BYTES).
    pub(crate) fn sendable_entry(
        self: &Arc<Self>,
        key: CacheKey,
        mut found: OwnerHit,
        room: &mut u64,
    ) -> Option<OwnerHit> {
        if let Some(length) = found.kept.length_if_unchecked() {
            if length <= *room {
                *room -= length;
                found.kept = self.owner.check_entry_strictly(&key, &found.kept)?;
            }
        }
        if found.is_to_be_stored || found.kept.length_if_unchecked().is_some() {
            self.check_and_store_entry(key, Arc::clone(&found.kept), found.is_to_be_stored, false);
        }
        Some(found)
    }

    /// Starts a task that reads an entry strictly if it is unchecked, writes it to the store if
    /// `stores`, and offers it to the fleet if `stores` or `shares`.
    pub(crate) fn check_and_store_entry(
        self: &Arc<Self>,
        key: CacheKey,
        entry: Arc<OwnerMemoryEntry>,
        stores: bool,
        shares: bool,
    ) {
        let Ok(place) = Arc::clone(&self.storing).try_acquire_owned() else {
            // it is offered again on its next request
            if stores {
                entry.mark_store_rejected();
            }
            return;
        };
        let waits = PendingEntryWrite {
            entry,
            is_to_be_stored: stores,
            is_to_be_shared: stores || shares,
        };
        let engine = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            engine.run_pending_write(key, waits).await
        });
    }

    /// Reads a pending entry strictly, recompresses it, and writes it to the store. Returns `None`
    /// if it is no valid entry, or was purged or filled again in the meantime.
    async fn run_pending_write(&self, key: CacheKey, mut waits: PendingEntryWrite) -> Option<()> {
        if waits.entry.length_if_unchecked().is_some() {
            let read = move |owner: &Owner| {
                waits.entry = owner.check_entry_strictly(&key, &waits.entry)?;
                Some(waits)
            };
            waits = self.run_blocking_write(read).await.ok()??;
        }
        if waits.is_to_be_stored {
            waits = self.recompress_and_store(key, waits).await?;
        }
        if let (true, Some(fleet)) = (waits.is_to_be_shared, self.fleet.get()) {
            fleet.offer_entry(&key, &waits.entry);
        }
        Some(())
    }

    async fn recompress_and_store(
        &self,
        key: CacheKey,
        mut waits: PendingEntryWrite,
    ) -> Option<PendingEntryWrite> {
        if let Some(coder) = &self.coder {
            if let Some(body) = coder.recompress_entry(&waits.entry).await {
                waits.entry = self
                    .owner
                    .replace_by_recompressed(&key, &waits.entry, body)?;
            }
        }
        let store = move |owner: &Owner| {
            waits.is_to_be_stored = false;
            // a failure is counted, and the store reports its cause once
            drop(owner.write_to_store(&key, &waits.entry, read_clocks()));
            waits
        };
        self.run_blocking_write(store).await.ok()
    }

    /// Starts a task that queries the node for the block of an entry, and prolongs the entry's
    /// lifetime if the block is final.
    pub(crate) fn upgrade_if_final(
        &self,
        key: CacheKey,
        entry: Arc<OwnerMemoryEntry>,
        if_final: FinalityUpgrade,
    ) {
        let chain = self.find_followed_chain(&entry.entry_store_attributes().namespace);
        let Some(node) = chain.and_then(|chain| chain.node_client()) else {
            return;
        };
        // without the query the entry keeps its short lifetime
        let Ok(place) = Arc::clone(&self.node_queries).try_acquire_owned() else {
            return;
        };
        let owner = Arc::clone(&self.owner);
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Some(block)) = node.query_transaction_block(&if_final.transaction).await {
                if block <= if_final.last {
                    owner.make_entry_immutable(&key, &entry, block, if_final.valid, read_clocks());
                }
            }
        });
    }
}
