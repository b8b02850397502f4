//! The Beacon API's `{"version": ..., "data": ...}`, with the deviations that nodes show.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The way in which an option alters the fork that a response declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclaredForkAlteration {
    Nothing,
    /// The actual fork, after the value.
    Late,
    /// This name, whether or not it is correct.
    Fork(String),
}

/// The members of a JSON object in the order of the text.
struct MembersInTextOrder<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for MembersInTextOrder<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = MembersInTextOrder<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(MembersInTextOrder(members))
            }
        }

        from.deserialize_map(InOrder)
    }
}

/// Returns the object with its `version` omitted, moved or replaced, or `None` if `json` is not an
/// object.
pub fn alter_declared_version(
    json: &[u8],
    declaration: &DeclaredForkAlteration,
) -> Option<Vec<u8>> {
    let MembersInTextOrder(mut members) = serde_json::from_slice(json).ok()?;
    let at = members.iter().position(|(name, _)| name == "version");
    let version = at.map(|at| members.remove(at));
    let mut out = b"{".to_vec();
    match (declaration, version) {
        (DeclaredForkAlteration::Fork(fork), _) => {
            write_member(&mut out, "version", &serde_json::to_string(fork).ok()?);
        }
        (DeclaredForkAlteration::Late, Some(version)) => members.push(version),
        (DeclaredForkAlteration::Late, None) | (DeclaredForkAlteration::Nothing, _) => (),
    }
    for (name, value) in members {
        write_member(&mut out, &name, value.get());
    }
    out.push(b'}');
    Some(out)
}

fn write_member(out: &mut Vec<u8>, name: &str, value: &str) {
    if out.len() > 1 {
        out.push(b',');
    }
    // A string always has JSON.
    out.extend(serde_json::to_vec(name).unwrap_or_default());
    out.push(b':');
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_omitted_moved_or_replaced() {
        let json = r#"{"version":"electra","finalized":true,"data":[{"version":"1"}, 2]}"#;
        let without = r#""finalized":true,"data":[{"version":"1"}, 2]"#;
        for (declaration, expected) in [
            (DeclaredForkAlteration::Nothing, format!("{{{without}}}")),
            (
                DeclaredForkAlteration::Late,
                format!(r#"{{{without},"version":"electra"}}"#),
            ),
            (
                DeclaredForkAlteration::Fork("a\"b".into()),
                format!(r#"{{"version":"a\"b",{without}}}"#),
            ),
        ] {
            let made = alter_declared_version(json.as_bytes(), &declaration).unwrap();
            assert_eq!(String::from_utf8(made).unwrap(), expected);
        }
        let alone =
            alter_declared_version(b"{}", &DeclaredForkAlteration::Fork("x".into())).unwrap();
        assert_eq!(alone, br#"{"version":"x"}"#);
        assert_eq!(
            alter_declared_version(b"{}", &DeclaredForkAlteration::Late).unwrap(),
            b"{}"
        );
        assert_eq!(
            alter_declared_version(b"[]", &DeclaredForkAlteration::Late),
            None
        );
    }
}
