//! Roots by which values are requested, and the verification of values against them.

use super::ssz_routes::SszResponseType;
use super::values::TranscodedBody;
use crate::beacon;
use crate::ssz::{hash_tree_root, locate_value_at_path, Schema, TypeId};

/// The hash tree root of an SSZ value: 32 bytes.
pub type HashTreeRoot = [u8; 32];

/// Returns the path of the part of a value whose root names the value in a request's path, if there
/// is one. For a block and its header it is the signed message without the signature.
fn identifying_part_path(gives: SszResponseType) -> Option<&'static str> {
    match gives {
        SszResponseType::Type("BeaconState") => Some(""),
        SszResponseType::Type("SignedBeaconBlock") | SszResponseType::Blinded => Some("message"),
        SszResponseType::Type("LightClientBootstrap") => Some("header.beacon"),
        _ => None,
    }
}

/// Returns the root by which a target (path and query) requests its value, or `None` if the target
/// identifies the value in another way.
pub fn parse_requested_root(gives: SszResponseType, target: &[u8]) -> Option<HashTreeRoot> {
    identifying_part_path(gives)?;
    let (_, segments) = beacon::split_api_path(target)?;
    let digits = segments.last()?.strip_prefix(b"0x")?;
    const_hex::decode_to_array(digits).ok()
}

/// Whether the converted body is the value with the root `root`; false if the value can't be
/// verified.
pub fn verify_requested_root(
    made: &mut TranscodedBody,
    gives: SszResponseType,
    root: &HashTreeRoot,
) -> bool {
    let Some(body) = made.body.move_parts_into_order() else {
        return false;
    };
    made.of
        .is_some_and(|of| matches_hash_tree_root(of, body, gives, root))
}

/// Whether the SSZ of a response is the value with the root `root`, which takes one to two
/// milliseconds per megabyte.
pub fn matches_hash_tree_root(
    (schema, ty): (&Schema, TypeId),
    ssz: &[u8],
    gives: SszResponseType,
    root: &HashTreeRoot,
) -> bool {
    let found = || {
        let (ty, range) =
            locate_value_at_path(schema, ty, ssz, identifying_part_path(gives)?).ok()?;
        hash_tree_root(schema, ty, &ssz[range]).ok()
    };
    found().as_ref() == Some(root)
}

#[cfg(test)]
mod tests {
    use super::{identifying_part_path, parse_requested_root};
    use crate::ssz::schema::TypeKind;
    use crate::ssz::{Fork, Preset, Schema};
    use crate::transcode::ssz_routes::{ssz_response_type, SszResponseType};

    #[test]
    fn requested_root_is_read_from_the_last_path_segment() {
        let hex = "0x".to_owned() + &"aB".repeat(32);
        let of = |path: &str, id: &str| {
            let target = format!("/key{path}{id}?x=1");
            parse_requested_root(
                *ssz_response_type(b"GET", target.as_bytes())?,
                target.as_bytes(),
            )
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
        // on other routes it is not the root of the value
        assert_eq!(of("/eth/v1/beacon/blob_sidecars/", &hex), None);
        let consolidations = format!("/eth/v1/beacon/states/{hex}/pending_consolidations");
        assert_eq!(of(&consolidations, ""), None);
    }

    /// A misspelled part would make no value match its root.
    #[test]
    fn root_parts_exist_in_every_fork() {
        for response_type in [
            SszResponseType::Type("BeaconState"),
            SszResponseType::Type("SignedBeaconBlock"),
            SszResponseType::Blinded,
            SszResponseType::Type("LightClientBootstrap"),
        ] {
            for fork in Fork::ALL {
                let schema = Schema::for_fork(*fork, Preset::Mainnet);
                let name = response_type.type_name(*fork, None).unwrap();
                let Some(ty) = schema.find_type(name) else {
                    let is_later = response_type == SszResponseType::Blinded && *fork > Fork::Fulu;
                    assert!(is_later || *fork == Fork::Phase0, "{name} of {fork:?}");
                    continue;
                };
                let path = identifying_part_path(response_type).unwrap();
                path.split('.')
                    .filter(|step| !step.is_empty())
                    .fold(ty, |ty, step| {
                        let TypeKind::Container(container) = &schema.type_by_id(ty).kind else {
                            panic!("{name} has no {path}");
                        };
                        let mut fields = container.fields.iter();
                        fields.find(|field| *field.name == *step).unwrap().ty
                    });
            }
        }
    }
}
