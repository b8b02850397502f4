//! Creation of entries from the responses to calls.

use super::target::{FillCall, FillTarget};
use super::{BuiltEntry, CacheFill};
use crate::bytes::{try_copy_bytes, try_push};
use crate::cache::entry::{CacheEntry, EntryMetadata, EnvelopeBytes, ResponseIdPosition};
use crate::cache::process::upstream_errors::UpstreamErrorKind;
use crate::cache::reason::Reason;
use crate::hash_keys::HashMap;
use crate::jsonrpc::block_reference::last_block_in_list;
use crate::jsonrpc::depth_check::is_within_max_depth;
use crate::jsonrpc::ids::count_call_ids;
use crate::jsonrpc::response::{self, CallOutcomeSpan, JsonRpcResponse};
use crate::jsonrpc::response_ends::locate_result;

/// Minimum length in bytes of responses that are stored as unchecked entries. Reading a shorter
/// response strictly takes two microseconds at the most.
pub(super) const MIN_UNCHECKED_BYTES: usize = 8 << 10;

impl CacheFill {
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
            self.why.set(Some(Reason::Memory));
            return built;
        };
        if !self.has_required_range_proof(body, &answers) {
            self.why.set(Some(Reason::Result));
            return built;
        }
        let mut wanted_by_id = HashMap::default();
        if wanted_by_id.try_reserve(wanted.len()).is_err() {
            self.why.set(Some(Reason::Memory));
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
            if wanted.is_some() {
                self.record_refused_piece(answer);
            }
            let entry = wanted.and_then(|wanted| self.build_call_entry(wanted, body, answer, room));
            if entry.is_some_and(|entry| try_push(&mut built, entry).is_none()) {
                self.why.set(Some(Reason::Memory));
                break;
            }
        }
        built
    }

    /// Creates the entry of a single call. A long response becomes an unchecked entry.
    pub(super) fn build_single_call_entry(
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
        let envelope = || {
            Some(EnvelopeBytes {
                id,
                before: try_copy_bytes(&body[answer.span.start..first.start])?.into(),
                between: try_copy_bytes(&body[first.end..second.start])?.into(),
                after: try_copy_bytes(&body[second.end..answer.span.end])?.into(),
            })
        };
        let meta = EntryMetadata {
            status: 200,
            fields: self.fields.clone(),
            ..self.entry_metadata(Some(judged))
        };
        let (result, gate) = (&body[result.clone()], self.settings.gate);
        let entry = envelope().and_then(|envelope| {
            CacheEntry::from_fetched_result_reusing(envelope, result, gate, meta, room)
        });
        let Some(entry) = entry else {
            self.why.set(Some(Reason::Memory));
            return None;
        };
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
                Some(_) => last_block_in_list(result),
                None => judged.of.map(|block| block.number),
            },
            if_final: judged.if_final,
            anchor: judged.anchor,
            is_read: judged.is_read,
        })
    }

    /// Records an error in place of the logs of a piece, whose range the node has proven to have.
    fn record_refused_piece(&self, answer: &JsonRpcResponse) {
        if let (CallOutcomeSpan::Error(_), Some(request)) = (&answer.outcome, &self.piece_request) {
            request.record_refused_filter();
        }
    }

    /// Counts a JSON-RPC error of the node.
    fn count_rpc_error(&self, error: &[u8]) {
        if self.compared.is_none() {
            let kind = UpstreamErrorKind::kind_of_rpc_error(error);
            self.shared.upstream_errors.count_event(kind as usize);
        }
    }
}
