//! Assembly of a JSON-RPC batch from responses; compressed entries are spliced in as they are
//! stored.

use std::sync::Arc;

use super::{BodySink, CacheEntry, CompressionGate, EntryPayload};
use crate::gzip::open_stream::{compress_open, OpenStream};
use crate::gzip::splice::{GzipMember, SlicedBody};

/// One response of a batch response that is being assembled: an entry with the id of its call, or a
/// response as text. White space after it is dropped.
#[derive(Clone, Copy, Debug)]
pub enum BatchElement<'a> {
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

/// The text around the parts of [`BatchElement::Assembled`].
const ASSEMBLED_FRAME: [&[u8]; 4] = [b"{\"jsonrpc\":\"2.0\",\"id\":", b",\"", b"\":", b"}"];

impl<'a> From<(&'a Arc<CacheEntry>, &'a [u8])> for BatchElement<'a> {
    fn from((entry, id): (&'a Arc<CacheEntry>, &'a [u8])) -> Self {
        Self::Stored(entry, id)
    }
}

impl BatchElement<'_> {
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
pub fn batch_gzip(elements: &[BatchElement], gate: CompressionGate) -> Option<SlicedBody> {
    assemble_gzip(elements, gate, false)
}

/// Assembles the batch response for a client that accepts gzip only: the body is gzip in any case.
pub fn batch_gzip_always(elements: &[BatchElement], gate: CompressionGate) -> Option<SlicedBody> {
    assemble_gzip(elements, gate, true)
}

fn assemble_gzip(
    elements: &[BatchElement],
    gate: CompressionGate,
    always: bool,
) -> Option<SlicedBody> {
    // two brackets, and a comma between elements
    let length = elements
        .iter()
        .map(BatchElement::element_length)
        .sum::<u64>()
        + elements.len() as u64
        + 1;
    let has_coded = elements.iter().any(BatchElement::is_compressed);
    if !always && !has_coded && length < gate.min_length {
        return batch_identity(elements);
    }
    let own = copied_length(elements, CacheEntry::compressed_length);
    let mut member = GzipMember::with_capacity(elements.len() + 1, own)?;
    write_array(&mut member, elements, |member, _, open| {
        compress_text(member, gate)?;
        member.append_open_stream(open)
    })?;
    compress_text(&mut member, gate)?;
    let body = member.finish_member()?;
    if always || has_coded || body.byte_length() < length {
        Some(body)
    } else {
        batch_identity(elements)
    }
}

/// Assembles the batch response of `elements`, in their order, for a client that accepts identity.
/// Returns `None` if memory is refused.
pub fn batch_identity(elements: &[BatchElement]) -> Option<SlicedBody> {
    let mut body = SlicedBody::empty_identity();
    body.reserve_own(copied_length(elements, CacheEntry::identity_length))?;
    write_array(&mut body, elements, |body, entry, _| {
        body.append_shared(&entry.identity_payload()?)
    })?;
    Some(body)
}

/// Writes the array; `coded` writes the payloads of compressed entries.
fn write_array<S: BodySink>(
    to: &mut S,
    elements: &[BatchElement],
    mut coded: impl FnMut(&mut S, &CacheEntry, &OpenStream) -> Option<()>,
) -> Option<()> {
    for (n, element) in elements.iter().enumerate() {
        to.append_bytes(if n == 0 { b"[" } else { b"," })?;
        match element {
            BatchElement::RawJson(json) => to.append_bytes(json.trim_ascii())?,
            BatchElement::Assembled { id, member, value } => {
                let parts = [id, member.as_bytes(), value, b""];
                for (around, part) in ASSEMBLED_FRAME.iter().zip(parts) {
                    to.append_bytes(around)?;
                    to.append_bytes(part)?;
                }
            }
            BatchElement::Stored(entry, id) => {
                entry.write(to, id, true, |to| match entry.stored_payload() {
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
fn copied_length(elements: &[BatchElement], payload: impl Fn(&CacheEntry) -> usize) -> usize {
    let lengths = elements.iter().map(|element| match element {
        BatchElement::RawJson(_) | BatchElement::Assembled { .. } => {
            usize::try_from(element.element_length()).unwrap_or(usize::MAX)
        }
        BatchElement::Stored(entry, id) => {
            let around = entry.envelope_bytes().length() + id.len();
            around
                + match entry.stored_payload() {
                    EntryPayload::Raw(bytes) => bytes.len(),
                    EntryPayload::Open(_) => SlicedBody::copied_length(payload(entry)),
                }
        }
    });
    lengths.sum::<usize>() + elements.len() + 2
}

/// Compresses the text that is being written, if that makes it smaller.
fn compress_text(member: &mut GzipMember, gate: CompressionGate) -> Option<()> {
    let text = member.unfinished_text();
    if (text.len() as u64) < gate.min_length {
        return Some(());
    }
    match compress_open(text, gate.level).filter(|open| open.bytes.len() < text.len()) {
        Some(open) => member.replace_unfinished_text(&open),
        None => Some(()),
    }
}
