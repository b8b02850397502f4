//! Request phase of the driver: the body that a lookup needs, the lookup, and the request to the
//! upstream.

use super::{
    BodyLength, ExchangeDriver, ExchangeFailureReason, HostStep, LookupReadiness,
    RequestBodyAvailability, RequiredBody,
};
use crate::cache::reason::Reason;
use crate::config::node_capabilities::RouteNodeCapabilities;
use crate::exchange::cache::lookup::request::{LookupAction, LookupRequest};
use crate::exchange::cache::purge_request::PurgeHttpRequest;
#[cfg(not(target_family = "wasm"))]
use crate::exchange::cache::status_request::StatusPageRequest;
use crate::exchange::drive::step::run_pending_exchange_work;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::request::call_policy::CallAccessDecision;
use crate::exchange::request::unverifiable::UnverifiableRequestReason;
use crate::memory;
use crate::panics::catch_panic;

/// Longest copy of a request's body that is not reserved from the budget. Bytes. It equals the
/// hosts' own buffers, and lookups must succeed even if long responses take the whole budget.
const MAX_UNRESERVED_COPY: usize = 64 << 10;

impl ExchangeDriver {
    /// Returns the part of a request body of this length that the lookup needs. May be called again
    /// after the body was read; after the lookup nothing is needed.
    pub fn required_body(&mut self, length: BodyLength) -> RequiredBody {
        let need = match self.seeking {
            LookupReadiness::Start => self
                .available_exchange_mut()
                .map(|exchange| exchange.body_required_before_response(length)),
            LookupReadiness::Body { .. } => Some(RequiredBody::LookUp),
            LookupReadiness::Done => None,
        };
        let need = need.unwrap_or(RequiredBody::Nothing);
        match need {
            RequiredBody::LookUp => {}
            RequiredBody::Body => self.seeking = LookupReadiness::Body { whole: false },
            RequiredBody::WholeBody => self.seeking = LookupReadiness::Body { whole: true },
            RequiredBody::Nothing => self.seeking = LookupReadiness::Done,
        }
        need
    }

    /// Whether the client may wait for a 100 (Continue) before it sends the request's body, for a
    /// host that does not send one. The body is [unread](RequestBodyAvailability::AwaitsContinue) then.
    pub fn expects_continue(&self) -> bool {
        self.available_exchange()
            .is_some_and(|exchange| exchange.request.expects_continue)
    }

    /// Returns the number of bytes that a host may buffer of a request body of `length`, with
    /// the `received` bytes among them. For a host that keeps the body in memory until it is
    /// complete.
    ///
    /// The received bytes count against `memory` until the lookup; bytes that are only announced do
    /// not. A body beyond 64 KiB takes at most the share that it leaves free for all others. `None`
    /// if the body is too long or there is no memory: the lookup runs without the body.
    pub fn request_buffer_allowance(&mut self, received: u64, length: BodyLength) -> Option<u64> {
        let exchange = self.available_exchange.as_deref()?;
        let longest = match self.seeking {
            LookupReadiness::Body { whole } => exchange.max_buffered_request_length(whole),
            LookupReadiness::Start | LookupReadiness::Done => return None,
        };
        let may_become = match length {
            BodyLength::Known(length) => length.max(received),
            BodyLength::Unknown => received.saturating_mul(2).min(longest).max(received),
        };
        if may_become > longest {
            self.is_too_long = true;
            return None;
        }
        let limit = usize::try_from(exchange.route_config.memory).unwrap_or(usize::MAX);
        let bytes = usize::try_from(received).unwrap_or(usize::MAX);
        if self.body_reservation.is_none() {
            self.body_reservation = exchange.route_config.process.budget.reserve_bytes(0, limit);
        }
        let has_room = self
            .body_reservation
            .as_mut()
            .is_some_and(|reservation| match bytes {
                0..=MAX_UNRESERVED_COPY => reservation.grow_reservation_to(bytes, limit),
                _ => reservation.grow_within_share(bytes, limit),
            });
        self.lacks_room = !has_room || memory::is_memory_short();
        (!self.lacks_room).then_some(may_become)
    }

    /// Whether the lookup must run without the body because its `length` exceeds `limit` or the
    /// longest body that is read, for a host whose proxy keeps the request's body until it is
    /// complete, up to `limit`.
    pub fn exceeds_request_limit(&mut self, length: u64, limit: u64) -> bool {
        let longest = match self.seeking {
            LookupReadiness::Body { whole } => self
                .available_exchange()
                .map(|it| it.max_buffered_request_length(whole)),
            LookupReadiness::Start | LookupReadiness::Done => None,
        };
        self.is_too_long = longest.is_some_and(|longest| length > longest.min(limit));
        self.is_too_long
    }

    /// Reserves memory for a contiguous copy of the request's body, which the host makes from its
    /// pieces for a [lookup](Self::lookup_under_policy) or to build the request again. The memory
    /// is released after the lookup. `false` if there is not enough memory: the lookup runs without
    /// the body.
    pub fn reserve_body_copy(&mut self, bytes: usize) -> bool {
        if bytes <= MAX_UNRESERVED_COPY {
            return !memory::is_memory_short();
        }
        self.room = self.available_exchange().and_then(|exchange| {
            let limit = usize::try_from(exchange.route_config.memory).unwrap_or(usize::MAX);
            let budget = &exchange.route_config.process.budget;
            budget
                .reserve_bytes(bytes, limit)
                .filter(|_| !memory::is_memory_short())
        });
        self.lacks_room = self.room.is_none();
        !self.lacks_room
    }

    /// Copies the pieces of the request's body into reserved memory, for a host that has no buffer
    /// of its own for that.
    pub fn copy_request_body(&mut self, pieces: &[&[u8]]) -> Option<Vec<u8>> {
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
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn lookup_under_policy(
        &mut self,
        body: RequestBodyAvailability<'_>,
        lookup: LookupRequest<'_>,
    ) -> Result<HostStep, HostMisuse> {
        let room = self.room.take();
        let found = self.evaluate_policy_and_lookup(body, lookup);
        drop(room);
        if self.seeking == LookupReadiness::Done {
            self.body_reservation = None;
        }
        found
    }

    /// Evaluates the request under the policy; a request that is not denied is rewritten, looked up
    /// or forwarded.
    fn evaluate_policy_and_lookup(
        &mut self,
        body: RequestBodyAvailability<'_>,
        lookup: LookupRequest<'_>,
    ) -> Result<HostStep, HostMisuse> {
        let (lacks_room, is_too_long) = (self.lacks_room, self.is_too_long);
        let exchange = self.exchange_or_misuse(ExchangeEvent::Miss)?;
        if lookup.local {
            // the host responds itself, and is no cache of a node
            exchange.request.cache.only_if_cached = false;
        }
        let (as_read, body) = (body, body.as_complete_body());
        if exchange.is_subject_to_policy() {
            let ruling =
                catch_panic(|| exchange.evaluate_call_policy(as_read, is_too_long, &lookup));
            // a request that was not evaluated is not forwarded
            match ruling.unwrap_or(CallAccessDecision::Refused(
                UnverifiableRequestReason::Memory,
            )) {
                CallAccessDecision::Allowed => {}
                CallAccessDecision::PartlyDenied => return self.lookup_allowed_calls(body, lookup),
                denied => {
                    exchange.respond_denied(denied)?;
                    self.seeking = LookupReadiness::Done;
                    return Ok(HostStep::Respond);
                }
            }
        }
        if exchange.requires_request_rewrite() {
            if exchange.route_config.is_cache_enabled() {
                catch_panic(|| exchange.record_invalidating_request(&lookup)).unwrap_or_default();
            }
            self.seeking = LookupReadiness::Done;
            return self.transcode_or_decode_request(body);
        }
        if catch_panic(|| exchange.is_engine_witness_call(body, &lookup)).unwrap_or(false) {
            self.seeking = LookupReadiness::Done;
            return self.transcode_or_decode_request(body);
        }
        if catch_panic(|| exchange.negotiate_before_lookup(body)).unwrap_or(false) {
            self.seeking = LookupReadiness::Done;
            return self.forward_or_decompress_request(body);
        }
        let why_not = match body {
            Some(body) if exchange.exceeds_lookup_limit(body) => Reason::RequestLength,
            None if exchange.is_call_request() && is_too_long => Reason::RequestLength,
            None if exchange.is_call_request() && lacks_room => Reason::Memory,
            None if exchange.is_call_request() => Reason::BodyOnDisk,
            _ => Reason::None,
        };
        if why_not != Reason::None {
            exchange.set_bypass_reason(why_not);
            self.seeking = LookupReadiness::Done;
            return self.forward_or_decompress_request(body);
        }
        match self.lookup_within_filter_limits(body, lookup)? {
            LookupAction::Forward => self.forward_or_decompress_request(body),
            found => Ok(self.step_for_lookup_action(found)),
        }
    }

    /// Looks up the allowed calls of a batch that is partly denied, or forwards them to the node.
    fn lookup_allowed_calls(
        &mut self,
        body: Option<&[u8]>,
        lookup: LookupRequest<'_>,
    ) -> Result<HostStep, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Miss)?;
        let is_too_long = body.is_some_and(|body| exchange.exceeds_lookup_limit(body));
        if is_too_long {
            exchange.set_bypass_reason(Reason::RequestLength);
        }
        if exchange.route_config.is_cache_enabled() && !exchange.is_call_request() {
            // handled like any other POST
            catch_panic(|| exchange.record_invalidating_request(&lookup)).unwrap_or_default();
        }
        let found =
            match is_too_long || !exchange.is_call_request() || exchange.cache_needs_no_body() {
                true => LookupAction::Forward,
                false => self.lookup_within_filter_limits(body, lookup)?,
            };
        if found != LookupAction::Forward {
            return Ok(self.step_for_lookup_action(found));
        }
        self.seeking = LookupReadiness::Done;
        if let Some(step) = self.respond_instead_of_forwarding()? {
            return Ok(step);
        }
        let exchange = self.exchange_or_misuse(ExchangeEvent::PartialHit)?;
        Ok(match exchange.forward_allowed_calls()? {
            true => HostStep::ForwardRewritten,
            // the batch must not be forwarded unchanged
            false => HostStep::Fail(ExchangeFailureReason::Judgement),
        })
    }

    /// Returns the step of the host for the action that a lookup has returned.
    fn step_for_lookup_action(&mut self, found: LookupAction) -> HostStep {
        match found {
            LookupAction::Forward => HostStep::Forward,
            LookupAction::ForwardRewritten => HostStep::ForwardRewritten,
            LookupAction::Respond => HostStep::Respond,
            LookupAction::RespondOffLoop | LookupAction::AssembleOffLoop => {
                self.start_exchange_job()
            }
            LookupAction::Wait => HostStep::Wait,
        }
    }

    /// Searches the cache, if the request has to be looked up; other filters that change bodies
    /// limit the result.
    fn lookup_within_filter_limits(
        &mut self,
        body: Option<&[u8]>,
        lookup: LookupRequest<'_>,
    ) -> Result<LookupAction, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Miss)?;
        let filters = &exchange.route_config.filters;
        let lookup = LookupRequest {
            // a request without a complete body is no call here: its beginning is not used
            body: body.unwrap_or_default(),
            coding_allowed: lookup.coding_allowed && !filters.has_detected_filter(),
            whole: lookup.whole || lookup.filters && !filters.has_unchanged_bodies(),
            no_background_update: lookup.no_background_update || exchange.answers_only_from_cache(),
            ..lookup
        };
        let found = match catch_panic(|| exchange.lookup_in_cache(lookup)) {
            Some(found) => found?,
            None => {
                exchange.reset_failed_lookup();
                LookupAction::Forward
            }
        };
        if let LookupAction::Respond | LookupAction::RespondOffLoop = found {
            exchange.release_permits();
        }
        if found == LookupAction::Forward {
            // the client's own request fetches the response
            exchange.lookup_findings.background_updates.clear();
        }
        // updates of an earlier lookup that the host has not taken end here
        self.updates = std::iter::from_fn(|| exchange.take_background_update())
            .map(Self::from_exchange)
            .collect();
        if !matches!(found, LookupAction::Wait | LookupAction::AssembleOffLoop) {
            self.seeking = LookupReadiness::Done;
        }
        Ok(found)
    }

    /// Responds with 504 in place of a request that the node must not receive; `None` for all other
    /// requests.
    fn respond_instead_of_forwarding(&mut self) -> Result<Option<HostStep>, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Hit)?;
        if !exchange.answers_only_from_cache() {
            return Ok(None);
        }
        exchange.respond_not_cached()?;
        Ok(Some(HostStep::Respond))
    }

    /// Forwards the request unchanged, unless its compressed body must be decompressed first.
    fn forward_or_decompress_request(
        &mut self,
        body: Option<&[u8]>,
    ) -> Result<HostStep, HostMisuse> {
        if let Some(step) = self.respond_instead_of_forwarding()? {
            return Ok(step);
        }
        match self
            .exchange_or_misuse(ExchangeEvent::Miss)?
            .is_decoded_off_loop()
        {
            true => self.transcode_or_decode_request(body),
            false => Ok(HostStep::Forward),
        }
    }

    /// Rewrites the request's body to another format or without its coding.
    fn transcode_or_decode_request(&mut self, body: Option<&[u8]>) -> Result<HostStep, HostMisuse> {
        if let Some(step) = self.respond_instead_of_forwarding()? {
            return Ok(step);
        }
        let is_too_long = self.is_too_long;
        let exchange = self.exchange_or_misuse(ExchangeEvent::Rewrite)?;
        match exchange.begin_request_body_rewrite(body, is_too_long)? {
            true if exchange.needs_rewrite_job() => return Ok(self.start_exchange_job()),
            true => run_pending_exchange_work(exchange),
            false => {}
        }
        Ok(self.step_after_job())
    }

    /// Purges the scope that the request's query names, instead of a lookup. Returns
    /// [`HostStep::Respond`] or [`HostStep::Wait`].
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn handle_purge_request(
        &mut self,
        purge: &PurgeHttpRequest<'_>,
    ) -> Result<HostStep, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Miss)?;
        Ok(match exchange.handle_purge_request(purge)? {
            LookupAction::Wait => HostStep::Wait,
            _ => HostStep::Respond,
        })
    }

    /// Responds with the status page, instead of a lookup and with the same steps.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    #[cfg(not(target_family = "wasm"))]
    pub fn respond_with_status_page(
        &mut self,
        request: &StatusPageRequest<'_>,
    ) -> Result<HostStep, HostMisuse> {
        let exchange = self.exchange_or_misuse(ExchangeEvent::Miss)?;
        Ok(match exchange.respond_with_status_page(request)? {
            LookupAction::Wait => HostStep::Wait,
            _ => HostStep::Respond,
        })
    }

    /// Returns the driver of the next background update, after [`HostStep::Respond`], or after
    /// [`HostStep::RunJob`], [`HostStep::ForwardRewritten`] or [`HostStep::Wait`] of a lookup;
    /// called until it returns `None`. It awaits the upstream's response to the same request, or to
    /// its own request body if it has one, for the cache alone. The host sends that request in the
    /// background, or drops the driver.
    pub fn take_background_update(&mut self) -> Option<Self> {
        self.updates.pop_front()
    }

    /// Loads the capabilities of these nodes for this request, before the lookup. For a host that
    /// [probes](Self::take_node_probe) later, or whose settings are shared by many routes.
    pub fn load_node_capabilities(&mut self, nodes: &RouteNodeCapabilities) {
        if let Some(exchange) = self.available_exchange_mut() {
            catch_panic(|| exchange.load_separate_node_capabilities(nodes));
        }
    }

    /// Returns the driver of the next probe of the node, if a capability has to be probed; called
    /// until it returns `None`.
    ///
    /// Called before the lookup or any other decision about the request or, after
    /// [`load_node_capabilities`](Self::load_node_capabilities), before the response's head. `url`
    /// is the target of the request, where requests differ in it. The host sends the probe in the
    /// background, to its [path](Self::probe_path) next to this request's path, or drops it.
    pub fn take_node_probe(&mut self, url: Option<&[u8]>, now: u64) -> Option<Self> {
        let exchange = self.available_exchange_mut()?;
        let probe = catch_panic(|| exchange.create_due_capability_probe(url, now))?;
        probe.map(Self::from_exchange)
    }

    /// Returns the path that a [probe](Self::take_node_probe) requests in place of `path`.
    pub fn probe_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.available_exchange()?.probe_path(path)
    }
}
