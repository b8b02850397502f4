//! Checks of a proxy's status page.

use serde_json::Value;

use super::report::Row;
use super::{Context, SOFTWARE};
use crate::args::DoctorArguments;

/// Minimum number of requests from which shares are examined.
const MIN_REQUESTS: u64 = 100;

/// Part of the requests from which a reason is a problem: a fifth.
const PROBLEM_PART: u64 = 5;

/// Reasons that a setting removes, with the setting.
const REASONS: [(&str, &str); 4] = [
    (
        "body-on-disk",
        "set client_body_buffer_size to 128k or more",
    ),
    (
        "credentials",
        "if the proxy checks the credentials, set sszip_cache_credentials (docs/recipes.md)",
    ),
    ("memory", "raise sszip_memory"),
    (
        "wrong-chain",
        "give each chain a namespace of its own, and purge this one (docs/caching.md)",
    ),
];

/// Compares the versions of the proxy, the owner and this command.
pub fn check_versions(context: &Context, _: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "versions";
    let software = |status: &Value| status["software"].as_str().map(str::to_owned);
    let proxy = context.proxy.as_ref().and_then(|it| software(&it.json));
    let owner = context.owner_status().and_then(software);
    let row = match (proxy, owner) {
        (Some(proxy), Some(owner)) if proxy != owner => Row::failure(
            NAME,
            format!("the proxy has {proxy}, the owner {owner}"),
            "restart sszip-cached, then the proxy",
        ),
        (Some(other), _) | (None, Some(other)) if other != SOFTWARE => Row::warning(
            NAME,
            format!("{other}, but this command is {SOFTWARE}"),
            "install one version of both",
        ),
        (Some(same), _) | (None, Some(same)) => Row::ok(NAME, same),
        (None, None) => return Vec::new(),
    };
    vec![row]
}

/// Examines the library that compresses whole bodies.
pub fn check_encoder(context: &Context, _: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "encoder";
    let encoder = context
        .proxy
        .as_ref()
        .and_then(|it| it.json["encoder"].as_str());
    let row = match encoder {
        Some(encoder) if encoder.starts_with("igzip") || cfg!(not(target_arch = "x86_64")) => {
            Row::ok(NAME, encoder)
        }
        Some(encoder) => Row::warning(
            NAME,
            format!("{encoder}, at half the speed of igzip"),
            "install libisal2, and restart the proxy",
        ),
        None => return Vec::new(),
    };
    vec![row]
}

/// Examines the reasons for which requests are not looked up.
pub fn check_reasons(context: &Context, _: &DoctorArguments) -> Vec<Row> {
    let Some(proxy) = &context.proxy else {
        return Vec::new();
    };
    let requests = proxy.json["requests"].as_u64().unwrap_or(0);
    if requests < MIN_REQUESTS {
        return Vec::new();
    }
    let rows = REASONS.iter().filter_map(|&(reason, remedy)| {
        let count = proxy.json["reasons"][reason].as_u64()?;
        let is_problem = count > requests / PROBLEM_PART;
        let text = format!("{reason}: {count} of {requests} requests");
        is_problem.then(|| Row::warning("reasons", text, remedy))
    });
    let mut rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        rows.push(Row::ok(
            "reasons",
            format!("none of the avoidable ones is above a fifth of {requests} requests"),
        ));
    }
    rows
}
