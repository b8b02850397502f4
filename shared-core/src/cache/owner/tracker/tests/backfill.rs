//! Extension of the window to blocks below the first polled one.

use super::*;
use crate::cache::chain::MAX_CANONICAL_BLOCKS;

impl ScriptedTracker {
    /// Sends the queries of the backfill, and returns their number.
    fn backfill(&mut self) -> usize {
        let mut count = 0;
        while let Some(query) = self.tracker.next_backfill_query() {
            count += 1;
            let fixed = self.overrides.iter().find(|(about, _)| *about == query);
            let answer = match fixed {
                Some((_, fixed)) => fixed.clone(),
                None => self.node.answer(query),
            };
            self.tracker.handle_backfill_result(&answer);
        }
        count
    }

    /// Numbers of the known blocks, the oldest first.
    fn known_numbers(&self) -> Vec<u64> {
        let blocks = self.tracker.window_blocks();
        let mut numbers: Vec<u64> = blocks.map(|block| block.number).collect();
        numbers.reverse();
        numbers
    }

    fn oldest_known_number(&self) -> u64 {
        self.known_numbers()[0]
    }
}

#[test]
fn window_is_extended_down_to_the_final_block() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.node.queries.clear();
    assert_eq!(script.backfill(), 8);
    let queries = (92..=99).rev().map(|n| NodeQuery::ByHash(hash(0, n)));
    assert_eq!(script.node.queries, queries.collect::<Vec<_>>());
    assert_eq!(script.known_numbers(), (92..=100).collect::<Vec<_>>());
    for oldest in [91, 90] {
        assert_eq!(script.backfill(), 0);
        script.poll();
        assert_eq!(script.backfill(), 1);
        assert_eq!(script.oldest_known_number(), oldest);
    }
    for _ in 0..3 {
        script.poll();
        assert_eq!(script.backfill(), 0);
    }
    // all of them are of the node's chain
    for block in script.tracker.window_blocks() {
        assert_eq!(block.hash, hash(0, block.number));
    }
}

#[test]
fn backfill_changes_no_steps_of_the_next_polls() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.backfill();
    assert_eq!(script.steps_as_text(), "");
    assert_eq!(script.poll(), "");
    script.node.extend(0, 1);
    assert_eq!(script.poll(), "head 101");
    // a branch below the block of the first poll is found exactly
    script.node.branch_off(95, 1, 10);
    assert_eq!(script.poll(), "reorg 96, head 105");
}

#[test]
fn block_that_is_not_the_parent_is_rejected() {
    let script = ScriptedTracker::following_to_block_100();
    let query = NodeQuery::ByHash(hash(0, 99));
    let right = script.node.at(99).unwrap();
    let other = NodeBlock {
        hash: hash(7, 99),
        ..right
    };
    let above = NodeBlock {
        number: 100,
        ..right
    };
    for answer in [
        NodeResult::Block(Some(other)),
        NodeResult::Block(Some(above)),
        NodeResult::Block(None),
        NodeResult::Failed("pruned".into()),
        NodeResult::Syncing(false),
    ] {
        let mut script = ScriptedTracker::following_to_block_100();
        script.overrides = vec![(query, answer.clone())];
        // not repeated before the next poll
        assert_eq!(script.backfill(), 1, "{answer:?}");
        assert_eq!(script.known_numbers(), [100], "{answer:?}");
        assert_eq!(script.poll(), "");
        assert_eq!(script.tracker.last_poll_error(), None);
        script.overrides.clear();
        assert!(script.backfill() > 0);
        assert!(script.oldest_known_number() < 100);
    }
}

#[test]
fn missing_block_is_not_queried_after_eight_polls() {
    let mut script = ScriptedTracker::following_to_block_100();
    let query = NodeQuery::ByHash(hash(0, 99));
    script.overrides = vec![(query, NodeResult::Block(None))];
    let mut count = script.backfill();
    for _ in 0..20 {
        script.poll();
        count += script.backfill();
    }
    assert_eq!(count, 8);
    // a branch has another oldest block
    script.node.branch_off(98, 1, 4);
    script.overrides.clear();
    script.poll();
    assert!(script.backfill() > 0);
}

#[test]
fn backfill_waits_for_a_successful_poll_and_for_finality() {
    type Change = fn(&mut SingleChainNode);
    let mut script = ScriptedTracker::following_to_block_100();
    script.fail();
    assert_eq!(script.backfill(), 0);
    // in the middle of a poll
    script.tracker.begin_poll(script.now);
    assert_eq!(script.backfill(), 0);
    script.poll();
    assert!(script.backfill() > 0);
    let changes: [Change; 4] = [
        |node| node.syncing = Ok(true),
        |node| node.finalized = Ok(None),
        |node| node.cut(99),
        |node| node.chain_id = 5,
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut script = ScriptedTracker::following_to_block_100();
        script.now += 100_000;
        let good = script.node.clone();
        change(&mut script.node);
        script.poll();
        assert_eq!(script.backfill(), 0, "{n}");
        script.node = good;
        script.poll();
        assert!(script.backfill() > 0, "{n}");
    }
}

#[test]
fn window_of_a_new_branch_is_extended_to_its_final_block() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.backfill();
    // below all known blocks
    script.node.branch_off(91, 1, 15);
    assert_eq!(script.poll(), "reorg 91, head 106");
    for _ in 0..10 {
        script.poll();
        script.backfill();
    }
    assert_eq!(script.oldest_known_number(), 90);
    for block in script.tracker.window_blocks() {
        assert_eq!(script.node.at(block.number).unwrap().hash, block.hash);
    }
}

#[test]
fn restarted_tracker_extends_its_window_again() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.backfill();
    let (node, record) = (script.node.clone(), script.record);
    let mut again = ScriptedTracker::restored_from_record(node, FinalizedBlockRule::Tag, record);
    assert_eq!(again.backfill(), 0);
    again.poll();
    assert_eq!(again.known_numbers(), [100]);
    assert_eq!(again.backfill(), 8);
    again.tracker.reset_tracker_after_purge(again.now);
    assert_eq!(again.backfill(), 0);
}

#[test]
fn gap_within_the_window_is_not_filled() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.backfill();
    script.poll();
    script.backfill();
    script.poll();
    script.backfill();
    script.node.extend(0, 2_000);
    assert_eq!(script.poll(), "head 2100");
    assert_eq!(script.backfill(), 0);
    let mut expected: Vec<u64> = (90..=100).collect();
    expected.push(2_100);
    assert_eq!(script.known_numbers(), expected);
}

#[test]
fn full_window_is_not_extended() {
    let mut node = SingleChainNode::new(3_000);
    node.finalize(10);
    let mut script = ScriptedTracker::new(node, FinalizedBlockRule::Tag);
    script.poll();
    let mut count = script.backfill();
    for _ in 0..1_100 {
        script.poll();
        count += script.backfill();
    }
    assert_eq!(count, MAX_CANONICAL_BLOCKS - 1);
    assert_eq!(script.known_numbers().len(), MAX_CANONICAL_BLOCKS);
    script.extend_and_poll(3);
    assert_eq!(script.backfill(), 0);
    assert_eq!(script.known_numbers().len(), MAX_CANONICAL_BLOCKS);
}

#[test]
fn empty_slots_are_skipped_by_parent_hashes() {
    let mut node = SingleChainNode::new(91);
    for number in [93, 94, 98, 101] {
        node.push(0, number);
    }
    node.finalize(90);
    let mut script = ScriptedTracker::new(node, FinalizedBlockRule::Tag);
    script.poll();
    assert_eq!(script.backfill(), 4);
    assert_eq!(script.known_numbers(), [90, 93, 94, 98, 101]);
}
