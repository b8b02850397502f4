//! When an expired answer may be sent: nginx's `proxy_cache_use_stale`, as an
//! operator knows it.

/// For how long after it has expired an answer may be sent, in milliseconds.
/// It is to bridge a node's restart or the loss of its peers. A chain has gone
/// on by fifty blocks then: what is older misleads more than an error does.
pub const MOST: u64 = 600_000;

/// In what way the node failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection to it could be opened.
    Connect,
    /// It went away before its answer's head.
    Error,
    /// It took too long.
    Timeout,
    /// What it answered is not HTTP.
    InvalidHeader,
    /// Its answer has this status.
    Status(u16),
    /// The host has answered by itself, for another reason than the node.
    Local,
}

impl Failure {
    /// Whether the host answers because the node did not: no head of the node's came.
    pub fn is_before_head(self) -> bool {
        !matches!(self, Self::Status(_) | Self::Local)
    }

    /// The failure behind a response of Envoy's own, by its status and its response code
    /// details (Envoy, `StreamInfo::ResponseCodeDetails`).
    pub fn of_envoy(status: u32, details: &[u8]) -> Self {
        let has = |part: &[u8]| details.windows(part.len()).any(|it| it == part);
        let has_any = |parts: &[&str]| parts.iter().any(|part| has(part.as_bytes()));
        // a circuit breaker (`overflow`) opens none, either
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

/// The cases in which an expired answer may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseStale(u16);

/// The words, each with its bit, and with the status that it is of.
const WORDS: [(&str, Option<u16>); 12] = [
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

/// The bits of those words.
fn bits(is_it: impl Fn(&str, Option<u16>) -> bool) -> u16 {
    let words = WORDS.iter().enumerate();
    let said = words.filter(|(_, (word, status))| is_it(word, *status));
    said.map(|(bit, _)| 1 << bit).sum()
}

impl UseStale {
    /// Of a directive's words; as in nginx `off` undoes all others.
    ///
    /// # Errors
    /// The first word that is none.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, &'a [u8]> {
        let mut all = 0;
        for word in words {
            match bits(|known, _| known.as_bytes() == word) {
                0 => return Err(word),
                bit => all |= bit,
            }
        }
        let is_off = all & bits(|known, _| known == "off") != 0;
        Ok(Self(if is_off { 0 } else { all }))
    }

    /// Whether there is such a case.
    pub fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Whether it may be sent while another request fetches a new one.
    pub fn while_updating(self) -> bool {
        self.0 & bits(|word, _| word == "updating") != 0
    }

    /// Whether it may be sent in place of this.
    pub fn covers(self, failure: Failure) -> bool {
        let word = match failure {
            Failure::Connect | Failure::Error | Failure::Local => "error",
            Failure::Timeout => "timeout",
            Failure::InvalidHeader => "invalid_header",
            Failure::Status(status) => return self.0 & bits(|_, of| of == Some(status)) != 0,
        };
        self.0 & bits(|known, _| known == word) != 0
    }
}

/// All that [`UseStale::parse`] reads.
pub fn words() -> Vec<&'static str> {
    WORDS.iter().map(|(word, _)| *word).collect()
}

#[cfg(test)]
mod tests {
    use super::{Failure, UseStale, WORDS};

    fn parse(line: &str) -> Result<UseStale, &[u8]> {
        UseStale::parse(line.split(' ').map(str::as_bytes))
    }

    const FAILURES: [(&str, Failure); 10] = [
        ("error", Failure::Error),
        ("timeout", Failure::Timeout),
        ("invalid_header", Failure::InvalidHeader),
        ("http_403", Failure::Status(403)),
        ("http_404", Failure::Status(404)),
        ("http_429", Failure::Status(429)),
        ("http_500", Failure::Status(500)),
        ("http_502", Failure::Status(502)),
        ("http_503", Failure::Status(503)),
        ("http_504", Failure::Status(504)),
    ];

    #[test]
    fn each_word_covers_its_failure_and_no_other() {
        for (word, _) in WORDS {
            let said = parse(word).unwrap();
            for (name, failure) in FAILURES {
                assert_eq!(said.covers(failure), name == word, "{word} {failure:?}");
            }
            assert_eq!(said.while_updating(), word == "updating");
            assert_eq!(said.is_any(), word != "off");
        }
    }

    #[test]
    fn failures_of_envoy_are_told_apart_by_details() {
        for (status, details, expected) in [
            (503, "no_healthy_upstream", Failure::Connect),
            (
                503,
                "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_111}",
                Failure::Connect,
            ),
            (
                503,
                "upstream_reset_before_response_started{connection_termination}",
                Failure::Error,
            ),
            (
                502,
                "upstream_reset_before_response_started{protocol_error}",
                Failure::InvalidHeader,
            ),
            (504, "upstream_response_timeout", Failure::Timeout),
            (504, "upstream_per_try_timeout", Failure::Timeout),
            (
                503,
                "upstream_reset_before_response_started{connection_timeout}",
                Failure::Timeout,
            ),
            (503, "upstream_reset_before_response_started{overflow}", Failure::Connect),
            (503, "", Failure::Error),
            (403, "rbac_access_denied_matched_policy[none]", Failure::Local),
            (429, "local_rate_limited", Failure::Local),
        ] {
            assert_eq!(Failure::of_envoy(status, details.as_bytes()), expected, "{details}");
        }
    }

    #[test]
    fn words_add_up_and_off_undoes_them() {
        let said = parse("error http_503 updating").unwrap();
        assert!(said.covers(Failure::Error) && said.covers(Failure::Status(503)));
        assert!(said.while_updating() && !said.covers(Failure::Status(500)));
        assert_eq!(parse("error off updating"), Ok(UseStale::default()));
        assert_eq!(parse("error Timeout"), Err(&b"Timeout"[..]));
        assert!(!said.covers(Failure::Status(200)));
    }
}
