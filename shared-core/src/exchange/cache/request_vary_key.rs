//! Vary keys of requests.

use super::waiting::PurgeAndChainSnapshot;
use crate::cache::chain::{DispatchMark, HeightUnit};
use crate::cache::vary_key::{truncated_blake3, VaryKey};
use crate::cache::CacheNamespace;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::machine::message_head::CacheRequestKind;
use crate::exchange::machine::Exchange;

impl Exchange {
    /// Returns the vary key of the request, which separates the variants of a call.
    pub(in crate::exchange) fn request_vary_key(&self, lookup: &LookupRequest<'_>) -> VaryKey {
        self.vary_key_for_target(lookup, None)
    }

    /// Returns the vary key of the request, or of one target (`name`) of its route.
    pub(in crate::exchange) fn vary_key_for_target(
        &self,
        lookup: &LookupRequest<'_>,
        name: Option<&[u8]>,
    ) -> VaryKey {
        let request = &self.request.cache;
        let mut base = VaryKey::new();
        self.push_request_namespace(&mut base, lookup);
        base.mark_namespace_end();
        if let Some(name) = name {
            base.push_route_part(name);
        }
        // nodes send some headers to browsers only, and do not always name Origin in Vary
        let from_browser = request.fields.header_values("origin").next().is_some();
        base.push_route_part(if from_browser { b"origin" } else { b"" });
        let mut keyed = self
            .route_config
            .cache
            .credentials
            .cache_key_headers()
            .peekable();
        if keyed.peek().is_some() {
            base.push_header_hash(&request.fields, keyed);
        }
        let names = self
            .route_config
            .process
            .shared
            .vary_table
            .recorded_vary_names(&base);
        base.encode_vary_header_values(&request.fields, names);
        base
    }

    /// Pushes the namespace; where the operator sets none, the target of a call is a part of it.
    fn push_request_namespace(&self, base: &mut VaryKey, lookup: &LookupRequest<'_>) {
        let request = &self.request.cache;
        self.push_route_namespace(base, lookup);
        if self.configured_namespace(lookup).is_none() && request.kind == CacheRequestKind::Call {
            base.push_route_part(&request.target);
        }
    }

    /// Name of the namespace that the operator has set.
    pub(super) fn configured_namespace<'a>(
        &'a self,
        lookup: &LookupRequest<'a>,
    ) -> Option<&'a [u8]> {
        let of_place = || self.route_config.cache.namespace.as_deref();
        lookup.namespace.or_else(of_place)
    }

    /// Whether the request has no namespace that separates its responses from other routes'.
    pub(in crate::exchange) fn lacks_namespace(&self, lookup: &LookupRequest<'_>) -> bool {
        lookup.unnamed && self.configured_namespace(lookup).is_none()
    }

    /// Pushes the namespace, without the target that only calls have in it.
    pub(in crate::exchange) fn push_route_namespace(
        &self,
        base: &mut VaryKey,
        lookup: &LookupRequest<'_>,
    ) {
        match self.configured_namespace(lookup) {
            Some(namespace) => base.push_route_part(namespace),
            None => {
                base.push_route_part(lookup.place);
                base.push_route_part(&lookup.port.to_be_bytes());
                base.push_route_part(&lookup.host.to_ascii_lowercase());
            }
        }
    }

    /// Returns the identifier of the namespace at the owner, and the dispatch mark of its chain.
    pub(in crate::exchange) fn dispatch_mark(
        &self,
        scope: &VaryKey,
    ) -> (CacheNamespace, Option<DispatchMark>) {
        let Some(owner) = self.route_config.process.shared.owner_client() else {
            // without an owner the namespace is not used
            return Default::default();
        };
        let namespace = truncated_blake3(scope.namespace_key_bytes());
        (namespace, owner.dispatch_mark(&namespace))
    }

    /// Returns the dispatch mark of the chain of the request's namespace, or `None` if the owner does
    /// not follow it.
    pub(in crate::exchange) fn followed_chain_mark(
        &self,
        lookup: &LookupRequest<'_>,
    ) -> Option<DispatchMark> {
        let mut base = VaryKey::new();
        self.push_request_namespace(&mut base, lookup);
        base.mark_namespace_end();
        self.dispatch_mark(&base).1
    }

    /// Whether immutable responses under this vary key may be shared with other machines: the owner
    /// follows the chain of the namespace, whose state is `mark`, knows its identity, and can compare
    /// the height of a response with it; and the key has no header that may identify the client. Only
    /// a configured namespace has a followed chain.
    pub(in crate::exchange) fn shares_with_machines(
        &self,
        scope: &VaryKey,
        mark: Option<&DispatchMark>,
    ) -> bool {
        let mut keyed = self.route_config.cache.credentials.cache_key_headers();
        let heights = match self.request.cache.kind {
            CacheRequestKind::Resource => HeightUnit::Slots,
            _ => HeightUnit::Blocks,
        };
        mark.is_some_and(|mark| mark.is_known && !mark.is_wrong && mark.heights == heights)
            && keyed.next().is_none()
            && scope.has_only_public_headers()
    }

    /// Returns the state that is known now.
    pub(in crate::exchange) fn capture_wait_snapshot(
        &self,
        scope: &VaryKey,
        now: u64,
    ) -> PurgeAndChainSnapshot {
        let (_, mark) = self.dispatch_mark(scope);
        let shared = &self.route_config.process.shared;
        PurgeAndChainSnapshot {
            generation: shared.purge_generation(),
            mark,
            is_current: shared.may_send_from_memory(now),
        }
    }
}
