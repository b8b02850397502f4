//! Metrics: the numbers and names of the counters, and the values that an exchange adds when its
//! response is completely with the host. Hosts export them to their own statistics.
//!
//! Every name is defined here or in a table of this crate: no client can create one.

use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::upstream_errors::{UpstreamErrorKind, ERROR_KINDS};
use crate::cache::process::{ProcessCacheState, ProcessResources};
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::cache::CacheKey;
use crate::jsonrpc::methods;
use crate::request_coding::SupportedContentCoding;
use crate::response_mode::ResponseMode;

/// A counter that is not one of a family such as modes, reasons or methods. The first five are also
/// counters of Envoy's compressor.
#[derive(Clone, Copy)]
enum UnlabelledCounter {
    Compressed,
    NotCompressed,
    TooSmall,
    UncompressedBytes,
    CompressedBytes,
    HitBytes,
    Batches,
    BatchCalls,
    BatchHits,
    Requests,
    NodeRequests,
    CallsSaved,
    Evicted,
    Invalid,
    /// The first of
    /// [`HitVerificationVerdict::ALL`](crate::cache::process::verification::HitVerificationVerdict::ALL).
    Verified,
    /// The first of
    /// [`DerivedLogsEvent::ALL`](crate::cache::process::derived_logs::DerivedLogsEvent::ALL).
    DerivedLogs = 18,
    /// The first of [`LogSplitEvent::ALL`](crate::cache::process::log_splits::LogSplitEvent::ALL).
    LogSplits = 21,
    ZstdResponses = 23,
    ZstdHits,
}

const TOTAL_NAMES: [&str; 25] = [
    "response.compressed",
    "response.not_compressed",
    "response.content_length_too_small",
    "response.total_uncompressed_bytes",
    "response.total_compressed_bytes",
    "cache.hit_bytes",
    "batch.requests",
    "batch.calls",
    "batch.hits",
    "requests",
    "node.requests",
    "node.calls_saved",
    "cache_memory.evicted",
    "owner.invalid_entries",
    "verified.same",
    "verified.changed",
    "verified.different",
    "verified.unanswered",
    "derived_logs.derived",
    "derived_logs.same",
    "derived_logs.different",
    "log_splits.assembled",
    "log_splits.abandoned",
    "response.zstd",
    "cache.zstd_hits",
];

const FIRST_MODE_COUNTER: usize = TOTAL_NAMES.len();
const FIRST_STATUS_COUNTER: usize = FIRST_MODE_COUNTER + ResponseMode::ALL.len();
const FIRST_REASON_COUNTER: usize = FIRST_STATUS_COUNTER + CacheStatus::ALL.len();
const FIRST_METHOD_COUNTER: usize = FIRST_REASON_COUNTER + Reason::ALL.len();
const FIRST_METHOD_HIT: usize = FIRST_METHOD_COUNTER + methods::METHOD_COUNT + 1;
const FIRST_METHOD_FORWARD: usize = FIRST_METHOD_HIT + methods::METHOD_COUNT + 1;
const FIRST_METHOD_LATENCY: usize = FIRST_METHOD_FORWARD + methods::METHOD_COUNT + 1;
const FIRST_UPSTREAM_STATUS: usize = FIRST_METHOD_LATENCY + methods::METHOD_COUNT + 1;
const FIRST_UPSTREAM_ERROR: usize = FIRST_UPSTREAM_STATUS + STATUS_CLASSES.len();

/// Number of counters.
pub const COUNTER_COUNT: usize = FIRST_UPSTREAM_ERROR + ERROR_KINDS;

/// Number of the counter of all requests.
#[cfg(not(target_family = "wasm"))]
pub(crate) const REQUESTS_COUNTER: usize = UnlabelledCounter::Requests as usize;

/// Numbers of the counters in the history of a metrics board: requests, requests that the node has
/// answered, hits by cache status, and misses by cache status.
#[cfg(not(target_family = "wasm"))]
pub(crate) const HISTORY_COUNTERS: [usize; 7] = [
    REQUESTS_COUNTER,
    UnlabelledCounter::NodeRequests as usize,
    FIRST_STATUS_COUNTER + CacheStatus::Hit as usize,
    FIRST_STATUS_COUNTER + CacheStatus::Updating as usize,
    FIRST_STATUS_COUNTER + CacheStatus::Stale as usize,
    FIRST_STATUS_COUNTER + CacheStatus::Miss as usize,
    FIRST_STATUS_COUNTER + CacheStatus::Revalidated as usize,
];

/// Classes of status codes (RFC 9110, 15).
const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Maximum number of counters that one exchange adds to, without the calls of a batch.
const MAX_COUNTERS: usize = 19;

/// Returns the names of all counters that a host exports to its own metrics, in the order of
/// their numbers. `None` for a number that is not exported: hits and latencies by method are
/// shown on the status page only.
pub fn exported_counter_names() -> impl Iterator<Item = Option<String>> {
    let is_shown = |number| !(FIRST_METHOD_HIT..FIRST_UPSTREAM_STATUS).contains(&number);
    let shown = move |(number, name): (usize, Option<String>)| name.filter(|_| is_shown(number));
    all_counter_names().enumerate().map(shown)
}

/// Returns the names of all counters. `None` for a number that no exchange adds to.
pub(crate) fn all_counter_names() -> impl Iterator<Item = Option<String>> {
    let totals = TOTAL_NAMES.into_iter().map(|name| Some(name.to_owned()));
    let modes = ResponseMode::ALL
        .into_iter()
        .filter(|mode| *mode != ResponseMode::Off);
    let modes = [None]
        .into_iter()
        .chain(modes.map(|mode| counter_name("mode", mode.mode_name())));
    let statuses = CacheStatus::ALL.iter().map(|status| status.name());
    let reasons = Reason::ALL.iter().map(|reason| reason.name());
    let errors = UpstreamErrorKind::ALL.iter();
    // method names keep their case
    let of_methods = |family: &'static str| {
        let names = methods::all_method_table_rows()
            .iter()
            .map(|row| row.name)
            .chain([OTHER_METHODS_NAME]);
        names.map(move |name| Some(format!("{family}.{name}")))
    };
    totals
        .chain(modes)
        .chain(statuses.map(|name| counter_name("cache", name)))
        .chain(reasons.map(|name| counter_name("cache.reason", name)))
        .chain(of_methods("rpc"))
        .chain(of_methods("rpc_hit"))
        .chain(of_methods("rpc_node"))
        .chain(of_methods("rpc_microseconds"))
        .chain(STATUS_CLASSES.map(|class| counter_name("node.status", class)))
        .chain(errors.map(|error| counter_name("node.error", error.name())))
}

/// Name for all methods that are in no table.
pub const OTHER_METHODS_NAME: &str = "other";

/// Returns the name of a counter in its family; `None` for an empty name, which is not counted.
fn counter_name(family: &str, name: &str) -> Option<String> {
    let name = name.to_lowercase();
    (!name.is_empty()).then(|| format!("{family}.{name}"))
}

/// Names of the histograms, which record a value of each response.
pub const HISTOGRAMS: [&str; 1] = ["response.uncompressed_bytes"];

/// Names of the gauges.
pub const GAUGES: [&str; 8] = [
    "memory.bytes",
    "memory.held",
    "cache_memory.bytes",
    "cache_memory.entries",
    "ssz.running",
    "jobs.waiting",
    "owner.links",
    "cache.waiting",
];

/// Returns the present values, in the order of [`GAUGES`]; `waiting` is the number of jobs that
/// wait for a thread of the host.
pub fn gauge_values(process: &ProcessResources, waiting: usize) -> [u64; GAUGES.len()] {
    let hot = process.shared.hot_tier();
    [
        process.budget.reserved_bytes() as u64,
        process.budget.reservation_count() as u64,
        hot.map_or(0, |hot| hot.total_entry_weight()),
        hot.map_or(0, |hot| hot.entry_count() as u64),
        process.transcodings.reserved_bytes() as u64,
        waiting as u64,
        process
            .shared
            .owner_client()
            .is_some_and(OwnerClient::is_owner_reachable)
            .into(),
        process.shared.flights.total_waiter_count() as u64,
    ]
}

/// The properties of an exchange and of its response that are counted when the exchange ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeMetrics<'a> {
    pub(crate) mode: ResponseMode,
    pub(crate) is_compressed: bool,
    /// Content coding that the exchange gave the body.
    pub(crate) coding: Option<SupportedContentCoding>,
    /// Bytes of the body before compression.
    pub(crate) received: u64,
    /// Bytes of the body as it was sent.
    pub(crate) sent: u64,
    pub(crate) status: CacheStatus,
    pub(crate) reason: Reason,
    /// Method of a single call.
    pub(crate) method: &'a [u8],
    /// Number of calls of a batch.
    pub(crate) calls: Option<usize>,
    pub(crate) hits: usize,
    /// Calls of a batch that was looked up.
    pub(crate) each: &'a [BatchCallOutcome],
    /// Whether the request was forwarded to the node.
    pub(crate) is_forwarded: bool,
    /// Status of the node's response; `None` without a response.
    pub(crate) node_status: Option<u16>,
    /// Microseconds from the request's head to the head of the node's response; `None` if the
    /// host does not measure it.
    pub(crate) node_elapsed: Option<u64>,
    /// Whether the node's response was truncated.
    pub(crate) is_cut: bool,
    /// Microseconds since the request's head; `None` if the host does not measure it.
    pub(crate) elapsed: Option<u64>,
    /// Age of the entry in milliseconds.
    pub(crate) age: Option<u64>,
    /// Key of a single response that may be stored.
    pub(crate) key: Option<&'a CacheKey>,
}

impl ExchangeMetrics<'_> {
    /// Whether the node has responded, with another status than 5xx.
    fn has_node_answered(&self) -> bool {
        self.node_status.is_some_and(|status| status < 500)
    }

    /// Whether a cached response was sent.
    fn is_hit(&self) -> bool {
        use CacheStatus::{Hit, Stale, Updating};
        matches!(self.status, Hit | Stale | Updating)
    }
}

/// A request for one response that may be stored: its key, its method and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySample {
    /// Key of the response.
    pub key: CacheKey,
    /// Position of the call's method in the method table; the next number for all other methods, and
    /// the one after it for a GET.
    pub method: u16,
    /// Whether the cache had the response.
    pub is_hit: bool,
}

/// The method of one call of a batch, and whether the cache had its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchCallOutcome {
    method: u16,
    is_hit: bool,
}

impl BatchCallOutcome {
    /// Returns the entry of a call for the metrics, by its method as written in the request.
    pub(crate) fn new(method: &[u8], is_hit: bool) -> Self {
        Self {
            method: method_index(method) as u16,
            is_hit,
        }
    }

    /// Returns the entries of the calls of a batch, from the method of each, and whether it is a
    /// hit. Adjacent calls of one method, the usual case, share one search of the method table.
    pub(crate) fn from_batch<'a>(
        calls: impl Iterator<Item = (&'a [u8], bool)> + 'a,
    ) -> impl Iterator<Item = Self> + 'a {
        let mut previous: Option<(&[u8], Self)> = None;
        calls.map(move |(method, is_hit)| {
            let call = match previous {
                Some((name, call)) if name == method => Self { is_hit, ..call },
                _ => Self::new(method, is_hit),
            };
            previous = Some((method, call));
            call
        })
    }
}

/// Returns the position of a method in the method table.
fn method_index(method: &[u8]) -> usize {
    methods::method_table_index(method).unwrap_or(methods::METHOD_COUNT)
}

/// The numbers that one exchange adds to the counters and histograms when it ends.
#[derive(Clone, Debug, Default)]
pub struct ExchangeMetricsTally {
    counter_increments: [(u16, u64); MAX_COUNTERS],
    number: usize,
    /// Counters of the calls of a batch.
    more: Vec<(u16, u64)>,
    length: Option<u64>,
    response_latency: Option<(HitOrMissLatency, u64)>,
    hit_age: Option<u64>,
    key_sample: Option<KeySample>,
}

/// The kind of a response whose latency is recorded: from the cache, or from the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitOrMissLatency {
    /// Latency of responses from the cache.
    Hit,
    /// Latency of responses of the node.
    Miss,
}

impl HitOrMissLatency {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Hit, Self::Miss];

    /// Name in metrics.
    pub const fn metrics_name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
        }
    }
}

impl ExchangeMetricsTally {
    /// Returns the metrics of an exchange that has ended.
    pub(crate) fn from_exchange(answered: &ExchangeMetrics<'_>) -> Self {
        let mut tally = Self::default();
        if answered.mode != ResponseMode::Off {
            tally.add_counter(FIRST_MODE_COUNTER + answered.mode as usize, 1);
            tally.add_body_lengths(answered);
        }
        if answered.mode != ResponseMode::Off || answered.status != CacheStatus::None {
            tally.add_total_counter(UnlabelledCounter::Requests, 1);
            tally.add_total_counter(
                UnlabelledCounter::NodeRequests,
                answered.has_node_answered().into(),
            );
            tally.add_upstream_response(answered);
            let kind = match (answered.is_forwarded, answered.is_hit()) {
                (true, _) => Some(HitOrMissLatency::Miss),
                (false, true) => Some(HitOrMissLatency::Hit),
                // the client has disconnected
                (false, false) => None,
            };
            tally.response_latency = kind.zip(answered.elapsed);
            let is_one = kind == Some(HitOrMissLatency::Hit) && answered.calls.is_none();
            tally.hit_age = answered.age.filter(|_| is_one).map(|age| age / 100);
        }
        tally.add_cache_result(answered);
        tally
    }

    /// Counts the status class of the node's response, and whether it was truncated.
    fn add_upstream_response(&mut self, answered: &ExchangeMetrics<'_>) {
        let class = answered.node_status.map(|status| usize::from(status / 100));
        if let Some(class @ 1..=5) = class {
            self.add_counter(FIRST_UPSTREAM_STATUS + class - 1, 1);
        }
        let cut = FIRST_UPSTREAM_ERROR + UpstreamErrorKind::Cut as usize;
        self.add_counter(cut, answered.is_cut.into());
    }

    /// Counts whether the body was compressed, and its bytes before and after.
    fn add_body_lengths(&mut self, answered: &ExchangeMetrics<'_>) {
        match answered.mode {
            ResponseMode::Hit => self.add_total_counter(UnlabelledCounter::HitBytes, answered.sent),
            _ if answered.is_compressed => self.add_total_counter(UnlabelledCounter::Compressed, 1),
            _ => self.add_total_counter(UnlabelledCounter::NotCompressed, 1),
        }
        if answered.coding == Some(SupportedContentCoding::Zstd) {
            let counter = match answered.mode {
                ResponseMode::Hit => UnlabelledCounter::ZstdHits,
                _ => UnlabelledCounter::ZstdResponses,
            };
            self.add_total_counter(counter, 1);
        }
        match answered.mode {
            ResponseMode::TooSmall => self.add_total_counter(UnlabelledCounter::TooSmall, 1),
            ResponseMode::Oneshot | ResponseMode::Stream => {
                self.add_total_counter(UnlabelledCounter::UncompressedBytes, answered.received);
                self.add_total_counter(UnlabelledCounter::CompressedBytes, answered.sent);
            }
            _ => {}
        }
        self.length = (answered.received > 0).then_some(answered.received);
    }

    /// Counts the cache status and its reason, the calls and hits, and the calls of each method.
    fn add_cache_result(&mut self, answered: &ExchangeMetrics<'_>) {
        if answered.status != CacheStatus::None {
            self.add_counter(FIRST_STATUS_COUNTER + answered.status as usize, 1);
        }
        if answered.reason != Reason::None {
            self.add_counter(FIRST_REASON_COUNTER + answered.reason as usize, 1);
        }
        match answered.calls {
            Some(calls) => {
                self.add_total_counter(UnlabelledCounter::Batches, 1);
                self.add_total_counter(UnlabelledCounter::BatchCalls, calls as u64);
                self.add_total_counter(UnlabelledCounter::BatchHits, answered.hits as u64);
                self.add_total_counter(UnlabelledCounter::CallsSaved, answered.hits as u64);
            }
            None => {
                let is_saved = answered.is_hit() && !answered.is_forwarded;
                self.add_total_counter(UnlabelledCounter::CallsSaved, is_saved.into());
            }
        }
        let row = (!answered.method.is_empty()).then(|| method_index(answered.method));
        let single_key = answered.key.filter(|_| answered.calls.is_none());
        self.key_sample = single_key.map(|key| KeySample {
            key: *key,
            method: row.unwrap_or(methods::METHOD_COUNT + 1) as u16,
            is_hit: answered.is_hit() && !answered.is_forwarded,
        });
        if let Some(row) = row {
            self.add_counter(FIRST_METHOD_COUNTER + row, 1);
            if answered.is_forwarded {
                if let (Some(elapsed), true) = (answered.node_elapsed, answered.has_node_answered())
                {
                    self.add_counter(FIRST_METHOD_FORWARD + row, 1);
                    self.add_counter(FIRST_METHOD_LATENCY + row, elapsed);
                }
            } else if answered.is_hit() {
                self.add_counter(FIRST_METHOD_HIT + row, 1);
            }
        }
        for call in answered.each {
            let row = usize::from(call.method);
            let of_hits = call.is_hit.then_some(FIRST_METHOD_HIT + row);
            let places = [Some(FIRST_METHOD_COUNTER + row), of_hits];
            let places = places.into_iter().flatten();
            self.more.extend(places.map(|place| (place as u16, 1)));
        }
    }

    /// Returns the values that the process has recorded outside of exchanges since the last
    /// call, if there are any: verified hits, derived logs, log splits, upstream errors.
    pub fn take_process_tally(shared: &ProcessCacheState) -> Option<Self> {
        let mut tally = Self::default();
        tally.add_counts_outside_exchanges(shared);
        (!tally.more.is_empty()).then_some(tally)
    }

    /// Adds the values that the process has recorded outside of exchanges.
    pub(crate) fn add_counts_outside_exchanges(&mut self, shared: &ProcessCacheState) {
        if let Some(counts) = shared.verified.verdicts.take_event_counts() {
            self.add_consecutive_counters(UnlabelledCounter::Verified as usize, counts);
        }
        if let Some(counts) = shared.derived_logs.events.take_event_counts() {
            self.add_consecutive_counters(UnlabelledCounter::DerivedLogs as usize, counts);
        }
        if let Some(counts) = shared.log_splits.take_event_counts() {
            self.add_consecutive_counters(UnlabelledCounter::LogSplits as usize, counts);
        }
        if let Some(counts) = shared.upstream_errors.take_event_counts() {
            self.add_consecutive_counters(FIRST_UPSTREAM_ERROR, counts);
        }
    }

    /// Adds counts to the consecutive counters that begin with number `first`.
    fn add_consecutive_counters<const N: usize>(&mut self, first: usize, counts: [u64; N]) {
        let counted = (first..).zip(counts).filter(|(_, count)| *count > 0);
        self.more
            .extend(counted.map(|(place, count)| (place as u16, count)));
    }

    /// Adds the number of entries that were evicted from the hot tier since the last call.
    pub(crate) fn add_eviction_count(&mut self, count: u64) {
        if count > 0 {
            self.more.push((UnlabelledCounter::Evicted as u16, count));
        }
    }

    /// Adds the number of entries of the owner since the last call that were invalid as a
    /// response.
    pub(crate) fn add_invalid_entry_count(&mut self, count: u64) {
        if count > 0 {
            self.more.push((UnlabelledCounter::Invalid as u16, count));
        }
    }

    fn add_total_counter(&mut self, total: UnlabelledCounter, count: u64) {
        self.add_counter(total as usize, count);
    }

    /// Records an increment; 0 is not recorded, and no increment above [`MAX_COUNTERS`] of them.
    fn add_counter(&mut self, counter: usize, count: u64) {
        if count > 0 && self.number < MAX_COUNTERS {
            self.counter_increments[self.number] = (counter as u16, count);
            self.number += 1;
        }
    }

    /// Numbers of the counters that the exchange has changed, with their increments.
    pub fn counter_increments(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let counts = self.counter_increments[..self.number]
            .iter()
            .chain(&self.more);
        counts.map(|(counter, count)| (usize::from(*counter), *count))
    }

    /// Latency of the response in microseconds, if the host measures it.
    pub fn response_latency(&self) -> Option<(HitOrMissLatency, u64)> {
        self.response_latency
    }

    /// Age of the entry of a hit, in tenths of a second.
    pub fn hit_age_tenths(&self) -> Option<u64> {
        self.hit_age
    }

    /// The key, method and outcome of a request for one response that may be stored.
    pub fn key_sample(&self) -> Option<&KeySample> {
        self.key_sample.as_ref()
    }

    /// Values that the exchange adds to each of [`HISTOGRAMS`], if it has one.
    pub fn histogram_observations(&self) -> [Option<u64>; HISTOGRAMS.len()] {
        [self.length]
    }
}

#[cfg(test)]
mod tests {
    use crate::hash_keys::HashSet;

    use super::{
        all_counter_names, exported_counter_names, method_index, BatchCallOutcome,
        UnlabelledCounter, COUNTER_COUNT, FIRST_METHOD_COUNTER, FIRST_METHOD_HIT, GAUGES,
        HISTOGRAMS,
    };
    use crate::jsonrpc::methods;

    #[test]
    fn counters_have_distinct_names() {
        let names: Vec<_> = all_counter_names().collect();
        assert_eq!(
            (names.len(), exported_counter_names().count()),
            (COUNTER_COUNT, COUNTER_COUNT)
        );
        assert_eq!(
            names[FIRST_METHOD_COUNTER + methods::METHOD_COUNT].as_deref(),
            Some("rpc.other")
        );
        for (first, name) in [
            (UnlabelledCounter::Verified, "verified.same"),
            (UnlabelledCounter::DerivedLogs, "derived_logs.derived"),
            (UnlabelledCounter::LogSplits, "log_splits.assembled"),
            (UnlabelledCounter::ZstdResponses, "response.zstd"),
            (UnlabelledCounter::ZstdHits, "cache.zstd_hits"),
        ] {
            assert_eq!(names[first as usize].as_deref(), Some(name));
        }
        assert_eq!(
            names[FIRST_METHOD_HIT - 1],
            names[FIRST_METHOD_COUNTER + methods::METHOD_COUNT]
        );
        let mut seen = HashSet::default();
        let others = GAUGES.into_iter().chain(HISTOGRAMS).map(str::to_owned);
        for name in names.into_iter().flatten().chain(others) {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            assert!(name.chars().all(plain), "{name}");
            assert!(seen.insert(name));
        }
        for name in [
            "mode.accept-encoding",
            "cache.hit",
            "cache.reason.content-type",
            "node.status.5xx",
            "node.error.rpc-method-not-found",
        ] {
            assert!(seen.contains(name), "{name}");
        }
        assert!(!seen.contains("mode.off") && !seen.contains("cache."));
    }

    #[test]
    fn calls_of_a_batch_have_their_own_method_and_hit() {
        let calls: [(&[u8], bool); 6] = [
            (b"eth_call", true),
            (b"eth_call", false),
            (b"eth_chainId", false),
            (b"eth_call", true),
            (b"eth_unknown", true),
            (b"eth_unknown", false),
        ];
        let metrics = BatchCallOutcome::from_batch(calls.into_iter());
        let metrics: Vec<_> = metrics.map(|call| (call.method, call.is_hit)).collect();
        let expected = calls.map(|(method, is_hit)| (method_index(method) as u16, is_hit));
        assert_eq!(metrics, expected);
    }
}
