//! Fetches of the blocks below the first polled one, by the parent hashes of their children.

use std::time::Duration;

use sszip_core::config::head_source::{HeadSource, NodeApi};

use super::chain::{hash, TestBlock};
use super::node::{NodeBehaviour, SimulatedNode};
use super::owner::{head_source, FollowingOwner};

/// Collects the node's requests until `is_complete` is true for them.
fn wait_for_requests(node: &SimulatedNode, is_complete: impl Fn(&[String]) -> bool) -> Vec<String> {
    let mut requests = node.take_requests();
    for _ in 0..6_000 {
        if is_complete(&requests) {
            return requests;
        }
        std::thread::sleep(Duration::from_millis(20));
        requests.extend(node.take_requests());
    }
    panic!("{requests:?}");
}

fn count(requests: &[String], wanted: &str) -> usize {
    requests.iter().filter(|request| *request == wanted).count()
}

#[test]
fn blocks_above_the_final_one_are_fetched_once() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let owner = FollowingOwner::start(head_source(&format!("http://{address}")));
    let is_complete = |requests: &[String]| count(requests, "eth_getBlockByHash") >= 10;
    let before = wait_for_requests(&node, is_complete);
    // polls query no more
    let is_later = |requests: &[String]| count(requests, "eth_syncing") >= 5;
    let later = wait_for_requests(&node, is_later);
    let total = count(&before, "eth_getBlockByHash") + count(&later, "eth_getBlockByHash");
    assert_eq!(total, 10, "{before:?} {later:?}");
    owner.wait_for_state("following", 100, Some(90));
    // a branch below the first polled block is found exactly
    {
        let mut chain = node.chain();
        chain.cut_to_head(95);
        chain.extend(2, 10);
    }
    owner.wait_for_state("following", 105, Some(90));
    assert_eq!(
        owner.log_count("reorganisation: 5 blocks from 96 on were replaced"),
        1,
        "{:?}",
        owner.lines()
    );
}

#[test]
fn beacon_blocks_above_the_final_one_are_fetched_by_their_roots() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let owner = FollowingOwner::start(HeadSource {
        api: NodeApi::Beacon,
        ..head_source(&format!("http://{address}"))
    });
    // even slots are empty; the root of block 89 is queried in each poll, because it is final
    let paths = [97, 95, 93, 91].map(|number| {
        let root = hash(TestBlock { number, branch: 1 });
        format!("/eth/v1/beacon/headers/{root}")
    });
    let requests = wait_for_requests(&node, |requests| {
        paths.iter().all(|path| requests.contains(path))
    });
    for path in &paths {
        assert_eq!(count(&requests, path), 1, "{path}");
    }
    owner.wait_for_state("following", 99, Some(89));
}

#[test]
fn chain_is_followed_while_the_node_lacks_older_blocks() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    // the node returns no block by its hash
    node.chain().is_pruned = true;
    let owner = FollowingOwner::start(head_source(&format!("http://{address}")));
    owner.wait_for_state("following", 100, Some(90));
    node.chain().extend(1, 1);
    owner.wait_for_state("following", 101, Some(90));
    assert_eq!(owner.chain()["error"], serde_json::Value::Null);
    node.set(NodeBehaviour::Error);
    owner.wait_for_error(&["error -32000: overloaded"]);
    node.set(NodeBehaviour::Healthy);
    owner.wait_for_state("following", 101, Some(90));
}
