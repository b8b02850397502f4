//! Rates between two snapshots.

use std::collections::HashMap;

use super::snapshot::{StatusSnapshot, Totals};

/// Values per second between two snapshots.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// Requests.
    pub requests: f64,
    /// Requests to which the node responded.
    pub node_requests: f64,
    /// Failed upstream requests, and JSON-RPC errors.
    pub node_errors: f64,
    /// Bytes of hits.
    pub hit_bytes: f64,
    /// Hits divided by lookups; `None`: there were none.
    pub hit_ratio: Option<f64>,
    /// Calls by method.
    pub methods: HashMap<String, f64>,
    /// Responses by reason.
    pub reasons: HashMap<String, f64>,
}

/// Returns the rates between two snapshots of one source. `None`: a counter fell, because the proxy
/// or the owner was restarted.
pub fn rates_between(old: &StatusSnapshot, new: &StatusSnapshot) -> Option<Rates> {
    let seconds = new.at.saturating_duration_since(old.at).as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let per_second = |count: fn(&Totals) -> u64| {
        let increment = count(&new.totals).checked_sub(count(&old.totals))?;
        Some(increment as f64 / seconds)
    };
    let hits = per_second(|totals| totals.hits)?;
    let lookups = hits + per_second(|totals| totals.misses)?;
    Some(Rates {
        requests: per_second(|totals| totals.requests)?,
        node_requests: per_second(|totals| totals.node_requests)?,
        node_errors: per_second(|totals| totals.node_errors)?,
        hit_bytes: per_second(|totals| totals.hit_bytes)?,
        hit_ratio: (lookups > 0.0).then(|| hits / lookups),
        methods: increments(
            old.methods.iter().map(|row| (&row.name[..], row.calls)),
            new.methods.iter().map(|row| (&row.name[..], row.calls)),
            seconds,
        ),
        reasons: increments(
            old.reasons.iter().map(|(name, count)| (&name[..], *count)),
            new.reasons.iter().map(|(name, count)| (&name[..], *count)),
            seconds,
        ),
    })
}

/// Returns the increments of counters per second. A counter that is absent in `old` was 0.
fn increments<'a>(
    old: impl Iterator<Item = (&'a str, u64)>,
    new: impl Iterator<Item = (&'a str, u64)>,
    seconds: f64,
) -> HashMap<String, f64> {
    let old: HashMap<_, _> = old.collect();
    new.map(|(name, count)| {
        let before = old.get(name).copied().unwrap_or(0);
        let increment = count.saturating_sub(before) as f64 / seconds;
        (name.to_owned(), increment)
    })
    .collect()
}
