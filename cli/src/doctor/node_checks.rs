//! Checks of the node's head, and of the clocks.

use std::time::UNIX_EPOCH;

use serde_json::Value;

use super::report::Row;
use super::{Context, Fetched};
use crate::args::DoctorArguments;

/// Ages of a head in seconds above which a warning and a failure are reported.
const HEAD_AGES: [f64; 2] = [60.0, 300.0];

/// Differences of clocks in seconds from which a warning is reported, and from which machines of a
/// fleet reject each other's values.
const CLOCK_DIFFERENCES: [f64; 2] = [3.0, 60.0];

/// Examines the age of the node's newest block, and compares the clocks of the proxy and of the
/// node with this machine's.
pub fn check_node_and_clocks(context: &Context, _: &DoctorArguments) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(node) = &context.node {
        rows.push(check_head(node));
    }
    if let Some(proxy) = &context.proxy {
        let now = proxy.json["now"].as_f64();
        rows.extend(now.map(|now| check_clock("the proxy", now, proxy.at)));
    }
    if let Some(node) = &context.node {
        let date = node
            .date
            .and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        rows.extend(date.map(|now| check_clock("the node", now.as_secs_f64(), node.at)));
    }
    rows
}

fn check_head(node: &Fetched) -> Row {
    const NAME: &str = "node";
    let number = |name: &str| parse_quantity(&node.json["result"][name]);
    let (Some(head), Some(time)) = (number("number"), number("timestamp")) else {
        let remedy = "check the URL: it must be the JSON-RPC of an execution node";
        return match node.json["error"]["message"].as_str() {
            Some(error) => Row::warning(NAME, format!("does not report its head: {error}"), remedy),
            None => Row::warning(NAME, "does not report its head", remedy),
        };
    };
    // a clock that is behind is reported by its own row
    let age = (node.at - time as f64).max(0.0);
    let text = format!("head {head}, {age:.0} s old");
    match HEAD_AGES.map(|limit| age > limit) {
        [_, true] => Row::failure(
            NAME,
            text,
            "check whether the node is in sync, and whether its chain has new blocks",
        ),
        [true, _] => Row::warning(NAME, text, "check whether the node is in sync"),
        _ => Row::ok(NAME, text),
    }
}

/// Parses a quantity of JSON-RPC: `"0x1b4"`.
fn parse_quantity(value: &Value) -> Option<u64> {
    let digits = value.as_str()?.strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}

/// Compares a clock in whole seconds with this machine's.
fn check_clock(of: &str, now: f64, here: f64) -> Row {
    const NAME: &str = "clock";
    // half a second is the mean of what is cut off
    let difference = (now + 0.5 - here).abs();
    let remedy = "synchronize both machines' clocks by NTP";
    let text = format!("the clock of {of} differs by {difference:.0} s");
    match CLOCK_DIFFERENCES.map(|limit| difference > limit) {
        [_, true] => Row::failure(NAME, text, remedy),
        [true, _] => Row::warning(NAME, text, remedy),
        _ => Row::ok(NAME, format!("the clock of {of} is the same")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{check_clock, check_head};
    use crate::doctor::report::RowStatus;
    use crate::doctor::Fetched;

    #[test]
    fn head_is_judged_by_its_age() {
        for (age, status) in [
            (-1_i32, RowStatus::Ok),
            (0, RowStatus::Ok),
            (59, RowStatus::Ok),
            (61, RowStatus::Warning),
            (301, RowStatus::Failure),
        ] {
            let time = format!("{:#x}", 1_000_000 - age);
            let node = Fetched {
                json: json!({"result": {"number": "0x10", "timestamp": time}}),
                date: None,
                at: 1_000_000.0,
            };
            let row = check_head(&node);
            assert_eq!(row.status, status, "{row}");
            let text = format!("head 16, {} s old", age.max(0));
            assert_eq!(row.text, text);
        }
        for json in [
            json!({"error": {"message": "no"}}),
            json!([]),
            json!({"result": {"number": 7}}),
        ] {
            let node = Fetched {
                json,
                date: None,
                at: 0.0,
            };
            assert_eq!(check_head(&node).status, RowStatus::Warning);
        }
    }

    #[test]
    fn clocks_may_differ_by_the_seconds_that_are_cut_off() {
        for (now, here, status) in [
            (100.0, 100.9, RowStatus::Ok),
            (100.0, 103.0, RowStatus::Ok),
            (100.0, 104.0, RowStatus::Warning),
            (104.0, 100.0, RowStatus::Warning),
            (100.0, 200.0, RowStatus::Failure),
        ] {
            assert_eq!(check_clock("x", now, here).status, status, "{now} {here}");
        }
    }
}
