//! An answer on its way into the cache.

mod accept;
mod build;
mod compare;
mod identity;
pub(in crate::exchange) mod proof;
mod publish;
mod sizes;
pub(in crate::exchange) mod wanted;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::cache::chain::Mark;
use crate::cache::entry::{Entry, Gate};
use crate::cache::freshness::{IfFinal, Valid};
use crate::cache::http::Stale;
use crate::cache::process::flights::{Outcome, Token};
use crate::cache::process::unkept::Unkept;
use crate::cache::process::Shared;
use crate::cache::reason::Reason;
use crate::cache::scope::Scope;
use crate::cache::{Key, Namespace};
use crate::exchange::head::Coding;
use crate::memory;
use crate::memory::{Budget, Reservation};
use crate::transcode::chain::Chain;
use crate::transcode::root::Root;
use proof::Compared;
use wanted::What;

/// What will be stored when the answer is whole. Dropped before, it makes way
/// for another request that waits for the same.
#[derive(Debug)]
pub struct Fill {
    what: What,
    scope: Scope,
    token: Option<Token>,
    /// Of the answers of a batch.
    tokens: Vec<Token>,
    shared: Arc<Shared>,
    settings: Settings,
    /// It is stored under another key than those who wait asked for.
    pub(in crate::exchange) rekeyed: bool,
    /// What has expired, and is sent until there is something newer.
    pub(in crate::exchange) updates: Option<(Key, Arc<Entry>)>,
    /// A hit that it is to be compared with; nothing is stored.
    pub(in crate::exchange) compared: Option<Compared>,
    /// The node has answered that there is nothing of the kind any more.
    denied: bool,
    /// Of the answer: fields that hits carry.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// A copy of a body that goes to the client meanwhile.
    collected: Vec<u8>,
    /// What the node says of sending it when it has expired.
    stale: Stale,
    /// How that is coded, or whatever else it is to be built from.
    coding: Coding,
    reservation: Option<Reservation>,
    /// What all reservations may come to, in bytes.
    limit: usize,
    entries: Vec<Built>,
    /// Making them was tried.
    built: bool,
    /// There are none because nobody waited for what is not kept.
    had_no_waiters: Cell<bool>,
    /// What was found out about that while they were made.
    why: Cell<Option<Reason>>,
    /// Why there are none.
    refused: Option<Reason>,
    /// The resource in its other format, which says something else.
    contradicts: Option<(Key, Arc<Entry>)>,
    /// How the answer is of another chain than the namespace.
    wrong_chain: RefCell<Option<String>>,
}

/// An entry, where it belongs, and for how many milliseconds it is fresh.
#[derive(Debug)]
pub(in crate::exchange) struct Built {
    key: Key,
    entry: Entry,
    valid: u64,
    method: Option<Vec<u8>>,
    /// The block that it says it is of.
    shows: Option<u64>,
    if_final: Option<IfFinal>,
    /// The result of a call was read strictly while it was judged.
    is_read: bool,
}

/// How entries are made at a place.
#[derive(Clone, Debug)]
pub(in crate::exchange) struct Settings {
    /// When the node was asked, in milliseconds: an answer is as old as its
    /// question, however long the client takes to read it.
    pub(in crate::exchange) asked_at: u64,
    /// The last purge that was known then.
    pub(in crate::exchange) generation: u64,
    /// The last change that was known then.
    pub(in crate::exchange) changes: u64,
    pub(in crate::exchange) namespace: Namespace,
    /// What was known of the chain then, if it is followed.
    pub(in crate::exchange) mark: Option<Mark>,
    pub(in crate::exchange) valid: Arc<Valid>,
    pub(in crate::exchange) chain: Chain,
    /// No longer SSZ is made. Bytes.
    pub(in crate::exchange) max_ssz: u64,
    /// The node is not asked for a coding, whatever the client accepts.
    pub(in crate::exchange) asks_identity: bool,
    pub(in crate::exchange) gate: Gate,
    /// Longer answers are not stored. Bytes.
    pub(in crate::exchange) max_entry: usize,
    /// They may be sent when they have expired.
    pub(in crate::exchange) keeps_stale: bool,
    /// Of a call that tells chains apart: the request headers that may choose the chain.
    pub(in crate::exchange) selector: Option<u64>,
    /// Request headers are in keys, and may choose the chain.
    pub(in crate::exchange) has_keyed_fields: bool,
}

impl Fill {
    pub(in crate::exchange) fn new(
        what: What,
        scope: Scope,
        token: Option<Token>,
        shared: Arc<Shared>,
        settings: Settings,
    ) -> Self {
        Self {
            what,
            scope,
            token,
            tokens: Vec::new(),
            shared,
            settings,
            rekeyed: false,
            updates: None,
            compared: None,
            denied: false,
            fields: Vec::new(),
            collected: Vec::new(),
            stale: Stale::default(),
            coding: Coding::Identity,
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

    /// Others may wait for the answers of the batch that nobody fetches yet.
    pub(in crate::exchange) fn lead_all(&mut self) {
        let What::Batch(wanted) = &self.what else {
            return;
        };
        let (shared, now) = (&self.shared, self.settings.asked_at);
        let may_share = |key: &Key| shared.unkept.get(key, now) != Some(Unkept::One);
        for wanted in wanted.iter().filter(|wanted| may_share(&wanted.key)) {
            if self.tokens.try_reserve(1).is_err() {
                return;
            }
            self.tokens.extend(shared.flights.lead(wanted.key));
        }
    }

    /// The keys have changed. The flights that it leads end, and those of the new keys
    /// begin: followers look up again, and those whose variant this is follow it there.
    fn move_flights(&mut self, has_keys: bool) {
        let old: Vec<Token> = self
            .token
            .take()
            .into_iter()
            .chain(self.tokens.drain(..))
            .collect();
        let flights = &self.shared.flights;
        if has_keys && !old.is_empty() {
            match &self.what {
                What::Batch(wanted) => {
                    let led = wanted.iter().filter_map(|wanted| flights.lead(wanted.key));
                    self.tokens.extend(led);
                }
                What::Call(_) | What::Resource(_) => {
                    self.token = self.what.key().and_then(|key| flights.lead(key));
                }
            }
        }
        self.rekeyed = self.token.is_none() && self.tokens.is_empty();
        for token in old {
            self.shared.finish(token, Outcome::Alone);
        }
    }

    /// Whether with so many bytes more it is too long to be stored.
    pub(in crate::exchange) fn is_beyond(&self, more: usize) -> bool {
        self.collected.len().saturating_add(more) > self.settings.max_entry
    }

    /// A piece of a body that goes to the client meanwhile. `false`: there is
    /// no memory for it.
    pub(in crate::exchange) fn collect(
        &mut self,
        piece: &[u8],
        budget: &Budget,
        limit: usize,
    ) -> bool {
        if memory::is_short() || self.is_beyond(piece.len()) {
            return false;
        }
        self.limit = limit;
        let length = self.collected.len() + piece.len();
        let room = match self.collected.capacity() {
            enough if enough >= length => enough,
            little => length.max(little.saturating_mul(2).min(self.settings.max_entry)),
        };
        let reserved = match &mut self.reservation {
            Some(reservation) => reservation.grow_to(room, limit),
            None => {
                self.reservation = budget.reserve(room, limit);
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

    /// Whether `bytes` more than the collected body may be allocated. Where a body is
    /// built that was not collected its exchange has reserved memory for it, and the limit
    /// is `cache_max_entry`.
    fn may_take(&mut self, beside: usize, bytes: usize) -> bool {
        let needed = beside.saturating_add(bytes);
        let has_room = match &mut self.reservation {
            Some(reservation) => reservation.grow_to(needed, self.limit),
            None => bytes <= self.settings.max_entry,
        };
        has_room && memory::is_there(bytes)
    }

    /// Why there is nothing to store, once that was tried.
    pub(in crate::exchange) fn refused(&self) -> Option<Reason> {
        self.refused
    }

    /// The root that was asked for.
    pub(in crate::exchange) fn root(&self) -> Option<Root> {
        match &self.what {
            What::Resource(resource) => resource.root,
            What::Call(_) | What::Batch(_) => None,
        }
    }

    /// Whether the node's answer has a content coding.
    pub(in crate::exchange) fn is_coded(&self) -> bool {
        self.coding != Coding::Identity
    }

    /// Whether the bytes on the wire can be stored, or decoded for that.
    pub(in crate::exchange) fn takes_coded(&self) -> bool {
        self.coding != Coding::Identity
    }

    /// The entity tag that was made for what will be stored.
    pub(in crate::exchange) fn tag(&self) -> Option<Vec<u8>> {
        let fields = &self.entries.first()?.entry.meta().fields;
        let mut tags = fields
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"etag"));
        tags.next().map(|(_, tag)| tag.clone())
    }

    /// The body has been decoded.
    pub(in crate::exchange) fn decoded(&mut self) {
        self.coding = Coding::Identity;
    }

    /// Whether nobody else fetches the same meanwhile.
    pub(in crate::exchange) fn leads(&self) -> bool {
        self.token.is_some() && !self.rekeyed
    }

    /// What is to be stored, whatever comes. `valid` in milliseconds.
    pub(in crate::exchange) fn keep(&mut self, entry: Entry, valid: u64) {
        let key = self.what.key().unwrap_or_default();
        self.entries = vec![Built {
            key,
            entry,
            valid,
            method: None,
            shows: None,
            if_final: None,
            is_read: true,
        }];
        self.built = true;
    }

    pub(in crate::exchange) fn mark(&self) -> Option<&Mark> {
        self.settings.mark.as_ref()
    }
}
