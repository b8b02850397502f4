//! Values of the daemon's configuration, with their units.

use std::fmt;
use std::path::PathBuf;

use serde::de::{self, Deserializer, Visitor};
use serde::Deserialize;

/// Deserializes an absolute path, which does not depend on the working directory of the daemon.
pub(crate) fn deserialize_absolute_path<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(from)?;
    match path.is_absolute() {
        true => Ok(path),
        false => Err(de::Error::custom(format_args!(
            "\"{}\" is not an absolute path",
            path.display()
        ))),
    }
}

/// Parses a number with a unit, and returns it times the unit's factor. 0 or another text is
/// `None`.
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units
        .iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    let value = number.parse::<u64>().ok()?.checked_mul(*factor);
    value.filter(|value| *value > 0)
}

/// A serde visitor that parses a string, or a number as if it were a string, with a function.
struct TextVisitor<T>(&'static str, fn(&str) -> Option<T>);

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        (self.1)(&number.to_string())
            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }
}

/// Deserializes a size in bytes: a number, or a number with k, m or g.
pub(crate) fn deserialize_size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    const UNITS: [(&str, u64); 4] = [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)];
    from.deserialize_any(TextVisitor(
        "a size in bytes, such as 65536, \"64k\", \"256m\" or \"10g\"",
        |text| parse_with_unit(text, &UNITS),
    ))
}

/// Deserializes a time in milliseconds: a number with ms, s, m, h or d.
pub(crate) fn deserialize_duration<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    const UNITS: [(&str, u64); 5] = [
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    from.deserialize_any(TextVisitor(
        "a time, such as \"500ms\", \"60s\", \"5m\", \"1h\" or \"7d\"",
        |text| parse_with_unit(text, &UNITS),
    ))
}

/// Deserializes a time in milliseconds for a setting without a default.
pub(crate) fn deserialize_optional_duration<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    deserialize_duration(from).map(Some)
}

/// Deserializes a text, or a number as text, for a setting whose notation the core checks.
pub(crate) fn deserialize_optional_text<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<String>, D::Error> {
    from.deserialize_any(TextVisitor("a string or a number", |text| {
        Some(Some(text.to_owned()))
    }))
}

/// Deserializes a number of threads: 1 to 64.
pub(crate) fn deserialize_thread_count<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<usize, D::Error> {
    from.deserialize_any(TextVisitor("a number from 1 to 64", |text| {
        text.parse().ok().filter(|n| (1..=64).contains(n))
    }))
}

/// Deserializes the name of a user, or `user:group`, to the numbers of both.
pub(crate) fn deserialize_user_and_group<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<(u32, u32)>, D::Error> {
    from.deserialize_any(TextVisitor(
        "a user of this system, such as \"www-data\" or \"www-data:adm\"",
        |text| {
            let (user, group) = match text.split_once(':') {
                Some((user, group)) => (user, Some(group)),
                None => (text, None),
            };
            let user = nix::unistd::User::from_name(user).ok()??;
            let group = match group {
                Some(name) => nix::unistd::Group::from_name(name).ok()??.gid,
                None => user.gid,
            };
            Some(Some((user.uid.as_raw(), group.as_raw())))
        },
    ))
}
