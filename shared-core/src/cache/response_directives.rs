//! HTTP caching (RFC 9111) as a shared cache: the cache directives of a response head.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::negotiate::list_header::list_header_members;

/// The lifetime and the restrictions that a response head specifies for caches, evaluated at one
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheDirectives {
    /// Whether `no-store`, `private` or `no-cache` forbids storing the response in a cache that
    /// does not revalidate.
    pub forbidden: bool,
    /// Time for which the response stays fresh from now on, in milliseconds, with `Age` deducted;
    /// `None` if the head specifies none.
    pub lifetime: Option<u64>,
    /// `Age` in seconds.
    pub age: u64,
    /// Conditions for serving the response stale.
    pub stale: StaleDirectives,
}

/// The times in milliseconds for which the node permits or forbids serving a response stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct StaleDirectives {
    /// Time for which the response may be served after an error of the node (RFC 5861, 4).
    pub if_error: u64,
    /// Time for which the response may be served while it is updated (RFC 5861, 3).
    pub while_revalidate: u64,
    /// Whether serving the response stale is forbidden, regardless of the operator's settings:
    /// `must-revalidate`, `proxy-revalidate` or `s-maxage` (RFC 9111, 4.2.4).
    pub never: bool,
}

/// The header that nginx reads from upstreams and does not forward.
const X_ACCEL_EXPIRES: &[u8] = b"x-accel-expires";

/// A parser that collects the caching headers of a response head, one header at a time.
#[derive(Clone, Debug, Default)]
pub struct CacheDirectivesReader {
    forbidden: bool,
    max_age: Option<u64>,
    s_maxage: Option<u64>,
    expires: Option<Option<SystemTime>>,
    date: Option<SystemTime>,
    age: u64,
    stale_if_error: Option<u64>,
    stale_while_revalidate: Option<u64>,
    must_revalidate: bool,
    accel: Option<AccelExpires>,
}

/// The lifetime in `X-Accel-Expires`, which the node sends to nginx alone.
#[derive(Clone, Copy, Debug)]
enum AccelExpires {
    /// Seconds from now on; 0: the response must not be stored.
    For(u64),
    /// Seconds since 1970.
    Until(u64),
}

impl AccelExpires {
    /// Parses the header; an invalid value has no effect, as in nginx.
    fn parse_accel_expires(value: &[u8]) -> Option<Self> {
        match value.strip_prefix(b"@") {
            Some(time) => parse_capped_seconds(time, u64::MAX / 1000).map(Self::Until),
            None => parse_delta_seconds(value).map(Self::For),
        }
    }
}

impl CacheDirectivesReader {
    /// Records a header of the response head if it concerns caches; other headers have no effect.
    pub fn read_caching_header(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(b"cache-control") {
            for directive in list_header_members(value) {
                self.read_cache_directive(directive);
            }
        } else if name.eq_ignore_ascii_case(b"expires") {
            // section 5.3: an invalid date is in the past
            self.expires.get_or_insert(parse_header_date(value));
        } else if name.eq_ignore_ascii_case(b"date") {
            self.date = self.date.or_else(|| parse_header_date(value));
        } else if name.eq_ignore_ascii_case(b"age") {
            // section 5.1: the first member of a list counts; some proxies merge two lines into one
            let first = list_header_members(value)
                .next()
                .and_then(parse_delta_seconds);
            self.age = self.age.max(first.unwrap_or(0));
        } else if name.eq_ignore_ascii_case(X_ACCEL_EXPIRES) {
            self.accel = self
                .accel
                .or_else(|| AccelExpires::parse_accel_expires(value));
        }
    }

    /// Reads one directive of `Cache-Control`, `name` or `name=value`. Unknown directives are
    /// ignored.
    fn read_cache_directive(&mut self, directive: &[u8]) {
        let mut halves = directive.splitn(2, |byte| *byte == b'=');
        let name = halves.next().unwrap_or_default();
        let value = halves.next();
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"no-store") || is(b"private") || is(b"no-cache") {
            // also with field names, as these headers would have to be left out
            self.forbidden = true;
        } else if is(b"max-age") {
            read_first_delta_seconds(&mut self.max_age, value);
        } else if is(b"s-maxage") {
            read_first_delta_seconds(&mut self.s_maxage, value);
        } else if is(b"stale-if-error") {
            read_first_delta_seconds(&mut self.stale_if_error, value);
        } else if is(b"stale-while-revalidate") {
            read_first_delta_seconds(&mut self.stale_while_revalidate, value);
        } else if is(b"must-revalidate") || is(b"proxy-revalidate") {
            self.must_revalidate = true;
        }
    }

    /// Evaluates the headers that were read, at the wall clock's `now` in seconds since 1970.
    pub fn evaluate_directives(&self, now: u64) -> CacheDirectives {
        let left = match (self.s_maxage.or(self.max_age), self.expires) {
            (Some(seconds), _) => Some(seconds.saturating_sub(self.age)),
            (None, Some(expires)) => Some(expires.map_or(0, |time| self.seconds_until(time, now))),
            (None, None) => None,
        };
        // X-Accel-Expires overrides all others, including `private`, as in nginx
        let (forbidden, left) = match self.accel {
            Some(AccelExpires::For(seconds)) => (seconds == 0, Some(seconds)),
            Some(AccelExpires::Until(time)) => (false, Some(time.saturating_sub(now))),
            None => (self.forbidden, left),
        };
        CacheDirectives {
            forbidden,
            lifetime: left.map(|seconds| seconds * 1000),
            age: self.age,
            stale: self.stale_directives(),
        }
    }

    /// Returns the time from `now` until `Expires`. `Expires` belongs to the clock that wrote `Date`
    /// (sections 4.2.1 and 4.2.3), which may differ from this machine's.
    fn seconds_until(&self, expires: SystemTime, now: u64) -> u64 {
        let seconds_after = |time: SystemTime, start: SystemTime| {
            time.duration_since(start).map_or(0, |time| time.as_secs())
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
        let date = self.date.unwrap_or(now);
        let age = self.age.max(seconds_after(now, date));
        seconds_after(expires, date).saturating_sub(age)
    }

    /// Returns the times for which the headers that were read permit serving the response stale. An
    /// explicit permission overrides the prohibition that `s-maxage` implies, but not an explicit
    /// prohibition.
    fn stale_directives(&self) -> StaleDirectives {
        let allowed = |seconds: Option<u64>| match seconds {
            Some(seconds) if !self.must_revalidate => seconds * 1000,
            _ => 0,
        };
        StaleDirectives {
            if_error: allowed(self.stale_if_error),
            while_revalidate: allowed(self.stale_while_revalidate),
            never: self.must_revalidate || self.s_maxage.is_some(),
        }
    }

    /// Whether a header of a 304 is read and not stored with the entry.
    pub fn is_unstored_304_header(name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(b"age") || name.eq_ignore_ascii_case(X_ACCEL_EXPIRES)
    }
}

/// The names of the request headers on which a response depends, collected from its `Vary` and CORS
/// headers.
#[derive(Clone, Debug, Default)]
pub struct ResponseVaryHeaders {
    header_names: Vec<String>,
    on_anything: bool,
}

impl ResponseVaryHeaders {
    /// Records the request headers that a header of the response head names; other headers have no
    /// effect.
    pub fn read_vary_header(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(b"vary") {
            for member in list_header_members(value) {
                match std::str::from_utf8(member) {
                    Ok(member) if member != "*" => {
                        self.header_names.push(member.to_ascii_lowercase());
                    }
                    _ => self.on_anything = true,
                }
            }
        } else if name.eq_ignore_ascii_case(b"access-control-allow-origin") && value != b"*" {
            // a node that omits `Vary: Origin` here makes a mistake that caches must not repeat
            self.header_names.push("origin".into());
        }
    }

    /// Whether the node selects the content coding by `Accept-Encoding`: `Vary` names it.
    pub fn varies_by_encoding(&self) -> bool {
        self.header_names
            .iter()
            .any(|name| name == "accept-encoding")
    }

    /// Returns the names of the request headers in lower case, without `Accept-Encoding`, as
    /// entries serve all codings. Returns `None` if the response depends on more than requests.
    pub fn into_vary_header_names(mut self) -> Option<Vec<String>> {
        self.header_names.retain(|name| name != "accept-encoding");
        (!self.on_anything).then_some(self.header_names)
    }
}

/// Parses an HTTP date (RFC 9110, 5.6.7), or returns `None` if it is invalid. Words may be in any
/// case, and the zone may be called UTC.
pub fn parse_header_date(value: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.is_ascii())?;
    if let Ok(time) = httpdate::parse_http_date(text) {
        return Some(time);
    }
    let words: Vec<String> = text
        .split_ascii_whitespace()
        .map(|word| match word.to_ascii_uppercase() {
            zone if zone == "GMT" || zone == "UTC" => "GMT".into(),
            word => {
                let (first, rest) = word.split_at(word.len().min(1));
                format!("{first}{}", rest.to_ascii_lowercase())
            }
        })
        .collect();
    if let Ok(time) = httpdate::parse_http_date(&words.join(" ")) {
        return Some(time);
    }
    // `asctime()` pads the day
    let [_, month, day, time, year] = &words[..] else {
        return None;
    };
    // the day of the week is redundant, and may be wrong
    ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
        .iter()
        .map(|weekday| format!("{weekday} {month} {day:>2} {time} {year}"))
        .find_map(|text| httpdate::parse_http_date(&text).ok())
}

/// Whether a header of a 304 updates the entry. The others describe the stored body, or none
/// (section 3.2).
pub fn is_updated_by_304(name: &[u8]) -> bool {
    const NOT: [&str; 9] = [
        "content-digest",
        "content-encoding",
        "content-length",
        "content-md5",
        "content-range",
        "content-type",
        "digest",
        "etag",
        "repr-digest",
    ];
    is_stored_header(name)
        && !NOT
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Reads the first of several counts (section 4.2.1); an invalid one counts as 0.
fn read_first_delta_seconds(slot: &mut Option<u64>, value: Option<&[u8]>) {
    let value = value.map(|value| {
        value
            .strip_prefix(b"\"")
            .and_then(|value| value.strip_suffix(b"\""))
            .unwrap_or(value)
    });
    slot.get_or_insert(value.and_then(parse_delta_seconds).unwrap_or(0));
}

/// Parses delta-seconds (section 1.2.2): digits; larger values count as the maximum.
fn parse_delta_seconds(value: &[u8]) -> Option<u64> {
    parse_capped_seconds(value, 1 << 31)
}

/// Parses decimal digits; numbers above `most` count as `most`. `None`: other characters, or none.
fn parse_capped_seconds(value: &[u8], most: u64) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = std::str::from_utf8(value).ok()?;
    Some(
        digits
            .parse()
            .map_or(most, |seconds: u64| seconds.min(most)),
    )
}

/// The last second that an HTTP-date can name, in the year 9999.
const MAX_HTTP_DATE: u64 = 253_402_300_799;

/// Whether a status may be stored if the head specifies a lifetime (section 3: a final status that
/// is understood, and not partial content). The response to a condition or a range does not fit the
/// next request.
pub fn is_storable_status(status: u16) -> bool {
    !matches!(status, 0..=199 | 206 | 304 | 412 | 416 | 600..)
}

/// Whether a header is stored with the entry. The others belong to one connection (RFC 9110, 7.6.1;
/// RFC 9111, 3.1), to the body as it was sent, or to this cache.
pub fn is_stored_header(name: &[u8]) -> bool {
    const NOT: [&str; 22] = [
        // headers for nginx alone, or for a gateway (RFC 3875, 6.3.3)
        "x-accel-expires",
        "x-accel-redirect",
        "x-accel-limit-rate",
        "x-accel-buffering",
        "x-accel-charset",
        "x-pad",
        "status",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "accept-ranges",
        "server",
        "age",
        "cache-status",
    ];
    !NOT.iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Adds `Date` to stored headers without one: the time in seconds since 1970 at which the response
/// was received (RFC 9110, 6.6.1). Hosts would write the time of each hit, which `Age` and `Expires`
/// do not refer to.
pub fn complete_date(fields: &mut Vec<(Vec<u8>, Vec<u8>)>, now: u64) {
    let mut names = fields.iter().map(|(name, _)| name);
    if !names.any(|name| name.eq_ignore_ascii_case(b"date")) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(now.min(MAX_HTTP_DATE));
        let date = httpdate::fmt_http_date(time).into_bytes();
        fields.push((b"Date".to_vec(), date));
    }
}

/// Whether a header's value is stored: a hit has no invalid `Date`.
pub fn is_stored_value(name: &[u8], value: &[u8]) -> bool {
    !name.eq_ignore_ascii_case(b"date") || parse_header_date(value).is_some()
}

#[cfg(test)]
mod tests {
    use super::{CacheDirectives, CacheDirectivesReader, ResponseVaryHeaders, StaleDirectives};

    const NOW: u64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT

    fn parse(fields: &[(&str, &str)]) -> CacheDirectives {
        let mut reader = CacheDirectivesReader::default();
        for (name, value) in fields {
            reader.read_caching_header(name.as_bytes(), value.as_bytes());
        }
        reader.evaluate_directives(NOW)
    }

    /// Heads, and the lifetime in milliseconds that each specifies, if any.
    #[test]
    fn lifetime_is_read_from_directives_dates_and_age() {
        let table = "
            # the more special count wins
            cache-control: max-age=5; expires: Sun, 06 Nov 1994 08:50:37 GMT => 5000
            cache-control: max-age=5, s-maxage=7 => 7000
            expires: Sun, 06 Nov 1994 08:50:37 GMT => 60000
            x-other: max-age=5 => no
            # what can't be read is stale
            cache-control: max-age=x => 0
            cache-control: max-age => 0
            cache-control: max-age= 5 => 0
            cache-control: max-age=-1 => 0
            cache-control: max-age=1.5 => 0
            cache-control: s-maxage=x, max-age=9 => 0
            expires: 0 => 0
            expires: Sun, 06 Nov 1994 08:49:36 GMT => 0
            expires: Sun, 06 Nov 1994 08:50:37 AEST => 0
            expires: 1994-11-06 => 0
            expires: \u{e9} => 0
            # dates are read in any case and format
            expires: sun, 06 NOV 1994 08:50:37 gmt => 60000
            expires: Sun, 06 Nov 1994 08:50:37 UTC => 60000
            expires: Sunday, 06-Nov-94 08:50:37 GMT => 60000
            expires: Sun Nov  6 08:50:37 1994 => 60000
            expires: Sun Nov 6 08:50:37 1994 => 60000
            expires: Thu Nov 6 08:50:37 1994 => 60000
            # expires counts from the date of the clock that wrote both
            expires: Sun, 06 Nov 1994 08:50:37 GMT; date: Sun, 06 Nov 1994 08:50:07 GMT => 30000
            expires: Sun, 06 Nov 1994 08:50:37 GMT; date: Sun, 06 Nov 1994 08:48:37 GMT => 60000
            expires: Sun, 06 Nov 1994 08:50:37 GMT; date: Sun, 06 Nov 1994 08:50:38 GMT => 0
            expires: Sun, 06 Nov 1994 08:50:37 GMT; date: yesterday => 60000
            cache-control: max-age=5; date: Sun, 06 Nov 1994 08:48:37 GMT => 5000
            # age is deducted, and is at least what the date states
            expires: Sun, 06 Nov 1994 08:50:37 GMT; date: Sun, 06 Nov 1994 08:49:07 GMT; age: 40 => 50000
            expires: Sun, 06 Nov 1994 08:50:37 GMT; date: Sun, 06 Nov 1994 08:50:07 GMT; age: 40 => 0
            cache-control: max-age=10; age: 4 => 6000
            age: 40; cache-control: max-age=10 => 0
            # the first of a list, the oldest of several lines
            age: 7,40; cache-control: max-age=10 => 3000
            age: 4; age: 7; cache-control: max-age=10 => 3000
            age: x, 7; cache-control: max-age=10 => 10000
            # huge counts do not overflow
            cache-control: max-age=99999999999999999999999 => 2147483648000";
        let rows = table.lines().map(str::trim).filter(|row| !row.is_empty());
        for row in rows.filter(|row| !row.starts_with('#')) {
            let (head, expected) = row.split_once(" => ").unwrap();
            let fields = head
                .split("; ")
                .map(|field| field.split_once(": ").unwrap());
            let lifetime = parse(&fields.collect::<Vec<_>>()).lifetime;
            assert_eq!(lifetime, expected.parse().ok(), "{row}");
        }
        assert_eq!(parse(&[("Expires", "")]).lifetime, Some(0));
    }

    #[test]
    fn varying_headers_are_collected_from_all_lines() {
        let names = |fields: &[(&str, &str)]| {
            let mut varies = ResponseVaryHeaders::default();
            for (name, value) in fields {
                varies.read_vary_header(name.as_bytes(), value.as_bytes());
            }
            varies.into_vary_header_names()
        };
        let allowed = "Access-Control-Allow-Origin";
        assert_eq!(
            names(&[("Vary", "Accept, Accept-Encoding"), ("vary", "X-Kind")]),
            Some(vec!["accept".into(), "x-kind".into()])
        );
        assert_eq!(names(&[("Vary", "Accept"), ("Vary", "*")]), None);
        assert_eq!(names(&[(allowed, "*")]), Some(vec![]));
        for lines in [["https://a", "*"], ["*", "https://a"]] {
            let lines = lines.map(|value| (allowed, value));
            assert_eq!(names(&lines), Some(vec!["origin".into()]));
        }
    }

    #[test]
    fn x_accel_expires_overrides_cache_control() {
        let cc = ("Cache-Control", "private, max-age=10");
        let accel = "X-Accel-Expires";
        for (value, expected) in [
            ("60", Some(60_000)),
            ("@784111807", Some(30_000)),
            (
                "@99999999999999999999",
                Some((u64::MAX / 1000 - NOW) * 1000),
            ),
            ("@784111777", Some(0)),
            ("@1", Some(0)),
        ] {
            let directives = parse(&[("Age", "9"), (accel, value), cc]);
            assert_eq!(
                (directives.forbidden, directives.lifetime),
                (false, expected),
                "{value}"
            );
        }
        assert!(parse(&[("Cache-Control", "max-age=9"), (accel, "0")]).forbidden);
        for value in ["", "x", "-1", "@", "@-1", "1 2"] {
            let directives = parse(&[(accel, value), cc]);
            assert_eq!(
                (directives.forbidden, directives.lifetime),
                (true, Some(10_000)),
                "{value}"
            );
        }
    }

    #[test]
    fn explicit_stale_directives_override_implied_ones() {
        let stale = |value: &str| parse(&[("Cache-Control", value)]).stale;
        let allowed = StaleDirectives {
            if_error: 60_000,
            while_revalidate: 30_000,
            never: false,
        };
        let both = "stale-if-error=60, stale-while-revalidate=30";
        assert_eq!(stale("max-age=1"), StaleDirectives::default());
        assert_eq!(stale(&format!("max-age=1, {both}")), allowed);
        let never = StaleDirectives {
            never: true,
            ..allowed
        };
        assert_eq!(stale(&format!("s-maxage=1, {both}")), never);
        let revalidated = StaleDirectives {
            never: true,
            ..StaleDirectives::default()
        };
        for value in ["must-revalidate", "Proxy-Revalidate"] {
            assert_eq!(stale(&format!("{both}, {value}")), revalidated);
        }
        assert_eq!(stale("s-maxage=1"), revalidated);
    }

    #[test]
    fn forbidding_directives_are_found_among_others() {
        for value in [
            "no-store",
            "max-age=9, PRIVATE",
            "no-cache=\"set-cookie\"",
            "a=\"x, y\", no-cache",
        ] {
            assert!(parse(&[("Cache-Control", value)]).forbidden, "{value}");
        }
        assert!(!parse(&[("Cache-Control", "a=\"no-store\", public")]).forbidden);
    }
}
