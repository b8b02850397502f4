//! Rejections of values: damage, other keys and versions, wrong lengths and times.

use super::*;

#[test]
fn truncated_or_extended_value_is_rejected() {
    for keyring in [keyring(b""), keyring(b"a")] {
        let value = encoded(&keyring);
        for length in 0..value.len() {
            let result = decode(&value[..length], &keyring);
            assert_eq!(result, Err(FleetValueRejection::Truncated), "{length}");
        }
        let longer = [&value[..], &[0]].concat();
        assert_eq!(
            decode(&longer, &keyring),
            Err(FleetValueRejection::Truncated)
        );
    }
}

#[test]
fn value_with_a_flipped_bit_is_rejected() {
    for keyring in [keyring(b""), keyring(b"a")] {
        let value = encoded(&keyring);
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged, &keyring).is_err(), "byte {}", bit / 8);
        }
    }
}

#[test]
fn value_is_accepted_only_with_a_key_file_of_its_writer() {
    for (writer, reader, expected) in [
        (&b""[..], &b""[..], true),
        (b"a", b"a", true),
        (b"a", b"ab", true),
        (b"a", b"ba", true),
        (b"ab", b"b", false),
        (b"a", b"b", false),
        (b"a", b"", false),
        (b"", b"a", false),
        (b"", b"ab", false),
    ] {
        let result = decode(&encoded(&keyring(writer)), &keyring(reader));
        let rejection = result.err();
        let expected = (!expected).then_some(FleetValueRejection::Tag);
        assert_eq!(rejection, expected, "{writer:?} {reader:?}");
    }
}

#[test]
fn checksum_in_place_of_a_tag_is_rejected_with_a_key_file() {
    let (keyed, unkeyed) = (keyring(b"a"), keyring(b""));
    // the flag of a tag with a key file, and a checksum
    let value = changed(&encoded(&unkeyed), &unkeyed, |content| {
        content[4] |= KEYED_FLAG;
    });
    assert_eq!(decode(&value, &keyed), Err(FleetValueRejection::Tag));
    assert_eq!(decode(&value, &unkeyed), Err(FleetValueRejection::Tag));
}

#[test]
fn value_of_another_version_is_rejected() {
    for keyring in [keyring(b""), keyring(b"a")] {
        let about = StoredEntryAttributes {
            block: None,
            height: None,
            ..about()
        };
        let entry = entry_of(&about, b"null");
        let parts = FleetValueParts {
            identity: ChainIdentity {
                chain_id: None,
                genesis: [9; 32],
            },
            ..parts(&about, &entry)
        };
        let value = encode_fleet_value(&parts, &keyring).unwrap();
        assert!(decode(&value, &keyring).is_ok());
        let version = usize::from(wire::ENTRY_FORMAT_VERSION);
        for (at, byte) in [
            (0, usize::from(b's')),
            (3, 2),
            (4, usize::from(value[4]) | 64),
            // two anchors, and one by the result without its height
            (4, usize::from(value[4]) | 48),
            (4, usize::from(value[4]) | 32),
            (6, version + 1),
            (6, version - 1),
            (7, 2),
            // fields that are unused
            (8, 1),
            (96, 1),
            (104, 1),
            (112, 1),
            (143, 1),
            (181, 1),
            (183, 1),
        ] {
            let other = changed(&value, &keyring, |content| content[at] = byte as u8);
            let result = decode(&other, &keyring);
            assert_eq!(result, Err(FleetValueRejection::Version), "{at}");
        }
        // no such class, and one that needs an anchor
        for class in [1, 2, 255] {
            let other = changed(&value, &keyring, |content| content[5] = class);
            assert_eq!(decode(&other, &keyring), Err(FleetValueRejection::Class));
        }
    }
}

fn entry_length(value: &[u8]) -> u32 {
    let length = &value[ENTRY_LENGTH_OFFSET..METHOD_LENGTH_OFFSET];
    u32::from_le_bytes(length.try_into().unwrap())
}

fn set_entry_length(content: &mut [u8], length: u32) {
    let field = &mut content[ENTRY_LENGTH_OFFSET..METHOD_LENGTH_OFFSET];
    field.copy_from_slice(&length.to_le_bytes());
}

#[test]
fn value_with_wrong_lengths_is_rejected() {
    for keyring in [keyring(b""), keyring(b"a")] {
        let value = encoded(&keyring);
        let length = entry_length(&value);
        for (claimed, expected) in [
            (0, FleetValueRejection::Truncated),
            (length - 1, FleetValueRejection::Truncated),
            (length + 1, FleetValueRejection::Truncated),
            (MAX_ENTRY as u32, FleetValueRejection::Truncated),
            (MAX_ENTRY as u32 + 1, FleetValueRejection::TooLong),
            (u32::MAX, FleetValueRejection::TooLong),
        ] {
            let other = changed(&value, &keyring, |content| {
                set_entry_length(content, claimed);
            });
            assert_eq!(decode(&other, &keyring), Err(expected), "{claimed}");
        }
        let method = value[METHOD_LENGTH_OFFSET];
        for claimed in [0, method - 1, method + 1, 255] {
            let other = changed(&value, &keyring, |content| {
                content[METHOD_LENGTH_OFFSET] = claimed;
            });
            let result = decode(&other, &keyring);
            assert_eq!(result, Err(FleetValueRejection::Truncated), "{claimed}");
        }
        // a byte of the entry becomes a byte of the method
        let moved = changed(&value, &keyring, |content| {
            content[METHOD_LENGTH_OFFSET] += 1;
            set_entry_length(content, length - 1);
        });
        assert_eq!(decode(&moved, &keyring), Err(FleetValueRejection::Entry));
    }
}

#[test]
fn value_beyond_the_limit_is_rejected_unread() {
    let keyring = keyring(b"a");
    let value = encoded(&keyring);
    let length = entry_length(&value) as usize;
    let decode_within = |bytes: &[u8], max_entry| {
        let decoded = decode_fleet_value(bytes.to_vec(), &keyring, &KEY, NOW, max_entry);
        decoded.map(|value| value.entry.len())
    };
    assert_eq!(decode_within(&value, length), Ok(length));
    assert_eq!(decode_within(&value, usize::MAX), Ok(length));
    assert_eq!(
        decode_within(&value, length - 1),
        Err(FleetValueRejection::TooLong)
    );
    assert_eq!(decode_within(&value, 0), Err(FleetValueRejection::TooLong));
    let garbage = vec![0; length + MAX_OVERHEAD + 1];
    assert_eq!(
        decode_within(&garbage, length),
        Err(FleetValueRejection::TooLong)
    );
    let garbage = &garbage[1..];
    assert_eq!(
        decode_within(garbage, length),
        Err(FleetValueRejection::Version)
    );
}

#[test]
fn value_of_another_cache_key_is_rejected() {
    for keyring in [keyring(b""), keyring(b"a")] {
        let value = encoded(&keyring);
        for bit in 0..256 {
            let mut other = KEY;
            other[bit / 8] ^= 1 << (bit % 8);
            let result = decode_fleet_value(value.clone(), &keyring, &other, NOW, MAX_ENTRY);
            assert_eq!(result, Err(FleetValueRejection::Key), "{bit}");
        }
    }
}

#[test]
fn value_is_accepted_while_its_times_are_possible() {
    let keyring = keyring(b"a");
    let about = about();
    let entry = entry_of(&about, b"null");
    for (requested_at, expires_at, stored_at, expected) in [
        (NOW, NOW + 1, NOW, true),
        (0, u64::MAX, 0, true),
        // expired
        (NOW - 10, NOW, NOW, false),
        (NOW - 10, NOW - 1, NOW, false),
        (0, 0, 0, false),
        // the writer's clock is ahead
        (NOW + 60_000, NOW + 60_001, NOW + 60_000, true),
        (NOW + 60_001, NOW + 70_000, NOW, false),
        (NOW, NOW + 70_000, NOW + 60_001, false),
        (u64::MAX, u64::MAX, NOW, false),
        // it expires before it was requested
        (NOW + 100, NOW + 50, NOW, false),
        (NOW + 100, NOW + 100, NOW, false),
    ] {
        let parts = FleetValueParts {
            requested_at,
            expires_at,
            stored_at,
            ..parts(&about, &entry)
        };
        let value = encode_fleet_value(&parts, &keyring).unwrap();
        let result = decode(&value, &keyring).map(|value| value.requested_at);
        let expected = match expected {
            true => Ok(requested_at),
            false => Err(FleetValueRejection::Time),
        };
        assert_eq!(result, expected, "{requested_at} {expires_at} {stored_at}");
    }
}

#[test]
fn entry_that_contradicts_its_header_is_rejected() {
    for keyring in [keyring(b""), keyring(b"a")] {
        let value = encoded(&keyring);
        let entry_of_meta = |change: &dyn Fn(&mut EntryMetadata)| {
            let mut meta = metadata_of(&about());
            meta.follows = None;
            change(&mut meta);
            let id = ResponseIdPosition::BeforeResult;
            bytes_of(&entry_with_metadata(id, b"null", meta))
        };
        let accepts = |entry: &[u8]| {
            let other = replace_entry(&value, &keyring, entry);
            match decode(&other, &keyring) {
                Ok(_) => true,
                Err(FleetValueRejection::Entry) => false,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert!(accepts(&entry_of_meta(&|_| {})));
        let changes: [&dyn Fn(&mut EntryMetadata); 8] = [
            &|meta| meta.class = LifetimeClass::Tip,
            &|meta| meta.block_number = Some(99),
            &|meta| meta.block_number = None,
            &|meta| meta.height = Some(100),
            &|meta| meta.height = None,
            &|meta| meta.status = 206,
            // the epoch of another owner
            &|meta| meta.follows = Some(([3; 16], 77)),
            &|meta| meta.fields.push((b"set-cookie".to_vec(), b"a=b".to_vec())),
        ];
        for (number, change) in changes.iter().enumerate() {
            assert!(!accepts(&entry_of_meta(*change)), "{number}");
        }
        let mut unchecked = entry_of_meta(&|_| {});
        wire::set_unchecked_flag(&mut unchecked).unwrap();
        assert!(!accepts(&unchecked) && !accepts(b"") && !accepts(b"SZE"));
    }
}

#[test]
fn method_that_no_process_sends_is_rejected() {
    let keyring = keyring(b"a");
    let value = encoded(&keyring);
    for byte in [0, b' ', b'\n', 0x7f, 0xff] {
        let other = changed(&value, &keyring, |content| content[HEADER_LENGTH] = byte);
        assert_eq!(
            decode(&other, &keyring),
            Err(FleetValueRejection::Entry),
            "{byte}"
        );
    }
}
