//! `Accept-Encoding` (RFC 9110, section 12.5.3).

use super::list_header::{list_header_members, trim_header_whitespace};
use super::weight::{parse_weight, PreferenceWeight};
use crate::content_coding::SupportedContentCoding;

/// A client's preferences for gzip, zstd and identity, the codings that sszip can send, as
/// `Accept-Encoding` states them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingPreferences {
    gzip: Option<PreferenceWeight>,
    zstd: Option<PreferenceWeight>,
    identity: Option<PreferenceWeight>,
    any: Option<PreferenceWeight>,
    others: bool,
}

impl EncodingPreferences {
    /// Reads one line of `Accept-Encoding`; several lines are one list.
    ///
    /// A member that does not follow the grammar is skipped: a client with an unreadable
    /// preference gets identity, which it always understands.
    pub fn read_accept_encoding_line(&mut self, value: &[u8]) {
        for member in list_header_members(value) {
            let Some((coding, weight)) = parse_weighted_coding(member) else {
                continue;
            };
            let slot =
                if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") {
                    // 8.4.1.3: x-gzip is equivalent to gzip.
                    &mut self.gzip
                } else if coding.eq_ignore_ascii_case(b"zstd") {
                    &mut self.zstd
                } else if coding.eq_ignore_ascii_case(b"identity") {
                    &mut self.identity
                } else if coding == b"*" {
                    &mut self.any
                } else {
                    self.others |= weight > 0;
                    continue;
                };
            // of a coding that occurs twice the higher weight counts
            *slot = Some(slot.map_or(weight, |known| known.max(weight)));
        }
    }

    /// Returns the coding that the client receives, and `None` for identity: the one of the highest
    /// weight, and of equal ones zstd before gzip before identity.
    ///
    /// zstd must be named: `*` stands for gzip, which clients that send it can decompress. Without
    /// the header the RFC allows any coding, but clients without it are mostly unable to
    /// decompress: they get identity.
    pub fn preferred_coding(&self, is_zstd_enabled: bool) -> Option<SupportedContentCoding> {
        let zstd = self.zstd.filter(|_| is_zstd_enabled).unwrap_or(0);
        let gzip = self.gzip.or(self.any).unwrap_or(0);
        let identity = self.identity.or(self.any).unwrap_or(0);
        if zstd > 0 && zstd >= gzip.max(identity) {
            Some(SupportedContentCoding::Zstd)
        } else if gzip > 0 && gzip >= identity {
            Some(SupportedContentCoding::Gzip)
        } else {
            None
        }
    }

    /// Whether a body in this coding is accepted, preferred or not.
    pub fn allows_coding(&self, coding: SupportedContentCoding) -> bool {
        let named = match coding {
            SupportedContentCoding::Gzip => self.gzip,
            SupportedContentCoding::Zstd => self.zstd,
        };
        named.or(self.any).unwrap_or(0) > 0
    }

    /// Whether a body in a coding that sszip does not decompress is accepted.
    pub fn allows_other_codings(&self) -> bool {
        self.others || self.any.is_some_and(|any| any > 0)
    }

    /// Whether identity is refused (`identity;q=0`, or `*;q=0` without `identity`).
    pub fn refuses_identity(&self) -> bool {
        self.identity.or(self.any) == Some(0)
    }
}

/// Parses `coding [ OWS ";" OWS "q=" qvalue ]`; `None` if the member is anything else.
fn parse_weighted_coding(member: &[u8]) -> Option<(&[u8], PreferenceWeight)> {
    let Some(semicolon) = member.iter().position(|&byte| byte == b';') else {
        return Some((member, 1000));
    };
    let coding = trim_header_whitespace(&member[..semicolon]);
    let parameter = trim_header_whitespace(&member[semicolon + 1..]);
    match parameter {
        [b'q' | b'Q', b'=', qvalue @ ..] => Some((coding, parse_weight(qvalue)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::EncodingPreferences;
    use crate::request_coding::SupportedContentCoding::{self, Gzip, Zstd};

    fn read(lines: &[&str]) -> EncodingPreferences {
        let mut accept = EncodingPreferences::default();
        for line in lines {
            accept.read_accept_encoding_line(line.as_bytes());
        }
        accept
    }

    #[test]
    fn gzip_is_preferred_if_it_is_accepted_at_least_as_much_as_identity() {
        for line in [
            "gzip",
            "GZIP",
            "x-gzip",
            "gzip, deflate, br",
            "deflate;q=1, gzip;q=0.001",
            "*",
            "*;q=0.5",
            "gzip;q=1.000",
            "gzip ; q=0.5",
            "gzip;Q=0.5",
            "identity;q=0.5, gzip",
            "identity, gzip",
            "identity;q=0, *",
            ",,gzip,,",
            "br;q=1.0, gzip;q=0.8, *;q=0.1",
            "gzip;q=nonsense, gzip;q=0.2",
        ] {
            assert_eq!(read(&[line]).preferred_coding(false), Some(Gzip), "{line}");
        }
        let two_lines = read(&["br", "gzip"]);
        assert_eq!(two_lines.preferred_coding(false), Some(Gzip));
    }

    #[test]
    fn identity_is_preferred_if_gzip_is_absent_refused_or_invalid() {
        for line in [
            "",
            "identity",
            "br",
            "gzip;q=0",
            "gzip;q=0.000",
            "gzip;q=0, *",
            "*;q=0",
            "gzip;q=0.5, identity",
            "gzip;q=0.5, *",
            "gzipped",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=-1",
            "gzip;q=",
            "gzip;q",
            "gzip;level=1",
            "gzip deflate",
            "\"gzip\"",
            "\u{0}\u{ff}gzip",
            ";;;",
        ] {
            assert_eq!(read(&[line]).preferred_coding(false), None, "{line:?}");
        }
        assert_eq!(read(&[]).preferred_coding(false), None, "absent");
    }

    #[test]
    fn other_codings_are_allowed_unless_only_decompressed_ones_are_accepted() {
        for line in [
            "br",
            "gzip, deflate",
            "*",
            "gzip;q=0, *;q=0.1",
            "*;q=0.001",
            "zstd, dcb",
        ] {
            assert!(read(&[line]).allows_other_codings(), "{line}");
        }
        for line in [
            "",
            "gzip",
            "x-gzip, zstd",
            "identity",
            "br;q=0",
            "*;q=0",
            "gzip, br;q=nan",
        ] {
            assert!(!read(&[line]).allows_other_codings(), "{line:?}");
        }
    }

    #[test]
    fn identity_is_refused_by_a_zero_weight_only() {
        assert!(read(&["gzip, identity;q=0"]).refuses_identity());
        assert!(read(&["gzip, *;q=0"]).refuses_identity());
        assert!(!read(&["gzip, identity;q=0.1, *;q=0"]).refuses_identity());
        assert!(!read(&["gzip"]).refuses_identity());
        assert!(!read(&[]).refuses_identity());
    }

    #[test]
    fn gzip_of_lower_weight_is_still_allowed() {
        let accept = read(&["identity, gzip;q=0.5"]);
        assert!(accept.allows_coding(Gzip));
        assert_eq!(accept.preferred_coding(false), None);
        assert!(!read(&[]).allows_coding(Gzip));
    }

    #[test]
    fn preferred_coding_has_the_highest_weight_and_zstd_wins_ties() {
        let table: [(&str, Option<SupportedContentCoding>); 31] = [
            ("zstd", Some(Zstd)),
            ("ZSTD", Some(Zstd)),
            ("gzip, zstd", Some(Zstd)),
            ("zstd, gzip", Some(Zstd)),
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("zstd;q=0.001", Some(Zstd)),
            ("identity, zstd", Some(Zstd)),
            ("identity;q=0, zstd", Some(Zstd)),
            ("*;q=0, zstd", Some(Zstd)),
            ("zstd;q=0.5, gzip;q=0.5, identity;q=0.5", Some(Zstd)),
            ("zstd, *", Some(Zstd)),
            ("zstd;q=nan, zstd;q=0.2", Some(Zstd)),
            ("zstd;q=0.1, zstd;q=0.9, gzip;q=0.5", Some(Zstd)),
            ("br;q=1, zstd;q=0.8, gzip;q=0.6", Some(Zstd)),
            ("gzip;q=0, zstd", Some(Zstd)),
            ("zstd;q=0.5, gzip", Some(Gzip)),
            ("zstd;q=0.5, x-gzip", Some(Gzip)),
            ("zstd;q=0.5, *", Some(Gzip)),
            ("zstd;q=0, gzip", Some(Gzip)),
            ("zstd;q=0, *", Some(Gzip)),
            ("*", Some(Gzip)),
            ("zstd;q=2, gzip;q=0.1", Some(Gzip)),
            ("zstd;level=3, gzip", Some(Gzip)),
            ("zst, gzip", Some(Gzip)),
            ("zstd;q=0.2, gzip;q=0.5, identity;q=0.5", Some(Gzip)),
            ("zstd;q=0", None),
            ("gzip;q=0, *", None),
            ("zstd;q=0.2, identity", None),
            ("zstd;q=0.2, gzip;q=0.3, identity", None),
            ("zstandard", None),
            ("", None),
        ];
        for (line, coding) in table {
            assert_eq!(read(&[line]).preferred_coding(true), coding, "{line:?}");
        }
        assert_eq!(read(&["gzip", "zstd"]).preferred_coding(true), Some(Zstd));
        assert_eq!(read(&[]).preferred_coding(true), None, "absent");
    }

    #[test]
    fn zstd_is_allowed_if_it_is_named_or_matched_by_the_wildcard() {
        for line in ["zstd", "gzip, zstd;q=0.1", "*", "*;q=0.5", "zstd, *;q=0"] {
            assert!(read(&[line]).allows_coding(Zstd), "{line}");
        }
        for line in ["", "gzip", "zstd;q=0", "zstd;q=0, *", "*;q=0", "br"] {
            assert!(!read(&[line]).allows_coding(Zstd), "{line:?}");
        }
        assert!(!read(&[]).allows_coding(Zstd), "absent");
    }

    /// Preferences of all lines whose four members are absent or have one of five weights.
    fn all_preferences() -> impl Iterator<Item = (String, EncodingPreferences)> {
        const WEIGHTS: [Option<&str>; 6] = [
            None,
            Some("0"),
            Some("0.3"),
            Some("0.5"),
            Some("0.8"),
            Some("1"),
        ];
        (0..WEIGHTS.len().pow(4)).map(|number| {
            let mut rest = number;
            let mut members = Vec::new();
            for coding in ["gzip", "zstd", "identity", "*"] {
                members.extend(WEIGHTS[rest % WEIGHTS.len()].map(|q| format!("{coding};q={q}")));
                rest /= WEIGHTS.len();
            }
            let line = members.join(", ");
            let preferences = read(&[line.as_str()]);
            (line, preferences)
        })
    }

    #[test]
    fn enabled_zstd_changes_nothing_for_clients_that_prefer_another_coding() {
        for (line, accept) in all_preferences() {
            let (with, without) = (
                accept.preferred_coding(true),
                accept.preferred_coding(false),
            );
            assert!(with == Some(Zstd) || with == without, "{line:?}");
            assert!(
                line.contains("zstd") || with != Some(Zstd),
                "{line:?} does not name zstd"
            );
        }
    }

    #[test]
    fn preferred_coding_is_allowed_and_identity_is_not_preferred_if_it_is_refused() {
        for (line, accept) in all_preferences() {
            let preferred = accept.preferred_coding(true);
            assert!(
                preferred.is_none_or(|coding| accept.allows_coding(coding)),
                "{line:?}"
            );
            let allows =
                accept.allows_coding(Gzip) || line.contains("zstd") && accept.allows_coding(Zstd);
            if allows && accept.refuses_identity() {
                assert!(preferred.is_some(), "{line:?}");
            }
        }
    }
}
