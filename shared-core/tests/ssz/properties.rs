//! Properties of each value and each input, for tests and fuzz targets.

use sszip_core::ssz::schema::TypeKind;
use sszip_core::ssz::{
    check_ssz, hash_tree_root, json_to_ssz, locate_value_at_path, ssz_to_json, JsonEnvelopeForm,
    JsonToSsz, Schema, SszToJson, TypeId,
};

use super::reference::{self, FuzzedChoices, Json};
use super::roots::root;

/// Checks that a chosen value in a chosen notation converts in both directions.
pub fn check_value(schema: &Schema, ty: TypeId, choices: &mut FuzzedChoices<'_>) {
    let json = reference::choose(schema, ty, choices);
    let ssz = reference::to_ssz(schema, ty, &json).expect("a value of the type");
    assert_eq!(check_ssz(schema, ty, &ssz), Ok(()), "{}", json.write());
    assert_eq!(reference::to_json(schema, ty, &ssz), Some(json.clone()));

    let written = String::from_utf8(ssz_to_json(schema, ty, &ssz).unwrap()).unwrap();
    assert_eq!(written, json.write());
    assert_eq!(
        write_json_into_small_buffers(schema, ty, &ssz, choices),
        written.as_bytes()
    );
    assert_eq!(json_to_ssz(schema, ty, written.as_bytes()), Ok(ssz.clone()));

    assert_eq!(
        hash_tree_root(schema, ty, &ssz),
        Ok(root(schema, ty, &json))
    );
    check_part(schema, ty, &ssz, &json, choices);

    let text = write(&json, choices);
    assert_eq!(
        json_to_ssz(schema, ty, text.as_bytes()),
        Ok(ssz.clone()),
        "{text}"
    );
    let bytes = text.as_bytes();
    assert_eq!(
        in_pieces(schema, ty, JsonEnvelopeForm::Bare, bytes, choices),
        Ok(ssz.clone()),
        "{text}"
    );
    let enveloped = format!("{{\"version\":\"x\",\"extra\":[{{}}],\"data\":{text}}}");
    for form in [JsonEnvelopeForm::Enveloped, JsonEnvelopeForm::Either] {
        let read = in_pieces(schema, ty, form, enveloped.as_bytes(), choices);
        assert_eq!(read, Ok(ssz.clone()), "{enveloped}");
    }
}

/// Checks that a selected part of a value equals the same part of its JSON.
fn check_part(
    schema: &Schema,
    ty: TypeId,
    ssz: &[u8],
    json: &Json,
    choices: &mut FuzzedChoices<'_>,
) {
    let mut path = String::new();
    let mut part = json;
    while choices.below(4) > 0 {
        part = match part {
            Json::Array(all) if !all.is_empty() => {
                let index = choices.below(all.len());
                path.push_str(&format!("[{index}]"));
                &all[index]
            }
            Json::Object(all) if all[0].0 != "selector" => {
                let (name, value) = &all[choices.below(all.len())];
                let dot = if path.is_empty() { "" } else { "." };
                path.push_str(&format!("{dot}{name}"));
                value
            }
            _ => break,
        };
    }
    // a path has a step for an optional value, which JSON does not have
    if let Ok((ty, range)) = locate_value_at_path(schema, ty, ssz, &path) {
        if !matches!(schema.type_by_id(ty).kind, TypeKind::Optional(_)) {
            let found = reference::to_json(schema, ty, &ssz[range]);
            assert_eq!(found.as_ref(), Some(part), "{path}");
        }
    } else {
        assert!(path.contains("one.") || path.contains("none."), "{path}");
    }
    for wrong in ["[0", "[x]", "[99999]", ".nothing", "x[0]"] {
        let path = format!("{path}{wrong}");
        assert!(
            locate_value_at_path(schema, ty, ssz, &path).is_err(),
            "{path}"
        );
    }
}

/// Checks that any text is read as by the reference reader, in one piece and in many.
pub fn check_text(schema: &Schema, ty: TypeId, text: &[u8], choices: &mut FuzzedChoices<'_>) {
    let whole = json_to_ssz(schema, ty, text);
    let pieces = in_pieces(schema, ty, JsonEnvelopeForm::Bare, text, choices);
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(whole), Err(pieces)) => {
            assert_eq!(whole, pieces);
            assert!(whole.byte_offset() <= text.len() as u64, "{whole}");
        }
        _ => panic!("{whole:?}, in pieces {pieces:?}"),
    }
    let read = std::str::from_utf8(text)
        .map_err(|_| ())
        .and_then(|text| {
            serde_json::from_str::<Json>(text).map_err(|bad| {
                let bad = bad.to_string();
                // limits of the reference reader; and an ignored field may hold half of a
                // surrogate pair
                let is_limit = ["out of range", "recursion", "surrogate"];
                if is_limit.iter().any(|limit| bad.contains(limit)) {
                    return;
                }
                assert!(whole.is_err(), "{bad}: {whole:?}");
            })
        })
        .ok();
    let naive = read
        .as_ref()
        .and_then(|json| reference::to_ssz(schema, ty, json));
    match (&whole, naive) {
        (Ok(whole), Some(naive)) => assert_eq!(*whole, naive),
        (Err(_), None) => {}
        (Ok(_), None) if read.is_none() => {}
        (whole, naive) => panic!("{whole:?}, {naive:?}"),
    }
}

/// Checks that any bytes are accepted or refused as by the reference checker.
pub fn check_bytes(schema: &Schema, ty: TypeId, ssz: &[u8], choices: &mut FuzzedChoices<'_>) {
    let naive = reference::to_json(schema, ty, ssz);
    let checked = check_ssz(schema, ty, ssz);
    assert_eq!(checked.is_ok(), naive.is_some(), "{checked:?} {naive:?}");
    match naive {
        Some(json) => {
            assert_eq!(hash_tree_root(schema, ty, ssz), Ok(root(schema, ty, &json)));
            let written = ssz_to_json(schema, ty, ssz).unwrap();
            assert_eq!(String::from_utf8(written.clone()).unwrap(), json.write());
            assert_eq!(
                write_json_into_small_buffers(schema, ty, ssz, choices),
                written
            );
            assert_eq!(json_to_ssz(schema, ty, &written).as_deref(), Ok(ssz));
        }
        None => assert_eq!(ssz_to_json(schema, ty, ssz).err(), checked.err()),
    }
}

/// Reads a text in pieces of chosen lengths.
pub fn in_pieces(
    schema: &Schema,
    ty: TypeId,
    form: JsonEnvelopeForm,
    mut text: &[u8],
    choices: &mut FuzzedChoices<'_>,
) -> Result<Vec<u8>, sszip_core::ssz::SszError> {
    let mut reader = JsonToSsz::new(schema, ty, form);
    let most = [1, 2, 7, 60, 500, 9000][choices.below(6)];
    while !text.is_empty() {
        let len = (1 + choices.below(most)).min(text.len());
        reader.feed_json_piece(&text[..len])?;
        text = &text[len..];
    }
    reader.finish()
}

fn write_json_into_small_buffers(
    schema: &Schema,
    ty: TypeId,
    ssz: &[u8],
    choices: &mut FuzzedChoices<'_>,
) -> Vec<u8> {
    let mut writer = SszToJson::new(schema, ty, ssz).unwrap();
    let mut json = Vec::new();
    loop {
        let mut room = vec![0; 1024 + choices.below(600)];
        let len = writer.write_next(&mut room).unwrap();
        if len == 0 {
            return json;
        }
        json.extend(&room[..len]);
    }
}

/// Writes a value as a client may write it: with white space, fields in another order, additional
/// fields, hexadecimal digits of either case, and escapes.
pub fn write(json: &Json, choices: &mut FuzzedChoices<'_>) -> String {
    let white = ["", "", "", " ", "\n          ", "\r\n\t"];
    let pretty = choices.below(3) == 0;
    let mut text = String::new();
    write_to(json, &mut text, choices, &|choices| match pretty {
        true => white[choices.below(white.len())],
        false => "",
    });
    text
}

fn write_to(
    json: &Json,
    text: &mut String,
    choices: &mut FuzzedChoices<'_>,
    white: &dyn Fn(&mut FuzzedChoices<'_>) -> &'static str,
) {
    text.push_str(white(choices));
    match json {
        Json::Array(all) => {
            text.push('[');
            for (n, one) in all.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                write_to(one, text, choices, white);
            }
            text.push_str(white(choices));
            text.push(']');
        }
        Json::Object(all) => {
            let mut all: Vec<(String, Json)> = all.clone();
            let is_union = all[0].0 == "selector";
            if !is_union && choices.below(4) == 0 {
                let by = choices.below(all.len());
                all.rotate_left(by);
                let (a, b) = (choices.below(all.len()), choices.below(all.len()));
                all.swap(a, b);
            }
            if choices.below(4) == 0 {
                let extra = [
                    "[1,-2.5e+3,{\"a\":[null,true,false,\"\\u0041\\n\"]}]",
                    "\"\u{e9}\u{20ac}\"",
                    "0",
                    "{}",
                    "[]",
                ];
                let extra = extra[choices.below(extra.len())];
                let at = choices.below(all.len() + 1);
                all.insert(at, ("unknown".into(), Json::Text(extra.into())));
            }
            text.push('{');
            for (n, (name, value)) in all.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                text.push_str(white(choices));
                if choices.below(30) == 1 {
                    let escaped: String = name
                        .chars()
                        .map(|c| format!("\\u{:04X}", u32::from(c)))
                        .collect();
                    text.push_str(&format!("\"{escaped}\""));
                } else {
                    text.push_str(&format!("\"{name}\""));
                }
                text.push_str(white(choices));
                text.push(':');
                match value {
                    Json::Text(extra) if name == "unknown" => text.push_str(extra),
                    value => write_to(value, text, choices, white),
                }
            }
            text.push_str(white(choices));
            text.push('}');
        }
        Json::Text(value) if value.starts_with("0x") && choices.below(8) == 1 => {
            let upper = value.to_uppercase().replacen('X', "x", 1);
            match choices.below(3) {
                0 => text.push_str(&format!("\"\\u0030{}\"", &upper[1..])),
                _ => text.push_str(&format!("\"{upper}\"")),
            }
        }
        other => text.push_str(&other.write()),
    }
    text.push_str(white(choices));
}
