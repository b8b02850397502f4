//! Tests of what shares a frame, and of entries that are longer than a message.

use super::*;
use crate::cache::owner_protocol::frame::{MAX_BODY_BYTES, SOFT_FRAME_BYTES};

fn stored_keys(messages: &[ProcessMessage]) -> Vec<u8> {
    let keys = messages.iter().filter_map(|message| match message {
        ProcessMessage::Store(store) => Some(store.key[0]),
        _ => None,
    });
    keys.collect()
}

#[test]
fn requests_at_the_same_time_are_one_frame_and_lookups_precede_entries() {
    let mut host = LinkTestHost::connected();
    host.store_at_owner(20, b"1".to_vec());
    host.link().release_lease([30; 32]);
    host.look_up_keys(1..4);
    assert_eq!(host.frames.len(), 1);
    let messages = host.take_messages();
    assert_eq!(messages[0], ProcessMessage::Release([30; 32]));
    let is_lookup = |message: &ProcessMessage| matches!(message, ProcessMessage::Lookup { .. });
    assert!(messages[1..4].iter().all(is_lookup), "{messages:?}");
    assert_eq!(stored_keys(&messages[4..]), [20]);
}

#[test]
fn replies_are_assigned_by_number_in_any_order() {
    let mut host = LinkTestHost::connected();
    host.look_up_keys(1..4);
    let ids: Vec<u32> = host.take_lookups().iter().map(|lookup| lookup.0).collect();
    let granted = |id| missing(id, LeaseReply::Granted);
    host.send_together(&[granted(ids[2]), found(ids[1]), granted(ids[0])]);
    assert_eq!(host.woken(), [3, 2, 1]);
    assert!(host.lead(1).is_some() && host.answer(2).is_some() && host.lead(3).is_some());
}

#[test]
fn lookups_of_one_frame_time_out_separately() {
    let mut host = LinkTestHost::connected();
    host.look_up_keys(2..3);
    host.pass(10);
    host.look_up_keys(3..4);
    let ids: Vec<u32> = host.take_lookups().iter().map(|lookup| lookup.0).collect();
    host.pass(10);
    assert_eq!(host.woken(), [2]);
    host.send(found(ids[1]));
    assert_eq!(host.woken(), [3]);
}

#[test]
fn lookups_fail_with_their_session() {
    let mut host = LinkTestHost::connected();
    host.look_up_keys(2..5);
    host.break_connection();
    let mut woken = host.woken();
    woken.sort_unstable();
    assert_eq!(woken, [2, 3, 4]);
    assert!((2..5).all(|waiter| host.lead(waiter).is_some()));
}

#[test]
fn frame_is_full_after_its_soft_limit() {
    let mut host = LinkTestHost::connected();
    for key in 0..5 {
        host.store_at_owner(key, vec![b'1'; SOFT_FRAME_BYTES / 2]);
    }
    host.run();
    let frames = std::mem::take(&mut host.frames);
    let stored: Vec<_> = frames.iter().map(|frame| stored_keys(frame)).collect();
    assert_eq!(stored, [vec![0, 1], vec![2, 3], vec![4]]);
}

#[test]
fn messages_that_wait_for_the_connection_are_one_frame() {
    let mut host = LinkTestHost::connected();
    host.store_at_owner(1, b"1".to_vec());
    assert_eq!(host.link().next_action(), Some(LinkAction::Write));
    // the socket takes a part
    let mut bytes = Vec::new();
    host.link()
        .pass_unwritten_pieces(&host.shared, host.now, |pieces| {
            bytes.extend(pieces.flatten().take(10));
            bytes.len()
        });
    for key in 2..5 {
        host.store_at_owner(key, b"1".to_vec());
        assert_eq!(host.link().next_action(), None);
    }
    bytes.extend(host.written_bytes());
    host.receive_from_link(&bytes);
    let stored: Vec<_> = host.frames.iter().map(|frame| stored_keys(frame)).collect();
    assert_eq!(stored, [vec![1], vec![2, 3, 4]]);
}

#[test]
fn long_entry_is_sent_in_parts_between_which_lookups_go() {
    let payload: Vec<u8> = (0..3 * MAX_BODY_BYTES)
        .map(|n| b'0' + (n % 7) as u8)
        .collect();
    let mut host = LinkTestHost::connected();
    host.store_at_owner(9, payload.clone());
    assert_eq!(host.link().next_action(), Some(LinkAction::Write));
    let mut bytes = Vec::new();
    let mut queued = 1_u8;
    loop {
        let before = bytes.len();
        host.link()
            .pass_unwritten_pieces(&host.shared, host.now, |pieces| {
                bytes.extend(pieces.flatten().take(100_000));
                bytes.len() - before
            });
        if bytes.len() == before {
            break;
        }
        if queued < 4 {
            host.look_up_keys(queued..queued + 1);
            queued += 1;
        }
    }
    host.receive_from_link(&bytes);
    let expected = entry_with_payload(payload).with_lifetime(host.now, 10_000);
    let expected = bytes_of(&expected);
    let mut received = Vec::new();
    let mut parts_at_lookup = Vec::new();
    let mut parts = 0;
    for message in host.take_messages() {
        match message {
            ProcessMessage::Store(store) => {
                assert_eq!(store.total, expected.len() as u64);
                received.extend(store.entry.into_joined_bytes().unwrap());
            }
            ProcessMessage::Chunk { bytes, .. } => {
                parts += 1;
                received.extend(bytes.into_joined_bytes().unwrap());
            }
            ProcessMessage::Lookup { .. } => parts_at_lookup.push(parts),
            other => panic!("{other:?}"),
        }
    }
    assert!(received == expected && parts == 3);
    assert!(
        parts_at_lookup.iter().all(|parts| *parts < 3),
        "{parts_at_lookup:?}"
    );
}

#[test]
fn long_entry_is_received_in_parts_and_extends_the_deadline() {
    let payload = vec![b'1'; 3 * MAX_BODY_BYTES];
    let body = MessageBody::from(bytes_of(&entry_with_payload(payload)));
    let total = body.byte_length();
    let part = |n: usize| body.slice_body(n * MAX_BODY_BYTES..(n + 1) * MAX_BODY_BYTES);
    for loses_the_last in [false, true] {
        let mut host = LinkTestHost::connected();
        host.look_up_for_waiter(1, true);
        let id = host.take_id();
        let entry = FoundEntry {
            fresh: 500,
            age: 0,
            total: total as u64,
            bytes: part(0).unwrap(),
        };
        host.send(OwnerMessage::Found {
            id,
            generation: 0,
            entry,
        });
        for n in 1..3 {
            host.pass(19);
            let bytes = part(n).unwrap();
            host.send(OwnerMessage::Chunk { id, bytes });
            assert!(host.woken().is_empty());
        }
        if loses_the_last {
            host.pass(20);
            assert_eq!(host.woken(), [1]);
            assert!(host.answer(1).is_none());
        }
        let bytes = part(3).unwrap();
        host.send(OwnerMessage::Chunk { id, bytes });
        assert_eq!(host.answer(1).is_some(), !loses_the_last);
        assert!(host.is_open);
    }
}

#[test]
fn entry_that_expires_before_it_is_sent_releases_its_lease() {
    let mut host = LinkTestHost::connected();
    host.store_at_owner(1, b"1".to_vec());
    host.now += 10_001;
    host.run();
    assert_eq!(host.take_messages(), [ProcessMessage::Release([1; 32])]);
}
