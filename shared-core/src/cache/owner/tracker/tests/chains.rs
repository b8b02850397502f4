//! Heads, branches, lagging and failing nodes, other chains.

use super::*;

#[test]
fn growing_chain_is_reported_as_heads_without_a_reorganisation() {
    let mut script = ScriptedTracker::following_to_block_100();
    assert_eq!(script.poll(), "");
    for (more, head) in [(1, 101), (2, 103), (40, 143), (500, 643), (2_000, 2_643)] {
        script.node.extend(0, more);
        assert_eq!(script.poll(), format!("head {head}"));
    }
    script.node.finalize(640);
    assert_eq!(script.poll(), "final 640");
    assert_eq!(script.log_lines, ["follows the chain: head 100, final 90"]);
    assert_eq!(script.tracker.reorg_count(), 0);
}

#[test]
fn poll_without_a_change_sends_three_queries() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.node.queries.clear();
    script.poll();
    assert_eq!(
        script.node.queries,
        [NodeQuery::Latest, NodeQuery::Syncing, NodeQuery::Finalized]
    );
}

#[test]
fn reorganisation_is_reported_from_the_lowest_replaced_block() {
    // depth of the branch, and its length
    for (depth, length) in [(1, 1), (1, 2), (3, 3), (5, 1), (5, 9), (9, 100), (8, 2)] {
        let mut script = ScriptedTracker::following_to_block_100();
        // the window reaches down far enough
        for number in 101..=110 {
            script.node.extend(0, 1);
            assert_eq!(script.poll(), format!("head {number}"));
        }
        script.node.branch_off(110 - depth, 1, length);
        let (from, head) = (111 - depth, 110 - depth + length);
        assert_eq!(
            script.poll(),
            format!("reorg {from}, head {head}"),
            "{depth} {length}"
        );
        assert_eq!(script.tracker.reorg_count(), 1);
        assert_eq!(script.poll(), "");
    }
}

#[test]
fn reorganisation_deeper_than_the_window_starts_above_the_final_block() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.node.branch_off(95, 1, 10);
    assert_eq!(script.poll(), "reorg 91, head 105");
    assert_eq!(script.tracker.last_published_final(), Some(90));
}

#[test]
fn ancestor_of_a_distant_head_is_found_by_number() {
    let mut script = ScriptedTracker::following_to_block_100();
    for _ in 0..50 {
        script.node.extend(0, 10);
        script.poll();
    }
    script.node.queries.clear();
    script.node.branch_off(255, 1, 1_000);
    assert_eq!(script.poll(), "reorg 256, head 1255");
    assert!(script.node.queries.len() < 20, "{:?}", script.node.queries);
}

#[test]
fn node_that_lags_for_one_poll_loses_finality_until_it_is_back() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.node.extend(0, 1);
    script.poll();
    let full = script.node.clone();
    script.node.cut(100);
    for _ in 0..3 {
        assert_eq!(script.poll(), "final none, reorg 101");
        let behind = std::mem::replace(&mut script.node, full.clone());
        // responses about the lower head do not show that
        assert_eq!(script.poll(), "reorg 101, head 101, final 90");
        script.node = behind;
    }
    // a single lower head is not logged
    assert_eq!(script.log_lines.len(), 1);
    assert_eq!(script.tracker.reorg_count(), 0);
}

#[test]
fn branch_change_after_a_lag_is_a_reorganisation() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.extend_and_poll(5);
    script.node.cut(102);
    script.poll();
    script.node.extend(1, 1);
    assert_eq!(script.poll(), "reorg 103, head 103, final 90");
    assert_eq!(script.tracker.reorg_count(), 1);
}

#[test]
fn lower_head_that_lasts_is_accepted_as_the_head() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.node.extend(0, 2);
    script.poll();
    script.node.extend(0, 3);
    script.poll();
    script.node.cut(102);
    assert_eq!(script.poll(), "final none, reorg 103");
    assert_eq!(script.poll(), "");
    assert_eq!(script.tracker.tracker_state(), State::Lagging);
    assert_eq!(script.poll(), "head 102, final 90");
    assert_eq!(script.tracker.tracker_state(), State::Following);
    // other blocks follow
    script.node.extend(1, 1);
    assert_eq!(script.poll(), "head 103");
}

#[test]
fn finality_is_lost_when_a_node_fails_for_more_than_five_seconds() {
    let mut script = ScriptedTracker::following_to_block_100();
    for _ in 0..5 {
        assert_eq!(script.fail(), "");
    }
    assert_eq!(script.fail(), "final none");
    assert_eq!(script.tracker.tracker_state(), State::Unreachable);
    assert_eq!(script.fail(), "");
    assert_eq!(script.log_lines.len(), 2);
    assert!(script.log_lines[1].contains("connection refused"));
    assert_eq!(script.tracker.last_poll_error(), Some("connection refused"));
    script.node.queries.clear();
    assert_eq!(script.poll(), "final 90");
    // the node may be another one
    assert!(script.node.queries.contains(&NodeQuery::Genesis));
    assert_eq!(script.tracker.last_poll_error(), None);
    assert_eq!(script.log_lines.len(), 3);
}

#[test]
fn wrong_chain_is_reported_until_the_recorded_one_is_back_or_purged() {
    let mut script = ScriptedTracker::following_to_block_100();
    let good = script.node.clone();
    let mut other = SingleChainNode::new(0);
    other.extend(7, 150);
    other.chain_id = 5;
    other.finalize(120);
    script.node = other;
    assert_eq!(script.poll(), "final none, wrong true");
    assert_eq!(script.tracker.tracker_state(), State::WrongChain);
    for _ in 0..5 {
        script.node.extend(7, 1);
        assert_eq!(script.poll(), "");
    }
    assert_eq!(script.log_lines.len(), 2);
    assert!(script.log_lines[1].contains("chain 5") && script.log_lines[1].contains("chain 1"));
    let other = std::mem::replace(&mut script.node, good);
    assert_eq!(script.poll(), "wrong false, final 90");
    // the purged namespace may have another chain
    script.node = other;
    script.poll();
    script.tracker.reset_tracker_after_purge(script.now);
    script.record = ChainRecord::default();
    assert_eq!(script.steps_as_text(), "wrong false");
    assert_eq!(script.poll(), "reorg 0, head 154, final 120");
    assert_eq!(script.record.identity.unwrap().chain_id, Some(5));
}

#[test]
fn identity_is_queried_once_a_minute() {
    let mut script = ScriptedTracker::following_to_block_100();
    let mut count = 0;
    for _ in 0..180 {
        script.node.queries.clear();
        script.poll();
        count += u32::from(script.node.queries.contains(&NodeQuery::ChainId));
    }
    assert_eq!(count, 3);
    let one = ChainIdentity {
        chain_id: None,
        genesis: [1; 32],
    };
    let other = ChainIdentity {
        chain_id: Some(3),
        ..one
    };
    assert!(one.matches_identity(&other) && other.matches_identity(&one));
    let text = other.to_string();
    assert!(text.starts_with("chain 3, genesis 0x0101"), "{text}");
}

#[test]
fn skipped_slots_are_no_reorganisation() {
    let mut node = SingleChainNode::new(90);
    node.push(0, 95);
    let mut script = ScriptedTracker::new(node, FinalizedBlockRule::Tag);
    script.poll();
    for number in [97, 98, 102] {
        script.node.push(0, number);
        assert_eq!(script.poll(), format!("head {number}"));
    }
    // a block in a slot that was empty
    script.node.cut(98);
    script.node.push(1, 100);
    assert_eq!(script.poll(), "reorg 99, head 100");
}

#[test]
fn inconsistent_results_are_accepted_after_three_polls() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.extend_and_poll(20);
    // the head descends from a block that the node does not have
    let head = NodeBlock {
        number: 125,
        hash: [9; 32],
        parent: [8; 32],
        timestamp: None,
    };
    script.node.extend(0, 4);
    script.overrides = vec![
        (NodeQuery::Latest, NodeResult::Block(Some(head))),
        // the block is not there any more
        (NodeQuery::Recheck(125), NodeResult::Block(None)),
    ];
    for _ in 0..3 {
        assert_eq!(script.poll(), "");
        let error = script.tracker.last_poll_error().unwrap();
        assert!(error.contains("changed during the poll"), "{error}");
    }
    assert_eq!(script.poll(), "reorg 91, head 125");
}

#[test]
fn block_with_another_hash_than_the_queried_one_is_ignored() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.extend_and_poll(20);
    script.node.branch_off(115, 1, 10);
    let other = script.node.at(100).unwrap();
    let query = NodeQuery::ByHash(hash(1, 124));
    script.overrides = vec![(query, NodeResult::Block(Some(other)))];
    // the ancestor is found by number
    assert_eq!(script.poll(), "reorg 116, head 125");
}

#[test]
fn lower_head_is_accepted_after_three_polls_and_two_seconds() {
    for (wait, polls) in [(100, 21), (500, 5), (1_000, 3), (10_000, 3)] {
        let mut script = ScriptedTracker::following_to_block_100();
        script.node.extend(0, 1);
        script.poll();
        script.node.cut(100);
        let mut count = 1;
        script.poll_after(wait);
        while script.tracker.newest_known_block().unwrap().number > 100 {
            script.poll_after(wait);
            count += 1;
        }
        assert_eq!(count, polls, "{wait}");
    }
}
