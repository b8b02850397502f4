//! The limit on the block ranges of calls, as a part of the policy.

use std::sync::Arc;

use crate::cache::chain::HeightUnit;
use crate::cache::entry::CacheEntry;
use crate::config::CallAccessPolicy;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::machine::Exchange;
use crate::jsonrpc::block_range::{RangeMethodKind, TaggedBlocks};
use crate::jsonrpc::request::JsonRpcCall;

/// Maximum number of calls in a batch whose errors name the requested range. An error takes more
/// memory than its call.
const MAX_DETAILED_ERRORS: usize = 1_000;

impl Exchange {
    /// Returns the error for a call whose block range exceeds the limit of the route; `None` if
    /// there is no limit, the method has no range, or the range is within the limit or unreadable.
    pub(super) fn block_range_denial(
        &self,
        policy: &CallAccessPolicy,
        call: &JsonRpcCall<'_>,
        lookup: &LookupRequest<'_>,
    ) -> Option<Arc<CacheEntry>> {
        let limit = policy.block_range_limit()?;
        let method = RangeMethodKind::for_method(call.method)?;
        let range = method.widest_range(call.params, self.tagged_blocks(lookup))?;
        if !limit.is_exceeded_by(range) {
            return None;
        }
        let calls = self.lookup_findings.batch_size.unwrap_or(1);
        Some(match calls > MAX_DETAILED_ERRORS {
            true => Arc::clone(limit.brief_range_error()),
            false => limit.range_error(range),
        })
    }

    /// Returns the blocks that tags name on the followed chain; no block is known if the chain is
    /// not followed, or is another one than the namespace's.
    fn tagged_blocks(&self, lookup: &LookupRequest<'_>) -> TaggedBlocks {
        let mark = self.followed_chain_mark(lookup);
        let mark = mark.filter(|mark| mark.heights == HeightUnit::Blocks && !mark.is_wrong);
        mark.map_or_else(TaggedBlocks::default, |mark| TaggedBlocks {
            // a response may have shown a newer head than the owner knows
            head: mark.head.map(|head| head.max(mark.seen)),
            last_final: mark.last_final,
        })
    }
}
