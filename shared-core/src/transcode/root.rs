//! What is asked for by a root, and whether a value is that.

use super::route::Gives;
use super::stage::Made;
use crate::beacon;
use crate::ssz::{hash_tree_root, select, Schema, TypeId};

/// The root of a tree.
pub type Root = [u8; 32];

/// The part of a value whose root its path has for a name, if there is one: of a
/// block and its header what was signed, without the signature.
fn part(gives: Gives) -> Option<&'static str> {
    match gives {
        Gives::Type("BeaconState") => Some(""),
        Gives::Type("SignedBeaconBlock") | Gives::Blinded => Some("message"),
        Gives::Type("LightClientBootstrap") => Some("header.beacon"),
        _ => None,
    }
}

/// The root that a target (path and query) asks for; `None`: it names what it wants
/// in another way.
pub fn asked(gives: Gives, target: &[u8]) -> Option<Root> {
    part(gives)?;
    let (_, segments) = beacon::path(target)?;
    let digits = segments.last()?.strip_prefix(b"0x")?;
    const_hex::decode_to_array(digits).ok()
}

/// Whether what was made is the value of that root. What can't be told is not.
pub fn is_of(made: &mut Made, gives: Gives, root: &Root) -> bool {
    let Some(body) = made.body.in_order() else {
        return false;
    };
    made.of.is_some_and(|of| has(of, body, gives, root))
}

/// Whether a value of a type has that root. Takes a millisecond for each megabyte,
/// or two.
pub fn has((schema, ty): (&Schema, TypeId), ssz: &[u8], gives: Gives, root: &Root) -> bool {
    let found = || {
        let (ty, range) = select(schema, ty, ssz, part(gives)?).ok()?;
        hash_tree_root(schema, ty, &ssz[range]).ok()
    };
    found().as_ref() == Some(root)
}

#[cfg(test)]
mod tests {
    use super::{asked, part};
    use crate::ssz::schema::Kind;
    use crate::ssz::{Fork, Preset, Schema};
    use crate::transcode::route::{gives, Gives};

    #[test]
    fn a_root_is_the_last_segment_of_some_routes() {
        let hex = "0x".to_owned() + &"aB".repeat(32);
        let of = |path: &str, id: &str| {
            let target = format!("/key{path}{id}?x=1");
            asked(*gives(b"GET", target.as_bytes())?, target.as_bytes())
        };
        for path in [
            "/eth/v2/beacon/blocks/",
            "/eth/v1/beacon/blinded_blocks/",
            "/eth/v2/debug/beacon/states/",
            "/eth/v1/beacon/light_client/bootstrap/",
        ] {
            assert_eq!(of(path, &hex), Some([0xab; 32]), "{path}");
            for id in ["head", "7", &hex[2..], &hex[..64], &(hex.clone() + "ab")] {
                assert_eq!(of(path, id), None, "{path}{id}");
            }
        }
        // of other things it is not the root
        assert_eq!(of("/eth/v1/beacon/blob_sidecars/", &hex), None);
        let consolidations = format!("/eth/v1/beacon/states/{hex}/pending_consolidations");
        assert_eq!(of(&consolidations, ""), None);
    }

    /// A part that is misspelt would be a value that is never the right one.
    #[test]
    fn each_part_is_there_in_each_fork() {
        for given in [
            Gives::Type("BeaconState"),
            Gives::Type("SignedBeaconBlock"),
            Gives::Blinded,
            Gives::Type("LightClientBootstrap"),
        ] {
            for fork in Fork::ALL {
                let schema = Schema::of(*fork, Preset::Mainnet);
                let name = given.name(*fork, None).unwrap();
                let Some(ty) = schema.find(name) else {
                    let is_later = given == Gives::Blinded && *fork > Fork::Fulu;
                    assert!(is_later || *fork == Fork::Phase0, "{name} of {fork:?}");
                    continue;
                };
                let path = part(given).unwrap();
                path.split('.')
                    .filter(|step| !step.is_empty())
                    .fold(ty, |ty, step| {
                        let Kind::Container(container) = &schema.get(ty).kind else {
                            panic!("{name} has no {path}");
                        };
                        let mut fields = container.fields.iter();
                        fields.find(|field| *field.name == *step).unwrap().ty
                    });
            }
        }
    }
}
