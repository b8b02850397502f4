//! The messages of a process, and the tasks that they need.
//!
//! A message is handled at once if that takes no disk, no other process and little CPU. Otherwise it
//! returns an [`OwnerTask`], which the server runs and completes.

use std::sync::Arc;

use super::memory_tier::OwnerMemoryEntry;
use super::processes::OwnerClientName;
use super::session::OwnerSession;
use super::state::{EntryRejection, Owner, OwnerHit};
use crate::cache::clock::ClockReading;
use crate::cache::freshness::FinalityUpgrade;
use crate::cache::owner_protocol::body_assembler::AssemblyProgress;
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::owner_message::LeaseReply;
use crate::cache::owner_protocol::process_message::{ProcessMessage, StoreRequest};
use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;

/// Maximum number of requests of a session that wait for tasks. A process has fewer lookups in
/// flight.
const MAX_OPEN_TASKS: usize = 1_024;

/// Maximum duration of a lease in milliseconds.
const MAX_LEASE_MS: u64 = 60_000;

/// The reason why the owner closes a session: its process does not follow the protocol, or ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// The process has ended the session.
    #[error("the process has ended the session")]
    Goodbye,
    /// The process has requested a session within a session.
    #[error("a session is open already")]
    SecondHello,
    /// The process has acknowledged an event or a purge that does not exist.
    #[error("the acknowledged event does not exist")]
    UnknownEvent,
    /// The process has too many requests in flight.
    #[error("too many requests are in flight")]
    TooManyRequests,
    /// A body has more bytes than its message has declared.
    #[error("a body is longer than declared")]
    ExcessBody,
}

/// The time for which a process waits for the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetWait {
    milliseconds: u16,
    /// Start of the time, in monotonic milliseconds.
    since: u64,
}

impl FleetWait {
    /// Creates a time that starts now; with 0 milliseconds the fleet is not queried.
    pub fn new(milliseconds: u16, now: ClockReading) -> Self {
        Self {
            milliseconds,
            since: now.monotonic,
        }
    }

    /// Milliseconds that are left.
    pub fn remaining_ms(&self, now: ClockReading) -> u16 {
        let elapsed = now.monotonic.saturating_sub(self.since);
        let elapsed = u16::try_from(elapsed).unwrap_or(u16::MAX);
        self.milliseconds.saturating_sub(elapsed)
    }
}

/// A lookup for which the fleet is queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetLookup {
    /// The lookup.
    pub lookup: SessionLookup,
    /// The decision about the lease: granted, or none was requested; pending while the owner waits
    /// for another machine.
    pub(super) lease: LeaseReply,
}

impl FleetLookup {
    /// Whether the process has the lease of the key.
    pub fn has_lease(&self) -> bool {
        self.lease == LeaseReply::Granted
    }
}

/// A call of a batch whose response may be shared between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShareableCall {
    /// Key of the entry.
    pub key: CacheKey,
    /// [Kind](crate::cache::owner_protocol::call_kind) of the call.
    pub call_kind: u32,
}

/// A batch lookup for which the fleet is queried.
#[derive(Debug)]
pub struct FleetBatchLookup {
    /// The lookup.
    pub batch: SessionBatchLookup,
    /// The calls whose entries the machine does not have and other machines may have.
    pub calls: Vec<ShareableCall>,
    /// Entries that were found on the machine or in the fleet.
    pub(super) found: Vec<(CacheKey, OwnerHit)>,
}

impl FleetBatchLookup {
    /// Returns the calls that still have no entry when these entries are found as well.
    pub fn missing_calls(&self, others: &[(CacheKey, OwnerHit)]) -> Vec<ShareableCall> {
        let is_missing = |call: &&ShareableCall| {
            let mut found = self.found.iter().chain(others);
            !found.any(|(key, _)| *key == call.key)
        };
        self.calls.iter().filter(is_missing).copied().collect()
    }
}

/// A lookup whose reply needs a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLookup {
    /// Number of the lookup.
    pub id: u32,
    /// Key of the entry.
    pub key: CacheKey,
    /// Maximum duration of the requested lease in milliseconds; `None`: no lease is requested.
    pub lease: Option<u64>,
    /// Generation of the newest purge before the lookup.
    pub generation: u64,
    /// Time for which the process waits for the fleet.
    pub fleet_wait: FleetWait,
    /// [Kind](crate::cache::owner_protocol::call_kind) of the call.
    pub call_kind: u32,
}

/// A batch lookup whose reply needs a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionBatchLookup {
    /// Number of the lookup.
    pub id: u32,
    /// Generation of the newest purge before the lookup.
    pub generation: u64,
    /// The calls whose entries other machines may have.
    pub shareable: Vec<ShareableCall>,
    /// Time for which the process waits for the fleet.
    pub fleet_wait: FleetWait,
    /// Further milliseconds for which it waits while other machines fetch; 0: it does not.
    pub lease_wait_ms: u32,
}

/// Work on a message that may wait for a disk or another process, or takes much CPU. The server runs
/// it on another thread.
#[derive(Debug)]
pub enum OwnerTask {
    /// Read an entry from the store ([`Owner::lookup_in_store`]), then call
    /// [`Owner::complete_lookup`].
    ReadStore(SessionLookup),
    /// Read a long unchecked entry strictly ([`Owner::check_entry_strictly`]), then call
    /// [`Owner::complete_lookup`].
    CheckEntry(SessionLookup, OwnerHit),
    /// Read entries from the store and check the unchecked ones of `found`, then call
    /// [`Owner::complete_batch_lookup`].
    ReadStoreBatch {
        /// The lookup.
        batch: SessionBatchLookup,
        /// Keys that the store may have.
        keys: Vec<CacheKey>,
        /// Entries that were found in memory.
        found: Vec<(CacheKey, OwnerHit)>,
    },
    /// Query the fleet for an entry, then call [`Owner::complete_fleet_lookup`].
    QueryFleet(FleetLookup),
    /// Query the fleet for entries, then call [`Owner::complete_fleet_batch_lookup`].
    QueryFleetBatch(FleetBatchLookup),
    /// Wait until other machines have fetched these keys, then call
    /// [`Owner::complete_fleet_batch_wait`].
    AwaitFleetBatch(FleetBatchLookup, Vec<CacheKey>),
    /// Store an entry for which memory has no room ([`Owner::store_fetched_entry`]).
    StoreLong(Box<StoreRequest>, Vec<u8>),
    /// Continue with an entry that was stored in memory.
    FinishStore(StoredSessionEntry),
    /// Write an entry to the store in the background ([`Owner::write_to_store`]).
    WriteEntry(CacheKey, Arc<OwnerMemoryEntry>),
    /// Purge entries by a JSON object, then call [`Owner::complete_admin_request`].
    Purge {
        /// Number of the request.
        id: u32,
        /// JSON object with the scope.
        scope: MessageBody,
    },
    /// Report the status, then call [`Owner::complete_admin_request`].
    Status {
        /// Number of the request.
        id: u32,
    },
}

/// An entry that a process has stored in the owner's memory.
#[derive(Debug)]
pub struct StoredSessionEntry {
    /// Key of the entry.
    pub key: CacheKey,
    /// The entry.
    pub entry: Arc<OwnerMemoryEntry>,
    /// Milliseconds since the request was sent to the node.
    pub age: u64,
    /// Conditions under which the entry may be made immutable.
    pub if_final: Option<FinalityUpgrade>,
    /// Whether the entry has to be written to the store.
    pub is_to_be_stored: bool,
}

impl Owner {
    /// Handles a message of a process. Replies that are known now are in the session's output.
    /// Returns the tasks that the message needs. Other sessions may have new events afterwards
    /// ([`take_notified_sessions`](Self::take_notified_sessions)), and purges may be complete.
    ///
    /// # Errors
    /// [`SessionEnd`]: the session has to be [closed](Self::close_session).
    pub fn receive_message(
        &self,
        session: &mut OwnerSession,
        message: ProcessMessage,
        now: ClockReading,
    ) -> Result<Vec<OwnerTask>, SessionEnd> {
        // before a lookup claims the write of an entry that it finds
        if session.open_tasks >= MAX_OPEN_TASKS {
            return Err(SessionEnd::TooManyRequests);
        }
        match message {
            ProcessMessage::Hello(_) => return Err(SessionEnd::SecondHello),
            ProcessMessage::Goodbye => return Err(SessionEnd::Goodbye),
            ProcessMessage::Lookup {
                id,
                key,
                lease,
                fleet_wait,
                call_kind,
            } => {
                let lookup = SessionLookup {
                    id,
                    key,
                    lease: lease.map(|lease| u64::from(lease).min(MAX_LEASE_MS)),
                    generation: self.owner_store.purge_generation(),
                    fleet_wait: FleetWait::new(fleet_wait, now),
                    call_kind,
                };
                return Ok(self.start_lookup(session, lookup, now));
            }
            ProcessMessage::BatchLookup {
                id,
                keys,
                call_kinds,
                fleet_wait,
                lease_wait,
            } => {
                let batch = SessionBatchLookup {
                    id,
                    generation: self.owner_store.purge_generation(),
                    shareable: self.shareable_batch_calls(&keys, &call_kinds, fleet_wait, now),
                    fleet_wait: FleetWait::new(fleet_wait, now),
                    lease_wait_ms: lease_wait,
                };
                return Ok(self.start_batch_lookup(session, batch, keys, now));
            }
            ProcessMessage::Store(store) => return self.receive_entry(session, *store, now),
            ProcessMessage::Chunk { id, bytes } => {
                let progress = session.stores.append_chunk(id, &bytes);
                return self.receive_entry_part(session, progress, now);
            }
            ProcessMessage::Release(key) => self.release_session_lease(session, &key, now),
            ProcessMessage::ShowBlock {
                namespace,
                sighting,
            } => self.record_shown_block(&namespace, sighting),
            ProcessMessage::Applied { event, generation } => {
                self.acknowledge_session(session, event, generation)?;
            }
            ProcessMessage::Purge { id, scope } => {
                return Ok(open_task(session, OwnerTask::Purge { id, scope }));
            }
            ProcessMessage::Status { id } => {
                return Ok(open_task(session, OwnerTask::Status { id }));
            }
        }
        Ok(Vec::new())
    }

    /// Returns the first calls of a batch, whose responses may be shared between machines; none if
    /// the fleet can't be queried now, or memory is refused.
    fn shareable_batch_calls(
        &self,
        keys: &[CacheKey],
        call_kinds: &[u32],
        fleet_wait: u16,
        now: ClockReading,
    ) -> Vec<ShareableCall> {
        let mut calls = Vec::new();
        if self.permits_fleet_lookup(fleet_wait, now)
            && calls.try_reserve_exact(call_kinds.len()).is_ok()
        {
            let call = |(key, call_kind): (&CacheKey, &u32)| ShareableCall {
                key: *key,
                call_kind: *call_kind,
            };
            calls.extend(keys.iter().zip(call_kinds).map(call));
        }
        calls
    }

    /// Records that the events up to `event`, and the purges up to `generation`, are in effect in
    /// the process of a session.
    fn acknowledge_session(
        &self,
        session: &mut OwnerSession,
        event: u64,
        generation: u64,
    ) -> Result<(), SessionEnd> {
        self.acknowledge_session_events(session, event)?;
        lock_ignoring_poison(&self.shared)
            .processes
            .acknowledge_purges(session.process(), generation)
            .map_err(|_| SessionEnd::UnknownEvent)
    }

    /// Records that the events up to `event`, the purges among them, are in effect in the process of
    /// a session. Purges may be complete afterwards.
    ///
    /// # Errors
    /// [`SessionEnd::UnknownEvent`].
    pub fn acknowledge_session_events(
        &self,
        session: &mut OwnerSession,
        event: u64,
    ) -> Result<(), SessionEnd> {
        let is_known = lock_ignoring_poison(&self.shared)
            .processes
            .acknowledge_session_events(session.id(), event);
        if !is_known {
            return Err(SessionEnd::UnknownEvent);
        }
        session.remove_late_replies(event);
        Ok(())
    }

    /// Ends a lease of a session. A session that was closed or replaced has none: the lease may be
    /// the new session's.
    fn release_session_lease(&self, session: &OwnerSession, key: &CacheKey, now: ClockReading) {
        let is_open = lock_ignoring_poison(&self.shared)
            .processes
            .is_session_open(session.id());
        if is_open {
            self.release_lease(key, session.process(), now);
        }
    }

    /// Completes the task of a purge or a query of the status.
    pub fn complete_admin_request(
        &self,
        session: &mut OwnerSession,
        id: u32,
        status: u16,
        body: Vec<u8>,
    ) {
        session.open_tasks = session.open_tasks.saturating_sub(1);
        session.queue_admin_reply(id, status, body);
        self.number_late_replies(session);
    }

    /// Begins to receive an entry, and stores it if it is complete.
    fn receive_entry(
        &self,
        session: &mut OwnerSession,
        mut store: StoreRequest,
        now: ClockReading,
    ) -> Result<Vec<OwnerTask>, SessionEnd> {
        let (id, total) = (store.id, store.total);
        let first_part = std::mem::take(&mut store.entry);
        let mut dropped = Vec::new();
        let progress = session
            .stores
            .begin_body(id, store, first_part, total, |store| {
                dropped.push(store.key);
            });
        for key in dropped {
            self.release_lease(&key, session.process(), now);
        }
        self.receive_entry_part(session, progress, now)
    }

    fn receive_entry_part(
        &self,
        session: &mut OwnerSession,
        progress: AssemblyProgress<StoreRequest>,
        now: ClockReading,
    ) -> Result<Vec<OwnerTask>, SessionEnd> {
        match progress {
            AssemblyProgress::Incomplete | AssemblyProgress::Unknown => Ok(Vec::new()),
            AssemblyProgress::Excess(_) => Err(SessionEnd::ExcessBody),
            AssemblyProgress::Dropped(store) => {
                self.release_lease(&store.key, session.process(), now);
                Ok(Vec::new())
            }
            AssemblyProgress::Complete(store, body) if self.memory_fits_entry(body.len()) => {
                let stored = self.store_fetched_entry(Some(session.process()), store, body, now);
                Ok(stored.into_iter().map(OwnerTask::FinishStore).collect())
            }
            // no reply waits for it: it is no open task
            AssemblyProgress::Complete(store, body) => {
                Ok(vec![OwnerTask::StoreLong(Box::new(store), body)])
            }
        }
    }

    /// Stores an entry, whose `body` is opaque, and ends the lease of the process that has fetched
    /// it; the bytes in `store` are ignored. May wait for a disk if memory [has no
    /// room](Self::memory_fits_entry) for the entry.
    ///
    /// # Errors
    /// [`EntryRejection`]. The lease of the process ends nevertheless.
    pub fn store_fetched_entry(
        &self,
        process: Option<&OwnerClientName>,
        store: StoreRequest,
        body: Vec<u8>,
        now: ClockReading,
    ) -> Result<StoredSessionEntry, EntryRejection> {
        let has_room = self.memory_fits_entry(body.len());
        let entry = self.new_memory_entry(store.about, body, store.fresh, now);
        let entry = entry
            .with_age(store.age)
            .mark_shareability(store.is_shareable)
            .attach_block_anchor(store.anchor);
        let mut entry = Arc::new(entry);
        if !has_room && entry.length_if_unchecked().is_some() {
            // it is sent from the disk each time, and no request waits now
            entry = self
                .check_entry_strictly(&store.key, &entry)
                .unwrap_or(entry);
        }
        let is_to_be_stored = self.put_fetched_entry(&store.key, &entry, process, now)?;
        Ok(StoredSessionEntry {
            key: store.key,
            entry,
            age: store.age,
            if_final: store.if_final,
            is_to_be_stored,
        })
    }
}

/// Returns a task whose completion replies to a request.
pub(super) fn open_task(session: &mut OwnerSession, task: OwnerTask) -> Vec<OwnerTask> {
    session.open_tasks += 1;
    vec![task]
}
