//! Canonical JSON text: `remove_white_space` removes the white space of a recording,
//! `canonical_params_key` builds the key by which the response to a call is found.
//!
//! Both work on text. Numbers are never parsed, so that `1e3`, `1000` and 2^64 keep the notation
//! of the node or the caller.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Maximum nesting of params that are sorted; deeper ones are only compacted, since hostile input
/// must not decide the depth of the recursion.
const SORT_DEPTH: usize = 64;

/// Key of absent params; `null` and `[]` have the same meaning for a node.
const NO_PARAMS: &[u8] = b"[]";

/// Removes the white space outside strings from valid JSON.
pub fn remove_white_space(json: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut run_start = 0;
    let mut in_string = false;
    let mut escaped = false;
    for (at, &byte) in json.as_bytes().iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => {
                out.extend_from_slice(&json.as_bytes()[run_start..at]);
                run_start = at + 1;
            }
            _ => (),
        }
    }
    out.extend_from_slice(&json.as_bytes()[run_start..]);
    out
}

/// Returns the canonical text of `params`, by which responses are found: no white space, object
/// members sorted by name, strings with the fewest escapes.
pub fn canonical_params_key(params: Option<&RawValue>) -> Cow<'_, [u8]> {
    let Some(params) = params else {
        return Cow::Borrowed(NO_PARAMS);
    };
    let text = params.get();
    if text == "null" {
        return Cow::Borrowed(NO_PARAMS);
    }
    // Most callers send compact arrays of plain strings: already canonical.
    let plain = !text
        .bytes()
        .any(|b| matches!(b, b'{' | b'\\' | b' ' | b'\t' | b'\n' | b'\r'));
    if plain {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut key = Vec::with_capacity(text.len());
    write_canonical(text, SORT_DEPTH, &mut key);
    Cow::Owned(key)
}

/// Appends the canonical form of a value. A value that is nested deeper than `depth`, or cannot be
/// read, is only stripped of white space.
fn write_canonical(text: &str, depth: usize, out: &mut Vec<u8>) {
    let written = match text.as_bytes().first() {
        Some(b'{') if depth > 0 => write_object(text, depth, out),
        Some(b'[') if depth > 0 => write_array(text, depth, out),
        Some(b'"') => write_string(text, out),
        _ => None,
    };
    if written.is_none() {
        out.extend_from_slice(&remove_white_space(text));
    }
}

/// Appends an object with its members sorted by name. `None`: the text is not an object.
fn write_object(text: &str, depth: usize, out: &mut Vec<u8>) -> Option<()> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    out.push(b'{');
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(serde_json::to_string(name).ok()?.as_bytes());
        out.push(b':');
        write_canonical(value.get(), depth - 1, out);
    }
    out.push(b'}');
    Some(())
}

/// Appends an array with canonical elements. `None`: the text is not an array.
fn write_array(text: &str, depth: usize, out: &mut Vec<u8>) -> Option<()> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_canonical(item.get(), depth - 1, out);
    }
    out.push(b']');
    Some(())
}

/// Appends a string in its shortest notation. `None`: the text is not a string.
fn write_string(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let decoded: String = serde_json::from_str(text).ok()?;
    out.extend_from_slice(serde_json::to_string(&decoded).ok()?.as_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> String {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        String::from_utf8(canonical_params_key(Some(raw)).into_owned()).unwrap()
    }

    #[test]
    fn compact_preserves_strings_and_number_notation() {
        let json = "{ \"a b\" : [ 1e3 ,\n\t-0.10 ] , \"q\\\" x\" : \"\\u0041 \\\\\" , \"e\":{ } }";
        let expected = "{\"a b\":[1e3,-0.10],\"q\\\" x\":\"\\u0041 \\\\\",\"e\":{}}";
        assert_eq!(
            String::from_utf8(remove_white_space(json)).unwrap(),
            expected
        );
    }

    #[test]
    fn key_ignores_member_order_white_space_and_escapes() {
        let expected = r#"["0x1",{"a":[true,{"x":1,"y":2}],"b":null}]"#;
        assert_eq!(key(expected), expected);
        let other = "[ \"\\u0030x1\", {\"b\":null, \"a\":[true,{\"y\":2 ,\"x\":1}]} ]";
        assert_eq!(key(other), expected);
    }

    #[test]
    fn keys_differ_by_type_and_number_notation() {
        let keys = [
            "[1]",
            "[1.0]",
            "[\"1\"]",
            "[1e0]",
            "[[1]]",
            "[true]",
            "{}",
            "[\"0X1\"]",
            "[\"0x1\"]",
        ];
        for (index, first) in keys.iter().enumerate() {
            for second in &keys[index + 1..] {
                assert_ne!(key(first), key(second));
            }
        }
    }

    #[test]
    fn absent_null_and_empty_params_have_the_same_key() {
        assert_eq!(canonical_params_key(None), key("[]").as_bytes());
        assert_eq!(key("null"), key("[ ]"));
    }

    #[test]
    fn deeply_nested_params_are_compacted_without_sorting() {
        let deep = format!(
            "{}{{\"b\":1, \"a\":2}}{}",
            "[".repeat(5000),
            "]".repeat(5000)
        );
        assert_eq!(key(&deep), deep.replace(' ', ""));
    }
}
