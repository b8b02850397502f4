//! Edge cases that other implementations have read wrongly.

use sszip_core::ssz::{
    check_ssz, json_to_ssz, read_envelope_version, Fork, JsonEnvelopeForm, JsonToSsz, Preset,
    Schema, SszErrorKind, SszToJson,
};

fn schema() -> Schema {
    Schema::compile_type_table(
        "class Fixed(Container):\n    a: uint64\n    b: boolean\n\
         class Lists(Container):\n    a: List[uint16, 4]\n    b: uint8\n    c: List[ByteList[3], 2]\n\
         One = List[ByteList[3], 1]\n\
         Pair = Vector[ByteList[3], 2]\n\
         class Inner(Container):\n    a: Bitvector[3]\n    b: Vector[boolean, 2]\n\
         class Outer(Container):\n    a: uint16\n    b: boolean\n    c: Inner\n    d: uint8\n\
         Rows = List[Outer, 9]\n\
         Bits = Bitlist[9]\n\
         Nine = Bitvector[9]\n\
         Flag = boolean\n\
         Big = uint256\n\
         Word = uint64\n\
         Bytes = ByteList[3]\n\
         Participation = List[uint8, 4]\n",
    )
    .unwrap()
}

/// Returns `Ok`, or the error of the check.
fn checked(ty: &str, ssz: &[u8]) -> Result<(), String> {
    let schema = schema();
    check_ssz(&schema, schema.find_type(ty).unwrap(), ssz).map_err(|error| error.to_string())
}

fn read(ty: &str, json: &str) -> Result<Vec<u8>, String> {
    let schema = schema();
    json_to_ssz(&schema, schema.find_type(ty).unwrap(), json.as_bytes())
        .map_err(|error| error.to_string())
}

#[test]
fn invalid_bytes_are_refused_with_their_position() {
    let list = |bytes: &[u8]| checked("Lists", bytes);
    // the offset of a, b, the offset of c, and the bytes that the offsets point to
    assert_eq!(list(b"\x09\0\0\0\x07\x0b\0\0\0\x01\x02"), Ok(()));
    let all: [(&[u8], &str); 11] = [
        (
            b"\x08\0\0\0\x07\x0b\0\0\0\x01\x02",
            "a, byte 0: the first offset is 8, not 9",
        ),
        (
            b"\x0a\0\0\0\x07\x0b\0\0\0\x01\x02",
            "a, byte 0: the first offset is 10, not 9",
        ),
        (
            b"\x09\0\0\0\x07\x08\0\0\0\x01\x02",
            "a, byte 0: the offset 9 is followed by a lower one, 8",
        ),
        (
            b"\x09\0\0\0\x07\x0c\0\0\0\x01\x02",
            "a, byte 0: the offset 12 points past the end, 11",
        ),
        (
            b"\x09\0\0\0\x07\x0b\0\0\0\x01\x02\x03",
            "c, byte 11: the input ends within a value",
        ),
        (
            b"\x09\0\0\0\x07\x0a\0\0\0\x01",
            "a, byte 9: 1 bytes, not a multiple of 2",
        ),
        (b"\x09\0\0\0\x07\x0b\0", "byte 0: 7 bytes, not 9 or more"),
        (
            b"\x09\0\0\0\x07\x09\0\0\0\x06\0\0\0\0\0",
            "c, byte 9: the first offset is 6, not a multiple of 4",
        ),
        (
            b"\x09\0\0\0\x07\x09\0\0\0\0\0\0\0",
            "c, byte 9: the first offset is 0, not a multiple of 4",
        ),
        (
            b"\x09\0\0\0\x07\x09\0\0\0\x08\0\0\0\x07\0\0\0",
            "c[0], byte 9: the offset 8 is followed by a lower one, 7",
        ),
        (
            b"\x09\0\0\0\x07\x09\0\0\0\x04\0\0\0abcd",
            "c[0], byte 13: 4 elements are more than 3",
        ),
    ];
    for (bytes, why) in all {
        assert_eq!(list(bytes), Err(why.into()));
    }
    assert!(list(b"\x09\0\0\0\x07\x13\0\0\0\x01\0\x02\0\x03\0\x04\0\x05\0").is_err());
    // an empty list of variable elements has no bytes, and one of one element has an offset
    assert_eq!(checked("One", b""), Ok(()));
    assert_eq!(checked("One", b"\x04\0\0\0"), Ok(()));
    assert_eq!(
        checked("One", b"\x08\0\0\0\x08\0\0\0"),
        Err("byte 0: 2 elements are more than 1".into())
    );
    assert!(checked("Pair", b"").is_err() && checked("Pair", b"\x04\0\0\0a").is_err());
    // trailing bytes
    assert_eq!(checked("Fixed", &[0; 9]), Ok(()));
    assert_eq!(
        checked("Fixed", &[0; 10]),
        Err("byte 0: 10 bytes, not 9".into())
    );
    assert_eq!(
        checked("Fixed", b"\0\0\0\0\0\0\0\0\x02"),
        Err("b, byte 8: a boolean must be 0 or 1".into())
    );
}

#[test]
fn bits_beyond_their_length_are_refused() {
    for (bytes, is_right) in [
        (&b"\x01"[..], true),
        (b"", false),
        (b"\0", false),
        (b"\x01\0", false),
        (b"\xff\x02", true),
        (b"\xff\x03", true),
        (b"\xff\x04", false),
        (b"\xff\xff\x01", false),
    ] {
        assert_eq!(checked("Bits", bytes).is_ok(), is_right, "{bytes:?}");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            read("Bits", &format!("\"0x{hex}\"")).is_ok(),
            is_right,
            "{bytes:?}"
        );
    }
    for (bytes, is_right) in [(b"\xff\x01", true), (b"\xff\x02", false), (b"\0\0", true)] {
        assert_eq!(checked("Nine", bytes).is_ok(), is_right);
    }
    assert_eq!(
        read("Nine", "\"0xff02\""),
        Err("byte 7: a bit after the last of 9 is set".into())
    );
    assert_eq!(
        read("Bits", "\"0x\""),
        Err("byte 3: the bitlist is empty, and has no delimiter bit".into())
    );
}

#[test]
fn numbers_are_read_only_as_decimal_strings_in_range() {
    assert_eq!(read("Word", "\"18446744073709551615\""), Ok(vec![255; 8]));
    for (json, why) in [
        ("\"18446744073709551616\"", "byte 0: more than 64 bits"),
        ("18446744073709551615", "byte 0: a number, not a string"),
        ("1.8e19", "byte 0: a number, not a string"),
        ("null", "byte 0: null, not a string"),
        ("\"1.8e19\"", "byte 2: not a decimal digit"),
        ("\"+1\"", "byte 1: not a decimal digit"),
        ("\"-1\"", "byte 1: not a decimal digit"),
        ("\"\"", "byte 0: digits are missing"),
        ("\"01\"", "byte 1: a leading zero"),
        ("\"0x1\"", "byte 2: not a decimal digit"),
        ("\"1\"2", "byte 3: data after the value"),
        ("", "byte 0: the input ends within a value"),
    ] {
        assert_eq!(read("Word", json), Err(why.into()), "{json}");
    }
    let most = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    assert_eq!(read("Big", &format!("\"{most}\"")), Ok(vec![255; 32]));
    assert_eq!(read("Participation", "[\"7\", \"255\"]"), Ok(vec![7, 255]));
    assert_eq!(
        read("Participation", "[\"7\", \"256\"]"),
        Err("[1], byte 6: more than 8 bits".into())
    );
    assert_eq!(
        read("Participation", "\"0x07\""),
        Err("byte 0: a string, not an array".into())
    );
    assert_eq!(
        read("Participation", "[\"1\",\"1\",\"1\",\"1\",\"1\"]"),
        Err("byte 17: more than 4 elements".into())
    );
}

#[test]
fn fields_are_read_in_any_order_and_exactly_once() {
    let right = Ok(b"\x07\0\0\0\0\0\0\0\x01".to_vec());
    for json in [
        "{\"a\":\"7\",\"b\":true}",
        " { \"b\" : true , \"a\" : \"7\" } ",
        "{\"x\":{\"a\":[1,\"]\"]},\"a\":\"7\",\"y\":null,\"b\":true,\"z\":1}",
        "{\"\\u0061\":\"7\",\"b\":true}",
    ] {
        assert_eq!(read("Fixed", json), right, "{json}");
    }
    for (json, why) in [
        ("{\"a\":\"7\"}", "byte 8: b is missing"),
        ("{\"b\":true}", "byte 9: a is missing"),
        ("{}", "byte 1: a is missing"),
        (
            "{\"a\":\"7\",\"a\":\"7\",\"b\":true}",
            "a, byte 13: the member occurs twice",
        ),
        (
            "{\"a\":\"7\",\"b\":null}",
            "b, byte 13: null, not a boolean",
        ),
        (
            "{\"a\":\"7\",\"b\":1}",
            "b, byte 13: a number, not a boolean",
        ),
        (
            "{\"a\":\"7\",\"b\":\"true\"}",
            "b, byte 13: a string, not a boolean",
        ),
        ("{\"a\":7,\"b\":true}", "a, byte 5: a number, not a string"),
        ("{\"a\":\"7\",\"b\":true,}", "byte 18: expected a name"),
        (
            "{\"a\":\"7\" \"b\":true}",
            "byte 9: expected a comma or '}'",
        ),
        ("{\"a\" \"7\"}", "byte 5: expected a colon"),
        ("[]", "byte 0: an array, not an object"),
        ("null", "byte 0: null, not an object"),
    ] {
        assert_eq!(read("Fixed", json), Err(why.into()), "{json}");
    }
}

#[test]
fn hexadecimal_strings_are_read_strictly() {
    assert_eq!(read("Bytes", "\"0xAbcD\""), Ok(b"\xab\xcd".to_vec()));
    assert_eq!(read("Bytes", "\"0x\""), Ok(vec![]));
    assert!(read("Bytes", "\"\\u00300x\"").is_err());
    assert_eq!(read("Bytes", "\"0\\u0078a\\u0062\""), Ok(vec![0xab]));
    for (json, why) in [
        ("\"0xa\"", "byte 4: an odd number of hexadecimal digits"),
        ("\"0xag\"", "byte 4: not a hexadecimal digit"),
        ("\"0x0x00\"", "byte 4: not a hexadecimal digit"),
        ("\"0X00\"", "byte 2: 0x is missing before the digits"),
        ("\"00\"", "byte 2: 0x is missing before the digits"),
        ("\"\"", "byte 1: 0x is missing before the digits"),
        ("\"0x00000000\"", "byte 10: more than 3 bytes"),
        ("\"0x000000g0\"", "byte 9: not a hexadecimal digit"),
        ("\"0x0000g0000\"", "byte 7: not a hexadecimal digit"),
        ("null", "byte 0: null, not a string"),
        ("\"0x00", "byte 5: the input ends within a value"),
    ] {
        assert_eq!(read("Bytes", json), Err(why.into()), "{json}");
    }
}

#[test]
fn value_is_found_in_each_kind_of_envelope() {
    let schema = schema();
    let read = |form, json: &str| {
        let mut reader = JsonToSsz::new(&schema, schema.find_type("Fixed").unwrap(), form);
        reader
            .feed_json_piece(json.as_bytes())
            .map_err(|error| error.to_string())?;
        let version = reader.envelope_version().unwrap_or("none").to_owned();
        let ssz = reader.finish().map_err(|error| error.to_string())?;
        Ok::<_, String>((ssz[0], version))
    };
    let bare = "{\"a\":\"7\",\"b\":true}";
    let beacon = format!("{{\"version\":\"deneb\",\"finalized\":true,\"data\":{bare}}}");
    let rpc = format!("{{\"jsonrpc\":\"2.0\",\"result\":{bare},\"id\":1}}\n");
    assert_eq!(read(JsonEnvelopeForm::Either, bare), Ok((7, "none".into())));
    let null = format!("{{\"error\" : null,\"result\":{bare}}}");
    assert_eq!(
        read(JsonEnvelopeForm::Either, &null),
        Ok((7, "none".into()))
    );
    for form in [JsonEnvelopeForm::Either, JsonEnvelopeForm::Enveloped] {
        assert_eq!(read(form, &beacon), Ok((7, "deneb".into())));
        assert_eq!(read(form, &rpc), Ok((7, "none".into())));
        for (json, why) in [
            (
                "{\"error\":{\"code\":1}}",
                "byte 1: the response is an error",
            ),
            (
                "{\"version\":\"x\"}",
                "byte 14: data and result are missing",
            ),
            ("{\"result\":null}", "result, byte 10: the result is null"),
            ("{\"data\":null}", "data, byte 8: null, not an object"),
            (
                "{\"version\":7,\"data\":null}",
                "byte 11: a number, not a string",
            ),
        ] {
            assert_eq!(read(form, json), Err(why.into()), "{json}");
        }
    }
    let twice = format!("{{\"data\":{bare},\"data\":{bare}}}");
    assert_eq!(
        read(JsonEnvelopeForm::Either, &twice),
        Err("byte 27: data occurs twice".into())
    );
    for first in ["true", "false", "null", "7"] {
        let twice = format!("{{\"finalized\":{first},\"finalized\":true,\"data\":{bare}}}");
        let at = "{\"finalized\":,".len() + first.len();
        assert_eq!(
            read(JsonEnvelopeForm::Enveloped, &twice),
            Err(format!("byte {at}: finalized occurs twice"))
        );
    }
    assert_eq!(
        read(JsonEnvelopeForm::Bare, &beacon),
        Err("byte 61: a is missing".into())
    );
    assert_eq!(
        read(JsonEnvelopeForm::Enveloped, bare),
        Err("byte 17: data and result are missing".into())
    );
}

#[test]
fn reader_and_writer_keep_failing_after_an_error() {
    let schema = schema();
    let mut reader = JsonToSsz::new(
        &schema,
        schema.find_type("Fixed").unwrap(),
        JsonEnvelopeForm::Bare,
    );
    let why = reader.feed_json_piece(b"{\"a\":7").unwrap_err();
    assert_eq!(reader.feed_json_piece(b"}").unwrap_err(), why);
    assert_eq!(reader.finish().unwrap_err(), why);
    let writer = SszToJson::new(&schema, schema.find_type("Word").unwrap(), [0; 8]);
    assert!(writer.unwrap().write_next(&mut [0; 100]).is_err());
}

#[test]
fn name_of_unlimited_length_is_refused() {
    let schema = schema();
    let mut reader = JsonToSsz::new(
        &schema,
        schema.find_type("Fixed").unwrap(),
        JsonEnvelopeForm::Bare,
    );
    reader.feed_json_piece(b"{\"").unwrap();
    let refused = (0..100).find_map(|_| reader.feed_json_piece(&[b'x'; 1000]).err());
    let why = refused.unwrap().to_string();
    assert_eq!(why, "byte 1: a name or number of more than 8192 bytes");
    // white space and ignored fields may be of any length
    let mut reader = JsonToSsz::new(
        &schema,
        schema.find_type("Fixed").unwrap(),
        JsonEnvelopeForm::Bare,
    );
    reader.feed_json_piece(b"{\"x\":\"").unwrap();
    for _ in 0..100 {
        reader.feed_json_piece(&[b'x'; 1000]).unwrap();
    }
    reader.feed_json_piece(b"\",\"a\":\"7\"").unwrap();
    for _ in 0..100 {
        reader.feed_json_piece(&[b' '; 1000]).unwrap();
    }
    reader.feed_json_piece(b",\"b\":true}").unwrap();
    assert_eq!(reader.finish().unwrap()[0], 7);
}

/// Lists of containers of a fixed size are checked only where they can be invalid.
#[test]
fn first_invalid_element_is_reported() {
    let element = [0xff, 0xff, 1, 7, 1, 1, 0xff];
    let checked = |bad: &[(usize, u8)]| {
        let mut rows = element.repeat(3);
        for (at, byte) in bad {
            rows[*at] = *byte;
        }
        checked("Rows", &rows)
    };
    let is = |why: &str| Err(why.to_owned());
    assert_eq!(checked(&[]), Ok(()));
    assert_eq!(
        checked(&[(9, 2)]),
        is("[1].b, byte 9: a boolean must be 0 or 1")
    );
    assert_eq!(
        checked(&[(17, 8), (10, 8)]),
        is("[1].c.a, byte 10: a bit after the last of 3 is set")
    );
    assert_eq!(
        checked(&[(16, 2), (12, 3), (10, 8)]),
        is("[1].c.a, byte 10: a bit after the last of 3 is set")
    );
    assert_eq!(
        checked(&[(16, 2), (12, 3)]),
        is("[1].c.b[1], byte 12: a boolean must be 0 or 1")
    );
}

/// A status in the JSON of the Engine API may exceed the limits of its SSZ.
#[test]
fn payload_status_is_read_as_nodes_write_it() {
    let schema = Schema::for_fork(Fork::Phase0, Preset::Mainnet);
    let ty = schema.find_type("PayloadStatus").unwrap();
    let read = |status: &str, error: &str, piece: usize| {
        let json = format!(
            "{{\"status\":\"{status}\",\"latestValidHash\":null,\"validationError\":\"{error}\"}}"
        );
        let mut reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Bare);
        for piece in json.as_bytes().chunks(piece) {
            reader.feed_json_piece(piece)?;
        }
        reader.finish()
    };
    // status, two offsets, and the offset of the text
    let text = |error: &str, piece| {
        let ssz = read("INVALID", error, piece).unwrap();
        assert_eq!(check_ssz(schema, ty, &ssz), Ok(()));
        String::from_utf8(ssz[13..].to_vec()).unwrap()
    };
    for piece in [97, 1000, usize::MAX] {
        assert_eq!(
            read("INVALID_BLOCK_HASH", "", piece),
            read("INVALID", "", piece)
        );
        assert!(read("INVALID_HASH", "", piece).is_err());
        for len in [1023, 1024, 1025, 3000, 6140, 6160, 20_000] {
            let all = "x".repeat(len);
            assert_eq!(text(&all, piece), all[..len.min(1024)]);
        }
        // characters of two, three and four bytes, literal and escaped
        for (plain, escape) in [
            ("\u{e9}", "\\u00e9"),
            ("\u{20ac}", "\\u20ac"),
            ("\u{1f600}", "\\ud83d\\ude00"),
            ("\n", "\\n"),
        ] {
            for begin in ["", "x", "xy", "xyz"] {
                let most = (1024 - begin.len()) / plain.len();
                let cut = format!("{begin}{}", plain.repeat(most));
                for count in [most, most + 1, 3000] {
                    let escaped = format!("{begin}{}", escape.repeat(count));
                    assert_eq!(text(&escaped, piece), cut, "{count} {escape}");
                    if plain != "\n" {
                        let written = format!("{begin}{}", plain.repeat(count));
                        assert_eq!(text(&written, piece), cut, "{count} {plain}");
                    }
                }
            }
        }
        // an error before the text is cut, and after it
        let all = "x".repeat(2000);
        for bad in ["\\x", "\\ud83d", "\u{1}"] {
            assert!(read("INVALID", &format!("{bad}{all}"), piece).is_err());
            assert!(read("INVALID", &format!("{bad}{}", all.repeat(9)), piece).is_err());
        }
        for bad in ["\\x", "\u{1}"] {
            assert!(read("INVALID", &format!("{}{bad}", all.repeat(9)), piece).is_err());
        }
    }
}

/// Lodestar writes `{"data": ..., "version": ...}`, and some types have fields of these names.
#[test]
fn envelope_members_are_distinguished_from_fields() {
    let schema = Schema::for_fork(Fork::Gloas, Preset::Minimal);
    let read = |name: &str, json: &str, piece: usize| {
        let mut reader = JsonToSsz::new(
            schema,
            schema.find_type(name).unwrap(),
            JsonEnvelopeForm::Either,
        );
        for piece in json.as_bytes().chunks(piece) {
            reader.feed_json_piece(piece)?;
        }
        reader.finish()
    };
    let hex = |len: usize| format!("\"0x{}\"", "07".repeat(len));
    let point = format!("{{\"epoch\":\"1\",\"root\":{}}}", hex(32));
    let about = format!(
        "{{\"slot\":\"1\",\"index\":\"2\",\"beacon_block_root\":{},\"source\":{point},\"target\":{point}}}",
        hex(32)
    );
    let rest = format!(
        "\"aggregation_bits\":\"0x01\",\"signature\":{},\"committee_bits\":\"0x00\"",
        hex(96)
    );
    let builder = format!(
        "{{\"version\":\"3\",\"pubkey\":{},\"execution_address\":{},\"balance\":\"4\",\
         \"deposit_epoch\":\"5\",\"withdrawable_epoch\":\"6\"}}",
        hex(48),
        hex(20)
    );
    let values = [
        ("Attestation", format!("{{ \"data\" : {about},{rest}}}")),
        ("Attestation", format!("{{{rest},\"data\":{about}}}")),
        ("Builder", builder),
    ];
    for (name, value) in values {
        let ssz = json_to_ssz(schema, schema.find_type(name).unwrap(), value.as_bytes()).unwrap();
        for json in [
            value.clone(),
            format!("{{\"data\":{value},\"version\":\"gloas\"}}"),
            format!("{{ \"data\" : {value} }}"),
            format!("{{\"version\":\"gloas\",\"data\":{value}}}"),
        ] {
            for piece in [1, 10, usize::MAX] {
                assert_eq!(read(name, &json, piece), Ok(ssz.clone()), "{json}");
            }
        }
    }
    for json in ["{\"data\":7}", "{\"data\":{}}", "{\"data\":{\"x\":7}}"] {
        assert!(read("Attestation", json, 1).is_err());
    }
}

#[test]
fn version_is_found_after_the_value() {
    let answer = b"{\"data\":{\"version\":\"no\",\"x\":[{}]},\"version\":\"fulu\"} ";
    assert_eq!(read_envelope_version(answer), Ok(Some("fulu".into())));
    assert_eq!(read_envelope_version(b"{\"result\":7}"), Ok(None));
    assert!(read_envelope_version(b"{\"version\":\"fulu\"}").is_err());
    assert!(read_envelope_version(&answer[..40]).is_err());
    let mut reader = JsonToSsz::for_versioned_envelope(Preset::Mainnet, "Checkpoint");
    let error = reader.feed_json_piece(answer).unwrap_err();
    assert_eq!(*error.error_kind(), SszErrorKind::NoVersion);
}
