//! Recorded values, on which the peers and the core have the same output.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{json, Value};
use ssz_peers::peers::{peer_codecs_by_name, JsonLibrary, PeerTypeCodec};
use ssz_peers::{has_peer_hash_root, resolve_peer_type};
use sszip_core::ssz::{check_ssz, hash_tree_root, json_to_ssz, ssz_to_json};

fn recorded(name: &str) -> Option<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    if !corpus.is_dir() {
        eprintln!("skipped {name}: ../shared/corpus is absent");
        return None;
    }
    Some(corpus.join(name))
}

fn codecs(name: &str) -> impl Iterator<Item = (&'static str, &'static PeerTypeCodec)> + '_ {
    peer_codecs_by_name()
        .into_iter()
        .flat_map(move |(peer, codecs)| {
            let of_name = codecs.iter().filter(move |codec| codec.name == name);
            of_name.map(move |codec| (peer, codec))
        })
}

/// Asserts that all peers read and write `ssz`, and compute the core's root.
fn same_ssz(name: &str, ssz: &[u8]) {
    let (schema, ty) = resolve_peer_type(name);
    assert_eq!(check_ssz(schema, ty, ssz), Ok(()));
    let root = hash_tree_root(schema, ty, ssz).expect(name);
    for (peer, codec) in codecs(name) {
        let theirs = (codec.recode)(ssz);
        assert!(theirs.is_ok_and(|theirs| theirs == ssz), "{peer}: SSZ");
        if has_peer_hash_root(name) {
            assert_eq!((codec.root)(ssz), Ok(root), "{peer}");
        }
    }
}

/// Asserts that all peers convert `json` to the core's SSZ and back; returns the SSZ.
fn same_json(name: &str, json: &[u8]) -> Vec<u8> {
    let (schema, ty) = resolve_peer_type(name);
    let ours = json_to_ssz(schema, ty, json).expect(name);
    let back = ssz_to_json(schema, ty, &ours).expect(name);
    for (peer, codec) in codecs(name) {
        let Some(typed) = codec.json else { continue };
        for serde in JsonLibrary::ALL {
            let theirs = (typed.to_ssz)(json, serde);
            assert!(theirs.as_ref() == Ok(&ours), "{peer}, {serde}: SSZ");
            let theirs = (typed.from_ssz)(&ours, serde);
            assert!(theirs.as_ref() == Ok(&back), "{peer}, {serde}: JSON");
        }
    }
    ours
}

#[test]
fn mainnet_block_has_the_same_ssz_and_json_in_all_peers() {
    let Some(path) = recorded("beacon/block_deneb.json") else {
        return;
    };
    let message: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let block = json!({"message": message, "signature": format!("0x{}", "5a".repeat(96))});
    let compact = same_json("SignedBeaconBlock", &serde_json::to_vec(&block).unwrap());
    let indented = same_json(
        "SignedBeaconBlock",
        &serde_json::to_vec_pretty(&block).unwrap(),
    );
    assert!(compact == indented);
    same_ssz("SignedBeaconBlock", &compact);
}

#[test]
fn sepolia_genesis_has_the_same_ssz_and_json_in_all_peers() {
    let Some(path) = recorded("beacon/sepolia_genesis_state_phase0.ssz") else {
        return;
    };
    let ssz = fs::read(path).unwrap();
    same_ssz("BeaconStatePhase0", &ssz);
    let (schema, ty) = resolve_peer_type("BeaconStatePhase0");
    let json = ssz_to_json(schema, ty, &ssz).unwrap();
    assert!(same_json("BeaconStatePhase0", &json) == ssz);
}

#[test]
fn hoodi_witness_has_the_same_ssz_and_json_in_all_peers() {
    let Some(path) = recorded("witness/cache_hoodi_1265656.json") else {
        return;
    };
    let cache: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let witness = serde_json::to_vec(&cache["witness"]).unwrap();
    same_ssz("ExecutionWitness", &same_json("ExecutionWitness", &witness));
}
