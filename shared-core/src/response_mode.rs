//! Modes: whether and how a body was compressed, or the reason why it was sent unchanged. One
//! enum feeds log variables, metrics and tests of every host.

/// The treatment of a response's body: compressed, streamed, sent from the cache, or the reason why
/// it was sent unchanged. `$sszip_mode` in nginx.
///
/// An uncompressed response is no error: every variant without a compression is the *reason* for
/// identity. Values are part of the C ABI and never reused.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseMode {
    /// sszip is disabled here, or the exchange has not decided yet.
    Off = 0,
    /// Buffered, compressed in one piece, and sent with an exact `Content-Length`.
    Oneshot = 1,
    /// Decompressed, because the upstream sent gzip or zstd that the client can't read.
    Inflate = 2,
    /// The client accepts no coding that sszip sends here, or prefers identity.
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

impl ResponseMode {
    /// All modes, in the order of the ABI.
    pub const ALL: [ResponseMode; 29] = [
        ResponseMode::Off,
        ResponseMode::Oneshot,
        ResponseMode::Inflate,
        ResponseMode::AcceptEncoding,
        ResponseMode::HostPolicy,
        ResponseMode::Head,
        ResponseMode::Status,
        ResponseMode::Subrequest,
        ResponseMode::Type,
        ResponseMode::Encoded,
        ResponseMode::NoTransform,
        ResponseMode::Upgrade,
        ResponseMode::TooSmall,
        ResponseMode::Memory,
        ResponseMode::NotSmaller,
        ResponseMode::Failed,
        ResponseMode::Cut,
        ResponseMode::Stream,
        ResponseMode::Hit,
        ResponseMode::Merged,
        ResponseMode::Ssz,
        ResponseMode::SszVersion,
        ResponseMode::SszFork,
        ResponseMode::SszInvalid,
        ResponseMode::SszLength,
        ResponseMode::Json,
        ResponseMode::SszNothing,
        ResponseMode::SszBusy,
        ResponseMode::Denied,
    ];

    /// Name in logs and metrics.
    pub const fn mode_name(self) -> &'static str {
        match self {
            ResponseMode::Off => "off",
            ResponseMode::Oneshot => "oneshot",
            ResponseMode::Inflate => "inflate",
            ResponseMode::AcceptEncoding => "accept-encoding",
            ResponseMode::HostPolicy => "host-policy",
            ResponseMode::Head => "head",
            ResponseMode::Status => "status",
            ResponseMode::Subrequest => "subrequest",
            ResponseMode::Type => "type",
            ResponseMode::Encoded => "encoded",
            ResponseMode::NoTransform => "no-transform",
            ResponseMode::Upgrade => "upgrade",
            ResponseMode::TooSmall => "too-small",
            ResponseMode::Memory => "memory",
            ResponseMode::NotSmaller => "not-smaller",
            ResponseMode::Failed => "failed",
            ResponseMode::Cut => "cut",
            ResponseMode::Stream => "stream",
            ResponseMode::Hit => "hit",
            ResponseMode::Merged => "merged",
            ResponseMode::Ssz => "ssz",
            ResponseMode::SszVersion => "ssz-version",
            ResponseMode::SszFork => "ssz-fork",
            ResponseMode::SszInvalid => "ssz-invalid",
            ResponseMode::SszLength => "ssz-length",
            ResponseMode::Json => "json",
            ResponseMode::SszNothing => "ssz-nothing",
            ResponseMode::SszBusy => "ssz-busy",
            ResponseMode::Denied => "denied",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ResponseMode;

    #[test]
    fn mode_list_is_in_the_order_of_the_numbers() {
        for (number, mode) in ResponseMode::ALL.iter().enumerate() {
            assert_eq!(*mode as usize, number);
        }
    }

    #[test]
    fn mode_names_are_distinct() {
        let mut names: Vec<_> = ResponseMode::ALL
            .iter()
            .map(|mode| mode.mode_name())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ResponseMode::ALL.len());
    }
}
