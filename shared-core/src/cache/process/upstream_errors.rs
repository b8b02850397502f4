//! Kinds of failed upstream requests and JSON-RPC errors.

use crate::cache::freshness::is_revert_error;
use crate::cache::use_stale::UpstreamFailure;
use crate::jsonrpc::response::find_object_member;

named_enum! {
    /// The kind under which a failed upstream request or a JSON-RPC error is counted in the
    /// metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    UpstreamErrorKind
    /// No connection to the node could be opened.
    Connect "connect",
    /// The node did not answer in time.
    Timeout "timeout",
    /// The connection ended before the response head.
    Reset "reset",
    /// The response is not HTTP.
    InvalidHeader "invalid-header",
    /// The response body ended before its length was reached.
    Cut "cut",
    /// The node answered with status 500 to 599.
    Status "http-5xx",
    /// JSON-RPC -32700, -32600, -32602 and -32603: the request is invalid, or the node failed.
    RpcInvalid "rpc-invalid",
    /// JSON-RPC -32601: the node does not know the method.
    RpcMethodNotFound "rpc-method-not-found",
    /// JSON-RPC -32000 to -32099, unless the message describes a revert.
    RpcServer "rpc-server",
    /// JSON-RPC 3, or a message that describes a revert.
    RpcRevert "rpc-revert",
    /// Any other JSON-RPC error.
    RpcOther "rpc-other",
}

/// Number of kinds.
pub const ERROR_KINDS: usize = UpstreamErrorKind::ALL.len();

impl UpstreamErrorKind {
    /// Returns the kind under which a failed upstream request is counted, or `None` for a status
    /// below 500 or a local reply.
    pub fn error_kind_of_failure(failure: UpstreamFailure) -> Option<Self> {
        match failure {
            UpstreamFailure::Connect => Some(Self::Connect),
            UpstreamFailure::Error => Some(Self::Reset),
            UpstreamFailure::Timeout => Some(Self::Timeout),
            UpstreamFailure::InvalidHeader => Some(Self::InvalidHeader),
            UpstreamFailure::Status(500..) => Some(Self::Status),
            UpstreamFailure::Status(_) | UpstreamFailure::Local => None,
        }
    }

    /// Returns the kind under which a JSON-RPC error object is counted, by its code and message.
    pub fn kind_of_rpc_error(error: &[u8]) -> Self {
        if is_revert_error(error) {
            return Self::RpcRevert;
        }
        let code =
            find_object_member(error, "code").and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| code.parse::<i64>().ok()) {
            Some(-32601) => Self::RpcMethodNotFound,
            Some(-32700 | -32603..=-32600) => Self::RpcInvalid,
            Some(-32099..=-32000) => Self::RpcServer,
            _ => Self::RpcOther,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UpstreamErrorKind;

    #[test]
    fn rpc_errors_are_classified_by_code_and_message() {
        for (error, expected) in [
            (
                r#"{"code":-32700,"message":""}"#,
                UpstreamErrorKind::RpcInvalid,
            ),
            (r#"{"code":-32600}"#, UpstreamErrorKind::RpcInvalid),
            (r#"{"code":-32601}"#, UpstreamErrorKind::RpcMethodNotFound),
            (r#"{"code":-32602}"#, UpstreamErrorKind::RpcInvalid),
            (r#"{"code":-32603}"#, UpstreamErrorKind::RpcInvalid),
            (r#"{"code":-32604}"#, UpstreamErrorKind::RpcOther),
            (
                r#"{"code":-32000,"message":"header not found"}"#,
                UpstreamErrorKind::RpcServer,
            ),
            (r#"{"code":-32099}"#, UpstreamErrorKind::RpcServer),
            (r#"{"code":-32100}"#, UpstreamErrorKind::RpcOther),
            (
                r#"{"message":"execution reverted","code":-32000}"#,
                UpstreamErrorKind::RpcRevert,
            ),
            (r#"{"code":3,"data":"0x"}"#, UpstreamErrorKind::RpcRevert),
            (r#"{"code":429}"#, UpstreamErrorKind::RpcOther),
            (r#"{"code":"-32601"}"#, UpstreamErrorKind::RpcOther),
            ("{}", UpstreamErrorKind::RpcOther),
        ] {
            let kind = UpstreamErrorKind::kind_of_rpc_error(error.as_bytes());
            assert_eq!(kind, expected, "{error}");
        }
    }
}
