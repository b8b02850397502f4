//! Chains followed over the Beacon API.

use sszip_core::config::head_source::{FinalizedBlockRule, HeadSource, NodeApi};

use super::node::SimulatedNode;
use super::owner::{head_source, FollowingOwner};

fn beacon(url: &str) -> HeadSource {
    HeadSource {
        api: NodeApi::Beacon,
        ..head_source(url)
    }
}

#[test]
fn beacon_chain_with_empty_slots_is_followed() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let owner = FollowingOwner::start(beacon(&format!("http://{address}")));
    // the slots 100 and 90 are empty
    owner.wait_for_state("following", 99, Some(89));
    owner.wait_for_chain("the slot time", |chain| chain["block_time"] == 5.0);
    node.chain().extend(1, 5);
    owner.wait_for_state("following", 105, Some(89));
    node.chain().finalized = Some(97);
    owner.wait_for_state("following", 105, Some(97));
    node.chain().cut_to_head(102);
    node.chain().extend(2, 9);
    owner.wait_for_state("following", 111, Some(97));
    assert_eq!(owner.chain()["reorgs"], 1);
    node.chain().is_syncing = true;
    owner.wait_for_state("syncing", 111, None);
}

#[test]
fn depth_rule_finds_the_block_below_an_empty_slot() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let mut head = beacon(&format!("http://{address}/"));
    head.finality = FinalizedBlockRule::Depth(3);
    let owner = FollowingOwner::start(head);
    owner.wait_for_state("following", 99, Some(95));
}

#[test]
fn head_event_triggers_a_poll() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let mut slow = beacon(&format!("http://{address}"));
    slow.interval = 20_000;
    let owner = FollowingOwner::start(slow);
    owner.wait_for_state("following", 99, Some(89));
    let is_listening = |requests: &[String]| requests.iter().any(|path| path.contains("events"));
    let mut requests = node.take_requests();
    for _ in 0..12_000 {
        if is_listening(&requests) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        requests.extend(node.take_requests());
    }
    assert!(is_listening(&requests), "{requests:?}");
    let start = std::time::Instant::now();
    node.chain().extend(1, 1);
    node.announce_head();
    owner.wait_for_state("following", 101, Some(89));
    assert!(start.elapsed().as_secs() < 20);
}
