//! `Accept` (RFC 9110, section 12.5.1), as far as it concerns SSZ and JSON.

use super::list_header::{list_header_members, trim_header_whitespace};
use super::weight::{parse_weight, PreferenceWeight, DEFAULT_WEIGHT};

/// A client's preferences for JSON and SSZ, the media types of the Beacon API, as `Accept` states
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptPreferences {
    json: MediaRangePreference,
    ssz: MediaRangePreference,
    /// Number of media ranges that were read.
    ranges: u16,
}

/// A client's preference for one media type, from the most specific range of `Accept` that matches
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MediaRangePreference {
    /// Specificity of the range: 0 without a range, 1 for `*/*`, 2 for `type/*`, 3 for the type
    /// itself.
    specificity: u8,
    weight: PreferenceWeight,
    /// Position of the range in the list.
    place: u16,
}

/// The format that a client prefers, and whether it accepts the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatPreference {
    /// Prefers SSZ, and accepts JSON.
    Ssz,
    /// Accepts SSZ only.
    SszOnly,
    /// Prefers JSON, and accepts SSZ.
    Json,
    /// Accepts JSON only.
    JsonOnly,
    /// Accepts neither.
    Other,
}

impl AcceptPreferences {
    /// Reads one line of `Accept`; several lines are one list. A member that does not follow the
    /// grammar is skipped.
    pub fn read_accept_line(&mut self, value: &[u8]) {
        for member in list_header_members(value) {
            let Some((range, weight)) = parse_media_range(member) else {
                continue;
            };
            self.ranges = self.ranges.saturating_add(1);
            let is = |name: &str| range.eq_ignore_ascii_case(name.as_bytes());
            let (specificity, json, ssz) = match () {
                () if is("*/*") => (1, true, true),
                () if is("application/*") => (2, true, true),
                () if is("application/json") => (3, true, false),
                () if is("application/octet-stream") => (3, false, true),
                () => continue,
            };
            let liking = MediaRangePreference {
                specificity,
                weight,
                place: self.ranges,
            };
            for (slot, is_in) in [(&mut self.json, json), (&mut self.ssz, ssz)] {
                let known = (slot.specificity, slot.weight);
                // of a range that occurs twice the higher weight counts
                if is_in && (specificity, weight) > known {
                    *slot = liking;
                }
            }
        }
    }

    /// Returns the format preference. Without a range it is JSON, as the Beacon API specifies;
    /// of equal weights a type that is named precedes one that is not, and the first of two
    /// named ones precedes the other.
    pub fn format_preference(&self) -> FormatPreference {
        let (json, ssz) = (&self.json, &self.ssz);
        let is_first = ssz.place < json.place;
        let prefers_ssz =
            (ssz.weight, ssz.specificity, is_first) > (json.weight, json.specificity, false);
        match (self.ranges, json.weight, ssz.weight) {
            (0, _, _) => FormatPreference::Json,
            (_, 0, 0) => FormatPreference::Other,
            (_, 0, _) => FormatPreference::SszOnly,
            (_, _, 0) => FormatPreference::JsonOnly,
            _ if prefers_ssz => FormatPreference::Ssz,
            _ => FormatPreference::Json,
        }
    }
}

/// Returns a media range without its parameters, and its weight; `None` if the weight is
/// invalid.
fn parse_media_range(member: &[u8]) -> Option<(&[u8], PreferenceWeight)> {
    let mut parts = member
        .split(|&byte| byte == b';')
        .map(trim_header_whitespace);
    let range = parts.next()?;
    let mut found = DEFAULT_WEIGHT;
    for part in parts {
        // parameters after the weight are extensions, which are not in use
        if let [b'q' | b'Q', b'=', qvalue @ ..] = part {
            found = parse_weight(qvalue)?;
            break;
        }
    }
    Some((range, found))
}

#[cfg(test)]
mod tests {
    use super::{AcceptPreferences, FormatPreference};

    fn format_preference(lines: &[&str]) -> FormatPreference {
        let mut accept = AcceptPreferences::default();
        for line in lines {
            accept.read_accept_line(line.as_bytes());
        }
        accept.format_preference()
    }

    #[test]
    fn preferred_format_follows_weights_specificity_and_order() {
        for (line, expected) in [
            // validator clients and checkpoint sync
            (
                "application/octet-stream;q=1.0,application/json;q=0.9",
                FormatPreference::Ssz,
            ),
            ("application/octet-stream", FormatPreference::SszOnly),
            (
                "application/octet-stream;q=0.95, application/json;q=0.9",
                FormatPreference::Ssz,
            ),
            (
                "application/json;q=1, application/octet-stream;q=0.9",
                FormatPreference::Json,
            ),
            // browsers, curl, libraries
            ("*/*", FormatPreference::Json),
            ("application/*", FormatPreference::Json),
            (
                "text/html,application/xhtml+xml,*/*;q=0.8",
                FormatPreference::Json,
            ),
            ("application/json, text/plain, */*", FormatPreference::Json),
            ("application/json", FormatPreference::JsonOnly),
            // equal weights
            ("application/octet-stream, */*", FormatPreference::Ssz),
            (
                "application/octet-stream, application/json",
                FormatPreference::Ssz,
            ),
            (
                "application/json, application/octet-stream",
                FormatPreference::Json,
            ),
            // the most specific range counts
            ("application/json;q=0, */*", FormatPreference::SszOnly),
            (
                "application/octet-stream;q=0, */*",
                FormatPreference::JsonOnly,
            ),
            (
                "application/json;q=0.1, application/*;q=0.5",
                FormatPreference::Ssz,
            ),
            ("APPLICATION/Octet-Stream;Q=1", FormatPreference::SszOnly),
            (
                "application/octet-stream; charset=utf-8 ; q=0.5, application/json;q=0.4",
                FormatPreference::Ssz,
            ),
            (
                "application/octet-stream;q=0.001",
                FormatPreference::SszOnly,
            ),
            // neither format
            ("image/png", FormatPreference::Other),
            ("text/event-stream", FormatPreference::Other),
            ("*/*;q=0", FormatPreference::Other),
            ("application/octet-stream;q=0", FormatPreference::Other),
            // unreadable values are ignored
            ("", FormatPreference::Json),
            ("application/octet-stream;q=2", FormatPreference::Json),
            (
                "application/octet-stream;q=x, application/json",
                FormatPreference::JsonOnly,
            ),
        ] {
            assert_eq!(format_preference(&[line]), expected, "{line}");
        }
        assert_eq!(format_preference(&[]), FormatPreference::Json);
    }

    #[test]
    fn header_lines_are_read_as_one_list() {
        let lines = ["application/json;q=0.5", "application/octet-stream"];
        assert_eq!(format_preference(&lines), FormatPreference::Ssz);
        assert_eq!(
            format_preference(&["application/json;q=0", "application/*"]),
            FormatPreference::SszOnly
        );
    }

    #[test]
    fn repeated_type_has_the_higher_weight() {
        let line = "application/octet-stream;q=0.2, application/json;q=0.5, \
                    application/octet-stream;q=0.8";
        assert_eq!(format_preference(&[line]), FormatPreference::Ssz);
    }

    #[test]
    fn repeated_type_of_one_weight_has_its_first_position() {
        for (line, expected) in [
            (
                "application/json, application/octet-stream, application/json",
                FormatPreference::Json,
            ),
            (
                "application/octet-stream, application/json, application/octet-stream",
                FormatPreference::Ssz,
            ),
        ] {
            assert_eq!(format_preference(&[line]), expected, "{line}");
        }
    }
}
