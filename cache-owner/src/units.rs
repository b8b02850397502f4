//! Values of the daemon's configuration, as people write them.

use std::fmt;
use std::path::PathBuf;

use serde::de::{self, Deserializer, Visitor};
use serde::Deserialize;

/// A path that does not depend on where the daemon is started.
pub(crate) fn absolute<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(from)?;
    match path.is_absolute() {
        true => Ok(path),
        false => Err(de::Error::custom(format_args!(
            "\"{}\" is not an absolute path",
            path.display()
        ))),
    }
}

/// Bytes: a number, or one with k, m or g.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl Size {
    pub(crate) fn of<const NUMBER: u64, const SHIFT: u32>() -> Self {
        Self(NUMBER << SHIFT)
    }
}

/// Milliseconds: a number with ms, s, m, h or d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub u64);

impl Time {
    pub(crate) fn of<const SECONDS: u64>() -> Self {
        Self(SECONDS * 1_000)
    }
}

/// How many threads: 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(pub usize);

impl Default for Threads {
    fn default() -> Self {
        // some 50,000 look-ups a second
        Self(1)
    }
}

/// A user and its group: of a user's name, or `user:group`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub user: u32,
    /// The group's.
    pub group: u32,
}

/// The number before one of the units, times it.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units
        .iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A string, or a number as if it were one.
struct Text<T>(&'static str, fn(&str) -> Option<T>);

impl<T> Visitor<'_> for Text<T> {
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

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text(
            "a size in bytes, such as 65536, \"64k\", \"256m\" or \"10g\"",
            |text| {
                let units = [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)];
                with_unit(text, &units).filter(|size| *size > 0).map(Self)
            },
        ))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text(
            "a time, such as \"500ms\", \"60s\", \"5m\", \"1h\" or \"7d\"",
            |text| {
                let units = [
                    ("ms", 1),
                    ("s", 1_000),
                    ("m", 60_000),
                    ("h", 3_600_000),
                    ("d", 86_400_000),
                ];
                with_unit(text, &units).filter(|time| *time > 0).map(Self)
            },
        ))
    }
}

impl<'de> Deserialize<'de> for Threads {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text("a number from 1 to 64", |text| {
            let number = text.parse().ok();
            number.filter(|n| (1..=64).contains(n)).map(Self)
        }))
    }
}

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Text(
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
                Some(Self {
                    user: user.uid.as_raw(),
                    group: group.as_raw(),
                })
            },
        ))
    }
}
