//! The Beacon API.

use sszip_core::config::follow::{Api, Finality, Follow};

use super::node::Node;
use super::owner::{head, Owner};

fn beacon(url: &str) -> Follow {
    Follow {
        api: Api::Beacon,
        ..head(url)
    }
}

#[test]
fn slots_are_followed_empty_ones_too() {
    let mut node = Node::new();
    let address = node.listen();
    let owner = Owner::start(beacon(&format!("http://{address}")));
    // the slots 100 and 90 are empty
    owner.wait_for("following", 99, Some(89));
    node.chain().extend(1, 5);
    owner.wait_for("following", 105, Some(89));
    node.chain().finalized = Some(97);
    owner.wait_for("following", 105, Some(97));
    node.chain().cut(102);
    node.chain().extend(2, 9);
    owner.wait_for("following", 111, Some(97));
    assert_eq!(owner.chain()["reorgs"], 1);
    node.chain().is_syncing = true;
    owner.wait_for("syncing", 111, None);
}

#[test]
fn a_depth_ends_at_a_slot_that_has_a_block() {
    let mut node = Node::new();
    let address = node.listen();
    let mut head = beacon(&format!("http://{address}/"));
    head.finality = Finality::Depth(3);
    let owner = Owner::start(head);
    owner.wait_for("following", 99, Some(95));
}

#[test]
fn an_event_asks_at_once() {
    let mut node = Node::new();
    let address = node.listen();
    let mut slow = beacon(&format!("http://{address}"));
    slow.interval = 20_000;
    let owner = Owner::start(slow);
    owner.wait_for("following", 99, Some(89));
    let is_listening = |asked: &[String]| asked.iter().any(|path| path.contains("events"));
    let mut asked = node.take_asked();
    for _ in 0..500 {
        if is_listening(&asked) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        asked.extend(node.take_asked());
    }
    assert!(is_listening(&asked), "{asked:?}");
    let start = std::time::Instant::now();
    node.chain().extend(1, 1);
    node.announce();
    owner.wait_for("following", 101, Some(89));
    assert!(start.elapsed().as_secs() < 20);
}
