//! Recorded objects whose roots are known from other sources. Each test is skipped if
//! `../shared/corpus` is absent.

use std::path::Path;

use serde_json::value::RawValue;
use sszip_core::ssz::{hash_tree_root, json_to_ssz, Fork, Preset, Schema};

fn recorded(test: &str, name: &str) -> Option<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    if !corpus.exists() {
        eprintln!("skipped {test}: ../shared/corpus is absent");
        return None;
    }
    Some(std::fs::read(corpus.join(name)).unwrap())
}

fn root(fork: Fork, ty: &str, ssz: &[u8]) -> String {
    let schema = Schema::for_fork(fork, Preset::Mainnet);
    let root = hash_tree_root(schema, schema.find_type(ty).unwrap(), ssz).unwrap();
    hex(&root)
}

fn root_of_json(fork: Fork, ty: &str, json: &[u8]) -> String {
    let schema = Schema::for_fork(fork, Preset::Mainnet);
    let ssz = json_to_ssz(schema, schema.find_type(ty).unwrap(), json).unwrap();
    root(fork, ty, &ssz)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the member of a recorded response at `path`.
fn part<'j>(json: &'j [u8], path: &[&str]) -> &'j str {
    type Object<'j> = sszip_core::hash_keys::HashMap<String, &'j RawValue>;
    let mut part = std::str::from_utf8(json).unwrap();
    for name in path {
        let object: Object<'_> = serde_json::from_str(part).unwrap();
        part = object[*name].get();
    }
    part
}

#[test]
fn root_of_the_sepolia_genesis_state_equals_the_networks() {
    let name = "beacon/sepolia_genesis_state_phase0.ssz";
    if let Some(state) = recorded(
        "root_of_the_sepolia_genesis_state_equals_the_networks",
        name,
    ) {
        // the state root of block 0 of that network
        let known = "fb9afe32150fa39f4b346be2519a67e2a4f5efcd50a1dc192c3f6b3d013d2798";
        assert_eq!(root(Fork::Phase0, "BeaconState", &state), known);
    }
}

/// A block, and the header of its child as light clients receive it.
#[test]
fn root_of_a_block_equals_the_parent_root_of_its_child() {
    let test = "root_of_a_block_equals_the_parent_root_of_its_child";
    let block = recorded(test, "beacon/block_capella_7109430.json");
    let update = recorded(test, "beacon/optimistic.json");
    if let (Some(block), Some(update)) = (block, update) {
        let block = part(&block, &["data", "message"]);
        let path = ["data", "attested_header", "beacon", "parent_root"];
        let root = root_of_json(Fork::Capella, "BeaconBlock", block.as_bytes());
        assert_eq!(part(&update, &path), format!("\"0x{root}\""));
    }
}

#[test]
fn root_of_a_deneb_block_equals_the_reference() {
    if let Some(block) = recorded(
        "root_of_a_deneb_block_equals_the_reference",
        "beacon/block_deneb.json",
    ) {
        // computed by consensus-specs v1.7.0-alpha.13
        let known = "6501aa5db10d46cd2c905554bc63fbd7f0075124848763e935980877e8587bd9";
        assert_eq!(root_of_json(Fork::Deneb, "BeaconBlock", &block), known);
    }
}
