//! The operations that all interfaces of an owner share: calls of the engine, purges, the status.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use hyper::StatusCode;
use sszip_core::status::StatusReportFormat;

use crate::clock::read_clocks;
use crate::engine::{CompletedPurge, OwnerExecutionError, OwnerRequestExecutor};
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

    /// Purges the entries in the scope of a JSON object, and suspends or resumes their namespaces.
    pub(crate) async fn purge_by_json(
        &self,
        body: &[u8],
    ) -> Result<CompletedPurge, ProblemDetails> {
        let engine = &self.engine;
        let scope = request::parse_purge_scope(body)?;
        let suspends = request::parse_wrong_chain_namespace(body);
        if let Some(namespace) = suspends {
            engine.owner.suspend_namespace(namespace, read_clocks());
            engine.wake_sessions();
        }
        let purged = engine.purge_entries(scope.clone()).await?;
        if suspends.is_none() {
            engine.owner.resume_namespaces(&scope);
            engine.wake_sessions();
        }
        Ok(purged)
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
        let status = response::complete_owner_status(status, &engine.chains, uptime, counts);
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
