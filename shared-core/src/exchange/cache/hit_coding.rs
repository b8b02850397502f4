//! The content coding of a response from the cache, and its body in that coding.

use crate::cache::entry::CacheEntry;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::{EntryReservations, SentEntryReservation};
use crate::gzip::splice::SlicedBody;
use crate::request_coding::SupportedContentCoding;

impl Exchange {
    /// Whether the client accepts the compressed form of the entry.
    pub(super) fn can_send_compressed_entry(
        &self,
        entry: &CacheEntry,
        lookup: &LookupRequest<'_>,
    ) -> bool {
        entry.is_compressed() && self.client_accepts_gzip(lookup)
    }

    /// Whether the host and the client allow a gzip body, preferred or not.
    pub(in crate::exchange) fn client_accepts_gzip(&self, lookup: &LookupRequest<'_>) -> bool {
        lookup.coding_allowed
            && !self.request.no_transform
            && self
                .request
                .accept_encoding
                .allows_coding(SupportedContentCoding::Gzip)
    }

    /// Returns the content coding of a response from the cache, `None` being identity: the client's
    /// preference, if the host allows a coding. A client that also accepts gzip receives it from an
    /// `entry` whose zstd form can't be kept, which would be made for each response.
    pub(in crate::exchange) fn hit_coding(
        &self,
        entry: Option<&CacheEntry>,
        lookup: &LookupRequest<'_>,
    ) -> Option<SupportedContentCoding> {
        if !lookup.coding_allowed || self.request.no_transform {
            return None;
        }
        let accept = &self.request.accept_encoding;
        let gzip = SupportedContentCoding::Gzip;
        let is_kept = || entry.is_none_or(CacheEntry::keeps_zstd_form);
        match self.route_config.preferred_coding(accept)? {
            SupportedContentCoding::Zstd if accept.allows_coding(gzip) && !is_kept() => Some(gzip),
            coding => Some(coding),
        }
    }

    /// Returns the content coding of a response that is assembled on the event loop in any case:
    /// gzip, where zstd would take too long for that and the client accepts gzip.
    pub(in crate::exchange) fn hit_coding_on_event_loop(
        &self,
        entry: &CacheEntry,
        lookup: &LookupRequest<'_>,
    ) -> Option<SupportedContentCoding> {
        let coding = self.hit_coding(Some(entry), lookup);
        let is_long = coding == Some(SupportedContentCoding::Zstd)
            && entry.zstd_bytes_to_make() > self.max_bytes_on_event_loop(coding);
        match is_long && self.client_accepts_gzip(lookup) {
            true => Some(SupportedContentCoding::Gzip),
            false => coding,
        }
    }

    /// Returns the content coding that a response with the entry's body has, for a response without
    /// the body.
    pub(in crate::exchange) fn coding_of_absent_body(
        &self,
        entry: &CacheEntry,
        lookup: &LookupRequest<'_>,
    ) -> Option<SupportedContentCoding> {
        let coding = self.hit_coding(Some(entry), lookup);
        coding.filter(|_| entry.is_compressed())
    }

    /// Maximum number of bytes that are decoded, or compressed again, on the event loop for a
    /// response in this coding.
    pub(in crate::exchange) fn max_bytes_on_event_loop(
        &self,
        coding: Option<SupportedContentCoding>,
    ) -> u64 {
        let limit = |coding| {
            let compressor = self.route_config.body_compressor(coding);
            compressor.off_loop_min_length() as u64
        };
        let gzip = limit(SupportedContentCoding::Gzip);
        match coding {
            Some(SupportedContentCoding::Zstd) => gzip.min(limit(SupportedContentCoding::Zstd)),
            Some(SupportedContentCoding::Gzip) | None => gzip,
        }
    }

    /// Assembles the response in zstd or, where memory for it is refused, in another coding that the
    /// client accepts.
    pub(super) fn assemble_zstd_hit(
        &self,
        entry: &CacheEntry,
        id: &[u8],
        lookup: &LookupRequest<'_>,
        borrowed: &mut EntryReservations,
    ) -> Option<SlicedBody> {
        let zstd = SupportedContentCoding::Zstd;
        if !is_payload_decoded_for(entry, Some(zstd)) || self.reserve_entry_decode(entry, borrowed)
        {
            if let Some(body) = self.encode_hit_body(entry, id, zstd) {
                if borrowed.is_empty() || self.reserve_zstd_body(entry, &body, borrowed) {
                    return Some(body);
                }
            }
        }
        if self.client_accepts_gzip(lookup) {
            // the stored form needs no memory but its own
            borrowed.clear();
            self.encode_hit_body(entry, id, SupportedContentCoding::Gzip)
        } else if self.request.accept_encoding.refuses_identity() {
            None
        } else {
            let is_reserved = self.reserve_entry_decode(entry, borrowed);
            is_reserved
                .then(|| entry.response_for_identity_client(id))
                .flatten()
        }
    }

    /// Replaces the reservation for the decoded payload, which was dropped, by one for the body,
    /// unless the body shares the zstd form that the entry keeps. Returns `false` if there is not
    /// enough memory.
    fn reserve_zstd_body(
        &self,
        entry: &CacheEntry,
        body: &SlicedBody,
        borrowed: &mut EntryReservations,
    ) -> bool {
        borrowed.clear();
        if entry.keeps_zstd_form() {
            return true;
        }
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let length = usize::try_from(body.byte_length()).unwrap_or(usize::MAX);
        let budget = &self.route_config.process.budget;
        let Some(memory) = budget.reserve_bytes(length, limit) else {
            return false;
        };
        borrowed.push(SentEntryReservation::Assembled { _memory: memory });
        true
    }

    /// Assembles the response in a content coding that the client accepts. `None` if memory is
    /// refused.
    pub(super) fn encode_hit_body(
        &self,
        entry: &CacheEntry,
        id: &[u8],
        coding: SupportedContentCoding,
    ) -> Option<SlicedBody> {
        let refuses_identity = self.request.accept_encoding.refuses_identity();
        entry.response_for_coding(id, coding, self.route_config.zstd_level, refuses_identity)
    }
}

/// Whether a response in this coding is made from the decoded payload of the entry.
pub(super) fn is_payload_decoded_for(
    entry: &CacheEntry,
    coding: Option<SupportedContentCoding>,
) -> bool {
    match coding {
        None => true,
        Some(SupportedContentCoding::Gzip) => false,
        Some(SupportedContentCoding::Zstd) => entry.zstd_bytes_to_make() > 0,
    }
}
