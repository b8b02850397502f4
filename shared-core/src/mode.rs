//! Modes: whether and how a body was compressed, or the reason why it was sent unchanged. One
//! enum feeds log variables, metrics and tests of every host.

/// The treatment of a response's body. `$sszip_mode` in nginx.
///
/// An uncompressed response is no error: every variant without a compression is the *reason* for
/// identity. Values are part of the C ABI and never reused.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// sszip is disabled here, or the exchange has not decided yet.
    Off = 0,
    /// Buffered, compressed in one piece, and sent with an exact `Content-Length`.
    Oneshot = 1,
    /// Decompressed, because the upstream sent gzip that the client can't read.
    Inflate = 2,
    /// The client does not accept gzip, or prefers identity.
    AcceptEncoding = 3,
    /// Not compressed because of the host's own rules (in nginx `gzip_proxied`, `gzip_disable`,
    /// `gzip_http_version`).
    HostPolicy = 4,
    /// A HEAD request for a response that would be compressed for GET.
    Head = 5,
    /// A status without content, or partial content (1xx, 204, 205, 206, 304).
    Status = 6,
    /// A part of another response.
    Subrequest = 7,
    /// The media type is not configured for compression.
    Type = 8,
    /// The upstream sent the body in a content coding already.
    Encoded = 9,
    /// `Cache-Control: no-transform` from either side (RFC 9111, 5.2).
    NoTransform = 10,
    /// The connection changes its protocol.
    Upgrade = 11,
    /// Shorter than `min_length`.
    TooSmall = 12,
    /// The memory budget is exhausted, or memory was refused.
    Memory = 13,
    /// Compression did not make the body smaller.
    NotSmaller = 14,
    /// The compression failed; the original was sent.
    Failed = 15,
    /// The upstream truncated the body.
    Cut = 16,
    /// Compressed while the body arrived, without a length.
    Stream = 17,
    /// Sent from the cache.
    Hit = 18,
    /// Stored responses and the node's, merged to one batch.
    Merged = 19,
    /// The node's JSON, sent as SSZ.
    Ssz = 20,
    /// Not converted to another format, because no header or member names its fork.
    SszVersion = 21,
    /// Not converted to another format, because its fork is unknown or has no such type.
    SszFork = 22,
    /// Not converted to another format, because the body is no value of its type.
    SszInvalid = 23,
    /// Not converted to another format, because the SSZ would be too long.
    SszLength = 24,
    /// The node's SSZ, sent as JSON.
    Json = 25,
    /// Not converted to SSZ, because the response is an error or null.
    SszNothing = 26,
    /// Not converted to another format, because too many long responses are being converted.
    SszBusy = 27,
    /// Not sent by a node: the policy denies the request.
    Denied = 28,
}

impl Mode {
    /// All modes, in the order of the ABI.
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

    /// Name in logs and metrics.
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
    fn mode_list_is_in_the_order_of_the_numbers() {
        for (number, mode) in Mode::ALL.iter().enumerate() {
            assert_eq!(*mode as usize, number);
        }
    }

    #[test]
    fn mode_names_are_distinct() {
        let mut names: Vec<_> = Mode::ALL.iter().map(|mode| mode.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Mode::ALL.len());
    }
}
