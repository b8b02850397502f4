//! Envoy's statistics as the report of a status page. The proxy-wasm filter has no status page.

use serde_json::{json, Value};

/// Returns the report of sszip's counters in Envoy's `/stats?format=json`, or `None` if there are
/// none.
pub fn report_of_envoy_stats(stats: &Value) -> Option<Value> {
    let mut report = json!({
        "requests": 0, "node": { "errors": {} }, "cache": {}, "bytes": {}, "reasons": {}, "methods": [],
        "workers": {},
    });
    let mut has_counters = false;
    for stat in stats["stats"].as_array()? {
        let counter = stat["name"].as_str().and_then(counter_name);
        let (Some(name), Some(count)) = (counter, stat["value"].as_u64()) else {
            continue;
        };
        let parts = name.split_once('.');
        has_counters |= name == "requests"
            || parts.is_some_and(|(family, _)| matches!(family, "cache" | "memory" | "node"));
        match parts {
            None if name == "requests" => report["requests"] = count.into(),
            Some(_) if count == 0 => {}
            Some(("cache", "hit_bytes")) => report["bytes"]["hits"] = count.into(),
            Some(("cache", "waiting")) => report["workers"]["cache.waiting"] = count.into(),
            Some(("cache", which)) => match which.strip_prefix("reason.") {
                Some(reason) => report["reasons"][reason] = count.into(),
                None => report["cache"][which] = count.into(),
            },
            Some(("node", which)) => match which.strip_prefix("error.") {
                Some(kind) => report["node"]["errors"][kind] = count.into(),
                None => report["node"][which] = count.into(),
            },
            Some(("rpc", method)) => {
                if let Some(methods) = report["methods"].as_array_mut() {
                    methods.push(json!({ "name": method, "calls": count }));
                }
            }
            Some(("memory" | "cache_memory" | "ssz" | "jobs" | "owner", _)) => {
                report["workers"][name] = count.into();
            }
            _ => {}
        }
    }
    has_counters.then_some(report)
}

/// Returns the name of a counter of sszip: `cache.hit` of `wasmcustom.sszip.cache.hit`.
fn counter_name(stat: &str) -> Option<&str> {
    match stat.strip_prefix("sszip.") {
        Some(name) => Some(name),
        None => stat.split_once(".sszip.").map(|(_, name)| name),
    }
}
