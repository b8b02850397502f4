//! The contents of the views as lines of text, for the terminal and for reports.

use crate::args::MethodSort;

use super::owner_views::{chain_table, store_lines};
use super::rates::Rates;
use super::snapshot::{LatencyQuantiles, MethodRow, StatusSnapshot, StatusSource};
use super::table::{labelled_lines, TextTable};
use super::units::{
    format_age, format_bytes, format_count, format_counts, format_latency, format_rate,
    format_ratio, or_unknown,
};

/// A view of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Chains, errors of the node, memory.
    Overview,
    /// Calls by method.
    Methods,
    /// Responses that are not cached, by reason.
    Reasons,
    /// The owner with its store, and the fleet.
    Store,
    /// The most frequent keys.
    Keys,
}

impl View {
    /// All views, in the order of their keys.
    pub const ALL: [Self; 5] = [
        Self::Overview,
        Self::Methods,
        Self::Reasons,
        Self::Store,
        Self::Keys,
    ];

    /// Returns the title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Methods => "Methods",
            Self::Reasons => "Not cached",
            Self::Store => "Store",
            Self::Keys => "Keys",
        }
    }

    /// Returns the next view; the first follows the last.
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|view| *view == self);
        Self::ALL[at.map_or(0, |at| (at + 1) % Self::ALL.len())]
    }

    /// Returns the lines of the view, the header of its table first.
    pub fn lines(
        self,
        snapshot: &StatusSnapshot,
        rates: Option<&Rates>,
        sort: MethodSort,
    ) -> Vec<String> {
        match self {
            Self::Overview => overview_lines(snapshot),
            Self::Methods => method_lines(snapshot, rates, sort),
            Self::Reasons => reason_table(snapshot, rates).lines(),
            Self::Store => store_lines(snapshot),
            Self::Keys => key_lines(snapshot),
        }
    }
}

/// Returns the first line: versions, time since the start of counting.
pub fn title_line(snapshot: &StatusSnapshot) -> String {
    let versions = [&snapshot.software, &snapshot.host, &snapshot.encoder];
    let versions = versions.into_iter().flatten().cloned();
    let kind = match snapshot.source {
        StatusSource::Proxy => None,
        StatusSource::EnvoyStats => Some("Envoy's statistics".to_owned()),
        StatusSource::Owner => Some("owner".to_owned()),
    };
    let up = snapshot
        .uptime
        .map(|up| format!("counting for {}", format_age(up)));
    let parts: Vec<String> = versions.chain(kind).chain(up).collect();
    parts.join("  ")
}

/// Returns the summary: four lines of two values each.
pub fn summary_lines(snapshot: &StatusSnapshot, rates: Option<&Rates>) -> [String; 4] {
    let rate = |value: fn(&Rates) -> f64| or_unknown(rates.map(value), format_rate);
    let hit_ratio = or_unknown(rates.and_then(|rates| rates.hit_ratio), format_ratio);
    let values = match &snapshot.owner {
        Some(owner) if snapshot.source == StatusSource::Owner => {
            let memory = format!(
                "{} / {}",
                format_bytes(owner.memory_bytes as f64),
                format_bytes(owner.memory_capacity as f64)
            );
            [
                [
                    ("Lookups/s", rate(|it| it.requests)),
                    ("Hit ratio", hit_ratio),
                ],
                [
                    ("Memory", memory),
                    ("Disk", format_bytes(owner.disk_bytes as f64)),
                ],
                [
                    ("Processes", format_count(owner.processes)),
                    ("Leases", format_count(owner.leases)),
                ],
                [
                    ("Purges (generation)", owner.generation.to_string()),
                    ("Evicted from memory", format_count(owner.evicted)),
                ],
            ]
        }
        _ => {
            let [hit, miss] = current_latency(snapshot);
            [
                [
                    ("Requests/s", rate(|it| it.requests)),
                    ("Hit ratio", hit_ratio),
                ],
                [
                    ("Upstream requests/s", rate(|it| it.node_requests)),
                    (
                        "Upstream requests saved",
                        format_count(snapshot.totals.calls_saved),
                    ),
                ],
                [
                    ("Upstream errors/s", rate(|it| it.node_errors)),
                    (
                        "Bytes of hits/s",
                        or_unknown(rates.map(|it| it.hit_bytes), format_bytes),
                    ),
                ],
                [
                    ("Latency p50/p99 (hit)", or_unknown(hit, format_quantiles)),
                    ("Latency p50/p99 (miss)", or_unknown(miss, format_quantiles)),
                ],
            ]
        }
    };
    values.map(|[(left, a), (right, b)]| format!("{left:<22}{a:>17}  {right:<23}{b:>16}"))
}

/// Returns the latency of hits and misses in the last interval of the history, or, without a
/// history, since the start of counting.
fn current_latency(snapshot: &StatusSnapshot) -> [Option<LatencyQuantiles>; 2] {
    match &snapshot.history {
        Some(history) => history.latency,
        None => snapshot.latency,
    }
}

fn format_quantiles(latency: LatencyQuantiles) -> String {
    let (p50, p99) = (format_latency(latency.p50), format_latency(latency.p99));
    format!("{p50} / {p99}")
}

fn overview_lines(snapshot: &StatusSnapshot) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(error) = &snapshot.owner_error {
        lines.push(format!("ERROR: {error}"));
    }
    if let Some(owner) = &snapshot.owner {
        if let Some(reason) = &owner.store_off {
            lines.push(format!("ERROR: nothing is written to the disk: {reason}"));
        }
        if !owner.chains.is_empty() {
            lines.extend(chain_table(owner).lines());
            lines.push(String::new());
        }
    }
    if snapshot.source != StatusSource::Owner {
        let worker = |name: &str| {
            let found = snapshot.workers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| *value)
        };
        let bytes = |name| or_unknown(worker(name), |bytes| format_bytes(bytes as f64));
        let memory = format!(
            "{} entries, {}",
            or_unknown(worker("cache_memory.entries"), format_count),
            bytes("cache_memory.bytes")
        );
        lines.extend(labelled_lines(&[
            ("Upstream errors", format_counts(&snapshot.errors)),
            ("Cache in memory", memory),
            ("Memory of requests", bytes("memory.bytes")),
            (
                "Coalesced requests",
                or_unknown(worker("cache.waiting"), format_count),
            ),
        ]));
    }
    let errors = snapshot.owner.iter().flat_map(|owner| &owner.chains);
    lines.extend(errors.filter_map(|chain| {
        let error = chain.error.as_ref()?;
        Some(format!("{}: {error}", chain.name))
    }));
    lines
}

/// Returns the methods in the order of a column, the largest first.
pub fn sorted_methods<'a>(
    snapshot: &'a StatusSnapshot,
    rates: Option<&Rates>,
    sort: MethodSort,
) -> Vec<&'a MethodRow> {
    let mut methods: Vec<_> = snapshot.methods.iter().collect();
    let rank = |row: &MethodRow| match sort {
        MethodSort::Calls => row.calls as f64,
        MethodSort::Rate => method_rate(row, rates).unwrap_or(0.0),
        MethodSort::Hits => row.hits.unwrap_or(0) as f64,
        MethodSort::Misses => row.calls.saturating_sub(row.hits.unwrap_or(0)) as f64,
        MethodSort::Latency => row.node_latency.unwrap_or(0) as f64,
    };
    methods.sort_by(|a, b| {
        rank(b)
            .total_cmp(&rank(a))
            .then_with(|| a.name.cmp(&b.name))
    });
    methods
}

/// Returns the calls of a method per second.
pub fn method_rate(row: &MethodRow, rates: Option<&Rates>) -> Option<f64> {
    rates.and_then(|rates| rates.methods.get(&row.name).copied())
}

fn method_lines(snapshot: &StatusSnapshot, rates: Option<&Rates>, sort: MethodSort) -> Vec<String> {
    if snapshot.source == StatusSource::Owner {
        return vec!["An owner has no counters of methods; use the status page of a proxy.".into()];
    }
    let header = [
        "Method",
        "Calls/s",
        "Calls",
        "Hits",
        "Hit ratio",
        "Node mean",
    ];
    let mut table = TextTable::new(&header);
    table.rows = sorted_methods(snapshot, rates, sort)
        .into_iter()
        .map(|row| {
            let ratio = row.hits.filter(|_| row.calls > 0);
            let ratio = ratio.map(|hits| hits as f64 / row.calls as f64);
            vec![
                row.name.clone(),
                or_unknown(method_rate(row, rates), format_rate),
                format_count(row.calls),
                or_unknown(row.hits, format_count),
                or_unknown(ratio, format_ratio),
                or_unknown(row.node_latency, format_latency),
            ]
        })
        .collect();
    table.lines()
}

fn reason_table(snapshot: &StatusSnapshot, rates: Option<&Rates>) -> TextTable {
    let mut reasons: Vec<_> = snapshot.reasons.iter().collect();
    reasons.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then_with(|| a.cmp(b)));
    let mut table = TextTable::new(&["Reason (docs/reasons.md)", "Responses/s", "Responses"]);
    table.rows.extend(reasons.into_iter().map(|(name, count)| {
        let rate = rates.and_then(|rates| rates.reasons.get(name).copied());
        vec![
            name.clone(),
            or_unknown(rate, format_rate),
            format_count(*count),
        ]
    }));
    table
}

fn key_lines(snapshot: &StatusSnapshot) -> Vec<String> {
    let Some(keys) = &snapshot.keys else {
        return vec![NO_KEYS.into()];
    };
    let mut table = TextTable::new(&["Method", "Share", "Hit ratio"]);
    table.rows.extend(keys.top.iter().map(|row| {
        let part = |count: u64, all: u64| (all > 0).then(|| count as f64 / all as f64);
        vec![
            row.method.clone(),
            or_unknown(part(row.samples, keys.samples), format_ratio),
            or_unknown(part(row.hits, row.samples), format_ratio),
        ]
    }));
    // the key is last: a narrow terminal cuts it, and a report does not
    let names = std::iter::once("Key").chain(keys.top.iter().map(|row| &row.key[..]));
    let mut lines: Vec<_> = table
        .lines()
        .into_iter()
        .zip(names)
        .map(|(line, key)| format!("{line}  {key}"))
        .collect();
    lines.push(format!(
        "A sample: the last {} of 1 in {} single requests.",
        keys.samples, keys.interval
    ));
    lines
}

/// The text in place of keys that are unknown.
pub const NO_KEYS: &str = "No keys are sampled: the source is no status page, or of an earlier \
                           version.";
