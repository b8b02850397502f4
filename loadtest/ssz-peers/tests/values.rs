//! Random values of each type: the peers read the core's bytes, write the same ones, and compute
//! the same roots.

mod tier;

use ssz_peers::peers::all_peers;
use ssz_peers::{has_root, sample, table_of};
use sszip_core::ssz::{check_ssz, hash_tree_root};
use tier::times;

#[test]
fn peers_have_the_same_values_and_roots() {
    for (peer, codecs) in all_peers() {
        for codec in codecs {
            let (schema, ty) = table_of(codec.name);
            let is_state = codec.name.starts_with("BeaconState");
            for seed in 0..if is_state { 1 } else { times(8, 40) } {
                let ssz = sample::random_value_ssz(schema, ty, &mut fastrand::Rng::with_seed(seed));
                let context = format!("{}, seed {seed}, {peer}", codec.name);
                assert_eq!(check_ssz(schema, ty, &ssz), Ok(()), "{context}");
                let theirs = (codec.recode)(&ssz);
                assert!(theirs.as_ref() == Ok(&ssz), "{context}: other bytes");
                if !has_root(codec.name) {
                    continue;
                }
                let ours = hash_tree_root(schema, ty, &ssz).map_err(|error| error.to_string());
                assert_eq!(ours, (codec.root)(&ssz), "{context}");
            }
        }
    }
}
