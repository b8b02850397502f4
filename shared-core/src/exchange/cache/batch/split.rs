//! A split batch: its stored and denied responses, and the missing calls that the node receives.

use std::sync::Arc;

use crate::bytes::try_extend;
use crate::cache::entry::batch::{
    assemble_identity_batch, batch_coding_work, BatchCoding, BatchResponseElement,
};
use crate::cache::entry::CacheEntry;
use crate::cache::CacheKey;
use crate::config::RouteConfig;
use crate::exchange::response::pipeline::{estimate_decompression_work, BufferedBody};
use crate::gzip::inflate::InflateError;
use crate::request_coding::BodyContentCoding;

/// A batch whose missing calls alone are forwarded to the node: the source of each response, and
/// the node's response so far.
#[derive(Debug, Default)]
pub(in crate::exchange) struct SplitBatch {
    /// The calls with an id, in the request's order.
    pub(in crate::exchange) places: Vec<BatchElementSource>,
    /// Content coding of the merged response.
    pub(in crate::exchange) merged_coding: BatchCoding,
    /// Content coding of the node's response.
    pub(in crate::exchange) coding: BodyContentCoding,
    /// Whether the media type of the node's response is JSON.
    pub(in crate::exchange) is_json: bool,
    /// Status of the node's response.
    pub(in crate::exchange) node_status: u16,
    /// The buffered body of the node's response.
    pub(in crate::exchange) buffered: BufferedBody,
    /// Status that replaces the node's status for the client, because the node's contradicts the
    /// merged body; 0: none.
    pub(in crate::exchange) status: u16,
    /// The node's response was dropped, or will not be read.
    pub(in crate::exchange) lost: Option<UnusableBatchResponseReason>,
    /// The head of the node's response was not read.
    pub(in crate::exchange) is_unjudged: bool,
    /// The node's response is truncated: its last responses are missing.
    pub(in crate::exchange) is_cut: bool,
}

/// The reason why no part of the node's response to a split batch is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) enum UnusableBatchResponseReason {
    /// The response was too long to be buffered.
    Length,
    /// The response can't be decoded or read, or is incomplete.
    Unreadable,
}

/// The source of the response to one call of a split batch: the cache, the policy or the node.
#[derive(Debug)]
pub(in crate::exchange) enum BatchElementSource {
    /// A stored response, the id under which it is sent, and the key under which it is stored.
    Stored(Arc<CacheEntry>, Vec<u8>, CacheKey),
    /// The error of a denied call, and the id under which it is sent.
    Denied(Arc<CacheEntry>, Vec<u8>),
    /// The id of a forwarded call, and its response limit in bytes.
    Forwarded(Vec<u8>, Option<u64>),
}

impl SplitBatch {
    /// Iterates over the stored responses and the errors of denied calls, with the ids under which
    /// they are sent.
    pub(in crate::exchange) fn local_responses(
        &self,
    ) -> impl Iterator<Item = (&Arc<CacheEntry>, &[u8])> {
        self.places.iter().filter_map(|place| match place {
            BatchElementSource::Stored(entry, id, _) | BatchElementSource::Denied(entry, id) => {
                Some((entry, &id[..]))
            }
            BatchElementSource::Forwarded(..) => None,
        })
    }

    /// Iterates over the stored responses, with the keys under which they are stored.
    pub(in crate::exchange) fn stored_entries(
        &self,
    ) -> impl Iterator<Item = (&CacheKey, &Arc<CacheEntry>)> {
        self.places.iter().filter_map(|place| match place {
            BatchElementSource::Stored(entry, _, key) => Some((key, entry)),
            BatchElementSource::Denied(..) | BatchElementSource::Forwarded(..) => None,
        })
    }

    /// Bytes of stored responses that have to be compressed or decompressed for the merge.
    pub(in crate::exchange) fn stored_bytes_to_recode(&self) -> u64 {
        let entries = self.local_responses().map(|(entry, _)| &**entry);
        batch_coding_work(entries, self.merged_coding)
    }

    /// Whether no forwarded call has an id, so that the node has nothing to respond.
    pub(in crate::exchange) fn has_only_forwarded_notifications(&self) -> bool {
        let mut places = self.places.iter();
        !places.any(|place| matches!(place, BatchElementSource::Forwarded(..)))
    }

    /// Whether the whole batch was forwarded: the node's response is the client's, unless it
    /// exceeds the response limit.
    pub(in crate::exchange) fn is_forwarded_whole(&self) -> bool {
        self.local_responses().next().is_none()
    }

    /// The shortest response limit of the forwarded calls, in bytes; `None` if there is none.
    pub(in crate::exchange) fn shortest_response_limit(&self) -> Option<u64> {
        let places = self.places.iter();
        places
            .filter_map(|place| match place {
                BatchElementSource::Forwarded(_, most) => *most,
                _ => None,
            })
            .min()
    }

    /// Whether the node's response can be streamed behind the stored responses.
    pub(in crate::exchange) fn can_stream_after_stored(&self) -> bool {
        let first = self
            .buffered
            .body
            .iter()
            .find(|byte| !byte.is_ascii_whitespace());
        let is_array = first.is_none_or(|byte| *byte == b'[');
        is_array
            && self.coding == BodyContentCoding::None
            && self.shortest_response_limit().is_none()
            && !self.is_forwarded_whole()
    }

    /// Maximum number of bytes of the node's response that are buffered: where it can't be
    /// streamed, the memory limit.
    pub(in crate::exchange) fn max_buffered_bytes(&self, config: &RouteConfig) -> u64 {
        match self.can_stream_after_stored() {
            true => config.max_oneshot,
            false => config.memory.max(config.max_oneshot),
        }
    }

    /// Decodes the node's response. A truncated response yields its complete beginning, and the
    /// truncation is recorded.
    pub(in crate::exchange) fn decode_upstream_body(
        &mut self,
        config: &RouteConfig,
    ) -> Result<Vec<u8>, UnusableBatchResponseReason> {
        let coded = self
            .coding
            .supported_coding()
            .ok_or(UnusableBatchResponseReason::Unreadable)?;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (most, limit) = (size(self.max_buffered_bytes(config)), size(config.memory));
        let buffered = &mut self.buffered;
        let reservation = buffered
            .reservation
            .as_mut()
            .ok_or(UnusableBatchResponseReason::Unreadable)?;
        let before = buffered.body.len();
        let mut may_take =
            |length: usize| reservation.grow_reservation_to(before.saturating_add(length), limit);
        let body = match coded.decompress_body(&buffered.body, most, &mut may_take) {
            Err(InflateError::Bad) => {
                self.is_cut = true;
                coded.decompress_truncated_body(&buffered.body, most, may_take)
            }
            whole => whole,
        };
        body.map_err(|why| match why {
            InflateError::Bad => UnusableBatchResponseReason::Unreadable,
            InflateError::TooLarge | InflateError::OutOfMemory => {
                UnusableBatchResponseReason::Length
            }
        })
    }

    /// Bytes of the node's response that have to be decoded and read.
    pub(in crate::exchange) fn upstream_bytes_to_decode(&self, config: &RouteConfig) -> usize {
        let body = &self.buffered.body;
        match self.coding.supported_coding() {
            Some(coding) => estimate_decompression_work(coding, body, config),
            None => body.len(),
        }
    }

    /// Discards the node's response, and releases its memory.
    pub(in crate::exchange) fn discard_upstream_part(&mut self, loss: UnusableBatchResponseReason) {
        let buffered = &mut self.buffered;
        *buffered = BufferedBody {
            borrowed: std::mem::take(&mut buffered.borrowed),
            recoded_edits: std::mem::take(&mut buffered.recoded_edits),
            ..BufferedBody::default()
        };
        self.lost = Some(loss);
    }

    /// Returns the beginning of the node's array with the stored responses in front of its
    /// elements; `None` if it is no array, or the whole batch was forwarded.
    pub(in crate::exchange) fn prepend_stored_responses(
        &self,
    ) -> Result<Option<Vec<u8>>, OutOfMemory> {
        let answer = &self.buffered.body[..];
        let Some(start) = answer.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            return Ok(None);
        };
        if answer[start] != b'[' || self.is_forwarded_whole() {
            return Ok(None);
        }
        let stored: Vec<BatchResponseElement<'_>> = self
            .local_responses()
            .map(|(entry, id)| BatchResponseElement::Stored(entry, id))
            .collect();
        let stored = assemble_identity_batch(&stored).and_then(|stored| stored.try_to_vec());
        let mut opened = stored.ok_or(OutOfMemory)?;
        // the closing bracket
        opened.pop();
        let rest = &answer[start + 1..];
        let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        let comma: &[u8] = match next {
            Some(byte) if *byte != b']' => b",",
            _ => b"",
        };
        try_extend(&mut opened, comma).ok_or(OutOfMemory)?;
        try_extend(&mut opened, rest).ok_or(OutOfMemory)?;
        Ok(Some(opened))
    }
}

/// The error of a refused allocation for a split batch, which has no original to send.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct OutOfMemory;
