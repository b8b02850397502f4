//! An answer on its way into the cache.

use std::sync::Arc;

use super::batch::{by_id, counted};
use super::coding::off_loop_length;
use super::head::{is_bytewise, Coding, Field, ResponseHead};
use super::resource::{key_of, tag_of, Resource};
use crate::beacon::Route;
use crate::bytes::{copy_of, push};
use crate::cache::chain::{Mark, Stamp};
use crate::cache::class::Class;
use crate::cache::entry::about::About;
use crate::cache::entry::{Entry, Envelope, Gate, IdPlace, Meta};
use crate::cache::freshness::{Came, IfFinal, Judged, Known, Prospect, Valid};
use crate::cache::http::{self, Stale};
use crate::cache::process::flights::{self, Token};
use crate::cache::process::repeated::Said;
use crate::cache::process::unkept::Unkept;
use crate::cache::process::varying::Learnt;
use crate::cache::process::Shared;
use crate::cache::reason::Reason;
use crate::cache::scope::{Fields, Scope};
use crate::cache::{Key, Namespace};
use crate::gzip::inflate;
use crate::jsonrpc::block::ResultBlock;
use crate::jsonrpc::outline::outline;
use crate::jsonrpc::request::Call;
use crate::jsonrpc::response::{self, Outcome, Response};
use crate::jsonrpc::scan;
use crate::memory::{self, Budget, Reservation};
use crate::negotiate::etag::weakened;
use crate::negotiate::list::members;
use crate::negotiate::media_type::{self, MediaTypes};

/// Answers of at least so many bytes are not read strictly before they are
/// asked for again. Below, reading takes two microseconds at the most.
const UNREAD: usize = 8 << 10;

/// An answer to a call that is to be stored.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) key: Key,
    /// As it stood in the request.
    pub(super) id: Vec<u8>,
    pub(super) method: Vec<u8>,
    pub(super) params: Option<Vec<u8>>,
    pub(super) prospect: Prospect,
}

impl Wanted {
    pub(super) fn new(call: &Call<'_>, id: &[u8], key: Key, prospect: Prospect) -> Self {
        Self {
            key,
            id: id.to_vec(),
            method: call.method.to_vec(),
            params: call.params.map(<[u8]>::to_vec),
            prospect,
        }
    }
}

/// What an answer is to.
#[derive(Debug)]
pub(super) enum What {
    Call(Wanted),
    /// Those of a batch that may be stored; no two have the same id.
    Batch(Vec<Wanted>),
    Resource(Resource),
}

impl What {
    /// The key, if there is only one.
    pub(super) fn key(&self) -> Option<Key> {
        match self {
            What::Call(wanted) => Some(wanted.key),
            What::Resource(resource) => Some(resource.key),
            What::Batch(_) => None,
        }
    }

    /// Keys for what answers turned out to depend on.
    fn rekey(&mut self, scope: &Scope) -> bool {
        let calls = match self {
            What::Resource(resource) => {
                resource.key = key_of(scope, &resource.name);
                return true;
            }
            What::Call(wanted) => std::slice::from_mut(wanted),
            What::Batch(wanted) => &mut wanted[..],
        };
        let keys = scope.keys();
        calls.iter_mut().all(|wanted| {
            keys.key(&wanted.method, wanted.params.as_deref())
                .map(|key| wanted.key = key.0)
                .is_ok()
        })
    }
}

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
    pub(super) rekeyed: bool,
    /// What has expired, and is sent until there is something newer.
    pub(super) updates: Option<(Key, Arc<Entry>)>,
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
    /// Why there are none.
    refused: Option<Reason>,
}

/// An entry, where it belongs, and for how many milliseconds it is fresh.
#[derive(Debug)]
struct Built {
    key: Key,
    entry: Entry,
    valid: u64,
    method: Option<Vec<u8>>,
    if_final: Option<IfFinal>,
}

/// How entries are made at a place.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// When the node was asked, in milliseconds: an answer is as old as its
    /// question, however long the client takes to read it.
    pub(super) asked_at: u64,
    /// The last purge that was known then.
    pub(super) generation: u64,
    /// The last change that was known then.
    pub(super) changes: u64,
    pub(super) namespace: Namespace,
    /// What was known of the chain then, if it is followed.
    pub(super) mark: Option<Mark>,
    pub(super) valid: Arc<Valid>,
    /// The node is not asked for a coding, whatever the client accepts.
    pub(super) asks_identity: bool,
    pub(super) gate: Gate,
    /// Longer answers are not stored. Bytes.
    pub(super) max_entry: usize,
    /// They may be sent when they have expired.
    pub(super) keeps_stale: bool,
}

impl Fill {
    pub(super) fn new(
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
            denied: false,
            fields: Vec::new(),
            collected: Vec::new(),
            stale: Stale::default(),
            coding: Coding::Identity,
            reservation: None,
            limit: 0,
            entries: Vec::new(),
            built: false,
            refused: None,
        }
    }

    /// Others may wait for the answers of the batch that nobody fetches yet.
    pub(super) fn lead_all(&mut self) {
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

    /// Whether an answer with this head may be stored. `asked` is the head of
    /// the request, `types` are to be compressed.
    pub(super) fn accepts<'a, I>(
        &mut self,
        head: &ResponseHead<I>,
        asked: &Fields,
        types: &MediaTypes,
    ) -> Result<(), Reason>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let most = self.settings.max_entry as u64;
        if head.content_length.is_some_and(|length| length > most) {
            return Err(Reason::Length);
        }
        let (said, varies, content_type) = self.read(head)?;
        self.stale = said.stale;
        if said.forbidden || said.lifetime == Some(0) {
            return Err(Reason::CacheControl);
        }
        match self.coding {
            Coding::Identity => {}
            // it is stored as if it had not been coded
            Coding::Gzip => self.recode(),
            // what comes unasked comes to all
            Coding::Other if self.settings.asks_identity && !varies.is_negotiated() => {}
            Coding::Other => return Err(Reason::Coding),
        }
        let is_coded = self.coding == Coding::Other;
        let is_json = media_type::is_json(content_type);
        match &mut self.what {
            What::Resource(resource) => {
                resource.said = said;
                resource.status = head.status;
                resource.undelimited =
                    !head.delimited && head.content_length.is_none() && head.status != 204;
                resource.compresses = !is_coded && types.contains(content_type);
                if !http::is_storable(head.status) {
                    return Err(Reason::Status);
                }
                let by_route = !is_coded && head.status == 200 && is_json;
                if said.lifetime.is_none() && !by_route {
                    return Err(Reason::Lifetime);
                }
            }
            What::Call(_) | What::Batch(_) if is_coded => return Err(Reason::Coding),
            What::Call(_) | What::Batch(_) if head.status != 200 => return Err(Reason::Status),
            What::Call(_) | What::Batch(_) if !is_json => return Err(Reason::Type),
            What::Call(_) | What::Batch(_) => {}
        }
        match varies.names() {
            Some(names) if self.depends_on(&names, asked) => Ok(()),
            _ => Err(Reason::Vary),
        }
    }

    /// What a head says of storing, what it varies on, and its media type. Takes
    /// the fields that hits carry.
    fn read<'a, I>(
        &mut self,
        head: &ResponseHead<I>,
    ) -> Result<(http::Said, http::Varies, &'a [u8]), Reason>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let is_call = !matches!(self.what, What::Resource(_));
        let mut reader = http::Reader::default();
        let mut varies = http::Varies::default();
        let mut content_type: &[u8] = b"";
        for (name, value) in head.fields.clone() {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            reader.read(name, value);
            varies.read(name, value);
            if is("set-cookie") {
                return Err(Reason::SetCookie);
            } else if is("cache-control") {
                // it may be coded, and is not the same bytes then
                if members(value).any(|one| one.eq_ignore_ascii_case(b"no-transform")) {
                    return Err(Reason::NoTransform);
                }
            } else if is("content-type") {
                content_type = value;
            } else if is("content-encoding") {
                self.coding.read(value);
            }
            if is_call && is_carried(name) || !is_call && http::is_stored_field(name) {
                self.carry(name, value);
            }
        }
        Ok((reader.said(head.now), varies, content_type))
    }

    /// What is stored will not be the bytes that the node sent.
    fn recode(&mut self) {
        self.fields.retain(|(name, _)| {
            !is_bytewise(name) && !name.eq_ignore_ascii_case(b"content-encoding")
        });
        for (name, value) in &mut self.fields {
            if name.eq_ignore_ascii_case(b"etag") {
                if let Some(weak) = weakened(value) {
                    *value = weak;
                }
            }
        }
    }

    /// Whether it can be kept, where it depends on these fields of the request
    /// (in lower case).
    pub(super) fn depends_on(&mut self, varies: &[String], asked: &Fields) -> bool {
        match self.shared.varying.learn(&self.scope, varies) {
            Learnt::Covered => true,
            Learnt::New(names) => {
                self.scope.vary(asked, Some(names));
                self.rekeyed = true;
                self.what.rekey(&self.scope)
            }
            Learnt::TooMany => false,
        }
    }

    /// Several lines of a field are one (RFC 9110, 5.3).
    fn carry(&mut self, name: &[u8], value: &[u8]) {
        let mut known = self.fields.iter_mut();
        match known.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, line)) => {
                line.extend_from_slice(b", ");
                line.extend_from_slice(value);
            }
            None => self.fields.push((name.to_vec(), value.to_vec())),
        }
    }

    /// Whether with so many bytes more it is too long to be stored.
    pub(super) fn is_beyond(&self, more: usize) -> bool {
        self.collected.len().saturating_add(more) > self.settings.max_entry
    }

    /// A piece of a body that goes to the client meanwhile. `false`: there is
    /// no memory for it.
    pub(super) fn collect(&mut self, piece: &[u8], budget: &Budget, limit: usize) -> bool {
        if memory::is_short()
            || self.is_beyond(piece.len())
            || self.collected.try_reserve(piece.len()).is_err()
        {
            return false;
        }
        self.limit = limit;
        let taken = self.collected.capacity();
        let reserved = match &mut self.reservation {
            Some(reservation) => reservation.grow_to(taken, limit),
            None => {
                self.reservation = budget.reserve(taken, limit);
                self.reservation.is_some()
            }
        };
        if reserved {
            self.collected.extend_from_slice(piece);
        }
        reserved
    }

    /// Makes entries of the body that was collected. May take milliseconds
    /// for each megabyte.
    pub fn build(&mut self) {
        if !self.built && !memory::is_short() {
            let mut body = std::mem::take(&mut self.collected);
            if self.coding == Coding::Gzip {
                let Some(plain) = self.gunzip(&body) else {
                    return;
                };
                body = plain;
                self.decoded();
            }
            self.build_from(&body, &mut Vec::new());
        }
    }

    /// What was collected as it went to the client, coded.
    fn gunzip(&mut self, coded: &[u8]) -> Option<Vec<u8>> {
        let length = inflate::claimed_length(coded);
        let needed = coded.len().checked_add(length)?;
        let is_there = length <= self.settings.max_entry
            && memory::is_there(needed)
            && self.reservation.as_mut()?.grow_to(needed, self.limit);
        inflate::gunzip(coded, length).ok().filter(|_| is_there)
    }

    /// The same of a body, unless that was tried.
    pub(super) fn build_from_once(&mut self, body: &[u8]) {
        if !self.built {
            self.build_from(body, &mut Vec::new());
        }
    }

    /// Whether [`Fill::build`] will take so long that an event loop should
    /// not wait for it.
    pub fn is_long(&self) -> bool {
        let length = match self.coding {
            Coding::Gzip => inflate::claimed_length(&self.collected),
            _ => self.collected.len(),
        };
        length > off_loop_length(self.settings.gate.level)
    }

    /// Makes entries of a body. If there is one for all of it, it is given
    /// back, to be sent, and the id to send it under. `room` is to work in.
    pub(super) fn build_from(
        &mut self,
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Option<(&Entry, Vec<u8>)> {
        self.built = true;
        if self.coding == Coding::Gzip {
            // it could not be decoded
            return None;
        }
        self.entries = match &self.what {
            What::Batch(wanted) => self.of_batch(wanted, body, room),
            What::Call(wanted) => self.of_call(wanted, body, room).into_iter().collect(),
            What::Resource(resource) => {
                self.of_resource(resource, body, room).into_iter().collect()
            }
        };
        let has_nothing = self.entries.iter().all(|built| built.entry.is_nothing());
        self.denied = has_nothing && self.updates.is_some() && self.denies(body);
        if has_nothing {
            self.refused = Some(self.why_nothing(body));
        }
        let id = match &self.what {
            What::Batch(_) => return None,
            What::Call(wanted) => wanted.id.clone(),
            What::Resource(_) => Vec::new(),
        };
        let built = self.entries.first()?;
        Some((&built.entry, id))
    }

    /// Whether a whole answer is none that could ever be stored.
    fn denies(&self, body: &[u8]) -> bool {
        match &self.what {
            What::Call(wanted) => response::parse(body).is_ok_and(|answer| {
                body[answer.id.clone()] == wanted.id
                    && match answer.outcome {
                        Outcome::Result(result) => self.judge(wanted, &body[result]).is_none(),
                        Outcome::Error(_) => true,
                    }
            }),
            What::Resource(resource) => {
                resource.said.lifetime.is_none()
                    && scan::check(body).is_ok()
                    && resource
                        .route
                        .judge(body, &resource.valid, self.mark())
                        .is_none()
            }
            What::Batch(_) => false,
        }
    }

    /// Why a whole answer gives nothing to store.
    fn why_nothing(&self, body: &[u8]) -> Reason {
        match &self.what {
            // whoever sends so much of it wastes no more of our time
            What::Call(_) if body.len() > UNREAD => Reason::Result,
            What::Call(_) => match response::parse(body) {
                Ok(answer) => match answer.outcome {
                    Outcome::Result(_) => Reason::Result,
                    Outcome::Error(_) => Reason::Error,
                },
                Err(_) => Reason::Malformed,
            },
            What::Batch(_) | What::Resource(_) => Reason::Result,
        }
    }

    /// Why there is nothing to store, once that was tried.
    pub(super) fn refused(&self) -> Option<Reason> {
        self.refused
    }

    /// Whether the node's answer has a content coding.
    pub(super) fn is_coded(&self) -> bool {
        self.coding != Coding::Identity
    }

    fn of_batch(&self, wanted: &[Wanted], body: &[u8], room: &mut Vec<u8>) -> Vec<Built> {
        let mut built = Vec::new();
        let Ok(answers) = response::parse_batch(body) else {
            return built;
        };
        // answers come in any order; an id that is there twice says nothing
        // about which is which
        let Some(ids) = counted(answers.iter().map(|answer| &body[answer.id.clone()])) else {
            return built;
        };
        let mut asked = by_id();
        if asked.try_reserve(wanted.len()).is_err() {
            return built;
        }
        asked.extend(wanted.iter().map(|wanted| (&wanted.id[..], wanted)));
        for answer in &answers {
            let id = &body[answer.id.clone()];
            let wanted = asked.get(id).filter(|_| ids.get(id) == Some(&1));
            let entry = wanted.and_then(|wanted| self.answer(wanted, body, answer, room));
            if entry.is_some_and(|entry| push(&mut built, entry).is_none()) {
                break;
            }
        }
        built
    }

    fn of_call(&self, wanted: &Wanted, body: &[u8], room: &mut Vec<u8>) -> Option<Built> {
        if body.len() >= UNREAD {
            if let Some(outline) = outline(body, &wanted.id) {
                let built = self.answer(wanted, body, &outline, room)?;
                let entry = built.entry.unread();
                return Some(Built { entry, ..built });
            }
        }
        let answer = response::parse(body).ok()?;
        if body[answer.id.clone()] != wanted.id {
            return None;
        }
        // what is outside the answer, a newline perhaps, is stored with it
        let whole = Response {
            span: 0..body.len(),
            ..answer
        };
        self.answer(wanted, body, &whole, room)
    }

    fn answer(
        &self,
        wanted: &Wanted,
        body: &[u8],
        answer: &Response,
        room: &mut Vec<u8>,
    ) -> Option<Built> {
        let (result, judged) = match answer.outcome.clone() {
            Outcome::Result(result) => {
                let judged = self.judge(wanted, &body[result.clone()]);
                let believed = |judged| self.believed(judged, &wanted.key, &body[result.clone()]);
                let judged = judged.and_then(believed);
                (result, judged)
            }
            // what it is, not what is in it, is all that a copy has to keep
            Outcome::Error(error) => (error, None),
        };
        let judged = match judged {
            Some(judged) => judged,
            None => self.judge_nothing(wanted, body, &answer.outcome)?,
        };
        let (id, first, second) = if answer.id.start < result.start {
            (IdPlace::BeforeResult, &answer.id, &result)
        } else {
            (IdPlace::AfterResult, &result, &answer.id)
        };
        let envelope = Envelope {
            id,
            before: copy_of(&body[answer.span.start..first.start])?.into(),
            between: copy_of(&body[first.end..second.start])?.into(),
            after: copy_of(&body[second.end..answer.span.end])?.into(),
        };
        let meta = Meta {
            status: 200,
            fields: self.fields.clone(),
            ..self.meta(Some(judged))
        };
        let entry = Entry::code_in(envelope, &body[result], self.settings.gate, meta, room)?;
        Some(Built {
            key: wanted.key,
            entry,
            valid: judged.valid,
            method: Some(wanted.method.clone()),
            if_final: judged.if_final,
        })
    }

    fn judge(&self, wanted: &Wanted, result: &[u8]) -> Option<Judged> {
        let judged = wanted.prospect.judge(result, self.known(wanted));
        judged.filter(|judged| !judged.of.is_some_and(|block| self.contradicts(&block)))
    }

    /// What an answer is kept as of which there is nothing to keep; `None`:
    /// nobody has a use for it.
    fn judge_nothing(&self, wanted: &Wanted, body: &[u8], outcome: &Outcome) -> Option<Judged> {
        let came = match outcome {
            Outcome::Result(result) => Came::Result(&body[result.clone()]),
            Outcome::Error(error) => Came::Error(&body[error.clone()]),
        };
        let judged = wanted.prospect.nothing(came, self.known(wanted));
        let is_led = self.token.is_some() || !self.tokens.is_empty();
        (judged.valid > 0 || is_led).then_some(judged)
    }

    fn known<'a>(&'a self, wanted: &'a Wanted) -> Known<'a> {
        Known {
            params: wanted.params.as_deref(),
            mark: self.mark(),
            valid: &self.settings.valid,
        }
    }

    /// What may be cut short, as what it is kept now; `None`: not yet.
    fn believed(&self, judged: Judged, key: &Key, result: &[u8]) -> Option<Judged> {
        let Some(valid) = judged.if_repeated else {
            return Some(judged);
        };
        let epoch = self.mark().map_or(0, Mark::epoch);
        let said = Said::new(
            result,
            self.settings.asked_at,
            self.settings.generation,
            epoch,
        );
        if self.shared.repeated.confirms(key, said) {
            let class = Class::Immutable;
            return Some(Judged {
                class,
                valid,
                ..judged
            });
        }
        (judged.valid > 0).then_some(judged)
    }

    /// Whether an answer is of a block that is none of the chain, as far as is
    /// known now: of several nodes one may be on another branch.
    fn contradicts(&self, block: &ResultBlock) -> bool {
        let owner = self.shared.owner().filter(|_| self.mark().is_some());
        let chain = owner.and_then(|owner| owner.chains().get(&self.settings.namespace));
        let hash = block.hash.as_ref();
        chain
            .zip(hash)
            .is_some_and(|(chain, hash)| chain.contradicts(block.number, hash))
    }

    fn mark(&self) -> Option<&Mark> {
        self.settings.mark.as_ref()
    }

    /// What is known of an entry that is kept as that; `None`: it says its own
    /// lifetime.
    fn meta(&self, judged: Option<Judged>) -> Meta {
        Meta {
            class: judged.map_or(Class::Resource, |judged| judged.class),
            block_number: judged.and_then(|judged| judged.block),
            follows: self
                .mark()
                .map(|mark| (self.settings.namespace, mark.epoch())),
            height: judged.and_then(|judged| judged.height),
            stale: match self.what {
                What::Resource(_) => self.stale,
                // what RFC 5861 allows is of resources
                What::Call(_) | What::Batch(_) => Stale {
                    never: self.stale.never,
                    ..Stale::default()
                },
            },
            ..Meta::default()
        }
    }

    fn of_resource(&self, resource: &Resource, body: &[u8], room: &mut Vec<u8>) -> Option<Built> {
        if resource.undelimited && scan::check(body).is_err() {
            return None;
        }
        let (judged, valid) = match resource.said.lifetime {
            Some(lifetime) => (None, lifetime),
            None => {
                let route = resource.route;
                let judged = route.judge(body, &resource.valid, self.mark());
                let judged = judged.or_else(|| self.nothing_of(resource))?;
                (Some(judged), judged.valid)
            }
        };
        let mut fields = self.fields.clone();
        let has = |validator: &str| {
            let mut names = self.fields.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(validator.as_bytes()))
        };
        if !has("etag") && resource.status == 200 {
            fields.push((b"ETag".to_vec(), tag_of(body)));
        }
        let meta = Meta {
            status: resource.status,
            fields,
            age: resource.said.age,
            revalidates: resource.status == 200 && (has("etag") || has("last-modified")),
            ..self.meta(judged)
        };
        let gate = Gate {
            min_length: if resource.compresses {
                self.settings.gate.min_length
            } else {
                u64::MAX
            },
            ..self.settings.gate
        };
        let entry = Entry::code_in(Envelope::none(), body, gate, meta, room)?;
        Some(Built {
            key: resource.key,
            entry,
            valid,
            method: None,
            if_final: None,
        })
    }

    /// A whole answer that is not kept, for those who wait for it.
    fn nothing_of(&self, resource: &Resource) -> Option<Judged> {
        let is_known = resource.route != Route::Other;
        (is_known && self.token.is_some()).then_some(Judged {
            class: Class::Nothing,
            valid: 0,
            block: None,
            height: self.mark().map(|mark| mark.seen),
            of: None,
            if_final: None,
            if_repeated: None,
        })
    }

    /// The body has been decoded.
    pub(super) fn decoded(&mut self) {
        self.coding = Coding::Identity;
    }

    /// Whether nobody else fetches the same meanwhile.
    pub(super) fn leads(&self) -> bool {
        self.token.is_some() && !self.rekeyed
    }

    /// Whether the bytes on the wire can be stored, or decoded for that.
    pub(super) fn takes_coded(&self) -> bool {
        self.coding != Coding::Identity
    }

    /// What is to be stored, whatever comes. `valid` in milliseconds.
    pub(super) fn keep(&mut self, entry: Entry, valid: u64) {
        let key = self.what.key().unwrap_or_default();
        self.entries = vec![Built {
            key,
            entry,
            valid,
            method: None,
            if_final: None,
        }];
        self.built = true;
    }

    /// Stores what was built, and lets go on who waits for it. `now` is in
    /// milliseconds of the look-ups' clock.
    pub fn publish(mut self, now: u64) {
        let mut outcome = flights::Outcome::Alone;
        // while memory is short nothing is stored, here or with the owner
        let entries = std::mem::take(&mut self.entries);
        let is_short = memory::is_short();
        let stores = !entries.is_empty() && !is_short;
        if !is_short && self.built && !stores {
            self.remember_unkept(Unkept::One);
        }
        for built in entries.into_iter().filter(|_| stores) {
            let key = built.key;
            let (entry, is_current) = self.publish_one(built, now);
            if now >= entry.meta().expires_at {
                self.remember_unkept(Unkept::Waiters);
            }
            if self.rekeyed || !is_current {
                continue;
            }
            if let Some(n) = self.tokens.iter().position(|token| token.is_of(&key)) {
                let token = self.tokens.swap_remove(n);
                let outcome = flights::Outcome::Answer(Arc::clone(&entry));
                self.shared.finish(token, outcome);
            }
            if self.is_of_flight(&key) {
                outcome = flights::Outcome::Answer(entry);
            }
        }
        if let (true, Some((key, entry)), Some(hot)) =
            (self.denied, &self.updates, self.shared.hot())
        {
            hot.remove_this(key, entry);
        }
        self.land(outcome);
    }

    /// The entry, and whether it is of after the last purge. Those who wait for
    /// it see for themselves whether it is an answer to them.
    fn publish_one(&self, built: Built, now: u64) -> (Arc<Entry>, bool) {
        let Settings {
            asked_at,
            generation,
            changes,
            namespace,
            keeps_stale,
            ..
        } = self.settings;
        let mut entry = built.entry.stored(asked_at, built.valid).after(changes);
        if let Some(owner) = self.shared.owner() {
            entry = entry.among(owner.chains());
        }
        if let Some(stamp) = entry.stamp() {
            // what is of an older head ends with it
            stamp.tell();
        }
        let entry = Arc::new(entry);
        if keeps_stale {
            entry.keep_stale();
        }
        let is_untouched = || entry.stamp().is_none_or(Stamp::is_untouched);
        let is_current = || self.shared.generation() == generation && is_untouched();
        let is_fresh = entry.is_fresh(now);
        if let (Some(hot), true) = (self.shared.hot(), is_current()) {
            // one that has expired may be sent, too: never an older one after it
            let is_newest = hot.stale(&built.key).is_none_or(|other| {
                other.meta().stored_at <= asked_at || is_fresh && !other.is_fresh(now)
            });
            if is_newest && (is_fresh || entry.is_of_use_stale(now)) {
                hot.insert(built.key, Arc::clone(&entry));
                if !is_current() {
                    // a purge came between
                    hot.remove(&built.key);
                }
            }
        }
        if let Some(owner) = self.shared.owner() {
            if !is_fresh {
                // others wait for it under a lease
                owner.give_back(built.key);
                let is_current = self.shared.generation() == generation;
                return (entry, is_current);
            }
            match About::of(&entry, namespace, built.method.as_deref(), generation) {
                Some(about) => owner.store(built.key, Arc::clone(&entry), about, built.if_final),
                None => owner.give_back(built.key),
            }
        }
        let is_current = self.shared.generation() == generation;
        (entry, is_current)
    }

    /// Whether those who wait wait for that key.
    fn is_of_flight(&self, key: &Key) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_of(key))
    }

    /// Nothing will be stored: who waits goes to the node.
    pub(super) fn refuse(mut self) {
        self.land(flights::Outcome::Alone);
    }

    /// The same, and the next answer will be no other: nobody is to wait for
    /// it.
    pub(super) fn refuse_for_now(self) {
        self.remember_unkept(Unkept::One);
        self.refuse();
    }

    fn remember_unkept(&self, unkept: Unkept) {
        if let (Some(key), false) = (self.what.key(), self.rekeyed) {
            self.shared.unkept.remember(&key, unkept);
        }
    }

    fn land(&mut self, outcome: flights::Outcome) {
        if let Some(token) = self.token.take() {
            self.shared.finish(token, outcome);
        }
        for token in self.tokens.drain(..) {
            self.shared.finish(token, flights::Outcome::Alone);
        }
    }
}

impl Drop for Fill {
    /// The request ended before its answer did: the next that waits takes
    /// over.
    fn drop(&mut self) {
        for token in self.token.take().into_iter().chain(self.tokens.drain(..)) {
            self.shared.hand_on(token);
        }
    }
}

/// Fields of an answer to a call that its copies carry too.
fn is_carried(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 2] = [b"access-control-", b"eth-"];
    const NAMES: [&[u8]; 2] = [b"content-type", b"vary"];
    PREFIXES.iter().any(|prefix| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    }) || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}
