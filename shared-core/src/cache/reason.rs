//! Why an answer did not come from the cache, or is not stored. One enum feeds
//! `Cache-Status` (its `detail`, RFC 9211, 2.8), log variables, metrics and
//! tests.

/// `$sszip_cache_reason` in nginx. Values are part of the C ABI and never
/// reused.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There is none: it was a hit, or was asked for and is being stored.
    #[default]
    None = 0,
    /// `Authorization` or `Cookie`, and `sszip_cache_credentials bypass`.
    Credentials = 1,
    /// The request's method: neither GET or HEAD, nor POST.
    Method = 2,
    /// A POST that is not JSON.
    RequestType = 3,
    /// The request's body has a content coding.
    RequestCoding = 4,
    /// The request is longer than `sszip_cache_max_request`.
    RequestLength = 5,
    /// The request's body is in a file: it is longer than the host's buffer.
    BodyOnDisk = 6,
    /// It is to become something else than HTTP.
    Upgrade = 7,
    /// It is not strictly JSON-RPC.
    Malformed = 8,
    /// A batch longer than `sszip_batch_max`.
    BatchLength = 9,
    /// The JSON-RPC method is never stored, or not with these parameters.
    RpcMethod = 10,
    /// A notification: it has no answer.
    Notification = 11,
    /// `sszip_cache_bypass`.
    Bypass = 12,
    /// `sszip_no_cache`.
    NoCache = 13,
    /// The request says `Cache-Control: no-store`.
    RequestNoStore = 14,
    /// The process is short of memory, or holds as much as it may.
    Memory = 15,
    /// There is no cache in this process.
    NoMemoryCache = 16,
    /// Others have made the answer: no node was asked.
    Local = 17,
    /// The status of the answer.
    Status = 18,
    /// It sets a cookie.
    SetCookie = 19,
    /// `Cache-Control`, `Expires` or `X-Accel-Expires` of the answer.
    CacheControl = 20,
    /// `no-transform`: it must not be coded.
    NoTransform = 21,
    /// It depends on more than can be told apart.
    Vary = 22,
    /// The media type of the answer.
    Type = 23,
    /// A coding that nobody asked for.
    Coding = 24,
    /// It is longer than `sszip_cache_max_entry`.
    Length = 25,
    /// Nothing says for how long it holds.
    Lifetime = 26,
    /// Another module has changed the body.
    Filtered = 27,
    /// It is not whole.
    Cut = 28,
    /// A JSON-RPC error.
    Error = 29,
    /// Nothing that lasts: null, pending, of another block, or not believed.
    Result = 30,
    /// It becomes a part of another answer.
    Subrequest = 31,
    /// A part of it was asked for.
    Range = 32,
    /// A condition of the client's that the cache does not judge.
    Condition = 33,
    /// The host rewrites where it points to: for each client anew.
    Redirect = 34,
}

impl Reason {
    /// All, in the order of the ABI.
    pub const ALL: [Reason; 35] = [
        Reason::None,
        Reason::Credentials,
        Reason::Method,
        Reason::RequestType,
        Reason::RequestCoding,
        Reason::RequestLength,
        Reason::BodyOnDisk,
        Reason::Upgrade,
        Reason::Malformed,
        Reason::BatchLength,
        Reason::RpcMethod,
        Reason::Notification,
        Reason::Bypass,
        Reason::NoCache,
        Reason::RequestNoStore,
        Reason::Memory,
        Reason::NoMemoryCache,
        Reason::Local,
        Reason::Status,
        Reason::SetCookie,
        Reason::CacheControl,
        Reason::NoTransform,
        Reason::Vary,
        Reason::Type,
        Reason::Coding,
        Reason::Length,
        Reason::Lifetime,
        Reason::Filtered,
        Reason::Cut,
        Reason::Error,
        Reason::Result,
        Reason::Subrequest,
        Reason::Range,
        Reason::Condition,
        Reason::Redirect,
    ];

    /// A token (RFC 9110, 5.6.2); empty for none.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::None => "",
            Reason::Credentials => "credentials",
            Reason::Method => "method",
            Reason::RequestType => "content-type",
            Reason::RequestCoding => "content-encoding",
            Reason::RequestLength => "request-length",
            Reason::BodyOnDisk => "body-on-disk",
            Reason::Upgrade => "upgrade",
            Reason::Malformed => "malformed",
            Reason::BatchLength => "batch-length",
            Reason::RpcMethod => "rpc-method",
            Reason::Notification => "notification",
            Reason::Bypass => "bypass",
            Reason::NoCache => "no-cache",
            Reason::RequestNoStore => "request-no-store",
            Reason::Memory => "memory",
            Reason::NoMemoryCache => "no-cache-memory",
            Reason::Local => "local",
            Reason::Status => "status",
            Reason::SetCookie => "set-cookie",
            Reason::CacheControl => "cache-control",
            Reason::NoTransform => "no-transform",
            Reason::Vary => "vary",
            Reason::Type => "type",
            Reason::Coding => "coding",
            Reason::Length => "length",
            Reason::Lifetime => "lifetime",
            Reason::Filtered => "filtered",
            Reason::Cut => "cut",
            Reason::Error => "error",
            Reason::Result => "result",
            Reason::Subrequest => "subrequest",
            Reason::Range => "range",
            Reason::Condition => "condition",
            Reason::Redirect => "redirect",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn numbers_are_places_in_the_list_and_names_are_tokens() {
        for (n, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, n);
            let name = reason.name();
            assert_eq!(name.is_empty(), reason == Reason::None);
            assert!(name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
        }
    }
}
