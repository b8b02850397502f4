//! Responses from the cache.

use std::sync::Arc;

use crate::cache::entry::{CacheEntry, IdentityReservationResult};
use crate::cache::process::negative_cache::UncacheableSharing;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::cache::CacheKey;
use crate::exchange::cache::hit_coding::is_payload_decoded_for;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::only_if_cached::append_key_parameter;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::{is_byte_dependent_header, HeadEdit};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::{EntryReservations, SentEntryReservation};
use crate::exchange::response::ready_response::{ReadyResponse, StoredResponseToDecode};
use crate::gzip::splice::SlicedBody;
use crate::memory;
use crate::negotiate::etag::weaken_entity_tag;
use crate::negotiate::vary;
use crate::request_coding::SupportedContentCoding;
use crate::response_mode::ResponseMode;

impl Exchange {
    /// Responds with an entry that was found under `key` or was shared, if it is usable. Where
    /// memory is too short to decode it, the node's response is streamed, and the entry stays as
    /// it is.
    pub(in crate::exchange) fn respond_from_entry(
        &mut self,
        key: &CacheKey,
        entry: Arc<CacheEntry>,
        id: Option<&[u8]>,
        lookup: &LookupRequest<'_>,
    ) -> Option<LookupResult> {
        if self.lookup_findings.is_unverified {
            self.learn_chain_identity(&entry, lookup);
            return None;
        }
        if self.exceeds_response_limit(&entry, id) {
            return self.respond_with_limit_error().map(LookupResult::Hit);
        }
        let is_result = id.is_some() && self.wants_ssz_result();
        let coding = self.hit_coding(Some(&entry), lookup).filter(|_| !is_result);
        let is_to_decode = is_payload_decoded_for(&entry, coding)
            && (id.is_some() || self.needs_entry_body(&entry));
        let may_be_gzip = !is_result && self.can_send_compressed_entry(&entry, lookup);
        let mut borrowed = EntryReservations::default();
        if is_to_decode && !self.reserve_entry_decode(&entry, &mut borrowed) && !may_be_gzip {
            self.cache_reason = Reason::Memory;
            return Some(LookupResult::Miss);
        }
        if self.needs_decode_job(&entry, id, lookup) {
            let id = id.map(<[u8]>::to_vec);
            let decoding = StoredResponseToDecode::One(*key, entry, id, borrowed);
            return Some(LookupResult::HitToDecode(Box::new(decoding)));
        }
        self.respond_with_checked_entry(key, &entry, id, lookup, borrowed)
            .map(LookupResult::Hit)
    }

    /// Responds with an entry after its strict check; an entry that fails it is removed.
    fn respond_with_checked_entry(
        &mut self,
        key: &CacheKey,
        entry: &Arc<CacheEntry>,
        id: Option<&[u8]>,
        lookup: &LookupRequest<'_>,
        borrowed: EntryReservations,
    ) -> Option<Box<ReadyResponse>> {
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let checked = entry.check_strictly_within_budget(&self.route_config.process.budget, limit);
        if let Err(reason) = checked {
            self.remove_damaged_entry(key, entry, reason, lookup.now);
            return None;
        }
        let weight = entry.memory_weight();
        let coding = self.hit_coding(Some(entry), lookup);
        let answer = self.respond_with_entry(entry, id, coding, lookup, borrowed);
        if let Some(hot) = self.route_config.process.shared.hot_tier() {
            if entry.memory_weight() != weight {
                // the entry has another form from now on
                hot.update_entry_weight(key, entry);
            }
        }
        answer
    }

    /// Removes an entry that failed its strict check, here and at the owner, unless the check only
    /// lacked memory.
    pub(super) fn remove_damaged_entry(
        &mut self,
        key: &CacheKey,
        entry: &Arc<CacheEntry>,
        reason: Reason,
        now: u64,
    ) {
        let shared = &self.route_config.process.shared;
        if let Some(hot) = shared.hot_tier() {
            hot.remove_same_entry(key, entry);
        }
        self.lookup_findings.unusable_reason = Some(reason);
        if reason == Reason::Memory {
            return;
        }
        let failed = &shared.strict_check_keys;
        failed.advance_clock_to(now);
        failed.remember_uncacheable_key(key, UncacheableSharing::RequesterOnly);
        if let Some(owner) = shared.owner_client() {
            let query = format!("key={}", const_hex::encode(key));
            // the result of the purge is ignored
            let _ = owner.purge_at_owner(query.as_bytes(), None, WaitingRequestId::NONE, now);
        }
    }

    /// Whether preparing the response takes too long for an event loop.
    fn needs_decode_job(
        &self,
        entry: &CacheEntry,
        id: Option<&[u8]>,
        lookup: &LookupRequest<'_>,
    ) -> bool {
        let coding = self.hit_coding(Some(entry), lookup);
        let most = self.max_bytes_on_event_loop(coding);
        let decoded = match coding {
            None => entry.identity_bytes_to_decode(),
            Some(SupportedContentCoding::Gzip) => 0,
            Some(SupportedContentCoding::Zstd) => entry.zstd_bytes_to_make(),
        };
        let decodes = decoded > most && (id.is_some() || self.needs_entry_body(entry));
        let is_read = id.is_some() && self.wants_ssz_result() || entry.needs_strict_check();
        decodes || is_read && entry.response_length(b"") > most
    }

    /// Decodes an entry off the event loop. If that fails, the request is a miss and is sent to
    /// the node. A batch for which a response is assembled is looked up again.
    pub(in crate::exchange) fn decode_stored_response(&mut self) -> Result<(), HostMisuse> {
        let ExchangePhase::Decoding(decoding) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Compressed));
        };
        let decoding = std::mem::take(&mut **decoding);
        let lookup = self.rebuild_lookup_request();
        let mut unused_fill = None;
        let answer = match decoding {
            StoredResponseToDecode::Logs(assembly) => {
                match self.assemble_logs_response(*assembly, &lookup) {
                    Ok(answer) => Some(answer),
                    Err(fill) => {
                        unused_fill = fill;
                        None
                    }
                }
            }
            StoredResponseToDecode::LogsOfBatch(assembly) => {
                return self.assemble_logs_off_loop(*assembly);
            }
            _ if memory::is_memory_short() => None,
            StoredResponseToDecode::One(key, entry, id, borrowed) => {
                self.respond_with_checked_entry(&key, &entry, id.as_deref(), &lookup, borrowed)
            }
            StoredResponseToDecode::Batch {
                answers,
                coding,
                borrowed,
            } => self.assemble_stored_batch(&answers, coding, &lookup, borrowed),
            StoredResponseToDecode::Running => None,
        };
        let Some(answer) = answer else {
            self.reset_failed_lookup();
            if unused_fill.is_some() {
                // it stores the node's response
                self.storing.fill = unused_fill;
                self.cache_status = CacheStatus::Miss;
                self.cache_reason = Reason::None;
            }
            if let Some(reason) = self.lookup_findings.unusable_reason.take() {
                self.cache_reason = reason;
            }
            if self.answers_only_from_cache() {
                return self.respond_not_cached().map(|_| ());
            }
            self.apply_transition(ExchangeEvent::Miss, |_| ExchangePhase::AwaitingHead)?;
            return self.forward_allowed_calls().map(|_| ());
        };
        self.complete_query_head(false);
        self.apply_transition(ExchangeEvent::Hit, |_| ExchangePhase::Ready(answer))
    }

    /// Returns the lookup request with the properties that the host set at the lookup.
    pub(in crate::exchange) fn rebuild_lookup_request(&self) -> LookupRequest<'static> {
        LookupRequest {
            now: self.lookup_findings.at,
            coding_allowed: self.lookup_findings.coding_allowed,
            host_writes_vary: self.lookup_findings.host_writes_vary,
            ..LookupRequest::default()
        }
    }

    /// Whether the host hides the header from clients.
    pub(in crate::exchange) fn hides_response_header(&self, name: &[u8]) -> bool {
        let mut hidden = self.route_config.hidden.iter();
        hidden.any(|hidden| hidden.eq_ignore_ascii_case(name))
    }

    /// Creates the response from an entry under an id, or (`None`) without one, in `coding` if there
    /// is enough memory. `None` if the entry can't be encoded for this client.
    pub(in crate::exchange) fn respond_with_entry(
        &mut self,
        entry: &CacheEntry,
        id: Option<&[u8]>,
        coding: Option<SupportedContentCoding>,
        lookup: &LookupRequest<'_>,
        mut borrowed: EntryReservations,
    ) -> Option<Box<ReadyResponse>> {
        if id.is_none() && !self.needs_entry_body(entry) {
            return Some(self.respond_with_entry_body(entry, None, lookup, borrowed));
        }
        if let Some(id) = id.filter(|_| self.wants_ssz_result()) {
            return self.respond_with_ssz_result(entry, id, lookup, borrowed);
        }
        let id = id.unwrap_or_default();
        let body = match coding {
            Some(SupportedContentCoding::Gzip) => {
                self.encode_hit_body(entry, id, SupportedContentCoding::Gzip)
            }
            Some(SupportedContentCoding::Zstd) => {
                self.assemble_zstd_hit(entry, id, lookup, &mut borrowed)
            }
            None if self.reserve_entry_decode(entry, &mut borrowed) => {
                entry.response_for_identity_client(id)
            }
            None if self.can_send_compressed_entry(entry, lookup) => {
                entry.response_for_gzip_client(id)
            }
            None => None,
        };
        Some(self.respond_with_entry_body(entry, Some(body?), lookup, borrowed))
    }

    /// Reserves the memory for the decoded form of an entry. Returns `false` if there is not
    /// enough.
    pub(in crate::exchange) fn reserve_entry_decode(
        &self,
        entry: &CacheEntry,
        borrowed: &mut EntryReservations,
    ) -> bool {
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        match entry.reserve_identity_bytes(&self.route_config.process.budget, limit) {
            IdentityReservationResult::NotReserved => true,
            IdentityReservationResult::Reserved(decoded) => {
                let is_it = |loan: &SentEntryReservation| match loan {
                    SentEntryReservation::DecodedEntry(other) => Arc::ptr_eq(other, &decoded),
                    SentEntryReservation::Assembled { .. } => false,
                };
                if !borrowed.iter().any(is_it) {
                    borrowed.push(SentEntryReservation::DecodedEntry(decoded));
                }
                true
            }
            IdentityReservationResult::Refused => false,
        }
    }

    /// Creates head and body of the response; no body if the client has it, or requested the head
    /// alone.
    pub(in crate::exchange) fn respond_with_entry_body(
        &mut self,
        entry: &CacheEntry,
        body: Option<SlicedBody>,
        lookup: &LookupRequest<'_>,
        borrowed: EntryReservations,
    ) -> Box<ReadyResponse> {
        let meta = entry.response_metadata();
        self.cache_status = self
            .lookup_findings
            .served_status
            .unwrap_or(CacheStatus::Hit);
        self.response_mode = ResponseMode::Hit;
        self.lookup_findings.age = Some(lookup.now.saturating_sub(meta.requested_at));
        let coding = match &body {
            Some(body) => body.content_coding(),
            None => self.coding_of_absent_body(entry, lookup),
        };
        // room for these headers, Vary, Content-Encoding, Cache-Status, Content-Length, and Age and
        // Date for a resource
        self.head_edits.reserve(meta.fields.len() + 6);
        let vary_lines = self.copy_stored_headers(entry, coding.is_some());
        let adds_encoding = self.varies && !lookup.host_writes_vary;
        if let Some(vary) = vary::complete_vary_header(&vary_lines, self.varies, adds_encoding) {
            self.head_edits.push(HeadEdit::set_header("Vary", vary));
        }
        if let Some(coding) = coding {
            self.head_edits.push(HeadEdit::set_content_encoding(coding));
        }
        self.set_hit_status_header(entry, lookup.now);
        if let Some(body) = &body {
            self.set_content_length(usize::try_from(body.byte_length()).unwrap_or(usize::MAX));
        }
        let mut answer = Box::new(ReadyResponse {
            status: meta.status,
            stored: Some(body.unwrap_or_default()),
            borrowed,
            ..ReadyResponse::default()
        });
        self.adapt_resource_response(&mut answer, entry, lookup);
        self.adapt_query_response(&mut answer, entry, lookup.now);
        answer
    }

    /// Sets the stored headers, except headers that are not sent and headers of the node's coding.
    /// Returns the lines of `Vary`, with the headers that select the format.
    fn copy_stored_headers<'e>(&mut self, entry: &'e CacheEntry, is_coded: bool) -> Vec<&'e [u8]> {
        let mut vary_lines: Vec<&[u8]> = Vec::new();
        for (name, value) in &entry.response_metadata().fields {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            // Date follows Age
            if self.hides_response_header(name) || is("date") {
                continue;
            }
            if is("vary") {
                vary_lines.push(value);
                continue;
            }
            if is("content-type") {
                self.varies =
                    self.route_config.types.contains_media_type(value) || entry.is_compressed();
                self.head_edits
                    .push(HeadEdit::set_header("Content-Type", value.clone()));
                continue;
            }
            if is_coded && is_byte_dependent_header(name) {
                continue;
            }
            let weak = if is("etag") && is_coded {
                weaken_entity_tag(value)
            } else {
                None
            };
            if let Ok(name) = String::from_utf8(name.clone()) {
                let value = weak.unwrap_or_else(|| value.clone());
                self.head_edits.push(HeadEdit::set_header(name, value));
            }
        }
        if self.request.varies_on_accept()
            && !vary::is_named_in_vary(vary_lines.iter().copied(), "Accept")
        {
            vary_lines.push(b"Accept");
        }
        vary_lines
    }

    /// Sets `Cache-Status` of a hit, with the remaining lifetime.
    fn set_hit_status_header(&mut self, entry: &CacheEntry, now: u64) {
        if self.cache_status == CacheStatus::Miss {
            // assembled from responses that were fetched for this request
            self.head_edits.push(HeadEdit::set_header(
                "Cache-Status",
                &b"sszip; fwd=miss"[..],
            ));
            return;
        }
        // format! costs much for this little text
        let left = remaining_lifetime_seconds(entry.response_metadata().expires_at, now);
        let mut cache_status = Vec::with_capacity(40);
        cache_status.extend_from_slice(b"sszip; hit; ttl=");
        cache_status.extend_from_slice(itoa::Buffer::new().format(left).as_bytes());
        let key = self.lookup_findings.key.as_ref();
        if let Some(key) = key.filter(|_| self.answers_only_from_cache()) {
            append_key_parameter(&mut cache_status, key);
        }
        self.head_edits
            .push(HeadEdit::set_header("Cache-Status", cache_status));
    }
}

/// Remaining lifetime in seconds; negative for a stale entry: the seconds since it expired
/// (RFC 9211, 2.5).
fn remaining_lifetime_seconds(expires_at: u64, now: u64) -> i64 {
    let seconds = |milliseconds: u64| i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX);
    match expires_at.checked_sub(now) {
        Some(left) => seconds(left),
        None => -seconds(now - expires_at),
    }
}
