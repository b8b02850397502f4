//! Execution witnesses: header objects, and RLP.

use sszip_core::ssz::{
    check_ssz, json_to_ssz, ssz_to_json, Fork, JsonEnvelopeForm, JsonToSsz, Preset, Schema,
    SszToJson,
};

use crate::properties::in_pieces;
use crate::reference::FuzzedChoices;

fn schema() -> &'static Schema {
    Schema::for_fork(Fork::Phase0, Preset::Mainnet)
}

/// Encodes a string by the letter of the Yellow Paper.
fn rlp_string(bytes: &[u8]) -> Vec<u8> {
    match bytes {
        [0..=0x7f] => bytes.to_vec(),
        _ => [prefix(0x80, bytes.len()), bytes.to_vec()].concat(),
    }
}

fn rlp_list(items: &[Vec<u8>]) -> Vec<u8> {
    let content = items.concat();
    [prefix(0xc0, content.len()), content].concat()
}

fn prefix(base: u8, len: usize) -> Vec<u8> {
    if len < 56 {
        return vec![base + len as u8];
    }
    let digits: Vec<u8> = len
        .to_be_bytes()
        .into_iter()
        .skip_while(|byte| *byte == 0)
        .collect();
    [vec![base + 55 + digits.len() as u8], digits].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Elements of the given lengths.
fn elements(lens: &[usize]) -> Vec<Vec<u8>> {
    let bytes = |len: &usize| (0..*len).map(|n| (n * 7 + len) as u8).collect();
    lens.iter().map(bytes).collect()
}

fn witness() -> (String, Vec<Vec<u8>>) {
    let state = elements(&[0, 1, 2, 55, 56, 300, 1024, 1]);
    let codes = elements(&[1, 40_000, 0, 65_536]);
    let headers: Vec<Vec<u8>> = [vec![0, 1, 200], vec![700], vec![]]
        .iter()
        .map(|lens: &Vec<usize>| {
            let items: Vec<Vec<u8>> = elements(lens).iter().map(|item| rlp_string(item)).collect();
            rlp_list(&items)
        })
        .collect();
    let strings = |all: &[Vec<u8>]| {
        let all: Vec<String> = all
            .iter()
            .map(|one| format!("\"0x{}\"", hex(one)))
            .collect();
        format!("[{}]", all.join(","))
    };
    let json = format!(
        "{{\"state\":{},\"codes\":{},\"headers\":{}}}",
        strings(&state),
        strings(&codes),
        strings(&headers)
    );
    let item = |bytes: &Vec<u8>| rlp_string(bytes);
    let parts = vec![
        rlp_list(&headers),
        rlp_list(&codes.iter().map(item).collect::<Vec<_>>()),
        rlp_list(&state.iter().map(item).collect::<Vec<_>>()),
    ];
    (json, parts)
}

fn answer(rlp: &[u8]) -> String {
    format!(
        "{{\"status\":\"VALID\",\"witness\":\"0x{}\",\"latestValidHash\":null}}",
        hex(rlp)
    )
}

#[test]
fn rlp_witness_converts_in_both_directions_in_any_pieces() {
    let (json, parts) = witness();
    let plain = schema().find_type("ExecutionWitness").unwrap();
    let expected = json_to_ssz(schema(), plain, json.as_bytes()).unwrap();
    let ty = schema().find_type("NewPayloadWithWitness").unwrap();
    let text = answer(&rlp_list(&parts));
    for choices in 0..60_u8 {
        let choices = [
            choices,
            choices.wrapping_mul(31),
            choices.wrapping_mul(7),
            1,
            99,
        ];
        let mut choices = FuzzedChoices(&choices);
        let ssz = in_pieces(
            schema(),
            ty,
            JsonEnvelopeForm::Bare,
            text.as_bytes(),
            &mut choices,
        )
        .unwrap();
        assert_eq!(check_ssz(schema(), ty, &ssz), Ok(()));
        // status, three offsets, and the offset of the witness
        assert_eq!(ssz[..13], *b"\0\x0d\0\0\0\x0d\0\0\0\x0d\0\0\0");
        assert!(ssz[17..] == expected, "the witness is another");
        let back = String::from_utf8(ssz_to_json(schema(), ty, &ssz).unwrap()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&back).unwrap();
        assert_eq!(value["witness"], format!("0x{}", hex(&rlp_list(&parts))));
        assert!(value["validationError"].is_null());
    }
}

/// Parts of several megabytes stay in the memory in which they are read, and are sent from there.
#[test]
fn long_parts_are_converted_in_any_order_of_fields() {
    let lengths: Vec<usize> = (0..2500).map(|n| n % 1025).collect();
    let lists = [
        elements(&lengths),
        elements(&[60_000; 40]),
        elements(&[5, 0]),
    ];
    let strings = |all: &[Vec<u8>]| {
        let all: Vec<String> = all
            .iter()
            .map(|one| format!("\"0x{}\"", hex(one)))
            .collect();
        format!("[{}]", all.join(","))
    };
    let list = |all: &[Vec<u8>]| {
        let mut bytes = Vec::new();
        let mut offset = 4 * all.len();
        for one in all {
            bytes.extend((offset as u32).to_le_bytes());
            offset += one.len();
        }
        [bytes, all.concat()].concat()
    };
    let ty = schema().find_type("ExecutionWitness").unwrap();
    // the order of the fields, and of the lists
    for order in [
        [0, 1, 2],
        [2, 1, 0],
        [1, 2, 0],
        [2, 0, 1],
        [0, 2, 1],
        [1, 0, 2],
    ] {
        let names = ["state", "codes", "headers"];
        let fields = order.map(|n| format!("\"{}\":{}", names[n], strings(&lists[n])));
        let json = format!("{{{}}}", fields.join(","));
        let parts = [0, 1, 2].map(|field| list(&lists[field]));
        let mut expected = Vec::new();
        let mut offset = 12;
        for part in &parts {
            expected.extend((offset as u32).to_le_bytes());
            offset += part.len();
        }
        let expected = [expected, parts.concat()].concat();
        let reader = || {
            let mut reader = JsonToSsz::new(schema(), ty, JsonEnvelopeForm::Bare);
            for piece in json.as_bytes().chunks(65_536) {
                reader.feed_json_piece(piece).unwrap();
            }
            reader
        };
        assert!(reader().finish().unwrap() == expected, "{order:?}");
        let parts = reader().finish_in_parts().unwrap();
        assert!(!parts.is_in_order());
        assert_eq!(parts.len(), expected.len());
        let (bytes, order) = parts.into_buffer_with_order();
        let pieces: Vec<&[u8]> = order.into_iter().map(|part| &bytes[part]).collect();
        assert!(pieces.concat() == expected);
    }
}

/// geth from v1.16.4 on writes `[headers, codes, state, keys]`, and reads no other form.
#[test]
fn fourth_list_is_skipped_and_written_on_request() {
    let (_, parts) = witness();
    let ty = schema().find_type("NewPayloadWithWitness").unwrap();
    let three = rlp_list(&parts);
    let expected = json_to_ssz(schema(), ty, answer(&three).as_bytes()).unwrap();
    let four = |keys: &[Vec<u8>]| rlp_list(&[parts.clone(), vec![rlp_list(keys)]].concat());
    let some = elements(&[20, 32, 0, 1])
        .iter()
        .map(|key| rlp_string(key))
        .collect::<Vec<_>>();
    let many = vec![rlp_string(&[0x11; 32]); 3000];
    for keys in [&[][..], &some, &many] {
        let text = answer(&four(keys));
        for piece in [1, 7, 1000, 65_536, usize::MAX] {
            let mut reader = JsonToSsz::new(schema(), ty, JsonEnvelopeForm::Bare);
            for piece in text.as_bytes().chunks(piece) {
                reader.feed_json_piece(piece).unwrap();
            }
            assert!(reader.finish().unwrap() == expected, "{piece}");
        }
    }
    let mut written = Vec::new();
    let mut writer = SszToJson::new(schema(), ty, &expected)
        .unwrap()
        .with_empty_witness_keys();
    let mut room = [0; 1024];
    loop {
        match writer.write_next(&mut room).unwrap() {
            0 => break,
            len => written.extend_from_slice(&room[..len]),
        }
    }
    let value: serde_json::Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(value["witness"], format!("0x{}", hex(&four(&[]))));
}

/// The error has the position in the text at which the RLP item begins, for any division into
/// pieces.
#[test]
fn invalid_rlp_is_reported_with_its_position() {
    let ty = schema().find_type("NewPayloadWithWitness").unwrap();
    let at = |rlp: &[u8], byte: usize| {
        let text = answer(rlp);
        let begin = text.find("0x").unwrap() + 2;
        for piece in [1, 3, 64, 4096, 40_000, usize::MAX] {
            let mut reader = JsonToSsz::new(schema(), ty, JsonEnvelopeForm::Bare);
            let mut pieces = text.as_bytes().chunks(piece);
            let error = pieces
                .find_map(|piece| reader.feed_json_piece(piece).err())
                .unwrap();
            assert_eq!(
                error.byte_offset(),
                (begin + 2 * byte) as u64,
                "{error}, {piece}"
            );
        }
    };
    let empty = rlp_list(&[]);
    let codes = rlp_list(&vec![rlp_string(&[7; 30_000]); 3]);
    let state = rlp_list(&[rlp_string(&[7; 1024]), rlp_string(&[7; 1025])]);
    let content = [empty.clone(), codes.clone(), state.clone()].concat();
    let all = rlp_list(&[content]);
    // the last item, whose prefix has three bytes
    at(&all, all.len() - 1028);
    // the position of the fifth item
    let keys = rlp_list(&[rlp_string(&[9; 32])]);
    let five = [empty.clone(), codes, empty.clone(), keys, empty].concat();
    let all = rlp_list(&[five]);
    at(&all, all.len() - 1);
    // the end of the text
    at(&all[..70_000], 70_000);
}

/// Changes each digit: the result, with the position of an error, is the same for any division
/// into pieces.
#[test]
fn changed_rlp_is_read_equally_in_any_pieces() {
    let ty = schema().find_type("NewPayloadWithWitness").unwrap();
    let strings = |lens: &[usize]| {
        let items: Vec<Vec<u8>> = elements(lens).iter().map(|item| rlp_string(item)).collect();
        rlp_list(&items)
    };
    let header = rlp_list(&[rlp_string(&[200; 60])]);
    let parts = [
        rlp_list(&[header, rlp_list(&[])]),
        strings(&[57, 1]),
        strings(&[0, 2, 1]),
        strings(&[32]),
    ];
    let text = answer(&rlp_list(&parts));
    let begin = text.find("0x").unwrap() + 2;
    let end = begin + text[begin..].find('"').unwrap();
    let (mut right, mut wrong) = (0, 0);
    for at in begin..end {
        for digit in *b"0389bcf" {
            let mut text = text.clone().into_bytes();
            text[at] = digit;
            let read = |piece: usize| {
                let mut reader = JsonToSsz::new(schema(), ty, JsonEnvelopeForm::Bare);
                for piece in text.chunks(piece) {
                    reader.feed_json_piece(piece)?;
                }
                reader.finish()
            };
            let whole = read(usize::MAX);
            for piece in [1, 2, 31, 64] {
                assert_eq!(read(piece), whole, "{at}, {piece}");
            }
            match whole {
                Ok(_) => right += 1,
                Err(_) => wrong += 1,
            }
        }
    }
    assert!(right > 100 && wrong > 100, "{right}, {wrong}");
}

#[test]
fn invalid_witness_is_refused_with_a_reason() {
    let (_, parts) = witness();
    let ty = schema().find_type("NewPayloadWithWitness").unwrap();
    let refused = |rlp: Vec<u8>| {
        let error = json_to_ssz(schema(), ty, answer(&rlp).as_bytes()).unwrap_err();
        assert_eq!(error.value_path(), "witness");
        error.error_kind().to_string()
    };
    let whole = rlp_list(&parts);
    for cut in [0, 1, 3, 5, whole.len() / 2, whole.len() - 1] {
        refused(whole[..cut].to_vec());
    }
    let empty = rlp_list(&[]);
    let with = |part: usize, item: Vec<u8>| {
        let mut parts = vec![empty.clone(); 3];
        parts[part] = rlp_list(&[item]);
        rlp_list(&parts)
    };
    for (rlp, why) in [
        ([&whole[..], &[0x80]].concat(), "data after the RLP"),
        (rlp_list(&parts[..2]), "state is missing in the RLP"),
        (
            rlp_list(&[parts.clone(), vec![empty.clone(); 2]].concat()),
            "a fifth item in the RLP",
        ),
        (
            rlp_list(&[parts.clone(), vec![rlp_string(b"keys")]].concat()),
            "expected a list",
        ),
        (
            // the keys would have two bytes, and the whole ends after one
            vec![0xc5, 0xc0, 0xc0, 0xc0, 0xc2, 0x80],
            "keys is longer than the RLP",
        ),
        (rlp_string(&whole), "expected a list"),
        (
            rlp_list(&[rlp_string(b"abc"), empty.clone()]),
            "expected a list",
        ),
        (with(0, rlp_string(b"abc")), "headers[0] is not a list"),
        (with(2, rlp_list(&[])), "state[0] is not a string"),
        (
            with(2, rlp_string(&[7; 1025])),
            "state[0] has more than 1024 bytes",
        ),
        (
            with(1, rlp_string(&[7; 65_537])),
            "codes[0] has more than 65536 bytes",
        ),
        (
            with(2, vec![0x81, 0x05]),
            "a single byte below 0x80 has a prefix",
        ),
        (
            with(2, vec![0xb8, 0x01, 0x05]),
            "a length has more bytes than necessary",
        ),
        (with(2, vec![0x83, 0x05]), "state[0] is longer than state"),
        (vec![0xc2, 0xc5, 0xc0], "headers is longer than the RLP"),
    ] {
        assert_eq!(refused(rlp), why);
    }
    assert!(refused(rlp_list(&vec![empty.clone(); 2])).contains("missing"));
    // invalid hexadecimal digits, and values that are not strings
    for wrong in ["\"0xc\"", "\"0xzz\"", "7", "{}", "\"\""] {
        let text = format!("{{\"status\":\"VALID\",\"latestValidHash\":null,\"witness\":{wrong}}}");
        assert!(
            json_to_ssz(schema(), ty, text.as_bytes()).is_err(),
            "{wrong}"
        );
    }
    // a header that is not RLP cannot be written as RLP
    let bad = json_to_ssz(
        schema(),
        schema().find_type("ExecutionWitness").unwrap(),
        b"{\"state\":[],\"codes\":[],\"headers\":[\"0xc0\",\"0xc1\"]}",
    );
    let mut ssz = b"\0\x11\0\0\0\x11\0\0\0\x11\0\0\0\x04\0\0\0".to_vec();
    ssz[1..13].copy_from_slice(b"\x0d\0\0\0\x0d\0\0\0\x0d\0\0\0");
    ssz.extend(bad.unwrap());
    assert_eq!(
        ssz_to_json(schema(), ty, &ssz).unwrap_err().to_string(),
        "headers[1], byte 38: not the RLP of a list"
    );
}

/// The recorded witnesses, in the notation of each node.
#[test]
fn recorded_witnesses_convert_in_both_directions() {
    let Some(corpus) = crate::corpus() else {
        eprintln!("skipped: no ../shared/corpus");
        return;
    };
    let plain = schema().find_type("ExecutionWitness").unwrap();
    let with = schema().find_type("NewPayloadWithWitness").unwrap();
    let mut objects = 0;
    for file in std::fs::read_dir(corpus.join("witness")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let witnesses: Vec<&serde_json::Value> = match &value {
            serde_json::Value::Array(all) => {
                all.iter().map(|one| &one["response"]["result"]).collect()
            }
            one => vec![&one["witness"]],
        };
        for witness in witnesses.into_iter().filter(|witness| witness.is_object()) {
            let mut reader = JsonToSsz::new(schema(), plain, JsonEnvelopeForm::Bare);
            for piece in witness.to_string().as_bytes().chunks(1000) {
                reader.feed_json_piece(piece).unwrap();
            }
            let ssz = reader.finish().unwrap();
            check_ssz(schema(), plain, &ssz).unwrap();
            let json: serde_json::Value =
                serde_json::from_slice(&ssz_to_json(schema(), plain, &ssz).unwrap()).unwrap();
            assert_eq!(
                (&json["state"], &json["codes"]),
                (&witness["state"], &witness["codes"])
            );
            for (header, recorded) in json["headers"]
                .as_array()
                .unwrap()
                .iter()
                .zip(witness["headers"].as_array().unwrap())
            {
                match recorded.is_object() {
                    true => objects += 1,
                    false => assert_eq!(header, recorded),
                }
            }
            // the same by way of RLP
            let answer = [b"\0\x0d\0\0\0\x0d\0\0\0\x0d\0\0\0\x04\0\0\0", &ssz[..]].concat();
            let json = ssz_to_json(schema(), with, &answer).unwrap();
            assert!(json_to_ssz(schema(), with, &json).unwrap() == answer);
        }
    }
    assert!(objects >= 20, "{objects} header objects");
}
