//! Values with anchors: round trips, contradictions and damage.

use super::*;

const HASH: BlockHash = [0xab; 32];

const BY_RESULT: BlockAnchor = BlockAnchor::ByResult {
    height: 100,
    hash: HASH,
};

/// The attributes of an entry about block 100.
fn about_block(class: LifetimeClass) -> StoredEntryAttributes {
    StoredEntryAttributes {
        class,
        height: Some(100),
        ..about()
    }
}

fn encoded_with_anchor(
    about: &StoredEntryAttributes,
    anchor: Option<BlockAnchor>,
    keyring: &FleetKeyring,
) -> Option<Vec<u8>> {
    let entry = entry_of(about, b"null");
    let parts = FleetValueParts {
        anchor,
        ..parts(about, &entry)
    };
    encode_fleet_value(&parts, keyring)
}

#[test]
fn anchored_value_is_decoded_with_its_class_and_its_anchor() {
    for keyring in [keyring(b""), keyring(b"a")] {
        for class in [LifetimeClass::Immutable, LifetimeClass::Unfinalized] {
            let about = about_block(class);
            for anchor in [BY_RESULT, BlockAnchor::ByRequest(HASH)] {
                let value = encoded_with_anchor(&about, Some(anchor), &keyring).unwrap();
                let decoded = decode(&value, &keyring).unwrap();
                assert_eq!((decoded.about.class, decoded.anchor), (class, Some(anchor)));
                assert_eq!(value[112..144], HASH);
            }
        }
    }
}

#[test]
fn unfinalized_entry_without_an_anchor_is_not_encoded() {
    let keyring = keyring(b"a");
    let about = about_block(LifetimeClass::Unfinalized);
    assert!(encoded_with_anchor(&about, Some(BY_RESULT), &keyring).is_some());
    assert_eq!(encoded_with_anchor(&about, None, &keyring), None);
    for class in [
        LifetimeClass::Tip,
        LifetimeClass::Config,
        LifetimeClass::Resource,
    ] {
        let about = about_block(class);
        let value = encoded_with_anchor(&about, Some(BY_RESULT), &keyring);
        assert_eq!(value, None, "{class:?}");
    }
}

#[test]
fn entry_about_another_block_than_its_anchor_is_not_encoded() {
    let keyring = keyring(b"a");
    for (block, height, expected) in [
        (Some(100), Some(100), true),
        // a range of one block
        (None, Some(100), true),
        (Some(99), Some(100), false),
        (Some(100), Some(101), false),
        (Some(100), None, false),
        (None, None, false),
    ] {
        let about = StoredEntryAttributes {
            block,
            height,
            ..about()
        };
        let value = encoded_with_anchor(&about, Some(BY_RESULT), &keyring);
        assert_eq!(value.is_some(), expected, "{block:?} {height:?}");
        let by_request = Some(BlockAnchor::ByRequest(HASH));
        assert!(encoded_with_anchor(&about, by_request, &keyring).is_some());
    }
}

#[test]
fn anchor_that_contradicts_the_entry_is_rejected() {
    for keyring in [keyring(b""), keyring(b"a")] {
        // its block is 100 and its height 101
        let value = encoded(&keyring);
        let with_flag = |flag: u8| {
            let other = changed(&value, &keyring, |content| content[4] |= flag);
            decode(&other, &keyring).map(|value| value.anchor)
        };
        assert_eq!(with_flag(32), Err(FleetValueRejection::Entry));
        assert_eq!(with_flag(48), Err(FleetValueRejection::Version));
        let zero = BlockAnchor::ByRequest([0; 32]);
        assert_eq!(with_flag(16), Ok(Some(zero)));
    }
}

#[test]
fn damaged_anchor_is_rejected() {
    for keyring in [keyring(b""), keyring(b"a")] {
        let about = about_block(LifetimeClass::Unfinalized);
        let value = encoded_with_anchor(&about, Some(BY_RESULT), &keyring).unwrap();
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged, &keyring).is_err(), "byte {}", bit / 8);
        }
        for length in 0..value.len() {
            let result = decode(&value[..length], &keyring);
            assert_eq!(result, Err(FleetValueRejection::Truncated), "{length}");
        }
    }
}
