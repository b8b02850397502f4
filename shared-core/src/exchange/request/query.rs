//! HTTP QUERY (RFC 10008): a call in a request that clients and caches may repeat.
//!
//! The request is handled as the POST of the same body, and the node receives that POST. The further
//! rules of the method are checked here: the head must declare JSON, and the calls must change
//! nothing.

use crate::exchange::cache::lookup::request::BodyLength;
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::Exchange;
use crate::exchange::request::unverifiable::UnverifiableRequestReason;
use crate::jsonrpc::request::{JsonRpcCall, JsonRpcRequestBody};
use crate::jsonrpc::safe_methods::is_safe_method;
use crate::negotiate::query_content::QueryContentType;

/// The name of the pseudo-header for a request's method (RFC 9113, 8.3.1), in an edit that replaces
/// the method.
const METHOD_EDIT: &str = ":method";

/// Headers with conditions on the stored response, and ranges of it: the node must send the whole
/// response.
const CONDITIONAL_HEADERS: [&str; 6] = [
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Range",
];

impl Exchange {
    /// Records that the request is a QUERY, and edits the upstream request: it is a POST without
    /// conditions.
    pub(in crate::exchange) fn prepare_query(&mut self, content_type: QueryContentType) {
        self.request.query = Some(content_type);
        self.upstream_edits
            .push(HeadEdit::set_header(METHOD_EDIT, &b"POST"[..]));
        self.upstream_edits
            .extend(CONDITIONAL_HEADERS.map(HeadEdit::remove_header));
    }

    /// Returns the reason to reject a QUERY with content of this length, if its head alone gives
    /// one.
    pub(in crate::exchange) fn query_rejection_by_head(
        &self,
        length: BodyLength,
    ) -> Option<UnverifiableRequestReason> {
        match self.request.query? {
            QueryContentType::Missing => Some(UnverifiableRequestReason::UntypedQuery),
            QueryContentType::Other => Some(UnverifiableRequestReason::QueryType),
            // no content is no JSON
            QueryContentType::Json => {
                (length == BodyLength::Known(0)).then_some(UnverifiableRequestReason::Syntax)
            }
        }
    }

    /// Whether the request is a QUERY with a call that may change something.
    pub(in crate::exchange) fn is_unsafe_query(&self, body: &JsonRpcRequestBody<'_>) -> bool {
        let is_safe = |call: &JsonRpcCall<'_>| {
            let row = self
                .route_config
                .cache
                .valid
                .effective_method_row(call.method);
            is_safe_method(call.method, row)
        };
        self.request.query.is_some()
            && !match body {
                JsonRpcRequestBody::Single(call) => is_safe(call),
                JsonRpcRequestBody::Batch(calls) => calls.iter().all(is_safe),
            }
    }
}
