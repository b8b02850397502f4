//! What is counted: which numbers there are, and what an exchange adds to them when all
//! of its answer is with the host. Hosts carry them to where their operators look.
//!
//! Every name comes from here or from a table of this crate: no client can make one.

use crate::cache::process::Process;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::jsonrpc::methods;
use crate::mode::Mode;

/// What is counted beside modes, reasons and the like. The first five are those of
/// Envoy's compressor.
#[derive(Clone, Copy)]
enum Total {
    Compressed,
    NotCompressed,
    TooSmall,
    UncompressedBytes,
    CompressedBytes,
    HitBytes,
    Batches,
    BatchCalls,
    BatchHits,
}

const TOTALS: [&str; 9] = [
    "response.compressed",
    "response.not_compressed",
    "response.content_length_too_small",
    "response.total_uncompressed_bytes",
    "response.total_compressed_bytes",
    "cache.hit_bytes",
    "batch.requests",
    "batch.calls",
    "batch.hits",
];

const MODES: usize = TOTALS.len();
const STATUSES: usize = MODES + Mode::ALL.len();
const REASONS: usize = STATUSES + CacheStatus::ALL.len();
const METHODS: usize = REASONS + Reason::ALL.len();

/// No exchange adds to more counters.
const MOST: usize = 12;

/// The names of all counters; each is known by its number from here on. `None`: no
/// exchange adds to it.
pub fn counters() -> impl Iterator<Item = Option<String>> {
    let totals = TOTALS.into_iter().map(|name| Some(name.to_owned()));
    let modes = Mode::ALL.into_iter().filter(|mode| *mode != Mode::Off);
    let modes = [None]
        .into_iter()
        .chain(modes.map(|mode| named("mode", mode.name())));
    let statuses = CacheStatus::ALL.iter().map(|status| status.name());
    let reasons = Reason::ALL.iter().map(|reason| reason.name());
    // these are as nodes have them
    let calls = methods::all().iter().map(|row| row.name).chain(["other"]);
    totals
        .chain(modes)
        .chain(statuses.map(|name| named("cache", name)))
        .chain(reasons.map(|name| named("cache.reason", name)))
        .chain(calls.map(|name| Some(format!("rpc.{name}"))))
}

fn named(family: &str, name: &str) -> Option<String> {
    let name = name.to_lowercase().replace('-', "_");
    (!name.is_empty()).then(|| format!("{family}.{name}"))
}

/// The names of what is measured of each answer.
pub const HISTOGRAMS: [&str; 1] = ["response.uncompressed_bytes"];

/// The names of what there is at a time.
pub const GAUGES: [&str; 6] = [
    "memory.bytes",
    "memory.held",
    "cache_memory.bytes",
    "cache_memory.entries",
    "ssz.running",
    "jobs.waiting",
];

/// What there is now, in the order of [`GAUGES`]; `waiting` jobs wait for a thread of the
/// host's.
pub fn gauges(process: &Process, waiting: usize) -> [u64; GAUGES.len()] {
    let hot = process.shared.hot();
    [
        process.budget.used() as u64,
        process.budget.holders() as u64,
        hot.map_or(0, |hot| hot.bytes()),
        hot.map_or(0, |hot| hot.count() as u64),
        process.transcodings.used() as u64,
        waiting as u64,
    ]
}

/// What an exchange says of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) mode: Mode,
    pub(crate) is_compressed: bool,
    /// Bytes of the body before it was compressed, and as it was sent.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) status: CacheStatus,
    pub(crate) reason: Reason,
    /// Of a single call.
    pub(crate) method: &'a [u8],
    /// Calls of a batch.
    pub(crate) calls: Option<usize>,
    pub(crate) hits: usize,
}

/// What one exchange comes to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    counts: [(u16, u64); MOST],
    number: usize,
    length: Option<u64>,
}

impl Tally {
    /// Of an exchange of which no more comes. Nothing where nothing was decided.
    pub(crate) fn of(answered: &Answered<'_>) -> Self {
        let mut tally = Self::default();
        if answered.mode != Mode::Off {
            tally.add(MODES + answered.mode as usize, 1);
            tally.add_body(answered);
            tally.add_cache(answered);
        }
        tally
    }

    fn add_body(&mut self, answered: &Answered<'_>) {
        match answered.mode {
            Mode::Hit => self.total(Total::HitBytes, answered.sent),
            _ if answered.is_compressed => self.total(Total::Compressed, 1),
            _ => self.total(Total::NotCompressed, 1),
        }
        match answered.mode {
            Mode::TooSmall => self.total(Total::TooSmall, 1),
            Mode::Oneshot | Mode::Stream => {
                self.total(Total::UncompressedBytes, answered.received);
                self.total(Total::CompressedBytes, answered.sent);
            }
            _ => {}
        }
        self.length = (answered.received > 0).then_some(answered.received);
    }

    fn add_cache(&mut self, answered: &Answered<'_>) {
        if answered.status != CacheStatus::None {
            self.add(STATUSES + answered.status as usize, 1);
        }
        if answered.reason != Reason::None {
            self.add(REASONS + answered.reason as usize, 1);
        }
        if let Some(calls) = answered.calls {
            self.total(Total::Batches, 1);
            self.total(Total::BatchCalls, calls as u64);
            self.total(Total::BatchHits, answered.hits as u64);
        }
        if !answered.method.is_empty() {
            let row = methods::position(answered.method);
            self.add(METHODS + row.unwrap_or(methods::all().len()), 1);
        }
    }

    fn total(&mut self, total: Total, count: u64) {
        self.add(total as usize, count);
    }

    fn add(&mut self, counter: usize, count: u64) {
        if count > 0 && self.number < MOST {
            self.counts[self.number] = (counter as u16, count);
            self.number += 1;
        }
    }

    /// Numbers of counters, and what each of them grows by.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let counts = self.counts[..self.number].iter();
        counts.map(|(counter, count)| (usize::from(*counter), *count))
    }

    /// What it adds to each of [`HISTOGRAMS`], if it does.
    pub fn measured(&self) -> [Option<u64>; HISTOGRAMS.len()] {
        [self.length]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{counters, GAUGES, HISTOGRAMS, METHODS};
    use crate::jsonrpc::methods;

    #[test]
    fn every_number_has_a_name_of_its_own() {
        let names: Vec<_> = counters().collect();
        assert_eq!(names.len(), METHODS + methods::all().len() + 1);
        assert_eq!(names.last(), Some(&Some("rpc.other".to_owned())));
        let mut seen = HashSet::new();
        let others = GAUGES.into_iter().chain(HISTOGRAMS).map(str::to_owned);
        for name in names.into_iter().flatten().chain(others) {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            assert!(name.chars().all(plain), "{name}");
            assert!(seen.insert(name));
        }
        for name in [
            "mode.accept_encoding",
            "cache.hit",
            "cache.reason.content_type",
        ] {
            assert!(seen.contains(name), "{name}");
        }
        assert!(!seen.contains("mode.off") && !seen.contains("cache."));
    }
}
