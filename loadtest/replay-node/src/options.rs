//! Options of delivery: one grammar, `name=value&name=value`, for the flags, the query string and
//! the `X-Replay` request header.

use std::str::FromStr;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::StatusCode;

use crate::envelope::DeclaredForkAlteration;
use crate::page::BodyFormat;
use crate::witness::WitnessByteSize;

/// Upper bounds, so that a typing error is an error and not an endless test.
const LONGEST_WAIT_MS: u64 = 600_000;
const MOST_GARBAGE: usize = 1 << 20;
const MOST_OFFSET: i64 = 1 << 40;

/// The way in which the end of a response body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// `Content-Length`.
    Length,
    /// `Transfer-Encoding: chunked`; the connection's close for HTTP/1.0.
    Chunked,
    /// The connection's close, under an HTTP/1.1 status line.
    Close,
    /// The connection's close, under an HTTP/1.0 status line.
    Close10,
}

/// The condition under which a response is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GzipPolicy {
    Never,
    /// If Accept-Encoding contains `gzip`: geth does not parse the rest, so `gzip;q=0` counts
    /// too.
    Accepted,
    /// Gzip regardless of the request's Accept-Encoding.
    Always,
}

/// The options of one response: its delivery, encoding and faults. `None` leaves the value to the
/// layer below: the method's, then the node's options.
#[derive(Clone, Debug, Default)]
pub struct ReplayResponseOptions {
    pub framing: Option<BodyFraming>,
    pub piece: Option<usize>,
    pub pause: Option<Duration>,
    pub latency: Option<Duration>,
    pub gzip: Option<GzipPolicy>,
    pub status: Option<StatusCode>,
    pub content_type: Option<HeaderValue>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub echo: Vec<HeaderName>,
    pub newline: bool,
    /// Format of a page, whatever the request accepts.
    pub form: Option<BodyFormat>,
    /// Values of `Eth-Consensus-Version` and of the body's `version`.
    pub fork: Option<DeclaredForkAlteration>,
    pub version: Option<DeclaredForkAlteration>,
    pub corrupt: Option<usize>,
    /// Size of generated witnesses.
    pub witness: Option<WitnessByteSize>,
    pub refuse: Option<StatusCode>,
    pub truncate: Option<usize>,
    pub error: Option<StatusCode>,
    pub cut: Option<usize>,
    pub reset: bool,
    pub stall: Option<usize>,
    pub stall_for: Option<Duration>,
    pub length_off: Option<i64>,
    pub garbage: Option<usize>,
    /// Whether the connection ends without a response.
    pub lost: bool,
}

/// The reason why options are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryOptionError {
    #[error("unknown option {0:?}")]
    UnknownName(String),
    #[error("option {name}={value:?}: expected {expected}")]
    BadValue {
        name: String,
        value: String,
        expected: &'static str,
    },
}

impl ReplayResponseOptions {
    /// Parses options from the text of a query, over those already set.
    pub fn parse_query_options(&mut self, text: &str) -> Result<(), DeliveryOptionError> {
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            match self.set_option(&name, &value) {
                Ok(true) => (),
                Ok(false) => return Err(DeliveryOptionError::UnknownName(name.into_owned())),
                Err(expected) => {
                    return Err(DeliveryOptionError::BadValue {
                        name: name.into_owned(),
                        value: value.into_owned(),
                        expected,
                    })
                }
            }
        }
        Ok(())
    }

    /// Parses options like [`parse_query_options`](Self::parse_query_options), but ignores unknown names, since
    /// query strings also belong to the requested path.
    pub fn parse_options_ignoring_unknown(
        &mut self,
        text: &str,
    ) -> Result<(), DeliveryOptionError> {
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            self.set_option(&name, &value)
                .map_err(|expected| DeliveryOptionError::BadValue {
                    name: name.into_owned(),
                    value: value.into_owned(),
                    expected,
                })?;
        }
        Ok(())
    }

    /// Sets one option, and returns whether an option of that name exists. The error is the
    /// expected value.
    fn set_option(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match name {
            "framing" => self.framing = Some(parse_framing(value)?),
            "piece" => self.piece = Some(parse_piece(value)?),
            "pause_ms" => self.pause = Some(parse_milliseconds(value)?),
            "latency_ms" => self.latency = Some(parse_milliseconds(value)?),
            "gzip" => self.gzip = Some(parse_gzip(value)?),
            "status" => self.status = Some(parse_status(value, 200..=599)?),
            "type" => self.content_type = Some(value.parse().map_err(|_| "a media type")?),
            "header" => self.headers.push(parse_header(value)?),
            "echo" => self.echo.push(value.parse().map_err(|_| "a header name")?),
            "newline" => self.newline = parse_flag(value)?,
            "as" => self.form = Some(parse_format(value)?),
            "fork" => self.fork = Some(parse_fork(value)?),
            "version" => self.version = Some(parse_version(value)?),
            "corrupt" => self.corrupt = Some(parse_bytes(value)?),
            "witness" => self.witness = Some(value.parse()?),
            "refuse" => self.refuse = Some(parse_status(value, 400..=599)?),
            "truncate" => self.truncate = Some(parse_bytes(value)?),
            "error" => self.error = Some(parse_status(value, 400..=599)?),
            "cut" => self.cut = Some(parse_bytes(value)?),
            "reset" => self.reset = parse_flag(value)?,
            "stall" => self.stall = Some(parse_bytes(value)?),
            "stall_ms" => self.stall_for = Some(parse_milliseconds(value)?),
            "length_off" => self.length_off = Some(parse_offset(value)?),
            "garbage" => self.garbage = Some(parse_garbage(value)?),
            "lost" => self.lost = parse_flag(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the body differs from the recorded one before its content coding.
    pub fn changes_body_before_coding(&self) -> bool {
        self.newline || self.version.is_some() || self.corrupt.is_some()
    }

    /// Whether the body differs from the recorded one in any way.
    pub fn changes_body(&self) -> bool {
        self.changes_body_before_coding() || self.truncate.is_some()
    }

    /// Whether the response violates HTTP or its own head, so that it has to be written past the
    /// HTTP library.
    pub fn bypasses_http_library(&self) -> bool {
        matches!(
            self.framing,
            Some(BodyFraming::Close | BodyFraming::Close10)
        ) || self.cut.is_some()
            || self.reset
            || self.stall.is_some()
            || self.length_off.is_some()
            || self.garbage.is_some()
            || self.lost
    }
}

fn parse_framing(value: &str) -> Result<BodyFraming, &'static str> {
    match value {
        "length" => Ok(BodyFraming::Length),
        "chunked" => Ok(BodyFraming::Chunked),
        "close" => Ok(BodyFraming::Close),
        "close10" => Ok(BodyFraming::Close10),
        _ => Err("length, chunked, close or close10"),
    }
}

fn parse_gzip(value: &str) -> Result<GzipPolicy, &'static str> {
    match value {
        "off" => Ok(GzipPolicy::Never),
        "on" => Ok(GzipPolicy::Accepted),
        "always" => Ok(GzipPolicy::Always),
        _ => Err("off, on or always"),
    }
}

fn parse_format(value: &str) -> Result<BodyFormat, &'static str> {
    match value {
        "json" => Ok(BodyFormat::Json),
        "ssz" => Ok(BodyFormat::Ssz),
        _ => Err("json or ssz"),
    }
}

/// Parses the change of the header that declares the fork: `off` removes it, a name replaces it.
fn parse_fork(value: &str) -> Result<DeclaredForkAlteration, &'static str> {
    match value {
        "" => Err("off, or the name of a fork"),
        "off" => Ok(DeclaredForkAlteration::Nothing),
        name => Ok(DeclaredForkAlteration::Fork(name.to_owned())),
    }
}

/// Parses the change of `version` in the body: `last` moves it to the end, `off` removes it, a name
/// replaces it.
fn parse_version(value: &str) -> Result<DeclaredForkAlteration, &'static str> {
    match value {
        "last" => Ok(DeclaredForkAlteration::Late),
        value => parse_fork(value).map_err(|_| "off, last, or the name of a fork"),
    }
}

fn parse_flag(value: &str) -> Result<bool, &'static str> {
    match value {
        "on" | "1" => Ok(true),
        "off" | "0" => Ok(false),
        _ => Err("on or off"),
    }
}

/// Parses a number within `range`; the error is `expected`.
fn parse_number<T: FromStr + PartialOrd>(
    value: &str,
    range: std::ops::RangeInclusive<T>,
    expected: &'static str,
) -> Result<T, &'static str> {
    value
        .parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or(expected)
}

fn parse_bytes(value: &str) -> Result<usize, &'static str> {
    value.parse().map_err(|_| "a number of bytes")
}

fn parse_piece(value: &str) -> Result<usize, &'static str> {
    parse_number(value, 1..=usize::MAX, "a number of bytes, at least 1")
}

fn parse_offset(value: &str) -> Result<i64, &'static str> {
    let expected = "a number of bytes, negative for too short";
    parse_number(value, -MOST_OFFSET..=MOST_OFFSET, expected)
}

fn parse_garbage(value: &str) -> Result<usize, &'static str> {
    parse_number(value, 1..=MOST_GARBAGE, "a number of bytes up to 1048576")
}

fn parse_milliseconds(value: &str) -> Result<Duration, &'static str> {
    parse_number(value, 0..=LONGEST_WAIT_MS, "milliseconds, at most 600000")
        .map(Duration::from_millis)
}

fn parse_status(
    value: &str,
    range: std::ops::RangeInclusive<u16>,
) -> Result<StatusCode, &'static str> {
    let expected = "a status code: 200 to 599 as status, 400 to 599 as error or refuse";
    let code = parse_number(value, range, expected)?;
    StatusCode::from_u16(code).map_err(|_| expected)
}

/// Parses `Name:Value`; white space around both is dropped.
fn parse_header(value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let expected = "Name:Value";
    let (name, value) = value.split_once(':').ok_or(expected)?;
    let name = name.trim().parse().map_err(|_| expected)?;
    let value = value.trim().parse().map_err(|_| expected)?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_options_override_earlier_ones() {
        let mut options = ReplayResponseOptions::default();
        options
            .parse_query_options("framing=chunked&piece=4096&pause_ms=5")
            .unwrap();
        options
            .parse_query_options("piece=1&header=ETag:%22a%22&header=X:+y")
            .unwrap();
        assert_eq!(options.framing, Some(BodyFraming::Chunked));
        assert_eq!(options.piece, Some(1));
        assert_eq!(options.pause, Some(Duration::from_millis(5)));
        assert_eq!(options.headers.len(), 2);
        assert_eq!(options.headers[0].1, "\"a\"");
        assert_eq!(options.headers[1].1, "y");
        assert!(!options.bypasses_http_library());
    }

    #[test]
    fn options_that_violate_http_are_raw() {
        for text in [
            "framing=close",
            "framing=close10",
            "cut=0",
            "reset=1",
            "stall=5",
            "length_off=-1",
            "garbage=9",
            "lost=on",
        ] {
            let mut options = ReplayResponseOptions::default();
            options.parse_query_options(text).unwrap();
            assert!(options.bypasses_http_library(), "{text}");
        }
    }

    #[test]
    fn invalid_option_is_named_in_the_error() {
        let bad = [
            "framing=http2",
            "piece=0",
            "piece=-1",
            "pause_ms=600001",
            "latency_ms=x",
            "gzip=yes",
            "status=199",
            "status=600",
            "error=200",
            "header=novalue",
            "header=a b:c",
            "echo=a b",
            "newline=",
            "as=both",
            "fork=",
            "version=",
            "corrupt=-1",
            "refuse=200",
            "witness=1.5M",
            "truncate=",
            "cut=-1",
            "reset=maybe",
            "stall=a",
            "stall_ms=-",
            "length_off=1.5",
            "garbage=0",
            "garbage=1048577",
            "type=%0A",
            "lost=yes",
        ];
        for text in bad {
            let name = text.split_once('=').unwrap().0;
            let error = ReplayResponseOptions::default()
                .parse_query_options(text)
                .unwrap_err();
            assert!(
                matches!(&error, DeliveryOptionError::BadValue { name: n, .. } if n == name),
                "{text}: {error}"
            );
            assert_eq!(
                ReplayResponseOptions::default()
                    .parse_options_ignoring_unknown(text)
                    .unwrap_err(),
                error
            );
        }
        let unknown = ReplayResponseOptions::default()
            .parse_query_options("piece=1&peice=2")
            .unwrap_err();
        assert_eq!(
            unknown,
            DeliveryOptionError::UnknownName("peice".to_owned())
        );
        ReplayResponseOptions::default()
            .parse_options_ignoring_unknown("peice=2")
            .unwrap();
    }
}
