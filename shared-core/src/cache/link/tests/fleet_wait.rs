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
    host.purge_event(1, None);
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
            shareable,
            ..
        }] = &messages[..]
        else {
            panic!("{messages:?}");
        };
        assert_eq!((*fleet_wait, *shareable), expected);
    }
}
