//! Request phase of the driver: the body that a lookup needs, the lookup, and the request to the
//! upstream.

use super::{BodyLength, Driver, Lack, Need, RequestBody, Seeking, Step};
use crate::cache::reason::Reason;
use crate::config::learnt::Learnt;
use crate::exchange::actions::Misuse;
use crate::exchange::cache::asked::{Asked, LookUp};
use crate::exchange::cache::purging::Purge;
#[cfg(not(target_family = "wasm"))]
use crate::exchange::cache::telling::Tell;
use crate::exchange::policy::Ruling;
use crate::exchange::step::code;
use crate::exchange::transitions::Event;
use crate::exchange::unjudged::Unjudged;
use crate::memory;
use crate::panics::caught;

/// Longest copy of a request's body that is not reserved from the budget. Bytes. It equals the
/// hosts' own buffers, and lookups must succeed even if long responses take the whole budget.
const SHORT_COPY: usize = 64 << 10;

impl Driver {
    /// Returns the part of a request body of this length that the lookup needs. May be called again
    /// after the body was read; after the lookup nothing is needed.
    pub fn need(&mut self, length: BodyLength) -> Need {
        let need = match self.seeking {
            Seeking::Start => self.tell(|exchange| exchange.need(length)),
            Seeking::Body { .. } => Some(Need::LookUp),
            Seeking::Over => None,
        };
        let need = need.unwrap_or(Need::Nothing);
        match need {
            Need::LookUp => {}
            Need::Body => self.seeking = Seeking::Body { whole: false },
            Need::WholeBody => self.seeking = Seeking::Body { whole: true },
            Need::Nothing => self.seeking = Seeking::Over,
        }
        need
    }

    /// Whether the client may wait for a 100 (Continue) before it sends the request's body, for a
    /// host that does not send one. The body is [unread](RequestBody::Unread) then.
    pub fn expects_continue(&self) -> bool {
        self.exchange()
            .is_some_and(|exchange| exchange.request.expects_continue)
    }

    /// Returns the number of bytes that a host may buffer of a request body of `length`, with
    /// the `received` bytes among them. For a host that keeps the body in memory until it is
    /// complete.
    ///
    /// The received bytes count against `memory` until the lookup; bytes that are only announced do
    /// not. A body beyond 64 KiB takes at most the share that it leaves free for all others. `None`
    /// if the body is too long or there is no memory: the lookup runs without the body.
    pub fn may_keep(&mut self, received: u64, length: BodyLength) -> Option<u64> {
        let exchange = self.exchange.as_deref()?;
        let longest = match self.seeking {
            Seeking::Body { whole } => exchange.longest_request(whole),
            Seeking::Start | Seeking::Over => return None,
        };
        let may_become = match length {
            BodyLength::Known(length) => length.max(received),
            BodyLength::Unknown => received.saturating_mul(2).min(longest).max(received),
        };
        if may_become > longest {
            self.is_too_long = true;
            return None;
        }
        let limit = usize::try_from(exchange.config.memory).unwrap_or(usize::MAX);
        let bytes = usize::try_from(received).unwrap_or(usize::MAX);
        if self.kept.is_none() {
            self.kept = exchange.config.process.budget.reserve(0, limit);
        }
        let has_room = self.kept.as_mut().is_some_and(|kept| match bytes {
            0..=SHORT_COPY => kept.grow_to(bytes, limit),
            _ => kept.grow_to_share(bytes, limit),
        });
        self.lacks_room = !has_room || memory::is_short();
        (!self.lacks_room).then_some(may_become)
    }

    /// Whether the lookup must run without the body because its `length` exceeds `limit` or the
    /// longest body that is read, for a host whose proxy keeps the request's body until it is
    /// complete, up to `limit`.
    pub fn is_too_long(&mut self, length: u64, limit: u64) -> bool {
        let longest = match self.seeking {
            Seeking::Body { whole } => self.exchange().map(|it| it.longest_request(whole)),
            Seeking::Start | Seeking::Over => None,
        };
        self.is_too_long = longest.is_some_and(|longest| length > longest.min(limit));
        self.is_too_long
    }

    /// Reserves memory for a contiguous copy of the request's body, which the host makes from its
    /// pieces for a [lookup](Self::look_up) or to build the request again. The memory is released
    /// after the lookup. `false` if there is not enough memory: the lookup runs without the body.
    pub fn take_room(&mut self, bytes: usize) -> bool {
        if bytes <= SHORT_COPY {
            return !memory::is_short();
        }
        self.room = self.exchange().and_then(|exchange| {
            let limit = usize::try_from(exchange.config.memory).unwrap_or(usize::MAX);
            let budget = &exchange.config.process.budget;
            budget.reserve(bytes, limit).filter(|_| !memory::is_short())
        });
        self.lacks_room = self.room.is_none();
        !self.lacks_room
    }

    /// Copies the pieces of the request's body into reserved memory, for a host that has no buffer
    /// of its own for that.
    pub fn joined(&mut self, pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        if !self.take_room(length) {
            return None;
        }
        let mut all = Vec::new();
        if all.try_reserve_exact(length).is_err() {
            self.room = None;
            self.lacks_room = true;
            return None;
        }
        for piece in pieces {
            all.extend_from_slice(piece);
        }
        Some(all)
    }

    /// Looks up stored responses. Without a complete `body` its beginning in the lookup request is
    /// used, as far as it is in memory.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn look_up(&mut self, body: RequestBody<'_>, asked: Asked<'_>) -> Result<Step, Misuse> {
        let room = self.room.take();
        let found = self.find(body, asked);
        drop(room);
        if self.seeking == Seeking::Over {
            self.kept = None;
        }
        found
    }

    fn find(&mut self, body: RequestBody<'_>, asked: Asked<'_>) -> Result<Step, Misuse> {
        let (lacks_room, is_too_long) = (self.lacks_room, self.is_too_long);
        let exchange = self.open(Event::Miss)?;
        let (as_read, body) = (body, body.whole());
        if exchange.is_judged() {
            let ruling = caught(|| exchange.rule(as_read, is_too_long));
            // a request that was not evaluated is not forwarded
            match ruling.unwrap_or(Ruling::Refused(Unjudged::Memory)) {
                Ruling::Allowed => {}
                Ruling::InPart => return self.find_in_part(body, asked),
                denied => {
                    exchange.deny(denied)?;
                    self.seeking = Seeking::Over;
                    return Ok(Step::Respond);
                }
            }
        }
        if exchange.rewrites() {
            if exchange.config.caches() {
                caught(|| exchange.may_change(&asked)).unwrap_or_default();
            }
            self.seeking = Seeking::Over;
            return self.rewrite(body);
        }
        if caught(|| exchange.is_for_route(body, &asked)).unwrap_or(false) {
            self.seeking = Seeking::Over;
            return self.rewrite(body);
        }
        if caught(|| exchange.is_for_others(body)).unwrap_or(false) {
            self.seeking = Seeking::Over;
            return self.forward(body);
        }
        let why_not = match body {
            Some(body) if exchange.is_too_long(body) => Reason::RequestLength,
            None if exchange.is_call() && is_too_long => Reason::RequestLength,
            None if exchange.is_call() && lacks_room => Reason::Memory,
            None if exchange.is_call() => Reason::BodyOnDisk,
            _ => Reason::None,
        };
        if why_not != Reason::None {
            exchange.not_looked_up(why_not);
            self.seeking = Seeking::Over;
            return self.forward(body);
        }
        match self.find_stored(body, asked)? {
            LookUp::Forward => self.forward(body),
            found => Ok(self.step_of(found)),
        }
    }

    /// Looks up the allowed calls of a batch that is partly denied, or forwards them to the node.
    fn find_in_part(&mut self, body: Option<&[u8]>, asked: Asked<'_>) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Miss)?;
        let is_too_long = body.is_some_and(|body| exchange.is_too_long(body));
        if is_too_long {
            exchange.not_looked_up(Reason::RequestLength);
        }
        if exchange.config.caches() && !exchange.is_call() {
            // handled like any other POST
            caught(|| exchange.may_change(&asked)).unwrap_or_default();
        }
        let found = match is_too_long || !exchange.is_call() || exchange.is_for_others_only() {
            true => LookUp::Forward,
            false => self.find_stored(body, asked)?,
        };
        if found != LookUp::Forward {
            return Ok(self.step_of(found));
        }
        self.seeking = Seeking::Over;
        Ok(match self.open(Event::HitInPart)?.ask_for_allowed()? {
            true => Step::ForwardRewritten,
            // the batch must not be forwarded unchanged
            false => Step::Fail(Lack::Judgement),
        })
    }

    fn step_of(&mut self, found: LookUp) -> Step {
        match found {
            LookUp::Forward => Step::Forward,
            LookUp::ForwardRewritten => Step::ForwardRewritten,
            LookUp::Respond => Step::Respond,
            LookUp::RespondOffLoop => self.off_loop(),
            LookUp::Wait => Step::Wait,
        }
    }

    fn find_stored(&mut self, body: Option<&[u8]>, asked: Asked<'_>) -> Result<LookUp, Misuse> {
        let exchange = self.open(Event::Miss)?;
        let filters = &exchange.config.filters;
        let asked = Asked {
            // a request without a complete body is no call here: its beginning is not used
            body: body.unwrap_or_default(),
            coding_allowed: asked.coding_allowed && !filters.change(),
            whole: asked.whole || asked.filters && !filters.change_nothing(),
            ..asked
        };
        let found = match caught(|| exchange.look_up(asked)) {
            Some(found) => found?,
            None => {
                exchange.forget_look_up();
                LookUp::Forward
            }
        };
        if let LookUp::Respond | LookUp::RespondOffLoop = found {
            exchange.give_back_permits();
        }
        if let LookUp::Respond | LookUp::RespondOffLoop | LookUp::ForwardRewritten = found {
            let update = exchange.take_update();
            self.update = update.map(|update| Box::new(Self::of(update)));
        }
        if found != LookUp::Wait {
            self.seeking = Seeking::Over;
        }
        Ok(found)
    }

    /// Forwards the request unchanged, unless its compressed body must be decompressed first.
    fn forward(&mut self, body: Option<&[u8]>) -> Result<Step, Misuse> {
        match self.open(Event::Miss)?.is_to_be_decoded() {
            true => self.rewrite(body),
            false => Ok(Step::Forward),
        }
    }

    /// Rewrites the request's body to another format or without its coding.
    fn rewrite(&mut self, body: Option<&[u8]>) -> Result<Step, Misuse> {
        let is_too_long = self.is_too_long;
        let exchange = self.open(Event::Rewrite)?;
        match exchange.begin_to_rewrite(body, is_too_long)? {
            true if exchange.is_long_to_rewrite() => return Ok(self.off_loop()),
            true => code(exchange),
            false => {}
        }
        Ok(self.coded())
    }

    /// Purges the scope that the request's query names, instead of a lookup. Returns
    /// [`Step::Respond`] or [`Step::Wait`].
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn purge(&mut self, purge: &Purge<'_>) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Miss)?;
        Ok(match exchange.purge(purge)? {
            LookUp::Wait => Step::Wait,
            _ => Step::Respond,
        })
    }

    /// Responds with the status page, instead of a lookup and with the same steps.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    #[cfg(not(target_family = "wasm"))]
    pub fn tell_status(&mut self, tell: &Tell<'_>) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Miss)?;
        Ok(match exchange.tell_status(tell)? {
            LookUp::Wait => Step::Wait,
            _ => Step::Respond,
        })
    }

    /// Returns the driver of a background update, after [`Step::Respond`], or after
    /// [`Step::OffLoop`] or [`Step::ForwardRewritten`] of a lookup. It awaits the upstream's
    /// response to the same request, or to its own request body if it has one, for the cache alone.
    /// The host sends that request in the background, or drops it.
    pub fn take_update(&mut self) -> Option<Self> {
        self.update.take().map(|update| *update)
    }

    /// Loads the capabilities of these nodes for this request, before the lookup. For a host that
    /// [probes](Self::take_inquiry) later, or whose settings are shared by many routes.
    pub fn recall(&mut self, nodes: &Learnt) {
        self.tell(|exchange| caught(|| exchange.recall_from(nodes)));
    }

    /// Returns the driver of the next probe of the node, if a capability has to be probed; called
    /// until it returns `None`.
    ///
    /// Called before the lookup or any other decision about the request or, after
    /// [`recall`](Self::recall), before the response's head. `url` is the target of the request,
    /// where requests differ in it. The host sends the probe in the background, to its
    /// [path](Self::path_of_inquiry) next to this request's path, or drops it.
    pub fn take_inquiry(&mut self, url: Option<&[u8]>, now: u64) -> Option<Self> {
        let inquiry = self.tell(|exchange| caught(|| exchange.inquire(url, now)));
        inquiry.flatten().flatten().map(Self::of)
    }

    /// Returns the path that a [probe](Self::take_inquiry) requests in place of `path`.
    pub fn path_of_inquiry(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.exchange()?.path_of_inquiry(path)
    }
}
