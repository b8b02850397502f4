//! What the router makes of a request's head. It does that to requests that go to the
//! node, and says nothing of others: so it is learnt from those, for those that we make.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::fields::Fields;

/// For so long nothing is asked of the router again: its routes may have become others.
/// Milliseconds.
const HOLDS: u64 = 60_000;

/// So many are remembered: clients make paths up.
const MOST: usize = 4096;

/// The lines that a field has after it, where they are others than before.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rewriting {
    changed: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
    /// For how long the router awaits an answer, in milliseconds, if it says so.
    pub timeout: Option<u64>,
}

/// Of requests for the same thing: of the same route, cluster, host and target.
#[derive(Debug, Default)]
pub struct Rewritings(RwLock<HashMap<Vec<u8>, Learnt>>);

#[derive(Debug)]
struct Learnt {
    at: u64,
    rewriting: Arc<Rewriting>,
}

/// What such requests have in common.
pub fn name(route: &[u8], cluster: &[u8], host: &[u8], target: &[u8]) -> Vec<u8> {
    [route, b"\n", cluster, b"\n", host, b"\n", target].concat()
}

impl Rewriting {
    /// What has made that of that.
    pub fn between(mut before: Fields, mut after: Fields) -> Self {
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

    /// Does the same to another head.
    pub fn apply(&self, head: &mut Fields) {
        head.take_timeout();
        for (name, lines) in &self.changed {
            head.remove(name);
            lines.iter().for_each(|line| head.add(name, line));
        }
    }
}

/// What stands for one request in a trace, and for no other.
fn is_of_one_request(name: &[u8]) -> bool {
    matches!(
        name,
        b"traceparent" | b"tracestate" | b"b3" | b"x-request-id"
    ) || name.starts_with(b"x-b3-")
}

impl Rewritings {
    /// That of requests with this name, if it was learnt of late.
    pub fn get(&self, name: &[u8], now: u64) -> Option<Arc<Rewriting>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let learnt = known.get(name).filter(|learnt| learnt.holds(now))?;
        Some(Arc::clone(&learnt.rewriting))
    }

    /// Whether that is known, and will be for a while.
    pub fn is_fresh(&self, name: &[u8], now: u64) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known
            .get(name)
            .is_some_and(|learnt| learnt.holds(now + HOLDS / 2))
    }

    /// It is that.
    pub fn learn(&self, name: Vec<u8>, rewriting: Rewriting, now: u64) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, learnt| learnt.holds(now));
        }
        if known.len() < MOST || known.contains_key(&name) {
            let rewriting = Arc::new(rewriting);
            known.insert(name, Learnt { at: now, rewriting });
        }
    }
}

impl Learnt {
    fn holds(&self, now: u64) -> bool {
        now < self.at.saturating_add(HOLDS)
    }
}

#[cfg(test)]
mod tests {
    use super::{name, Fields, Rewriting, Rewritings, HOLDS, MOST};

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.add(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    #[test]
    fn it_is_done_to_another_head() {
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
        let rewriting = Rewriting::between(fields(&before), fields(&after));
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
    fn it_holds_for_a_while_and_for_so_many() {
        let known = Rewritings::default();
        let of = |number: usize| name(b"r", b"c", b"h", number.to_string().as_bytes());
        for number in 0..=MOST {
            known.learn(of(number), Rewriting::default(), number as u64);
        }
        let now = MOST as u64;
        assert!(known.get(&of(0), now).is_some() && known.is_fresh(&of(0), now));
        assert!(known.get(&of(MOST), now).is_none());
        assert!(!known.is_fresh(&of(0), HOLDS / 2) && known.get(&of(0), HOLDS / 2).is_some());
        assert!(known.get(&of(0), HOLDS).is_none());
        known.learn(of(MOST), Rewriting::default(), HOLDS);
        assert!(known.get(&of(MOST), HOLDS).is_some() && known.get(&of(0), 0).is_none());
    }
}
