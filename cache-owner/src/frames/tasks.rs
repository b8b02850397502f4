//! The tasks of a session that may wait for a disk or another process, or take much CPU.

use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::StatusCode;
use sszip_core::cache::fleet::sharing::ServableValue;
use sszip_core::cache::owner::processes::OwnerClientName;
use sszip_core::cache::owner::session::OwnerSession;
use sszip_core::cache::owner::session_tasks::{FleetBatchLookup, FleetLookup};
use sszip_core::cache::owner::session_tasks::{OwnerTask, SessionBatchLookup, SessionLookup};
use sszip_core::cache::owner::state::{OwnerHit, OwnerMemoryLookupResult};
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::owner_protocol::message_body::MessageBody;
use sszip_core::cache::CacheKey;
use sszip_core::status::StatusReportFormat;
use tokio::task::{JoinError, JoinSet};

use crate::clock::read_clocks;
use crate::engine::{OwnerRequestExecutor, INLINE_CHECK_BYTES};
use crate::fleet::batch_leases::QueriedBatch;
use crate::operations::OwnerOperations;
use crate::request::{ProblemDetails, MAX_PURGE_BYTES};
use crate::response;

/// Maximum number of lookups that one task reads from the store, one after the other.
const MAX_TASK_READS: usize = 16;

/// The result of a task, with which its request is completed.
pub(super) enum CompletedTask {
    /// A lookup, with the entry if one was found.
    Lookup(SessionLookup, Option<OwnerHit>),
    /// A batch lookup, with the entries that were found.
    BatchLookup(SessionBatchLookup, Vec<(CacheKey, OwnerHit)>),
    /// A lookup for which the fleet was queried, with its value if it has one.
    FleetLookup(FleetLookup, Option<ServableValue>),
    /// A batch lookup for which the fleet was queried, with the values that it has.
    FleetBatchLookup(FleetBatchLookup, QueriedBatch),
    /// A batch lookup that has waited for other machines, with the entries that were received.
    FleetBatchWait(FleetBatchLookup, Vec<(CacheKey, OwnerHit)>),
    /// A purge or a query of the status, with its reply.
    Admin { id: u32, status: u16, body: Vec<u8> },
}

impl CompletedTask {
    /// Queues the reply to the request. Returns the tasks that follow.
    pub(super) fn complete_request(
        self,
        owner: &Owner,
        session: &mut OwnerSession,
        now: ClockReading,
    ) -> Vec<OwnerTask> {
        match self {
            Self::Lookup(lookup, hit) => owner
                .complete_lookup(session, lookup, hit, now)
                .into_iter()
                .collect(),
            Self::BatchLookup(batch, found) => {
                owner.complete_batch_lookup(session, batch, found, now)
            }
            Self::FleetLookup(lookup, value) => {
                owner.complete_fleet_lookup(session, lookup, value, now)
            }
            Self::FleetBatchLookup(batch, queried) => {
                let QueriedBatch { values, awaited } = queried;
                owner.complete_fleet_batch_lookup(session, batch, values, awaited, now)
            }
            Self::FleetBatchWait(batch, received) => {
                owner.complete_fleet_batch_wait(session, batch, received, now)
            }
            Self::Admin { id, status, body } => {
                owner.complete_admin_request(session, id, status, body);
                Vec::new()
            }
        }
    }
}

/// The tasks of a session that run. Dropping them ends those that wait for their turn; a purge
/// continues.
#[derive(Debug, Default)]
pub(super) struct SessionTasks {
    running: JoinSet<Vec<CompletedTask>>,
}

impl SessionTasks {
    /// Whether no task runs.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Waits until a task is complete, and returns its results; `None` if no task runs.
    ///
    /// # Errors
    /// The task has panicked.
    pub(super) async fn next_completed_tasks(
        &mut self,
    ) -> Option<Result<Vec<CompletedTask>, JoinError>> {
        self.running.join_next().await
    }

    /// The results of the next complete task; `None` if no task runs.
    pub(super) fn poll_completed_tasks(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Vec<CompletedTask>, JoinError>>> {
        self.running.poll_join_next(context)
    }

    /// Starts tasks of a session. Lookups are read from the store some at a time.
    pub(super) fn start_tasks(
        &mut self,
        operations: &Arc<OwnerOperations>,
        process: &OwnerClientName,
        tasks: Vec<OwnerTask>,
    ) {
        let engine = &operations.engine;
        let mut reads = Vec::new();
        for task in tasks {
            match task {
                OwnerTask::ReadStore(lookup) => reads.push((lookup, None)),
                OwnerTask::CheckEntry(lookup, hit) => reads.push((lookup, Some(hit))),
                OwnerTask::ReadStoreBatch { batch, keys, found } => {
                    let engine = Arc::clone(engine);
                    self.running.spawn(async move {
                        let found = read_store_batch(&engine, keys, found).await;
                        vec![CompletedTask::BatchLookup(batch, found)]
                    });
                }
                // each has a task of its own: a slow fleet delays no read of the store
                OwnerTask::QueryFleet(mut lookup) => {
                    let (engine, process) = (Arc::clone(engine), process.clone());
                    self.running.spawn(async move {
                        let value = match engine.fleet.get() {
                            Some(fleet) => fleet.query(&engine, &process, &mut lookup).await,
                            None => None,
                        };
                        vec![CompletedTask::FleetLookup(lookup, value)]
                    });
                }
                OwnerTask::QueryFleetBatch(batch) => {
                    let engine = Arc::clone(engine);
                    self.running.spawn(async move {
                        let queried = match engine.fleet.get() {
                            Some(fleet) => fleet.query_batch(&engine, &batch).await,
                            None => QueriedBatch::default(),
                        };
                        vec![CompletedTask::FleetBatchLookup(batch, queried)]
                    });
                }
                OwnerTask::AwaitFleetBatch(batch, awaited) => {
                    let engine = Arc::clone(engine);
                    self.running.spawn(async move {
                        let received = await_fleet_batch(&engine, &batch, awaited).await;
                        vec![CompletedTask::FleetBatchWait(batch, received)]
                    });
                }
                OwnerTask::StoreLong(store, body) => {
                    let (engine, process) = (Arc::clone(engine), process.clone());
                    self.running.spawn(async move {
                        // a refused entry has ended its lease, and no reply waits for it
                        drop(engine.store_entry(Some(process), *store, body).await);
                        Vec::new()
                    });
                }
                OwnerTask::FinishStore(stored) => engine.finish_accepted_entry(stored),
                OwnerTask::WriteEntry(key, entry) => {
                    engine.check_and_store_entry(key, entry, true, false);
                }
                OwnerTask::Purge { id, scope } => {
                    let operations = Arc::clone(operations);
                    self.running
                        .spawn(async move { vec![purge(&operations, id, scope).await] });
                }
                OwnerTask::Status { id } => {
                    let operations = Arc::clone(operations);
                    self.running.spawn(async move {
                        vec![CompletedTask::Admin {
                            id,
                            status: StatusCode::OK.as_u16(),
                            body: operations
                                .format_status(StatusReportFormat::Json)
                                .into_bytes(),
                        }]
                    });
                }
            }
        }
        let mut reads = reads.into_iter();
        loop {
            let some: Vec<_> = reads.by_ref().take(MAX_TASK_READS).collect();
            if some.is_empty() {
                return;
            }
            let engine = Arc::clone(engine);
            self.running
                .spawn(async move { read_store(&engine, some).await });
        }
    }
}

/// Reads entries from the store, and checks them and those that were found already.
async fn read_store(
    engine: &Arc<OwnerRequestExecutor>,
    lookups: Vec<(SessionLookup, Option<OwnerHit>)>,
) -> Vec<CompletedTask> {
    let look_up = |(lookup, hit): (SessionLookup, Option<OwnerHit>)| {
        let hit = hit.or_else(|| engine.owner.lookup_in_store(&lookup.key, read_clocks()));
        let mut room = INLINE_CHECK_BYTES;
        let hit = hit.and_then(|hit| checked_entry(engine, lookup.key, hit, &mut room));
        CompletedTask::Lookup(lookup, hit)
    };
    let read = || lookups.into_iter().map(look_up).collect();
    // never closed: without a result the requests end by their time
    engine.run_blocking_read(read).await.unwrap_or_default()
}

/// Reads entries of a batch lookup from the store, and checks them and those that were found
/// already.
async fn read_store_batch(
    engine: &Arc<OwnerRequestExecutor>,
    keys: Vec<CacheKey>,
    mut found: Vec<(CacheKey, OwnerHit)>,
) -> Vec<(CacheKey, OwnerHit)> {
    let owner = &engine.owner;
    let look_up = |key| Some((key, owner.lookup_in_store(&key, read_clocks())?));
    let read = || {
        found.extend(keys.into_iter().filter_map(look_up));
        let mut room = INLINE_CHECK_BYTES;
        let checked = found
            .into_iter()
            .filter_map(|(key, hit)| Some((key, checked_entry(engine, key, hit, &mut room)?)));
        checked.collect()
    };
    engine.run_blocking_read(read).await.unwrap_or_default()
}

/// Waits while other machines fetch the keys for which a batch waits. Returns the entries that this
/// machine has received, and takes the leases of the calls that the process fetches then.
async fn await_fleet_batch(
    engine: &Arc<OwnerRequestExecutor>,
    fleet_lookup: &FleetBatchLookup,
    awaited: Vec<CacheKey>,
) -> Vec<(CacheKey, OwnerHit)> {
    let Some(fleet) = engine.fleet.get() else {
        return Vec::new();
    };
    fleet.await_values(&fleet_lookup.batch, &awaited).await;
    let mut received = Vec::new();
    let mut room = INLINE_CHECK_BYTES;
    for key in awaited {
        // a received value is in memory, unless it was evicted
        let found = engine.owner.lookup_without_disk_wait(&key, read_clocks());
        if let OwnerMemoryLookupResult::Found(hit) = found {
            received.extend(checked_entry(engine, key, hit, &mut room).map(|hit| (key, hit)));
        }
    }
    fleet
        .take_free_leases(fleet_lookup.missing_calls(&received))
        .await;
    received
}

/// Returns the form of a found entry that may be sent, if any. Its write to the store has begun.
fn checked_entry(
    engine: &Arc<OwnerRequestExecutor>,
    key: CacheKey,
    hit: OwnerHit,
    room: &mut u64,
) -> Option<OwnerHit> {
    let hit = engine.sendable_entry(key, hit, room)?;
    Some(OwnerHit {
        is_to_be_stored: false,
        ..hit
    })
}

/// Purges the entries in the scope of a JSON object.
async fn purge(operations: &OwnerOperations, id: u32, scope: MessageBody) -> CompletedTask {
    let purged = match scope.into_joined_bytes() {
        Some(scope) if scope.len() <= MAX_PURGE_BYTES => operations.purge_by_json(&scope).await,
        Some(_) => Err(ProblemDetails::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {MAX_PURGE_BYTES} bytes"),
        )),
        None => Err(ProblemDetails::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "out of memory; repeat the request",
        )),
    };
    let (status, body) = match purged {
        Ok((purged, fleet)) => {
            let report = response::purge_report_json(purged, fleet.as_ref());
            (StatusCode::OK, report)
        }
        Err(problem) => (problem.status, response::problem_details_json(&problem)),
    };
    CompletedTask::Admin {
        id,
        status: status.as_u16(),
        body: body.into_bytes(),
    }
}
