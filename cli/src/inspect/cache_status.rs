//! The result of a request with `only-if-cached`, in the header `Cache-Status` (RFC 9211).

use hyper::header::{HeaderMap, HeaderName, HeaderValue, CACHE_CONTROL};
use hyper::StatusCode;

/// Returns the header of a request that must not be sent to the node (RFC 9111, 5.2.1.7).
pub fn only_if_cached() -> (HeaderName, HeaderValue) {
    (CACHE_CONTROL, HeaderValue::from_static("only-if-cached"))
}

/// The member of `Cache-Status` by the sszip that is nearest to this command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStatusMember {
    /// Whether the response is a cache hit.
    pub is_hit: bool,
    /// Remaining TTL in seconds; negative for a stale entry.
    pub ttl: Option<i64>,
    /// The reason for which the request was sent to the node.
    pub fwd: Option<String>,
    /// The reason for which the response is no hit.
    pub detail: Option<String>,
    /// The key of a single request that was looked up: 64 hex digits.
    pub key: Option<String>,
}

/// The result of a request with `only-if-cached`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheAnswer {
    /// The cache has an entry for the request.
    Hit(CacheStatusMember),
    /// The cache has no entry, or does not look the request up.
    NotCached(CacheStatusMember),
    /// A proxy without support for `only-if-cached` has sent the request to the node, for this
    /// reason.
    Forwarded(String),
    /// The route has no cache of sszip.
    NoCache(StatusCode),
}

impl CacheAnswer {
    /// Reads the result from the head of a response.
    pub fn from_head(status: StatusCode, headers: &HeaderMap) -> Self {
        match parse_sszip_member(headers) {
            None => Self::NoCache(status),
            Some(member) if member.is_hit => Self::Hit(member),
            Some(CacheStatusMember {
                fwd: Some(reason), ..
            }) => Self::Forwarded(reason),
            Some(member) => Self::NotCached(member),
        }
    }

    /// Whether the policy of the route denies the request.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::NotCached(member) if member.reason() == "denied")
    }
}

impl CacheStatusMember {
    /// Returns the reason for which the response is no hit; `miss` if there is none.
    pub fn reason(&self) -> &str {
        self.detail.as_deref().unwrap_or("miss")
    }

    /// Whether the request was looked up. Otherwise a repetition is not looked up either.
    pub fn is_looked_up(&self) -> bool {
        self.key.is_some() || self.reason() == "miss"
    }
}

/// Whether a text is a key of the cache: 64 hex digits.
pub fn is_cache_key(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses the last member `sszip` of `Cache-Status`. Headers that are no visible text are skipped.
pub fn parse_sszip_member(headers: &HeaderMap) -> Option<CacheStatusMember> {
    let lines = headers.get_all("cache-status").iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let members = lines.flat_map(|line| split_unquoted(line, ','));
    members.filter_map(parse_member).next_back()
}

fn parse_member(text: &str) -> Option<CacheStatusMember> {
    let mut parts = split_unquoted(text, ';').into_iter().map(str::trim);
    if unquote(parts.next()?) != "sszip" {
        return None;
    }
    let mut member = CacheStatusMember::default();
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name {
            "hit" => member.is_hit = value != "?0",
            "ttl" => member.ttl = value.parse().ok(),
            "fwd" => member.fwd = Some(unquote(value)),
            "detail" => member.detail = Some(unquote(value)),
            "key" => member.key = Some(unquote(value)).filter(|key| is_cache_key(key)),
            _ => {}
        }
    }
    Some(member)
}

/// Splits a text at a separator outside of quoted strings.
fn split_unquoted(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if character == separator && !is_quoted => {
                parts.push(&text[start..at]);
                start = at + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Returns the text of a token or a quoted string.
fn unquote(value: &str) -> String {
    let Some(quoted) = value.strip_prefix('"') else {
        return value.into();
    };
    let quoted = quoted.strip_suffix('"').unwrap_or(quoted);
    let (mut text, mut is_escaped) = (String::new(), false);
    for character in quoted.chars() {
        is_escaped = character == '\\' && !is_escaped;
        if !is_escaped {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn headers(lines: &[&str]) -> HeaderMap {
        let name = HeaderName::from_static("cache-status");
        let lines = lines.iter().map(|line| {
            let value = HeaderValue::from_str(line).unwrap();
            (name.clone(), value)
        });
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn last_member_of_sszip_is_parsed() {
        let hit = format!("sszip; hit; ttl=-3; key=\"{KEY}\"");
        for (lines, expected) in [
            (vec![], None),
            (vec!["other; hit", ""], None),
            (
                vec![hit.as_str()],
                Some(CacheStatusMember {
                    is_hit: true,
                    ttl: Some(-3),
                    key: Some(KEY.into()),
                    ..Default::default()
                }),
            ),
            (
                vec![
                    "sszip; hit",
                    "\"sszip\";fwd=bypass;detail=\"a;b, \\\"c\\\\\", cdn; hit",
                ],
                Some(CacheStatusMember {
                    fwd: Some("bypass".into()),
                    detail: Some("a;b, \"c\\".into()),
                    ..Default::default()
                }),
            ),
            (
                vec!["sszip; hit=?0; ttl=x; key=\"../v1/status\"; new=1"],
                Some(CacheStatusMember::default()),
            ),
            (
                vec!["sszip; detail=\"open"],
                Some(CacheStatusMember {
                    detail: Some("open".into()),
                    ..Default::default()
                }),
            ),
        ] {
            assert_eq!(parse_sszip_member(&headers(&lines)), expected, "{lines:?}");
        }
    }

    #[test]
    fn answer_is_read_from_the_member() {
        let read = |status: u16, line| {
            CacheAnswer::from_head(StatusCode::from_u16(status).unwrap(), &headers(&[line]))
        };
        assert!(matches!(
            read(200, "sszip; hit; ttl=1"),
            CacheAnswer::Hit(_)
        ));
        let CacheAnswer::NotCached(member) = read(504, "sszip; detail=rpc-method") else {
            panic!("the response is no hit");
        };
        assert_eq!(member.reason(), "rpc-method");
        assert!(!member.is_looked_up());
        let CacheAnswer::NotCached(member) = read(504, "sszip; detail=miss") else {
            panic!("the response is no hit");
        };
        assert!(member.is_looked_up());
        assert_eq!(
            read(200, "sszip; fwd=miss"),
            CacheAnswer::Forwarded("miss".into())
        );
        assert_eq!(
            read(502, "other; hit"),
            CacheAnswer::NoCache(StatusCode::BAD_GATEWAY)
        );
    }
}
