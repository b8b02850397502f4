//! Chains followed in JSON-RPC over a WebSocket.

use super::node::SimulatedNode;
use super::owner::{head_source, FollowingOwner};

#[test]
fn chain_is_followed_over_a_websocket() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    // polls are triggered by notifications, not by the interval
    let mut slow = head_source(&format!("ws://{address}/ws"));
    slow.interval = 400_000;
    let owner = FollowingOwner::start(slow);
    owner.wait_for_state("following", 100, Some(90));
    assert_eq!(node.script().connections, 1);
    let requests = node.take_requests();
    assert!(
        requests.contains(&"eth_subscribe".to_owned()),
        "{requests:?}"
    );
}

#[test]
fn notification_triggers_a_poll() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let mut slow = head_source(&format!("ws://{address}"));
    // polls are at least an eighth of it apart
    slow.interval = 20_000;
    let owner = FollowingOwner::start(slow);
    owner.wait_for_state("following", 100, Some(90));
    let start = std::time::Instant::now();
    node.chain().extend(1, 1);
    node.announce_head();
    owner.wait_for_state("following", 101, Some(90));
    assert!(start.elapsed().as_secs() < 20);
}

#[test]
fn closed_connection_is_opened_again() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let owner = FollowingOwner::start(head_source(&format!("ws://{address}")));
    owner.wait_for_state("following", 100, Some(90));
    node.stop();
    owner.wait_for_chain("an error", |chain| !chain["error"].is_null());
    node.chain().extend(1, 1);
    node.listen();
    owner.wait_for_state("following", 101, Some(90));
    owner.wait_for_chain("no error", |chain| chain["error"].is_null());
}
