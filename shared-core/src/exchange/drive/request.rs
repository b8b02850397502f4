//! What a request asks for: its body, what is stored for it, what the node is asked.

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

/// No longer copy of a request's body is counted: no more than hosts' own buffers, and
/// hits are not to go to the node because long answers take all there is. Bytes.
const SHORT_COPY: usize = 64 << 10;

impl Driver {
    /// What a look-up needs, of a request with such a body. Asked again, it has
    /// been read; once it was looked up nothing is needed.
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

    /// For a host that does not send a 100 (Continue): whether the client may wait for one
    /// before it sends the request's body, which is [unread](RequestBody::Unread) then.
    pub fn expects_continue(&self) -> bool {
        self.exchange()
            .is_some_and(|exchange| exchange.request.expects_continue)
    }

    /// For a host that keeps the request's body in memory until it is complete: how many
    /// bytes it may keep of a body of `length`, of which `came` have come. These count to
    /// `memory` until the body was looked up; bytes that are only announced do not. A body
    /// beyond 64 KiB takes no more than it leaves free for all others. `None`: the body is
    /// too long, or there is no room; the look-up is without it then.
    pub fn may_keep(&mut self, came: u64, length: BodyLength) -> Option<u64> {
        let exchange = self.exchange.as_deref()?;
        let longest = match self.seeking {
            Seeking::Body { whole } => exchange.longest_request(whole),
            Seeking::Start | Seeking::Over => return None,
        };
        let may_become = match length {
            BodyLength::Known(length) => length.max(came),
            BodyLength::Unknown => came.saturating_mul(2).min(longest).max(came),
        };
        if may_become > longest {
            self.is_too_long = true;
            return None;
        }
        let limit = usize::try_from(exchange.config.memory).unwrap_or(usize::MAX);
        let bytes = usize::try_from(came).unwrap_or(usize::MAX);
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

    /// For a host whose proxy keeps the request's body until it is complete, up to
    /// `limit`: whether it is to be looked up without, as `length` bytes are more than
    /// that, or than what is ever read of one.
    pub fn is_too_long(&mut self, length: u64, limit: u64) -> bool {
        let longest = match self.seeking {
            Seeking::Body { whole } => self.exchange().map(|it| it.longest_request(whole)),
            Seeking::Start | Seeking::Over => None,
        };
        self.is_too_long = longest.is_some_and(|longest| length > longest.min(limit));
        self.is_too_long
    }

    /// Takes the memory for a copy of the request's body, of so many bytes, which the
    /// host has in several places and makes for a [look-up](Self::look_up), or to make
    /// the request anew: it is given back when that has been done. `false`: there is not
    /// enough, and the look-up is without a body.
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

    /// The same, and makes the copy, for a host that has nothing of its own for that.
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

    /// Looks for stored answers. Where `body` is not whole, `asked` has what it begins
    /// with, as far as that is in memory.
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
            // what was not judged does not go on
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

    /// The same of a batch of which some calls must not go on: what is allowed is looked
    /// up, where that is to be, or the node is asked for it.
    fn find_in_part(&mut self, body: Option<&[u8]>, asked: Asked<'_>) -> Result<Step, Misuse> {
        let exchange = self.open(Event::Miss)?;
        let is_too_long = body.is_some_and(|body| exchange.is_too_long(body));
        if is_too_long {
            exchange.not_looked_up(Reason::RequestLength);
        }
        if exchange.config.caches() && !exchange.is_call() {
            // a POST like any other
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
            // it must not go on as it came
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
            // of what is no call it says nothing
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

    /// The node is asked: as the client has, unless what that has coded is to be
    /// decoded first.
    fn forward(&mut self, body: Option<&[u8]>) -> Result<Step, Misuse> {
        match self.open(Event::Miss)?.is_to_be_decoded() {
            true => self.rewrite(body),
            false => Ok(Step::Forward),
        }
    }

    /// The request's body is wanted in another form.
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

    /// Purges what the request's query says: instead of a look-up, and with steps
    /// of one, [`Step::Respond`] or [`Step::Wait`].
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

    /// Tells how it all goes, instead of a look-up, and with steps of one.
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

    /// After [`Step::Respond`], or [`Step::OffLoop`] or [`Step::ForwardRewritten`] of a
    /// look-up: what awaits the node's answer to the same request, or, where it has a body
    /// of its own, to that, for the cache alone. The host makes that request in the
    /// background, or drops it.
    pub fn take_update(&mut self) -> Option<Self> {
        self.update.take().map(|update| *update)
    }

    /// Before a look-up, for a host that [inquires](Self::take_inquiry) later, or whose
    /// settings are those of many places: what was learnt of these nodes holds for this
    /// request.
    pub fn recall(&mut self, nodes: &Learnt) {
        self.tell(|exchange| caught(|| exchange.recall_from(nodes)));
    }

    /// Before a look-up, or whatever else becomes of the request, or, after
    /// [`recall`](Self::recall), before the response's head: what awaits the node's
    /// answer to a question of its own, if there is one to be asked; to be called until
    /// there is none. `url` is where the request goes, where each has its own. The host makes that request in the background, to the
    /// [path](Self::path_of_inquiry) beside this one's, or drops it.
    pub fn take_inquiry(&mut self, url: Option<&[u8]>, now: u64) -> Option<Self> {
        let inquiry = self.tell(|exchange| caught(|| exchange.inquire(url, now)));
        inquiry.flatten().flatten().map(Self::of)
    }

    /// Of what [inquires](Self::take_inquiry): the path that is asked in place of that
    /// one.
    pub fn path_of_inquiry(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.exchange()?.path_of_inquiry(path)
    }
}
