//! Tests of the time for which lookups wait for entries of other machines.

use super::*;

const SHAREABLE: OwnerLookupOptions = OwnerLookupOptions {
    leases: true,
    skips_wait: false,
    is_shareable: true,
    call_kind: 7,
};

/// Looks `KEY` up, whose response may be shared between machines.
fn look_up_shareable(host: &mut LinkTestHost) {
    host.look_up_key_with_options(KEY, 1, SHAREABLE);
    host.run();
}

/// Returns the waits of the lookups that the owner has received since the last call.
fn take_waits(host: &mut LinkTestHost) -> Vec<u16> {
    let messages = host.take_messages().into_iter();
    let waits = messages.filter_map(|message| match message {
        ProcessMessage::Lookup { fleet_wait, .. } => Some(fleet_wait),
        _ => None,
    });
    waits.collect()
}

#[test]
fn only_shareable_lookups_wait_for_other_machines() {
    let mut host = LinkTestHost::connected();
    look_up_shareable(&mut host);
    assert_eq!(take_waits(&mut host), [20]);
    host.look_up_keys(2..3);
    assert_eq!(take_waits(&mut host), [0]);
    host.link().set_lookup_timeout(70_000);
    host.look_up_key_with_options([3; 32], 3, SHAREABLE);
    host.run();
    assert_eq!(take_waits(&mut host), [u16::MAX]);
}

#[test]
fn lookup_that_is_sent_late_waits_until_its_deadline() {
    let mut host = LinkTestHost::connected();
    // the socket takes nothing
    host.store_at_owner(1, b"1".to_vec());
    assert_eq!(host.link().next_action(), Some(LinkAction::Write));
    host.link()
        .pass_unwritten_pieces(&host.shared, host.now, |_| 0);
    look_up_shareable(&mut host);
    host.pass(15);
    let bytes = host.written_bytes();
    host.receive_from_link(&bytes);
    assert_eq!(take_waits(&mut host), [5]);
}

#[test]
fn lookup_that_is_repeated_after_a_purge_waits_until_its_deadline() {
    let mut host = LinkTestHost::connected();
    look_up_shareable(&mut host);
    let id = host.take_id();
    host.pass(5);
    host.purge_event(1, PurgeEventScope::Everything);
    host.send(found(id));
    assert_eq!(take_waits(&mut host), [15]);
}

#[test]
fn lookup_after_the_fetch_of_another_process_has_a_new_deadline() {
    for event in [SessionEvent::Filled(KEY), SessionEvent::LeaseReleased(KEY)] {
        let mut host = LinkTestHost::connected();
        look_up_shareable(&mut host);
        let id = host.take_id();
        host.send(missing(id, LeaseReply::Pending));
        host.pass(200);
        host.event(event);
        assert_eq!(take_waits(&mut host), [20]);
    }
}

#[test]
fn batch_lookup_waits_for_other_machines_if_one_of_its_keys_is_shareable() {
    for (shareable, expected) in [(0, (0, 0)), (1, (20, 1)), (2, (20, 2)), (9, (20, 2))] {
        let mut host = LinkTestHost::connected();
        host.look_up_shareable_batch(&[[1; 32], [2; 32]], shareable, 5);
        let messages = host.take_messages();
        let [ProcessMessage::BatchLookup {
            fleet_wait,
            call_kinds,
            ..
        }] = &messages[..]
        else {
            panic!("{messages:?}");
        };
        assert_eq!((*fleet_wait, call_kinds.len()), expected);
    }
}

/// Looks a batch up that waits for other machines, for `max_ms` at most. Returns the number of the
/// lookup and its wait.
fn look_up_waiting_batch(host: &mut LinkTestHost, max_ms: u64) -> (u32, u32) {
    let options = BatchLookupOptions {
        max_lease_wait_ms: max_ms,
        ..shareable_batch(1)
    };
    host.look_up_batch_with_options(&[KEY], options, 5);
    let messages = host.take_messages();
    match &messages[..] {
        [ProcessMessage::BatchLookup { id, lease_wait, .. }] => (*id, *lease_wait),
        _ => panic!("{messages:?}"),
    }
}

#[test]
fn owner_of_a_waiting_batch_replies_before_the_wait_of_its_request_is_over() {
    for (max_ms, expected) in [(0, 0), (30, 0), (500, 460), (u64::MAX, u32::MAX)] {
        let mut host = LinkTestHost::connected();
        assert_eq!(look_up_waiting_batch(&mut host, max_ms).1, expected);
    }
}

#[test]
fn batch_that_waits_for_other_machines_has_a_later_deadline() {
    let mut host = LinkTestHost::connected();
    let (id, _) = look_up_waiting_batch(&mut host, 500);
    host.pass(10);
    host.send(OwnerMessage::BatchWait { id });
    host.pass(459);
    assert!(host.woken().is_empty());
    host.send_together(&batch_replies(id, KEY));
    assert_eq!(host.woken(), [5]);
    assert_eq!(host.link().take_batch_entries(test_waiter(5)).len(), 1);
    // an owner that does not reply
    let (id, _) = look_up_waiting_batch(&mut host, 500);
    host.send(OwnerMessage::BatchWait { id });
    host.pass(479);
    assert!(host.woken().is_empty());
    host.pass(1);
    assert_eq!(host.woken(), [5]);
}

#[test]
fn batch_that_does_not_wait_for_other_machines_keeps_its_deadline() {
    let mut host = LinkTestHost::connected();
    let (id, _) = look_up_waiting_batch(&mut host, 0);
    host.send(OwnerMessage::BatchWait { id });
    host.pass(20);
    assert_eq!(host.woken(), [5]);
    // a wait for another request does nothing
    host.look_up_keys(1..2);
    let id = host.take_id();
    host.send(OwnerMessage::BatchWait { id });
    host.pass(20);
    assert_eq!(host.woken(), [1]);
}
