//! Oracle of `sszip_core::jsonrpc`: slow, recursive, and based on serde_json. The fuzz targets
//! use it too.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sszip_core::jsonrpc::key::{self, CallKeyError};
use sszip_core::jsonrpc::scan::{JsonScanError, JsonValueKind, StrictJsonReader};

/// A JSON value as serde_json reads it, for comparison with the scanner.
#[derive(Debug)]
pub struct Node<'a> {
    /// Text of the value, unchanged.
    pub raw: &'a str,
    /// Elements or members of the value.
    pub parts: Parts<'a>,
}

/// The elements of an array, the members of an object, or none.
#[derive(Debug)]
pub enum Parts<'a> {
    /// No parts.
    Leaf,
    /// Elements of an array.
    Array(Vec<Node<'a>>),
    /// Members of an object; their names are unchanged, with quotes.
    Object(Vec<(&'a str, Node<'a>)>),
}

struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl<'a> Node<'a> {
    /// Parses the whole text if it is JSON. serde_json accepts an unpaired surrogate where it
    /// skips a string, so strings are parsed again.
    pub fn parse(text: &'a [u8]) -> Option<Node<'a>> {
        let text = std::str::from_utf8(text).ok()?;
        Node::expand(serde_json::from_str::<&RawValue>(text).ok()?)
    }

    fn expand(value: &'a RawValue) -> Option<Node<'a>> {
        let raw = value.get();
        let parts = match raw.as_bytes()[0] {
            b'[' => {
                let elements: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
                let nodes: Option<_> = elements.into_iter().map(Node::expand).collect();
                Parts::Array(nodes?)
            }
            b'{' => {
                let members: Members = serde_json::from_str(raw).ok()?;
                let nodes: Option<_> = members
                    .0
                    .into_iter()
                    .map(|(name, value)| {
                        Node::expand(name)?;
                        Some((name.get(), Node::expand(value)?))
                    })
                    .collect();
                Parts::Object(nodes?)
            }
            b'"' => {
                serde_json::from_str::<String>(raw).ok()?;
                Parts::Leaf
            }
            _ => Parts::Leaf,
        };
        Some(Node { raw, parts })
    }

    /// Returns the maximum nesting depth of the value.
    pub fn depth(&self) -> usize {
        let deepest =
            |nodes: &mut dyn Iterator<Item = &Node>| 1 + nodes.map(Node::depth).max().unwrap_or(0);
        match &self.parts {
            Parts::Leaf => 0,
            Parts::Array(elements) => deepest(&mut elements.iter()),
            Parts::Object(members) => deepest(&mut members.iter().map(|(_, value)| value)),
        }
    }

    /// Returns the positions in `text` of the names and values of the outer `levels`, in their
    /// order. Names are without quotes.
    pub fn spans(&self, text: &[u8], levels: usize) -> Vec<Range<usize>> {
        let mut spans = Vec::new();
        self.collect(text.as_ptr() as usize, levels, &mut spans);
        spans
    }

    fn collect(&self, base: usize, levels: usize, spans: &mut Vec<Range<usize>>) {
        let start = self.raw.as_ptr() as usize - base;
        match &self.parts {
            Parts::Array(elements) if levels > 0 => {
                for element in elements {
                    element.collect(base, levels - 1, spans);
                }
            }
            Parts::Object(members) if levels > 0 => {
                for (name, value) in members {
                    let start = name.as_ptr() as usize - base;
                    spans.push(start + 1..start + name.len() - 1);
                    value.collect(base, levels - 1, spans);
                }
            }
            _ => {}
        }
        spans.push(start..start + self.raw.len());
    }

    /// Returns the canonical text, if there is one.
    pub fn canonical(&self) -> Option<String> {
        if self.depth() > key::MAX_PARAMS_DEPTH {
            return None;
        }
        Some(match &self.parts {
            Parts::Leaf => normal(self.raw),
            Parts::Array(elements) => {
                let texts: Option<Vec<_>> = elements.iter().map(Node::canonical).collect();
                format!("[{}]", texts?.join(","))
            }
            Parts::Object(members) => {
                let mut sorted = BTreeMap::new();
                for (name, value) in members {
                    if name.contains('\\') || !name.is_ascii() {
                        return None;
                    }
                    let member = format!("{}:{}", normal(name), value.canonical()?);
                    if sorted.insert(name.to_lowercase(), member).is_some() {
                        return None;
                    }
                }
                let texts: Vec<_> = sorted.into_values().collect();
                format!("{{{}}}", texts.join(","))
            }
        })
    }

    /// Returns a text that is equivalent by the rules of keys, in a notation chosen by `choose`:
    /// white space, order of members, and case of digits.
    pub fn equivalent_text(&self, choose: &mut dyn FnMut() -> u8) -> String {
        let mut blank = || ["", "", " ", "\n\t", "\r"][usize::from(choose()) % 5];
        let (before, after) = (blank(), blank());
        let text = match &self.parts {
            Parts::Leaf => change_hex_case(self.raw, choose),
            Parts::Array(elements) => {
                let texts: Vec<_> = elements.iter().map(|e| e.equivalent_text(choose)).collect();
                format!("[{}{after}]", texts.join(","))
            }
            Parts::Object(members) => {
                let mut texts = Vec::new();
                for (name, value) in members {
                    let text = format!(
                        "{}{before}:{}",
                        change_hex_case(name, choose),
                        value.equivalent_text(choose)
                    );
                    texts.insert(usize::from(choose()) % (texts.len() + 1), text);
                }
                format!("{{{before}{}}}", texts.join(&format!("{before},{after}")))
            }
        };
        format!("{before}{text}{after}")
    }
}

fn is_hex_of_fixed_length(string: &str) -> bool {
    (string.len() == 2 + 40 + 2 || string.len() == 2 + 64 + 2)
        && string.starts_with("\"0x")
        && string[3..string.len() - 1]
            .chars()
            .all(|c| c.is_ascii_hexdigit())
}

fn normal(leaf: &str) -> String {
    if is_hex_of_fixed_length(leaf) {
        leaf.to_lowercase()
    } else {
        leaf.into()
    }
}

fn change_hex_case(leaf: &str, choose: &mut dyn FnMut() -> u8) -> String {
    if !is_hex_of_fixed_length(leaf) {
        return leaf.into();
    }
    let digits = leaf[3..].chars().map(|c| match choose() % 2 {
        0 => c.to_ascii_lowercase(),
        _ => c.to_ascii_uppercase(),
    });
    leaf[..3].chars().chain(digits).collect()
}

/// Returns the positions of `Node::spans` from the scanner.
pub fn scanned(text: &[u8], levels: usize) -> Result<Vec<Range<usize>>, JsonScanError> {
    let mut scanner = StrictJsonReader::for_untrusted_text(text)?;
    let mut spans = Vec::new();
    walk(&mut scanner, levels, &mut spans)?;
    scanner.expect_end()?;
    Ok(spans)
}

fn walk(
    scanner: &mut StrictJsonReader<'_>,
    levels: usize,
    spans: &mut Vec<Range<usize>>,
) -> Result<(), JsonScanError> {
    let kind = scanner.next_value_kind()?;
    let start = scanner.next_value_start();
    match kind {
        JsonValueKind::Array if levels > 0 => {
            let mut another = scanner.enter_array()?;
            while another {
                walk(scanner, levels - 1, spans)?;
                another = scanner.next_element()?;
            }
        }
        JsonValueKind::Object if levels > 0 => {
            let mut next = scanner.read_first_member_name()?;
            while let Some(name) = next {
                spans.push(name.content);
                walk(scanner, levels - 1, spans)?;
                next = scanner.next_member()?;
            }
        }
        JsonValueKind::String if levels > 0 => {
            scanner.read_string()?;
        }
        _ => assert_eq!(scanner.skip_value()?.span, start..scanner.last_read_end()),
    }
    spans.push(start..scanner.last_read_end());
    Ok(())
}

/// Asserts that the scanner and serde_json agree on a text, at several numbers of levels.
pub fn agree_on_text(text: &[u8]) {
    let node = Node::parse(text);
    let deepest = sszip_core::jsonrpc::scan::MAX_DEPTH;
    let accepted = node.filter(|node| node.depth() <= deepest);
    for levels in [0, 1, 2, usize::MAX] {
        let ours = scanned(text, levels);
        let shown = String::from_utf8_lossy(text);
        match &accepted {
            Some(node) => assert_eq!(ours, Ok(node.spans(text, levels)), "{shown}"),
            None => {
                let error = ours.expect_err(&shown);
                assert!(error.offset <= text.len(), "{error} in {shown}");
            }
        }
    }
}

/// Returns the key of the params, and their canonical text.
pub fn key_and_canonical(
    params: &[u8],
) -> (Result<key::CallCacheKey, CallKeyError>, Option<String>) {
    let canonical = Node::parse(params).and_then(|node| node.canonical());
    (
        key::call_cache_key(b"scope", b"method", Some(params)),
        canonical,
    )
}

/// Asserts that two texts share a key if and only if they have one canonical
/// form, and that each has a key if and only if it has such a form.
pub fn agree_on_keys(a: &[u8], b: &[u8]) {
    let ((key_a, form_a), (key_b, form_b)) = (key_and_canonical(a), key_and_canonical(b));
    let shown = || {
        format!(
            "{:?} {:?}",
            String::from_utf8_lossy(a),
            String::from_utf8_lossy(b)
        )
    };
    assert_eq!(key_a.is_ok(), form_a.is_some(), "{key_a:?} {}", shown());
    assert_eq!(key_b.is_ok(), form_b.is_some(), "{key_b:?} {}", shown());
    if let (Ok(key_a), Ok(key_b)) = (key_a, key_b) {
        assert_eq!(key_a == key_b, form_a == form_b, "{}", shown());
    }
}
