//! Nodes that are not well: what is said, and that it passes.

use super::node::{Mood, Node};
use super::owner::{head, Owner};

fn followed() -> (Node, Owner) {
    let mut node = Node::new();
    let address = node.listen();
    let owner = Owner::start(head(&format!("http://{address}")));
    owner.wait_for("following", 100, Some(90));
    (node, owner)
}

#[test]
fn every_trouble_has_its_words_and_passes() {
    let (node, owner) = followed();
    for (mood, words) in [
        (Mood::Error, &["error -32000: overloaded"][..]),
        (Mood::Page(502), &["HTTP 502"]),
        (Mood::Page(301), &["HTTP 301", "redirects are not followed"]),
        (Mood::Page(200), &["can't be read", "<html>"]),
        (Mood::Long(9 << 20), &["an answer of more than"]),
        (Mood::Silent, &["no answer within 2000 ms"]),
        (Mood::Wants("authorization", "x"), &["HTTP 401"]),
    ] {
        node.set(mood);
        owner.wait_for_error(words);
        node.set(Mood::Well);
        owner.wait("no trouble", |chain| chain["error"].is_null());
    }
    // none of it took long
    assert_eq!(owner.said("cannot follow the node"), 0);
    owner.wait_for("following", 100, Some(90));
}

#[test]
fn a_node_that_is_down_for_long_makes_nothing_final() {
    let (mut node, owner) = followed();
    node.stop();
    owner.wait("unreachable", |chain| {
        chain["state"] == "unreachable" && chain["final"].is_null()
    });
    assert_eq!(owner.said("cannot follow the node: "), 1);
    node.chain().cut(98);
    node.chain().extend(2, 5);
    node.listen();
    owner.wait_for("following", 103, Some(90));
    assert_eq!(owner.said("cannot follow the node: "), 1);
    assert_eq!(owner.said("follows the chain"), 2);
}

#[test]
fn a_node_that_is_not_there_yet_is_waited_for() {
    let mut node = Node::new();
    let address = node.listen();
    node.stop();
    let owner = Owner::start(head(&format!("http://{address}")));
    owner.wait_for_error(&["refused"]);
    node.listen();
    owner.wait_for("following", 100, Some(90));
}

#[test]
fn nothing_is_final_that_may_not_be() {
    let (node, owner) = followed();
    node.chain().is_syncing = true;
    owner.wait_for("syncing", 100, None);
    node.chain().is_syncing = false;
    owner.wait_for("following", 100, Some(90));
    node.chain().finalized = None;
    owner.wait_for_error(&[
        "node cannot serve \"finalized\" (error -32000: unknown block); finality unknown",
    ]);
    owner.wait_for("following", 100, None);
    node.chain().finalized = Some(90);
    owner.wait_for("following", 100, Some(90));
    node.chain().cut(98);
    owner.wait_for("lagging", 100, None);
    // it lasts
    owner.wait_for("following", 98, Some(90));
}

#[test]
fn fields_are_sent_and_never_said() {
    let mut node = Node::new();
    let address = node.listen();
    node.set(Mood::Wants("authorization", "Bearer secret"));
    let mut wanted = head(&format!("http://{address}"));
    wanted.headers = vec![("Authorization".into(), "Bearer secret".into())];
    assert!(!format!("{wanted:?}").contains("secret"));
    let owner = Owner::start(wanted);
    owner.wait_for("following", 100, Some(90));
    assert_eq!(owner.said("secret"), 0);
}
