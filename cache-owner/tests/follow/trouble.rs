//! Failing nodes: the reported errors, and the recovery.

use super::node::{NodeBehaviour, SimulatedNode};
use super::owner::{head_source, FollowingOwner};

fn followed() -> (SimulatedNode, FollowingOwner) {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let owner = FollowingOwner::start(head_source(&format!("http://{address}")));
    owner.wait_for_state("following", 100, Some(90));
    (node, owner)
}

#[test]
fn node_errors_are_reported_until_the_node_recovers() {
    let (node, owner) = followed();
    for (behaviour, words) in [
        (NodeBehaviour::Error, &["error -32000: overloaded"][..]),
        (NodeBehaviour::Page(502), &["HTTP 502"]),
        (
            NodeBehaviour::Page(301),
            &["HTTP 301", "redirects are not followed"],
        ),
        (NodeBehaviour::Page(200), &["invalid response", "<html>"]),
        (
            NodeBehaviour::Long(9 << 20),
            &["the response is longer than"],
        ),
        (NodeBehaviour::Silent, &["no response within 2000 ms"]),
        (
            NodeBehaviour::RequiresHeader("authorization", "x"),
            &["HTTP 401"],
        ),
    ] {
        node.set(behaviour);
        owner.wait_for_error(words);
        node.set(NodeBehaviour::Healthy);
        owner.wait_for_chain("no trouble", |chain| chain["error"].is_null());
    }
    // no failure lasted long
    assert_eq!(owner.log_count("cannot follow the node"), 0);
    owner.wait_for_state("following", 100, Some(90));
}

#[test]
fn finality_is_unknown_while_the_node_is_unreachable() {
    let (mut node, owner) = followed();
    node.stop();
    owner.wait_for_chain("unreachable", |chain| {
        chain["state"] == "unreachable" && chain["final"].is_null()
    });
    assert_eq!(owner.log_count("cannot follow the node: "), 1);
    node.chain().cut_to_head(98);
    node.chain().extend(2, 5);
    node.listen();
    owner.wait_for_state("following", 103, Some(90));
    assert_eq!(owner.log_count("cannot follow the node: "), 1);
    assert_eq!(owner.log_count("follows the chain"), 2);
}

#[test]
fn node_that_starts_after_the_owner_is_followed() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    node.stop();
    let owner = FollowingOwner::start(head_source(&format!("http://{address}")));
    owner.wait_for_error(&["refused"]);
    node.listen();
    owner.wait_for_state("following", 100, Some(90));
}

#[test]
fn finality_is_unknown_while_the_node_syncs_lags_or_cannot_report_it() {
    let (node, owner) = followed();
    node.chain().is_syncing = true;
    owner.wait_for_state("syncing", 100, None);
    node.chain().is_syncing = false;
    owner.wait_for_state("following", 100, Some(90));
    node.chain().finalized = None;
    owner.wait_for_error(&[
        "node cannot serve \"finalized\" (error -32000: unknown block); finality unknown",
    ]);
    owner.wait_for_state("following", 100, None);
    node.chain().finalized = Some(90);
    owner.wait_for_state("following", 100, Some(90));
    node.chain().cut_to_head(98);
    owner.wait_for_state("lagging", 100, None);
    // the lower head lasts
    owner.wait_for_state("following", 98, Some(90));
}

#[test]
fn configured_headers_are_sent_and_never_logged() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    node.set(NodeBehaviour::RequiresHeader(
        "authorization",
        "Bearer secret",
    ));
    let mut wanted = head_source(&format!("http://{address}"));
    wanted.headers = vec![("Authorization".into(), "Bearer secret".into())];
    assert!(!format!("{wanted:?}").contains("secret"));
    let owner = FollowingOwner::start(wanted);
    owner.wait_for_state("following", 100, Some(90));
    assert_eq!(owner.log_count("secret"), 0);
}
