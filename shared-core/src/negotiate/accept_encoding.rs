//! `Accept-Encoding` (RFC 9110, section 12.5.3).

use super::list_header::{list_header_members, trim_header_whitespace};
use super::weight::{parse_weight, PreferenceWeight};

/// A client's preferences for gzip and identity, the codings that sszip can send, as
/// `Accept-Encoding` states them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingPreferences {
    gzip: Option<PreferenceWeight>,
    identity: Option<PreferenceWeight>,
    any: Option<PreferenceWeight>,
    present: bool,
    others: bool,
}

impl EncodingPreferences {
    /// Reads one line of `Accept-Encoding`; several lines are one list.
    ///
    /// A member that does not follow the grammar is skipped: a client with an unreadable
    /// preference gets identity, which it always understands.
    pub fn read_accept_encoding_line(&mut self, value: &[u8]) {
        self.present = true;
        for member in list_header_members(value) {
            let Some((coding, weight)) = parse_weighted_coding(member) else {
                continue;
            };
            let slot =
                if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") {
                    // 8.4.1.3: x-gzip is equivalent to gzip.
                    &mut self.gzip
                } else if coding.eq_ignore_ascii_case(b"identity") {
                    &mut self.identity
                } else if coding == b"*" {
                    &mut self.any
                } else {
                    self.others |= weight > 0 && !coding.eq_ignore_ascii_case(b"zstd");
                    continue;
                };
            // of a coding that occurs twice the higher weight counts
            *slot = Some(slot.map_or(weight, |known| known.max(weight)));
        }
    }

    /// Whether gzip is accepted and preferred at least as much as identity.
    ///
    /// Without the header the RFC allows any coding, but clients without it are mostly unable to
    /// decompress: they get identity.
    pub fn prefers_gzip(&self) -> bool {
        let gzip = self.gzip.or(self.any).unwrap_or(0);
        let identity = self.identity.or(self.any).unwrap_or(0);
        self.present && gzip > 0 && gzip >= identity
    }

    /// Whether a gzip body is accepted, preferred or not.
    pub fn allows_gzip(&self) -> bool {
        self.present && self.gzip.or(self.any).unwrap_or(0) > 0
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
            assert!(read(&[line]).prefers_gzip(), "{line}");
        }
        assert!(read(&["br", "gzip"]).prefers_gzip(), "two lines");
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
            assert!(!read(&[line]).prefers_gzip(), "{line:?}");
        }
        assert!(!read(&[]).prefers_gzip(), "absent");
    }

    #[test]
    fn other_codings_are_allowed_unless_only_decompressed_ones_are_accepted() {
        for line in ["br", "gzip, deflate", "*", "gzip;q=0, *;q=0.1", "zstd, dcb"] {
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
        assert!(accept.allows_gzip() && !accept.prefers_gzip());
        assert!(!read(&[]).allows_gzip());
    }
}
