//! When an expired answer may be sent: nginx's `proxy_cache_use_stale`, as an
//! operator knows it.

/// For how long after it has expired an answer may be sent, in milliseconds.
/// It is to bridge a node's restart or the loss of its peers. A chain has gone
/// on by fifty blocks then: what is older misleads more than an error does.
pub const MOST: u64 = 600_000;

/// In what way the node failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not be reached, or went away before its answer's head.
    Error,
    /// It took too long.
    Timeout,
    /// What it answered is not HTTP.
    InvalidHeader,
    /// Its answer has this status.
    Status(u16),
}

/// The cases in which an expired answer may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseStale(u16);

const ERROR: u16 = 1 << 0;
const TIMEOUT: u16 = 1 << 1;
const INVALID_HEADER: u16 = 1 << 2;
const UPDATING: u16 = 1 << 3;
const HTTP_500: u16 = 1 << 4;
const HTTP_502: u16 = 1 << 5;
const HTTP_503: u16 = 1 << 6;
const HTTP_504: u16 = 1 << 7;
const HTTP_403: u16 = 1 << 8;
const HTTP_404: u16 = 1 << 9;
const HTTP_429: u16 = 1 << 10;
const OFF: u16 = 1 << 15;

const WORDS: [(&str, u16); 12] = [
    ("error", ERROR),
    ("timeout", TIMEOUT),
    ("invalid_header", INVALID_HEADER),
    ("updating", UPDATING),
    ("http_500", HTTP_500),
    ("http_502", HTTP_502),
    ("http_503", HTTP_503),
    ("http_504", HTTP_504),
    ("http_403", HTTP_403),
    ("http_404", HTTP_404),
    ("http_429", HTTP_429),
    ("off", OFF),
];

impl UseStale {
    /// Of a directive's words; as in nginx `off` undoes all others.
    ///
    /// # Errors
    /// The first word that is none.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, &'a [u8]> {
        let mut all = 0;
        for word in words {
            let known = WORDS.iter().find(|(known, _)| known.as_bytes() == word);
            all |= known.ok_or(word)?.1;
        }
        Ok(Self(if all & OFF == 0 { all } else { 0 }))
    }

    /// Whether there is such a case.
    pub fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Whether it may be sent while another request fetches a new one.
    pub fn while_updating(self) -> bool {
        self.0 & UPDATING != 0
    }

    /// Whether it may be sent in place of this.
    pub fn covers(self, failure: Failure) -> bool {
        let word = match failure {
            Failure::Error => ERROR,
            Failure::Timeout => TIMEOUT,
            Failure::InvalidHeader => INVALID_HEADER,
            Failure::Status(status) => match status {
                403 => HTTP_403,
                404 => HTTP_404,
                429 => HTTP_429,
                500 => HTTP_500,
                502 => HTTP_502,
                503 => HTTP_503,
                504 => HTTP_504,
                _ => 0,
            },
        };
        self.0 & word != 0
    }
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
    fn words_add_up_and_off_undoes_them() {
        let said = parse("error http_503 updating").unwrap();
        assert!(said.covers(Failure::Error) && said.covers(Failure::Status(503)));
        assert!(said.while_updating() && !said.covers(Failure::Status(500)));
        assert_eq!(parse("error off updating"), Ok(UseStale::default()));
        assert_eq!(parse("error Timeout"), Err(&b"Timeout"[..]));
        assert!(!said.covers(Failure::Status(200)));
    }
}
