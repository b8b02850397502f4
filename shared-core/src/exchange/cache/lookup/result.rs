//! Results of a lookup.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cache::entry::CacheEntry;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::cache::use_stale::UpstreamFailure;
use crate::cache::CacheKey;
use crate::exchange::cache::batch::log_split_state::BatchLogSplits;
use crate::exchange::cache::batch::split::SplitBatch;
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::cache::logs::assembly_input::LogAssembly;
use crate::exchange::cache::logs::search_state::LogsSearch;
use crate::exchange::cache::waiting::WaitingRequest;
use crate::exchange::request::unverifiable::UnverifiableRequestReason;
use crate::exchange::response::length_limit::CallResponseLengthLimit;
use crate::exchange::response::ready_response::{ReadyResponse, StoredResponseToDecode};
use crate::jsonrpc::concurrency_limit::ConcurrencyPermit;
use crate::jsonrpc::request::JsonRpcCall;
use crate::metrics::BatchCallOutcome;

/// The outcome of a lookup: a miss, a hit, a partly stored batch, an assembly for a batch or a wait,
/// with the data of the next state.
#[derive(Debug)]
pub(in crate::exchange) enum LookupResult {
    Miss,
    Hit(Box<ReadyResponse>),
    HitToDecode(Box<StoredResponseToDecode>),
    /// A job assembles the response to a call of a batch, which is looked up again then.
    AssemblyForBatch(Box<LogAssembly>),
    PartialHit(Box<SplitBatch>),
    InFlight(Box<WaitingRequest>),
}

/// The facts that the policy and the lookup have found about an exchange, and that its later states
/// need.
#[derive(Debug, Default)]
pub(in crate::exchange) struct LookupFindings {
    /// Time of the lookup, in milliseconds; the next members are properties that the host set.
    pub(in crate::exchange) at: u64,
    pub(in crate::exchange) coding_allowed: bool,
    pub(in crate::exchange) host_writes_vary: bool,
    pub(in crate::exchange) forwards_codings: bool,
    pub(in crate::exchange) rpc_method: Vec<u8>,
    /// Methods of a batch, separated by commas.
    pub(in crate::exchange) rpc_methods: Vec<u8>,
    /// For each call of a request under a policy its error, if the call is denied.
    pub(in crate::exchange) denial_errors: Vec<Option<Arc<CacheEntry>>>,
    /// Reason why the request is rejected for its head.
    pub(in crate::exchange) head_rejection: Option<UnverifiableRequestReason>,
    /// Permits of limited methods, kept until the node has responded.
    pub(in crate::exchange) permits: Vec<ConcurrencyPermit>,
    /// Age of the entry that is sent, in milliseconds.
    pub(in crate::exchange) age: Option<u64>,
    /// Response limit of a single call.
    pub(in crate::exchange) response_limit: Option<CallResponseLengthLimit>,
    /// Number of denied calls.
    pub(in crate::exchange) denied: usize,
    /// A batch with denied calls, split, and the body of its allowed calls, for a lookup without
    /// other entries.
    pub(in crate::exchange) allowed_part: Option<(Box<SplitBatch>, Vec<u8>)>,
    /// Id of a call whose result is sent as SSZ, as it is written in the request.
    pub(in crate::exchange) rpc_id: Vec<u8>,
    /// The cache does not read the request's body.
    pub(in crate::exchange) cache_skips_body: bool,
    /// Whether the encoded body could be decoded; `None` if it is not encoded.
    pub(in crate::exchange) was_decoded: Option<bool>,
    /// The request was looked up again because the vary headers changed while it waited.
    pub(in crate::exchange) is_rekeyed: bool,
    pub(in crate::exchange) batch_size: Option<usize>,
    /// Number of calls of the batch whose responses came from the cache.
    pub(in crate::exchange) batch_hits: usize,
    /// The calls of the batch, for the metrics.
    pub(in crate::exchange) batch_calls: Vec<BatchCallOutcome>,
    /// Key of a single response.
    pub(in crate::exchange) key: Option<CacheKey>,
    /// Reason why the entry that was found could not be sent.
    pub(in crate::exchange) unusable_reason: Option<Reason>,
    /// Cache status of a stored response that is sent other than as a hit.
    pub(in crate::exchange) served_status: Option<CacheStatus>,
    /// The node must respond, because the request's headers may select another chain.
    pub(in crate::exchange) is_unverified: bool,
    /// Stale entry that may be sent in place of the node's response.
    pub(in crate::exchange) stale_entry: Option<StaleEntry>,
    /// Failure of the node that the host has reported.
    pub(in crate::exchange) upstream_failure: Option<HostReportedUpstreamFailure>,
    /// Status of the node's response that a stale entry replaces.
    pub(in crate::exchange) forward_status: Option<u16>,
    /// The invalidation that this request causes if it succeeds.
    pub(in crate::exchange) invalidating_request: Option<Box<InvalidatingRequest>>,
    /// Background requests that the lookup needs, in the order in which the host sends them.
    pub(in crate::exchange) background_updates: VecDeque<BackgroundUpdate>,
    /// The search for the entries of a call for logs, while the request waits for them. When it is
    /// dropped, the flight of the call is handed over.
    pub(in crate::exchange) logs_search: Option<Box<LogsSearch>>,
    /// The wide calls for logs of a batch, until it is forwarded or answered.
    pub(in crate::exchange) batch_logs: Option<Box<BatchLogSplits>>,
}

/// The fill of a background request by another exchange: a background update, a hit verification,
/// or a part of the response that this lookup waits for.
#[derive(Debug)]
pub(in crate::exchange) struct BackgroundUpdate {
    pub(in crate::exchange) fill: Box<CacheFill>,
    /// Call that the node receives in place of the client's request; `None`: the request is
    /// repeated.
    pub(in crate::exchange) call: Option<BackgroundCall>,
}

/// The call of a background request whose body is not the client's: a part of the client's request,
/// or derived from it. The client's other headers apply to it.
#[derive(Debug)]
pub(in crate::exchange) struct BackgroundCall {
    /// Complete body of the request to the node, without a content coding.
    pub(in crate::exchange) body: Vec<u8>,
    pub(in crate::exchange) method: Vec<u8>,
    pub(in crate::exchange) key: CacheKey,
}

/// Maximum number of bytes of the method names of a batch.
const MAX_METHOD_NAMES: usize = 512;

impl LookupFindings {
    /// Whether the client's request is repeated in the background, with its own body.
    pub(in crate::exchange) fn repeats_request(&self) -> bool {
        self.background_updates.iter().any(|it| it.call.is_none())
    }

    /// Records the different methods of a batch for logs, separated by commas. `*` stands for the
    /// rest above [`MAX_METHOD_NAMES`] bytes.
    pub(in crate::exchange) fn record_batch_method_names(&mut self, calls: &[JsonRpcCall<'_>]) {
        if !self.rpc_methods.is_empty() {
            return;
        }
        let mut named: Vec<&[u8]> = Vec::with_capacity(4);
        for call in calls {
            let method = call.method;
            // adjacent calls of one method are the usual case
            if named.last() == Some(&method) || named.contains(&method) {
                continue;
            }
            let is_full = self.rpc_methods.len() + method.len() >= MAX_METHOD_NAMES;
            let name = if is_full { b"*" } else { method };
            if !named.is_empty() {
                self.rpc_methods.push(b',');
            }
            self.rpc_methods.extend_from_slice(name);
            if is_full {
                break;
            }
            named.push(method);
        }
    }
}

/// A stale entry that may be sent in place of the node's response.
#[derive(Debug)]
pub(in crate::exchange) struct StaleEntry {
    pub(in crate::exchange) key: CacheKey,
    pub(in crate::exchange) entry: Arc<CacheEntry>,
    /// Id of the call under which the entry is sent; `None` for a resource.
    pub(in crate::exchange) id: Option<Vec<u8>>,
    /// The last purge that was known when the entry was found.
    pub(in crate::exchange) generation: u64,
    /// The node received a conditional request for the entry.
    pub(in crate::exchange) is_conditional: bool,
}

impl StaleEntry {
    /// Returns the stale entry for the exchange of a background update.
    pub(in crate::exchange) fn clone_for_update(&self) -> Self {
        Self {
            key: self.key,
            entry: Arc::clone(&self.entry),
            id: self.id.clone(),
            generation: self.generation,
            is_conditional: false,
        }
    }
}

/// A failure of the upstream that the host has reported, and its time.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct HostReportedUpstreamFailure {
    pub(in crate::exchange) failure: UpstreamFailure,
    /// Time of the report, in milliseconds of the lookup clock.
    pub(in crate::exchange) now: u64,
    /// A stale entry is sent instead.
    pub(in crate::exchange) serves_stale: bool,
}

/// A request that invalidates the entries of its target if it succeeds, such as a PUT or DELETE.
#[derive(Debug)]
pub(in crate::exchange) struct InvalidatingRequest {
    /// Scope in which the target of the request is invalidated.
    pub(in crate::exchange) namespace: Vec<u8>,
    /// Host to which the request was sent.
    pub(in crate::exchange) host: Vec<u8>,
}
