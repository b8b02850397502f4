//! Tests of the owner's reports about the chains that it follows.

use super::*;
use crate::cache::class::LifetimeClass;
use crate::cache::freshness::BlockAnchor;

pub(super) const SPACE: [u8; 16] = [0xab; 16];

fn chain_event(head: u64) -> SessionEvent {
    let state = serde_json::json!({
        "heights": "blocks", "epoch": 5000, "head": head, "seen": head, "final": 60,
        "known": true, "wrong": false, "reorgs": [], "since": 5000, "weather": [1],
    });
    SessionEvent::Chain {
        namespace: SPACE,
        state: Box::new(serde_json::from_value(state).unwrap()),
    }
}

pub(super) fn send_chain_event(host: &mut LinkTestHost, head: u64) {
    host.event(chain_event(head));
}

/// Returns an entry about the head that was fetched in that epoch.
pub(super) fn tip(host: &LinkTestHost, epoch: u64, height: u64) -> CacheEntry {
    let meta = EntryMetadata {
        class: LifetimeClass::Tip,
        follows: Some((SPACE, epoch)),
        height: Some(height),
        ..EntryMetadata::default()
    };
    let payload = EntryPayload::Raw(b"1".to_vec().into());
    let entry = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, meta);
    entry
        .with_lifetime(host.now, 10_000)
        .with_chain_dependency(&host.link().chains)
}

impl LinkTestHost {
    /// Looks `KEY` up for a waiter, and sends an entry as the owner's reply.
    fn look_up_and_send_entry(&mut self, waiter: usize, entry: &CacheEntry) {
        self.look_up_for_waiter(waiter, true);
        let id = self.take_id();
        self.send(found_under(id, 0, entry));
        assert_eq!(self.woken(), [waiter]);
    }
}

#[test]
fn chain_state_is_set_by_events_of_the_owner() {
    let mut host = LinkTestHost::connected();
    assert!(host.link().chains.get(&SPACE).is_none());
    send_chain_event(&mut host, 100);
    let chain = host.link().chains.get(&SPACE).unwrap();
    let mark = chain.chain_mark_at_dispatch();
    assert_eq!((mark.head, mark.last_final), (Some(100), Some(60)));
    host.insert_into_hot_tier([1; 32], tip(&host, 5000, 100));
    assert!(host.is_hot([1; 32]));
    send_chain_event(&mut host, 101);
    assert!(!host.is_hot([1; 32]));
}

#[test]
fn entry_with_a_newer_head_invalidates_older_tip_entries() {
    let mut host = LinkTestHost::connected();
    send_chain_event(&mut host, 100);
    host.insert_into_hot_tier([1; 32], tip(&host, 5000, 100));
    let entry = tip(&host, 5000, 101);
    host.look_up_and_send_entry(1, &entry);
    assert!(!host.is_hot([1; 32]) && host.is_hot(KEY));
}

#[test]
fn entry_of_a_newer_epoch_invalidates_older_entries_before_the_event() {
    let mut host = LinkTestHost::connected();
    send_chain_event(&mut host, 100);
    host.insert_into_hot_tier([1; 32], tip(&host, 5000, 100));
    let entry = tip(&host, 5001, 100);
    host.look_up_and_send_entry(1, &entry);
    assert!(!host.is_hot([1; 32]) && host.is_hot(KEY));
    // the event is older than the entry
    send_chain_event(&mut host, 101);
    assert!(!host.is_hot(KEY));
}

#[test]
fn entry_older_than_the_seen_head_is_not_used() {
    let mut host = LinkTestHost::connected();
    send_chain_event(&mut host, 100);
    let chain = host.link().chains.get(&SPACE).unwrap();
    assert!(chain.record_reported_head_height(101));
    let entry = tip(&host, 5000, 100);
    host.look_up_and_send_entry(1, &entry);
    // the request is sent to the node
    assert!(host.lead(1).is_some() && !host.is_hot(KEY));
}

#[test]
fn stored_entry_is_sent_with_its_epoch_height_and_options() {
    let mut host = LinkTestHost::connected();
    send_chain_event(&mut host, 100);
    let entry = tip(&host, 5000, 100);
    let about = StoredEntryAttributes::attributes_for_entry(&entry, SPACE, None, 0).unwrap();
    host.now += 70;
    let options = OwnerStoreOptions {
        is_shareable: true,
        anchor: Some(BlockAnchor::ByRequest([7; 32])),
        ..OwnerStoreOptions::default()
    };
    host.link()
        .store_at_owner(KEY, Arc::new(entry), about, options, host.now);
    host.run();
    let messages = host.take_messages();
    let Some(ProcessMessage::Store(store)) = messages.last() else {
        panic!("{messages:?}");
    };
    assert_eq!((store.about.epoch, store.about.height), (5000, Some(100)));
    assert_eq!((store.fresh, store.age), (9_930, 70));
    assert_eq!((store.is_shareable, store.anchor), (true, options.anchor));
}

#[test]
fn chain_is_removed_if_the_next_owner_does_not_follow_it() {
    let mut host = LinkTestHost::connected();
    send_chain_event(&mut host, 100);
    host.send_lease(9000);
    assert!(host.link().chains.get(&SPACE).is_some());
    for follows in [true, false] {
        host.reconnect();
        host.run();
        host.last_event = 0;
        host.send(welcome(2, 0));
        // the new owner may report it
        let chain = host.link().chains.get(&SPACE).unwrap();
        assert!(!chain.chain_mark_at_dispatch().is_known);
        if follows {
            send_chain_event(&mut host, 100);
        }
        host.send_lease(9000);
        assert_eq!(host.link().chains.get(&SPACE).is_some(), follows);
    }
}
