//! Chains followed in JSON-RPC over a WebSocket.

use super::node::Node;
use super::owner::{head, Owner};

#[test]
fn a_chain_is_followed_over_a_websocket() {
    let mut node = Node::new();
    let address = node.listen();
    // polls are triggered by notifications, not by the interval
    let mut slow = head(&format!("ws://{address}/ws"));
    slow.interval = 400_000;
    let owner = Owner::start(slow);
    owner.wait_for("following", 100, Some(90));
    assert_eq!(node.script().connections, 1);
    let requests = node.take_requests();
    assert!(
        requests.contains(&"eth_subscribe".to_owned()),
        "{requests:?}"
    );
}

#[test]
fn notification_triggers_a_poll() {
    let mut node = Node::new();
    let address = node.listen();
    let mut slow = head(&format!("ws://{address}"));
    // polls are at least an eighth of it apart
    slow.interval = 20_000;
    let owner = Owner::start(slow);
    owner.wait_for("following", 100, Some(90));
    let start = std::time::Instant::now();
    node.chain().extend(1, 1);
    node.announce();
    owner.wait_for("following", 101, Some(90));
    assert!(start.elapsed().as_secs() < 20);
}

#[test]
fn closed_connection_is_opened_again() {
    let mut node = Node::new();
    let address = node.listen();
    let owner = Owner::start(head(&format!("ws://{address}")));
    owner.wait_for("following", 100, Some(90));
    node.stop();
    owner.wait("an error", |chain| !chain["error"].is_null());
    node.chain().extend(1, 1);
    node.listen();
    owner.wait_for("following", 101, Some(90));
    owner.wait("no error", |chain| chain["error"].is_null());
}
