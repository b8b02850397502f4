//! Counters of requests, for the assertions of tests: `GET /stats`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::submissions::PathSubmissionCounts;

/// Maximum number of unknown method names that are counted separately; further ones are counted
/// together.
const UNKNOWN_NAMES: usize = 256;
const OTHER_NAMES: &str = "(other)";

/// The node's counters of requests since its start, which `/stats` shows. Requests for `/stats` and
/// `/health` are not counted, but their connections are.
#[derive(Debug, Default)]
pub struct RequestCounters {
    requests: AtomicU64,
    pages: AtomicU64,
    batches: AtomicU64,
    invalid: AtomicU64,
    faults: AtomicU64,
    gzipped: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    in_flight: AtomicU64,
    accepted: AtomicU64,
    open: AtomicU64,
    unknown: Mutex<BTreeMap<String, u64>>,
}

/// The JSON of `/stats`.
#[derive(Serialize)]
struct CounterReport<'a> {
    requests: u64,
    in_flight: u64,
    bytes_in: u64,
    bytes_out: u64,
    connections: ReplayConnectionCounters,
    batches: u64,
    pages: u64,
    invalid: u64,
    faults: u64,
    gzipped: u64,
    methods: BTreeMap<&'a str, u64>,
    publishes: BTreeMap<String, PathSubmissionCounts>,
    unknown_methods: BTreeMap<String, u64>,
}

/// The counters of connections in `/stats`.
#[derive(Serialize)]
struct ReplayConnectionCounters {
    accepted: u64,
    open: u64,
}

impl RequestCounters {
    pub fn count_batch(&self) {
        self.batches.fetch_add(1, Relaxed);
    }

    /// Counts a call or batch member that is not a valid JSON-RPC request.
    pub fn count_invalid_call(&self) {
        self.invalid.fetch_add(1, Relaxed);
    }

    pub fn count_page(&self) {
        self.pages.fetch_add(1, Relaxed);
    }

    pub fn count_fault(&self) {
        self.faults.fetch_add(1, Relaxed);
    }

    pub fn count_gzipped(&self) {
        self.gzipped.fetch_add(1, Relaxed);
    }

    pub fn count_received_bytes(&self, bytes: usize) {
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a call of an unknown method. Names after the first [`UNKNOWN_NAMES`] are counted as
    /// one.
    pub fn count_unknown_method(&self, name: &str) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let name = if unknown.len() < UNKNOWN_NAMES || unknown.contains_key(name) {
            name
        } else {
            OTHER_NAMES
        };
        *unknown.entry(name.to_owned()).or_default() += 1;
    }

    /// Returns the counters as JSON, with the calls by method and the submissions by path.
    pub fn to_json(
        &self,
        methods: BTreeMap<&str, u64>,
        publishes: BTreeMap<String, PathSubmissionCounts>,
    ) -> String {
        let snapshot = CounterReport {
            requests: self.requests.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            connections: ReplayConnectionCounters {
                accepted: self.accepted.load(Relaxed),
                open: self.open.load(Relaxed),
            },
            batches: self.batches.load(Relaxed),
            pages: self.pages.load(Relaxed),
            invalid: self.invalid.load(Relaxed),
            faults: self.faults.load(Relaxed),
            gzipped: self.gzipped.load(Relaxed),
            methods,
            publishes,
            unknown_methods: self
                .unknown
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        };
        serde_json::to_string(&snapshot).unwrap_or_default()
    }
}

/// A guard that counts a connection as open until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Arc<RequestCounters>);

impl OpenConnection {
    /// Counts a connection as accepted, and as open until the value is dropped.
    pub fn new(stats: Arc<RequestCounters>) -> Self {
        stats.accepted.fetch_add(1, Relaxed);
        stats.open.fetch_add(1, Relaxed);
        Self(stats)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// A guard that counts a request as in flight, from its head to the last byte of its response or
/// the end of the connection.
#[derive(Debug)]
pub struct InFlightRequestGuard(Arc<RequestCounters>);

impl InFlightRequestGuard {
    /// Counts a request, and counts it as in flight until the value is dropped.
    pub fn new(stats: Arc<RequestCounters>) -> Self {
        stats.requests.fetch_add(1, Relaxed);
        stats.in_flight.fetch_add(1, Relaxed);
        Self(stats)
    }

    /// Counts bytes of a response body that were passed to the connection.
    pub fn count_sent_bytes(&self, bytes: usize) {
        self.0.bytes_out.fetch_add(bytes as u64, Relaxed);
    }
}

impl Drop for InFlightRequestGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}
