//! Tests of lookups of several keys.

use super::*;

#[test]
fn batch_lookup_returns_the_found_entries() {
    let mut host = LinkTestHost::connected();
    host.look_up_batch(&[[1; 32], [2; 32]], 5);
    let [ProcessMessage::BatchLookup { id, keys, .. }] = &host.take_messages()[..] else {
        panic!("one lookup is expected");
    };
    assert_eq!(keys[..], [[1; 32], [2; 32]]);
    host.send_together(&batch_replies(*id, [2; 32]));
    assert_eq!(host.woken(), [5]);
    let hot = host.shared.hot_tier().unwrap();
    assert!(hot.get(&[2; 32], host.now).is_some() && hot.entry_count() == 1);
    let claimed = host.link().take_batch_entries(test_waiter(5));
    assert!(claimed.len() == 1 && claimed[0].0 == [2; 32]);
    assert_eq!(
        claimed[0].1.response_metadata().requested_at,
        host.now - 200
    );
    assert!(host.link().take_batch_entries(test_waiter(5)).is_empty());
    // a waiter that has left is not woken
    host.look_up_batch(&[[3; 32]], 6);
    let id = host.take_id();
    assert!(host.link().take_batch_entries(test_waiter(6)).is_empty());
    host.send_together(&batch_replies(id, [3; 32]));
    assert!(host.woken().is_empty());
}

#[test]
fn invalid_entry_of_a_batch_reply_is_left_out() {
    let mut host = LinkTestHost::connected();
    host.look_up_batch(&[[1; 32], [2; 32], [3; 32]], 5);
    let id = host.take_id();
    let batch_found = |key, entry| OwnerMessage::BatchFound {
        id,
        generation: 0,
        key,
        entry,
    };
    let cut = FoundEntry {
        total: 3,
        bytes: MessageBody::from(bytes_of(&entry())[..3].to_vec()),
        ..found_entry(&entry())
    };
    let too_long = FoundEntry {
        total: 1 << 40,
        ..found_entry(&entry())
    };
    let [found, end] = batch_replies(id, [2; 32]);
    let (first, last) = (batch_found([1; 32], cut), batch_found([3; 32], too_long));
    host.send_together(&[first, found, last, end]);
    assert_eq!(host.woken(), [5]);
    let claimed = host.link().take_batch_entries(test_waiter(5));
    let keys: Vec<CacheKey> = claimed.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [[2; 32]]);
    assert_eq!(host.shared.hot_tier().unwrap().entry_count(), 1);
    assert!(host.is_open);
}

#[test]
fn batch_lookup_has_a_maximum_number_of_keys() {
    let mut host = LinkTestHost::connected();
    let waiter = test_waiter(6);
    let now = host.now;
    let is_sent = |host: &LinkTestHost, keys: Vec<CacheKey>| {
        let options = shareable_batch(keys.len());
        host.link()
            .lookup_batch_at_owner(keys, options, waiter, now)
    };
    assert!(!is_sent(&host, Vec::new()));
    assert!(is_sent(&host, vec![[1; 32]; 1_001]));
    host.run();
    let messages = host.take_messages();
    assert!(!messages.is_empty());
    for message in &messages {
        let ProcessMessage::BatchLookup {
            keys, call_kinds, ..
        } = message
        else {
            panic!("{message:?}");
        };
        assert_eq!((keys.len(), call_kinds.len()), (1_000, 1_000));
    }
}

#[test]
fn batch_lookup_result_is_dropped_after_a_purge() {
    for position in 0..3 {
        let mut host = LinkTestHost::connected();
        host.look_up_batch(&[[2; 32]], 5);
        let id = host.take_id();
        for (n, reply) in batch_replies(id, [2; 32]).into_iter().enumerate() {
            if n == position {
                host.purge_event(1, PurgeEventScope::Everything);
            }
            host.send(reply);
        }
        if position == 2 {
            host.purge_event(1, PurgeEventScope::Everything);
        }
        assert_eq!(host.woken(), [5]);
        assert!(!host.is_hot([2; 32]));
        assert!(host.link().take_batch_entries(test_waiter(5)).is_empty());
    }
}
