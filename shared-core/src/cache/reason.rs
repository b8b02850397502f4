//! Reasons why a response did not come from the cache, or is not stored. One enum feeds
//! `Cache-Status` (its `detail`, RFC 9211, 2.8), log variables, metrics and tests.

use crate::jsonrpc::response::RpcResponseParseError;
use crate::jsonrpc::scan::SyntaxErrorKind;

named_enum! {
    /// The reason why a response was no hit or is not stored: `$sszip_cache_reason` in nginx.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    Reason
    /// No reason: the response was a hit, or was fetched and is being stored.
    #[default]
    None "",
    /// The request has a credential with the policy `bypass` (`sszip_cache_credentials`).
    Credentials "credentials",
    /// The request's method is not GET, HEAD or POST.
    Method "method",
    /// A GET outside the Beacon API, without `sszip_cache_get all`, or of the Engine API.
    Get "get",
    /// A POST that is not JSON.
    RequestType "content-type",
    /// The request's body has a content coding.
    RequestCoding "content-encoding",
    /// The request is longer than `sszip_cache_max_request`.
    RequestLength "request-length",
    /// The request's body is in a file: it is longer than the host's buffer.
    BodyOnDisk "body-on-disk",
    /// The request upgrades the connection to another protocol.
    Upgrade "upgrade",
    /// The request is not strictly JSON-RPC.
    Malformed "malformed",
    /// A batch longer than `sszip_batch_max`.
    BatchLength "batch-length",
    /// The JSON-RPC method is never stored, or not with these parameters.
    RpcMethod "rpc-method",
    /// The call is a notification, which has no response.
    Notification "notification",
    /// The request matches `sszip_cache_bypass`.
    Bypass "bypass",
    /// The request's route has no namespace and no attribute that distinguishes it from other
    /// routes.
    Namespace "namespace",
    /// The response matches `sszip_no_cache`.
    NoCache "no-cache",
    /// The request has `Cache-Control: no-store`.
    RequestNoStore "request-no-store",
    /// Memory was refused, or the memory budget is used up.
    Memory "memory",
    /// The process has no cache.
    NoMemoryCache "no-cache-memory",
    /// The host made the response itself, without a request to the node.
    Local "local",
    /// The call is denied by the policy.
    Denied "denied",
    /// The status of the response is not cacheable.
    Status "status",
    /// The response sets a cookie.
    SetCookie "set-cookie",
    /// `Cache-Control`, `Expires` or `X-Accel-Expires` of the response forbids it.
    CacheControl "cache-control",
    /// The response has `no-transform`: it must not be compressed.
    NoTransform "no-transform",
    /// The response depends on more than request headers, or on too many of them.
    Vary "vary",
    /// The media type of the response is not cached.
    Type "type",
    /// The response has a content coding that was not requested.
    Coding "coding",
    /// The response is longer than `sszip_cache_max_entry`.
    Length "length",
    /// The response has no lifetime.
    Lifetime "lifetime",
    /// Other filters have changed the body.
    Filtered "filtered",
    /// The response is truncated.
    Cut "cut",
    /// The response is a JSON-RPC error.
    Error "error",
    /// The response is of another chain than the namespace's, whose cache is off until it is
    /// purged.
    WrongChain "wrong-chain",
    /// The response is of a route of the Beacon API that is never cached.
    Route "route",
    /// The result is not cacheable: it is null, pending, of another block, or not confirmed.
    Result "result",
    /// The response is nested too deeply to be parsed.
    Depth "depth",
    /// The result contradicts itself.
    Implausible "implausible",
    /// The response depends on the head, and the namespace follows a node of the other API.
    OtherApi "other-api",
    /// The response is to a subrequest, and becomes a part of another response.
    Subrequest "subrequest",
    /// The request is for a range.
    Range "range",
    /// The request has a condition that the cache does not evaluate.
    Condition "condition",
    /// The response is a redirect whose target the host rewrites for each client.
    Redirect "redirect",
    /// The call is sent to a REST route of the node, whose response is not stored.
    Ssz "ssz",
    /// The response has to be transcoded, and nothing names its fork.
    SszVersion "ssz-version",
    /// The fork of the response is unknown, or has no such type.
    SszFork "ssz-fork",
    /// The response is no valid value of its type.
    SszInvalid "ssz-invalid",
    /// The response is too long as SSZ.
    SszLength "ssz-length",
    /// The response has another root than the requested one.
    SszRoot "ssz-root",
    /// The maximum number of long responses is being transcoded already.
    SszBusy "ssz-busy",
}

impl Reason {
    /// Returns the reason that is reported for a response that can't be parsed, and is not stored
    /// therefore.
    pub fn reason_of_parse_error(error: &RpcResponseParseError) -> Self {
        match error {
            RpcResponseParseError::Syntax(error) if error.fault == SyntaxErrorKind::Depth => {
                Reason::Depth
            }
            RpcResponseParseError::OutOfMemory => Reason::Memory,
            _ => Reason::Malformed,
        }
    }
}
