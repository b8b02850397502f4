//! The arguments of commands that send requests.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command};
use hyper::header::{HeaderName, HeaderValue};

use crate::http_client::ConnectionOptions;

/// Maximum length of a response: a status has some 100 KB.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// The options of connections.
#[derive(Debug, Args)]
pub struct ConnectionArguments {
    /// A file of the certificates, in PEM, that sign the server's [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// A header of all requests, such as "Authorization: Bearer ..."; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = HeaderParser)]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Timeout of a request
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub timeout: Duration,
}

impl ConnectionArguments {
    /// Returns the options of a client with a number of connections.
    pub fn options(&self, connections: usize) -> ConnectionOptions {
        ConnectionOptions {
            ca: self.ca.clone(),
            headers: self.headers.clone(),
            timeout: self.timeout,
            max_response: MAX_RESPONSE_BYTES,
            connections,
        }
    }
}

/// The parser of `--header`. Its errors do not contain the argument, which may be a secret.
#[derive(Clone)]
struct HeaderParser;

impl TypedValueParser for HeaderParser {
    type Value = (HeaderName, HeaderValue);

    fn parse_ref(
        &self,
        command: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        parse_header(&value.to_string_lossy()).map_err(|reason| {
            let text = format!("invalid value for '--header <NAME: VALUE>': {reason}");
            command.clone().error(ErrorKind::ValueValidation, text)
        })
    }
}

/// Parses a header. Its value is in no error and no debug output.
fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let name = HeaderName::from_bytes(name.trim().as_bytes())
        .map_err(|_| "the name must be a token (RFC 9110, 5.6.2)")?;
    let mut value = HeaderValue::from_str(value.trim())
        .map_err(|_| "the value must be one line of visible characters")?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Parses a time of at most a day: `500ms`, `5s`, `2m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const WRONG: &str = "expected a time such as 500ms, 5s or 2m, of at most a day";
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or(WRONG)?;
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(WRONG.into()),
    };
    let number: u64 = number.parse().map_err(|_| WRONG)?;
    let milliseconds = number.saturating_mul(unit);
    match milliseconds {
        1..=86_400_000 => Ok(Duration::from_millis(milliseconds)),
        _ => Err(WRONG.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in [
            "",
            "5",
            "s",
            "0s",
            "-1s",
            "1.5s",
            "25h",
            "9 s",
            "99999999999999999999s",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headers_are_parsed_and_secret() {
        let (name, value) = parse_header("X-Key:  a: b ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-key", "a: b"));
        assert!(!format!("{value:?}").contains("a: b"));
        for wrong in ["key", "a b: c", ": c", "a: b\r\nc: d"] {
            let error = parse_header(wrong).unwrap_err();
            assert!(!error.contains("c: d"), "{wrong}: {error}");
        }
    }
}
