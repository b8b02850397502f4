//! Tests of the owner's reports about the chains that it follows.

use super::*;
use crate::cache::class::LifetimeClass;

pub(super) const SPACE: [u8; 16] = [0xab; 16];

pub(super) fn send_chain_event(host: &mut LinkTestHost, head: u64, more: &str) {
    let data = format!(
        "{{\"namespace\":\"{}\",\"heights\":\"blocks\",\"epoch\":5000,\"head\":{head},\
         \"seen\":{head},\"final\":60,\"known\":true,\"wrong\":false,\"reorgs\":[],\"since\":5000{more}}}",
        "ab".repeat(16)
    );
    host.event("chain", &data);
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
        .with_stored_time_and_ttl(host.now, 10_000)
        .with_chain_dependency(&host.link().chains)
}

impl LinkTestHost {
    /// Sends an entry as the owner's reply.
    fn send_entry(&mut self, entry: &CacheEntry) {
        let body = bytes_of(entry);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nsszip-fresh: 900\r\nage: 0\r\n\r\n",
            body.len()
        );
        self.receive(1, &[head.as_bytes(), &body].concat());
    }
}

#[test]
fn chain_state_is_set_by_events_of_the_owner() {
    let mut host = LinkTestHost::with_greeted_owner();
    assert!(host.link().chains.get(&SPACE).is_none());
    // members of later versions have no effect
    send_chain_event(&mut host, 100, ",\"weather\":[1]");
    let mark = host
        .link()
        .chains
        .get(&SPACE)
        .unwrap()
        .chain_mark_at_dispatch();
    assert_eq!((mark.head, mark.last_final), (Some(100), Some(60)));
    host.insert_into_hot_tier([1; 32], tip(&host, 5000, 100));
    assert!(host.is_hot([1; 32]));
    send_chain_event(&mut host, 101, "");
    assert!(!host.is_hot([1; 32]));
}

#[test]
fn entry_with_a_newer_head_invalidates_older_tip_entries() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_chain_event(&mut host, 100, "");
    host.insert_into_hot_tier([1; 32], tip(&host, 5000, 100));
    host.look_up_for_waiter(1, true);
    let entry = tip(&host, 5000, 101);
    host.send_entry(&entry);
    assert_eq!(host.woken(), [1]);
    assert!(!host.is_hot([1; 32]) && host.is_hot(KEY));
}

#[test]
fn entry_of_a_newer_epoch_invalidates_older_entries_before_the_event() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_chain_event(&mut host, 100, "");
    host.insert_into_hot_tier([1; 32], tip(&host, 5000, 100));
    host.look_up_for_waiter(1, true);
    let entry = tip(&host, 5001, 100);
    host.send_entry(&entry);
    assert_eq!(host.woken(), [1]);
    assert!(!host.is_hot([1; 32]) && host.is_hot(KEY));
    // the event is older than the entry: another stream has more
    send_chain_event(&mut host, 101, "");
    assert!(!host.is_hot(KEY));
}

#[test]
fn entry_older_than_the_seen_head_is_not_used() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_chain_event(&mut host, 100, "");
    assert!(host
        .link()
        .chains
        .get(&SPACE)
        .unwrap()
        .record_reported_head_height(101));
    host.look_up_for_waiter(1, true);
    let entry = tip(&host, 5000, 100);
    host.send_entry(&entry);
    // the request is sent to the node
    assert_eq!(host.woken(), [1]);
    assert!(host.lead(1).is_some() && !host.is_hot(KEY));
}

#[test]
fn stored_entry_is_sent_with_its_epoch_and_height() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_chain_event(&mut host, 100, "");
    let entry = tip(&host, 5000, 100);
    let about = StoredEntryAttributes::attributes_for_entry(&entry, SPACE, None, 0).unwrap();
    host.link()
        .store_at_owner(KEY, Arc::new(entry), about, None);
    host.run();
    let text: String = host.sent.iter().map(|(_, text)| &text[..]).collect();
    assert!(
        text.contains("\r\nsszip-epoch: 5000\r\nsszip-height: 100\r\n"),
        "{text}"
    );
}

#[test]
fn invalid_chain_event_ends_the_stream() {
    for bad in ["{}", "{\"namespace\":\"ab\"}"] {
        let mut host = LinkTestHost::with_greeted_owner();
        host.event("chain", bad);
        assert!(!host.link().is_owner_reachable(), "{bad}");
    }
}

#[test]
fn chain_is_removed_if_the_next_owner_does_not_follow_it() {
    let mut host = LinkTestHost::with_greeted_owner();
    send_chain_event(&mut host, 100, "");
    host.event("lease", "{\"generation\":0,\"until\":9000}");
    assert!(host.link().chains.get(&SPACE).is_some());
    for follows in [true, false] {
        host.break_connection(0);
        host.pass(RETRY);
        host.receive_hello_event(0, 9000);
        // the new owner may report it
        let mark = host
            .link()
            .chains
            .get(&SPACE)
            .unwrap()
            .chain_mark_at_dispatch();
        assert!(!mark.is_known);
        if follows {
            send_chain_event(&mut host, 100, "");
        }
        host.event("lease", "{\"generation\":0,\"until\":9000}");
        assert_eq!(host.link().chains.get(&SPACE).is_some(), follows);
    }
}
