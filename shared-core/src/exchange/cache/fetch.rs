//! Fetches of a new response: for the client, or in the background while the client receives
//! the stale one.

use std::sync::Arc;

use super::chain_identity::chain_headers_hash;
use super::fill::target::FillTarget;
use super::fill::verification::PendingHitVerification;
use super::fill::{CacheFill, FillSnapshot};
use crate::beacon::BeaconRouteLifetimeKind;
use crate::bytes::try_copy_bytes;
use crate::cache::entry::{CacheEntry, CompressionGate};
use crate::cache::process::chain_identities::is_identity_method;
use crate::cache::process::flights::FlightLeadership;
use crate::cache::status::CacheStatus;
use crate::cache::vary_key::VaryKey;
use crate::config::UpstreamAcceptEncoding;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::{BackgroundUpdate, LookupResult, StaleEntry};
use crate::exchange::machine::actions::{HostMisuse, ResponseHeadAction};
use crate::exchange::machine::message_head::{
    CacheRequestKind, Header, ResponseContentCoding, ResponseHead, ResponseProperties,
};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::BufferedBody;
use crate::response_mode::ResponseMode;

impl Exchange {
    /// Attaches the fill to this request or, while the client receives a stale response, to a
    /// background update.
    pub(in crate::exchange) fn attach_cache_fill(
        &mut self,
        mut fill: Box<CacheFill>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        if self.route_config.cache.background_update
            && !lookup.no_background_update
            && fill.leads_flight()
        {
            if let Some(found) = self.respond_stale(CacheStatus::Stale, lookup) {
                let stale_entry = self.lookup_findings.stale_entry.as_ref();
                fill.updates = stale_entry.map(|it| (it.key, Arc::clone(&it.entry)));
                let update = BackgroundUpdate { fill, call: None };
                self.lookup_findings.background_updates.push_back(update);
                return found;
            }
        }
        self.storing.fill = Some(fill);
        LookupResult::Miss
    }

    /// Verifies a hit, if a verification is due: the node is queried again in the background.
    pub(in crate::exchange) fn start_hit_verification(
        &mut self,
        entry: &Arc<CacheEntry>,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
        target: impl FnOnce() -> FillTarget,
    ) {
        let verify = self.route_config.cache.verify;
        let verified = &self.route_config.process.shared.verified;
        if !verify.is_verification_enabled()
            || lookup.no_background_update
            || verified.pick_hit_to_verify(1, verify.rate).is_none()
        {
            return;
        }
        let fill = self.new_verification_fill(entry, target(), scope, lookup);
        let update = BackgroundUpdate { fill, call: None };
        self.lookup_findings.background_updates.push_back(update);
    }

    /// Creates the fill that compares the node's response with `entry`.
    pub(super) fn new_verification_fill(
        &self,
        entry: &Arc<CacheEntry>,
        target: FillTarget,
        scope: &VaryKey,
        lookup: &LookupRequest<'_>,
    ) -> Box<CacheFill> {
        let mut fill = self.new_cache_fill(target, scope.clone(), None, lookup);
        let purges = self.route_config.cache.verify.purges;
        fill.compared = Some(PendingHitVerification::new(Arc::clone(entry), purges));
        fill
    }

    /// Returns a fill for this target, with the route's settings and the state of the chain at the
    /// lookup.
    pub(in crate::exchange) fn new_cache_fill(
        &self,
        target: FillTarget,
        scope: VaryKey,
        token: Option<FlightLeadership>,
        lookup: &LookupRequest<'_>,
    ) -> Box<CacheFill> {
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let (namespace, mark) = self.dispatch_mark(&scope);
        let settings = FillSnapshot {
            sent_at: lookup.now,
            dispatch_number: self.route_config.process.shared.next_dispatch_number(),
            generation: self.route_config.process.shared.purge_generation(),
            changes: self
                .route_config
                .process
                .shared
                .changes
                .last_invalidation_number(),
            namespace,
            mark,
            valid: Arc::clone(&self.route_config.cache.valid),
            chain: self.route_chain_parameters(),
            max_ssz: self.route_config.ssz.max_size,
            requests_identity: self.route_config.upstream_encoding
                == UpstreamAcceptEncoding::Identity
                && !lookup.forwards_codings,
            gate: self.compression_gate(),
            max_entry: size(self.route_config.cache.max_entry),
            keeps_stale: self.route_config.cache.use_stale.permits_any_stale(),
            selector: match &target {
                FillTarget::Call(wanted) if is_identity_method(&wanted.method) => {
                    chain_headers_hash(
                        &self.request.cache.fields,
                        &self.route_config.cache.credentials,
                    )
                }
                _ => None,
            },
            has_keyed_fields: self
                .route_config
                .cache
                .credentials
                .cache_key_headers()
                .next()
                .is_some(),
        };
        let shared = Arc::clone(&self.route_config.process.shared);
        Box::new(CacheFill::new(target, scope, token, shared, settings))
    }

    /// Returns the conditions below which entries of this route are not compressed.
    pub(in crate::exchange) fn compression_gate(&self) -> CompressionGate {
        CompressionGate {
            min_length: self.route_config.min_length,
            level: self.route_config.comp_level,
        }
    }

    /// Returns the exchange of the next background update, hit verification or part of a response
    /// after a lookup: it receives the node's response to a background request, for the cache
    /// alone. Called until it returns `None`. The host repeats the request with the same head and
    /// body, or the exchange's own where it has one; a host that can't drops the exchange.
    pub fn take_background_update(&mut self) -> Option<Self> {
        loop {
            let update = self.lookup_findings.background_updates.pop_front()?;
            // without memory for its exchange an update ends, and its followers are woken
            if let Some(exchange) = self.new_update_exchange(update) {
                return Some(exchange);
            }
        }
    }

    /// Creates the exchange of a background update; `None` if there is no memory for it.
    fn new_update_exchange(&mut self, update: BackgroundUpdate) -> Option<Self> {
        let mut exchange = Self::new(Arc::clone(&self.route_config));
        exchange
            .apply_transition(ExchangeEvent::Update, |_| ExchangePhase::AwaitingUpdate)
            .ok()?;
        exchange.request = self.request.clone();
        exchange.upstream_edits = self.upstream_edits.clone();
        exchange.cache_status = CacheStatus::Miss;
        exchange.lookup_findings.at = self.lookup_findings.at;
        match update.call {
            Some(call) => {
                exchange.observe_background_response_blocks(&call.body, update.fill.vary_key());
                exchange.request_body = call.body;
                exchange.lookup_findings.key = Some(call.key);
                exchange.lookup_findings.rpc_method = call.method;
                exchange.remove_request_coding();
            }
            None => {
                exchange.request_body = try_copy_bytes(&self.request_body)?;
                exchange.lookup_findings.key = self.lookup_findings.key;
                exchange.lookup_findings.rpc_method = self.lookup_findings.rpc_method.clone();
                let stale_entry = self.lookup_findings.stale_entry.as_ref();
                exchange.lookup_findings.stale_entry =
                    stale_entry.map(StaleEntry::clone_for_update);
                // clients that receive the entry from the cache later see the block, too
                exchange.watched = self.watched.take();
            }
        }
        exchange.storing.fill = Some(update.fill);
        if exchange.request.cache.kind == CacheRequestKind::Resource {
            let route =
                BeaconRouteLifetimeKind::classify_beacon_target(&exchange.request.cache.target);
            exchange.make_request_conditional(route != BeaconRouteLifetimeKind::Other);
        }
        Some(exchange)
    }

    /// Copies or discards the node's response to a background request, for which no client waits.
    pub(in crate::exchange) fn plan_background_response<'a, I>(
        &mut self,
        mut head: ResponseHead<I>,
    ) -> Result<ResponseHeadAction, HostMisuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        // the response becomes no part of another one
        head.subrequest = false;
        if !self.storing.is_judged {
            self.decide_storage(&head);
        }
        let is_answer = self.check_probe_head(&head);
        self.head_edits.clear();
        let buffered = BufferedBody::for_response_head(&head);
        let mode = match ResponseProperties::from_response_headers(head.fields).coding {
            ResponseContentCoding::Identity => ResponseMode::Subrequest,
            _ => ResponseMode::Encoded,
        };
        self.pass_response(ExchangeEvent::HeadToPass, buffered, mode)?;
        Ok(match is_answer {
            true => ResponseHeadAction::Tee,
            false => self.decide_tee_or_pass(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::BackgroundUpdate;
    use crate::cache::process::ProcessResources;
    use crate::cache::vary_key::VaryKey;
    use crate::config::RouteConfigBlock;
    use crate::exchange::cache::fill::target::FillTarget;
    use crate::exchange::cache::lookup::result::BackgroundCall;
    use crate::exchange::{Exchange, LookupRequest, RequestHead};
    use crate::request_coding::BodyContentCoding;

    /// Returns the exchange of a POST whose body is compressed, after its lookup.
    fn looked_up_exchange() -> Exchange {
        let mut directives = RouteConfigBlock::default();
        directives.set_directive("enable", &[b"on"]).unwrap();
        directives.set_directive("cache", &[b"on"]).unwrap();
        let config = directives.resolve_route_config(ProcessResources::default());
        let mut exchange = Exchange::new(Arc::new(config));
        let head = RequestHead {
            method: b"POST",
            target: b"/",
            fields: [(&b"Content-Type"[..], &b"application/json"[..])].into_iter(),
        };
        exchange.read_request_head(head).unwrap();
        exchange.request.coding.update_from_coding_line(b"gzip");
        exchange.lookup_findings.key = Some([7; 32]);
        exchange
    }

    /// Adds a background update whose call has this number, or that repeats the client's request.
    fn add_update(exchange: &mut Exchange, number: Option<u8>) {
        let target = FillTarget::Batch(Vec::new());
        let lookup = LookupRequest::default();
        let fill = exchange.new_cache_fill(target, VaryKey::new(), None, &lookup);
        let call = number.map(|number| BackgroundCall {
            body: vec![number],
            method: b"eth_getLogs".to_vec(),
            key: [number; 32],
        });
        let update = BackgroundUpdate { fill, call };
        exchange
            .lookup_findings
            .background_updates
            .push_back(update);
    }

    #[test]
    fn background_updates_are_taken_in_order_each_with_its_own_body() {
        let mut exchange = looked_up_exchange();
        for number in [Some(1), None, Some(2)] {
            add_update(&mut exchange, number);
        }
        for number in [Some(1), None, Some(2)] {
            let update = exchange.take_background_update().unwrap();
            let body: Vec<u8> = number.into_iter().collect();
            assert_eq!(update.upstream_request_body(), body);
            assert_eq!(update.lookup_findings.key, Some([number.unwrap_or(7); 32]));
            // a body of its own is not compressed, whatever the client's is
            let is_coded = update.request.coding != BodyContentCoding::None;
            assert_eq!(is_coded, number.is_none());
            let removed = update
                .upstream_edits()
                .iter()
                .any(|edit| edit.name == "Content-Encoding" && edit.value.is_none());
            assert_eq!(removed, number.is_some());
        }
        assert!(exchange.take_background_update().is_none());
    }

    #[test]
    fn only_an_update_without_a_body_of_its_own_repeats_the_request() {
        let mut exchange = looked_up_exchange();
        assert!(!exchange.lookup_findings.repeats_request());
        add_update(&mut exchange, Some(1));
        assert!(!exchange.lookup_findings.repeats_request());
        add_update(&mut exchange, None);
        assert!(exchange.lookup_findings.repeats_request());
    }
}
