//! The share of hits that are verified against the node.

use super::values::{invalid_value_error, DirectiveError};

/// The value of `verify`: the share of hits that are compared with a new response of the node, and
/// the action on a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitVerificationConfig {
    /// Hits per million that are verified.
    pub rate: u32,
    /// Whether different entries are purged.
    pub purges: bool,
}

/// Rate that verifies all hits.
pub const VERIFY_ALL_RATE: u32 = 1_000_000;

const PURGE_WORD: &[u8] = b"purge";
const ALLOWED_RATES: &str = "\"off\" or a share of the hits, from 0.0001% to 100%";

impl HitVerificationConfig {
    /// Whether a share of the hits is verified against the node.
    pub fn is_verification_enabled(self) -> bool {
        self.rate > 0
    }

    /// Parses `off`, or a rate that `purge` may follow.
    pub(super) fn parse_verify_values(values: &[&[u8]]) -> Result<Self, DirectiveError> {
        match values {
            [b"off"] => Ok(Self::default()),
            [rate] => Ok(Self {
                rate: parse_verification_rate(rate)?,
                purges: false,
            }),
            [rate, word] if *word == PURGE_WORD => Ok(Self {
                rate: parse_verification_rate(rate)?,
                purges: true,
            }),
            [_, word] => Err(invalid_value_error(word, "\"purge\" or omitted")),
            _ => Err(DirectiveError::OneOrTwoValues),
        }
    }
}

/// Parses a percentage with at most four decimal places, and returns millionths.
fn parse_verification_rate(value: &[u8]) -> Result<u32, DirectiveError> {
    let read = || {
        let text = std::str::from_utf8(value).ok()?.strip_suffix('%')?;
        let (whole, parts) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(parts) || whole.len() > 3 || parts.len() > 4 {
            return None;
        }
        let parts: u32 = format!("{parts:0<4}").parse().ok()?;
        let rate = whole.parse::<u32>().ok()? * 10_000 + parts;
        (1..=VERIFY_ALL_RATE).contains(&rate).then_some(rate)
    };
    read().ok_or_else(|| invalid_value_error(value, ALLOWED_RATES))
}

/// Regular expression of a rate.
pub(super) const RATE_PATTERN: &str = r"(?:0{1,3}\.(?!0+%)[0-9]{1,4}|(?:0{0,2}[1-9]|0?[1-9][0-9])(?:\.[0-9]{1,4})?|100(?:\.0{1,4})?)%";

#[cfg(test)]
mod tests {
    use super::HitVerificationConfig;

    fn read(values: &[&str]) -> Option<(u32, bool)> {
        let values: Vec<_> = values.iter().map(|value| value.as_bytes()).collect();
        let verify = HitVerificationConfig::parse_verify_values(&values).ok()?;
        Some((verify.rate, verify.purges))
    }

    #[test]
    fn rates_are_parsed_with_up_to_four_decimals() {
        for (value, rate) in [
            ("off", 0),
            ("100%", 1_000_000),
            ("1%", 10_000),
            ("0.5%", 5000),
            ("0.0001%", 1),
            ("12.25%", 122_500),
        ] {
            assert_eq!(read(&[value]), Some((rate, false)), "{value}");
        }
        assert_eq!(read(&["1%", "purge"]), Some((10_000, true)));
        for wrong in [
            "0%",
            "101%",
            "100.0001%",
            "1",
            "%",
            "-1%",
            "1.%",
            ".5%",
            "0.00001%",
            "1e1%",
            "on",
            "1 %",
        ] {
            assert_eq!(read(&[wrong]), None, "{wrong}");
        }
        for wrong in [
            &["1%", "drop"][..],
            &["off", "purge"],
            &["1%", "purge", "x"],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
