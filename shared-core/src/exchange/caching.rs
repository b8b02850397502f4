//! Looking up stored answers, before the node is asked.

use std::sync::Arc;

use super::batch::Mixed;
use super::calls::{Calls, Place};
use super::changing::Changing;
use super::fill::{Fill, Settings, Wanted, What};
use super::head::{CacheKind, Field, HeadEdit, ResponseHead};
use super::hit::Decoding;
use super::phase::{Answer, Phase};
use super::standing_in::{Failed, StandIn};
use super::transitions::Event;
use super::waits::{Awaited, Since, Waits};
use super::{Exchange, HeadAction, Misuse, State};
use crate::cache::chain::Mark;
use crate::cache::entry::{Entry, Gate};
use crate::cache::process::flights::{Outcome, Role, Token, Turn};
use crate::cache::process::hot::Hot;
use crate::cache::process::ownership::Owner;
use crate::cache::process::unkept::Unkept;
use crate::cache::process::wake::Waiter;
use crate::cache::process::Shared;
use crate::cache::reason::Reason;
use crate::cache::scope::{self, Scope};
use crate::cache::status::CacheStatus;
use crate::cache::{Key, Namespace};
use crate::config::{Credentials, UpstreamEncoding};
use crate::jsonrpc::request::{Call, Refusal, Request};
use crate::memory;
use crate::mode::Mode;

/// How long a request's body is, for all that its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// So many bytes; 0: there is none.
    Known(u64),
    /// That will be known at its end.
    Unknown,
}

/// What a look-up needs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// There will be none: send the request to the node.
    Nothing,
    /// Nothing more: look it up.
    LookUp,
    /// The request's body, in no content coding: read it, then look it up.
    Body,
}

/// A look-up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// What keeps answers of one chain apart from those of another, where the
    /// operator says it.
    pub namespace: Option<&'a [u8]>,
    /// What else chooses the answer, where the operator does not say it: which
    /// node the request goes to, as the configuration names it. It is the same
    /// after a restart; with the port, the host and the target of the request
    /// it is the namespace.
    pub place: &'a [u8],
    /// The host that is asked, as the proxy itself reads it: a target in
    /// absolute form wins over the `Host` field (RFC 9112, 3.2.2).
    pub host: &'a [u8],
    /// The port on which the proxy was asked.
    pub port: u16,
    /// The request's body, whole.
    pub body: &'a [u8],
    /// Milliseconds, of any clock that does not run backwards.
    pub now: u64,
    /// Milliseconds of the machine's monotonic clock, read for this call;
    /// only where the process is linked to the owner of a store.
    pub monotonic: u64,
    /// The host's own rules allow a content coding here.
    pub coding_allowed: bool,
    /// Of a batch the node is to be asked for all or nothing: the host may change
    /// what it answers, and what is stored is not changed with it.
    pub whole: bool,
    /// The host writes `Vary: Accept-Encoding` itself when told to.
    pub host_writes_vary: bool,
    /// The host's configuration tells the node which codings the client accepts,
    /// whatever the upstream edits say.
    pub forwards_codings: bool,
    /// Where this request waits, and by what its host knows it there when it is
    /// to be looked up again; `None`: it will not wait.
    pub waiter: Option<Waiter>,
    /// What is stored is not to be sent; the node's answer replaces it.
    pub bypass: bool,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// Send it to the node.
    Forward,
    /// Send [`Exchange::status`], [`Exchange::head_edits`] as the whole head,
    /// and [`Exchange::body`].
    Respond,
    /// As `Respond`, once [`Exchange::code`] has run on a thread that serves
    /// no connections; if [`Exchange::status`] is 0 then, send it to the node.
    RespondOffLoop,
    /// Send it to the node, with [`Exchange::request_body`] as its body.
    ForwardRewritten,
    /// The answer is on its way for another request: look up again when this one
    /// is woken. A batch may then have to wait once more: first for what others
    /// have, then for what they fetch.
    Wait,
}

/// The same, with what the next state needs.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Answer(Box<Answer>),
    ToDecode(Box<Decoding>),
    Part(Box<Mixed>),
    OnItsWay(Box<Waits>),
}

/// What a look-up has found out, and is of account later.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// When it was, and what the host said then.
    pub(super) at: u64,
    pub(super) may_code: bool,
    pub(super) host_writes_vary: bool,
    pub(super) rpc_method: Vec<u8>,
    pub(super) batch_size: Option<usize>,
    /// Of these, answers that came from the cache.
    pub(super) batch_hits: usize,
    /// What a single answer is stored under.
    pub(super) key: Option<Key>,
    /// As what else than a hit a stored answer is given out.
    pub(super) given_as: Option<CacheStatus>,
    /// What may be sent in place of the node's answer.
    pub(super) stand_in: Option<StandIn>,
    /// How the node failed, as the host has said.
    pub(super) failed: Option<Failed>,
    /// The status of the node's answer that another one stands in for.
    pub(super) forward_status: Option<u16>,
    /// What the request changes.
    pub(super) changing: Option<Box<Changing>>,
    /// What another exchange is to fetch.
    pub(super) update: Option<Box<Fill>>,
}

/// One answer that is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought<'a> {
    pub(super) key: Key,
    /// What it is to be sent under; `None`: it is a resource.
    pub(super) id: Option<&'a [u8]>,
    /// The node's answer will be all that could be stored.
    pub(super) is_whole: bool,
    /// It is worth waiting for another request's.
    pub(super) coalesces: bool,
}

impl Exchange {
    /// What a look-up needs, of a request with such a body.
    pub fn need(&mut self, length: BodyLength) -> Need {
        let (request, cache) = (&self.request.cache, &self.config.cache);
        let bypasses = request.credentials && cache.credentials == Credentials::Bypass;
        let looks = matches!(self.state(), State::AwaitingHead | State::Waiting);
        if !looks || !self.config.process.shared.keeps() {
            return Need::Nothing;
        }
        let (fits, need) = match request.kind {
            CacheKind::Change => return Need::LookUp,
            CacheKind::None => return Need::Nothing,
            _ if bypasses => return Need::Nothing,
            CacheKind::Resource => (length == BodyLength::Known(0), Need::LookUp),
            CacheKind::Call => {
                let fits = match length {
                    BodyLength::Known(length) => (1..=cache.max_request).contains(&length),
                    BodyLength::Unknown => cache.max_request > 0,
                };
                (fits, Need::Body)
            }
        };
        if !fits {
            self.reason = Reason::RequestLength;
            return Need::Nothing;
        }
        need
    }

    /// Whether a body is too long to be looked up, after all.
    pub(super) fn is_too_long(&self, body: &[u8]) -> bool {
        self.is_call() && body.len() as u64 > self.config.cache.max_request
    }

    /// Whether the request's body says what is asked for.
    pub(super) fn is_call(&self) -> bool {
        self.request.cache.kind == CacheKind::Call
    }

    /// What became of the cache here.
    pub fn cache_status(&self) -> CacheStatus {
        self.cache_status
    }

    /// The method of a single call, as it stood in the request; empty before
    /// the look-up, and for batches.
    pub fn rpc_method(&self) -> &[u8] {
        &self.looked.rpc_method
    }

    /// What the answer is stored under, after the look-up; `None` for batches
    /// and for what is not stored.
    pub fn cache_key(&self) -> Option<&[u8; 32]> {
        self.looked.key.as_ref()
    }

    /// Calls of a batch; `None` if it is none.
    pub fn batch_size(&self) -> Option<usize> {
        self.looked.batch_size
    }

    /// How many of them were answered from the cache.
    pub fn batch_hits(&self) -> usize {
        self.looked.batch_hits
    }

    /// Looks for stored answers to the request.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn look_up(&mut self, asked: Asked<'_>) -> Result<LookUp, Misuse> {
        let waited = self.wake();
        let Phase::AwaitingHead = self.phase else {
            return Err(self.misuse(Event::Miss));
        };
        self.cache_status = CacheStatus::Bypass;
        let found = self.find(&asked, waited);
        let (event, phase, look_up) = match found {
            Found::Nothing => (Event::Miss, Phase::AwaitingHead, LookUp::Forward),
            Found::Answer(answer) => (Event::Hit, Phase::Ready(answer), LookUp::Respond),
            Found::ToDecode(decoding) => (
                Event::HitToDecode,
                Phase::Decoding(decoding),
                LookUp::RespondOffLoop,
            ),
            Found::Part(mixed) => (
                Event::HitInPart,
                Phase::AwaitingPart(mixed),
                LookUp::ForwardRewritten,
            ),
            Found::OnItsWay(waits) => (Event::Wait, Phase::Waiting(waits), LookUp::Wait),
        };
        self.move_on(event, |_| phase)?;
        Ok(look_up)
    }

    fn find(&mut self, asked: &Asked<'_>, waited: Option<Box<Waits>>) -> Found {
        if self.request.cache.kind == CacheKind::Change {
            self.reason = self.request.cache.why;
            self.may_change(asked);
            return Found::Nothing;
        }
        if memory::is_short() || !memory::is_there(room_for(asked.body.len())) {
            self.reason = Reason::Memory;
            return Found::Nothing;
        }
        self.looked.at = asked.now;
        self.config.process.shared.unkept.saw(asked.now);
        self.looked.may_code = asked.coding_allowed;
        self.looked.host_writes_vary = asked.host_writes_vary;
        if self.request.cache.kind == CacheKind::Resource {
            return self.look_up_resource(asked, waited);
        }
        let (config, scope) = (Arc::clone(&self.config), self.scope(asked));
        let mut judge = Calls::new(&config, &scope, asked.body);
        match judge.read(config.cache.batch_max) {
            Ok((Request::Single(call), places)) => {
                let place = places.into_iter().flatten().next();
                self.look_up_call(&call, place, &judge, asked, waited)
            }
            Ok((Request::Batch(calls), places)) => {
                let came = waited.map(|waited| waited.of_batch());
                self.look_up_batch(&calls, places, &judge, asked, came.unwrap_or_default())
            }
            Err(refusal) => {
                self.reason = match refusal {
                    Refusal::LongBatch => Reason::BatchLength,
                    _ => Reason::Malformed,
                };
                // a POST like any other
                self.may_change(asked);
                Found::Nothing
            }
        }
    }

    /// Ends waiting, if it waits: for what, so that this can be claimed.
    fn wake(&mut self) -> Option<Box<Waits>> {
        let mut waits = None;
        if let Phase::Waiting(_) = self.phase {
            // the table has this move
            let _ = self.move_on(Event::Wake, |phase| {
                if let Phase::Waiting(awaited) = phase {
                    waits = Some(awaited);
                }
                Phase::AwaitingHead
            });
        }
        waits
    }

    /// The same, for nothing.
    pub(super) fn stop_waiting(&mut self) {
        drop(self.wake());
    }

    fn look_up_call(
        &mut self,
        call: &Call<'_>,
        place: Option<Place>,
        judge: &Calls<'_>,
        asked: &Asked<'_>,
        waited: Option<Box<Waits>>,
    ) -> Found {
        self.looked.rpc_method = call.method.to_vec();
        let (Some(id), Some(place)) = (call.id, place) else {
            self.reason = match call.id {
                Some(_) => Reason::RpcMethod,
                None => Reason::Notification,
            };
            return Found::Nothing;
        };
        let sought = Sought {
            key: place.key,
            id: Some(id),
            is_whole: true,
            coalesces: true,
        };
        let found = self.seek(&sought, judge.scope(), asked, waited, || {
            What::Call(Wanted::new(call, id, place.key, place.prospect))
        });
        if let Found::Answer(_) | Found::ToDecode(_) = found {
            judge.remember(call, &place);
        }
        found
    }

    /// Looks for one answer. `what` is made only if it is to be fetched.
    pub(super) fn seek(
        &mut self,
        sought: &Sought<'_>,
        scope: &Scope,
        asked: &Asked<'_>,
        waited: Option<Box<Waits>>,
        what: impl FnOnce() -> What,
    ) -> Found {
        let shared = Arc::clone(&self.config.process.shared);
        if !shared.keeps() {
            return Found::Nothing;
        }
        let key = sought.key;
        self.looked.key = Some(key);
        if let Some(waited) = waited {
            return self.after_waiting(*waited, sought, scope, asked, what);
        }
        let trusted = shared.may_send(asked.monotonic);
        if !asked.bypass {
            let hot = shared.hot();
            if let (Some(hot), None) = (hot, sought.id) {
                self.remove_changed(hot, &key, scope);
            }
            let entry = hot.and_then(|hot| hot.get(&key, asked.now));
            if let Some(entry) = entry.filter(|_| trusted) {
                self.keep_stale(&entry);
                self.cache_status = CacheStatus::Miss;
                if let Some(found) = self.give(&key, entry, sought.id, asked) {
                    return found;
                }
            }
            self.cache_status = CacheStatus::Miss;
            if trusted && sought.is_whole {
                self.find_stand_in(sought, asked);
            }
        }
        if asked.bypass {
            self.reason = Reason::Bypass;
        }
        if self.request.cache.no_store {
            self.reason = Reason::RequestNoStore;
        }
        if !sought.is_whole || self.request.cache.no_store {
            // what comes is not what could be stored, or must not be
            return Found::Nothing;
        }
        // what is sent meanwhile is sent because another request fetches it
        let unkept = shared.unkept.get(&key, asked.now);
        let may_share = sought.coalesces && self.config.cache.lock && unkept != Some(Unkept::One);
        let coalesces = may_share || self.may_send_stale(asked);
        let asks = coalesces || shared.owner().is_some_and(Owner::is_up);
        let since = self.since(scope);
        let token = match asked.waiter {
            Some(waiter) if asks && !asked.bypass => {
                // what is not kept here is not kept elsewhere either
                let in_vain = unkept.is_some();
                match take_part(&shared, key, waiter, coalesces, in_vain, asked.now) {
                    Part::Leads(Some(token)) if trusted => {
                        // another event loop may have landed it since this looked
                        match self.landed(&key, sought, scope, asked) {
                            Some(entry) => {
                                shared.finish(token, Outcome::Answer(Arc::clone(&entry)));
                                if let Some(found) = self.give(&key, entry, sought.id, asked) {
                                    return found;
                                }
                                None
                            }
                            None => Some(token),
                        }
                    }
                    Part::Leads(token) => token,
                    Part::Follows if self.may_send_stale(asked) => {
                        shared.leave(&key, waiter);
                        if let Some(found) = self.give_stale(CacheStatus::Updating, asked) {
                            return found;
                        }
                        None
                    }
                    Part::Follows | Part::Asks => {
                        let awaited = Awaited::Answer(key, since);
                        return Found::OnItsWay(Waits::new(&shared, waiter, awaited));
                    }
                }
            }
            _ => None,
        };
        self.fetch(self.new_fill(what(), scope.clone(), token, asked), asked)
    }

    /// What is there now.
    fn landed(
        &self,
        key: &Key,
        sought: &Sought<'_>,
        scope: &Scope,
        asked: &Asked<'_>,
    ) -> Option<Arc<Entry>> {
        let entry = self.config.process.shared.hot()?.get(key, asked.now)?;
        self.keep_stale(&entry);
        Some(entry).filter(|entry| sought.id.is_some() || !self.is_changed(entry, scope))
    }

    /// What was changed must not be revalidated either: its tag may be the same.
    fn remove_changed(&self, hot: &Hot, key: &Key, scope: &Scope) {
        if self.config.process.shared.changes.last() == 0 {
            return;
        }
        let changed = hot.stale(key).filter(|entry| self.is_changed(entry, scope));
        if let Some(entry) = changed {
            hot.remove_this(key, &entry);
        }
    }

    fn keep_stale(&self, entry: &Entry) {
        if self.config.cache.use_stale.is_any() {
            entry.keep_stale();
        }
    }

    /// What came of waiting. It is not done twice.
    fn after_waiting(
        &mut self,
        waited: Waits,
        sought: &Sought<'_>,
        scope: &Scope,
        asked: &Asked<'_>,
        what: impl FnOnce() -> What,
    ) -> Found {
        self.cache_status = CacheStatus::Miss;
        let shared = Arc::clone(&self.config.process.shared);
        let Some((key, since)) = waited.answer() else {
            return Found::Nothing;
        };
        // what answers depend on may have been learnt meanwhile
        let parted = sought.key != key;
        let token = match waited.turn() {
            // nobody woke it: it has waited long enough
            None => {
                if !parted {
                    if let Some(found) = self.give_stale(CacheStatus::Updating, asked) {
                        return found;
                    }
                }
                None
            }
            Some(Turn::Lead(token)) => Some(token),
            Some(Turn::Landed(Outcome::Alone)) => None,
            Some(Turn::Landed(Outcome::Answer(entry))) => {
                self.keep_stale(&entry);
                let found = Some(entry)
                    .filter(|_| !parted && shared.may_send(asked.monotonic))
                    .filter(|entry| since.admits(&shared, entry))
                    .filter(|entry| sought.id.is_some() || !self.is_changed(entry, scope))
                    .and_then(|entry| self.give(&key, entry, sought.id, asked));
                if let Some(found) = found {
                    return found;
                }
                None
            }
        };
        let mut fill = self.new_fill(what(), scope.clone(), token, asked);
        fill.rekeyed = parted;
        self.fetch(fill, asked)
    }

    pub(super) fn new_fill(
        &self,
        what: What,
        scope: Scope,
        token: Option<Token>,
        asked: &Asked<'_>,
    ) -> Box<Fill> {
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let (namespace, mark) = self.mark_of(&scope);
        let settings = Settings {
            asked_at: asked.now,
            generation: self.config.process.shared.generation(),
            changes: self.config.process.shared.changes.last(),
            namespace,
            mark,
            valid: Arc::clone(&self.config.cache.valid),
            asks_identity: self.config.upstream_encoding == UpstreamEncoding::Identity
                && !asked.forwards_codings,
            gate: self.gate(),
            max_entry: size(self.config.cache.max_entry),
            keeps_stale: self.config.cache.use_stale.is_any(),
        };
        let shared = Arc::clone(&self.config.process.shared);
        Box::new(Fill::new(what, scope, token, shared, settings))
    }

    /// What the owner knows a namespace by, and what it has said of the chain
    /// behind it.
    fn mark_of(&self, scope: &Scope) -> (Namespace, Option<Mark>) {
        let Some(owner) = self.config.process.shared.owner() else {
            // nobody asks for it
            return Default::default();
        };
        let namespace = owner.namespace_of(scope.namespace());
        let chain = owner.chains().get(&namespace);
        (namespace, chain.map(|chain| chain.mark()))
    }

    /// What is known now.
    pub(super) fn since(&self, scope: &Scope) -> Since {
        Since {
            generation: self.config.process.shared.generation(),
            mark: self.mark_of(scope).1,
        }
    }

    /// Whether and how hard stored answers are coded.
    pub(super) fn gate(&self) -> Gate {
        Gate {
            min_length: self.config.min_length,
            level: self.config.comp_level,
        }
    }

    fn push_namespace(&self, base: &mut Scope, asked: &Asked<'_>) {
        let request = &self.request.cache;
        self.push_place(base, asked);
        if asked.namespace.is_none() && request.kind == CacheKind::Call {
            base.push(&request.target);
        }
    }

    /// The namespace, but for what only calls have in it.
    pub(super) fn push_place(&self, base: &mut Scope, asked: &Asked<'_>) {
        match asked.namespace {
            Some(namespace) => base.push(namespace),
            None => {
                base.push(asked.place);
                base.push(&asked.port.to_be_bytes());
                base.push(&asked.host.to_ascii_lowercase());
            }
        }
    }

    /// All that tells answers to the same call apart.
    pub(super) fn scope(&self, asked: &Asked<'_>) -> Scope {
        self.scope_of(asked, None)
    }

    /// The same, of one thing in a place.
    pub(super) fn scope_of(&self, asked: &Asked<'_>, name: Option<&[u8]>) -> Scope {
        let request = &self.request.cache;
        let mut base = Scope::new();
        self.push_namespace(&mut base, asked);
        base.end_namespace();
        if let Some(name) = name {
            base.push(name);
        }
        // nodes have fields for browsers only, and don't always say so in Vary
        let from_browser = request.fields.values("origin").next().is_some();
        base.push(if from_browser { b"origin" } else { b"" });
        if self.config.cache.credentials == Credentials::Key {
            base.push_fields(&request.fields, scope::CREDENTIALS);
        }
        let names = self.config.process.shared.varying.names(&base);
        base.vary(&request.fields, names);
        base
    }

    /// Whether the answer with this head may be stored, and what the client
    /// is told of the cache.
    pub(super) fn judge_storing<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        if head.subrequest || !(self.config.enable && self.config.cache.enable) {
            self.not_stored(Reason::Subrequest);
            return;
        }
        if self.cache_status == CacheStatus::None {
            // it was not looked up
            self.cache_status = CacheStatus::Bypass;
            if self.reason == Reason::None {
                self.reason = self.why_not_looked_up();
            }
        }
        if self.replaces(head) {
            self.cache_status_edit(head);
            return;
        }
        let asked = &self.request.cache.fields;
        let types = &self.config.types;
        let Some(fill) = &mut self.storing.fill else {
            return;
        };
        if let Err(reason) = fill.accepts(head, asked, types) {
            match head.status {
                // the node will say the same to the next one
                ..500 => self.not_stored_for_now(reason),
                _ => self.not_stored(reason),
            }
        }
    }

    /// Why the request was not one for the cache.
    fn why_not_looked_up(&self) -> Reason {
        let request = &self.request.cache;
        if matches!(request.kind, CacheKind::None | CacheKind::Change) {
            request.why
        } else if request.credentials && self.config.cache.credentials == Credentials::Bypass {
            Reason::Credentials
        } else if !self.config.process.shared.keeps() {
            Reason::NoMemoryCache
        } else {
            Reason::Local
        }
    }

    /// The `Cache-Status` of an answer that came from the node (RFC 9211),
    /// after those of caches nearer to it.
    pub(super) fn cache_status_edit<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        if head.subrequest {
            return;
        }
        // what went forward is no hit, whatever was sent then (2.1)
        let mut ours = match (self.cache_status, self.looked.forward_status) {
            (CacheStatus::Miss, _) => "sszip; fwd=miss".to_owned(),
            (CacheStatus::Bypass, _) => "sszip; fwd=bypass".to_owned(),
            (CacheStatus::Revalidated, _) => "sszip; fwd=stale; fwd-status=304".to_owned(),
            (CacheStatus::Stale, None) => "sszip; fwd=stale".to_owned(),
            (CacheStatus::Stale, Some(status)) => {
                format!("sszip; fwd=stale; fwd-status={status}")
            }
            _ => return,
        };
        if self.reason != Reason::None {
            ours.push_str("; detail=");
            ours.push_str(self.reason.name());
        }
        let mut value: Vec<u8> = Vec::new();
        for (name, before) in head.fields.clone() {
            if name.eq_ignore_ascii_case(b"cache-status") && !before.is_empty() {
                value.extend_from_slice(before);
                value.extend_from_slice(b", ");
            }
        }
        value.extend_from_slice(ours.as_bytes());
        self.head_edits.push(HeadEdit::set("Cache-Status", value));
    }

    /// A look-up that failed never was.
    pub fn forget_look_up(&mut self) {
        self.storing.fill = None;
        self.looked.stand_in = None;
        self.looked.update = None;
        self.looked.batch_hits = 0;
        self.mode = Mode::Off;
        self.head_edits.clear();
        self.cache_status = CacheStatus::None;
        self.reason = Reason::Memory;
    }

    /// Nothing of this answer is to be stored.
    pub fn refuse_fill(&mut self) {
        if let Some(fill) = self.storing.fill.take() {
            fill.refuse();
        }
    }

    /// What to do with an answer that is not coded.
    pub(super) fn tee_or_pass(&mut self) -> HeadAction {
        if self.storing.is_apart {
            // what is stored comes another way
            return HeadAction::Pass;
        }
        // the bytes on the wire are not the answer itself
        let fill = self.storing.fill.as_ref();
        let takes_coded = fill.is_some_and(|fill| fill.takes_coded());
        if self.mode == Mode::Upgrade || self.mode == Mode::Encoded && !takes_coded {
            self.not_stored_for_now(Reason::Coding);
        }
        match self.storing.fill {
            Some(_) => HeadAction::Tee,
            None => HeadAction::Pass,
        }
    }

    /// A piece of a body that passes. Copied, within the limits.
    ///
    /// # Errors
    /// [`Misuse`] unless the answer passes.
    pub fn observe(&mut self, piece: &[u8]) -> Result<(), Misuse> {
        self.allows(Event::Observe)?;
        self.received += piece.len() as u64;
        self.storing
            .copy_of_sent(&self.config, &mut self.reason, piece);
        Ok(())
    }

    /// What is to be stored, once all of the answer is with the host; it
    /// outlives the exchange.
    pub fn take_fill(&mut self) -> Option<Box<Fill>> {
        let whole = match &self.phase {
            Phase::Ready(_) | Phase::Finished => true,
            Phase::Passing(held) => {
                let declared = held.declared.map(|declared| declared as u64);
                declared.is_none_or(|declared| declared == self.received)
            }
            _ => return None,
        };
        if self.storing.is_apart {
            // it has an end of its own
            return None;
        }
        if !whole {
            self.not_stored(Reason::Cut);
        }
        let mut fill = self.storing.fill.take()?;
        if !fill.is_long() {
            fill.build();
        }
        if let Some(reason) = fill.refused() {
            self.reason = reason;
        }
        Some(fill)
    }
}

/// What a request has to do with the flight of a key.
enum Part {
    /// It leads, or (`None`) there is nobody to wait for.
    Leads(Option<Token>),
    /// The owner of a store is asked: wait.
    Asks,
    /// Another request leads: wait.
    Follows,
}

/// Leads, or follows, the flight of a key. With a store the look-up there is
/// the first to lead.
fn take_part(
    shared: &Shared,
    key: Key,
    waiter: Waiter,
    coalesces: bool,
    in_vain: bool,
    now: u64,
) -> Part {
    let token = match shared.flights.begin(key, waiter) {
        Some(Role::Follower) => return Part::Follows,
        Some(Role::Leader(token)) => token,
        // memory was refused
        None => return Part::Leads(None),
    };
    let token = match shared.owner() {
        Some(owner) if shared.flights.follow(&token, waiter).is_some() => {
            match owner.ask(key, token, coalesces, in_vain, now) {
                Ok(()) => return Part::Asks,
                Err(token) => {
                    shared.flights.leave(&key, waiter);
                    token
                }
            }
        }
        _ => token,
    };
    if !coalesces {
        shared.finish(token, Outcome::Alone);
        return Part::Leads(None);
    }
    Part::Leads(Some(token))
}

/// What there must be to look up a request with a body of `length` bytes, in
/// bytes. The calls in it are read into structures of which only all together
/// are long: the shortest call has some 40 bytes, and takes twelve times that.
fn room_for(length: usize) -> usize {
    match length {
        0..=0x1000 => 0,
        _ => length.saturating_mul(16),
    }
}
