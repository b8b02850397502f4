//! Request phase of the driver: the body that a lookup needs, the lookup, and the request to the
//! upstream.

use super::{BodyLength, Driver, FailureReason, LookupPhase, RequestBody, RequiredBody, Step};
use crate::cache::reason::Reason;
use crate::config::node_capabilities::NodeCapabilities;
use crate::exchange::actions::Misuse;
use crate::exchange::cache::lookup_request::{LookupAction, LookupRequest};
use crate::exchange::cache::purge_request::PurgeRequest;
#[cfg(not(target_family = "wasm"))]
use crate::exchange::cache::status_request::StatusRequest;
use crate::exchange::policy::PolicyDecision;
use crate::exchange::step::run_compression;
use crate::exchange::transitions::Event;
use crate::exchange::unverifiable::Unverifiable;
use crate::memory;
use crate::panics::catch_panic;

/// Longest copy of a request's body that is not reserved from the budget. Bytes. It equals the
/// hosts' own buffers, and lookups must succeed even if long responses take the whole budget.
const SHORT_COPY: usize = 64 << 10;

impl Driver {
    /// Returns the part of a request body of this length that the lookup needs. May be called again
    /// after the body was read; after the lookup nothing is needed.
    pub fn required_body(&mut self, length: BodyLength) -> RequiredBody {
        let need = match self.seeking {
            LookupPhase::Start => self.with_exchange(|exchange| exchange.required_body(length)),
            LookupPhase::Body { .. } => Some(RequiredBody::LookUp),
            LookupPhase::Done => None,
        };
        let need = need.unwrap_or(RequiredBody::Nothing);
        match need {
            RequiredBody::LookUp => {}
            RequiredBody::Body => self.seeking = LookupPhase::Body { whole: false },
            RequiredBody::WholeBody => self.seeking = LookupPhase::Body { whole: true },
            RequiredBody::Nothing => self.seeking = LookupPhase::Done,
        }
        need
    }

    /// Whether the client may wait for a 100 (Continue) before it sends the request's body, for a
    /// host that does not send one. The body is [unread](RequestBody::AwaitsContinue) then.
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
    pub fn buffer_allowance(&mut self, received: u64, length: BodyLength) -> Option<u64> {
        let exchange = self.exchange.as_deref()?;
        let longest = match self.seeking {
            LookupPhase::Body { whole } => exchange.max_request_length(whole),
            LookupPhase::Start | LookupPhase::Done => return None,
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
        if self.body_reservation.is_none() {
            self.body_reservation = exchange.config.process.budget.reserve(0, limit);
        }
        let has_room = self
            .body_reservation
            .as_mut()
            .is_some_and(|reservation| match bytes {
                0..=SHORT_COPY => reservation.grow_to(bytes, limit),
                _ => reservation.grow_to_share(bytes, limit),
            });
        self.lacks_room = !has_room || memory::is_short();
        (!self.lacks_room).then_some(may_become)
    }

    /// Whether the lookup must run without the body because its `length` exceeds `limit` or the
    /// longest body that is read, for a host whose proxy keeps the request's body until it is
    /// complete, up to `limit`.
    pub fn exceeds_body_limit(&mut self, length: u64, limit: u64) -> bool {
        let longest = match self.seeking {
            LookupPhase::Body { whole } => self.exchange().map(|it| it.max_request_length(whole)),
            LookupPhase::Start | LookupPhase::Done => None,
        };
        self.is_too_long = longest.is_some_and(|longest| length > longest.min(limit));
        self.is_too_long
    }

    /// Reserves memory for a contiguous copy of the request's body, which the host makes from its
    /// pieces for a [lookup](Self::lookup) or to build the request again. The memory is released
    /// after the lookup. `false` if there is not enough memory: the lookup runs without the body.
    pub fn reserve_body_copy(&mut self, bytes: usize) -> bool {
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
    pub fn copy_body(&mut self, pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        if !self.reserve_body_copy(length) {
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

    /// Evaluates the request under the policy, and searches the cache for responses to it. Without
    /// a complete `body` its beginning in the lookup request is used, as far as it is in memory.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn lookup(
        &mut self,
        body: RequestBody<'_>,
        lookup: LookupRequest<'_>,
    ) -> Result<Step, Misuse> {
        let room = self.room.take();
        let found = self.evaluate_and_lookup(body, lookup);
        drop(room);
        if self.seeking == LookupPhase::Done {
            self.body_reservation = None;
        }
        found
    }

    /// Rejects a request that the policy denies, and looks up or rewrites any other.
    fn evaluate_and_lookup(
        &mut self,
        body: RequestBody<'_>,
        lookup: LookupRequest<'_>,
    ) -> Result<Step, Misuse> {
        let (lacks_room, is_too_long) = (self.lacks_room, self.is_too_long);
        let exchange = self.exchange_for(Event::Miss)?;
        let (as_read, body) = (body, body.whole());
        if exchange.is_under_policy() {
            let ruling = catch_panic(|| exchange.evaluate(as_read, is_too_long));
            // a request that was not evaluated is not forwarded
            match ruling.unwrap_or(PolicyDecision::Refused(Unverifiable::Memory)) {
                PolicyDecision::Allowed => {}
                PolicyDecision::PartlyDenied => return self.lookup_allowed_calls(body, lookup),
                denied => {
                    exchange.deny(denied)?;
                    self.seeking = LookupPhase::Done;
                    return Ok(Step::Respond);
                }
            }
        }
        if exchange.requires_rewrite() {
            if exchange.config.caches() {
                catch_panic(|| exchange.may_invalidate(&lookup)).unwrap_or_default();
            }
            self.seeking = LookupPhase::Done;
            return self.rewrite(body);
        }
        if catch_panic(|| exchange.is_witness_call(body, &lookup)).unwrap_or(false) {
            self.seeking = LookupPhase::Done;
            return self.rewrite(body);
        }
        if catch_panic(|| exchange.is_call_for_transcoding(body)).unwrap_or(false) {
            self.seeking = LookupPhase::Done;
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
            exchange.set_bypass_reason(why_not);
            self.seeking = LookupPhase::Done;
            return self.forward(body);
        }
        match self.lookup_stored(body, lookup)? {
            LookupAction::Forward => self.forward(body),
            found => Ok(self.step_for_action(found)),
        }
    }

    /// Looks up the allowed calls of a batch that is partly denied, or forwards them to the node.
    fn lookup_allowed_calls(
        &mut self,
        body: Option<&[u8]>,
        lookup: LookupRequest<'_>,
    ) -> Result<Step, Misuse> {
        let exchange = self.exchange_for(Event::Miss)?;
        let is_too_long = body.is_some_and(|body| exchange.is_too_long(body));
        if is_too_long {
            exchange.set_bypass_reason(Reason::RequestLength);
        }
        if exchange.config.caches() && !exchange.is_call() {
            // handled like any other POST
            catch_panic(|| exchange.may_invalidate(&lookup)).unwrap_or_default();
        }
        let found = match is_too_long || !exchange.is_call() || exchange.is_not_for_cache() {
            true => LookupAction::Forward,
            false => self.lookup_stored(body, lookup)?,
        };
        if found != LookupAction::Forward {
            return Ok(self.step_for_action(found));
        }
        self.seeking = LookupPhase::Done;
        Ok(
            match self
                .exchange_for(Event::PartialHit)?
                .forward_allowed_calls()?
            {
                true => Step::ForwardRewritten,
                // the batch must not be forwarded unchanged
                false => Step::Fail(FailureReason::Judgement),
            },
        )
    }

    /// Returns the step of the host for the action that a lookup has returned.
    fn step_for_action(&mut self, found: LookupAction) -> Step {
        match found {
            LookupAction::Forward => Step::Forward,
            LookupAction::ForwardRewritten => Step::ForwardRewritten,
            LookupAction::Respond => Step::Respond,
            LookupAction::RespondOffLoop => self.run_job(),
            LookupAction::Wait => Step::Wait,
        }
    }

    /// Searches the cache, if the request has to be looked up, with what the other filters allow.
    fn lookup_stored(
        &mut self,
        body: Option<&[u8]>,
        lookup: LookupRequest<'_>,
    ) -> Result<LookupAction, Misuse> {
        let exchange = self.exchange_for(Event::Miss)?;
        let filters = &exchange.config.filters;
        let lookup = LookupRequest {
            // a request without a complete body is no call here: its beginning is not used
            body: body.unwrap_or_default(),
            coding_allowed: lookup.coding_allowed && !filters.has_body_filter(),
            whole: lookup.whole || lookup.filters && !filters.has_no_body_filter(),
            ..lookup
        };
        let found = match catch_panic(|| exchange.lookup(lookup)) {
            Some(found) => found?,
            None => {
                exchange.reset_lookup();
                LookupAction::Forward
            }
        };
        if let LookupAction::Respond | LookupAction::RespondOffLoop = found {
            exchange.release_permits();
        }
        if let LookupAction::Respond
        | LookupAction::RespondOffLoop
        | LookupAction::ForwardRewritten = found
        {
            let update = exchange.take_background_update();
            self.update = update.map(|update| Box::new(Self::from_exchange(update)));
        }
        if found != LookupAction::Wait {
            self.seeking = LookupPhase::Done;
        }
        Ok(found)
    }

    /// Forwards the request unchanged, unless its compressed body must be decompressed first.
    fn forward(&mut self, body: Option<&[u8]>) -> Result<Step, Misuse> {
        match self.exchange_for(Event::Miss)?.is_decoded_off_loop() {
            true => self.rewrite(body),
            false => Ok(Step::Forward),
        }
    }

    /// Rewrites the request's body to another format or without its coding.
    fn rewrite(&mut self, body: Option<&[u8]>) -> Result<Step, Misuse> {
        let is_too_long = self.is_too_long;
        let exchange = self.exchange_for(Event::Rewrite)?;
        match exchange.begin_rewrite(body, is_too_long)? {
            true if exchange.is_long_rewrite() => return Ok(self.run_job()),
            true => run_compression(exchange),
            false => {}
        }
        Ok(self.step_after_job())
    }

    /// Purges the scope that the request's query names, instead of a lookup. Returns
    /// [`Step::Respond`] or [`Step::Wait`].
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn purge(&mut self, purge: &PurgeRequest<'_>) -> Result<Step, Misuse> {
        let exchange = self.exchange_for(Event::Miss)?;
        Ok(match exchange.purge(purge)? {
            LookupAction::Wait => Step::Wait,
            _ => Step::Respond,
        })
    }

    /// Responds with the status page, instead of a lookup and with the same steps.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    #[cfg(not(target_family = "wasm"))]
    pub fn report_status(&mut self, request: &StatusRequest<'_>) -> Result<Step, Misuse> {
        let exchange = self.exchange_for(Event::Miss)?;
        Ok(match exchange.report_status(request)? {
            LookupAction::Wait => Step::Wait,
            _ => Step::Respond,
        })
    }

    /// Returns the driver of a background update, after [`Step::Respond`], or after
    /// [`Step::RunJob`] or [`Step::ForwardRewritten`] of a lookup. It awaits the upstream's
    /// response to the same request, or to its own request body if it has one, for the cache alone.
    /// The host sends that request in the background, or drops it.
    pub fn take_background_update(&mut self) -> Option<Self> {
        self.update.take().map(|update| *update)
    }

    /// Loads the capabilities of these nodes for this request, before the lookup. For a host that
    /// [probes](Self::take_probe) later, or whose settings are shared by many routes.
    pub fn load_node_capabilities(&mut self, nodes: &NodeCapabilities) {
        self.with_exchange(|exchange| catch_panic(|| exchange.load_node_capabilities_from(nodes)));
    }

    /// Returns the driver of the next probe of the node, if a capability has to be probed; called
    /// until it returns `None`.
    ///
    /// Called before the lookup or any other decision about the request or, after
    /// [`load_node_capabilities`](Self::load_node_capabilities), before the response's head. `url`
    /// is the target of the request, where requests differ in it. The host sends the probe in the
    /// background, to its [path](Self::probe_path) next to this request's path, or drops it.
    pub fn take_probe(&mut self, url: Option<&[u8]>, now: u64) -> Option<Self> {
        let inquiry = self.with_exchange(|exchange| catch_panic(|| exchange.start_probe(url, now)));
        inquiry.flatten().flatten().map(Self::from_exchange)
    }

    /// Returns the path that a [probe](Self::take_probe) requests in place of `path`.
    pub fn probe_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.exchange()?.probe_path(path)
    }
}
