//! Why an answer did not come from the cache, or is not stored. One enum feeds
//! `Cache-Status` (its `detail`, RFC 9211, 2.8), log variables, metrics and
//! tests.

/// `$sszip_cache_reason` in nginx.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There is none: it was a hit, or was asked for and is being stored.
    #[default]
    None,
    /// `Authorization` or `Cookie`, and `sszip_cache_credentials bypass`.
    Credentials,
    /// The request's method: neither GET or HEAD, nor POST.
    Method,
    /// A POST that is not JSON.
    RequestType,
    /// The request's body has a content coding.
    RequestCoding,
    /// The request is longer than `sszip_cache_max_request`.
    RequestLength,
    /// The request's body is in a file: it is longer than the host's buffer.
    BodyOnDisk,
    /// It is to become something else than HTTP.
    Upgrade,
    /// It is not strictly JSON-RPC.
    Malformed,
    /// A batch longer than `sszip_batch_max`.
    BatchLength,
    /// The JSON-RPC method is never stored, or not with these parameters.
    RpcMethod,
    /// A notification: it has no answer.
    Notification,
    /// `sszip_cache_bypass`.
    Bypass,
    /// `sszip_no_cache`.
    NoCache,
    /// The request says `Cache-Control: no-store`.
    RequestNoStore,
    /// The process is short of memory, or holds as much as it may.
    Memory,
    /// There is no cache in this process.
    NoMemoryCache,
    /// Others have made the answer: no node was asked.
    Local,
    /// The status of the answer.
    Status,
    /// It sets a cookie.
    SetCookie,
    /// `Cache-Control`, `Expires` or `X-Accel-Expires` of the answer.
    CacheControl,
    /// `no-transform`: it must not be coded.
    NoTransform,
    /// It depends on more than can be told apart.
    Vary,
    /// The media type of the answer.
    Type,
    /// A coding that nobody asked for.
    Coding,
    /// It is longer than `sszip_cache_max_entry`.
    Length,
    /// Nothing says for how long it holds.
    Lifetime,
    /// Another module has changed the body.
    Filtered,
    /// It is not whole.
    Cut,
    /// A JSON-RPC error.
    Error,
    /// Nothing that lasts: null, pending, of another block, or not believed.
    Result,
    /// It becomes a part of another answer.
    Subrequest,
    /// A part of it was asked for.
    Range,
    /// A condition of the client's that the cache does not judge.
    Condition,
    /// The host rewrites where it points to: for each client anew.
    Redirect,
    /// It was to be in another format, and nothing names its fork.
    SszVersion,
    /// Its fork is not known, or has no such type.
    SszFork,
    /// It is no value of its type.
    SszInvalid,
    /// It is too much SSZ.
    SszLength,
}

impl Reason {
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
            Reason::SszVersion => "ssz-version",
            Reason::SszFork => "ssz-fork",
            Reason::SszInvalid => "ssz-invalid",
            Reason::SszLength => "ssz-length",
        }
    }
}
