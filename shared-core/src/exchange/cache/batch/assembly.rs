//! Assembly of the response to a split batch.
//!
//! Each call gets its stored response or the node's, as the node wrote it, in the request's
//! order. Where the node's response can't be used, each forwarded call gets an error of its
//! own: the stored responses are sent in any case.

use crate::cache::entry::batch::BatchResponseElement;
use crate::cache::entry::CacheEntry;
use crate::exchange::cache::batch::pairing::{pair_responses, BatchPairing};
use crate::exchange::cache::batch::split::{
    BatchElementSource, OutOfMemory, SplitBatch, UnusableBatchResponseReason,
};
use crate::exchange::cache::batch::stored_response::total_decodable_weight;
use crate::exchange::machine::Exchange;
use crate::gzip::splice::SlicedBody;
use crate::jsonrpc::batch_elements::{
    read_batch_responses, BatchResponseJsonKind, BatchResponseSpans as Answer, ParsedBatchResponses,
};

/// The response to a split batch after its assembly: the node's response, or a merged body.
#[derive(Debug)]
pub(in crate::exchange::cache) enum AssembledBatch {
    /// The node's response, unchanged: the whole batch was forwarded.
    Unchanged,
    /// The merged body, and whether any part of it comes from the node.
    Merged(SlicedBody, bool),
}

/// The node's parsed response to the forwarded calls of a batch, by the way in which it can be
/// merged.
enum UpstreamBatchResponse {
    /// Responses to all or most of the calls.
    Answers(ParsedBatchResponses),
    /// One error (the span of its value) for all calls that were forwarded.
    ErrorForAll(std::ops::Range<usize>),
    /// No part of the response can be sent.
    Nothing(UnusableBatchResponseReason),
}

impl Exchange {
    /// Merges the node's responses with the stored ones.
    ///
    /// Any reason why stored responses must not be sent together with the node's has to be detected
    /// here, between `read_upstream_batch_response` and the loop over the places, where both are
    /// complete.
    pub(in crate::exchange::cache) fn assemble_batch_response(
        &self,
        mixed: &SplitBatch,
    ) -> Result<AssembledBatch, OutOfMemory> {
        let text = &mixed.buffered.body[..];
        let reading = read_upstream_batch_response(mixed)?;
        let most = mixed.shortest_response_limit();
        let is_short = most.is_none_or(|most| text.len() as u64 <= most);
        let is_array = matches!(&reading, UpstreamBatchResponse::Answers(them) if them.shape == BatchResponseJsonKind::Array && them.is_whole);
        let is_usable = mixed.lost.is_none() && !mixed.is_cut;
        if mixed.is_forwarded_whole() && is_usable && is_short && !is_array {
            return Ok(AssembledBatch::Unchanged);
        }
        let none = ParsedBatchResponses::empty_array();
        let answers = match &reading {
            UpstreamBatchResponse::Answers(answers) => answers,
            _ => &none,
        };
        let pairing = pair_responses(&mixed.places, answers, text)?;
        let unusable = unusable_response_error(mixed.node_status);
        let parts = BatchMergeInputs {
            mixed,
            reading: &reading,
            answers,
            pairing: &pairing,
            too_long: self
                .route_config
                .active_call_policy()
                .map(|policy| &**policy.response_too_long_error()),
            unusable: unusable.as_bytes(),
        };
        let mut elements: Vec<BatchResponseElement<'_>> = Vec::new();
        let count = mixed.places.len() + pairing.others.len();
        elements.try_reserve(count).map_err(|_| OutOfMemory)?;
        let places = mixed.places.iter().zip(&pairing.of_call);
        elements.extend(
            places.filter_map(|(place, answer)| parts.merged_batch_element(place, *answer)),
        );
        // responses without a matching call are not dropped by the proxy
        let others = pairing
            .others
            .iter()
            .map(|at| &text[answers.all[*at].span.clone()]);
        let may_be_sent = |one: &&[u8]| most.is_none_or(|most| one.len() as u64 <= most);
        elements.extend(
            others
                .filter(may_be_sent)
                .map(BatchResponseElement::RawJson),
        );
        let is_of_node = !matches!(reading, UpstreamBatchResponse::Nothing(_));
        let coding = mixed.merged_coding;
        let weigh = || total_decodable_weight(mixed.stored_entries().map(|(_, it)| it), coding);
        let weight = weigh();
        let body = self
            .assemble_batch_body(&elements, coding)
            .ok_or(OutOfMemory)?;
        if weigh() != weight {
            self.update_entry_weights(mixed.stored_entries());
        }
        Ok(AssembledBatch::Merged(body, is_of_node))
    }
}

/// The inputs of a merge: the stored responses of a split batch, and the node's with their pairing.
struct BatchMergeInputs<'a> {
    mixed: &'a SplitBatch,
    reading: &'a UpstreamBatchResponse,
    answers: &'a ParsedBatchResponses,
    pairing: &'a BatchPairing,
    too_long: Option<&'a CacheEntry>,
    /// Error for a call whose response can't be used.
    unusable: &'a [u8],
}

impl<'a> BatchMergeInputs<'a> {
    /// Returns the response to a call; `None` if the node has left it out.
    fn merged_batch_element(
        &self,
        place: &'a BatchElementSource,
        answer: Option<usize>,
    ) -> Option<BatchResponseElement<'a>> {
        let (id, most) = match place {
            BatchElementSource::Stored(entry, id, _) | BatchElementSource::Denied(entry, id) => {
                return Some(BatchResponseElement::Stored(entry, id));
            }
            BatchElementSource::Forwarded(id, most) => (&id[..], *most),
        };
        let text = &self.mixed.buffered.body[..];
        let is_too_long = |length: usize| most.is_some_and(|most| length as u64 > most);
        let too_long = || {
            self.too_long
                .map(|entry| BatchResponseElement::Stored(entry, id))
        };
        let built = |member, value: &'a [u8]| BatchResponseElement::Assembled { id, member, value };
        if let Some(answer) = answer.and_then(|at| self.answers.all.get(at)) {
            if is_too_long(answer.span.len()) {
                return too_long();
            }
            return Some(match self.result_of_idless_response(answer) {
                Some(result) => built("result", result),
                None => BatchResponseElement::RawJson(&text[answer.span.clone()]),
            });
        }
        match self.reading {
            UpstreamBatchResponse::ErrorForAll(error) if is_too_long(error.len()) => too_long(),
            UpstreamBatchResponse::ErrorForAll(error) => Some(built("error", &text[error.clone()])),
            UpstreamBatchResponse::Nothing(UnusableBatchResponseReason::Length)
                if most.is_some() =>
            {
                too_long()
            }
            UpstreamBatchResponse::Answers(them)
                if them.shape == BatchResponseJsonKind::Array && them.is_whole =>
            {
                // an overlong response that names no call may be the response to this one
                let others = self.pairing.others.iter();
                let mut lengths = others.map(|at| self.answers.all[*at].span.len());
                lengths.any(is_too_long).then(too_long).flatten()
            }
            UpstreamBatchResponse::Answers(_) | UpstreamBatchResponse::Nothing(_) => {
                Some(built("error", self.unusable))
            }
        }
    }

    /// Returns the result of the only call that was forwarded, if the node has responded with an
    /// object without the id.
    fn result_of_idless_response(&self, answer: &Answer) -> Option<&'a [u8]> {
        let text = &self.mixed.buffered.body[..];
        let is_named =
            self.answers.shape == BatchResponseJsonKind::Array || has_non_null_id(answer, text);
        let result = answer.result.clone().filter(|_| !is_named)?;
        Some(&text[result])
    }
}

/// Parses the node's response to the forwarded calls.
fn read_upstream_batch_response(mixed: &SplitBatch) -> Result<UpstreamBatchResponse, OutOfMemory> {
    let text = &mixed.buffered.body[..];
    if let Some(loss) = mixed.lost {
        return Ok(UpstreamBatchResponse::Nothing(loss));
    }
    if mixed.has_only_forwarded_notifications() && text.trim_ascii().is_empty() {
        // the expected response, if only notifications were forwarded
        return Ok(UpstreamBatchResponse::Answers(
            ParsedBatchResponses::empty_array(),
        ));
    }
    let elements = read_batch_responses(text).map_err(|_| OutOfMemory)?;
    Ok(match elements.shape {
        BatchResponseJsonKind::Array => UpstreamBatchResponse::Answers(elements),
        BatchResponseJsonKind::Object if elements.is_whole => read_object_as_batch(elements, text),
        BatchResponseJsonKind::Object | BatchResponseJsonKind::Other => {
            UpstreamBatchResponse::Nothing(UnusableBatchResponseReason::Unreadable)
        }
    })
}

/// Reads an object in place of an array: the response to the one call that it names, or an
/// error for the whole batch.
fn read_object_as_batch(elements: ParsedBatchResponses, text: &[u8]) -> UpstreamBatchResponse {
    let Some(one) = elements.all.first() else {
        return UpstreamBatchResponse::Nothing(UnusableBatchResponseReason::Unreadable);
    };
    let error = one
        .error
        .clone()
        .filter(|error| text[error.clone()].starts_with(b"{"));
    match error {
        _ if has_non_null_id(one, text) => UpstreamBatchResponse::Answers(elements),
        Some(error) => UpstreamBatchResponse::ErrorForAll(error),
        None if one.result.is_some() => UpstreamBatchResponse::Answers(elements),
        None => UpstreamBatchResponse::Nothing(UnusableBatchResponseReason::Unreadable),
    }
}

/// Whether a response has an id that names its call.
fn has_non_null_id(answer: &Answer, text: &[u8]) -> bool {
    let id = answer.id.as_ref();
    id.is_some_and(|id| &text[id.clone()] != b"null")
}

const MISSING_RESPONSE_MESSAGE: &str =
    r#"{"code":-32603,"message":"the node sent no valid response to this call"}"#;

/// Formats the error of a call for which the node's response contains no usable response.
fn unusable_response_error(status: u16) -> String {
    match status {
        0 | 200..=299 => MISSING_RESPONSE_MESSAGE.to_owned(),
        status => {
            format!(r#"{{"code":-32603,"message":"the node answered with status {status}"}}"#)
        }
    }
}
