//! The head source of a namespace: the node that the owner's chain follower polls for new heads and
//! for finality.
//!
//! Header values are secrets, and the path of a URL may be one: neither is in `Debug`, in the
//! result of [`HeadSource::url_origin`], or in the error for an invalid value.

use std::fmt;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};

use super::endpoint::NodeEndpoint;
use super::values::{
    invalid_value_error, set_once, DirectiveError, DirectiveValueRange, DirectiveValueUnit,
};

/// A node that a chain follower of the owner polls for new blocks (`cache_head`): its URL, and the
/// parameters of the polls.
#[derive(Clone, PartialEq, Eq)]
pub struct HeadSource {
    /// URL of the node: `http`, `https`, `ws` or `wss`, or `unix:/path[:/uri]`, without user and
    /// password.
    pub url: String,
    /// Interval of polls in milliseconds.
    pub interval: u64,
    /// The finality rule.
    pub finality: FinalizedBlockRule,
    /// The API of the node.
    pub api: NodeApi,
    /// Headers of each request, with names as they were written.
    pub headers: Vec<(String, String)>,
    /// Absolute path of the trusted certificates in PEM, or `None` for the system's certificates.
    pub ca: Option<PathBuf>,
}

/// The rule by which a chain follower determines the finalized block of its chain: the node's tag,
/// or a depth below the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinalizedBlockRule {
    /// The node's block `finalized`, or its finality checkpoints.
    #[default]
    Tag,
    /// Blocks with at least this number of blocks above them are final.
    Depth(u64),
}

/// The API over which a chain follower polls its node: JSON-RPC or the Beacon API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeApi {
    /// JSON-RPC of execution clients.
    #[default]
    Execution,
    /// The Beacon API of consensus clients.
    Beacon,
}

const POLL_INTERVAL_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 100,
    most: 3_600_000,
    unit: DirectiveValueUnit::Time,
};
const FINALITY_DEPTH_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 1_000_000,
    unit: DirectiveValueUnit::Number,
};

const ALLOWED_URLS: &str = "a URL: \"http://\", \"https://\", \"ws://\" or \"wss://\" and \
                    \"HOST[:PORT][/PATH]\", or \"unix:/SOCKET[:/PATH]\"";
const ALLOWED_PARAMETERS: &str =
    "\"interval=TIME\", \"finality=tag|depth:N\", \"api=execution|beacon\", \
     \"header=NAME:VALUE\" (in quotes if it contains spaces), \"ca=FILE\" or \"namespace=NAME\"";

/// Headers that the operator can't set, because they belong to a connection or a body.
const RESERVED_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl HeadSource {
    /// Creates a head source with default parameters.
    ///
    /// # Errors
    /// The URL is not supported.
    pub fn new(url: &[u8]) -> Result<Self, DirectiveError> {
        Ok(Self {
            url: normalize_node_url(url)?,
            interval: 1_000,
            finality: FinalizedBlockRule::default(),
            api: NodeApi::default(),
            headers: Vec::new(),
            ca: None,
        })
    }

    /// Parses the words of the directive, and returns the head source and the namespace:
    ///
    /// ```text
    /// URL [interval=TIME] [finality=tag|depth:N] [api=execution|beacon]
    /// [header=NAME:VALUE ...] [ca=FILE] [namespace=NAME]
    /// ```
    ///
    /// # Errors
    /// The [`DirectiveError`] contains the allowed values.
    pub fn parse_head_source(words: &[&[u8]]) -> Result<(Self, Option<String>), DirectiveError> {
        let Some((url, words)) = words.split_first() else {
            return Err(invalid_value_error(b"", ALLOWED_URLS));
        };
        let mut follow = Self::new(url)?;
        let secret = words.iter().any(|word| word.starts_with(b"header="));
        let (mut interval, mut finality, mut api) = (None, None, None);
        let (mut ca, mut namespace) = (None, None);
        for word in words {
            let (name, value) = match word.iter().position(|byte| *byte == b'=') {
                Some(at) => (&word[..at], &word[at + 1..]),
                None => (*word, &b""[..]),
            };
            match name {
                b"interval" => set_once(&mut interval, || {
                    POLL_INTERVAL_RANGE
                        .parse_in_range(value)
                        .map_err(|error| error.with_rejected_word(word))
                }),
                b"finality" => set_once(&mut finality, || {
                    FinalizedBlockRule::parse_finality_rule(value)
                }),
                b"api" => set_once(&mut api, || NodeApi::parse_node_api(value)),
                b"header" => {
                    follow.headers.push(parse_configured_header(value)?);
                    Ok(())
                }
                b"ca" => set_once(&mut ca, || parse_ca_file(value)),
                b"namespace" => set_once(&mut namespace, || parse_namespace_name(value)),
                // may be part of a header's value that was not quoted
                _ if secret => Err(invalid_value_error(b"...", ALLOWED_PARAMETERS)),
                _ => Err(invalid_value_error(word, ALLOWED_PARAMETERS)),
            }
            .map_err(|error| error.into_duplicate_parameter_error(name))?;
        }
        follow.interval = interval.unwrap_or(follow.interval);
        follow.finality = finality.unwrap_or_default();
        follow.api = api.unwrap_or_default();
        follow.ca = ca;
        follow.validate_head_source_parameters()?;
        Ok((follow, namespace))
    }

    /// Checks that the parameters are compatible with the URL.
    ///
    /// # Errors
    /// The [`DirectiveError`] names the parameter that is not.
    pub fn validate_head_source_parameters(&self) -> Result<(), DirectiveError> {
        let is = |schemes: &[&str]| schemes.iter().any(|scheme| self.url.starts_with(scheme));
        if let Some(ca) = &self.ca {
            if !is(&["https:", "wss:"]) {
                let parameter = format!("ca={}", ca.display());
                return Err(invalid_value_error(
                    parameter.as_bytes(),
                    "used with an \"https://\" or a \"wss://\" URL",
                ));
            }
        }
        if self.api == NodeApi::Beacon && is(&["ws:", "wss:"]) {
            return Err(invalid_value_error(
                b"api=beacon",
                "used with an \"http://\", an \"https://\" or a \"unix:\" URL",
            ));
        }
        Ok(())
    }

    /// Returns the words from which [`parse_head_source`](Self::parse_head_source) reads this head
    /// source.
    pub fn to_directive_words(&self) -> Vec<String> {
        let mut words = vec![
            self.url.clone(),
            format!("interval={}ms", self.interval),
            format!("finality={}", self.finality),
            format!("api={}", self.api),
        ];
        let headers = self.headers.iter();
        words.extend(headers.map(|(name, value)| format!("header={name}:{value}")));
        if let Some(ca) = &self.ca {
            words.push(format!("ca={}", ca.display()));
        }
        words
    }

    /// Returns the URL without its path, which may be a secret, for logs.
    pub fn url_origin(&self) -> &str {
        let start = match self.url.strip_prefix("unix:") {
            // the path of the socket is no secret
            Some(path) => path.find(':').map(|end| "unix:".len() + end),
            None => self.url.find("://").and_then(|scheme| {
                let host = scheme + "://".len();
                let path = self.url[host..].find(['/', '?'])?;
                Some(host + path)
            }),
        };
        &self.url[..start.unwrap_or(self.url.len())]
    }
}

impl fmt::Debug for HeadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HeadSource")
            .field("place", &self.url_origin())
            .field("interval", &self.interval)
            .field("finality", &self.finality)
            .field("api", &self.api)
            .field("headers", &headers)
            .field("ca", &self.ca)
            .finish()
    }
}

impl FinalizedBlockRule {
    /// Parses `tag` or `depth:N`.
    ///
    /// # Errors
    /// The [`DirectiveError`] contains the allowed values.
    pub fn parse_finality_rule(value: &[u8]) -> Result<Self, DirectiveError> {
        let depth = value.strip_prefix(b"depth:");
        match (
            value,
            depth.map(|depth| FINALITY_DEPTH_RANGE.parse_in_range(depth)),
        ) {
            (b"tag", _) => Ok(Self::Tag),
            (_, Some(Ok(depth))) => Ok(Self::Depth(depth)),
            _ => Err(invalid_value_error(
                &[b"finality=", value].concat(),
                format!(
                    "\"finality=tag\" or \"finality=depth:N\", where N is {FINALITY_DEPTH_RANGE}"
                ),
            )),
        }
    }
}

impl fmt::Display for FinalizedBlockRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag => f.write_str("tag"),
            Self::Depth(depth) => write!(f, "depth:{depth}"),
        }
    }
}

impl NodeApi {
    /// Parses `execution` or `beacon`.
    ///
    /// # Errors
    /// The [`DirectiveError`] contains the allowed values.
    pub fn parse_node_api(value: &[u8]) -> Result<Self, DirectiveError> {
        match value {
            b"execution" => Ok(Self::Execution),
            b"beacon" => Ok(Self::Beacon),
            _ => Err(invalid_value_error(
                &[b"api=", value].concat(),
                "\"api=execution\" or \"api=beacon\"",
            )),
        }
    }
}

impl fmt::Display for NodeApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Execution => "execution",
            Self::Beacon => "beacon",
        })
    }
}

/// Checks a URL and returns it with its scheme in lower case.
fn normalize_node_url(value: &[u8]) -> Result<String, DirectiveError> {
    let is_text = value.iter().all(u8::is_ascii_graphic);
    let url = match std::str::from_utf8(value) {
        Ok(url) if is_text && !url.contains('#') => url,
        _ => return Err(invalid_value_error(value, ALLOWED_URLS)),
    };
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(invalid_value_error(value, ALLOWED_URLS));
    };
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "unix" {
        let authority = rest.split(['/', '?']).find(|part| !part.is_empty());
        if let Some((_, host)) = authority.and_then(|part| part.rsplit_once('@')) {
            return Err(invalid_value_error(
                format!("{scheme}://...@{host}").as_bytes(),
                "without user and password; set \"header=Authorization: Basic ...\" instead",
            ));
        }
    }
    match NodeEndpoint::parse_url(url) {
        Some(_) => Ok(format!("{scheme}:{rest}")),
        None => Err(invalid_value_error(value, ALLOWED_URLS)),
    }
}

/// Parses a header (RFC 9110, 5): a token, and printable ASCII.
fn parse_configured_header(field: &[u8]) -> Result<(String, String), DirectiveError> {
    let colon = field.iter().position(|byte| *byte == b':');
    let (name, value) = match colon {
        Some(at) => (&field[..at], field[at + 1..].trim_ascii()),
        // the whole word may be a secret value
        None => (&b""[..], &b""[..]),
    };
    let (name, value) = (std::str::from_utf8(name), std::str::from_utf8(value));
    let shown = match name {
        Ok(name) if !name.is_empty() => format!("header={name}:..."),
        _ => "header=...".into(),
    };
    let bad = |allowed: &str| invalid_value_error(shown.as_bytes(), allowed);
    match (name, value) {
        (Ok(name), _)
            if RESERVED_HEADERS
                .iter()
                .any(|own| own.eq_ignore_ascii_case(name)) =>
        {
            Err(bad(
                "a header that does not describe the connection or the body",
            ))
        }
        (Ok(name), Ok(value))
            if HeaderName::from_bytes(name.as_bytes()).is_ok()
                && !value.is_empty()
                && value.is_ascii()
                && HeaderValue::from_str(value).is_ok() =>
        {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(bad(
            "\"header=NAME:VALUE\" with a header name and printable ASCII (in quotes if it \
             contains spaces)",
        )),
    }
}

fn parse_ca_file(value: &[u8]) -> Result<PathBuf, DirectiveError> {
    match std::str::from_utf8(value) {
        Ok(path) if path.starts_with('/') && !path.contains('\0') => Ok(path.into()),
        _ => Err(invalid_value_error(
            &[b"ca=", value].concat(),
            "\"ca=FILE\" with an absolute path in UTF-8",
        )),
    }
}

/// Whether a namespace with a head source may have this name, which is written to logs.
pub(super) fn is_valid_namespace_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_control)
}

fn parse_namespace_name(value: &[u8]) -> Result<String, DirectiveError> {
    match std::str::from_utf8(value) {
        Ok(name) if is_valid_namespace_name(name) => Ok(name.to_owned()),
        _ => Err(invalid_value_error(
            &[b"namespace=", value].concat(),
            "\"namespace=NAME\" in UTF-8 without control characters",
        )),
    }
}

#[cfg(test)]
mod tests;
