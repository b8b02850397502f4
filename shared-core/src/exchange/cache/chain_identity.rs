//! Chain identity: a namespace whose node responds for another chain is suspended.

use crate::cache::chain::{ChainState, HeightUnit};
use crate::cache::credentials::CredentialsPolicies;
use crate::cache::entry::CacheEntry;
use crate::cache::process::chain_identities::ChainIdentityFact;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::process::ProcessCacheState;
use crate::cache::vary_key::{
    decode_namespace_name, truncated_blake3, RetainedRequestHeaders, VaryKey,
};
use crate::cache::CacheNamespace;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::machine::Exchange;

/// Maximum bytes that decoding a response with a chain identity takes.
const MAX_FACT_BYTES: usize = 4 << 10;

/// Request headers of HTTP, browsers, proxies and tracing, which select no chain.
const UNRELATED_HEADERS: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "age",
    "authorization",
    "baggage",
    "cache-control",
    "cdn-loop",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "from",
    "host",
    "if-modified-since",
    "if-none-match",
    "keep-alive",
    "origin",
    "pragma",
    "priority",
    "proxy-connection",
    "referer",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "true-client-ip",
    "user-agent",
    "via",
    "x-real-ip",
    "x-request-id",
];

/// Prefixes of request headers that select no chain.
const UNRELATED_PREFIXES: &[&str] = &[
    ":",
    "cf-",
    "fly-",
    "sec-",
    "x-amz",
    "x-b3-",
    "x-cloud-",
    "x-envoy-",
    "x-forwarded-",
];

/// Returns a hash of the request headers that may select the chain; `None` if there are none.
/// Headers that are part of keys (`keyed`) select another vary key, and are left out.
pub(in crate::exchange) fn chain_headers_hash(
    fields: &RetainedRequestHeaders,
    keyed: &CredentialsPolicies,
) -> Option<u64> {
    let mut selector = None;
    for (name, value) in fields.iter() {
        let name = name.to_ascii_lowercase();
        let is_common = UNRELATED_HEADERS
            .iter()
            .any(|common| common.as_bytes() == name)
            || UNRELATED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix.as_bytes()))
            || keyed
                .cache_key_headers()
                .any(|known| known.as_bytes().eq_ignore_ascii_case(&name));
        if is_common {
            continue;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(&name);
        hasher.update(value);
        let hash = hasher.finalize();
        let number = hash
            .as_bytes()
            .first_chunk()
            .copied()
            .map(u64::from_le_bytes);
        // the sum does not depend on the order
        let sum: u64 = selector.unwrap_or(0);
        selector = Some(sum.wrapping_add(number.unwrap_or(0)));
    }
    selector
}

impl Exchange {
    /// Whether the cache of the namespace is suspended because its node has another chain.
    pub(in crate::exchange) fn is_cache_suspended(&self, lookup: &LookupRequest<'_>) -> bool {
        let shared = &self.route_config.process.shared;
        let any_wrong = shared
            .owner_client()
            .is_some_and(|owner| owner.followed_chains().any_wrong());
        if !any_wrong && !shared.identities.has_suspended() {
            return false;
        }
        is_namespace_suspended(
            shared,
            &truncated_blake3(self.request_vary_key(lookup).namespace_key_bytes()),
        )
    }

    /// Learns the chain identity of the namespace from an entry, so that later responses of the
    /// node are compared with it.
    pub(super) fn learn_chain_identity(&self, entry: &CacheEntry, lookup: &LookupRequest<'_>) {
        if entry.decode_memory_bytes() > MAX_FACT_BYTES {
            // a longer result is no number
            return;
        }
        let fact = entry.decode_payload().and_then(|result| {
            ChainIdentityFact::identity_fact_from_rpc_result(
                &self.lookup_findings.rpc_method,
                &result,
            )
        });
        if let Some(fact) = fact {
            let (shared, scope) = (
                &self.route_config.process.shared,
                self.request_vary_key(lookup),
            );
            let generation = shared.purge_generation();
            let observed = shared
                .identities
                .compare_and_record_fact(&scope, generation, fact);
            if let Err(how) = observed {
                suspend_namespace(shared, &scope, &how, lookup.now);
            }
        }
    }

    /// Whether the node must respond to a call that identifies the chain, because the request has
    /// headers that may select the chain and were not seen before.
    pub(in crate::exchange) fn has_unverified_chain_headers(&self, scope: &VaryKey) -> bool {
        let shared = &self.route_config.process.shared;
        let Some(selector) = chain_headers_hash(
            &self.request.cache.fields,
            &self.route_config.cache.credentials,
        ) else {
            return false;
        };
        let generation = shared.purge_generation();
        !shared
            .identities
            .are_request_headers_verified(scope, generation, selector)
    }
}

/// Whether the cache of a namespace is suspended because its nodes serve another chain or different
/// ones, as the owner or this process has found.
pub(in crate::exchange) fn is_namespace_suspended(
    shared: &ProcessCacheState,
    namespace: &CacheNamespace,
) -> bool {
    let mark = shared
        .owner_client()
        .and_then(|owner| owner.dispatch_mark(namespace));
    mark.is_some_and(|mark| mark.is_wrong) || shared.identities.is_namespace_suspended(namespace)
}

/// Suspends the cache of a namespace in all processes that share the owner, because its node
/// has responded for another chain, as `how` describes.
pub(in crate::exchange) fn suspend_namespace(
    shared: &ProcessCacheState,
    scope: &VaryKey,
    how: &str,
    now: u64,
) {
    let namespace = truncated_blake3(scope.namespace_key_bytes());
    let is_news = match shared.owner_client() {
        Some(owner) => {
            let unknown = || ChainState::new_without_blocks(HeightUnit::Blocks, 0);
            let chain = owner.followed_chains().get_or_add_chain(namespace, unknown);
            let was_wrong =
                chain.modify_locked_chain_state(|state| std::mem::replace(&mut state.wrong, true));
            if !was_wrong {
                let query = format!("wrong-chain={}", const_hex::encode(namespace));
                // the result of the request is ignored
                let _ = owner.purge_at_owner(query.as_bytes(), None, WaitingRequestId::NONE, now);
            }
            !was_wrong
        }
        None => shared.identities.suspend_namespace(&namespace),
    };
    if is_news {
        shared.purge_hot_tier(None);
        let name = decode_namespace_name(scope.namespace_key_bytes()).escape_ascii();
        shared.verified.queue_log_line(format!(
            "a node of namespace \"{name}\" is on another chain ({how}): nothing is cached there \
             until the namespace is purged or the proxy is reloaded; set a cache_namespace for \
             each chain"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::chain_headers_hash;
    use crate::cache::credentials::CredentialsPolicies;
    use crate::cache::vary_key::RetainedRequestHeaders;

    fn selector_of(fields: &[(&str, &str)]) -> Option<u64> {
        let mut all = RetainedRequestHeaders::default();
        for (name, value) in fields {
            all.push_header(name.as_bytes(), value.as_bytes());
        }
        chain_headers_hash(&all, &CredentialsPolicies::default())
    }

    #[test]
    fn selector_differs_by_chain_header_and_not_by_order() {
        let common = [("Host", "x"), ("User-Agent", "y"), ("X-Forwarded-For", "z")];
        assert_eq!(selector_of(&common), None);
        let eth = selector_of(&[("Host", "x"), ("Target-Service-Id", "eth")]);
        assert!(eth.is_some());
        assert_eq!(
            eth,
            selector_of(&[("target-service-id", "eth"), ("Host", "z")])
        );
        assert_ne!(eth, selector_of(&[("target-service-id", "polygon")]));
        assert_ne!(eth, selector_of(&[("x-chain", "eth")]));
        let both = [("x-chain", "1"), ("x-net", "2")];
        assert_eq!(selector_of(&both), selector_of(&[both[1], both[0]]));
        assert_ne!(
            selector_of(&both),
            selector_of(&[("x-chain", "2"), ("x-net", "1")])
        );
    }
}
