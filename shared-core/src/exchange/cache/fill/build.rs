//! Creation of entries from a response body.

use std::sync::Arc;

use super::target::{FillCall, FillTarget, ResourceFillTarget};
use super::{BuiltEntry, CacheFill};
use crate::beacon::BeaconRouteLifetimeKind;
use crate::bytes::{try_copy_bytes, try_push};
use crate::cache::chain::HeightUnit;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};
use crate::cache::freshness::{ResponseClassification, ResponseClassificationInput, ResultOrError};
use crate::cache::process::confirmations::FetchedResultDigest;
use crate::cache::process::upstream_errors::UpstreamErrorKind;
use crate::cache::reason::Reason;
use crate::cache::resource::{other_format_key, strong_etag};
use crate::cache::response_directives::StaleDirectives;
use crate::cache::vary_key::{decode_namespace_name, truncated_blake3};
use crate::cache::CacheKey;
use crate::exchange::cache::format_pair::have_equal_entry_values;
use crate::exchange::machine::message_head::{is_byte_dependent_header, ResponseContentCoding};
use crate::gzip::inflate::{self, InflateError};
use crate::gzip::oneshot::off_loop_min_length;
use crate::hash_keys::HashMap;
use crate::jsonrpc::block_reference::{last_block_in_list, ResultBlock};
use crate::jsonrpc::depth_check::is_within_max_depth;
use crate::jsonrpc::ids::count_call_ids;
use crate::jsonrpc::response::{CallOutcomeSpan, JsonRpcResponse};
use crate::jsonrpc::response_ends::locate_result;
use crate::jsonrpc::{response, scan};
use crate::memory;
use crate::transcode::{TranscodeError, TranscodedBody, Transcoder, CONSENSUS_VERSION_HEADER};

/// Minimum length in bytes of responses that are stored as unchecked entries. Reading a shorter
/// response strictly takes two microseconds at the most.
const MIN_UNCHECKED_BYTES: usize = 8 << 10;

/// Bytes of a body that are transcoded between two updates of the reservation.
const TRANSCODE_PIECE_BYTES: usize = 64 << 10;

impl CacheFill {
    /// Creates entries from the collected body. May take milliseconds for each megabyte.
    pub fn build_collected_entries(&mut self) {
        if !self.built && !memory::is_memory_short() {
            let mut body = std::mem::take(&mut self.collected);
            if self.coding == ResponseContentCoding::Gzip {
                let Some(plain) = self.decompress_collected_body(&body) else {
                    return;
                };
                body = plain;
                self.mark_response_decoded();
            }
            // the encoder's output is allocated in addition to the body
            match self.reserve_build_memory(body.capacity(), body.len()) {
                true => self.transcode_and_build(&body, &mut Vec::new()),
                false => self.refused = Some(Reason::Memory),
            }
        }
        self.compare_with_hit();
        self.compare_with_receipts();
    }

    /// Creates entries from the node's body, after its conversion if another format is stored.
    fn transcode_and_build(&mut self, body: &[u8], room: &mut Vec<u8>) {
        let transcoder = match &mut self.target {
            FillTarget::Resource(resource) => resource.transcoder.take(),
            FillTarget::Call(_) | FillTarget::Batch(_) => None,
        };
        let Some(transcoder) = transcoder else {
            self.build_from_body(body, room);
            return;
        };
        match self.transcode_collected_body(*transcoder, body) {
            Ok(mut made) => self.build_transcoded_entry(&mut made, room),
            Err(why) => {
                self.built = true;
                self.refused = Some(why.not_cached_reason());
            }
        }
    }

    /// Converts a complete body to the format that is stored. Memory is reserved before it is
    /// allocated.
    fn transcode_collected_body(
        &mut self,
        mut transcoder: Transcoder,
        body: &[u8],
    ) -> Result<TranscodedBody, TranscodeError> {
        for piece in body.chunks(TRANSCODE_PIECE_BYTES) {
            transcoder.feed_body_piece(piece)?;
            if !self.reserve_build_memory(body.len(), transcoder.occupied_output_memory()) {
                return Err(TranscodeError::Memory);
            }
        }
        transcoder.finish_conversion(body, &mut |room| {
            self.reserve_build_memory(body.len(), room)
        })
    }

    /// Builds the entry of a transcoded resource with its headers, or records the reason why the
    /// body must not be stored.
    pub(in crate::exchange) fn build_transcoded_entry(
        &mut self,
        made: &mut TranscodedBody,
        room: &mut Vec<u8>,
    ) {
        let FillTarget::Resource(resource) = &mut self.target else {
            return;
        };
        resource.transcoder = None;
        resource.transcoded = Some((made.flags, made.body.is_empty()));
        resource.compresses = true;
        resource.undelimited = false;
        self.coding = ResponseContentCoding::Identity;
        self.fields.retain(|(name, _)| {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            !is_byte_dependent_header(name)
                && !is("etag")
                && !is("content-type")
                && !is("content-encoding")
        });
        let mut set = |name: &str, value: &[u8]| self.fields.push((name.into(), value.to_vec()));
        set("Content-Type", made.format.media_type());
        if let Some(fork) = made.fork {
            set(CONSENSUS_VERSION_HEADER, fork.as_bytes());
        }
        let format = made.format;
        let refused = match format {
            _ if made.body.len() > self.settings.max_entry => Some(Reason::Length),
            _ if made.body.move_parts_into_order().is_none() => Some(Reason::Memory),
            _ if !resource.has_requested_root(made) => Some(Reason::SszRoot),
            _ => None,
        };
        match made.body.move_parts_into_order() {
            Some(body) if refused.is_none() => self.build_entries(body, room),
            _ => {
                self.built = true;
                self.refused = refused;
            }
        }
    }

    /// Decompresses the compressed body that was copied on its way to the client.
    pub(in crate::exchange) fn decompress_collected_body(
        &mut self,
        coded: &[u8],
    ) -> Option<Vec<u8>> {
        // a body of several members may be longer, and is not worth a second pass
        let length = inflate::decompressed_length_from_trailer(coded);
        if length > self.settings.max_entry {
            self.refused = Some(Reason::Length);
            return None;
        }
        let decoded = inflate::gunzip_within(coded, length, |room| {
            self.reserve_build_memory(coded.len(), room)
        });
        if let Err(InflateError::OutOfMemory) = decoded {
            self.refused = Some(Reason::Memory);
        }
        decoded.ok()
    }

    /// Creates entries from `body`, unless that was tried before.
    pub(in crate::exchange) fn build_entries_once(&mut self, body: &[u8]) {
        if !self.built {
            self.transcode_and_build(body, &mut Vec::new());
        }
    }

    /// Whether [`CacheFill::build_collected_entries`] takes too long for an event loop.
    pub fn needs_build_job(&self) -> bool {
        let length = match self.coding {
            ResponseContentCoding::Gzip => {
                inflate::decompressed_length_from_trailer(&self.collected)
            }
            _ => self.collected.len(),
        };
        let level = self.settings.gate.level;
        let compared = self.receipts.as_ref();
        length > off_loop_min_length(level) || compared.is_some_and(|it| it.needs_job(level))
    }

    /// Creates entries from a body, unless it was transcoded and stored already. Returns the entry
    /// of the whole body, if there is one, and the id under which it is sent. `room` is a buffer
    /// for the encoder.
    pub(in crate::exchange) fn build_from_body(
        &mut self,
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Option<(&CacheEntry, Vec<u8>)> {
        let is_done = match &self.target {
            FillTarget::Resource(resource) => resource.transcoded.is_some(),
            FillTarget::Call(_) | FillTarget::Batch(_) => false,
        };
        if !is_done {
            self.build_entries(body, room);
        }
        let id = match &self.target {
            FillTarget::Batch(_) => return None,
            FillTarget::Call(wanted) => wanted.id.clone(),
            FillTarget::Resource(_) => Vec::new(),
        };
        let built = self.entries.first()?;
        Some((&built.entry, id))
    }

    /// Creates the entries of the call, batch or resource from `body`, in the stored format.
    fn build_entries(&mut self, body: &[u8], room: &mut Vec<u8>) {
        self.built = true;
        if self.coding == ResponseContentCoding::Gzip {
            // the body could not be decoded
            return;
        }
        if let FillTarget::Resource(resource) = &self.target {
            let is_plain =
                self.coding == ResponseContentCoding::Identity && resource.transcoded.is_none();
            self.refused = is_plain
                .then(|| resource.ssz_rejection_reason(body))
                .flatten();
            if self.refused.is_some() {
                return;
            }
        }
        self.entries = match &self.target {
            FillTarget::Batch(wanted) => self.build_batch_entries(wanted, body, room),
            FillTarget::Call(wanted) => self
                .build_single_call_entry(wanted, body, room)
                .into_iter()
                .collect(),
            FillTarget::Resource(resource) => {
                let built = self.build_resource_entry(resource, body, room);
                built.into_iter().collect()
            }
        };
        self.suspend_if_wrong_chain();
        if self.refused.is_some() {
            return;
        }
        self.contradicts = self.find_contradicting_format();
        let has_nothing = self
            .entries
            .iter()
            .all(|built| built.entry.is_empty_result());
        self.denied =
            has_nothing && self.updates.is_some() && self.is_proven_unstorable(body, true);
        if let (true, Some(compared)) = (has_nothing, &self.compared) {
            let is_nothing =
                compared.is_comparison_pending() && self.is_proven_unstorable(body, false);
            if let (true, Some(compared)) = (is_nothing, &mut self.compared) {
                compared.record_absent_result();
            }
        }
        if has_nothing {
            let reason = self.unstored_response_reason(body);
            if reason == Reason::OtherApi {
                self.log_other_api_once();
            }
            self.refused = Some(reason);
        }
    }

    /// Returns the hot entry of the resource in its other format, if its value is different.
    fn find_contradicting_format(&self) -> Option<(CacheKey, Arc<CacheEntry>)> {
        let FillTarget::Resource(resource) = &self.target else {
            return None;
        };
        let negotiated = resource.ssz.filter(|ssz| ssz.client_format().is_some())?;
        let built = self
            .entries
            .first()
            .filter(|it| !it.entry.is_empty_result())?;
        let other_key = other_format_key(&resource.key);
        let other = self.shared.hot_tier()?.get_fresh_or_stale(&other_key)?;
        let (chain, max_ssz) = (&self.settings.chain, self.settings.max_ssz);
        let mut memory = None;
        let may_take = |bytes| match &self.reservation {
            Some(reservation) => {
                memory = reservation.memory_budget().reserve_bytes(bytes, self.limit);
                memory.is_some()
            }
            None => true,
        };
        let one = &built.entry;
        let is_one_value =
            have_equal_entry_values(negotiated, chain, max_ssz, one, &other, may_take);
        (!is_one_value).then_some((other_key, other))
    }

    /// Whether a complete response shows that no entry of this kind can exist any more;
    /// `or_fails`: an error shows it, too.
    fn is_proven_unstorable(&self, body: &[u8], or_fails: bool) -> bool {
        match &self.target {
            FillTarget::Call(wanted) => {
                response::parse_jsonrpc_response(body).is_ok_and(|answer| {
                    body[answer.id.clone()] == wanted.id
                        && match answer.outcome {
                            CallOutcomeSpan::Result(result) => {
                                self.classify_call_result(wanted, &body[result]).is_none()
                            }
                            CallOutcomeSpan::Error(_) => or_fails,
                        }
                })
            }
            FillTarget::Resource(resource) => {
                resource.directives.lifetime.is_none()
                    && (resource.transcoded.is_some() || scan::check_json(body).is_ok())
                    && self.classify_resource_body(resource, body).is_none()
            }
            FillTarget::Batch(_) => false,
        }
    }

    /// Returns the reason why a complete response yields no entry.
    fn unstored_response_reason(&self, body: &[u8]) -> Reason {
        if let Some(why) = self.why.get() {
            return why;
        }
        match &self.target {
            // a node that sends long unusable results costs no second pass
            FillTarget::Call(_) if body.len() > MIN_UNCHECKED_BYTES => {
                match self.depends_on_other_api() {
                    true => Reason::OtherApi,
                    false => Reason::Result,
                }
            }
            FillTarget::Call(_) => match response::parse_jsonrpc_response(body) {
                Ok(answer) => match answer.outcome {
                    CallOutcomeSpan::Result(_) if self.depends_on_other_api() => Reason::OtherApi,
                    CallOutcomeSpan::Result(_) => Reason::Result,
                    CallOutcomeSpan::Error(_) => Reason::Error,
                },
                Err(_) => Reason::Malformed,
            },
            FillTarget::Resource(_) if self.depends_on_other_api() => Reason::OtherApi,
            FillTarget::Batch(_) | FillTarget::Resource(_) => Reason::Result,
        }
    }

    /// Whether the response is not stored because the namespace follows a node of the other API.
    pub(in crate::exchange) fn depends_on_other_api(&self) -> bool {
        match &self.target {
            FillTarget::Call(wanted) => wanted
                .prospect
                .depends_on_unfollowed_api(self.dispatch_mark()),
            // a lifetime that the node itself sets is valid in any case
            FillTarget::Resource(resource) => {
                resource.directives.lifetime.is_none()
                    && resource
                        .route
                        .depends_on_unfollowed_api(self.dispatch_mark())
            }
            FillTarget::Batch(_) => false,
        }
    }

    /// Logs once for a namespace that responses of the other API are not stored.
    fn log_other_api_once(&self) {
        let Some(mark) = self.dispatch_mark() else {
            return;
        };
        let scope = self.scope.namespace_key_bytes();
        if !self
            .shared
            .other_api
            .should_log_namespace(&truncated_blake3(scope))
        {
            return;
        }
        let (node, api, setting) = match mark.heights {
            HeightUnit::Blocks => ("an execution node", "Beacon API", "beacon"),
            HeightUnit::Slots => ("a beacon node", "JSON-RPC API", "execution"),
        };
        let name = decode_namespace_name(scope).escape_ascii();
        self.shared.verified.queue_log_line(format!(
            "namespace \"{name}\" follows {node}: responses of the {api} that depend on the head \
             are not cached there (reason other-api); set a cache_namespace of its own for that \
             API, and a cache_head with api={setting}"
        ));
    }

    /// Creates the entries of a batch's calls from the node's array of responses.
    pub(in crate::exchange) fn build_batch_entries(
        &self,
        wanted: &[FillCall],
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Vec<BuiltEntry> {
        let mut built = Vec::new();
        let answers = match response::parse_batch_responses(body) {
            Ok(answers) => answers,
            Err(error) => {
                self.why.set(Some(Reason::reason_of_parse_error(&error)));
                return built;
            }
        };
        // responses arrive in any order; an id that is present twice does not identify its
        // response
        let Some(ids) = count_call_ids(answers.iter().map(|answer| &body[answer.id.clone()]))
        else {
            return built;
        };
        if let Some(proof) = self.range_proof {
            let chain_id = proof.proven_chain_id(body, &answers);
            if !chain_id.is_some_and(|chain_id| self.matches_namespace_chain(chain_id)) {
                self.why.set(Some(Reason::Result));
                return built;
            }
        }
        let mut wanted_by_id = HashMap::default();
        if wanted_by_id.try_reserve(wanted.len()).is_err() {
            return built;
        }
        wanted_by_id.extend(wanted.iter().map(|wanted| (&wanted.id[..], wanted)));
        // receipts may arrive before their block
        for answer in &answers {
            if let (Some(wanted), CallOutcomeSpan::Result(result)) =
                (wanted_by_id.get(&body[answer.id.clone()]), &answer.outcome)
            {
                self.record_block_transactions(wanted, &body[result.clone()]);
            }
        }
        for answer in &answers {
            let id = &body[answer.id.clone()];
            let wanted = wanted_by_id.get(id).filter(|_| ids.get(id) == Some(&1));
            let entry = wanted.and_then(|wanted| self.build_call_entry(wanted, body, answer, room));
            if entry.is_some_and(|entry| try_push(&mut built, entry).is_none()) {
                break;
            }
        }
        built
    }

    /// Creates the entry of a single call. A long response becomes an unchecked entry.
    fn build_single_call_entry(
        &self,
        wanted: &FillCall,
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Option<BuiltEntry> {
        if body.len() >= MIN_UNCHECKED_BYTES {
            if let Some(outline) = self.locate_unchecked_result(wanted, body) {
                let built = self.build_call_entry(wanted, body, &outline, room)?;
                if built.is_read && body.is_ascii() {
                    // the bytes around the result are known exactly, too
                    return Some(built);
                }
                let entry = built.entry.mark_for_strict_check();
                return Some(BuiltEntry { entry, ..built });
            }
        }
        let answer = match response::parse_jsonrpc_response(body) {
            Ok(answer) => answer,
            Err(error) => {
                self.why.set(Some(Reason::reason_of_parse_error(&error)));
                return None;
            }
        };
        if body[answer.id.clone()] != wanted.id {
            return None;
        }
        // bytes outside the response, such as a newline, are stored with it
        let whole = JsonRpcResponse {
            span: 0..body.len(),
            ..answer
        };
        self.build_call_entry(wanted, body, &whole, room)
    }

    /// Locates the parts of a long response, unless it has to be read now: it is nested too deep
    /// for a later check, or the last unchecked entry of its key was unreadable.
    fn locate_unchecked_result(&self, wanted: &FillCall, body: &[u8]) -> Option<JsonRpcResponse> {
        let sent_at = self.settings.sent_at;
        let is_known = self
            .shared
            .strict_check_keys
            .uncacheable_sharing_of_key(&wanted.key, sent_at)
            .is_some();
        locate_result(body, &wanted.id).filter(|_| !is_known && is_within_max_depth(body))
    }

    /// Creates the entry of a call from its parsed response; `None` if the response is not stored.
    pub(in crate::exchange) fn build_call_entry(
        &self,
        wanted: &FillCall,
        body: &[u8],
        answer: &JsonRpcResponse,
        room: &mut Vec<u8>,
    ) -> Option<BuiltEntry> {
        let (result, judged) = match answer.outcome.clone() {
            CallOutcomeSpan::Result(result) => {
                self.record_result_to_compare(&body[result.clone()]);
                if let FillTarget::Call(_) = self.target {
                    self.record_block_transactions(wanted, &body[result.clone()]);
                }
                let judged = self.classify_confirmed_result(wanted, &body[result.clone()]);
                self.check_result_chain(wanted, &body[result.clone()], judged.as_ref());
                (result, judged)
            }
            // an entry preserves the error's bytes; its members are not read
            CallOutcomeSpan::Error(error) => {
                self.count_rpc_error(&body[error.clone()]);
                (error, None)
            }
        };
        if judged.is_some_and(|judged| judged.is_implausible) {
            self.why.set(Some(Reason::Implausible));
        }
        let judged = judged.filter(|judged| judged.valid > 0 || !judged.is_implausible);
        let judged = match judged {
            Some(judged) => judged,
            None => self.classify_empty_result(wanted, body, &answer.outcome)?,
        };
        let (id, first, second) = if answer.id.start < result.start {
            (ResponseIdPosition::BeforeResult, &answer.id, &result)
        } else {
            (ResponseIdPosition::AfterResult, &result, &answer.id)
        };
        let envelope = EnvelopeBytes {
            id,
            before: try_copy_bytes(&body[answer.span.start..first.start])?.into(),
            between: try_copy_bytes(&body[first.end..second.start])?.into(),
            after: try_copy_bytes(&body[second.end..answer.span.end])?.into(),
        };
        let meta = EntryMetadata {
            status: 200,
            fields: self.fields.clone(),
            ..self.entry_metadata(Some(judged))
        };
        let shown = result.clone();
        let entry = CacheEntry::from_fetched_result_reusing(
            envelope,
            &body[result],
            self.settings.gate,
            meta,
            room,
        )?;
        let entry = match self.range_proof {
            Some(_) => entry.mark_range_proven(),
            None => entry,
        };
        Some(BuiltEntry {
            key: wanted.key,
            entry,
            valid: judged.valid,
            method: Some(wanted.method.clone()),
            shows: match self.range_proof {
                Some(_) => last_block_in_list(&body[shown]),
                None => judged.of.map(|block| block.number),
            },
            if_final: judged.if_final,
            anchor: judged.anchor,
            is_read: judged.is_read,
        })
    }

    /// Counts a JSON-RPC error of the node.
    fn count_rpc_error(&self, error: &[u8]) {
        if self.compared.is_none() {
            let kind = UpstreamErrorKind::kind_of_rpc_error(error);
            self.shared.upstream_errors.count_event(kind as usize);
        }
    }

    /// Returns the class and lifetime of a call's result; `None` if it is not cached.
    pub(in crate::exchange) fn classify_call_result(
        &self,
        wanted: &FillCall,
        result: &[u8],
    ) -> Option<ResponseClassification> {
        let judged = wanted
            .prospect
            .classify_fetched_result(result, self.classification_input(wanted));
        let judged = match judged {
            Some(_) if self.is_missing_transactions(wanted, result) => Some(
                wanted
                    .prospect
                    .classify_implausible_result(self.classification_input(wanted)),
            ),
            judged => judged,
        };
        judged.filter(|judged| {
            !judged
                .of
                .is_some_and(|block| self.contradicts_known_chain(&block))
        })
    }

    /// Returns the class and lifetime of a response without a storable result; `None` if no request
    /// can use it.
    fn classify_empty_result(
        &self,
        wanted: &FillCall,
        body: &[u8],
        outcome: &CallOutcomeSpan,
    ) -> Option<ResponseClassification> {
        let call_outcome = match outcome {
            CallOutcomeSpan::Result(result) => ResultOrError::Result(&body[result.clone()]),
            CallOutcomeSpan::Error(error) => ResultOrError::Error(&body[error.clone()]),
        };
        let judged = wanted
            .prospect
            .classify_as_empty_result(call_outcome, self.classification_input(wanted));
        (judged.valid > 0 || self.has_waiting_followers()).then_some(judged)
    }

    /// Whether followers wait for the response: uncacheable entries are created for them only.
    fn has_waiting_followers(&self) -> bool {
        let mut led = self.token.iter().chain(&self.tokens);
        let has_some = led.any(|token| self.shared.flights.has_followers(token));
        self.had_no_waiters.set(!has_some);
        has_some
    }

    /// Returns the facts that decide the class of a call's result, besides the result itself.
    pub(in crate::exchange) fn classification_input<'a>(
        &'a self,
        wanted: &'a FillCall,
    ) -> ResponseClassificationInput<'a> {
        ResponseClassificationInput {
            params: wanted.params.as_deref(),
            mark: self.dispatch_mark(),
            valid: &self.settings.valid,
        }
    }

    /// Returns the class and lifetime of a call's result, as far as it is confirmed to be complete:
    /// by a proof in the same response, or by its repetition.
    fn classify_confirmed_result(
        &self,
        wanted: &FillCall,
        result: &[u8],
    ) -> Option<ResponseClassification> {
        if self.range_proof.is_some_and(|proof| proof.is_final) {
            let known = self.classification_input(wanted);
            return wanted.prospect.classify_proven_range(result, known);
        }
        let judged = self.classify_call_result(wanted, result)?;
        self.classify_repeated_result(judged, &wanted.key, result)
    }

    /// Returns the class and lifetime of a result that may be incomplete, once the node has
    /// repeated it; `None` if it is not stored until then.
    fn classify_repeated_result(
        &self,
        judged: ResponseClassification,
        key: &CacheKey,
        result: &[u8],
    ) -> Option<ResponseClassification> {
        let Some(valid) = judged.if_repeated else {
            return Some(judged);
        };
        // a new head makes no range incomplete
        let epoch = self.dispatch_mark().map_or(0, |mark| mark.branch);
        let reported = FetchedResultDigest::new(
            result,
            self.settings.sent_at,
            self.settings.generation,
            epoch,
        );
        if self
            .shared
            .unconfirmed_results
            .is_result_confirmed(key, reported)
        {
            let class = LifetimeClass::Immutable;
            return Some(ResponseClassification {
                class,
                valid,
                ..judged
            });
        }
        (judged.valid > 0).then_some(judged)
    }

    /// Whether a response belongs to a block outside the chain as it is known now: one of several
    /// nodes may follow another branch.
    pub(super) fn contradicts_known_chain(&self, block: &ResultBlock) -> bool {
        let owner = self
            .shared
            .owner_client()
            .filter(|_| self.dispatch_mark().is_some());
        let chain = owner.and_then(|owner| owner.followed_chains().get(&self.settings.namespace));
        let hash = block.hash.as_ref();
        chain
            .zip(hash)
            .is_some_and(|(chain, hash)| chain.contradicts_recent_block(block.number, hash))
    }

    /// Returns the metadata of an entry; `judged` is `None` if the response sets its own lifetime.
    pub(in crate::exchange) fn entry_metadata(
        &self,
        judged: Option<ResponseClassification>,
    ) -> EntryMetadata {
        EntryMetadata {
            class: judged.map_or(LifetimeClass::Resource, |judged| judged.class),
            block_number: judged.and_then(|judged| judged.block),
            follows: self
                .dispatch_mark()
                .map(|mark| (self.settings.namespace, mark.epoch)),
            height: judged.and_then(|judged| judged.height),
            stale: match self.target {
                FillTarget::Resource(_) => self.stale,
                // the extensions of RFC 5861 apply to resources only
                FillTarget::Call(_) | FillTarget::Batch(_) => StaleDirectives {
                    never: self.stale.never,
                    ..StaleDirectives::default()
                },
            },
            ..EntryMetadata::default()
        }
    }

    /// Returns the class and lifetime of a resource's body, by its route and content; `None` if it
    /// is not cached.
    fn classify_resource_body(
        &self,
        resource: &ResourceFillTarget,
        body: &[u8],
    ) -> Option<ResponseClassification> {
        let (route, valid) = (resource.route, &resource.valid);
        match resource.transcoded {
            Some((flags, is_empty)) => {
                route.classify_beacon_value(flags, is_empty, valid, self.dispatch_mark())
            }
            None => route.classify_beacon_response(body, valid, self.dispatch_mark()),
        }
    }

    /// Creates the entry of a resource from its body; `None` if the body is not stored.
    fn build_resource_entry(
        &self,
        resource: &ResourceFillTarget,
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Option<BuiltEntry> {
        if resource.undelimited && scan::check_json(body).is_err() {
            return None;
        }
        let (judged, valid) = match resource.directives.lifetime {
            Some(lifetime) => (None, lifetime),
            None => {
                let judged = self.classify_resource_body(resource, body);
                let judged = judged.or_else(|| self.classify_for_followers_only(resource))?;
                (Some(judged), judged.valid)
            }
        };
        if resource.route == BeaconRouteLifetimeKind::Constant && resource.status == 200 {
            self.compare_genesis_with_chain(body);
        }
        let mut fields = self.fields.clone();
        let has = |validator: &str| {
            let mut names = self.fields.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(validator.as_bytes()))
        };
        if !has("etag") && resource.status == 200 {
            fields.push((b"ETag".to_vec(), strong_etag(body)));
        }
        let meta = EntryMetadata {
            status: resource.status,
            fields,
            age: resource.directives.age,
            revalidates: resource.status == 200
                && resource.transcoded.is_none()
                && (has("etag") || has("last-modified")),
            ..self.entry_metadata(judged)
        };
        let gate = CompressionGate {
            min_length: if resource.compresses {
                self.settings.gate.min_length
            } else {
                u64::MAX
            },
            ..self.settings.gate
        };
        let entry = CacheEntry::from_fetched_result_reusing(
            EnvelopeBytes::envelope_without_bytes(),
            body,
            gate,
            meta,
            room,
        )?;
        Some(BuiltEntry {
            key: resource.key,
            entry,
            valid,
            method: None,
            shows: None,
            if_final: None,
            anchor: None,
            is_read: true,
        })
    }

    /// Returns the class of a complete response that is not stored, for its followers.
    fn classify_for_followers_only(
        &self,
        resource: &ResourceFillTarget,
    ) -> Option<ResponseClassification> {
        let is_known = resource.route != BeaconRouteLifetimeKind::Other;
        (is_known && self.has_waiting_followers()).then_some(ResponseClassification {
            class: LifetimeClass::Nothing,
            valid: 0,
            block: None,
            height: self.dispatch_mark().map(|mark| mark.seen),
            ..ResponseClassification::new(LifetimeClass::Nothing, 0, None)
        })
    }
}
