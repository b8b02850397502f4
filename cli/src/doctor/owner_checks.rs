//! Checks of the owner's status: the store, the chains and the fleet.

use serde_json::Value;

use super::report::Row;
use super::Context;
use crate::args::DoctorArguments;

/// Number of block times without a new head above which a warning is reported.
const MAX_BLOCK_TIMES: f64 = 4.0;

/// Block time in seconds of a chain whose block time is unknown, or above a minute.
const LONG_BLOCK_TIME: f64 = 60.0;

/// Part of the writes to the store above which rejected ones are a problem: a hundredth. Single
/// entries are purged while they are written.
const REJECTED_PART: u64 = 100;

/// Age in seconds of the purge stream above which a warning is reported.
const MAX_STREAM_AGE: f64 = 60.0;

/// Examines whether the proxy's owner responds.
pub fn check_owner(context: &Context, _: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "owner";
    let of_proxy = context.proxy.as_ref().map(|it| &it.json["owner"]);
    let row = match of_proxy {
        Some(Value::Null) if context.owner.is_none() => Row::warning(
            NAME,
            "no store is configured: a restart loses all entries",
            "set sszip_cache_path or sszip_cache_owner",
        ),
        Some(Value::Null) => Row::failure(
            NAME,
            "the proxy does not use the owner at --socket",
            "set sszip_cache_owner to its socket",
        ),
        Some(owner) if owner.get("error").is_some() => Row::failure(
            NAME,
            "the proxy's owner does not respond",
            "see the error log: docs/troubleshooting.md explains its lines",
        ),
        Some(_) => Row::ok(NAME, "responds"),
        None if context.owner.is_some() => Row::ok(NAME, "responds"),
        None => return Vec::new(),
    };
    vec![row]
}

/// Examines whether the owner stores entries.
pub fn check_store(context: &Context, _: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "store";
    let Some(owner) = context.owner_status() else {
        return Vec::new();
    };
    let [done, failed] = ["done", "failed"].map(|name| owner["stores"][name].as_u64().unwrap_or(0));
    let writes = done.saturating_add(failed);
    let row = match &owner["store"]["off"] {
        Value::Null if failed > writes / REJECTED_PART => Row::warning(
            NAME,
            format!("{failed} of {writes} writes were rejected since the owner started"),
            "check the load of the disk, and the owner's log",
        ),
        Value::Null => {
            let count = |name: &str| owner["store"][name].as_u64().unwrap_or(0);
            let (entries, megabytes) = (count("entries"), count("bytes") >> 20);
            Row::ok(NAME, format!("{entries} entries, {megabytes} MB on disk"))
        }
        reason => Row::failure(
            NAME,
            format!("nothing is stored: {}", text_of(reason)),
            "check the disk; the owner retries every five seconds",
        ),
    };
    vec![row]
}

/// Examines the followed chains.
pub fn check_chains(context: &Context, _: &DoctorArguments) -> Vec<Row> {
    let chains = context
        .owner_status()
        .and_then(|it| it["chains"].as_array());
    let chains = chains.into_iter().flatten();
    chains.map(check_chain).collect()
}

fn check_chain(chain: &Value) -> Row {
    const NAME: &str = "chain";
    let name = text_of(&chain["name"]);
    let state = text_of(&chain["state"]);
    let error = match &chain["error"] {
        Value::Null => String::new(),
        error => format!(": {}", text_of(error)),
    };
    let block_time = chain["block_time"].as_f64().unwrap_or(LONG_BLOCK_TIME);
    let age = chain["head_age"].as_f64();
    match (&*state, age) {
        ("wrong-chain", _) => Row::failure(
            NAME,
            format!("{name}: the node is on another chain{error}"),
            "correct its URL, or purge the namespace",
        ),
        ("unreachable", _) => Row::failure(
            NAME,
            format!("{name}: the node is unreachable{error}"),
            "check the URL of cache_head, or of [[head]]",
        ),
        ("following", Some(age)) if age > MAX_BLOCK_TIMES * block_time => Row::warning(
            NAME,
            format!(
                "{name}: the last new head is {age:.0} s old, at a block time of {block_time:.0} s"
            ),
            "check whether the node is in sync",
        ),
        ("following", _) if chain["final"].is_null() => Row::warning(
            NAME,
            format!("{name}: no final block is known, so that no block becomes immutable"),
            "check the node; finality=depth:N is for chains without finality",
        ),
        ("following", _) => {
            let head = &chain["head"];
            Row::ok(
                NAME,
                format!("{name}: head {head}, {:.0} s old", age.unwrap_or(0.0)),
            )
        }
        _ => Row::warning(
            NAME,
            format!("{name}: {state}{error}"),
            "wait for the node, or check whether it is in sync",
        ),
    }
}

/// Examines the fleet.
pub fn check_fleet(context: &Context, _: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "fleet";
    let fleet = context.owner_status().and_then(|it| it.get("fleet"));
    let Some(fleet) = fleet.filter(|it| it.is_object()) else {
        return Vec::new();
    };
    let age = fleet["stream"]["age_seconds"].as_f64();
    let row = match (fleet["up"].as_bool(), age) {
        (Some(true), Some(age)) if age > MAX_STREAM_AGE => Row::warning(
            NAME,
            format!("the purge stream was read {age:.0} s ago"),
            "see the owner's log",
        ),
        (Some(true), _) => Row::ok(NAME, text_of(&fleet["endpoint"])),
        _ => Row::failure(
            NAME,
            "not in use",
            "sszip fleet status has the state, and the owner's log the cause",
        ),
    };
    vec![row]
}

/// Returns a JSON value as text, a string without quotes.
fn text_of(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check_chain;
    use crate::doctor::report::RowStatus;

    #[test]
    fn chains_are_judged_by_state_and_age() {
        for (chain, status, text) in [
            (
                json!({"name": "a", "state": "following", "head": 9, "head_age": 7.4, "block_time": 12.0, "final": 3}),
                RowStatus::Ok,
                "a: head 9, 7 s old",
            ),
            (
                json!({"name": "a", "state": "following", "head_age": 49.0, "block_time": 12.0, "final": 3}),
                RowStatus::Warning,
                "49 s old, at a block time of 12 s",
            ),
            (
                json!({"name": "a", "state": "following", "head_age": 49.0, "final": null}),
                RowStatus::Warning,
                "no final block",
            ),
            (
                json!({"name": "a", "state": "syncing"}),
                RowStatus::Warning,
                "a: syncing",
            ),
            (
                json!({"name": "a", "state": "unreachable", "error": "refused"}),
                RowStatus::Failure,
                "unreachable: refused",
            ),
            (
                json!({"name": "a", "state": "wrong-chain"}),
                RowStatus::Failure,
                "another chain",
            ),
            (json!({}), RowStatus::Warning, "null: null"),
            (json!([7]), RowStatus::Warning, "null"),
        ] {
            let row = check_chain(&chain);
            assert_eq!(row.status, status, "{row}");
            assert!(row.text.contains(text), "{row}");
        }
    }
}
