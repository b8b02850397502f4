//! Conditions for serving stale entries, as in nginx's `proxy_cache_use_stale`.

/// Maximum time after its expiry for which an entry may be served, in milliseconds. It bridges a
/// node's restart or the loss of its peers. The chain has grown by fifty blocks in that time: an
/// older response misleads more than an error does.
pub const MAX_STALE: u64 = 600_000;

/// The stage at which the upstream failed a request, or the status with which it responded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// No connection to the upstream could be opened.
    Connect,
    /// The connection was closed before the response head.
    Error,
    /// The response did not arrive in time.
    Timeout,
    /// The response is not HTTP.
    InvalidHeader,
    /// The upstream responded with this status.
    Status(u16),
    /// The host has sent a local reply for another reason than the upstream.
    Local,
}

impl UpstreamFailure {
    /// Whether the upstream failed before a response head arrived.
    pub fn occurred_before_response_head(self) -> bool {
        !matches!(self, Self::Status(_) | Self::Local)
    }

    /// Returns the failure behind a local reply of Envoy, by its status and its response code
    /// details (Envoy, `StreamInfo::ResponseCodeDetails`).
    pub fn from_envoy_local_reply(status: u32, details: &[u8]) -> Self {
        let has = |part: &[u8]| details.windows(part.len()).any(|it| it == part);
        let has_any = |parts: &[&str]| parts.iter().any(|part| has(part.as_bytes()));
        // a circuit breaker (`overflow`) opens no connection, either
        let is_connect = [
            "connection_failure",
            "connect_error",
            "no_healthy_upstream",
            "{overflow}",
        ];
        let is_timeout = [
            "upstream_response_timeout",
            "per_try_timeout",
            "connection_timeout",
        ];
        if has_any(&is_connect) || details == b"cluster_not_found" {
            Self::Connect
        } else if has(b"protocol_error") {
            Self::InvalidHeader
        } else if status == 504 || has_any(&is_timeout) {
            Self::Timeout
        } else if details.is_empty() || details.starts_with(b"upstream_") {
            Self::Error
        } else {
            Self::Local
        }
    }
}

/// The set of upstream failures, and `updating`, for which an operator permits serving a stale
/// entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseStaleConditions(u16);

/// Words of the directive. The position of a word is its bit; statuses have words of their own.
const CONDITION_WORDS: [(&str, Option<u16>); 12] = [
    ("error", None),
    ("timeout", None),
    ("invalid_header", None),
    ("updating", None),
    ("http_500", Some(500)),
    ("http_502", Some(502)),
    ("http_503", Some(503)),
    ("http_504", Some(504)),
    ("http_403", Some(403)),
    ("http_404", Some(404)),
    ("http_429", Some(429)),
    ("off", None),
];

/// Returns the bits of the matching words.
fn condition_bits(is_it: impl Fn(&str, Option<u16>) -> bool) -> u16 {
    let words = CONDITION_WORDS.iter().enumerate();
    let matching = words.filter(|(_, (word, status))| is_it(word, *status));
    matching.map(|(bit, _)| 1 << bit).sum()
}

impl UseStaleConditions {
    /// Parses the words of `sszip_cache_use_stale`; as in nginx, `off` overrides all others.
    ///
    /// # Errors
    /// Returns the first unknown word.
    pub fn parse_use_stale_conditions<'a>(
        words: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, &'a [u8]> {
        let mut all = 0;
        for word in words {
            match condition_bits(|known, _| known.as_bytes() == word) {
                0 => return Err(word),
                bit => all |= bit,
            }
        }
        let is_off = all & condition_bits(|known, _| known == "off") != 0;
        Ok(Self(if is_off { 0 } else { all }))
    }

    /// Whether the operator permits serving stale entries under any condition.
    pub fn permits_any_stale(self) -> bool {
        self.0 != 0
    }

    /// Whether the operator permits serving a stale entry while another request updates it
    /// (`updating`).
    pub fn permits_while_updating(self) -> bool {
        self.0 & condition_bits(|word, _| word == "updating") != 0
    }

    /// Whether the operator permits serving a stale entry after this failure of the upstream.
    pub fn permits_stale_after_failure(self, failure: UpstreamFailure) -> bool {
        let word = match failure {
            UpstreamFailure::Connect | UpstreamFailure::Error | UpstreamFailure::Local => "error",
            UpstreamFailure::Timeout => "timeout",
            UpstreamFailure::InvalidHeader => "invalid_header",
            UpstreamFailure::Status(status) => {
                return self.0 & condition_bits(|_, of| of == Some(status)) != 0
            }
        };
        self.0 & condition_bits(|known, _| known == word) != 0
    }
}

/// Returns all words that [`UseStaleConditions::parse_use_stale_conditions`] accepts, for checks and messages of a configuration.
pub fn allowed_use_stale_words() -> Vec<&'static str> {
    CONDITION_WORDS.iter().map(|(word, _)| *word).collect()
}

#[cfg(test)]
mod tests {
    use super::{UpstreamFailure, UseStaleConditions, CONDITION_WORDS};

    fn parse(line: &str) -> Result<UseStaleConditions, &[u8]> {
        UseStaleConditions::parse_use_stale_conditions(line.split(' ').map(str::as_bytes))
    }

    const FAILURES: [(&str, UpstreamFailure); 10] = [
        ("error", UpstreamFailure::Error),
        ("timeout", UpstreamFailure::Timeout),
        ("invalid_header", UpstreamFailure::InvalidHeader),
        ("http_403", UpstreamFailure::Status(403)),
        ("http_404", UpstreamFailure::Status(404)),
        ("http_429", UpstreamFailure::Status(429)),
        ("http_500", UpstreamFailure::Status(500)),
        ("http_502", UpstreamFailure::Status(502)),
        ("http_503", UpstreamFailure::Status(503)),
        ("http_504", UpstreamFailure::Status(504)),
    ];

    #[test]
    fn words_cover_only_their_own_failure() {
        for (word, _) in CONDITION_WORDS {
            let conditions = parse(word).unwrap();
            for (name, failure) in FAILURES {
                assert_eq!(
                    conditions.permits_stale_after_failure(failure),
                    name == word,
                    "{word} {failure:?}"
                );
            }
            assert_eq!(conditions.permits_while_updating(), word == "updating");
            assert_eq!(conditions.permits_any_stale(), word != "off");
        }
    }

    #[test]
    fn envoy_failures_are_distinguished_by_response_code_details() {
        for (status, details, expected) in [
            (503, "no_healthy_upstream", UpstreamFailure::Connect),
            (
                503,
                "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_111}",
                UpstreamFailure::Connect,
            ),
            (
                503,
                "upstream_reset_before_response_started{connection_termination}",
                UpstreamFailure::Error,
            ),
            (
                502,
                "upstream_reset_before_response_started{protocol_error}",
                UpstreamFailure::InvalidHeader,
            ),
            (504, "upstream_response_timeout", UpstreamFailure::Timeout),
            (504, "upstream_per_try_timeout", UpstreamFailure::Timeout),
            (
                503,
                "upstream_reset_before_response_started{connection_timeout}",
                UpstreamFailure::Timeout,
            ),
            (503, "upstream_reset_before_response_started{overflow}", UpstreamFailure::Connect),
            (503, "", UpstreamFailure::Error),
            (403, "rbac_access_denied_matched_policy[none]", UpstreamFailure::Local),
            (429, "local_rate_limited", UpstreamFailure::Local),
        ] {
            assert_eq!(UpstreamFailure::from_envoy_local_reply(status, details.as_bytes()), expected, "{details}");
        }
    }

    #[test]
    fn words_are_combined_and_off_overrides_them() {
        let conditions = parse("error http_503 updating").unwrap();
        assert!(
            conditions.permits_stale_after_failure(UpstreamFailure::Error)
                && conditions.permits_stale_after_failure(UpstreamFailure::Status(503))
        );
        assert!(
            conditions.permits_while_updating()
                && !conditions.permits_stale_after_failure(UpstreamFailure::Status(500))
        );
        assert_eq!(
            parse("error off updating"),
            Ok(UseStaleConditions::default())
        );
        assert_eq!(parse("error Timeout"), Err(&b"Timeout"[..]));
        assert!(!conditions.permits_stale_after_failure(UpstreamFailure::Status(200)));
    }
}
