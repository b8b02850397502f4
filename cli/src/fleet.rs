//! `sszip fleet`: status, latency and purges of the fleet tier, by the owner of a machine
//! (docs/fleet.md).

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sszip_core::log::escape_log_text;

use crate::args::FleetCommand;
use crate::output::print_text;
use crate::owner_http::{send_owner_request, OwnerRequest};
use crate::purge_scope::{check_fleet_purge, scope_body, scope_query};
use crate::CommandError;

/// Timeout of a status request. The owner has all values in memory.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a measurement, and of a purge, which waits for processes and for other owners.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a subcommand of `sszip fleet`.
///
/// # Errors
/// The owner does not respond, reports an error, or has no fleet that is in use.
pub fn run_fleet_command(command: &FleetCommand) -> Result<(), CommandError> {
    match command {
        FleetCommand::Status { owner, json } => print_fleet_status(&owner.socket, *json),
        FleetCommand::Ping { owner, bytes, json } => ping_fleet(&owner.socket, *bytes, *json),
        FleetCommand::Purge { owner, scope } => purge_fleet(&owner.socket, scope),
    }
}

fn print_fleet_status(socket: &Path, is_json: bool) -> Result<(), CommandError> {
    let request = OwnerRequest {
        line: "GET /v1/status",
        body: "",
        timeout: STATUS_TIMEOUT,
    };
    let status = send_owner_request(socket, &request)?;
    let fleet = &status["fleet"];
    if !fleet.is_object() {
        return Err(CommandError::Data(format!(
            "the owner at {} has no fleet; set sszip_cache_fleet in nginx, cache_fleet in Envoy, \
             or [fleet] in cached.toml",
            socket.display()
        )));
    }
    print_text(&match is_json {
        true => format!("{fleet:#}\n"),
        false => format_fleet_status(fleet),
    })?;
    match fleet["up"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(CommandError::Data("the fleet is not in use".into())),
    }
}

/// Returns the member `fleet` of an owner's status as a table. Absent members have no row.
fn format_fleet_status(fleet: &Value) -> String {
    type Format = fn(&Value) -> Option<String>;
    const ROWS: [(&str, &str, Format); 16] = [
        ("server", "/endpoint", format_text),
        ("in use", "/up", format_flag),
        ("lookup breaker", "/breakers/lookups", format_text),
        ("store breaker", "/breakers/stores", format_text),
        ("lookups", "/lookups", format_counts),
        ("lookup time", "/lookup_seconds", format_latency),
        ("rejected values", "/rejected", format_counts),
        ("not servable", "/not_servable", format_counts),
        ("stores", "/stores", format_counts),
        ("store queue", "/queue_bytes", format_bytes),
        ("purge stream read", "/stream/age_seconds", format_age),
        ("purges", "/stream/purges", format_counts),
        ("unpublished", "/stream/pending", format_number),
        ("fences", "/stream/fences", format_number),
        ("owners", "/stream/owners", format_owner_count),
        ("position", "/stream/position", format_position),
    ];
    let mut table = String::new();
    for (label, pointer, format) in ROWS {
        if let Some(text) = fleet.pointer(pointer).and_then(format) {
            // writes to a String do not fail
            let _ = writeln!(table, "{label:<18}{text}");
        }
    }
    table
}

fn format_text(text: &Value) -> Option<String> {
    Some(escape_log_text(text.as_str()?).into_owned())
}

fn format_flag(flag: &Value) -> Option<String> {
    Some(if flag.as_bool()? { "yes" } else { "no" }.into())
}

fn format_number(number: &Value) -> Option<String> {
    Some(number.as_u64()?.to_string())
}

/// Returns the number of owners, which is `null` while they are counted.
fn format_owner_count(count: &Value) -> Option<String> {
    match count {
        Value::Null => Some("counting".into()),
        count => format_number(count),
    }
}

fn format_bytes(bytes: &Value) -> Option<String> {
    Some(format!("{} bytes", bytes.as_u64()?))
}

fn format_age(seconds: &Value) -> Option<String> {
    Some(format!("{:.1} s ago", seconds.as_f64()?))
}

/// Returns a position as the id of its record in the purge stream.
fn format_position(position: &Value) -> Option<String> {
    Some(format!("{}-0", position.as_u64()?))
}

/// Returns the counters of an object that are not 0: `hit 5, miss 2`.
fn format_counts(counts: &Value) -> Option<String> {
    let counts = counts.as_object()?.iter();
    let counts = counts.filter_map(|(name, count)| match count.as_u64()? {
        0 => None,
        count => Some(format!("{} {count}", escape_log_text(name))),
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    Some(match counts.is_empty() {
        true => "none".into(),
        false => counts,
    })
}

/// Returns the bounds of the p50 and the p99 of a histogram, whose buckets have the number of values
/// up to `le` seconds.
fn format_latency(histogram: &Value) -> Option<String> {
    let count = histogram["count"].as_u64()?;
    let buckets = histogram["buckets"].as_array()?;
    let bound_of = |part: f64| {
        let least = (count as f64 * part).ceil();
        let has_part =
            |bucket: &&Value| bucket["count"].as_f64().is_some_and(|up_to| up_to >= least);
        match buckets.iter().find(has_part) {
            Some(bucket) => {
                let milliseconds = bucket["le"].as_f64().unwrap_or(f64::NAN) * 1_000.0;
                format!("up to {milliseconds:.2} ms")
            }
            None => "beyond all buckets".into(),
        }
    };
    match count {
        0 => None,
        _ => Some(format!("p50 {}, p99 {}", bound_of(0.5), bound_of(0.99))),
    }
}

fn ping_fleet(socket: &Path, bytes: u32, is_json: bool) -> Result<(), CommandError> {
    let request = OwnerRequest {
        line: "POST /v1/fleet/ping",
        body: &format!("{{\"bytes\":{bytes}}}"),
        timeout: LONG_TIMEOUT,
    };
    let report = send_owner_request(socket, &request)?;
    print_text(&match is_json {
        true => format!("{report:#}\n"),
        false => format_ping_report(&report, bytes),
    })
}

fn format_ping_report(report: &Value, bytes: u32) -> String {
    let number = |pointer| {
        let number = report.pointer(pointer).and_then(Value::as_f64);
        number.unwrap_or(f64::NAN)
    };
    format!(
        "connect  {:.3} ms\n\
         PING     p50 {:.3} ms, max {:.3} ms\n\
         GET      p50 {:.3} ms, max {:.3} ms ({bytes} bytes)\n",
        number("/connect_ms"),
        number("/ping_ms/p50"),
        number("/ping_ms/max"),
        number("/get_ms/p50"),
        number("/get_ms/max"),
    )
}

fn purge_fleet(socket: &Path, scope: &[String]) -> Result<(), CommandError> {
    let body = scope_body(&scope_query(scope)?)?;
    let request = OwnerRequest {
        line: "POST /v1/purges",
        body: &body,
        timeout: LONG_TIMEOUT,
    };
    let report = send_owner_request(socket, &request)?;
    print_text(&format!("{report}\n"))?;
    check_fleet_purge(&report["fleet"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_table_has_a_row_for_each_known_member() {
        let table = format_fleet_status(&json!({
            "endpoint": "redis://fleet:6379",
            "up": false,
            "breakers": {"lookups": "open"},
            "lookups": {"hit": 7, "miss": 0, "timeout": 2},
            "rejected": {"tag": 0},
            "lookup_seconds": {
                "count": 9,
                "buckets": [{"le": 0.0005, "count": 8}, {"le": 0.002, "count": 9}],
            },
            "stream": {"age_seconds": 0.24, "owners": null, "position": 1_764_331_200_000_u64},
            "later": 1,
        }));
        let expected = "server            redis://fleet:6379\n\
                        in use            no\n\
                        lookup breaker    open\n\
                        lookups           hit 7, timeout 2\n\
                        lookup time       p50 up to 0.50 ms, p99 up to 2.00 ms\n\
                        rejected values   none\n\
                        purge stream read 0.2 s ago\n\
                        owners            counting\n\
                        position          1764331200000-0\n";
        assert_eq!(table, expected);
    }
}
