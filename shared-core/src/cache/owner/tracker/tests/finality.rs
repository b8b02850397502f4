//! Final blocks, and the loss of finality.

use super::*;

#[test]
fn replaced_final_block_is_reported_as_broken() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.extend_and_poll(20);
    script.node.finalize(115);
    assert_eq!(script.poll(), "final 115");
    script.node.branch_off(109, 1, 20);
    script.node.finalize(113);
    assert_eq!(script.poll(), broken_finality_steps(110, 129, 113));
    assert!(script
        .log_lines
        .last()
        .unwrap()
        .contains("finalized block 115 was replaced"));
}

#[test]
fn recorded_mark_is_checked_after_a_restart() {
    let script = ScriptedTracker::following_to_block_100();
    let (mut node, record) = (script.node.clone(), script.record);
    assert_eq!(record.mark.unwrap().number, 90);
    node.extend(0, 100);
    node.finalize(150);
    let mut again =
        ScriptedTracker::restored_from_record(node.clone(), FinalizedBlockRule::Tag, record);
    assert_eq!(again.poll(), "reorg 0, head 200, final 150");
    node.branch_off(80, 1, 200);
    node.finalize(160);
    let mut again = ScriptedTracker::restored_from_record(node, FinalizedBlockRule::Tag, record);
    assert_eq!(
        format!("final none, {}", again.poll()),
        broken_finality_steps(0, 280, 160)
    );
}

#[test]
fn cut_below_the_mark_is_broken_when_the_chain_reaches_the_mark_again() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.extend_and_poll(20);
    script.node.finalize(118);
    script.poll();
    script.node.cut(112);
    script.node.finalize(110);
    assert_eq!(script.poll(), "final none, reorg 113");
    script.poll();
    assert_eq!(script.poll(), "head 112");
    // no block is final while the recorded one is missing
    script.node.extend(1, 4);
    script.node.finalize(113);
    assert_eq!(script.poll(), "head 116");
    script.node.extend(1, 4);
    assert_eq!(
        format!("final none, {}", script.poll()),
        broken_finality_steps(113, 120, 113)
    );
}

#[test]
fn short_branch_below_the_mark_is_broken_at_once() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.extend_and_poll(20);
    script.node.finalize(118);
    script.poll();
    script.node.branch_off(110, 1, 3);
    script.node.finalize(112);
    assert_eq!(script.poll(), broken_finality_steps(111, 113, 112));
}

#[test]
fn finality_is_unknown_when_the_node_syncs_fails_or_goes_back() {
    type Change = fn(&mut SingleChainNode);
    let changes: [(Change, State); 5] = [
        (|node| node.syncing = Ok(true), State::Syncing),
        (
            |node| node.syncing = Err("no such method".into()),
            State::Following,
        ),
        (
            |node| node.finalized = Err("unknown block".into()),
            State::Following,
        ),
        (|node| node.finalized = Ok(None), State::Following),
        (|node| node.finalize(80), State::Following),
    ];
    for (change, state) in changes {
        let mut script = ScriptedTracker::following_to_block_100();
        let good = script.node.clone();
        change(&mut script.node);
        assert_eq!(script.poll(), "final none");
        assert_eq!(script.tracker.tracker_state(), state);
        assert_eq!(script.poll(), "");
        script.node = good;
        assert_eq!(script.poll(), "final 90");
    }
}

#[test]
fn depth_rule_makes_blocks_of_that_depth_final() {
    let mut script = ScriptedTracker::new(SingleChainNode::new(101), FinalizedBlockRule::Depth(12));
    let moves = script.poll();
    assert!(moves.ends_with("final 88"));
    for head in 101..=130 {
        script.node.extend(0, 1);
        let moves = format!("head {head}, final {}", head - 12);
        assert_eq!(script.poll(), moves);
    }
    assert!(!script.node.queries.contains(&NodeQuery::Finalized));
    // a shorter branch undoes no finality
    script.node.branch_off(125, 1, 3);
    assert_eq!(script.poll(), "reorg 126, head 128");
    assert_eq!(script.tracker.last_published_final(), Some(118));
    // a branch below the final block does
    script.node.branch_off(115, 2, 20);
    assert_eq!(script.poll(), broken_finality_steps(116, 135, 123));
    let mut short = ScriptedTracker::new(SingleChainNode::new(5), FinalizedBlockRule::Depth(12));
    assert_eq!(short.poll(), "reorg 0, head 4");
}

#[test]
fn finalized_block_of_another_chain_than_the_head_is_rejected() {
    let mut script = ScriptedTracker::following_to_block_100();
    script.extend_and_poll(20);
    script.node.finalized = Ok(Some(FinalityMark {
        number: 110,
        hash: hash(7, 110),
    }));
    assert_eq!(script.poll(), "final none");
    script.node.finalize(110);
    assert_eq!(script.poll(), "final 110");
    // a finalized block above the head is ignored until the head reaches it
    script.node.finalized = Ok(Some(FinalityMark {
        number: 130,
        hash: hash(0, 130),
    }));
    assert_eq!(script.poll(), "");
}

#[test]
fn recorded_block_that_stays_absent_is_broken() {
    let script = ScriptedTracker::following_to_block_100();
    let (mut node, record) = (script.node.clone(), script.record);
    node.extend(0, 100);
    let mut again = ScriptedTracker::restored_from_record(node, FinalizedBlockRule::Tag, record);
    again.overrides = vec![(NodeQuery::ByNumber(90), NodeResult::Block(None))];
    assert_eq!(again.poll(), "reorg 0, head 200");
    assert_eq!(again.poll(), "");
    assert_eq!(again.poll(), "");
    assert!(again.poll().starts_with("broken 0, reorg 0"));
    // a block that cannot be fetched was not replaced
    let mut again =
        ScriptedTracker::restored_from_record(again.node, FinalizedBlockRule::Tag, record);
    let error = NodeResult::Failed("pruned".into());
    again.overrides = vec![(NodeQuery::ByNumber(90), error)];
    for round in 0..10 {
        assert_eq!(again.poll().is_empty(), round > 0);
        assert_eq!(
            again.tracker.last_poll_error(),
            Some("cannot check finalized block 90: pruned")
        );
    }
    // an error of another query does not hide it
    again.node.syncing = Err("no such method".into());
    again.poll();
    assert_eq!(
        again.tracker.last_poll_error(),
        Some(
            "cannot check finalized block 90: pruned; \
             cannot query whether the node is syncing: no such method"
        )
    );
}
