//! Assembly of a JSON-RPC batch from responses; compressed entries are spliced in as they are
//! stored.

use std::sync::Arc;

use super::{BodySink, CacheEntry, CompressionGate, EntryPayload};
use crate::gzip::open_stream::{compress_to_open_stream, OpenDeflateStream};
use crate::gzip::splice::{GzipMemberBuilder, SlicedBody};

/// One response of a batch response that is being assembled: an entry with the id of its call, or a
/// response as text. White space after it is dropped.
#[derive(Clone, Copy, Debug)]
pub enum BatchResponseElement<'a> {
    /// A stored entry, under an id.
    Stored(&'a CacheEntry, &'a [u8]),
    /// A response as JSON: a miss that was just fetched, or an error.
    RawJson(&'a [u8]),
    /// A response that is assembled from its parts.
    Assembled {
        /// The id, as JSON text.
        id: &'a [u8],
        /// Name of the member, `result` or `error`.
        member: &'static str,
        /// Value of that member, as JSON text.
        value: &'a [u8],
    },
}

/// The text around the parts of [`BatchResponseElement::Assembled`].
const ASSEMBLED_FRAME: [&[u8]; 4] = [b"{\"jsonrpc\":\"2.0\",\"id\":", b",\"", b"\":", b"}"];

impl<'a> From<(&'a Arc<CacheEntry>, &'a [u8])> for BatchResponseElement<'a> {
    fn from((entry, id): (&'a Arc<CacheEntry>, &'a [u8])) -> Self {
        Self::Stored(entry, id)
    }
}

impl BatchResponseElement<'_> {
    fn element_length(&self) -> u64 {
        match self {
            Self::Stored(entry, id) => entry.response_length(id),
            Self::RawJson(text) => text.len() as u64,
            Self::Assembled { id, member, value } => {
                let around: usize = ASSEMBLED_FRAME.iter().map(|part| part.len()).sum();
                (around + id.len() + member.len() + value.len()) as u64
            }
        }
    }

    fn is_compressed(&self) -> bool {
        matches!(self, Self::Stored(entry, _) if matches!(entry.stored_payload(), EntryPayload::Open(_)))
    }
}

/// Assembles the batch response of `elements`, in their order, for a client that accepts gzip.
///
/// The text between compressed elements is compressed now if the gate allows it, as many small
/// responses do not make a small batch. The body is identity if no element is compressed and
/// compression makes it no smaller, see [`SlicedBody::is_gzip`]. Returns `None` if memory is
/// refused.
pub fn assemble_gzip_batch(
    elements: &[BatchResponseElement],
    gate: CompressionGate,
) -> Option<SlicedBody> {
    assemble_batch_member(elements, gate, false)
}

/// Assembles the batch response for a client that accepts gzip only: the body is gzip in any case.
pub fn assemble_batch_for_gzip_only(
    elements: &[BatchResponseElement],
    gate: CompressionGate,
) -> Option<SlicedBody> {
    assemble_batch_member(elements, gate, true)
}

fn assemble_batch_member(
    elements: &[BatchResponseElement],
    gate: CompressionGate,
    always: bool,
) -> Option<SlicedBody> {
    // two brackets, and a comma between elements
    let length = elements
        .iter()
        .map(BatchResponseElement::element_length)
        .sum::<u64>()
        + elements.len() as u64
        + 1;
    let has_coded = elements.iter().any(BatchResponseElement::is_compressed);
    if !always && !has_coded && length < gate.min_length {
        return assemble_identity_batch(elements);
    }
    let own = bytes_copied_into_batch(elements, CacheEntry::compressed_length);
    let mut member = GzipMemberBuilder::with_capacity(elements.len() + 1, own)?;
    write_batch_response_array(&mut member, elements, |member, _, open| {
        compress_unfinished_text(member, gate)?;
        member.append_open_stream(open)
    })?;
    compress_unfinished_text(&mut member, gate)?;
    let body = member.finish_gzip_member()?;
    if always || has_coded || body.byte_length() < length {
        Some(body)
    } else {
        assemble_identity_batch(elements)
    }
}

/// Assembles the batch response of `elements`, in their order, for a client that accepts identity.
/// Returns `None` if memory is refused.
pub fn assemble_identity_batch(elements: &[BatchResponseElement]) -> Option<SlicedBody> {
    let mut body = SlicedBody::empty_identity_body();
    body.reserve_owned_buffer(bytes_copied_into_batch(
        elements,
        CacheEntry::identity_length,
    ))?;
    write_batch_response_array(&mut body, elements, |body, entry, _| {
        body.append_shared(&entry.identity_payload()?)
    })?;
    Some(body)
}

/// Writes the array; `coded` writes the payloads of compressed entries.
fn write_batch_response_array<S: BodySink>(
    to: &mut S,
    elements: &[BatchResponseElement],
    mut coded: impl FnMut(&mut S, &CacheEntry, &OpenDeflateStream) -> Option<()>,
) -> Option<()> {
    for (n, element) in elements.iter().enumerate() {
        to.append_bytes(if n == 0 { b"[" } else { b"," })?;
        match element {
            BatchResponseElement::RawJson(json) => to.append_bytes(json.trim_ascii())?,
            BatchResponseElement::Assembled { id, member, value } => {
                let parts = [id, member.as_bytes(), value, b""];
                for (around, part) in ASSEMBLED_FRAME.iter().zip(parts) {
                    to.append_bytes(around)?;
                    to.append_bytes(part)?;
                }
            }
            BatchResponseElement::Stored(entry, id) => {
                entry.assemble_response_into(to, id, true, |to| match entry.stored_payload() {
                    EntryPayload::Raw(bytes) => to.append_bytes(bytes),
                    EntryPayload::Open(open) => coded(to, entry, open),
                })?;
            }
        }
    }
    to.append_bytes(if elements.is_empty() { b"[]" } else { b"]" })
}

/// Number of bytes that are copied into a batch: brackets, commas, texts, ids, and the copied parts
/// of payloads.
fn bytes_copied_into_batch(
    elements: &[BatchResponseElement],
    payload: impl Fn(&CacheEntry) -> usize,
) -> usize {
    let lengths = elements.iter().map(|element| match element {
        BatchResponseElement::RawJson(_) | BatchResponseElement::Assembled { .. } => {
            usize::try_from(element.element_length()).unwrap_or(usize::MAX)
        }
        BatchResponseElement::Stored(entry, id) => {
            let around = entry.response_envelope().envelope_length() + id.len();
            around
                + match entry.stored_payload() {
                    EntryPayload::Raw(bytes) => bytes.len(),
                    EntryPayload::Open(_) => SlicedBody::bytes_copied_when_shared(payload(entry)),
                }
        }
    });
    lengths.sum::<usize>() + elements.len() + 2
}

/// Compresses the text that is being written, if that makes it smaller.
fn compress_unfinished_text(member: &mut GzipMemberBuilder, gate: CompressionGate) -> Option<()> {
    let text = member.pending_plain_text();
    if (text.len() as u64) < gate.min_length {
        return Some(());
    }
    match compress_to_open_stream(text, gate.level).filter(|open| open.bytes.len() < text.len()) {
        Some(open) => member.replace_pending_with_compressed(&open),
        None => Some(()),
    }
}
