//! What happened to an answer: coded, or the reason why it went out as it
//! came. One enum feeds log variables, metrics and tests of every host.

/// How the body of an answer was sent. `$sszip_mode` in nginx.
///
/// Not compressing is no error: every variant but the coding ones is the
/// *reason* for identity. Values are part of the C ABI and never reused.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// sszip is off here, or the exchange has not come to a decision.
    Off = 0,
    /// Held, compressed at once, sent with an exact `Content-Length`.
    Oneshot = 1,
    /// Came gzip-coded although the client can't read that; decoded.
    Inflate = 2,
    /// The client does not accept gzip, or prefers identity.
    AcceptEncoding = 3,
    /// The host's own rules said no (in nginx `gzip_proxied`,
    /// `gzip_disable`, `gzip_http_version`).
    HostPolicy = 4,
    /// A HEAD request for what GET would have coded.
    Head = 5,
    /// A status without content, or partial content (1xx, 204, 205, 206, 304).
    Status = 6,
    /// A part of another answer.
    Subrequest = 7,
    /// The media type is not to be compressed.
    Type = 8,
    /// The node sent it in a content coding already.
    Encoded = 9,
    /// `Cache-Control: no-transform` from either side (RFC 9111, 5.2).
    NoTransform = 10,
    /// The connection becomes something else than HTTP.
    Upgrade = 11,
    /// Shorter than `min_length`.
    TooSmall = 12,
    /// The process holds as much as it may, or memory was refused.
    Memory = 13,
    /// Coding did not make it smaller.
    NotSmaller = 14,
    /// The coder failed; the original went out.
    Failed = 15,
    /// The node cut the body short.
    Cut = 16,
    /// Compressed as it came, without a length.
    Stream = 17,
    /// Sent from the cache.
    Hit = 18,
    /// Stored answers and the node's, put together to a batch.
    Merged = 19,
    /// JSON of the node's, sent as SSZ.
    Ssz = 20,
    /// It was to be in another format, and nothing names its fork.
    SszVersion = 21,
    /// It was to be in another format, and its fork is not known or has no such type.
    SszFork = 22,
    /// It was to be in another format, and is no value of its type.
    SszInvalid = 23,
    /// It was to be in another format, and is too much SSZ.
    SszLength = 24,
    /// SSZ of the node's, sent as JSON.
    Json = 25,
    /// It was to be SSZ, and is an error, or null.
    SszNothing = 26,
    /// It was to be in another format, and is one long answer too many at a time.
    SszBusy = 27,
    /// Not made by any node: what was asked for must not be called.
    Denied = 28,
}

impl Mode {
    /// Every mode, in the order of the ABI.
    pub const ALL: [Mode; 29] = [
        Mode::Off,
        Mode::Oneshot,
        Mode::Inflate,
        Mode::AcceptEncoding,
        Mode::HostPolicy,
        Mode::Head,
        Mode::Status,
        Mode::Subrequest,
        Mode::Type,
        Mode::Encoded,
        Mode::NoTransform,
        Mode::Upgrade,
        Mode::TooSmall,
        Mode::Memory,
        Mode::NotSmaller,
        Mode::Failed,
        Mode::Cut,
        Mode::Stream,
        Mode::Hit,
        Mode::Merged,
        Mode::Ssz,
        Mode::SszVersion,
        Mode::SszFork,
        Mode::SszInvalid,
        Mode::SszLength,
        Mode::Json,
        Mode::SszNothing,
        Mode::SszBusy,
        Mode::Denied,
    ];

    /// The name that logs and metrics show.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Oneshot => "oneshot",
            Mode::Inflate => "inflate",
            Mode::AcceptEncoding => "accept-encoding",
            Mode::HostPolicy => "host-policy",
            Mode::Head => "head",
            Mode::Status => "status",
            Mode::Subrequest => "subrequest",
            Mode::Type => "type",
            Mode::Encoded => "encoded",
            Mode::NoTransform => "no-transform",
            Mode::Upgrade => "upgrade",
            Mode::TooSmall => "too-small",
            Mode::Memory => "memory",
            Mode::NotSmaller => "not-smaller",
            Mode::Failed => "failed",
            Mode::Cut => "cut",
            Mode::Stream => "stream",
            Mode::Hit => "hit",
            Mode::Merged => "merged",
            Mode::Ssz => "ssz",
            Mode::SszVersion => "ssz-version",
            Mode::SszFork => "ssz-fork",
            Mode::SszInvalid => "ssz-invalid",
            Mode::SszLength => "ssz-length",
            Mode::Json => "json",
            Mode::SszNothing => "ssz-nothing",
            Mode::SszBusy => "ssz-busy",
            Mode::Denied => "denied",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mode;

    #[test]
    fn all_lists_every_mode_at_its_number() {
        for (number, mode) in Mode::ALL.iter().enumerate() {
            assert_eq!(*mode as usize, number);
        }
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Mode::ALL.iter().map(|mode| mode.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Mode::ALL.len());
    }
}
