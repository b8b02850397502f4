//! The purges and the changes of the chain so far, by which entries that clients receive are
//! checked.

use sszip_core::cache::entry::wire::EncodedEntry;
use sszip_core::cache::entry::CacheEntry;
use sszip_core::time_constants::memory_lease;

use crate::keys::{entry_kind, EntryKind};

/// A step, its time, and the head of the chain at that time.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub step: u64,
    pub ms: u64,
    pub head: u64,
}

/// A change of the chain that invalidates the entries that were fetched before it.
#[derive(Clone, Copy, Debug)]
pub enum ChainEvent {
    /// The blocks from this number were replaced.
    Reorg(u64),
    Head(u64),
}

/// A purge of one key, or of all.
#[derive(Clone, Copy, Debug)]
pub struct RequestedPurge {
    pub key_number: Option<u8>,
    pub generation: u64,
    /// Step at which the owner has received it.
    pub began: u64,
}

/// The way by which a client receives an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EntrySource {
    HotTier,
    /// A lookup or fetch of another client.
    Flight,
    /// A lookup at the owner that began with the client.
    OwnLookup,
}

/// An entry that a client receives, whose lookup began at `began`.
pub struct ReceivedEntry<'a> {
    pub sandbox: usize,
    pub key_number: u8,
    pub began: Moment,
    pub entry: &'a CacheEntry,
    pub source: EntrySource,
}

/// Numbers of what the clients have received, without which the test would find no fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage {
    pub from_memory: usize,
    pub from_flights: usize,
    pub from_own_lookups: usize,
    /// Entries that another sandbox has fetched.
    pub from_other_sandboxes: usize,
    /// Entries that were sent after the purge of another key, or of older entries.
    pub after_purges: usize,
    pub purges_by_operator: usize,
    pub purges_by_clients: usize,
    pub long_entries: usize,
}

/// The purges and the changes of the chain so far.
#[derive(Default)]
pub struct EventHistory {
    chain_events: Vec<(Moment, ChainEvent)>,
    pub pending_purges: Vec<RequestedPurge>,
    complete_purges: Vec<RequestedPurge>,
    pub coverage: Coverage,
}

/// Returns the text of the entry that a sandbox fetches at this moment.
pub fn entry_text(sandbox: usize, key_number: u8, now: Moment) -> String {
    let mut text = format!("{sandbox} {key_number} {} {} ", now.step, now.head);
    if now.step.is_multiple_of(8) {
        text += &"x".repeat(300_000);
    }
    text
}

impl EventHistory {
    pub fn record_chain_event(&mut self, now: Moment, event: ChainEvent) {
        self.chain_events.push((now, event));
    }

    /// Records a purge that a client has requested, and that is complete.
    pub fn record_purge_by_client(&mut self, purge: RequestedPurge) {
        self.coverage.purges_by_clients += 1;
        self.complete_purges.push(purge);
    }

    /// Completes pending purges, by their generations.
    pub fn complete_purges(&mut self, is_complete: impl Fn(u64) -> bool) {
        let before = self.complete_purges.len();
        let pending = &mut self.pending_purges;
        let complete = pending.extract_if(.., |purge| is_complete(purge.generation));
        self.complete_purges.extend(complete);
        self.coverage.purges_by_operator += self.complete_purges.len() - before;
    }

    /// Asserts that a client may receive this entry at this step.
    pub fn check_received_entry(&mut self, received: &ReceivedEntry<'_>, step: u64) {
        let ReceivedEntry {
            sandbox,
            key_number,
            began,
            entry,
            source,
        } = *received;
        let bytes = EncodedEntry::from_entry(entry).unwrap().payload.to_vec();
        let text = String::from_utf8(bytes).unwrap();
        let mut words = text.split(' ').map_while(|word| word.parse::<u64>().ok());
        let mut word = || words.next().unwrap();
        let (by, key, fetched, head) = (word(), word(), word(), word());
        assert_eq!(key, u64::from(key_number));
        let coverage = &mut self.coverage;
        match source {
            EntrySource::HotTier => coverage.from_memory += 1,
            EntrySource::Flight => coverage.from_flights += 1,
            EntrySource::OwnLookup => coverage.from_own_lookups += 1,
        }
        coverage.from_other_sandboxes += usize::from(by != sandbox as u64);
        coverage.after_purges += usize::from(!self.complete_purges.is_empty());
        coverage.long_entries += usize::from(text.len() > 300_000);
        let about = format!(
            "the entry {key}, fetched at {fetched} by {by}, was sent by {sandbox} at {step}"
        );
        for purge in &self.complete_purges {
            let covers_key = purge.key_number.is_none_or(|purged| purged == key_number);
            let is_covered = covers_key && fetched < purge.began;
            assert!(!is_covered, "{about} after {purge:?}");
        }
        for (at, event) in &self.chain_events {
            let is_over = match (event, entry_kind(key_number)) {
                (ChainEvent::Reorg(_), EntryKind::Tip) => true,
                (ChainEvent::Reorg(from), EntryKind::Block(height)) => *from <= height,
                (ChainEvent::Head(new), EntryKind::Tip) => *new > head,
                _ => false,
            };
            let was_known = match source {
                EntrySource::OwnLookup => at.step < began.step,
                // send leases of before the event had ended
                EntrySource::HotTier | EntrySource::Flight => at.ms + memory_lease() <= began.ms,
            };
            assert!(
                !(is_over && at.step > fetched && was_known),
                "{about} to a client of {began:?} by {source:?} after {event:?} at {at:?}"
            );
        }
    }
}
