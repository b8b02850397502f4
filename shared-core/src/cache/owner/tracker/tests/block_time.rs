//! The block time, by the timestamps of the known blocks.

use super::*;

/// Follows a chain of `length` blocks with these timestamps, whose first block is final, with the
/// backfill of one poll.
fn following(length: u64, block_times: Option<fn(u64) -> u64>) -> ScriptedTracker {
    let mut node = SingleChainNode::new(1);
    node.block_times = block_times;
    node.extend(0, length - 1);
    node.finalize(0);
    let mut script = ScriptedTracker::new(node, FinalizedBlockRule::Tag);
    script.poll();
    while let Some(query) = script.tracker.next_backfill_query() {
        let answer = script.node.answer(query);
        script.tracker.handle_backfill_result(&answer);
    }
    script
}

#[test]
fn block_time_is_the_average_of_the_known_blocks() {
    type BlockTimes = fn(u64) -> u64;
    let cases: [(BlockTimes, Option<u64>); 8] = [
        (|number| 12 * number, Some(12_000)),
        (|number| 2 * number, Some(2_000)),
        // a missed slot among the blocks 91 to 99
        (|number| 12 * (number + number / 96), Some(13_500)),
        // no time between blocks: on demand, or not in seconds
        (|_| 7, None),
        (|number| 61 * number, None),
        (|number| 12_000 * number, None),
        (|number| 1_000 - number, None),
        (|number| u64::MAX / 200 * number, None),
    ];
    for (block_times, expected) in cases {
        let script = following(100, Some(block_times));
        assert_eq!(script.tracker.block_time(), expected);
    }
    assert_eq!(following(100, None).tracker.block_time(), None);
}

#[test]
fn block_time_below_a_second_is_known_after_ten_seconds() {
    let mut script = following(100, Some(|number| number / 4));
    assert_eq!(script.tracker.block_time(), None);
    for _ in 0..31 {
        script.node.extend(0, 1);
        script.poll();
    }
    // the blocks 91 to 130
    let measured = script.tracker.block_time();
    assert!(
        measured.is_some_and(|time| (240..=275).contains(&time)),
        "{measured:?}"
    );
}

#[test]
fn block_time_of_a_full_window_is_at_least_a_tenth_of_a_second() {
    let mut script = following(10, Some(|number| number / 1_000));
    for _ in 0..1_100 {
        script.node.extend(0, 1);
        script.poll();
    }
    assert_eq!(script.tracker.block_time(), Some(100));
}

#[test]
fn slot_time_replaces_the_average_until_a_purge() {
    let mut script = following(100, Some(|number| 12 * number));
    script.tracker.set_slot_time(Some(6_000));
    assert_eq!(script.tracker.block_time(), Some(6_000));
    script.tracker.reset_tracker_after_purge(script.now);
    assert_eq!(script.tracker.block_time(), None);
}
