//! Parsers of the directives' values, and their errors.

use std::fmt;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// The position of a directive in the configuration, for messages that name it.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectiveLocation<'a> {
    /// File and line.
    pub at: &'a str,
}

/// The reason why a directive is rejected. The text continues a sentence that begins with the
/// directive's name, and contains the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectiveError {
    /// The directive does not exist.
    Unknown,
    /// The block has the directive already.
    Duplicate,
    /// The configuration has the directive already, or another one that excludes it: it has one
    /// owner of the store, and one fleet.
    AlreadySet {
        /// The directive that is set.
        name: &'static str,
        /// File and line of the directive; empty if unknown.
        at: String,
    },
    /// The directive takes exactly one value.
    OneValue,
    /// The directive takes one or two values.
    OneOrTwoValues,
    /// The directive takes exactly two values.
    TwoValues,
    /// The directive takes two or three values.
    TwoOrThreeValues,
    /// A parameter occurs twice.
    Twice {
        /// Name of the parameter.
        parameter: String,
    },
    /// The setting is not available in a sandbox.
    Sandboxed {
        /// The reason, or the replacement.
        why: &'static str,
    },
    /// A file that the directive names is not usable.
    File {
        /// The problem and the remedy, with the name of the file.
        text: String,
    },
    /// The value is not allowed.
    Value {
        /// The value in the configuration.
        value: String,
        /// Description of the allowed values.
        allowed: String,
    },
}

impl fmt::Display for DirectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectiveError::Unknown => f.write_str("is an unknown setting"),
            DirectiveError::Duplicate => f.write_str("is duplicate"),
            DirectiveError::AlreadySet { name, at } => {
                write!(f, "is duplicate: \"{name}\" is already set")?;
                match at.as_str() {
                    "" => Ok(()),
                    at => write!(f, " at {at}"),
                }
            }
            DirectiveError::OneValue => f.write_str("takes exactly one value"),
            DirectiveError::OneOrTwoValues => f.write_str("takes one or two values"),
            DirectiveError::TwoValues => f.write_str("takes exactly two values"),
            DirectiveError::TwoOrThreeValues => f.write_str("takes two or three values"),
            DirectiveError::Twice { parameter } => {
                write!(f, "has the parameter \"{parameter}=\" twice")
            }
            DirectiveError::Sandboxed { why } => {
                write!(f, "is not available in the sandbox: {why}")
            }
            DirectiveError::File { text } => f.write_str(text),
            DirectiveError::Value { value, allowed } => {
                write!(f, "has an invalid value \"{value}\": it must be {allowed}")
            }
        }
    }
}

impl std::error::Error for DirectiveError {}

impl DirectiveError {
    /// Replaces the rejected value with the whole word that contains it.
    pub(super) fn with_rejected_word(self, word: &[u8]) -> Self {
        match self {
            DirectiveError::Value { allowed, .. } => invalid_value_error(word, allowed),
            other => other,
        }
    }

    /// Converts a duplicate to the error of the named parameter.
    pub(super) fn into_duplicate_parameter_error(self, name: &[u8]) -> Self {
        match self {
            DirectiveError::Duplicate => DirectiveError::Twice {
                parameter: String::from_utf8_lossy(name).into_owned(),
            },
            other => other,
        }
    }
}

pub(super) fn invalid_value_error(value: &[u8], allowed: impl Into<String>) -> DirectiveError {
    DirectiveError::Value {
        value: String::from_utf8_lossy(value).into_owned(),
        allowed: allowed.into(),
    }
}

/// Stores a value that `read` parses. Errors: the slot has a value already, or `read` fails.
pub(super) fn set_once<T>(
    slot: &mut Option<T>,
    read: impl FnOnce() -> Result<T, DirectiveError>,
) -> Result<(), DirectiveError> {
    if slot.is_some() {
        return Err(DirectiveError::Duplicate);
    }
    *slot = Some(read()?);
    Ok(())
}

/// Copies a setting from the enclosing block if it is unset.
pub(super) fn inherit_unset<T: Clone>(inner: &mut Option<T>, outer: &Option<T>) {
    if inner.is_none() {
        inner.clone_from(outer);
    }
}

/// Returns the only value of a directive. Errors: it has none or several.
pub(super) fn single_directive_value<'a>(values: &[&'a [u8]]) -> Result<&'a [u8], DirectiveError> {
    match values {
        [value] => Ok(value),
        _ => Err(DirectiveError::OneValue),
    }
}

/// Parses `on` or `off`. Errors: any other value.
pub(super) fn parse_flag(value: &[u8]) -> Result<bool, DirectiveError> {
    if value.eq_ignore_ascii_case(b"on") {
        Ok(true)
    } else if value.eq_ignore_ascii_case(b"off") {
        Ok(false)
    } else {
        Err(invalid_value_error(value, "\"on\" or \"off\""))
    }
}

/// Returns the milliseconds of a time in nginx's notation: `1d12h`, `30m`, or seconds without a
/// unit.
pub(super) fn parse_nginx_time(value: &[u8]) -> Result<u64, DirectiveError> {
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
            // units must descend
            let at = units.iter().position(|(name, _)| *name == unit)?;
            let part = number.parse::<u64>().ok()?.checked_mul(units[at].1)?;
            (sum, units) = (sum.checked_add(part)?, &units[at + 1..]);
            rest = after;
        }
        (1..=i64::MAX as u64).contains(&sum).then_some(sum)
    };
    read().ok_or_else(|| {
        let suggestion = parse_lenient_time(value).filter(|time| *time > 0);
        let suggestion = suggestion.map(|time| DisplayMilliseconds(time).to_string());
        invalid_value_error(value, add_suggestion("a time of at least 1ms", suggestion))
    })
}

/// The unit of a directive's number, which determines its notation.
#[derive(Clone, Copy)]
pub(super) enum DirectiveValueUnit {
    Number,
    Bytes,
    /// Short time with `ms` or `s`, in milliseconds.
    Milliseconds,
    /// Any time with `ms`, `s`, `m`, `h` or `d`, in milliseconds.
    Time,
}

/// The range of numbers that a directive accepts, from `least` to `most`, and their unit.
#[derive(Clone, Copy)]
pub(super) struct DirectiveValueRange {
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) unit: DirectiveValueUnit,
}

impl DirectiveValueRange {
    /// Parses a number in the notation of its unit. Errors: it is no number, or out of the range.
    pub(super) fn parse_in_range(self, value: &[u8]) -> Result<u64, DirectiveError> {
        let (digits, factor) = match (self.unit, value) {
            (DirectiveValueUnit::Bytes, [digits @ .., b'k' | b'K']) => (digits, KIB),
            (DirectiveValueUnit::Bytes, [digits @ .., b'm' | b'M']) => (digits, MIB),
            (DirectiveValueUnit::Bytes, [digits @ .., b'g' | b'G']) => (digits, GIB),
            (
                DirectiveValueUnit::Milliseconds | DirectiveValueUnit::Time,
                [digits @ .., b'm', b's'],
            ) => (digits, 1),
            (DirectiveValueUnit::Milliseconds | DirectiveValueUnit::Time, [digits @ .., b's']) => {
                (digits, 1000)
            }
            (DirectiveValueUnit::Time, [digits @ .., b'm']) => (digits, 60_000),
            (DirectiveValueUnit::Time, [digits @ .., b'h']) => (digits, 3_600_000),
            (DirectiveValueUnit::Time, [digits @ .., b'd']) => (digits, 86_400_000),
            (DirectiveValueUnit::Milliseconds | DirectiveValueUnit::Time, b"0") => (&b"0"[..], 1),
            // a number without a unit is ambiguous: elsewhere in nginx it means seconds
            (DirectiveValueUnit::Milliseconds | DirectiveValueUnit::Time, _) => (&b""[..], 1),
            (_, digits) => (digits, 1),
        };
        std::str::from_utf8(digits)
            .ok()
            // str::parse would accept a sign
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse::<u64>().ok())
            .and_then(|number| number.checked_mul(factor))
            .filter(|number| (self.least..=self.most).contains(number))
            .ok_or_else(|| {
                invalid_value_error(
                    value,
                    add_suggestion(&self.to_string(), self.suggest_value(value)),
                )
            })
    }

    /// Suggests an allowed value for a value that has another name of a unit, or a fraction.
    fn suggest_value(self, value: &[u8]) -> Option<String> {
        let word = match self.unit {
            DirectiveValueUnit::Number => return None,
            DirectiveValueUnit::Bytes => DisplaySize(parse_lenient_size(value)?).to_string(),
            DirectiveValueUnit::Time => DisplayMilliseconds(parse_lenient_time(value)?).to_string(),
            DirectiveValueUnit::Milliseconds => match parse_lenient_time(value)? {
                time if time.is_multiple_of(1000) => format!("{}s", time / 1000),
                time => format!("{time}ms"),
            },
        };
        let differs = word.as_bytes() != value;
        (differs && self.parse_in_range(word.as_bytes()).is_ok()).then_some(word)
    }
}

fn add_suggestion(allowed: &str, suggestion: Option<String>) -> String {
    match suggestion {
        Some(suggestion) => format!("{allowed}; did you mean \"{suggestion}\"?"),
        None => allowed.to_owned(),
    }
}

/// Parses a size in common notations, `20gb` or `1.5 GiB`, for a suggestion; the result is in
/// bytes.
fn parse_lenient_size(value: &[u8]) -> Option<u64> {
    parse_with_unit(value, |unit| {
        let unit = unit.to_ascii_lowercase();
        Some(match unit.as_str() {
            "" | "b" | "byte" | "bytes" => 1,
            "k" | "kb" | "kib" => KIB,
            "m" | "mb" | "mib" => MIB,
            "g" | "gb" | "gib" => GIB,
            "t" | "tb" | "tib" => GIB << 10,
            _ => return None,
        })
    })
}

/// Parses a time in common notations, `5min` or `1.5 s`, for a suggestion; the result is in
/// milliseconds. A number without a unit is ambiguous.
fn parse_lenient_time(value: &[u8]) -> Option<u64> {
    parse_with_unit(value, |unit| {
        // a month in nginx, and probably not intended
        if unit == "M" {
            return None;
        }
        let unit = unit.to_ascii_lowercase();
        Some(match unit.as_str() {
            "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            "w" | "week" | "weeks" => 7 * 86_400_000,
            _ => return None,
        })
    })
}

/// Parses a decimal number and its unit, and returns their product, or `None` if it is not an
/// integer.
fn parse_with_unit(value: &[u8], unit: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, name) = text.split_at(end.unwrap_or(text.len()));
    let factor = unit(name.trim())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits = format!("{whole}{fraction}").parse::<u64>().ok()?;
    let product = digits.checked_mul(factor)?;
    product.is_multiple_of(scale).then_some(product / scale)
}

impl fmt::Display for DirectiveValueRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DirectiveValueRange { least, most, unit } = *self;
        match unit {
            DirectiveValueUnit::Number => write!(f, "a number from {least} to {most}"),
            // the maximum is larger than any disk
            DirectiveValueUnit::Bytes if most >= 1 << 50 => {
                write!(f, "a size of at least {}", DisplaySize(least))
            }
            DirectiveValueUnit::Bytes => write!(
                f,
                "a size from {} to {}",
                DisplaySize(least),
                DisplaySize(most)
            ),
            DirectiveValueUnit::Milliseconds => write!(f, "a time from {least}ms to {most}ms"),
            DirectiveValueUnit::Time => {
                f.write_str("a time with its unit (ms, s, m, h or d), ")?;
                match least {
                    0 => write!(f, "at most {}", DisplayMilliseconds(most)),
                    least => write!(
                        f,
                        "from {} to {}",
                        DisplayMilliseconds(least),
                        DisplayMilliseconds(most)
                    ),
                }
            }
        }
    }
}

/// A number of bytes that is formatted in the notation of the configuration.
pub(super) struct DisplaySize(pub(super) u64);

impl fmt::Display for DisplaySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            size if size >= GIB && size % GIB == 0 => write!(f, "{}g", size / GIB),
            size if size >= MIB && size % MIB == 0 => write!(f, "{}m", size / MIB),
            size if size >= KIB && size % KIB == 0 => write!(f, "{}k", size / KIB),
            size => write!(f, "{size}"),
        }
    }
}

/// A number of milliseconds that is formatted in the notation of the configuration.
pub(super) struct DisplayMilliseconds(pub(super) u64);

impl fmt::Display for DisplayMilliseconds {
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
    use super::{parse_nginx_time, DirectiveValueRange, DirectiveValueUnit, GIB, MIB};

    #[test]
    fn sizes_and_times_in_other_notations_are_rejected_with_a_suggestion() {
        let bytes = DirectiveValueRange {
            least: 64 * MIB,
            most: 1024 * GIB,
            unit: DirectiveValueUnit::Bytes,
        };
        let time = DirectiveValueRange {
            least: 100,
            most: 86_400_000,
            unit: DirectiveValueUnit::Time,
        };
        let milliseconds = DirectiveValueRange {
            unit: DirectiveValueUnit::Milliseconds,
            ..time
        };
        let number = DirectiveValueRange {
            unit: DirectiveValueUnit::Number,
            ..bytes
        };
        for (range, value, suggestion) in [
            (bytes, "20gb", Some("20g")),
            (bytes, "20GiB", Some("20g")),
            (bytes, "20 G", Some("20g")),
            (bytes, "1.5g", Some("1536m")),
            (bytes, "1t", Some("1024g")),
            (bytes, "67108864b", Some("64m")),
            // a unit that the directive does not have, or a value out of range
            (bytes, "63mb", None),
            (bytes, "63m", None),
            (bytes, "2tb", None),
            (bytes, "0.3b", None),
            (bytes, "g", None),
            (bytes, "1.2.3g", None),
            (bytes, "-1g", None),
            (bytes, "20x", None),
            (bytes, "", None),
            (bytes, "99999999999999999999g", None),
            (bytes, "1.00000000000000000000000g", None),
            (time, "12", None),
            (time, "5min", Some("5m")),
            (time, "1.5s", Some("1500ms")),
            (time, "90sec", Some("90s")),
            (time, "1hour", Some("1h")),
            (time, "10S", Some("10s")),
            (time, "5M", None),
            (time, "50ms", None),
            (time, "2days", None),
            (time, "soon", None),
            (milliseconds, "1m", Some("60s")),
            (milliseconds, "1", None),
            (milliseconds, "250msec", Some("250ms")),
            (number, "1k", None),
        ] {
            let error = range
                .parse_in_range(value.as_bytes())
                .unwrap_err()
                .to_string();
            let ending = suggestion.map(|text| format!("; did you mean \"{text}\"?"));
            match ending {
                Some(ending) => assert!(error.ends_with(&ending), "{error}"),
                None => assert!(!error.contains("did you mean"), "{error}"),
            }
            if let Some(suggestion) = suggestion {
                assert!(
                    range.parse_in_range(suggestion.as_bytes()).is_ok(),
                    "{suggestion}"
                );
            }
        }
        for (value, suggestion) in [
            ("30min", Some("30m")),
            ("30days", Some("30d")),
            ("1.5h", Some("90m")),
            ("0", None),
            ("0.0ms", None),
            ("never", None),
        ] {
            let error = parse_nginx_time(value.as_bytes()).unwrap_err().to_string();
            let ending = suggestion.map(|text| format!("; did you mean \"{text}\"?"));
            assert_eq!(
                error.contains("did you mean"),
                suggestion.is_some(),
                "{error}"
            );
            assert!(error.ends_with(ending.as_deref().unwrap_or("")), "{error}");
        }
    }

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
            assert_eq!(parse_nginx_time(value.as_bytes()).ok(), time, "{value}");
        }
    }
}
