//! The outcome of each request, and the summary of all.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::{json, Value};

use crate::server_text::printable;

/// Number of the node's last response times from which percentiles are computed.
const MAX_TIMES: usize = 65_536;

/// Number of reasons that are counted; a proxy has fewer.
const MAX_REASONS: usize = 64;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response of the node is cached.
    Stored,
    /// The response was cached before.
    AlreadyCached,
    /// The response is not cached, for this reason (docs/reasons.md).
    NotStored(String),
    /// The request has failed, for this cause.
    Failed(String),
}

/// The outcome of a request, and the time of the node's response if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemResult {
    /// The outcome.
    pub outcome: Outcome,
    /// The time of the last request to the node.
    pub node_time: Option<Duration>,
}

/// The numbers of requests by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Requests whose response is cached now.
    pub stored: u64,
    /// Requests whose response was cached before.
    pub cached: u64,
    /// Requests whose response is not cached.
    pub not_stored: u64,
    /// Requests without a response.
    pub failed: u64,
}

/// The entries at the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Entries that are on disk, or being written.
    pub on_disk: u64,
    /// Entries that the owner has not written.
    pub not_on_disk: u64,
}

/// The summary of a run.
#[derive(Debug, Default)]
pub struct Summary {
    by_name: BTreeMap<&'static str, OutcomeCounts>,
    reasons: BTreeMap<String, u64>,
    node_times: Vec<Duration>,
    node_requests: usize,
    /// The cause of the last failure.
    pub last_failure: Option<String>,
    /// Lines without a request, and repetitions.
    pub skipped: u64,
    /// Lines that cannot be read.
    pub bad_lines: u64,
    /// The entries at the owner, if it was queried.
    pub disk: Option<DiskCounts>,
    /// The time of the run.
    pub elapsed: Duration,
}

impl OutcomeCounts {
    fn columns(&self) -> [(&'static str, u64); 4] {
        [
            ("stored", self.stored),
            ("cached before", self.cached),
            ("not stored", self.not_stored),
            ("failed", self.failed),
        ]
    }

    /// Returns the number of all requests.
    pub fn total(&self) -> u64 {
        self.columns().iter().map(|(_, count)| count).sum()
    }

    fn to_json(self) -> Value {
        json!({
            "stored": self.stored,
            "cached": self.cached,
            "not_stored": self.not_stored,
            "failed": self.failed,
        })
    }
}

impl Summary {
    /// Adds the outcome of a request.
    pub fn add(&mut self, name: &'static str, result: &ItemResult) {
        let counts = self.by_name.entry(name).or_default();
        match &result.outcome {
            Outcome::Stored => counts.stored += 1,
            Outcome::AlreadyCached => counts.cached += 1,
            Outcome::NotStored(reason) => {
                counts.not_stored += 1;
                if self.reasons.len() < MAX_REASONS || self.reasons.contains_key(reason) {
                    *self.reasons.entry(reason.clone()).or_default() += 1;
                }
            }
            Outcome::Failed(cause) => {
                counts.failed += 1;
                self.last_failure = Some(cause.clone());
            }
        }
        if let Some(time) = result.node_time {
            match self.node_times.len() < MAX_TIMES {
                true => self.node_times.push(time),
                false => self.node_times[self.node_requests % MAX_TIMES] = time,
            }
            self.node_requests += 1;
        }
    }

    /// Returns the numbers of all requests.
    pub fn totals(&self) -> OutcomeCounts {
        let mut totals = OutcomeCounts::default();
        for counts in self.by_name.values() {
            totals.stored += counts.stored;
            totals.cached += counts.cached;
            totals.not_stored += counts.not_stored;
            totals.failed += counts.failed;
        }
        totals
    }

    /// Returns the numbers of all requests as one line.
    pub fn totals_text(&self) -> String {
        let columns = self.totals().columns();
        let columns = columns.map(|(label, count)| format!("{label} {count}"));
        columns.join(", ")
    }

    fn per_second(&self) -> f64 {
        self.totals().total() as f64 / self.elapsed.as_secs_f64().max(0.001)
    }

    /// Returns the p50 and the p99 of the node's times in milliseconds.
    fn node_percentiles(&self) -> Option<[f64; 2]> {
        let mut times = self.node_times.clone();
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        Some([50, 99].map(|percent| times[last * percent / 100].as_secs_f64() * 1_000.0))
    }

    /// Returns the summary as a table.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{:<32}{:>10}{:>10}{:>12}{:>10}\n",
            "", "stored", "cached", "not stored", "failed"
        );
        let totals = self.totals();
        let rows = self.by_name.iter().map(|(name, counts)| (*name, counts));
        for (name, counts) in rows.chain([("all requests", &totals)]) {
            // writes to a String do not fail
            let _ = writeln!(
                text,
                "{name:<32}{:>10}{:>10}{:>12}{:>10}",
                counts.stored, counts.cached, counts.not_stored, counts.failed
            );
        }
        let seconds = self.elapsed.as_secs_f64();
        let _ = writeln!(
            text,
            "{:.1} requests/s in {seconds:.1} s",
            self.per_second()
        );
        if let Some([p50, p99]) = self.node_percentiles() {
            let _ = writeln!(text, "node: p50 {p50:.1} ms, p99 {p99:.1} ms");
        }
        for (reason, count) in &self.reasons {
            let _ = writeln!(text, "not stored: {count} {}", printable(reason));
        }
        if let Some(disk) = &self.disk {
            let DiskCounts {
                on_disk,
                not_on_disk,
            } = disk;
            let _ = writeln!(text, "owner: {on_disk} on disk, {not_on_disk} not on disk");
        }
        if self.skipped + self.bad_lines > 0 {
            let (skipped, bad) = (self.skipped, self.bad_lines);
            let _ = writeln!(text, "lines: {skipped} skipped, {bad} invalid");
        }
        text
    }

    /// Returns the summary as JSON.
    pub fn to_json(&self) -> Value {
        let names = self.by_name.iter();
        let methods = names.map(|(name, counts)| (String::from(*name), counts.to_json()));
        let percentiles = self.node_percentiles();
        json!({
            "requests": self.totals().to_json(),
            "methods": methods.collect::<serde_json::Map<_, _>>(),
            "not_stored": self.reasons,
            "per_second": self.per_second(),
            "seconds": self.elapsed.as_secs_f64(),
            "node_ms": percentiles.map(|[p50, p99]| json!({ "p50": p50, "p99": p99 })),
            "owner": self.disk.map(|disk| {
                json!({ "on_disk": disk.on_disk, "not_on_disk": disk.not_on_disk })
            }),
            "lines": { "skipped": self.skipped, "invalid": self.bad_lines },
            "last_failure": self.last_failure,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(outcome: Outcome, milliseconds: Option<u64>) -> ItemResult {
        let node_time = milliseconds.map(Duration::from_millis);
        ItemResult { outcome, node_time }
    }

    fn summary() -> Summary {
        let mut summary = Summary {
            elapsed: Duration::from_secs(2),
            ..Default::default()
        };
        summary.add("eth_call", &result(Outcome::Stored, Some(4)));
        summary.add("eth_call", &result(Outcome::AlreadyCached, None));
        summary.add("GET", &result(Outcome::NotStored("status".into()), Some(8)));
        summary.add("GET", &result(Outcome::Failed("HTTP 502".into()), None));
        summary
    }

    #[test]
    fn summary_has_a_row_for_each_method() {
        let mut summary = summary();
        assert_eq!(
            summary.totals_text(),
            "stored 1, cached before 1, not stored 1, failed 1"
        );
        summary.disk = Some(DiskCounts {
            on_disk: 2,
            not_on_disk: 1,
        });
        summary.skipped = 3;
        let text = summary.to_text();
        let rows: Vec<Vec<_>> = text
            .lines()
            .map(|row| row.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["GET", "0", "0", "1", "1"]);
        assert_eq!(rows[2], ["eth_call", "1", "1", "0", "0"]);
        assert_eq!(rows[3], ["all", "requests", "1", "1", "1", "1"]);
        let rest = "2.0 requests/s in 2.0 s\n\
                    node: p50 4.0 ms, p99 4.0 ms\n\
                    not stored: 1 status\n\
                    owner: 2 on disk, 1 not on disk\n\
                    lines: 3 skipped, 0 invalid\n";
        assert!(text.ends_with(rest), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn summary_is_json() {
        let json = summary().to_json();
        assert_eq!(json["methods"]["eth_call"]["stored"], 1);
        assert_eq!(json["requests"]["failed"], 1);
        assert_eq!(json["not_stored"]["status"], 1);
        assert_eq!(json["last_failure"], "HTTP 502");
        assert_eq!(Summary::default().to_json()["node_ms"], Value::Null);
    }

    #[test]
    fn memory_of_a_summary_is_limited() {
        let mut summary = Summary::default();
        for number in 0..MAX_TIMES + 10 {
            let reason = Outcome::NotStored(number.to_string());
            summary.add("GET", &result(reason, Some(number as u64)));
        }
        assert_eq!(summary.reasons.len(), MAX_REASONS);
        assert_eq!(summary.node_times.len(), MAX_TIMES);
        assert_eq!(
            summary.node_times[0],
            Duration::from_millis(MAX_TIMES as u64)
        );
    }
}
