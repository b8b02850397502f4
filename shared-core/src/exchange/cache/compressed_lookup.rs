//! Lookup of requests with compressed bodies, by their decompressed content.

use super::lookup_request::LookupRequest;
use super::lookup_result::LookupResult;
use super::waiting::WaitingRequest;
use crate::cache::reason::Reason;
use crate::exchange::machine::Exchange;
use crate::gzip::inflate::InflateError;
use crate::jsonrpc::request::required_memory;
use crate::memory;

impl Exchange {
    /// Looks up a compressed request by its decompressed body, whose length is `cache_max_request`
    /// at most.
    pub(super) fn find_decompressed(
        &mut self,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        let cap = usize::try_from(self.config.cache.max_request).unwrap_or(usize::MAX);
        let decoded = match self.decompress_within(lookup.body, cap, None) {
            Ok(decoded) => decoded,
            Err(why) => {
                self.reason = match why {
                    InflateError::Bad => Reason::RequestCoding,
                    InflateError::TooLarge => Reason::RequestLength,
                    InflateError::OutOfMemory => Reason::Memory,
                };
                if why != InflateError::TooLarge {
                    self.looked.was_decoded = Some(false);
                }
                self.may_invalidate(lookup);
                return LookupResult::Miss;
            }
        };
        self.looked.was_decoded = Some(true);
        let found = if memory::can_allocate(required_memory(decoded.body.len())) {
            let lookup = LookupRequest {
                body: &decoded.body,
                ..*lookup
            };
            self.find_calls(&lookup, waited)
        } else {
            self.reason = Reason::Memory;
            LookupResult::Miss
        };
        let may_be_forwarded = match &found {
            LookupResult::Miss | LookupResult::HitToDecode(_) => true,
            LookupResult::Hit(_) => self.looked.update.is_some(),
            // the missing calls of a split batch are another body
            LookupResult::PartialHit(_) | LookupResult::InFlight(_) => false,
        };
        if let LookupResult::PartialHit(_) = &found {
            self.set_decoded_headers();
        } else if may_be_forwarded && self.is_sent_decoded() {
            self.forward_decoded(decoded);
        }
        found
    }
}
