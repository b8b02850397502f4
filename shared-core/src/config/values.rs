//! The values that directives take, and what is said of those they don't.

use std::fmt;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// Where a directive stands, for people.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// The file and the line.
    pub at: &'a str,
}

/// Why a directive was not taken. The text goes on from the directive's name
/// and says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectiveError {
    /// There is no directive of that name.
    Unknown,
    /// The block has it already.
    Duplicate,
    /// There is one, or the other directive that says where the owner of a store is.
    OneOwner,
    /// It takes exactly one value.
    OneValue,
    /// It takes one value, or two.
    OneOrTwoValues,
    /// It takes exactly two values.
    TwoValues,
    /// It takes two values, or three.
    TwoOrThreeValues,
    /// It has a parameter twice.
    Twice {
        /// Its name.
        parameter: String,
    },
    /// A filter in a sandbox can't do that.
    Sandboxed {
        /// What does it, or what there is instead.
        why: &'static str,
    },
    /// The value is not what the directive takes.
    Value {
        /// As the operator wrote it.
        given: String,
        /// What it may be.
        allowed: String,
    },
}

impl fmt::Display for DirectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectiveError::Unknown => f.write_str("is an unknown setting"),
            DirectiveError::Duplicate => f.write_str("is duplicate"),
            DirectiveError::OneOwner => {
                f.write_str("is duplicate: one \"cache_path\" or \"cache_owner\" is already set")
            }
            DirectiveError::OneValue => f.write_str("takes exactly one value"),
            DirectiveError::OneOrTwoValues => f.write_str("takes one or two values"),
            DirectiveError::TwoValues => f.write_str("takes exactly two values"),
            DirectiveError::TwoOrThreeValues => f.write_str("takes two or three values"),
            DirectiveError::Twice { parameter } => write!(f, "has \"{parameter}=\" twice"),
            DirectiveError::Sandboxed { why } => {
                write!(f, "is not to be had in a sandbox: {why}")
            }
            DirectiveError::Value { given, allowed } => {
                write!(f, "has an invalid value \"{given}\": it must be {allowed}")
            }
        }
    }
}

impl std::error::Error for DirectiveError {}

impl DirectiveError {
    /// The same, of the whole word that the value is in.
    pub(super) fn of(self, word: &[u8]) -> Self {
        match self {
            DirectiveError::Value { allowed, .. } => invalid(word, allowed),
            other => other,
        }
    }

    /// The same, of a parameter of that name.
    pub(super) fn of_parameter(self, name: &[u8]) -> Self {
        match self {
            DirectiveError::Duplicate => DirectiveError::Twice {
                parameter: String::from_utf8_lossy(name).into_owned(),
            },
            other => other,
        }
    }
}

pub(super) fn invalid(given: &[u8], allowed: impl Into<String>) -> DirectiveError {
    DirectiveError::Value {
        given: String::from_utf8_lossy(given).into_owned(),
        allowed: allowed.into(),
    }
}

pub(super) fn once<T>(
    slot: &mut Option<T>,
    read: impl FnOnce() -> Result<T, DirectiveError>,
) -> Result<(), DirectiveError> {
    if slot.is_some() {
        return Err(DirectiveError::Duplicate);
    }
    *slot = Some(read()?);
    Ok(())
}

/// What a block does not say the one around it does.
pub(super) fn fill<T: Clone>(inner: &mut Option<T>, outer: &Option<T>) {
    if inner.is_none() {
        inner.clone_from(outer);
    }
}

pub(super) fn one<'a>(values: &[&'a [u8]]) -> Result<&'a [u8], DirectiveError> {
    match values {
        [value] => Ok(value),
        _ => Err(DirectiveError::OneValue),
    }
}

pub(super) fn flag(value: &[u8]) -> Result<bool, DirectiveError> {
    if value.eq_ignore_ascii_case(b"on") {
        Ok(true)
    } else if value.eq_ignore_ascii_case(b"off") {
        Ok(false)
    } else {
        Err(invalid(value, "\"on\" or \"off\""))
    }
}

/// Milliseconds of a time as nginx writes them: `1d12h`, `30m`, or bare
/// seconds.
pub(super) fn long_time(value: &[u8]) -> Result<u64, DirectiveError> {
    const UNITS: [(&str, u64); 8] = [
        ("y", 365 * 86_400_000),
        ("M", 30 * 86_400_000),
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];
    let read = || {
        let mut rest = std::str::from_utf8(value).ok()?;
        let (mut sum, mut units) = (0_u64, &UNITS[..]);
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit());
            let (number, after) = rest.split_at(digits.unwrap_or(rest.len()));
            let length = after.find(|c: char| !c.is_ascii_alphabetic());
            let (unit, after) = after.split_at(length.unwrap_or(after.len()));
            let unit = if unit.is_empty() { "s" } else { unit };
            // from the longest to the shortest
            let at = units.iter().position(|(name, _)| *name == unit)?;
            let part = number.parse::<u64>().ok()?.checked_mul(units[at].1)?;
            (sum, units) = (sum.checked_add(part)?, &units[at + 1..]);
            rest = after;
        }
        (1..=i64::MAX as u64).contains(&sum).then_some(sum)
    };
    read().ok_or_else(|| invalid(value, "a time of at least 1ms"))
}

#[derive(Clone, Copy)]
pub(super) enum Unit {
    Number,
    Bytes,
    /// Short times: with `ms` or `s`.
    Milliseconds,
    /// Any times: with `ms`, `s`, `m`, `h` or `d`; in milliseconds.
    Time,
}

/// The numbers that a directive takes.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) unit: Unit,
}

impl Range {
    pub(super) fn read(self, value: &[u8]) -> Result<u64, DirectiveError> {
        let (digits, factor) = match (self.unit, value) {
            (Unit::Bytes, [digits @ .., b'k' | b'K']) => (digits, KIB),
            (Unit::Bytes, [digits @ .., b'm' | b'M']) => (digits, MIB),
            (Unit::Bytes, [digits @ .., b'g' | b'G']) => (digits, GIB),
            (Unit::Milliseconds | Unit::Time, [digits @ .., b'm', b's']) => (digits, 1),
            (Unit::Milliseconds | Unit::Time, [digits @ .., b's']) => (digits, 1000),
            (Unit::Time, [digits @ .., b'm']) => (digits, 60_000),
            (Unit::Time, [digits @ .., b'h']) => (digits, 3_600_000),
            (Unit::Time, [digits @ .., b'd']) => (digits, 86_400_000),
            (Unit::Milliseconds | Unit::Time, b"0") => (&b"0"[..], 1),
            // a bare number is seconds elsewhere in nginx: not to be guessed
            (Unit::Milliseconds | Unit::Time, _) => (&b""[..], 1),
            (_, digits) => (digits, 1),
        };
        std::str::from_utf8(digits)
            .ok()
            // str::parse would take a sign
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse::<u64>().ok())
            .and_then(|number| number.checked_mul(factor))
            .filter(|number| (self.least..=self.most).contains(number))
            .ok_or_else(|| invalid(value, self.to_string()))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { least, most, unit } = *self;
        match unit {
            Unit::Number => write!(f, "a number from {least} to {most}"),
            // more than anybody has
            Unit::Bytes if most >= 1 << 50 => write!(f, "a size of at least {}", Size(least)),
            Unit::Bytes => write!(f, "a size from {} to {}", Size(least), Size(most)),
            Unit::Milliseconds => write!(f, "a time from {least}ms to {most}ms"),
            Unit::Time => {
                f.write_str("a time with its unit (ms, s, m, h or d), ")?;
                match least {
                    0 => write!(f, "at most {}", Duration(most)),
                    least => write!(f, "from {} to {}", Duration(least), Duration(most)),
                }
            }
        }
    }
}

/// A size as an operator would write it.
pub(super) struct Size(pub(super) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            size if size >= GIB && size % GIB == 0 => write!(f, "{}g", size / GIB),
            size if size >= MIB && size % MIB == 0 => write!(f, "{}m", size / MIB),
            size if size >= KIB && size % KIB == 0 => write!(f, "{}k", size / KIB),
            size => write!(f, "{size}"),
        }
    }
}

/// Milliseconds as an operator would write them.
pub(super) struct Duration(pub(super) u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1_000, "s"),
        ];
        let unit = units
            .iter()
            .find(|(unit, _)| self.0 > 0 && self.0.is_multiple_of(*unit));
        match unit {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::long_time;

    #[test]
    fn long_times_are_sums_from_the_longest_unit_to_the_shortest() {
        for (value, time) in [
            ("1", Some(1000)),
            ("1ms", Some(1)),
            ("1m30s", Some(90_000)),
            ("1m30", Some(90_000)),
            ("1w", Some(604_800_000)),
            ("2M", Some(5_184_000_000)),
            ("1y1ms", Some(31_536_000_001)),
            ("", None),
            ("0", None),
            ("s", None),
            ("1s1m", None),
            ("1m1m", None),
            ("1x", None),
            ("-1s", None),
            ("1 s", None),
            ("never", None),
            ("99999999999999999999", None),
            ("999999999999999999y", None),
        ] {
            assert_eq!(long_time(value.as_bytes()).ok(), time, "{value}");
        }
    }
}
