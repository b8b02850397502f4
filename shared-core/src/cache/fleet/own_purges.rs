//! The owner's own purges: from their beginning until the owner has read their records.
//!
//! Until its record is read, a purge covers all values in its scope, whatever their positions: no
//! value that was stored before the purge can return to the owner after the local purge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::stream_record::{PublishedPurge, PurgeName, PurgeRecordKind, StreamId};
use crate::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use crate::cache::CacheKey;

/// Maximum number of purges that wait for their publication; one more makes them one purge of
/// everything.
pub const MAX_QUEUED_PURGES: usize = 1_024;

/// Maximum number of published purges that are remembered.
const MAX_RECENT_PURGES: usize = 1_024;

/// Time during which a published purge is repeated if the stream is lost, in milliseconds: after
/// that no owner that has not applied it is waited for.
const REPEAT_PERIOD_MS: u64 = 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PurgeStage {
    /// The local purge is not complete.
    Begun,
    /// The record is to be published.
    Queued,
    /// The server has accepted the record, which is not read yet.
    Published { id: StreamId, at: u64 },
}

/// A purge whose record was read from the stream.
#[derive(Debug)]
struct RecentPurge {
    purge: PublishedPurge,
    id: StreamId,
    read_at: u64,
    /// Whether all owners have applied it.
    is_confirmed: bool,
}

/// The owner's own purges.
#[derive(Debug, Default)]
pub struct OwnPurges {
    pending: BTreeMap<PurgeName, (PublishedPurge, PurgeStage)>,
    recent: VecDeque<RecentPurge>,
}

impl OwnPurges {
    /// Records that a local purge begins. Values in its scope are not used from now on.
    pub fn begin(&mut self, purge: PublishedPurge) {
        self.pending.insert(purge.name, (purge, PurgeStage::Begun));
    }

    /// Removes a purge that has failed locally.
    pub fn cancel(&mut self, name: &PurgeName) {
        if matches!(self.pending.get(name), Some((_, PurgeStage::Begun))) {
            self.pending.remove(name);
        }
    }

    /// Queues a purge whose local part is complete.
    pub fn queue(&mut self, name: &PurgeName) {
        if let Some((_, stage @ PurgeStage::Begun)) = self.pending.get_mut(name) {
            *stage = PurgeStage::Queued;
        }
        self.merge_if_full();
    }

    /// Queues purges that were not published before the owner's restart.
    pub fn restore(&mut self, purges: Vec<PublishedPurge>) {
        for purge in purges {
            let name = purge.name;
            self.pending.insert(name, (purge, PurgeStage::Queued));
        }
        self.merge_if_full();
    }

    /// Merges the queued purges into one purge of everything if there are too many.
    fn merge_if_full(&mut self) {
        let queued: Vec<_> = self.queued().map(|purge| purge.name).collect();
        if queued.len() <= MAX_QUEUED_PURGES {
            return;
        }
        for name in &queued[1..] {
            self.pending.remove(name);
        }
        if let Some((purge, _)) = self.pending.get_mut(&queued[0]) {
            purge.kind = PurgeRecordKind::Purge;
            purge.scope = PurgeScope::Everything;
        }
    }

    fn queued(&self) -> impl Iterator<Item = &PublishedPurge> {
        let queued = self.pending.values();
        queued.filter_map(|(purge, stage)| (*stage == PurgeStage::Queued).then_some(purge))
    }

    /// Returns a purge that is to be published.
    pub fn next_queued(&self) -> Option<&PublishedPurge> {
        self.queued().next()
    }

    /// Returns the purges that are to be published, for the outbox.
    pub fn outbox(&self) -> Vec<PublishedPurge> {
        self.queued().cloned().collect()
    }

    /// Whether a fence is to be published, or is published and not read yet.
    pub fn has_pending_fence(&self) -> bool {
        let mut pending = self.pending.values();
        pending.any(|(purge, stage)| {
            purge.scope == PurgeScope::Everything && *stage != PurgeStage::Begun
        })
    }

    /// Records that the server has accepted the record of a purge.
    pub fn mark_published(&mut self, name: &PurgeName, id: StreamId, now: u64) {
        if let Some((_, stage @ PurgeStage::Queued)) = self.pending.get_mut(name) {
            *stage = PurgeStage::Published { id, at: now };
        }
    }

    /// Records that a record was read. Returns whether it is of this owner, so that the local purge
    /// is in effect.
    pub fn observe_record(&mut self, name: &PurgeName, id: StreamId, now: u64) -> bool {
        if matches!(self.pending.get(name), Some((_, PurgeStage::Begun)) | None) {
            return self.recent.iter().any(|recent| recent.purge.name == *name);
        }
        let Some((purge, _)) = self.pending.remove(name) else {
            return false;
        };
        if self.recent.len() >= MAX_RECENT_PURGES {
            self.recent.pop_front();
        }
        self.recent.push_back(RecentPurge {
            purge,
            id,
            read_at: now,
            is_confirmed: false,
        });
        true
    }

    /// Returns the id of a purge's record, if the server has accepted it.
    pub fn published_id(&self, name: &PurgeName) -> Option<StreamId> {
        if let Some((_, PurgeStage::Published { id, .. })) = self.pending.get(name) {
            return Some(*id);
        }
        let mut recent = self.recent.iter();
        let found = recent.find(|recent| recent.purge.name == *name)?;
        Some(found.id)
    }

    /// Records that all owners have applied a purge: it is not repeated if the stream is lost.
    pub fn confirm(&mut self, name: &PurgeName) {
        let mut recent = self.recent.iter_mut();
        if let Some(found) = recent.find(|recent| recent.purge.name == *name) {
            found.is_confirmed = true;
        }
    }

    /// Queues published purges that a new stream does not have, after the loss of the former one.
    pub fn requeue_missing(&mut self, present: &BTreeSet<PurgeName>, now: u64) {
        self.requeue_unread(u64::MAX, present);
        let is_lost = |recent: &RecentPurge| {
            let is_due = now.saturating_sub(recent.read_at) < REPEAT_PERIOD_MS;
            is_due && !recent.is_confirmed && !present.contains(&recent.purge.name)
        };
        let recent = std::mem::take(&mut self.recent).into_iter();
        let (lost, kept): (Vec<_>, Vec<_>) = recent.partition(is_lost);
        self.recent = kept.into();
        self.restore(lost.into_iter().map(|recent| recent.purge).collect());
    }

    /// Queues purges that the server accepted before `before`, and that a later reply does not have.
    pub fn requeue_unread(&mut self, before: u64, present: &BTreeSet<PurgeName>) {
        for (name, (_, stage)) in &mut self.pending {
            match stage {
                PurgeStage::Published { at, .. } if *at < before && !present.contains(name) => {
                    *stage = PurgeStage::Queued;
                }
                _ => {}
            }
        }
        self.merge_if_full();
    }

    /// Whether a purge whose record was not read yet covers a value.
    pub fn covers(&self, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        let mut pending = self.pending.values();
        pending.any(|(purge, _)| purge.scope.covers_entry(key, about))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CacheKey = [1; 32];

    fn purge(name: u8) -> PublishedPurge {
        PublishedPurge {
            kind: PurgeRecordKind::Purge,
            name: [name; 16],
            scope: PurgeScope::Key(KEY),
        }
    }

    fn is_covered(purges: &OwnPurges) -> bool {
        purges.covers(&KEY, &StoredEntryAttributes::default())
    }

    #[test]
    fn purge_covers_values_from_its_beginning_until_its_record_is_read() {
        let mut purges = OwnPurges::default();
        let (name, id) = ([1; 16], StreamId::from_position(9));
        purges.begin(purge(1));
        assert!(is_covered(&purges) && purges.next_queued().is_none());
        purges.queue(&name);
        assert_eq!(purges.next_queued(), Some(&purge(1)));
        purges.mark_published(&name, id, 0);
        assert!(is_covered(&purges) && purges.next_queued().is_none());
        assert_eq!(purges.published_id(&name), Some(id));
        assert!(purges.observe_record(&name, id, 0));
        assert!(!is_covered(&purges));
        assert_eq!(purges.published_id(&name), Some(id));
        // published twice
        assert!(purges.observe_record(&name, StreamId::from_position(10), 0));
        assert!(!purges.observe_record(&[2; 16], id, 0));
    }

    #[test]
    fn purge_that_failed_locally_is_forgotten() {
        let mut purges = OwnPurges::default();
        purges.begin(purge(1));
        purges.cancel(&[1; 16]);
        assert!(!is_covered(&purges));
        purges.begin(purge(1));
        purges.queue(&[1; 16]);
        purges.cancel(&[1; 16]);
        assert!(is_covered(&purges), "it is in effect locally");
    }

    #[test]
    fn unconfirmed_purges_are_repeated_after_the_loss_of_the_stream() {
        let mut purges = OwnPurges::default();
        for name in 1..=4 {
            purges.begin(purge(name));
            purges.queue(&[name; 16]);
            purges.mark_published(&[name; 16], StreamId::from_position(name.into()), 0);
            if name < 4 {
                purges.observe_record(&[name; 16], StreamId::from_position(name.into()), 0);
            }
        }
        purges.confirm(&[1; 16]);
        purges.requeue_missing(&BTreeSet::from([[2; 16]]), REPEAT_PERIOD_MS - 1);
        assert_eq!(purges.outbox(), [purge(3), purge(4)]);
        purges.requeue_missing(&BTreeSet::new(), REPEAT_PERIOD_MS);
        assert_eq!(purges.outbox().len(), 2, "the second one is too old");
    }

    #[test]
    fn accepted_record_that_is_not_read_is_queued_again() {
        let mut purges = OwnPurges::default();
        purges.restore(vec![purge(1)]);
        purges.mark_published(&[1; 16], StreamId::from_position(5), 10);
        purges.requeue_unread(10, &BTreeSet::new());
        assert!(purges.outbox().is_empty(), "the poll was sent before");
        purges.requeue_unread(11, &BTreeSet::new());
        assert_eq!(purges.outbox(), [purge(1)]);
    }

    #[test]
    fn queue_is_bounded_by_a_purge_of_everything() {
        let mut purges = OwnPurges::default();
        let restored = (0..=MAX_QUEUED_PURGES as u128).map(|name| PublishedPurge {
            name: name.to_be_bytes(),
            ..purge(0)
        });
        purges.restore(restored.collect());
        let outbox = purges.outbox();
        assert_eq!(outbox.len(), 1);
        assert_eq!(outbox[0].scope, PurgeScope::Everything);
    }
}
