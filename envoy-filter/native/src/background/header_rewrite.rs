//! Changes that the router makes to a request head. The router makes them only
//! to requests that it forwards, so they are recorded from those and applied to
//! background requests.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::request_head::RequestHeaders;

/// Time for which a recorded change is used, in milliseconds, since the
/// router's routes may change.
const HOLDS: u64 = 60_000;

/// Maximum number of recorded changes, since clients choose the paths.
const MOST: usize = 4096;

/// The changes that the router made to the headers of one request, for background requests like it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HeaderRewrite {
    changed: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
    /// Time for which the router awaits a response, in milliseconds, if it sets
    /// one.
    pub timeout: Option<u64>,
}

/// The router's recorded changes to request heads, by route, cluster, host and target.
#[derive(Debug, Default)]
pub struct HeaderRewrites(RwLock<HashMap<Vec<u8>, LearnedRewrite>>);

#[derive(Debug)]
struct LearnedRewrite {
    at: u64,
    rewriting: Arc<HeaderRewrite>,
}

/// Returns the name under which the changes to all requests of this kind are recorded.
pub fn name(route: &[u8], cluster: &[u8], host: &[u8], target: &[u8]) -> Vec<u8> {
    [route, b"\n", cluster, b"\n", host, b"\n", target].concat()
}

impl HeaderRewrite {
    /// Computes the changes that the router made, from the request head before and after it.
    pub fn diff(mut before: RequestHeaders, mut after: RequestHeaders) -> Self {
        before.take_timeout();
        let timeout = after.take_timeout();
        let mut changed: Vec<(Vec<u8>, _)> = Vec::new();
        for (name, _) in before.all().iter().chain(after.all()) {
            if changed.iter().any(|(known, _)| known == name) || is_of_one_request(name) {
                continue;
            }
            let lines: Vec<_> = after.lines(name).map(<[u8]>::to_vec).collect();
            if !before.lines(name).eq(lines.iter().map(|line| &**line)) {
                changed.push((name.clone(), lines));
            }
        }
        Self { changed, timeout }
    }

    /// Applies the changes to another head.
    pub fn apply(&self, head: &mut RequestHeaders) {
        head.take_timeout();
        for (name, lines) in &self.changed {
            head.remove(name);
            lines.iter().for_each(|line| head.add(name, line));
        }
    }
}

/// Whether a header identifies one request in a trace.
fn is_of_one_request(name: &[u8]) -> bool {
    matches!(
        name,
        b"traceparent" | b"tracestate" | b"b3" | b"x-request-id"
    ) || name.starts_with(b"x-b3-")
}

impl HeaderRewrites {
    /// Returns the recorded changes of requests with this name, unless they are
    /// too old.
    pub fn get(&self, name: &[u8], now: u64) -> Option<Arc<HeaderRewrite>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let learnt = known.get(name).filter(|learnt| learnt.holds(now))?;
        Some(Arc::clone(&learnt.rewriting))
    }

    /// Whether the changes are recorded, and remain usable for at least half of
    /// their time.
    pub fn is_fresh(&self, name: &[u8], now: u64) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known
            .get(name)
            .is_some_and(|learnt| learnt.holds(now + HOLDS / 2))
    }

    /// Records the changes of requests with this name.
    pub fn record(&self, name: Vec<u8>, rewriting: HeaderRewrite, now: u64) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, learnt| learnt.holds(now));
        }
        if known.len() < MOST || known.contains_key(&name) {
            let rewriting = Arc::new(rewriting);
            known.insert(name, LearnedRewrite { at: now, rewriting });
        }
    }
}

impl LearnedRewrite {
    fn holds(&self, now: u64) -> bool {
        now < self.at.saturating_add(HOLDS)
    }
}

#[cfg(test)]
mod tests {
    use super::{name, HeaderRewrite, HeaderRewrites, RequestHeaders, HOLDS, MOST};

    fn fields(lines: &[(&str, &str)]) -> RequestHeaders {
        let mut fields = RequestHeaders::default();
        for (name, value) in lines {
            fields.add(name.as_bytes(), value.as_bytes());
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
        let rewriting = HeaderRewrite::diff(fields(&before), fields(&after));
        assert_eq!(rewriting.timeout, Some(15000));
        let mut other = fields(&[
            (":path", "/x/a"),
            ("a", "8"),
            ("c", "9"),
            ("x-envoy-expected-rq-timeout-ms", "1"),
        ]);
        rewriting.apply(&mut other);
        let expected = [
            ("c", "9"),
            (":path", "/a"),
            ("b", "2"),
            ("b", "5"),
            ("d", "6"),
        ];
        assert_eq!(other, fields(&expected));
    }

    #[test]
    fn rewrites_expire_and_are_limited_in_number() {
        let known = HeaderRewrites::default();
        let of = |number: usize| name(b"r", b"c", b"h", number.to_string().as_bytes());
        for number in 0..=MOST {
            known.record(of(number), HeaderRewrite::default(), number as u64);
        }
        let now = MOST as u64;
        assert!(known.get(&of(0), now).is_some() && known.is_fresh(&of(0), now));
        assert!(known.get(&of(MOST), now).is_none());
        assert!(!known.is_fresh(&of(0), HOLDS / 2) && known.get(&of(0), HOLDS / 2).is_some());
        assert!(known.get(&of(0), HOLDS).is_none());
        known.record(of(MOST), HeaderRewrite::default(), HOLDS);
        assert!(known.get(&of(MOST), HOLDS).is_some() && known.get(&of(0), 0).is_none());
    }
}
