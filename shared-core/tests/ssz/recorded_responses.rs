//! Recorded responses of beacon nodes convert in both directions.

use serde_json::Value;
use sszip_core::ssz::{
    check_ssz, hash_tree_root, json_to_ssz, locate_value_at_path, ssz_to_json, Fork, Preset, Schema,
};

fn read(name: &str) -> Option<Vec<u8>> {
    let file = crate::corpus()?.join("beacon").join(name);
    Some(std::fs::read(file).unwrap())
}

/// Converts a value to SSZ and back, and compares it without the case of hexadecimal digits.
fn both_ways(fork: Fork, ty: &str, value: &Value) -> Vec<u8> {
    let schema = Schema::for_fork(fork, Preset::Mainnet);
    let ty = schema.find_type(ty).unwrap();
    let ssz = json_to_ssz(schema, ty, value.to_string().as_bytes()).unwrap();
    check_ssz(schema, ty, &ssz).unwrap();
    let back: Value = serde_json::from_slice(&ssz_to_json(schema, ty, &ssz).unwrap()).unwrap();
    assert_eq!(
        back.to_string().to_lowercase(),
        value.to_string().to_lowercase()
    );
    ssz
}

#[test]
fn responses_of_beacon_nodes_convert_in_both_directions() {
    for (name, ty) in [
        ("block_capella_7109344.json", "SignedBeaconBlock"),
        ("block_capella_7109430.json", "SignedBeaconBlock"),
        ("bootstrap.json", "LightClientBootstrap"),
        ("updates.json", "LightClientUpdate"),
        ("optimistic.json", "LightClientOptimisticUpdate"),
    ] {
        let Some(text) = read(name) else {
            eprintln!("skipped: no ../shared/corpus");
            return;
        };
        let value: Value = serde_json::from_slice(&text).unwrap();
        let answers = match value {
            Value::Array(all) => all,
            one => vec![one],
        };
        for answer in answers {
            let fork = answer["version"].as_str().unwrap().parse().unwrap();
            both_ways(fork, ty, &answer["data"]);
        }
    }
}

#[test]
fn block_of_deneb_converts_in_both_directions() {
    let Some(text) = read("block_deneb.json") else {
        eprintln!("skipped: no ../shared/corpus");
        return;
    };
    let block: Value = serde_json::from_slice(&text).unwrap();
    both_ways(Fork::Deneb, "BeaconBlock", &block);
}

#[test]
fn genesis_state_converts_and_has_its_known_validators_root() {
    let Some(ssz) = read("sepolia_genesis_state_phase0.ssz") else {
        eprintln!("skipped: no ../shared/corpus");
        return;
    };
    let schema = Schema::for_fork(Fork::Phase0, Preset::Mainnet);
    let ty = schema.find_type("BeaconState").unwrap();
    let json = ssz_to_json(schema, ty, &ssz).unwrap();
    assert!(json_to_ssz(schema, ty, &json).unwrap() == ssz);
    // the root that the chain itself uses for its genesis
    let (validators, range) = locate_value_at_path(schema, ty, &ssz, "validators").unwrap();
    let root = hash_tree_root(schema, validators, &ssz[range]).unwrap();
    let named = locate_value_at_path(schema, ty, &ssz, "genesis_validators_root")
        .unwrap()
        .1;
    assert_eq!(root, ssz[named]);
}
