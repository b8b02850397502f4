//! The fetch of a response that is to be stored.

mod block_size_check;
mod build;
mod call_entry;
mod chain_identity_check;
mod classification;
mod compare;
mod derived_logs;
pub(in crate::exchange) mod logs_comparison;
pub(in crate::exchange) mod piece_request;
mod publish;
pub(in crate::exchange) mod range_proof;
mod rejection;
mod resource_entry;
mod storability;
pub(in crate::exchange) mod target;
pub(in crate::exchange) mod verification;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::cache::chain::DispatchMark;
use crate::cache::entry::{CacheEntry, CompressionGate};
use crate::cache::freshness::{BlockAnchor, CacheLifetimes, FinalityUpgrade};
use crate::cache::process::flights::{FlightLeadership, FlightOutcome};
use crate::cache::process::negative_cache::UncacheableSharing;
use crate::cache::process::ProcessCacheState;
use crate::cache::reason::Reason;
use crate::cache::response_directives::StaleDirectives;
use crate::cache::vary_key::VaryKey;
use crate::cache::{CacheKey, CacheNamespace};
use crate::exchange::machine::message_head::ResponseContentCoding;
use crate::memory;
use crate::memory::{MemoryBudget, MemoryReservation};
use crate::transcode::chain_spec::PresetAndForkDigests;
use crate::transcode::requested_root::HashTreeRoot;
use logs_comparison::PendingLogsComparison;
use piece_request::PieceRequestState;
use range_proof::RangeProof;
use target::FillTarget;
use verification::PendingHitVerification;

/// The fetch of a response for the cache: it collects the body, builds the entries, and publishes
/// them to followers, hot tier and owner. A fill that is dropped before hands its leadership over
/// to a follower.
#[derive(Debug)]
pub struct CacheFill {
    target: FillTarget,
    scope: VaryKey,
    token: Option<FlightLeadership>,
    /// Leaderships of the calls of a batch.
    tokens: Vec<FlightLeadership>,
    shared: Arc<ProcessCacheState>,
    settings: FillSnapshot,
    /// The response is stored under another key than its followers wait for.
    pub(in crate::exchange) rekeyed: bool,
    /// Stale entry that is sent until a newer one is stored.
    pub(in crate::exchange) updates: Option<(CacheKey, Arc<CacheEntry>)>,
    /// Hit that the response is compared with; the response is not stored.
    pub(in crate::exchange) compared: Option<PendingHitVerification>,
    /// Proof without which no entry is created; the target is the call for the logs.
    pub(in crate::exchange) range_proof: Option<RangeProof>,
    /// State of the request for a piece, which the call that waits for the piece reads.
    pub(in crate::exchange) piece_request: Option<PieceRequestState>,
    /// Stored receipts with whose logs the response is compared.
    pub(in crate::exchange) receipts: Option<Box<PendingLogsComparison>>,
    /// The node has responded that the resource or result does not exist any more.
    denied: bool,
    /// Headers of the response that hits carry.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Copy of a body that is sent to the client meanwhile.
    collected: Vec<u8>,
    /// The node's permission to serve the entry stale.
    stale: StaleDirectives,
    /// Content coding of the body that the entries are built from.
    coding: ResponseContentCoding,
    reservation: Option<MemoryReservation>,
    /// Limit of all reservations, in bytes.
    limit: usize,
    entries: Vec<BuiltEntry>,
    /// The creation of entries was tried.
    built: bool,
    /// No entry was created because no follower waited for an uncacheable response.
    had_no_waiters: Cell<bool>,
    /// Reason that was detected while the entries were created.
    why: Cell<Option<Reason>>,
    /// Reason why there are no entries.
    refused: Option<Reason>,
    /// The resource in its other format, whose value is different.
    contradicts: Option<(CacheKey, Arc<CacheEntry>)>,
    /// Description of the difference between the response's chain and the namespace's.
    wrong_chain: RefCell<Option<String>>,
}

/// An entry that a fill has built and not yet published, with its key and its lifetime in
/// milliseconds.
#[derive(Debug)]
pub(in crate::exchange) struct BuiltEntry {
    key: CacheKey,
    entry: CacheEntry,
    valid: u64,
    method: Option<Vec<u8>>,
    /// Number of the block to which the result belongs.
    shows: Option<u64>,
    if_final: Option<FinalityUpgrade>,
    /// Block hash by which another machine can check the entry.
    anchor: Option<BlockAnchor>,
    /// The result of a call was read strictly when it was classified.
    is_read: bool,
}

impl BuiltEntry {
    /// Creates an entry that was read strictly, of no method and no block.
    fn new(key: CacheKey, entry: CacheEntry, valid: u64) -> Self {
        Self {
            key,
            entry,
            valid,
            method: None,
            shows: None,
            if_final: None,
            anchor: None,
            is_read: true,
        }
    }
}

/// The state that a fill captures when its request is sent: the route's settings, the purge
/// generation, and the state of the chain.
#[derive(Clone, Debug)]
pub(in crate::exchange) struct FillSnapshot {
    /// Time at which the request was sent to the node, in milliseconds: a response is as old as
    /// its request, however slowly the client reads it.
    pub(in crate::exchange) sent_at: u64,
    /// Number of the request, which distinguishes the requests of one millisecond.
    pub(in crate::exchange) dispatch_number: u64,
    /// The last purge that was known at that time.
    pub(in crate::exchange) generation: u64,
    /// The last invalidation that was known at that time.
    pub(in crate::exchange) changes: u64,
    pub(in crate::exchange) namespace: CacheNamespace,
    /// State of the chain at that time, if the chain is followed.
    pub(in crate::exchange) mark: Option<DispatchMark>,
    pub(in crate::exchange) valid: Arc<CacheLifetimes>,
    pub(in crate::exchange) chain: PresetAndForkDigests,
    /// Maximum length of SSZ that is generated, in bytes.
    pub(in crate::exchange) max_ssz: u64,
    /// The node receives no `Accept-Encoding`, whatever the client accepts.
    pub(in crate::exchange) requests_identity: bool,
    pub(in crate::exchange) gate: CompressionGate,
    /// Maximum length of a response that is stored, in bytes.
    pub(in crate::exchange) max_entry: usize,
    /// Stale entries may be served.
    pub(in crate::exchange) keeps_stale: bool,
    /// Hash of the request headers that may select the chain, for calls that identify the chain.
    pub(in crate::exchange) selector: Option<u64>,
    /// Keys contain request headers, which may select the chain.
    pub(in crate::exchange) has_keyed_fields: bool,
}

impl CacheFill {
    /// Creates the fill of a request that is about to be sent to the node. `token`: the fill is the
    /// leader of its key's flight.
    pub(in crate::exchange) fn new(
        target: FillTarget,
        scope: VaryKey,
        token: Option<FlightLeadership>,
        shared: Arc<ProcessCacheState>,
        settings: FillSnapshot,
    ) -> Self {
        Self {
            target,
            scope,
            token,
            tokens: Vec::new(),
            shared,
            settings,
            rekeyed: false,
            updates: None,
            compared: None,
            range_proof: None,
            piece_request: None,
            receipts: None,
            denied: false,
            fields: Vec::new(),
            collected: Vec::new(),
            stale: StaleDirectives::default(),
            coding: ResponseContentCoding::Identity,
            reservation: None,
            limit: 0,
            entries: Vec::new(),
            built: false,
            had_no_waiters: Cell::new(false),
            why: Cell::new(None),
            refused: None,
            contradicts: None,
            wrong_chain: RefCell::new(None),
        }
    }

    /// Returns the vary key from which the keys of the calls are derived.
    pub(in crate::exchange) fn vary_key(&self) -> &VaryKey {
        &self.scope
    }

    /// Takes the leadership of its only key, unless another request fetches it.
    pub(in crate::exchange) fn lead_single_flight(&mut self) {
        let Some(key) = self.target.single_cache_key() else {
            return;
        };
        let (shared, now) = (&self.shared, self.settings.sent_at);
        let sharing = shared.negative_cache.uncacheable_sharing_of_key(&key, now);
        if sharing != Some(UncacheableSharing::RequesterOnly) {
            self.token = shared.flights.begin_flight(key);
        }
    }

    /// Takes over the leadership of another fill, whose request is not sent. The followers receive
    /// the response of this fill.
    pub(in crate::exchange) fn take_over_leadership(&mut self, other: Self) {
        // without memory for it the other fill hands it over
        if self.tokens.try_reserve(1).is_ok() {
            self.tokens.extend(other.into_leadership());
        }
    }

    /// Takes the leadership of all calls of the batch that no other request fetches.
    pub(in crate::exchange) fn lead_batch_flights(&mut self) {
        let FillTarget::Batch(wanted) = &self.target else {
            return;
        };
        let (shared, now) = (&self.shared, self.settings.sent_at);
        let may_share = |key: &CacheKey| {
            shared.negative_cache.uncacheable_sharing_of_key(key, now)
                != Some(UncacheableSharing::RequesterOnly)
        };
        for wanted in wanted.iter().filter(|wanted| may_share(&wanted.key)) {
            if self.tokens.try_reserve(1).is_err() {
                return;
            }
            self.tokens.extend(shared.flights.begin_flight(wanted.key));
        }
    }

    /// Moves to the flights of the new keys. The flights of the old keys end: followers look up
    /// again, and the followers that request this variant join the new flight.
    fn move_to_rekeyed_flights(&mut self, has_keys: bool) {
        let old: Vec<FlightLeadership> = self
            .token
            .take()
            .into_iter()
            .chain(self.tokens.drain(..))
            .collect();
        let flights = &self.shared.flights;
        if has_keys && !old.is_empty() {
            match &self.target {
                FillTarget::Batch(wanted) => {
                    let led = wanted
                        .iter()
                        .filter_map(|wanted| flights.begin_flight(wanted.key));
                    self.tokens.extend(led);
                }
                FillTarget::Call(_) | FillTarget::Resource(_) => {
                    self.token = self
                        .target
                        .single_cache_key()
                        .and_then(|key| flights.begin_flight(key));
                }
            }
        }
        self.rekeyed = self.token.is_none() && self.tokens.is_empty();
        for token in old {
            self.shared
                .finish_flight_and_wake(token, FlightOutcome::NotShareable);
        }
    }

    /// Whether the body would be too long to be stored with `more` bytes added.
    pub(in crate::exchange) fn would_exceed_max_entry(&self, more: usize) -> bool {
        self.collected.len().saturating_add(more) > self.settings.max_entry
    }

    /// Copies a piece of a body that is sent to the client meanwhile. Returns `false` if memory
    /// is short or the body is too long.
    pub(in crate::exchange) fn collect_body_piece(
        &mut self,
        piece: &[u8],
        budget: &MemoryBudget,
        limit: usize,
    ) -> bool {
        if memory::is_memory_short() || self.would_exceed_max_entry(piece.len()) {
            return false;
        }
        self.limit = limit;
        let length = self.collected.len() + piece.len();
        let room = match self.collected.capacity() {
            enough if enough >= length => enough,
            little => length.max(little.saturating_mul(2).min(self.settings.max_entry)),
        };
        let reserved = match &mut self.reservation {
            Some(reservation) => reservation.grow_reservation_to(room, limit),
            None => {
                self.reservation = budget.reserve_bytes(room, limit);
                self.reservation.is_some()
            }
        };
        let more = room - self.collected.len();
        if !reserved || self.collected.try_reserve_exact(more).is_err() {
            return false;
        }
        self.collected.extend_from_slice(piece);
        true
    }

    /// Reserves `bytes` in addition to the `body` bytes of a body. `false` if memory is short.
    /// Where a body is built that was not collected its exchange has reserved memory for it, and
    /// the limit is `cache_max_entry`.
    fn reserve_build_memory(&mut self, body: usize, bytes: usize) -> bool {
        let needed = body.saturating_add(bytes);
        let has_room = match &mut self.reservation {
            Some(reservation) => reservation.grow_reservation_to(needed, self.limit),
            None => bytes <= self.settings.max_entry,
        };
        has_room && memory::can_allocate_now(bytes)
    }

    /// Records the reason why the response is not stored, for the call that waits for this piece.
    pub(in crate::exchange) fn record_piece_rejection(&self, reason: Reason) {
        if let Some(request) = &self.piece_request {
            request.record_rejection(reason);
        }
    }

    /// Reason why there is nothing to store, after entries were built.
    pub(in crate::exchange) fn storage_rejection_reason(&self) -> Option<Reason> {
        self.refused
    }

    /// Returns the hash tree root that the client requested, if the target is a resource with one.
    pub(in crate::exchange) fn requested_hash_tree_root(&self) -> Option<HashTreeRoot> {
        match &self.target {
            FillTarget::Resource(resource) => resource.root,
            FillTarget::Call(_) | FillTarget::Batch(_) => None,
        }
    }

    /// Whether the node's response has a content coding.
    pub(in crate::exchange) fn has_encoded_response(&self) -> bool {
        self.coding != ResponseContentCoding::Identity
    }

    /// Entity tag that was computed for the entry.
    pub(in crate::exchange) fn computed_entity_tag(&self) -> Option<Vec<u8>> {
        let fields = &self.entries.first()?.entry.response_metadata().fields;
        let mut tags = fields
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"etag"));
        tags.next().map(|(_, tag)| tag.clone())
    }

    /// Records that the body has no content coding any more.
    pub(in crate::exchange) fn mark_response_decoded(&mut self) {
        self.coding = ResponseContentCoding::Identity;
    }

    /// Whether this fill leads the flight of its key.
    pub(in crate::exchange) fn leads_flight(&self) -> bool {
        self.token.is_some() && !self.rekeyed
    }

    /// Ends the fill before its request is sent, and returns its leadership for another fill of the
    /// same key.
    pub(in crate::exchange) fn into_leadership(mut self) -> Option<FlightLeadership> {
        self.token.take()
    }

    /// Makes `entry` the result of the fill, in place of the response. `valid` is its lifetime in
    /// milliseconds.
    pub(in crate::exchange) fn set_built_entry(&mut self, entry: CacheEntry, valid: u64) {
        let key = self.target.single_cache_key().unwrap_or_default();
        self.entries = vec![BuiltEntry::new(key, entry, valid)];
        self.built = true;
    }

    /// Returns the state of the chain when the request was sent, if the chain is followed.
    pub(in crate::exchange) fn dispatch_mark(&self) -> Option<&DispatchMark> {
        self.settings.mark.as_ref()
    }
}
