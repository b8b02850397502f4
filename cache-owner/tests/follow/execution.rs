//! Chains followed in JSON-RPC over HTTP and Unix sockets.

use sszip_core::config::head_source::FinalizedBlockRule;

use super::node::SimulatedNode;
use super::owner::{head_source, FollowingOwner, NAMESPACE};

#[test]
fn chain_is_followed_over_http() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let owner = FollowingOwner::start(head_source(&format!("http://{address}/v1/secret")));
    owner.wait_for_state("following", 100, Some(90));
    node.chain().extend(1, 3);
    owner.wait_for_state("following", 103, Some(90));
    node.chain().finalized = Some(95);
    owner.wait_for_state("following", 103, Some(95));
    let chain = owner.chain();
    assert_eq!(chain["namespace"], NAMESPACE);
    assert_eq!(chain["name"], "mainnet");
    assert_eq!(chain["reorgs"], 0);
    assert_eq!(chain["error"], serde_json::Value::Null);
    // of blocks two seconds apart
    owner.wait_for_chain("the block time", |chain| chain["block_time"] == 2.0);
    node.chain().cut_to_head(100);
    node.chain().extend(2, 5);
    owner.wait_for_state("following", 105, Some(95));
    assert_eq!(owner.chain()["reorgs"], 1);
    // connections are reused
    assert!(node.script().connections < 8);
    assert_eq!(
        owner.log_count(&format!("follows mainnet at http://{address}")),
        1
    );
    assert_eq!(
        owner.log_count("mainnet: follows the chain: head 100, final 90"),
        1
    );
    assert_eq!(owner.log_count("secret"), 0);
    owner.stop();
}

#[test]
fn chain_is_followed_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.sock");
    let mut node = SimulatedNode::new();
    node.listen_unix(&path);
    let mut followed = head_source(&format!("unix:{}:/rpc", path.display()));
    followed.finality = FinalizedBlockRule::Depth(12);
    let owner = FollowingOwner::start(followed);
    owner.wait_for_state("following", 100, Some(88));
    node.chain().extend(1, 1);
    owner.wait_for_state("following", 101, Some(89));
    assert!(!node.take_requests().contains(&"finalized".to_owned()));
}

#[test]
fn replaced_final_blocks_are_purged() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let owner = FollowingOwner::start(head_source(&format!("http://{address}")));
    owner.wait_for_state("following", 100, Some(90));
    let before = owner.status()["generation"].as_u64().unwrap();
    node.chain().cut_to_head(80);
    node.chain().extend(2, 40);
    node.chain().finalized = Some(110);
    owner.wait_for_state("following", 120, Some(110));
    assert_eq!(owner.status()["generation"].as_u64().unwrap(), before + 1);
    assert_eq!(owner.log_count("finalized block 90 was replaced"), 1);
    assert_eq!(owner.log_count("block 0 and later are purged"), 1);
}

#[test]
fn recorded_mark_and_identity_are_checked_after_a_restart() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let url = format!("http://{address}");
    let owner = FollowingOwner::start(head_source(&url));
    owner.wait_for_state("following", 100, Some(90));
    // a mark is flushed together with later writes
    owner.purge(&format!(r#"{{"blocks":[1,1],"namespace":"{NAMESPACE}"}}"#));
    let store = owner.stop();
    node.chain().cut_to_head(80);
    node.chain().extend(2, 40);
    node.chain().finalized = Some(110);
    let owner = FollowingOwner::start_in(store, head_source(&url));
    owner.wait_for_state("following", 120, Some(110));
    // a mark that was only in memory may be lost, the identity is not
    let broken = owner.log_count("finalized block 90 was replaced");
    assert!(broken <= 1);
    let store = owner.stop();
    node.chain().id = 5;
    let owner = FollowingOwner::start_in(store, head_source(&url));
    owner.wait_for_chain("the wrong chain", |chain| chain["state"] == "wrong-chain");
}

#[test]
fn purged_namespace_accepts_another_chain() {
    let mut node = SimulatedNode::new();
    let address = node.listen();
    let owner = FollowingOwner::start(head_source(&format!("http://{address}")));
    owner.wait_for_state("following", 100, Some(90));
    {
        let mut chain = node.chain();
        chain.id = 5;
        for block in &mut chain.blocks {
            block.branch = 9;
        }
    }
    owner.wait_for_chain("the wrong chain", |chain| {
        chain["state"] == "wrong-chain" && chain["final"].is_null()
    });
    assert_eq!(owner.log_count("another chain (chain 5"), 1);
    owner.purge(&format!(r#"{{"namespace":"{NAMESPACE}"}}"#));
    owner.wait_for_state("following", 100, Some(90));
}
