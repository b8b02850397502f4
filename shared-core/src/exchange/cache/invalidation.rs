//! Requests that may change the response to a GET (RFC 9111, 4.4).

use crate::cache::entry::CacheEntry;
use crate::cache::vary_key::VaryKey;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::InvalidatingRequest;
use crate::exchange::machine::message_head::{Header, ResponseHead};
use crate::exchange::machine::Exchange;

impl Exchange {
    /// Records that this request invalidates the responses for its target when it succeeds.
    pub(in crate::exchange) fn record_invalidating_request(&mut self, lookup: &LookupRequest<'_>) {
        self.lookup_findings.invalidating_request = Some(Box::new(InvalidatingRequest {
            namespace: self.invalidation_target_scope(lookup),
            host: lookup.host.to_ascii_lowercase(),
        }));
    }

    /// Returns the scope in which a target names one resource on all routes: the namespace that the
    /// operator sets, or port and host.
    fn invalidation_target_scope(&self, lookup: &LookupRequest<'_>) -> Vec<u8> {
        let mut scope = VaryKey::new();
        match self.configured_namespace(lookup) {
            Some(namespace) => scope.push_route_part(namespace),
            None => {
                scope.push_route_part(&lookup.port.to_be_bytes());
                scope.push_route_part(&lookup.host.to_ascii_lowercase());
            }
        }
        scope.vary_key_bytes().to_vec()
    }

    /// Invalidates the entries of the request's target, and of the targets that the response
    /// names in `Location` and `Content-Location`, if the request has succeeded.
    pub(in crate::exchange) fn invalidate_targets<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let Some(changing) = self.lookup_findings.invalidating_request.take() else {
            return;
        };
        if !matches!(head.status, 200..=399) {
            return;
        }
        let changes = &self.route_config.process.shared.changes;
        changes.record_invalidation(&changing.namespace, &self.request.cache.target);
        for (name, value) in head.fields.clone() {
            if name.eq_ignore_ascii_case(b"location")
                || name.eq_ignore_ascii_case(b"content-location")
            {
                if let Some(target) = same_host_target(value, &changing.host) {
                    changes.record_invalidation(&changing.namespace, target);
                }
            }
        }
    }

    /// Whether a request has invalidated the entry since the request for it was sent to the node.
    pub(in crate::exchange) fn is_invalidated_since_fetch(
        &self,
        entry: &CacheEntry,
        lookup: &LookupRequest<'_>,
    ) -> bool {
        let changes = &self.route_config.process.shared.changes;
        if changes.last_invalidation_number() == 0 {
            return false;
        }
        let target = &self.request.cache.target;
        changes.is_target_invalidated_since(
            entry.invalidation_number_at_dispatch(),
            &self.invalidation_target_scope(lookup),
            target,
        )
    }
}

/// Returns path and query of a URI without an authority or on `host` (in lower case).
fn same_host_target<'a>(uri: &'a [u8], host: &[u8]) -> Option<&'a [u8]> {
    let uri = uri.split(|byte| *byte == b'#').next().unwrap_or(uri);
    if uri.starts_with(b"/") && !uri.starts_with(b"//") {
        return Some(uri);
    }
    let scheme = uri.iter().position(|byte| *byte == b'/')?;
    let rest = match &uri[..scheme] {
        before if before.is_empty() || before.ends_with(b":") => &uri[scheme..],
        _ => return None,
    };
    let rest = rest.strip_prefix(b"//")?;
    let path = rest.iter().position(|byte| *byte == b'/')?;
    let (authority, target) = rest.split_at(path);
    // the port is ignored: a namespace has its own
    let (name, own) = (strip_port(authority), strip_port(host));
    name.eq_ignore_ascii_case(own).then_some(target)
}

/// Returns the host of an authority. Colons in brackets belong to an IPv6 address.
fn strip_port(authority: &[u8]) -> &[u8] {
    let port = authority
        .iter()
        .rposition(|byte| matches!(byte, b':' | b']'));
    match port {
        Some(at) if authority[at] == b':' => &authority[..at],
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::same_host_target;

    #[test]
    fn own_target_is_found_by_an_ipv6_address() {
        let target_of =
            |uri: &'static str, host: &str| same_host_target(uri.as_bytes(), host.as_bytes());
        assert_eq!(target_of("http://[::1]:80/x", "[::1]"), Some(&b"/x"[..]));
        assert_eq!(target_of("http://[::1]/x", "[::1]:8545"), Some(&b"/x"[..]));
        assert_eq!(target_of("http://[::1]/x", "[::2]"), None);
    }

    #[test]
    fn own_target_is_found_only_on_the_same_host() {
        let target_of = |uri: &'static str| {
            same_host_target(uri.as_bytes(), b"a.test")
                .map(|target| std::str::from_utf8(target).unwrap())
        };
        for uri in [
            "/x?y",
            "/x?y#z",
            "http://a.test/x?y",
            "https://A.test:80/x?y",
            "//a.test/x?y",
        ] {
            assert_eq!(target_of(uri), Some("/x?y"), "{uri}");
        }
        for uri in [
            "http://b.test/x",
            "//b.test/x",
            "x",
            "x/y",
            "",
            "http:",
            "http://a.test",
        ] {
            assert_eq!(target_of(uri), None, "{uri}");
        }
    }
}
