//! The response to a batch from stored entries alone, and its memory.

use std::sync::Arc;

use super::lookup_state::{bytes_to_check_strictly, BatchLookup};
use crate::cache::entry::batch::{
    assemble_batch_for_gzip_only, assemble_gzip_batch, assemble_identity_batch,
    assemble_zstd_batch, batch_coding_work, BatchCoding, BatchResponseElement,
};
use crate::cache::entry::CacheEntry;
use crate::cache::reason::Reason;
use crate::cache::CacheKey;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::{EntryReservations, SentEntryReservation};
use crate::exchange::response::ready_response::{ReadyResponse, StoredResponseToDecode};
use crate::gzip::splice::SlicedBody;
use crate::request_coding::SupportedContentCoding;

/// Bytes of a long entry in identity that are copied into the batch at most; a total below
/// this is not reserved.
const MAX_COPIED_BYTES: u64 = 64 << 10;

impl Exchange {
    /// Responds from the cache if the whole batch is stored; otherwise returns its memory.
    pub(super) fn respond_to_stored_batch(
        &mut self,
        batch: &mut BatchLookup<'_>,
        coding: BatchCoding,
        borrowed: EntryReservations,
        lookup: &LookupRequest<'_>,
    ) -> Result<LookupResult, EntryReservations> {
        let most = self.max_bytes_on_event_loop(coding.content_coding());
        let is_stored = batch.is_batch_fully_stored();
        if is_stored {
            let entries = || batch.found.iter().flatten().map(|it| &**it);
            let work = entries().map(bytes_to_check_strictly).sum::<u64>()
                + batch_coding_work(entries(), coding);
            if work > most {
                let hits = batch.batch_hit_count();
                self.record_batch_metrics(batch);
                let found = std::mem::take(&mut batch.found);
                let answers = batch.calls.iter().zip(&batch.places).zip(found);
                let answers = answers.filter_map(|((call, place), entry)| {
                    let key = place.as_ref().map(|place| place.key);
                    Some((key, entry?, call.id?.to_vec()))
                });
                self.lookup_findings.batch_hits = hits;
                return Ok(LookupResult::HitToDecode(Box::new(
                    StoredResponseToDecode::Batch {
                        answers: answers.collect(),
                        coding,
                        borrowed,
                    },
                )));
            }
        }
        // the check takes the same time for any coding
        let most = self.max_bytes_on_event_loop(None);
        let all_remain = batch.discard_damaged_entries(&self.route_config, most);
        let (Some(first), true) = (batch.stored_batch_entries().next(), is_stored && all_remain)
        else {
            return Err(borrowed);
        };
        let ids = batch.calls.iter().filter_map(|call| call.id);
        let entries = batch.found.iter().flatten().zip(ids);
        let mut elements: Vec<BatchResponseElement<'_>> = Vec::with_capacity(batch.calls.len());
        elements.extend(entries.map(|(entry, id)| BatchResponseElement::Stored(entry, id)));
        let weight = total_decodable_weight(batch.found.iter().flatten(), coding);
        let Some(body) = self.assemble_batch_body(&elements, coding) else {
            return Err(borrowed);
        };
        if total_decodable_weight(batch.found.iter().flatten(), coding) != weight {
            let places = batch.places.iter().zip(&batch.found);
            self.update_entry_weights(
                places.filter_map(|(place, entry)| Some((&place.as_ref()?.key, entry.as_ref()?))),
            );
        }
        self.lookup_findings.batch_hits = batch.batch_hit_count();
        self.record_batch_metrics(batch);
        Ok(LookupResult::Hit(self.respond_with_entry_body(
            first,
            Some(body),
            lookup,
            borrowed,
        )))
    }

    /// Reserves the memory for the response to a batch of these entries. Returns the coding of the
    /// response, or `None` if there is not enough memory for any that the client accepts.
    pub(super) fn reserve_batch_memory(
        &self,
        found: &[Option<Arc<CacheEntry>>],
        lookup: &LookupRequest<'_>,
    ) -> Option<(BatchCoding, EntryReservations)> {
        let preferred = self.batch_hit_coding(found, lookup);
        // the codings that the client also accepts
        let is_zstd = matches!(preferred, BatchCoding::Zstd(_));
        let gzip = preferred != BatchCoding::Gzip && self.client_accepts_gzip(lookup);
        let identity = is_zstd && !self.request.accept_encoding.refuses_identity();
        let ways = [
            Some(preferred),
            gzip.then_some(BatchCoding::Gzip),
            identity.then_some(BatchCoding::Identity),
        ];
        let mut ways = ways.into_iter().flatten();
        ways.find_map(|coding| Some((coding, self.reserve_batch_decode_memory(found, coding)?)))
    }

    /// Returns the coding that the client prefers for a batch of these entries. As for a single
    /// entry, it is gzip where the zstd form of an entry can't be kept.
    fn batch_hit_coding(
        &self,
        found: &[Option<Arc<CacheEntry>>],
        lookup: &LookupRequest<'_>,
    ) -> BatchCoding {
        let mut coding = self.hit_coding(None, lookup);
        if coding == Some(SupportedContentCoding::Zstd) {
            let entries = found.iter().flatten();
            let mut spliced = entries.filter(|it| it.is_compressed() && !it.may_be_inlined());
            if spliced.any(|entry| !entry.keeps_zstd_form()) && self.client_accepts_gzip(lookup) {
                coding = Some(SupportedContentCoding::Gzip);
            }
        }
        BatchCoding::from_content_coding(coding, self.route_config.zstd_level)
    }

    /// Reserves memory for the entries that are decoded or copied for a batch; `None` if there is
    /// not enough.
    fn reserve_batch_decode_memory(
        &self,
        found: &[Option<Arc<CacheEntry>>],
        coding: BatchCoding,
    ) -> Option<EntryReservations> {
        let mut borrowed = EntryReservations::default();
        let (mut copied, mut decoded): (u64, u64) = (0, 0);
        for entry in found.iter().flatten() {
            // the bytes of longer compressed entries are shared
            copied += match (coding, entry.is_compressed() && !entry.may_be_inlined()) {
                (BatchCoding::Gzip, true) => 0,
                (BatchCoding::Zstd(_), true) if entry.keeps_zstd_form() => {
                    // dropped before the next one is decoded
                    decoded = decoded.max(entry.zstd_bytes_to_make());
                    0
                }
                (BatchCoding::Gzip | BatchCoding::Zstd(_), _) => entry.response_length(b""),
                (BatchCoding::Identity, _) if !self.reserve_entry_decode(entry, &mut borrowed) => {
                    return None
                }
                (BatchCoding::Identity, _) => entry.response_length(b"").min(MAX_COPIED_BYTES),
            };
        }
        copied += decoded;
        if copied >= MAX_COPIED_BYTES {
            let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
            let copied = usize::try_from(copied).unwrap_or(usize::MAX);
            let _memory = self
                .route_config
                .process
                .budget
                .reserve_bytes(copied, limit)?;
            borrowed.push(SentEntryReservation::Assembled { _memory });
        }
        Some(borrowed)
    }

    /// Assembles a batch whose entries were set aside for a thread that serves no connections;
    /// `None` if an entry is damaged or memory is short.
    pub(in crate::exchange) fn assemble_stored_batch(
        &mut self,
        answers: &[(Option<CacheKey>, Arc<CacheEntry>, Vec<u8>)],
        coding: BatchCoding,
        lookup: &LookupRequest<'_>,
        borrowed: EntryReservations,
    ) -> Option<Box<ReadyResponse>> {
        let shared = Arc::clone(&self.route_config.process.shared);
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let mut stand = true;
        for (key, entry, _) in answers {
            let Err(reason) =
                entry.check_strictly_within_budget(&self.route_config.process.budget, limit)
            else {
                continue;
            };
            stand = false;
            if let (Some(hot), Some(key)) = (shared.hot_tier(), key) {
                if reason != Reason::Memory {
                    hot.remove_same_entry(key, entry);
                }
            }
        }
        if !stand {
            return None;
        }
        let elements: Vec<BatchResponseElement<'_>> = answers
            .iter()
            .map(|(_, entry, id)| BatchResponseElement::Stored(entry, id))
            .collect();
        let body = self.assemble_batch_body(&elements, coding)?;
        self.update_entry_weights(
            answers
                .iter()
                .filter_map(|(key, entry, _)| Some((key.as_ref()?, entry))),
        );
        // the error of a denied call has no key
        let (_, first, _) = answers.iter().find(|(key, _, _)| key.is_some())?;
        Some(self.respond_with_entry_body(first, Some(body), lookup, borrowed))
    }

    /// Updates the weights of entries in the hot tier, as some may have another form from now on.
    pub(super) fn update_entry_weights<'a>(
        &self,
        entries: impl Iterator<Item = (&'a CacheKey, &'a Arc<CacheEntry>)>,
    ) {
        if let Some(hot) = self.route_config.process.shared.hot_tier() {
            entries.for_each(|(key, entry)| hot.update_entry_weight(key, entry));
        }
    }

    /// Assembles the elements of a batch into one body in this coding or, where memory for zstd is
    /// refused, in another one that the client accepts; `None` if that fails.
    pub(in crate::exchange) fn assemble_batch_body(
        &self,
        elements: &[BatchResponseElement<'_>],
        coding: BatchCoding,
    ) -> Option<SlicedBody> {
        let accept = &self.request.accept_encoding;
        let (gate, refuses_identity) = (self.compression_gate(), accept.refuses_identity());
        match coding {
            BatchCoding::Identity => assemble_identity_batch(elements),
            BatchCoding::Gzip if refuses_identity => assemble_batch_for_gzip_only(elements, gate),
            BatchCoding::Gzip => assemble_gzip_batch(elements, gate),
            BatchCoding::Zstd(level) => {
                let body = assemble_zstd_batch(elements, gate, level, refuses_identity);
                let allows_gzip = accept.allows_coding(SupportedContentCoding::Gzip);
                body.or_else(|| match (allows_gzip, refuses_identity) {
                    (true, _) => self.assemble_batch_body(elements, BatchCoding::Gzip),
                    (false, false) => self.assemble_batch_body(elements, BatchCoding::Identity),
                    (false, true) => None,
                })
            }
        }
    }
}

/// Total weight of the entries to which a batch may add another form: it grows if it does.
pub(super) fn total_decodable_weight<'a>(
    entries: impl Iterator<Item = &'a Arc<CacheEntry>>,
    coding: BatchCoding,
) -> u64 {
    entries
        .filter(|entry| match coding {
            BatchCoding::Gzip => entry.may_be_inlined(),
            BatchCoding::Identity | BatchCoding::Zstd(_) => entry.is_compressed(),
        })
        .map(|entry| entry.memory_weight())
        .sum()
}
