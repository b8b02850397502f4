//! Cache entries: stored responses without the id of their call.
//!
//! [`batch`] assembles JSON-RPC batches, [`wire`] serializes entries, [`store_attributes`] has the
//! attributes that the owner and the store need, `strict_check` parses entries that were stored
//! unchecked, `zstd_form` makes the form for clients of zstd, and `recompress` makes entries smaller.

pub mod batch;
mod entity_tag;
#[cfg(feature = "store")]
pub mod recompress;
pub mod store_attributes;
pub(crate) mod strict_check;
pub mod wire;
mod zstd_form;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use serde::{Deserialize, Serialize};

use super::chain::{ChainDependency, DispatchMark, NamespaceChain, NamespaceChains};
use super::class::LifetimeClass;
use super::response_directives::StaleDirectives;
use super::{use_stale, CacheKey, CacheNamespace};
use crate::bytes::SharedBytes;
use crate::gzip::open_stream::{open_stream_reusing_buffer, OpenDeflateStream};
use crate::gzip::splice::{GzipMemberBuilder, SlicedBody};
use crate::lock::lock_ignoring_poison;
use crate::memory::{MemoryBudget, MemoryReservation};
use crate::zstd::open_blocks::OpenZstdBlocks;

/// The position of the id in a JSON-RPC response. Members may be in any order: Nethermind writes
/// the id after the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum ResponseIdPosition {
    /// The id comes first.
    BeforeResult,
    /// The result comes first.
    AfterResult,
    /// The body has no id: the entry is the body of a GET.
    None,
}

/// The bytes of a JSON-RPC response around its id and its result, unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeBytes {
    /// Position of the id.
    pub id: ResponseIdPosition,
    /// Bytes before the id and the result.
    pub before: Box<[u8]>,
    /// Bytes between the two.
    pub between: Box<[u8]>,
    /// Bytes after the two: a brace, possibly other members and a newline.
    pub after: Box<[u8]>,
}

impl EnvelopeBytes {
    /// Creates an envelope without bytes, for a body that is all payload: the response to a GET.
    pub fn envelope_without_bytes() -> Self {
        Self {
            id: ResponseIdPosition::None,
            before: Box::default(),
            between: Box::default(),
            after: Box::default(),
        }
    }

    /// Returns the text before the result, with `id`.
    fn text_before_result<'a>(&'a self, id: &'a [u8]) -> [&'a [u8]; 3] {
        match self.id {
            ResponseIdPosition::BeforeResult => [&self.before, id, &self.between],
            ResponseIdPosition::AfterResult => [&self.before, b"", b""],
            ResponseIdPosition::None => [&self.before, b"", &self.between],
        }
    }

    /// Returns the text after the result, with `id`, ending with `after`.
    fn text_after_result<'a>(&'a self, id: &'a [u8], after: &'a [u8]) -> [&'a [u8]; 3] {
        match self.id {
            ResponseIdPosition::AfterResult => [&self.between, id, after],
            _ => [b"", b"", after],
        }
    }

    /// Returns the length in bytes of the envelope without the id and the result.
    pub(super) fn envelope_length(&self) -> usize {
        self.before.len() + self.between.len() + self.after.len()
    }
}

/// The compressible part of an entry: the result of a call, or the whole body of a GET.
#[derive(Clone, Debug)]
pub enum EntryPayload {
    /// Uncompressed: too short to be compressed, or not made smaller by it.
    Raw(SharedBytes),
    /// Compressed.
    Open(OpenDeflateStream),
}

impl EntryPayload {
    /// Returns the bytes of memory of the payload as it is stored, compressed or not.
    fn payload_weight(&self) -> usize {
        match self {
            Self::Raw(bytes) => bytes.len(),
            Self::Open(open) => open.bytes.len(),
        }
    }
}

/// The minimum length and the level with which entries are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionGate {
    /// Minimum length in bytes, without the id; shorter responses are stored uncompressed.
    pub min_length: u64,
    /// Level of libdeflate, 0 to 12.
    pub level: u8,
}

/// The status, headers, class, times and chain dependency of an entry. Its times have no meaning in
/// another process; its headers are serialized separately.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct EntryMetadata {
    /// Status code.
    pub status: u16,
    /// Headers to send, in order: the content type and others that the caller allows, but never a
    /// length or a content coding.
    #[serde(skip)]
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Time at which the request was sent to the node, or a script set the value, in milliseconds
    /// of the caller's clock.
    #[serde(skip)]
    pub requested_at: u64,
    /// Age at `requested_at` in seconds (RFC 9111, 5.1).
    pub age: u64,
    /// Whether the node has sent an `ETag` or `Last-Modified`, so that the entry can be
    /// revalidated.
    pub revalidates: bool,
    /// The node's directives about serving it stale, after `expires_at`.
    pub stale: StaleDirectives,
    /// Time from which on the entry is stale, in milliseconds of the same clock.
    #[serde(skip)]
    pub expires_at: u64,
    /// Class of the response.
    pub class: LifetimeClass,
    /// Block that the response is about.
    pub block_number: Option<u64>,
    /// Namespace and epoch of the request, if its chain is followed
    /// ([`State::epoch`](super::chain::ChainState::epoch)).
    pub follows: Option<(CacheNamespace, u64)>,
    /// The highest block on which the response depends, or the head that it reports.
    pub height: Option<u64>,
}

impl Default for EntryMetadata {
    /// Creates the properties of a response with status 200.
    fn default() -> Self {
        Self {
            status: 200,
            fields: Vec::new(),
            requested_at: 0,
            age: 0,
            revalidates: false,
            stale: StaleDirectives::default(),
            expires_at: 0,
            class: LifetimeClass::default(),
            block_number: None,
            follows: None,
            height: None,
        }
    }
}

impl EntryMetadata {
    /// Returns the bytes of memory of the stored headers and of their list.
    fn headers_weight(&self) -> usize {
        let fields = self.fields.iter();
        fields
            .map(|(name, value)| size_of::<(Vec<u8>, Vec<u8>)>() + name.len() + value.len())
            .sum()
    }
}

/// A cached response in memory, without the id of its call: it can be sent under any id, as gzip, as
/// zstd or in identity.
pub struct CacheEntry {
    envelope_bytes: EnvelopeBytes,
    stored_payload: EntryPayload,
    response_metadata: EntryMetadata,
    /// Weight without cached forms.
    memory_weight: u64,
    forms: Mutex<CachedForms>,
    /// Chain on which the entry depends, if it is followed.
    chain: Option<Arc<NamespaceChain>>,
    /// Whether the entry has to be checked before it is sent, see `strict_check`.
    pub(super) unread: AtomicBool,
    /// Whether a route that uses the entry may serve it stale.
    is_stale_allowed: AtomicBool,
    /// Number of the last invalidation before the request was sent to the node.
    invalidation_number: u64,
    /// [`NamespaceChain::shown_block_expiry_count`] of its chain at that time.
    tip_ends: u64,
    /// Number of the request among all requests of this process to nodes; 0 if another process has
    /// sent it.
    dispatch_number: u64,
    /// Whether the entry came from another process, and was not compared with its other format.
    uncompared: AtomicBool,
    /// Whether the entry may become a part of another one, see
    /// [`mark_range_proven`](Self::mark_range_proven).
    is_range_proven: bool,
}

/// The forms of a payload that are made from the stored one: cached by the entry, or borrowed by the
/// exchanges that are sending them.
#[derive(Debug)]
struct CachedForms {
    identity: IdentityBytesCache,
    /// Identity bytes that are being sent.
    borrowed: Weak<BorrowedIdentityBytes>,
    /// The payload as zstd blocks, from its first use on.
    zstd: Option<Box<OpenZstdBlocks>>,
}

/// The decompressed payload of an entry while exchanges are sending it, with its reservation in a
/// memory budget. They are reserved once for all their senders, whether a tier still has the entry
/// or not.
#[derive(Debug)]
pub struct BorrowedIdentityBytes {
    bytes: OnceLock<SharedBytes>,
    _reservation: MemoryReservation,
}

/// Maximum identity length of a short payload, in bytes: of 98 % of transactions and 94 % of
/// receipts. Batches may inline it, and its identity bytes are cached at their first use.
const MAX_SHORT_PAYLOAD: u64 = 4 << 10;

/// Minimum length in bytes of identity bytes that are reserved: the buffers of a connection take as
/// much.
const MIN_RESERVED: u64 = 64 << 10;

/// The result of [`CacheEntry::reserve_identity_bytes`]: whether identity bytes may be sent, and
/// their reservation.
#[derive(Debug)]
pub enum IdentityReservationResult {
    /// The bytes need no reservation.
    NotReserved,
    /// The reservation, which the caller keeps until the bytes are sent.
    Reserved(Arc<BorrowedIdentityBytes>),
    /// The memory budget is used up.
    Refused,
}

/// The decompressed payload that an entry keeps in memory from its second use on, a short one from
/// its first use on.
#[derive(Debug)]
enum IdentityBytesCache {
    Unused,
    UsedOnce,
    Cached(SharedBytes),
    /// The tier has no space for a form besides the stored one.
    Disabled,
}

/// The output that a response is copied to: a gzip member, or an identity body.
trait BodySink {
    /// Appends bytes; returns `None` if memory is refused.
    fn append_bytes(&mut self, more: &[u8]) -> Option<()>;
}

impl BodySink for GzipMemberBuilder {
    fn append_bytes(&mut self, more: &[u8]) -> Option<()> {
        GzipMemberBuilder::append_plain_text(self, more)
    }
}

impl BodySink for SlicedBody {
    fn append_bytes(&mut self, more: &[u8]) -> Option<()> {
        self.append_copy(more)
    }
}

impl CacheEntry {
    /// Creates an entry of a fetched `result`, which is compressed if the gate allows it and that
    /// makes it smaller. Returns `None` if memory is refused, or there is no such level.
    pub fn from_fetched_result(
        envelope: EnvelopeBytes,
        result: &[u8],
        gate: CompressionGate,
        meta: EntryMetadata,
    ) -> Option<Self> {
        Self::from_fetched_result_reusing(envelope, result, gate, meta, &mut Vec::new())
    }

    /// Creates an entry like [`from_fetched_result`](Self::from_fetched_result), with `room` as
    /// working memory.
    pub fn from_fetched_result_reusing(
        envelope: EnvelopeBytes,
        result: &[u8],
        gate: CompressionGate,
        meta: EntryMetadata,
        room: &mut Vec<u8>,
    ) -> Option<Self> {
        let length = (envelope.envelope_length() + result.len()) as u64;
        let coded = if length < gate.min_length {
            None
        } else {
            Some(open_stream_reusing_buffer(result, gate.level, room)?)
                .filter(|open| open.bytes.len() < result.len())
        };
        let payload = match coded {
            Some(open) => EntryPayload::Open(open),
            None => EntryPayload::Raw(SharedBytes::try_copy_from(result)?),
        };
        Some(Self::new(envelope, payload, meta))
    }

    /// Creates an entry of a payload that is compressed already.
    pub fn new(envelope: EnvelopeBytes, payload: EntryPayload, meta: EntryMetadata) -> Self {
        Self {
            memory_weight: (OVERHEAD
                + envelope.envelope_length()
                + meta.headers_weight()
                + payload.payload_weight()) as u64,
            envelope_bytes: envelope,
            stored_payload: payload,
            response_metadata: meta,
            forms: Mutex::new(CachedForms {
                identity: IdentityBytesCache::Unused,
                borrowed: Weak::new(),
                zstd: None,
            }),
            chain: None,
            unread: AtomicBool::new(false),
            is_stale_allowed: AtomicBool::new(false),
            invalidation_number: 0,
            tip_ends: 0,
            dispatch_number: 0,
            uncompared: AtomicBool::new(false),
            is_range_proven: false,
        }
    }

    /// Creates an entry without content, whose request was sent at `requested_at`.
    pub(in crate::cache) fn without_content(requested_at: u64) -> Self {
        let payload = EntryPayload::Raw(Vec::new().into());
        let meta = EntryMetadata::default();
        Self::new(EnvelopeBytes::envelope_without_bytes(), payload, meta)
            .with_lifetime(requested_at, 0)
    }

    /// Returns the bytes of the response around its id and its payload.
    pub fn response_envelope(&self) -> &EnvelopeBytes {
        &self.envelope_bytes
    }

    /// Returns the result or the body as it is stored, compressed or not.
    pub fn stored_payload(&self) -> &EntryPayload {
        &self.stored_payload
    }

    /// Returns the status, headers, class and times of the response.
    pub fn response_metadata(&self) -> &EntryMetadata {
        &self.response_metadata
    }

    /// Whether the entry is of class `nothing`: `null`, an empty list at the head, or a revert.
    pub fn is_empty_result(&self) -> bool {
        self.response_metadata.class == LifetimeClass::Nothing
    }

    /// Sets the times of an entry whose request was sent at `requested_at`, and which is fresh for
    /// `ttl` from then on, both in milliseconds.
    pub fn with_lifetime(mut self, requested_at: u64, ttl: u64) -> Self {
        self.response_metadata.requested_at = requested_at;
        self.response_metadata.expires_at = requested_at.saturating_add(ttl);
        self
    }

    /// Sets the [number](super::process::ProcessCacheState::next_dispatch_number) of the request to
    /// the node, which distinguishes the requests of one millisecond.
    pub fn assign_dispatch_number(mut self, number: u64) -> Self {
        self.dispatch_number = number;
        self
    }

    /// Whether the request to the node was sent before the request for `other`. Of two requests of
    /// one millisecond, the request of another process is the earlier one.
    pub fn is_dispatched_before(&self, other: &Self) -> bool {
        let order = |entry: &Self| (entry.response_metadata.requested_at, entry.dispatch_number);
        order(self) < order(other)
    }

    /// Sets the number of the last
    /// [invalidation](super::process::invalidations::InvalidatedRequestTargets) before the request.
    pub fn with_invalidation_number(mut self, changes: u64) -> Self {
        self.invalidation_number = changes;
        self
    }

    /// Sets the [`NamespaceChain::shown_block_expiry_count`] of its chain before the request.
    pub fn with_shown_block_expiry_count(mut self, tip_ends: u64) -> Self {
        self.tip_ends = tip_ends;
        self
    }

    /// Number of the last [invalidation](super::process::invalidations::InvalidatedRequestTargets) before
    /// the request was sent to the node.
    pub fn invalidation_number_at_dispatch(&self) -> u64 {
        self.invalidation_number
    }

    /// Marks the entry to be compared with the same resource in its other format before it is sent.
    pub fn mark_for_format_comparison(mut self) -> Self {
        self.uncompared = AtomicBool::new(true);
        self
    }

    /// Whether the entry has still to be compared with its other format.
    pub fn needs_format_comparison(&self) -> bool {
        self.uncompared.load(Ordering::Relaxed)
    }

    /// Records that the entry was compared with its other format, and may be sent.
    pub fn mark_format_compared(&self) {
        self.uncompared.store(false, Ordering::Relaxed);
    }

    /// Records that the node has proven, in the same response, to have the ends of the range of
    /// blocks that a list of logs covers.
    pub fn mark_range_proven(mut self) -> Self {
        self.is_range_proven = true;
        self
    }

    /// Whether the list of logs is complete, so that it may become a part of a longer one.
    pub fn is_range_proven(&self) -> bool {
        self.is_range_proven
    }

    /// Connects the entry with its chain, if `chains` has it.
    pub fn with_chain_dependency(mut self, chains: &NamespaceChains) -> Self {
        let follows = self.response_metadata.follows;
        self.chain = follows.and_then(|(namespace, _)| chains.get(&namespace));
        self
    }

    /// Connects an entry of the owner with its chain, like
    /// [`with_chain_dependency`](Self::with_chain_dependency). Returns `None` if the entry is about
    /// an older head than a block that was shown here before the owner was notified of it.
    pub fn with_owner_chain_dependency(self, chains: &NamespaceChains) -> Option<Self> {
        let mut entry = self.with_chain_dependency(chains);
        if let (Some(chain), Some((_, epoch))) = (&entry.chain, entry.response_metadata.follows) {
            // set first, so that an end meanwhile is not missed
            entry.tip_ends = chain.shown_block_expiry_count();
            let is_about_head = matches!(
                entry.response_metadata.class,
                LifetimeClass::Tip | LifetimeClass::Nothing
            );
            if is_about_head
                && chain.is_entry_below_tip_floor(epoch, entry.response_metadata.height)
            {
                return None;
            }
        }
        Some(entry)
    }

    /// Returns the dependency of the entry on its chain, or `None` if the chain is not followed.
    pub fn chain_dependency(&self) -> Option<ChainDependency<'_>> {
        let (chain, (_, epoch)) = (self.chain.as_ref()?, self.response_metadata.follows?);
        let stamp = ChainDependency::new(
            chain,
            self.response_metadata.class,
            epoch,
            self.response_metadata.height,
        );
        Some(stamp.with_shown_block_expiry_count(self.tip_ends))
    }

    /// Whether the entry is valid on its chain, regardless of its lifetime.
    pub fn is_valid_on_chain(&self) -> bool {
        self.chain_dependency()
            .is_none_or(|stamp| stamp.is_entry_valid())
    }

    /// Whether the entry may answer a request with this dispatch mark, though a newer response may
    /// exist.
    pub fn may_answer_dispatched_request(&self, mark: Option<&DispatchMark>) -> bool {
        let stamp = self.chain_dependency();
        stamp.is_none_or(|stamp| mark.is_none_or(|mark| stamp.may_answer_dispatched_request(mark)))
    }

    /// Whether no block that the entry depends on was replaced; there may be a newer head.
    pub fn is_unaffected_by_reorgs(&self) -> bool {
        self.chain_dependency()
            .is_none_or(|stamp| stamp.is_unaffected_by_reorgs())
    }

    /// Returns a copy of the entry with the same body and these properties, such as the times after
    /// a revalidation.
    pub fn copy_with_metadata(&self, meta: EntryMetadata) -> Self {
        let mut other = Self::new(
            self.envelope_bytes.clone(),
            self.stored_payload.clone(),
            meta,
        );
        other
            .unread
            .store(self.needs_strict_check(), Ordering::Relaxed);
        other.chain.clone_from(&self.chain);
        other.tip_ends = self.tip_ends;
        other.is_range_proven = self.is_range_proven;
        other
    }

    /// Records that a route permits serving the entry stale, so that it is kept after its expiry,
    /// see [`may_serve_stale`](Self::may_serve_stale).
    pub fn mark_stale_allowed(&self) {
        // an empty result is of no use when the node fails; and the flag is read first, so that a
        // hit changes no cache line that other threads read
        if !self.is_empty_result() && !self.is_stale_allowed.load(Ordering::Relaxed) {
            self.is_stale_allowed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the entry may be served at `now`, fresh or stale, if the operator allows it. `now`
    /// is in milliseconds of the caller's clock.
    pub fn may_serve_stale(&self, now: u64) -> bool {
        self.is_stale_allowed.load(Ordering::Relaxed)
            && !self.response_metadata.stale.never
            && self.is_unaffected_by_reorgs()
            && now
                < self
                    .response_metadata
                    .expires_at
                    .saturating_add(use_stale::MAX_STALE)
    }

    /// Whether the node allows serving the entry at `now` after an error (RFC 5861, 4).
    pub fn may_serve_stale_if_error(&self, now: u64) -> bool {
        let until = self.response_metadata.expires_at;
        self.is_unaffected_by_reorgs()
            && now < until.saturating_add(self.response_metadata.stale.if_error)
    }

    /// Whether the node allows serving the entry at `now` while it is updated (RFC 5861, 3).
    pub fn may_serve_stale_while_revalidate(&self, now: u64) -> bool {
        let until = self.response_metadata.expires_at;
        self.is_unaffected_by_reorgs()
            && now < until.saturating_add(self.response_metadata.stale.while_revalidate)
    }

    /// Whether a stale entry may still be served or revalidated at `now`.
    pub fn may_serve_or_revalidate(&self, now: u64) -> bool {
        let is_of_use = self.response_metadata.revalidates && self.is_unaffected_by_reorgs()
            || self.may_serve_stale_if_error(now)
            || self.may_serve_stale_while_revalidate(now)
            || self.may_serve_stale(now);
        is_of_use && !self.is_empty_result()
    }

    /// Whether the entry is fresh and valid at `now`, in milliseconds of the caller's clock.
    pub fn is_fresh(&self, now: u64) -> bool {
        now < self.response_metadata.expires_at && self.is_valid_on_chain()
    }

    /// Whether the payload is stored compressed, so that identity has to be decoded.
    pub fn is_compressed(&self) -> bool {
        matches!(self.stored_payload, EntryPayload::Open(_))
    }

    /// Exact length of the response under `id` in identity coding.
    pub fn response_length(&self, id: &[u8]) -> u64 {
        let id = match self.envelope_bytes.id {
            ResponseIdPosition::None => 0,
            _ => id.len(),
        };
        (self.envelope_bytes.envelope_length() + id) as u64 + self.payload_length()
    }

    /// Whether the payload is short: its identity bytes are cached at their first use.
    fn is_payload_short(&self) -> bool {
        self.payload_length() <= MAX_SHORT_PAYLOAD
    }

    /// Length of the payload in identity coding.
    pub(super) fn identity_length(&self) -> usize {
        usize::try_from(self.payload_length()).unwrap_or(usize::MAX)
    }

    /// Returns the uncompressed length of the payload in bytes.
    fn payload_length(&self) -> u64 {
        match &self.stored_payload {
            EntryPayload::Raw(bytes) => bytes.len() as u64,
            EntryPayload::Open(open) => open.length,
        }
    }

    /// Returns the response under `id`, raw JSON, for a client that accepts gzip. An uncompressed
    /// payload is sent in identity, see [`SlicedBody::is_gzip`]. Returns `None` if memory is
    /// refused.
    pub fn response_for_gzip_client(&self, id: &[u8]) -> Option<SlicedBody> {
        match &self.stored_payload {
            EntryPayload::Raw(bytes) => self.assemble_identity_response(id, bytes),
            EntryPayload::Open(_) => self.response_for_gzip_only_client(id),
        }
    }

    /// Returns the response under `id` for a client that accepts identity. A compressed payload is
    /// decoded, see [`identity_bytes_to_decode`](Self::identity_bytes_to_decode). From the second time on, for a
    /// short payload from the first, the decoded bytes are cached, and
    /// [`memory_weight`](Self::memory_weight) grows by them. Returns `None` if memory is refused.
    pub fn response_for_identity_client(&self, id: &[u8]) -> Option<SlicedBody> {
        let plain = self.identity_payload()?;
        self.assemble_identity_response(id, &plain)
    }

    /// Number of bytes that [`response_for_identity_client`](Self::response_for_identity_client)
    /// has to decode if it is called now; 0 if they are cached or stored uncompressed.
    pub fn identity_bytes_to_decode(&self) -> u64 {
        let EntryPayload::Open(open) = &self.stored_payload else {
            return 0;
        };
        let forms = lock_ignoring_poison(&self.forms);
        match forms.present_identity_bytes() {
            Some(_) => 0,
            None => open.length,
        }
    }

    /// Reserves the identity bytes in `budget`, which may have at most `limit` bytes in use. It is
    /// called before [`response_for_identity_client`](Self::response_for_identity_client) and
    /// [`assemble_identity_batch`](self::batch::assemble_identity_batch), and the result is kept
    /// until the bytes are sent.
    pub fn reserve_identity_bytes(
        &self,
        budget: &MemoryBudget,
        limit: usize,
    ) -> IdentityReservationResult {
        let length = self.payload_length();
        if !self.is_compressed() || length < MIN_RESERVED {
            return IdentityReservationResult::NotReserved;
        }
        let mut forms = lock_ignoring_poison(&self.forms);
        if let Some(borrowed) = forms.borrowed.upgrade() {
            return IdentityReservationResult::Reserved(borrowed);
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match budget.reserve_bytes(length, limit) {
            Some(reservation) => {
                let borrowed = Arc::new(BorrowedIdentityBytes {
                    bytes: OnceLock::new(),
                    _reservation: reservation,
                });
                forms.borrowed = Arc::downgrade(&borrowed);
                IdentityReservationResult::Reserved(borrowed)
            }
            None => IdentityReservationResult::Refused,
        }
    }

    /// Returns the response for a client that accepts gzip only. An uncompressed payload becomes a
    /// stored block of the gzip member.
    pub fn response_for_gzip_only_client(&self, id: &[u8]) -> Option<SlicedBody> {
        let copied = match &self.stored_payload {
            EntryPayload::Raw(bytes) => bytes.len(),
            EntryPayload::Open(open) => SlicedBody::bytes_copied_when_shared(open.bytes.len()),
        };
        let own = self.envelope_bytes.envelope_length() + id.len() + copied;
        let mut member = GzipMemberBuilder::with_capacity(2, own)?;
        self.assemble_response_into(&mut member, id, false, |member| {
            match &self.stored_payload {
                EntryPayload::Raw(bytes) => member.append_plain_text(bytes),
                EntryPayload::Open(open) => member.append_open_stream(open),
            }
        })?;
        member.finish_gzip_member()
    }

    /// Writes the response under `id`; `payload` writes its payload. With `trims` white space at
    /// the end is dropped.
    fn assemble_response_into<S: BodySink>(
        &self,
        to: &mut S,
        id: &[u8],
        trims: bool,
        payload: impl FnOnce(&mut S) -> Option<()>,
    ) -> Option<()> {
        let mut head = self.envelope_bytes.text_before_result(id).into_iter();
        head.try_for_each(|text| to.append_bytes(text))?;
        payload(to)?;
        let after = match trims {
            true => self.envelope_bytes.after.trim_ascii_end(),
            false => &self.envelope_bytes.after,
        };
        let mut tail = self.envelope_bytes.text_after_result(id, after).into_iter();
        tail.try_for_each(|text| to.append_bytes(text))
    }

    /// Assembles the uncompressed response with `id` around `payload`, the whole uncompressed
    /// payload of the entry. Returns `None` if memory is refused.
    fn assemble_identity_response(&self, id: &[u8], payload: &SharedBytes) -> Option<SlicedBody> {
        let mut body = SlicedBody::empty_identity_body();
        let copied = SlicedBody::bytes_copied_when_shared(payload.len());
        body.reserve_owned_buffer(self.envelope_bytes.envelope_length() + id.len() + copied)?;
        self.assemble_response_into(&mut body, id, false, |body| body.append_shared(payload))?;
        Some(body)
    }

    /// Returns the uncompressed payload, which is decompressed on first use. `None` if the stream
    /// is damaged or memory is refused.
    pub(crate) fn identity_payload(&self) -> Option<SharedBytes> {
        let open = match &self.stored_payload {
            EntryPayload::Raw(bytes) => return Some(bytes.clone()),
            EntryPayload::Open(open) => open,
        };
        let there = {
            let forms = lock_ignoring_poison(&self.forms);
            if let IdentityBytesCache::Cached(bytes) = &forms.identity {
                // the usual case
                return Some(bytes.clone());
            }
            forms.present_identity_bytes()
        };
        let bytes = match there {
            Some(bytes) => bytes,
            // without the lock: other requests may need gzip, or the length
            None => SharedBytes::from(open.decompress_open_stream()?),
        };
        let mut forms = lock_ignoring_poison(&self.forms);
        // another thread may have decoded the same payload
        let bytes = match (forms.present_identity_bytes(), forms.borrowed.upgrade()) {
            (Some(bytes), _) => bytes,
            (None, Some(borrowed)) => borrowed.bytes.get_or_init(|| bytes).clone(),
            (None, None) => bytes,
        };
        forms.identity = match forms.identity {
            IdentityBytesCache::Unused if !self.is_payload_short() => IdentityBytesCache::UsedOnce,
            IdentityBytesCache::Disabled => IdentityBytesCache::Disabled,
            _ => IdentityBytesCache::Cached(bytes.clone()),
        };
        Some(bytes)
    }

    /// Number of bytes that [`decode_payload`](Self::decode_payload) takes, with a copy of the
    /// stored payload.
    pub fn decode_memory_bytes(&self) -> usize {
        let stored = match &self.stored_payload {
            EntryPayload::Raw(_) => 0,
            EntryPayload::Open(open) => open.bytes.len(),
        };
        let plain = usize::try_from(self.response_length(b"")).unwrap_or(usize::MAX);
        plain.saturating_add(stored)
    }

    /// Returns the payload in identity coding for one use, without caching it. Returns `None` if
    /// memory is refused. The caller has [reserved](Self::decode_memory_bytes) the memory.
    pub fn decode_payload(&self) -> Option<SharedBytes> {
        match &self.stored_payload {
            EntryPayload::Raw(bytes) => Some(bytes.clone()),
            EntryPayload::Open(open) => Some(SharedBytes::from(open.decompress_open_stream()?)),
        }
    }

    /// Drops the cached forms for good, for a tier that has space for the stored form alone.
    pub(super) fn drop_cached_forms(&self) {
        let mut forms = lock_ignoring_poison(&self.forms);
        forms.identity = IdentityBytesCache::Disabled;
        forms.zstd = None;
    }

    /// Bytes of memory that the entry takes, with its share of a tier's tables.
    pub fn memory_weight(&self) -> u64 {
        let forms = lock_ignoring_poison(&self.forms);
        self.memory_weight + forms.cached_forms_weight() as u64
    }
}

/// Bytes of the entry itself, the headers of its allocations (at most nine, of 16 bytes), its key
/// in the tier and about 64 bytes of the tier's own.
const OVERHEAD: usize = size_of::<CacheEntry>() + 9 * 16 + size_of::<CacheKey>() + 64;

impl fmt::Debug for CacheEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheEntry")
            .field("meta", &self.response_metadata)
            .field("id", &self.envelope_bytes.id)
            .field("payload_length", &self.payload_length())
            .finish_non_exhaustive()
    }
}

impl CachedForms {
    /// Returns the uncompressed bytes if they are cached, or borrowed by a body that is being sent.
    fn present_identity_bytes(&self) -> Option<SharedBytes> {
        match &self.identity {
            IdentityBytesCache::Cached(bytes) => Some(bytes.clone()),
            _ => self.borrowed.upgrade()?.bytes.get().cloned(),
        }
    }

    /// Returns the bytes of memory of the cached forms.
    fn cached_forms_weight(&self) -> usize {
        let identity = match &self.identity {
            IdentityBytesCache::Cached(bytes) => bytes.len(),
            _ => 0,
        };
        identity + self.zstd_blocks_weight()
    }
}
