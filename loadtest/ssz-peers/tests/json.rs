//! JSON through serde and structs, compared with the core's walkers.

mod mutate;
#[path = "../../../shared-core/tests/support/tier.rs"]
mod tier;

use fastrand::Rng;
use ssz_peers::peers::{peer_codecs_by_name, JsonLibrary};
use ssz_peers::{resolve_peer_type, sample};
use sszip_core::ssz::{json_to_ssz, ssz_to_json, SszError};
use tier::times;

#[test]
fn random_values_have_the_same_json() {
    for (peer, codecs) in peer_codecs_by_name() {
        for codec in codecs {
            let Some(json) = codec.json else { continue };
            let (schema, ty) = resolve_peer_type(codec.name);
            let is_state = codec.name.starts_with("BeaconState");
            for seed in 0..if is_state { 1 } else { times(5, 40) } {
                let ssz = sample::random_value_ssz(schema, ty, &mut Rng::with_seed(seed));
                let context = format!("{}, seed {seed}, {peer}", codec.name);
                let ours = ssz_to_json(schema, ty, &ssz).expect(&context);
                let back = json_to_ssz(schema, ty, &ours);
                assert!(back.as_ref() == Ok(&ssz), "{context}: our SSZ");
                for serde in JsonLibrary::ALL {
                    let theirs = (json.from_ssz)(&ssz, serde);
                    assert!(theirs.as_ref() == Ok(&ours), "{context}, {serde}: JSON");
                    let back = (json.to_ssz)(&ours, serde);
                    assert!(back.as_ref() == Ok(&ssz), "{context}, {serde}: SSZ");
                }
            }
        }
    }
}

#[test]
fn mutated_json_is_accepted_by_the_core_and_the_peers_alike() {
    let (mut taken, mut all) = (0, 0);
    for (peer, codecs) in peer_codecs_by_name() {
        for codec in codecs {
            let Some(json) = codec.json else { continue };
            if codec.name.starts_with("BeaconState") {
                continue;
            }
            let (schema, ty) = resolve_peer_type(codec.name);
            for seed in 0..times(3, 20) {
                let mut rng = Rng::with_seed(seed);
                let ssz = sample::random_value_ssz(schema, ty, &mut rng);
                let good = ssz_to_json(schema, ty, &ssz).expect(codec.name);
                for n in 0..30 {
                    let mut text = good.clone();
                    mutate::json(&mut text, &mut rng);
                    let context = format!("{}, seed {seed}, {n}, {peer}", codec.name);
                    all += 1;
                    match (
                        json_to_ssz(schema, ty, &text),
                        (json.to_ssz)(&text, JsonLibrary::SerdeJson),
                    ) {
                        (Ok(ours), Ok(theirs)) => {
                            taken += 1;
                            assert!(ours == theirs, "{context}: other SSZ");
                        }
                        (Err(_), Err(_)) => (),
                        (Err(ours), Ok(_)) if is_known(&ours, &text) => (),
                        (ours, theirs) => {
                            let text = String::from_utf8_lossy(&text);
                            panic!("{context}: we say {ours:?}, they {theirs:?}: {text}");
                        }
                    }
                }
            }
        }
    }
    // the mutations are effective
    assert!(taken > all / 20 && taken < all * 4 / 5, "{taken} of {all}");
}

/// Whether the difference is known: Rust's numbers (`+1`, `01`) and const-hex (`0x0x`) accept
/// notations that the Beacon API does not define.
fn is_known(ours: &SszError, text: &[u8]) -> bool {
    let at = (ours.byte_offset() as usize).min(text.len());
    let (before, rest) = text.split_at(at);
    let is_prefix = before.ends_with(b"\"0x0") && rest.starts_with(b"x");
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
    is_prefix || rest.starts_with(b"+") || {
        rest.starts_with(b"0") && rest.get(1).is_some_and(u8::is_ascii_digit)
    }
}
