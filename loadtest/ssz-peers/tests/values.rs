//! Random values of each type: the peers read the core's bytes, write the same ones, and compute
//! the same roots.

#[path = "../../../shared-core/tests/support/tier.rs"]
mod tier;

use ssz_peers::peers::peer_codecs_by_name;
use ssz_peers::{has_peer_hash_root, resolve_peer_type, sample};
use sszip_core::ssz::{check_ssz, hash_tree_root};
use tier::times;

#[test]
fn peers_have_the_same_values_and_roots() {
    for (peer, codecs) in peer_codecs_by_name() {
        for codec in codecs {
            let (schema, ty) = resolve_peer_type(codec.name);
            let is_state = codec.name.starts_with("BeaconState");
            for seed in 0..if is_state { 1 } else { times(4, 40) } {
                let ssz = sample::random_value_ssz(schema, ty, &mut fastrand::Rng::with_seed(seed));
                let context = format!("{}, seed {seed}, {peer}", codec.name);
                assert_eq!(check_ssz(schema, ty, &ssz), Ok(()), "{context}");
                let theirs = (codec.recode)(&ssz);
                assert!(theirs.as_ref() == Ok(&ssz), "{context}: other bytes");
                if !has_peer_hash_root(codec.name) {
                    continue;
                }
                let ours = hash_tree_root(schema, ty, &ssz).map_err(|error| error.to_string());
                assert_eq!(ours, (codec.root)(&ssz), "{context}");
            }
        }
    }
}
