//! Assembly of a JSON-RPC batch from responses.
//!
//! For a client that accepts gzip or zstd, short entries are inlined: their payloads, decoded if they
//! are stored compressed, become part of the batch's text, which is compressed as a whole, because
//! small responses resemble each other. Longer compressed entries are spliced as they are stored, or
//! as the zstd blocks that they keep.

use std::sync::Arc;

use super::{BodySink, CacheEntry, CompressionGate, EntryPayload, MAX_SHORT_PAYLOAD};
use crate::content_coding::SupportedContentCoding;
use crate::gzip::open_stream::{compress_to_open_stream, OpenDeflateStream};
use crate::gzip::preset_block::{compress_with_preset_codes, MAX_TEXT_LENGTH};
use crate::gzip::splice::{GzipMemberBuilder, SlicedBody};
use crate::zstd::open_blocks::open_blocks_reusing_buffer;
use crate::zstd::splice::ZstdFrameBuilder;
use crate::zstd::ZstdLevel;

/// Maximum ratio of the identity length of an inlined payload to its compressed length: a better
/// compressed one is spliced, as compressing it again saves few bytes.
const MAX_INLINED_RATIO: u64 = 8;

/// Minimum length of a text between spliced entries that is compressed, in bytes: the codes of a
/// block take 50 bytes.
const MIN_COMPRESSED_TEXT_LENGTH: usize = 160;

/// Maximum level of zstd for a text between spliced entries, which is compressed for each response.
const MAX_TEXT_ZSTD_LEVEL: ZstdLevel = 3;

/// The content coding of a batch response, with the level of what is compressed in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchCoding {
    /// Uncompressed.
    #[default]
    Identity,
    /// gzip, at the level of the [`CompressionGate`].
    Gzip,
    /// zstd, with the level of entries whose zstd blocks are made.
    Zstd(ZstdLevel),
}

impl BatchCoding {
    /// Creates the coding of a batch for this content coding, `None` being identity.
    pub fn from_content_coding(coding: Option<SupportedContentCoding>, level: ZstdLevel) -> Self {
        match coding {
            None => Self::Identity,
            Some(SupportedContentCoding::Gzip) => Self::Gzip,
            Some(SupportedContentCoding::Zstd) => Self::Zstd(level),
        }
    }

    /// Returns the content coding, `None` being identity.
    pub fn content_coding(self) -> Option<SupportedContentCoding> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some(SupportedContentCoding::Gzip),
            Self::Zstd(_) => Some(SupportedContentCoding::Zstd),
        }
    }
}

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
    /// Returns the length in bytes of the element in the text of the batch, uncompressed and
    /// without a comma.
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

    /// Whether the element is an entry whose payload is stored compressed.
    fn has_compressed_payload(&self) -> bool {
        matches!(self, Self::Stored(entry, _) if entry.is_compressed())
    }
}

/// The number of bytes of compressed payloads that may still be inlined in a batch.
struct InlinedBytesLimit(u64);

impl InlinedBytesLimit {
    /// Creates the limit of one batch: the longest text that has preset codes.
    fn for_one_batch() -> Self {
        Self(MAX_TEXT_LENGTH as u64)
    }

    /// Whether this payload is inlined, which the limit then includes.
    fn take_inlined_payload(&mut self, open: &OpenDeflateStream) -> bool {
        let is_inlined = may_be_inlined(open) && open.length <= self.0;
        if is_inlined {
            self.0 -= open.length;
        }
        is_inlined
    }
}

/// Whether a compressed payload is inlined in a batch that has space for it.
fn may_be_inlined(open: &OpenDeflateStream) -> bool {
    open.length <= MAX_SHORT_PAYLOAD && open.length <= MAX_INLINED_RATIO * open.bytes.len() as u64
}

impl CacheEntry {
    /// Whether a batch for a client that accepts gzip or zstd may inline the entry's compressed
    /// payload.
    pub(crate) fn may_be_inlined(&self) -> bool {
        matches!(self.stored_payload(), EntryPayload::Open(open) if may_be_inlined(open))
    }
}

/// Upper bound of the bytes that are compressed or decoded for a batch with these entries, besides
/// its other text.
pub(crate) fn batch_coding_work<'a>(
    entries: impl Iterator<Item = &'a CacheEntry>,
    coding: BatchCoding,
) -> u64 {
    let (mut work, mut inlined): (u64, u64) = (0, 0);
    for entry in entries {
        match (coding, entry.is_compressed()) {
            (BatchCoding::Identity, _) => work += entry.identity_bytes_to_decode(),
            (_, false) => work += entry.response_length(b""),
            (_, true) if entry.may_be_inlined() => inlined += entry.response_length(b""),
            (BatchCoding::Zstd(_), true) => work += entry.zstd_bytes_to_make(),
            (BatchCoding::Gzip, true) => {}
        }
    }
    work + inlined.min(MAX_TEXT_LENGTH as u64)
}

/// Assembles the batch response of `elements`, in their order, for a client that accepts gzip.
///
/// The text between compressed elements is compressed now if the gate allows it, as many small
/// responses do not make a small batch. The body is identity if no element is compressed and
/// compression makes it no smaller, see [`SlicedBody::content_coding`]. Returns `None` if memory is
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

/// Assembles the batch as one gzip member. Unless `always`, a batch that is short or would not
/// become shorter is assembled uncompressed. Returns `None` if memory is refused.
fn assemble_batch_member(
    elements: &[BatchResponseElement],
    gate: CompressionGate,
    always: bool,
) -> Option<SlicedBody> {
    let lengths = BatchLengths::from_elements(elements);
    if !always && !lengths.has_compressed_payload && lengths.whole < gate.min_length {
        return assemble_identity_batch(elements);
    }
    let own = bytes_copied_into_compressed_batch(elements);
    let mut limit = InlinedBytesLimit::for_one_batch();
    let mut member = GzipMemberBuilder::with_capacity(elements.len() + 1, own)?;
    write_batch_response_array(&mut member, elements, |member, entry, open| {
        if limit.take_inlined_payload(open) {
            // a damaged payload is sent as it is stored, as in a single response
            if let Some(payload) = entry.identity_payload() {
                return member.append_plain_text(&payload);
            }
        }
        compress_pending_text(member, gate, false)?;
        member.append_open_stream(open)
    })?;
    compress_pending_text(&mut member, gate, true)?;
    let body = member.finish_gzip_member()?;
    if always || lengths.has_compressed_payload || body.byte_length() < lengths.whole {
        Some(body)
    } else {
        assemble_identity_batch(elements)
    }
}

/// Assembles the batch response of `elements`, in their order, as one zstd frame, for a client that
/// accepts zstd. Longer compressed entries are spliced as the blocks that they keep, which are made
/// at this level if they are absent.
///
/// Unless `always`, a batch that is short or would not become shorter is assembled in identity, as by
/// [`assemble_gzip_batch`]. Returns `None` if memory is refused or a payload is damaged.
pub fn assemble_zstd_batch(
    elements: &[BatchResponseElement],
    gate: CompressionGate,
    level: ZstdLevel,
    always: bool,
) -> Option<SlicedBody> {
    let lengths = BatchLengths::from_elements(elements);
    if !always && !lengths.has_compressed_payload && lengths.whole < gate.min_length {
        return assemble_identity_batch(elements);
    }
    let own = bytes_copied_into_compressed_batch(elements);
    let mut limit = InlinedBytesLimit::for_one_batch();
    let mut frame = ZstdFrameBuilder::with_capacity(elements.len() + 1, own)?;
    let text_level = level.min(MAX_TEXT_ZSTD_LEVEL);
    let mut room = Vec::new();
    write_batch_response_array(&mut frame, elements, |frame, entry, open| {
        if limit.take_inlined_payload(open) {
            return frame.append_plain_text(&entry.identity_payload()?);
        }
        compress_pending_text_with_zstd(frame, text_level, &mut room)?;
        frame.append_open_blocks(&entry.zstd_payload(level)?)
    })?;
    compress_pending_text_with_zstd(&mut frame, text_level, &mut room)?;
    let body = frame.finish_zstd_frame()?;
    if always || lengths.has_compressed_payload || body.byte_length() < lengths.whole {
        Some(body)
    } else {
        assemble_identity_batch(elements)
    }
}

/// The length of a batch in bytes, uncompressed, and whether a payload is stored compressed.
struct BatchLengths {
    whole: u64,
    has_compressed_payload: bool,
}

impl BatchLengths {
    fn from_elements(elements: &[BatchResponseElement]) -> Self {
        let whole: u64 = elements
            .iter()
            .map(BatchResponseElement::element_length)
            .sum();
        Self {
            // two brackets, and a comma between elements
            whole: whole + elements.len() as u64 + 1,
            has_compressed_payload: elements
                .iter()
                .any(BatchResponseElement::has_compressed_payload),
        }
    }
}

/// Number of bytes that are copied into a compressed batch, before its text is compressed. A payload
/// that is not inlined counts with its stored length, in zstd too.
fn bytes_copied_into_compressed_batch(elements: &[BatchResponseElement]) -> usize {
    let mut limit = InlinedBytesLimit::for_one_batch();
    bytes_copied_into_batch(elements, |entry, open| {
        match limit.take_inlined_payload(open) {
            true => entry.identity_length(),
            false => SlicedBody::bytes_copied_when_shared(open.bytes.len()),
        }
    })
}

/// Assembles the batch response of `elements`, in their order, for a client that accepts identity.
/// Returns `None` if memory is refused.
pub fn assemble_identity_batch(elements: &[BatchResponseElement]) -> Option<SlicedBody> {
    let mut body = SlicedBody::empty_identity_body();
    body.reserve_owned_buffer(bytes_copied_into_batch(elements, |entry, _| {
        SlicedBody::bytes_copied_when_shared(entry.identity_length())
    }))?;
    write_batch_response_array(&mut body, elements, |body, entry, _| {
        body.append_shared(&entry.identity_payload()?)
    })?;
    Some(body)
}

/// Writes the array; `write_compressed` writes the payloads of compressed entries.
fn write_batch_response_array<S: BodySink>(
    to: &mut S,
    elements: &[BatchResponseElement],
    mut write_compressed: impl FnMut(&mut S, &CacheEntry, &OpenDeflateStream) -> Option<()>,
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
                    EntryPayload::Open(open) => write_compressed(to, entry, open),
                })?;
            }
        }
    }
    to.append_bytes(if elements.is_empty() { b"[]" } else { b"]" })
}

/// Number of bytes that are copied into a batch: brackets, commas, texts, ids, and payloads;
/// `copied_length` returns the number of copied bytes of a compressed one.
fn bytes_copied_into_batch(
    elements: &[BatchResponseElement],
    mut copied_length: impl FnMut(&CacheEntry, &OpenDeflateStream) -> usize,
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
                    EntryPayload::Open(open) => copied_length(entry, open),
                }
        }
    });
    lengths.sum::<usize>() + elements.len() + 2
}

/// Compresses the text that is being written, if that makes it smaller; `is_final` if nothing
/// follows it. If memory is refused for that, the text stays as it is.
fn compress_pending_text(
    member: &mut GzipMemberBuilder,
    gate: CompressionGate,
    is_final: bool,
) -> Option<()> {
    let text = member.pending_plain_text();
    if text.len() < MIN_COMPRESSED_TEXT_LENGTH || gate.level == 0 {
        return Some(());
    }
    let blocks = compress_with_preset_codes(text, is_final).filter(|it| it.len() < text.len());
    // hexadecimal digits take 4.5 bits each
    let is_short = |blocks: &Vec<u8>| blocks.len() <= text.len() / 8 * 5;
    if !blocks.as_ref().is_some_and(is_short) && text.len() as u64 >= gate.min_length {
        let most = blocks.as_ref().map_or(text.len(), Vec::len);
        let open = compress_to_open_stream(text, gate.level);
        if let Some(open) = open.filter(|open| open.bytes.len() < most) {
            return member.replace_pending_with_compressed(&open);
        }
    }
    match blocks {
        Some(blocks) => member.replace_pending_with_blocks(&blocks, is_final),
        None => Some(()),
    }
}

/// Compresses the text that is being written like [`compress_pending_text`], as zstd blocks, with
/// `room` as working memory.
fn compress_pending_text_with_zstd(
    frame: &mut ZstdFrameBuilder,
    level: ZstdLevel,
    room: &mut Vec<u8>,
) -> Option<()> {
    let text = frame.pending_plain_text();
    if text.len() < MIN_COMPRESSED_TEXT_LENGTH {
        return Some(());
    }
    let blocks = open_blocks_reusing_buffer(text, level, room);
    match blocks.filter(|blocks| blocks.bytes.len() < text.len()) {
        Some(blocks) => frame.replace_pending_with_compressed(&blocks),
        None => Some(()),
    }
}
