//! Work on an entry after the response: strict reading, recompression and storing; or a query to
//! the node whether the entry is final.

use std::sync::Arc;

use sszip_core::cache::freshness::IfFinal;
use sszip_core::cache::owner::memory::Kept;
use sszip_core::cache::owner::state::Found;
use sszip_core::cache::owner::Owner;
use sszip_core::cache::Key;

use crate::clock::now;
use crate::engine::Engine;

/// An entry on its way to the disk. If it does not get there, it is offered again on its next
/// request, or at the end of the owner.
struct Waits {
    kept: Arc<Kept>,
    is_to_be_stored: bool,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if self.is_to_be_stored {
            self.kept.is_not_stored();
        }
    }
}

impl Engine {
    /// The form of an entry that may be sent, if any. Stores the entry in the background if it
    /// should be. `room` is the rest of the bytes that may be
    /// [read at once](crate::engine::READ_AT_ONCE).
    pub(crate) fn found(
        self: &Arc<Self>,
        key: Key,
        mut found: Found,
        room: &mut u64,
    ) -> Option<Found> {
        if let Some(length) = found.kept.unread() {
            if length <= *room {
                *room -= length;
                found.kept = self.owner.read(&key, &found.kept)?;
            }
        }
        if found.is_to_be_stored || found.kept.unread().is_some() {
            self.read_and_store(key, Arc::clone(&found.kept), found.is_to_be_stored);
        }
        Some(found)
    }

    /// Reads an entry strictly if it is unchecked, and stores it if `stores`, in the background.
    pub(crate) fn read_and_store(self: &Arc<Self>, key: Key, kept: Arc<Kept>, stores: bool) {
        let Ok(place) = Arc::clone(&self.storing).try_acquire_owned() else {
            // it is offered again on its next request
            if stores {
                kept.is_not_stored();
            }
            return;
        };
        let waits = Waits {
            kept,
            is_to_be_stored: stores,
        };
        let engine = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            engine.read_then_store(key, waits).await
        });
    }

    /// Reads and stores an entry. Returns `None` if it is no valid entry, or was purged or filled
    /// again in the meantime.
    async fn read_then_store(&self, key: Key, mut waits: Waits) -> Option<()> {
        if waits.kept.unread().is_some() {
            let read = move |owner: &Owner| {
                waits.kept = owner.read(&key, &waits.kept)?;
                Some(waits)
            };
            waits = self.writing(read).await.ok()??;
        }
        if !waits.is_to_be_stored {
            return Some(());
        }
        if let Some(coder) = &self.coder {
            if let Some(body) = coder.recompress(&waits.kept).await {
                waits.kept = self.owner.recompressed(&key, &waits.kept, body)?;
            }
        }
        let store = move |owner: &Owner| {
            waits.is_to_be_stored = false;
            // a failure is counted, and the store reports its cause once
            drop(owner.store(&key, &waits.kept, now()));
        };
        self.writing(store).await.ok()
    }

    /// Queries the node whether the block of an entry is final.
    pub(crate) fn find_out(&self, key: Key, kept: Arc<Kept>, if_final: IfFinal) {
        let chain = self.chain(&kept.about().namespace);
        let Some(node) = chain.and_then(|chain| chain.node()) else {
            return;
        };
        // without the query the entry keeps its short lifetime
        let Ok(place) = Arc::clone(&self.questions).try_acquire_owned() else {
            return;
        };
        let owner = Arc::clone(&self.owner);
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Some(block)) = node.place_of(&if_final.transaction).await {
                if block <= if_final.last {
                    owner.make_final(&key, &kept, block, if_final.valid, now());
                }
            }
        });
    }
}
