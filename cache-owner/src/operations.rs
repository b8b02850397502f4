//! The operations that all interfaces of an owner share: calls of the engine, purges, the status.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::Value;
use sszip_core::status::StatusReportFormat;

use crate::clock::read_clocks;
use crate::engine::{CompletedPurge, OwnerExecutionError, OwnerRequestExecutor};
use crate::fleet::purge_report::FleetPurgeReport;
use crate::request::{self, ProblemDetails};
use crate::response;

/// The operations of an owner, for HTTP and for frames.
pub struct OwnerOperations {
    /// The engine that the requests call.
    pub engine: Arc<OwnerRequestExecutor>,
    max_entry: u64,
    started: u64,
    /// Number of open connections.
    pub connections: AtomicUsize,
    /// Number of polls that wait.
    pub(crate) waiting_polls: AtomicUsize,
}

impl OwnerOperations {
    /// Creates the operations of an engine; entries have at most `max_entry` bytes.
    pub fn new(engine: Arc<OwnerRequestExecutor>, max_entry: u64) -> Self {
        Self {
            engine,
            max_entry,
            started: read_clocks().monotonic,
            connections: AtomicUsize::new(0),
            waiting_polls: AtomicUsize::new(0),
        }
    }

    /// Purges the entries in the scope of a JSON object, on this machine and in the fleet, and
    /// suspends or resumes their namespaces. The purge continues if the caller stops waiting.
    pub(crate) async fn purge_by_json(
        &self,
        body: &[u8],
    ) -> Result<(CompletedPurge, Option<FleetPurgeReport>), ProblemDetails> {
        let engine = Arc::clone(&self.engine);
        let scope = request::parse_purge_scope(body)?;
        let suspends = request::parse_wrong_chain_namespace(body);
        let purge = async move {
            if let Some(namespace) = suspends {
                engine.owner.suspend_namespace(namespace, read_clocks());
                engine.wake_sessions();
            }
            // a node with the wrong chain is this machine's: the fleet has no entries of that chain
            let fleet = engine.fleet.get().filter(|_| suspends.is_none());
            // before the local purge, so that no older value returns after it
            let begun = fleet.map(|fleet| fleet.purges.begin_purge(&scope));
            let purged = engine.purge_entries(scope.clone()).await?;
            if suspends.is_none() {
                engine.owner.resume_namespaces(&scope);
                engine.wake_sessions();
            }
            let report = match begun {
                Some(begun) => Some(begun.publish().await),
                None => None,
            };
            Ok::<_, OwnerExecutionError>((purged, report))
        };
        let purged = tokio::spawn(purge).await;
        Ok(purged.map_err(OwnerExecutionError::from)??)
    }

    /// Measures the latency of the fleet, with a value of `length` bytes.
    pub(crate) async fn ping_fleet(&self, length: usize) -> Result<Value, ProblemDetails> {
        let problem = |status, detail: String| ProblemDetails::new(status, detail);
        let Some(fleet) = self.engine.fleet.get() else {
            return Err(problem(
                StatusCode::NOT_FOUND,
                "the owner has no fleet: cache_fleet is not set".into(),
            ));
        };
        let max_entry = fleet.settings.max_entry;
        if length == 0 || length as u64 > max_entry {
            let detail = format!("bytes must be 1 to max_entry of cache_fleet, {max_entry}");
            return Err(problem(StatusCode::BAD_REQUEST, detail));
        }
        fleet.measure_latency(length).await.map_err(|error| {
            let server = &fleet.settings.endpoint;
            let detail = format!("cannot measure the fleet {server}: {error}");
            problem(StatusCode::BAD_GATEWAY, detail)
        })
    }

    /// Returns the status of the owner. All values are in memory: the status of an owner whose disk
    /// hangs is available.
    pub(crate) fn format_status(&self, format: StatusReportFormat) -> String {
        let engine = &self.engine;
        let status = engine.owner.owner_status_json();
        let uptime = read_clocks().monotonic.saturating_sub(self.started);
        let counts = (
            self.connections.load(Ordering::Relaxed),
            self.waiting_polls.load(Ordering::Relaxed),
        );
        let mut status = response::complete_owner_status(status, &engine.chains, uptime, counts);
        if let Some(fleet) = engine.fleet.get() {
            status["fleet"] = fleet.status_json();
        }
        format.format_owner_report(status)
    }

    /// Maximum length of an entry in bytes.
    pub(crate) fn max_entry(&self) -> u64 {
        self.max_entry
    }
}

impl From<OwnerExecutionError> for ProblemDetails {
    fn from(failure: OwnerExecutionError) -> Self {
        let status = match failure {
            OwnerExecutionError::Disk(_) => StatusCode::INSUFFICIENT_STORAGE,
            OwnerExecutionError::Broken(_) | OwnerExecutionError::Closed(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(status, failure.to_string())
    }
}
