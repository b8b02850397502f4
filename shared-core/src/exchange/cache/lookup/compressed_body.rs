//! Lookup of requests with compressed bodies, by their decompressed content.

use crate::cache::reason::Reason;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::waiting::WaitingRequest;
use crate::exchange::machine::Exchange;
use crate::gzip::inflate::InflateError;
use crate::jsonrpc::request::required_request_memory;
use crate::memory;

impl Exchange {
    /// Looks up a compressed request by its decompressed body, whose length is `cache_max_request`
    /// at most.
    pub(in crate::exchange::cache) fn lookup_decompressed_request(
        &mut self,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        let cap = usize::try_from(self.route_config.cache.max_request).unwrap_or(usize::MAX);
        let decoded = match self.decompress_request_within(lookup.body, cap, None) {
            Ok(decoded) => decoded,
            Err(why) => {
                self.cache_reason = match why {
                    InflateError::Bad => Reason::RequestCoding,
                    InflateError::TooLarge => Reason::RequestLength,
                    InflateError::OutOfMemory => Reason::Memory,
                };
                if why != InflateError::TooLarge {
                    self.lookup_findings.was_decoded = Some(false);
                }
                self.record_invalidating_request(lookup);
                return LookupResult::Miss;
            }
        };
        self.lookup_findings.was_decoded = Some(true);
        let found = if memory::can_allocate_now(required_request_memory(decoded.body.len())) {
            let lookup = LookupRequest {
                body: &decoded.body,
                ..*lookup
            };
            self.lookup_call_or_batch(&lookup, waited)
        } else {
            self.cache_reason = Reason::Memory;
            LookupResult::Miss
        };
        let may_be_forwarded = match &found {
            LookupResult::Miss | LookupResult::HitToDecode(_) => true,
            LookupResult::Hit(_) => self.lookup_findings.repeats_request(),
            // the missing calls of a split batch are another body
            LookupResult::PartialHit(_)
            | LookupResult::AssemblyForBatch(_)
            | LookupResult::InFlight(_) => false,
        };
        if let LookupResult::PartialHit(_) = &found {
            self.remove_request_coding();
        } else if may_be_forwarded && self.is_request_sent_decoded() {
            self.forward_decoded_request(decoded);
        }
        found
    }
}
