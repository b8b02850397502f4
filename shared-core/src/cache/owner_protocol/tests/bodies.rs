//! Bodies: their parts, and their assembly from chunks.

use super::super::body_assembler::{AssemblyProgress, BodyAssembler};
use super::super::message_body::MessageBody;
use crate::bytes::SharedBytes;

const MAX_BODY: u64 = 100;

fn bytes(length: usize) -> MessageBody {
    vec![7_u8; length].into()
}

/// Begins a body, and returns its progress and the messages that were dropped.
fn begin(
    assembler: &mut BodyAssembler<u32>,
    id: u32,
    length: usize,
    total: u64,
) -> (AssemblyProgress<u32>, Vec<u32>) {
    let mut dropped = Vec::new();
    let progress = assembler.begin_body(id, id, bytes(length), total, |message| {
        dropped.push(message);
    });
    (progress, dropped)
}

#[test]
fn body_is_complete_when_its_declared_length_has_arrived() {
    let mut assembler = BodyAssembler::new(MAX_BODY);
    let complete = AssemblyProgress::Complete(1, vec![7_u8; 10]);
    assert_eq!(begin(&mut assembler, 1, 10, 10), (complete, vec![]));
    let (progress, _) = begin(&mut assembler, 2, 4, 10);
    assert_eq!(progress, AssemblyProgress::Incomplete);
    let progress = assembler.append_chunk(2, &bytes(5));
    assert_eq!(progress, AssemblyProgress::Incomplete);
    let progress = assembler.append_chunk(2, &bytes(1));
    assert_eq!(progress, AssemblyProgress::Complete(2, vec![7_u8; 10]));
    let progress = assembler.append_chunk(2, &bytes(1));
    assert_eq!(progress, AssemblyProgress::Unknown);
    assert_eq!(assembler.open_body_count(), 0);
}

#[test]
fn body_with_more_bytes_than_declared_is_an_error() {
    let mut assembler = BodyAssembler::new(MAX_BODY);
    let (progress, _) = begin(&mut assembler, 1, 11, 10);
    assert_eq!(progress, AssemblyProgress::Excess(1));
    begin(&mut assembler, 2, 4, 10);
    let progress = assembler.append_chunk(2, &bytes(7));
    assert_eq!(progress, AssemblyProgress::Excess(2));
    assert_eq!(assembler.open_body_count(), 0);
}

#[test]
fn body_above_the_limit_is_dropped_with_its_chunks() {
    let mut assembler = BodyAssembler::new(MAX_BODY);
    let (progress, _) = begin(&mut assembler, 1, 1, MAX_BODY + 1);
    assert_eq!(progress, AssemblyProgress::Dropped(1));
    let progress = assembler.append_chunk(1, &bytes(MAX_BODY as usize));
    assert_eq!(progress, AssemblyProgress::Unknown);
}

#[test]
fn oldest_bodies_are_dropped_beyond_the_limits() {
    let mut assembler = BodyAssembler::new(MAX_BODY);
    for id in 1..=4 {
        assert!(begin(&mut assembler, id, 1, 50).1.is_empty());
    }
    // a fifth one
    assert_eq!(begin(&mut assembler, 5, 1, 10).1, vec![1]);
    // 160 bytes are open already
    assert_eq!(begin(&mut assembler, 6, 1, 100).1, vec![2, 3]);
    assert_eq!(assembler.open_body_count(), 3);
    assert_eq!(begin(&mut assembler, 6, 1, 2).1, vec![6]);
    assert_eq!(assembler.drop_body(4), Some(4));
    assert_eq!(assembler.drop_all_bodies().collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn slices_of_a_body_are_its_bytes() {
    let shared = SharedBytes::from((10..20).collect::<Vec<u8>>());
    let body = MessageBody::from_parts((0..10).collect(), shared);
    let whole = body.clone().into_joined_bytes().unwrap();
    assert_eq!(whole, (0..20).collect::<Vec<u8>>());
    for start in 0..=20 {
        for end in start..=22 {
            let slice = body.slice_body(start..end).unwrap();
            let expected = &whole[start..end.min(20)];
            assert_eq!(slice.byte_length(), expected.len());
            assert_eq!(slice, MessageBody::try_copy_from(expected).unwrap());
            // slices of slices
            let rest = slice.slice_body(1..usize::MAX).unwrap();
            let expected = expected.get(1..).unwrap_or(&[]);
            assert_eq!(rest.into_joined_bytes().unwrap(), expected);
        }
    }
}
