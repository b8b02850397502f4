//! Why an answer did not come from the cache, or is not stored. One enum feeds
//! `Cache-Status` (its `detail`, RFC 9211, 2.8), log variables, metrics and
//! tests.

use crate::jsonrpc::response::ResponseError;
use crate::jsonrpc::scan::Fault;

named! {
    /// `$sszip_cache_reason` in nginx.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    Reason
    /// There is none: it was a hit, or was asked for and is being stored.
    #[default]
    None "",
    /// A field that says who asks, and that `sszip_cache_credentials` says nothing else of.
    Credentials "credentials",
    /// The request's method: neither GET or HEAD, nor POST.
    Method "method",
    /// A GET outside the Beacon API, without `sszip_cache_get all`.
    Get "get",
    /// A POST that is not JSON.
    RequestType "content-type",
    /// The request's body has a content coding.
    RequestCoding "content-encoding",
    /// The request is longer than `sszip_cache_max_request`.
    RequestLength "request-length",
    /// The request's body is in a file: it is longer than the host's buffer.
    BodyOnDisk "body-on-disk",
    /// It is to become something else than HTTP.
    Upgrade "upgrade",
    /// It is not strictly JSON-RPC.
    Malformed "malformed",
    /// A batch longer than `sszip_batch_max`.
    BatchLength "batch-length",
    /// The JSON-RPC method is never stored, or not with these parameters.
    RpcMethod "rpc-method",
    /// A notification: it has no answer.
    Notification "notification",
    /// `sszip_cache_bypass`.
    Bypass "bypass",
    /// Nothing tells its place from others, and it has no namespace.
    Namespace "namespace",
    /// `sszip_no_cache`.
    NoCache "no-cache",
    /// The request says `Cache-Control: no-store`.
    RequestNoStore "request-no-store",
    /// The process is short of memory, or holds as much as it may.
    Memory "memory",
    /// There is no cache in this process.
    NoMemoryCache "no-cache-memory",
    /// Others have made the answer: no node was asked.
    Local "local",
    /// What was asked for must not be called.
    Denied "denied",
    /// The status of the answer.
    Status "status",
    /// It sets a cookie.
    SetCookie "set-cookie",
    /// `Cache-Control`, `Expires` or `X-Accel-Expires` of the answer.
    CacheControl "cache-control",
    /// `no-transform`: it must not be coded.
    NoTransform "no-transform",
    /// It depends on more than can be told apart.
    Vary "vary",
    /// The media type of the answer.
    Type "type",
    /// A coding that nobody asked for.
    Coding "coding",
    /// It is longer than `sszip_cache_max_entry`.
    Length "length",
    /// Nothing says for how long it holds.
    Lifetime "lifetime",
    /// Another module has changed the body.
    Filtered "filtered",
    /// It is not whole.
    Cut "cut",
    /// A JSON-RPC error.
    Error "error",
    /// Another chain's than the namespace's, whose cache is off until it is purged.
    WrongChain "wrong-chain",
    /// A route of the Beacon API whose answers are never stored.
    Route "route",
    /// Nothing that lasts: null, pending, of another block, or not believed.
    Result "result",
    /// It is nested deeper than is read.
    Depth "depth",
    /// It contradicts itself.
    Implausible "implausible",
    /// It depends on the head, and the namespace follows a node of the other API.
    OtherApi "other-api",
    /// It becomes a part of another answer.
    Subrequest "subrequest",
    /// A part of it was asked for.
    Range "range",
    /// A condition of the client's that the cache does not judge.
    Condition "condition",
    /// The host rewrites where it points to: for each client anew.
    Redirect "redirect",
    /// A call that the node has at a route: what that gives is not stored.
    Ssz "ssz",
    /// It was to be in another format, and nothing names its fork.
    SszVersion "ssz-version",
    /// Its fork is not known, or has no such type.
    SszFork "ssz-fork",
    /// It is no value of its type.
    SszInvalid "ssz-invalid",
    /// It is too much SSZ.
    SszLength "ssz-length",
    /// It has another root than was asked for.
    SszRoot "ssz-root",
    /// As many long answers are made another format of as may be at a time.
    SszBusy "ssz-busy",
}

impl Reason {
    /// Why an answer that can't be read is not stored.
    pub fn of_answer(error: &ResponseError) -> Self {
        match error {
            ResponseError::Syntax(error) if error.fault == Fault::Depth => Reason::Depth,
            ResponseError::OutOfMemory => Reason::Memory,
            _ => Reason::Malformed,
        }
    }
}
