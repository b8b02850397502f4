//! Changes that the router makes to a request head. The router makes them only
//! to requests that it forwards, so they are recorded from those and applied to
//! background requests.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use sszip_envoy_carrier::background::BackgroundRequestHeaders;

/// Time for which a recorded change is used, in milliseconds, since the
/// router's routes may change.
const REWRITE_TTL_MS: u64 = 60_000;

/// Maximum number of recorded changes, since clients choose the paths.
const MAX_REWRITES: usize = 4096;

/// The changes that Envoy's router made to the headers of a forwarded request, to be applied to
/// background requests like it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RouterHeaderRewrite {
    changed: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
    /// Time for which the router awaits a response, in milliseconds, if it sets
    /// one.
    pub timeout: Option<u64>,
}

/// The recorded rewrites of a filter, by route, cluster, host and target.
#[derive(Debug, Default)]
pub struct RouterHeaderRewriteTable(RwLock<HashMap<Vec<u8>, RecordedHeaderRewrite>>);

/// A rewrite with the time of its recording, after which it expires.
#[derive(Debug)]
struct RecordedHeaderRewrite {
    recorded_at: u64,
    rewrite: Arc<RouterHeaderRewrite>,
}

/// Returns the key under which the rewrite of all requests of this kind is recorded.
pub fn router_rewrite_key(route: &[u8], cluster: &[u8], host: &[u8], target: &[u8]) -> Vec<u8> {
    [route, b"\n", cluster, b"\n", host, b"\n", target].concat()
}

impl RouterHeaderRewrite {
    /// Computes the rewrite from the request head before and after the router.
    pub fn from_router_head_change(
        mut before: BackgroundRequestHeaders,
        mut after: BackgroundRequestHeaders,
    ) -> Self {
        before.remove_router_headers();
        let timeout = after.remove_router_headers();
        let mut changed: Vec<(Vec<u8>, _)> = Vec::new();
        for (name, _) in before.header_lines().iter().chain(after.header_lines()) {
            if changed.iter().any(|(known, _)| known == name) || is_tracing_header(name) {
                continue;
            }
            let lines: Vec<_> = after.header_values(name).map(<[u8]>::to_vec).collect();
            if !before
                .header_values(name)
                .eq(lines.iter().map(|line| &**line))
            {
                changed.push((name.clone(), lines));
            }
        }
        Self { changed, timeout }
    }

    /// Applies the rewrite to the head of another request.
    pub fn apply_router_rewrite(&self, head: &mut BackgroundRequestHeaders) {
        head.remove_router_headers();
        for (name, lines) in &self.changed {
            head.remove_header(name);
            lines.iter().for_each(|line| head.append_header(name, line));
        }
    }
}

/// Whether a header identifies one request in a trace.
fn is_tracing_header(name: &[u8]) -> bool {
    matches!(
        name,
        b"traceparent" | b"tracestate" | b"b3" | b"x-request-id"
    ) || name.starts_with(b"x-b3-")
}

impl RouterHeaderRewriteTable {
    /// Returns the recorded rewrite under this key, unless it is too old.
    pub fn find_router_rewrite(&self, name: &[u8], now: u64) -> Option<Arc<RouterHeaderRewrite>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let recorded = known.get(name).filter(|recorded| recorded.is_usable(now))?;
        Some(Arc::clone(&recorded.rewrite))
    }

    /// Whether a rewrite is recorded, and remains usable for at least half of its time.
    pub fn has_fresh_router_rewrite(&self, name: &[u8], now: u64) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known
            .get(name)
            .is_some_and(|recorded| recorded.is_usable(now + REWRITE_TTL_MS / 2))
    }

    /// Records the rewrite of requests with this key.
    pub fn record_router_rewrite(&self, name: Vec<u8>, rewrite: RouterHeaderRewrite, now: u64) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REWRITES {
            known.retain(|_, recorded| recorded.is_usable(now));
        }
        if known.len() < MAX_REWRITES || known.contains_key(&name) {
            let rewrite = Arc::new(rewrite);
            known.insert(
                name,
                RecordedHeaderRewrite {
                    recorded_at: now,
                    rewrite,
                },
            );
        }
    }
}

impl RecordedHeaderRewrite {
    /// Whether the record is younger than [`REWRITE_TTL_MS`].
    fn is_usable(&self, now: u64) -> bool {
        now < self.recorded_at.saturating_add(REWRITE_TTL_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        router_rewrite_key, BackgroundRequestHeaders, RouterHeaderRewrite,
        RouterHeaderRewriteTable, MAX_REWRITES, REWRITE_TTL_MS,
    };

    fn make_headers(lines: &[(&str, &str)]) -> BackgroundRequestHeaders {
        let mut fields = BackgroundRequestHeaders::default();
        for (name, value) in lines {
            fields.append_header(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    #[test]
    fn rewrite_of_one_head_is_applied_to_another_head() {
        let before = [
            (":path", "/x/a"),
            ("a", "1"),
            ("b", "2"),
            ("b", "3"),
            ("c", "4"),
        ];
        let after = [
            (":path", "/a"),
            ("x-envoy-original-path", "/x/a"),
            ("x-envoy-expected-rq-timeout-ms", "15000"),
            ("b", "2"),
            ("b", "5"),
            ("c", "4"),
            ("d", "6"),
            ("x-b3-spanid", "7"),
        ];
        let rewrite = RouterHeaderRewrite::from_router_head_change(
            make_headers(&before),
            make_headers(&after),
        );
        assert_eq!(rewrite.timeout, Some(15000));
        let mut other = make_headers(&[
            (":path", "/x/a"),
            ("a", "8"),
            ("c", "9"),
            ("x-envoy-expected-rq-timeout-ms", "1"),
        ]);
        rewrite.apply_router_rewrite(&mut other);
        let expected = [
            ("c", "9"),
            (":path", "/a"),
            ("b", "2"),
            ("b", "5"),
            ("d", "6"),
        ];
        assert_eq!(other, make_headers(&expected));
    }

    #[test]
    fn rewrites_expire_and_are_limited_in_number() {
        let known = RouterHeaderRewriteTable::default();
        let of =
            |number: usize| router_rewrite_key(b"r", b"c", b"h", number.to_string().as_bytes());
        for number in 0..=MAX_REWRITES {
            known.record_router_rewrite(of(number), RouterHeaderRewrite::default(), number as u64);
        }
        let now = MAX_REWRITES as u64;
        assert!(
            known.find_router_rewrite(&of(0), now).is_some()
                && known.has_fresh_router_rewrite(&of(0), now)
        );
        assert!(known.find_router_rewrite(&of(MAX_REWRITES), now).is_none());
        assert!(
            !known.has_fresh_router_rewrite(&of(0), REWRITE_TTL_MS / 2)
                && known
                    .find_router_rewrite(&of(0), REWRITE_TTL_MS / 2)
                    .is_some()
        );
        assert!(known.find_router_rewrite(&of(0), REWRITE_TTL_MS).is_none());
        known.record_router_rewrite(
            of(MAX_REWRITES),
            RouterHeaderRewrite::default(),
            REWRITE_TTL_MS,
        );
        assert!(
            known
                .find_router_rewrite(&of(MAX_REWRITES), REWRITE_TTL_MS)
                .is_some()
                && known.find_router_rewrite(&of(0), 0).is_none()
        );
    }
}
