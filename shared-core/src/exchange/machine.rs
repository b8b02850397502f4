//! The exchange itself: what it has in every state, what can be read of it, and
//! how it moves.

use std::sync::Arc;

use super::actions::Misuse;
use super::answer::Answer;
use super::cache::found::Looked;
use super::cache::part::Mixed;
use super::cache::storing::Storing;
use super::cache::watch::Watch;
use super::head::{Field, HeadEdit, Request, RequestHead};
use super::inquiry::Inquiry;
use super::phase::Phase;
use super::query;
use super::transitions::{Event, State};
use super::upstream::Upstream;
use crate::beacon;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::coded::BodyCoding;
use crate::config::learnt::{Known, Learnt};
use crate::config::{Config, SszRequest, SszWitness, UpstreamEncoding};
use crate::gzip::splice::Body;
use crate::memory::{self, Reservation};
use crate::mode::Mode;
use crate::negotiate::vary;
use crate::transcode::engine::{asked, called, Asked, Fork};
use crate::transcode::{call, Format, Negotiated, Submitted};

const ACCEPT: &str = "Accept";

/// One exchange. See the [module's](super) theory of operation.
#[derive(Debug)]
pub struct Exchange {
    pub(super) config: Arc<Config>,
    pub(super) phase: Phase,
    pub(super) mode: Mode,
    /// Why it is not the SSZ that was asked for, where the head said so.
    pub(super) not_ssz: Option<Mode>,
    pub(super) request: Request,
    pub(super) upstream_edits: Vec<HeadEdit>,
    pub(super) head_edits: Vec<HeadEdit>,
    pub(super) varies: bool,
    /// Bytes of the body that came, and that the client got.
    pub(super) received: u64,
    pub(super) sent: u64,
    /// What the node gets in place of the request's body: a part of a batch, JSON of
    /// SSZ, or what was coded. It lives as long as the exchange.
    pub(super) request_body: Vec<u8>,
    /// Where the node has what is asked for, if that is elsewhere. As long.
    pub(super) request_target: Vec<u8>,
    /// The memory that the body takes where it may be long.
    pub(super) request_memory: Option<Reservation>,
    pub(super) cache_status: CacheStatus,
    /// Why it is no hit, or will not be stored.
    pub(super) reason: Reason,
    pub(super) looked: Looked,
    pub(super) storing: Storing,
    /// Blocks that the node's answer shows.
    pub(super) watched: Option<Box<Watch>>,
    /// Of the chain of the node that it goes to.
    pub(super) learnt: Known,
    /// Where that is from, if not from the settings.
    pub(super) nodes: Option<Learnt>,
    /// It is no client's, but asks the node what its chain is like.
    pub(super) inquiry: Option<Box<Inquiry>>,
    /// How the node has answered.
    pub(super) upstream: Upstream,
    /// It purges, or shows the status: it is not counted.
    pub(super) is_administrative: bool,
}

impl Exchange {
    /// A new exchange at a place with these settings.
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            phase: Phase::Start,
            mode: Mode::Off,
            not_ssz: None,
            request: Request::default(),
            upstream_edits: Vec::new(),
            head_edits: Vec::new(),
            varies: false,
            received: 0,
            sent: 0,
            request_body: Vec::new(),
            request_target: Vec::new(),
            request_memory: None,
            cache_status: CacheStatus::None,
            reason: Reason::None,
            looked: Looked::default(),
            storing: Storing::default(),
            watched: None,
            learnt: Known::default(),
            nodes: None,
            inquiry: None,
            upstream: Upstream::default(),
            is_administrative: false,
        }
    }

    /// The settings of its place.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Where the exchange stands.
    pub fn state(&self) -> State {
        self.phase.state()
    }

    /// What happened to the answer; final in `Ready`, `Passing` and `Cut`.
    pub fn mode(&self) -> Mode {
        self.not_ssz.unwrap_or(self.mode)
    }

    /// Why the answer did not come from the cache, or will not from it.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Changes to the head that the node gets.
    pub fn upstream_edits(&self) -> &[HeadEdit] {
        &self.upstream_edits
    }

    /// Changes to the head that the client gets. Valid once the answer is
    /// decided.
    pub fn head_edits(&self) -> &[HeadEdit] {
        &self.head_edits
    }

    /// Whether the answer depends on `Accept-Encoding`. The head edits say so
    /// to the client, unless the host writes that itself.
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// What a cache between this exchange and the node should tell answers
    /// apart by: the node's `Vary` without the fields that the upstream edits
    /// make the same for every request.
    pub fn upstream_vary(&self, vary: &[u8]) -> Vec<u8> {
        self.upstream_edits
            .iter()
            // that one is the same for those who want the same
            .filter(|edit| edit.name != ACCEPT)
            .fold(vary.to_vec(), |vary, edit| {
                vary::without(std::iter::once(&vary[..]), &edit.name)
            })
    }

    /// What the node is to get after `LookUp::ForwardRewritten`.
    pub fn request_body(&self) -> &[u8] {
        &self.request_body
    }

    /// Path and query of what the node is to be asked for instead, as they were shown;
    /// empty: they are right.
    pub fn request_target(&self) -> &[u8] {
        &self.request_target
    }

    /// The status of a stored answer that is to be sent; 0: the status is the
    /// node's.
    pub fn status(&self) -> u16 {
        self.answer().map_or(0, |answer| answer.status)
    }

    /// Bytes to send right after the head, in pieces: the whole body in
    /// `Ready`, what was collected in `Passing`. They live as long as the
    /// exchange.
    pub fn body(&self) -> impl Iterator<Item = &[u8]> {
        let (own, stored): (&[u8], _) = match &self.phase {
            Phase::Ready(answer) | Phase::Replacing(answer) => (&answer.body, &answer.stored),
            Phase::Passing(held) => (&held.body, &None),
            _ => (&[], &None),
        };
        let stored = stored.iter().flat_map(Body::slices);
        std::iter::once(own)
            .chain(stored)
            .filter(|piece| !piece.is_empty())
    }

    /// The same, for a host that copies it: of a long one the memory goes as it is given
    /// out, and [`body`](Self::body) is of no use any more.
    pub fn give_out(&mut self, mut to: impl FnMut(&[u8])) {
        let (own, stored) = match &mut self.phase {
            Phase::Ready(answer) | Phase::Replacing(answer) => {
                (&mut answer.body, answer.stored.as_mut())
            }
            Phase::Passing(held) => (&mut held.body, None),
            _ => return,
        };
        if own.len() >= memory::LONG {
            memory::give_out(own, &mut to);
        } else if !own.is_empty() {
            to(own);
        }
        if let Some(stored) = stored {
            stored.give_out(to);
        }
    }

    /// Bytes of the body before it was coded, held, streamed or stored, for
    /// ratios.
    pub fn received(&self) -> u64 {
        match &self.phase {
            Phase::Ready(answer) if answer.body.is_empty() => {
                let stored = answer.stored.as_ref();
                stored.map_or(self.received, Body::plain_length)
            }
            // of what the host does not show
            Phase::Passing(held) if self.received == 0 && !self.request.head => {
                held.declared.unwrap_or(0) as u64
            }
            _ => self.received,
        }
    }

    /// Bytes of the body as it was or will be sent.
    pub fn sent(&self) -> u64 {
        match &self.phase {
            Phase::Ready(answer) => match &answer.stored {
                Some(body) => body.length(),
                None => answer.body.len() as u64,
            },
            _ => self.sent,
        }
    }

    /// Whether the body was compressed here.
    pub fn is_compressed(&self) -> bool {
        let edits = self.head_edits.iter();
        let mut codings = edits.rev().filter(|edit| edit.name == "Content-Encoding");
        codings.next().is_some_and(|coding| coding.value.is_some())
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

    /// Those of a batch that was read: each once, in the order of the calls, with commas
    /// between them; `*` stands for more than are named.
    pub fn rpc_methods(&self) -> &[u8] {
        &self.looked.rpc_methods
    }

    /// How many calls were denied.
    pub fn denied(&self) -> usize {
        self.looked.denied
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

    /// The client's request head.
    ///
    /// # Errors
    /// [`Misuse`] unless it is the first call.
    pub fn request_head<'a, I>(&mut self, head: RequestHead<'_, I>) -> Result<(), Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        self.move_on(Event::RequestHead, |_| Phase::AwaitingHead)?;
        let target = head.target;
        let (mut ssz, mut submitted, mut call) = (None, None, None);
        let mut untyped = None;
        let (mut payload, mut route) = (None, None);
        if self.config.transcodes() {
            ssz = Negotiated::read(head.method, head.target, head.fields.clone());
            untyped = Negotiated::of_untyped(head.method, head.target, head.fields.clone());
            call = call::wish(head.method, head.target, head.fields.clone());
            if self.config.ssz.request != SszRequest::Off {
                submitted = Submitted::read(head.method, head.target, head.fields.clone());
            }
        }
        let witness = self.config.ssz.witness;
        if self.config.transcodes() && witness == SszWitness::Rpc {
            let decodes = self.config.coded_requests.are_read();
            payload = Asked::read(head.method, head.target, head.fields.clone(), decodes);
            if let Some(base) = payload.as_ref().and_then(|_| asked::base(head.target)) {
                self.request_target = base;
            }
        } else if call.is_some() && witness == SszWitness::Rest {
            let fork = Fork::of_head(head.fields.clone());
            route = Some((called::target(head.target), fork));
        }
        let caches = self.config.caches().then_some(&self.config.cache);
        self.request = Request::read(head, caches, self.config.coded_requests.are_read());
        if self.config.policy().is_some() {
            self.request.calls_by_query = query::may_call(target);
        }
        // what it says may be known
        let is_read = !self.request.untouched && self.request.coding != BodyCoding::Other;
        self.request.call = call.filter(|_| is_read);
        self.negotiate(ssz);
        self.request.untyped = untyped.filter(|_| !self.request.untouched);
        self.request.submitted = submitted.filter(|_| is_read);
        self.request.route = route.filter(|_| self.request.call.is_some());
        self.request.payload = payload.filter(|_| !self.request.untouched);
        if self.request.ssz.is_some() || self.request.submitted.is_some() {
            self.request.prefix = beacon::before(target).map(<[u8]>::to_vec);
        }
        if self.config.enable
            && !self.request.untouched
            && self.config.upstream_encoding == UpstreamEncoding::Identity
        {
            self.upstream_edits
                .push(HeadEdit::set("Accept-Encoding", b"identity"));
        }
        Ok(())
    }

    /// What SSZ has to do with the request, if it has.
    pub(super) fn negotiate(&mut self, ssz: Option<Negotiated>) {
        let Some(ssz) = ssz.filter(|_| !self.request.untouched) else {
            return;
        };
        self.request.ssz = Some(ssz);
        if let Some(format) = ssz.format() {
            // however a client says it, it gets the same; of a call that is in JSON
            let accept = match ssz.is_call() {
                true => Format::Json.media_type(),
                false => format.media_type(),
            };
            self.request.cache.fields.set(ACCEPT.as_bytes(), accept);
        }
        if let Some(accept) = ssz.accept() {
            self.upstream_edits.push(HeadEdit::set(ACCEPT, accept));
        }
        if ssz.format() == Some(Format::Ssz) {
            // they are of the bytes that the client has or wants, not of the node's
            for name in ["If-None-Match", "If-Modified-Since", "Range", "If-Range"] {
                self.upstream_edits.push(HeadEdit::remove(name));
            }
        }
    }

    /// Moves along the table; `next` is made of what the state had, and does not
    /// fail.
    pub(super) fn move_on(
        &mut self,
        event: Event,
        next: impl FnOnce(Phase) -> Phase,
    ) -> Result<(), Misuse> {
        let state = self.allows(event)?;
        self.phase = next(std::mem::replace(&mut self.phase, Phase::Cut));
        debug_assert_eq!(self.state(), state, "{event:?}");
        Ok(())
    }

    /// The state after `event`.
    pub(super) fn allows(&self, event: Event) -> Result<State, Misuse> {
        self.state().after(event).ok_or_else(|| self.misuse(event))
    }

    pub(super) fn misuse(&self, event: Event) -> Misuse {
        Misuse {
            state: self.state(),
            event,
        }
    }

    /// The answer that is ready, or will be when the node's has ended.
    pub(super) fn answer(&self) -> Option<&Answer> {
        match &self.phase {
            Phase::Ready(answer) | Phase::Replacing(answer) => Some(answer),
            _ => None,
        }
    }

    pub(super) fn answer_mut(&mut self) -> Option<&mut Answer> {
        match &mut self.phase {
            Phase::Ready(answer) | Phase::Replacing(answer) => Some(answer),
            _ => None,
        }
    }

    /// The batch of which the node is asked a part.
    pub(super) fn mixed(&self) -> Option<&Mixed> {
        match &self.phase {
            Phase::AwaitingPart(mixed) | Phase::CollectingPart(mixed) | Phase::Merging(mixed) => {
                Some(mixed)
            }
            _ => None,
        }
    }
}
