//! Mutated SSZ: the core accepts it if, and only if, the strict peers do.

mod mutate;
#[path = "../../../shared-core/tests/support/tier.rs"]
mod tier;

use fastrand::Rng;
use ssz_peers::peers::peer_codecs_by_name;
use ssz_peers::{resolve_peer_type, sample};
use sszip_core::ssz::check_ssz;
use tier::times;

#[test]
fn mutated_ssz_is_refused_by_the_core_and_the_peers_alike() {
    let (mut taken, mut all) = (0, 0);
    // ssz_rs panics if an offset is past the end
    for (peer, codecs) in peer_codecs_by_name()
        .into_iter()
        .filter(|(peer, _)| *peer != "ssz_rs")
    {
        for codec in codecs {
            let (schema, ty) = resolve_peer_type(codec.name);
            let is_state = codec.name.starts_with("BeaconState");
            for seed in 0..if is_state { 1 } else { times(15, 50) } {
                let mut rng = Rng::with_seed(seed);
                let good = sample::random_value_ssz(schema, ty, &mut rng);
                for n in 0..20 {
                    let mut bytes = good.clone();
                    mutate::ssz(&mut bytes, &mut rng);
                    let context = format!("{}, seed {seed}, {n}, {peer}", codec.name);
                    all += 1;
                    match (check_ssz(schema, ty, &bytes), (codec.recode)(&bytes)) {
                        (Ok(()), Ok(theirs)) => {
                            taken += 1;
                            assert!(theirs == bytes, "{context}: other bytes");
                        }
                        (Err(_), Err(_)) => (),
                        (ours, theirs) => {
                            panic!("{context}: we say {ours:?}, they {:?}", theirs.err());
                        }
                    }
                }
            }
        }
    }
    // the mutations are effective
    assert!(taken > all / 5 && taken < all * 4 / 5, "{taken} of {all}");
}
