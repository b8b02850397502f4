//! The engine: the owner's rules with threads for the calls that wait for a disk.
//!
//! A call that memory or the page cache can serve runs on the thread that serves the connection.
//! A call that may wait for a disk must not delay other requests. A read of the disk runs in
//! place, while another thread takes over the connections: that costs 19 to 30 us of CPU per
//! lookup, a hand-off to a pool 30 to 114 us. Writes run on a pool. Both are limited, so that a
//! disk that hangs leaves threads for requests that do not need it.
//!
//! The engine knows nothing of HTTP, which is the concern of the service.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::owner::processes::{OwnerClientName, OwnerSessionId};
use sszip_core::cache::owner::session_tasks::StoredSessionEntry;
use sszip_core::cache::owner::state::{EntryRejection, OwnerHit, OwnerMemoryLookupResult};
use sszip_core::cache::owner::Owner;
use sszip_core::cache::owner_protocol::process_message::StoreRequest;
use sszip_core::cache::resource::other_format_key;
use sszip_core::cache::store::StoreWriteRejection;
use sszip_core::cache::{CacheKey, CacheNamespace};
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{block_in_place, spawn_blocking};

use crate::clock::read_clocks;
use crate::deadline_alarm::DeadlineAlarm;
use crate::event_waker::EventWaker;
use crate::fleet::tier::FleetTier;
use crate::follow::chain::FollowedChain;
use crate::recompressor::Recompressor;

/// Maximum number of concurrent reads of the store.
pub const MAX_READS: usize = 16;

/// Maximum number of concurrent writes of the store: entries, purges, flushes.
pub const MAX_WRITES: usize = 16;

/// Maximum number of concurrent queries to nodes for entries that may be final.
const MAX_NODE_QUERIES: usize = 32;

/// Maximum number of entries in the queue to the store. Further entries are not stored for now.
const MAX_PENDING_STORES: usize = 256;

/// Total decompressed bytes of
/// [unchecked](sszip_core::cache::owner::memory_tier::OwnerMemoryEntry::length_if_unchecked) entries
/// that are read strictly while a request waits; other entries are sent for the client to read, and
/// read here in the background.
pub(crate) const INLINE_CHECK_BYTES: u64 = 256 << 10;

/// The engine of an owner, shared by all connections: it runs lookups, writes and purges within
/// limits of concurrent disk accesses, and wakes the clients that wait.
pub struct OwnerRequestExecutor {
    /// The rules of the owner.
    pub owner: Arc<Owner>,
    reads: Semaphore,
    writes: Semaphore,
    pub(crate) storing: Arc<Semaphore>,
    pub(crate) node_queries: Arc<Semaphore>,
    /// Recompresses entries on their way to the disk, if configured.
    pub(crate) coder: Option<Recompressor>,
    /// The followed chains.
    pub chains: Vec<Arc<FollowedChain>>,
    /// The fleet, if the owner has one.
    pub(crate) fleet: OnceLock<Arc<FleetTier>>,
    /// The wakers of the sessions.
    pub(crate) wakers: Mutex<HashMap<OwnerSessionId, Arc<EventWaker>>>,
    /// Notified when purges may be complete.
    settled: Notify,
    /// The alarm of the timer task.
    pub(crate) alarm: DeadlineAlarm,
    /// Whether the sessions are to end.
    stopping: AtomicBool,
}

/// The result of a purge that is in effect in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedPurge {
    /// Generation of the purge.
    pub generation: u64,
    /// Number of removed entries, as far as they were counted.
    pub entries: u64,
}

/// The reason why the engine could not execute a call: the store failed, or a task panicked.
#[derive(Debug, thiserror::Error)]
pub enum OwnerExecutionError {
    /// The store has failed.
    #[error("{0}")]
    Disk(#[from] StoreWriteRejection),
    /// A task of the owner has panicked.
    #[error("{0}")]
    Broken(#[from] tokio::task::JoinError),
    /// A semaphore was closed, which never happens.
    #[error("{0}")]
    Closed(#[from] tokio::sync::AcquireError),
}

impl OwnerRequestExecutor {
    /// Creates the engine of an owner, with the chains that the owner follows.
    pub fn new(
        owner: Arc<Owner>,
        chains: Vec<Arc<FollowedChain>>,
        coder: Option<Recompressor>,
    ) -> Self {
        Self {
            owner,
            reads: Semaphore::new(MAX_READS),
            writes: Semaphore::new(MAX_WRITES),
            storing: Arc::new(Semaphore::new(MAX_PENDING_STORES)),
            node_queries: Arc::new(Semaphore::new(MAX_NODE_QUERIES)),
            coder,
            chains,
            fleet: OnceLock::new(),
            wakers: Mutex::default(),
            settled: Notify::new(),
            alarm: DeadlineAlarm::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Returns the generation of the newest purge.
    pub fn purge_generation(&self) -> u64 {
        self.owner.owner_store().purge_generation()
    }

    /// Looks a key up.
    ///
    /// # Errors
    /// [`OwnerExecutionError`].
    pub async fn lookup(
        self: &Arc<Self>,
        key: CacheKey,
    ) -> Result<Option<OwnerHit>, OwnerExecutionError> {
        let found = match self.owner.lookup_without_disk_wait(&key, read_clocks()) {
            OwnerMemoryLookupResult::Found(found) => Some(found),
            OwnerMemoryLookupResult::Missing => None,
            OwnerMemoryLookupResult::QueryStore => {
                self.run_blocking_read(|| self.owner.lookup_in_store(&key, read_clocks()))
                    .await?
            }
        };
        let mut room = INLINE_CHECK_BYTES;
        Ok(found.and_then(|found| self.sendable_entry(key, found, &mut room)))
    }

    /// Runs a read of the store, which may wait for the disk, within the limit of concurrent reads.
    pub(crate) async fn run_blocking_read<T>(
        &self,
        work: impl FnOnce() -> T,
    ) -> Result<T, OwnerExecutionError> {
        let _permit = self.reads.acquire().await?;
        Ok(block_in_place(work))
    }

    /// Runs a write of the store, which may wait for the disk, within the limit of concurrent
    /// writes.
    pub(crate) async fn run_blocking_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Owner) -> T + Send + 'static,
    ) -> Result<T, OwnerExecutionError> {
        let _permit = self.writes.acquire().await?;
        let owner = Arc::clone(&self.owner);
        Ok(spawn_blocking(move || work(&owner)).await?)
    }

    /// Runs a write of the store that may fail, such as a purge, within the limit of concurrent
    /// writes.
    ///
    /// # Errors
    /// [`OwnerExecutionError`].
    pub async fn try_store_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Owner) -> Result<T, StoreWriteRejection> + Send + 'static,
    ) -> Result<T, OwnerExecutionError> {
        Ok(self.run_blocking_write(work).await??)
    }

    /// Stores an entry, whose `body` is opaque, in the owner's memory or store, or returns the reason
    /// why it is not accepted. Ends the lease of the process that has fetched it.
    ///
    /// # Errors
    /// [`OwnerExecutionError`].
    pub async fn store_entry(
        self: &Arc<Self>,
        process: Option<OwnerClientName>,
        store: StoreRequest,
        body: Vec<u8>,
    ) -> Result<Result<(), EntryRejection>, OwnerExecutionError> {
        let has_room = self.owner.memory_fits_entry(body.len());
        let store = move |owner: &Owner| {
            owner.store_fetched_entry(process.as_ref(), store, body, read_clocks())
        };
        let stored = match has_room {
            true => store(&self.owner),
            false => self.run_blocking_write(store).await?,
        };
        self.wake_sessions();
        Ok(stored.map(|stored| self.finish_accepted_entry(stored)))
    }

    /// Continues with an entry that was accepted: its chain, its finality, its write to the store.
    pub(crate) fn finish_accepted_entry(self: &Arc<Self>, stored: StoredSessionEntry) {
        let StoredSessionEntry {
            key,
            entry,
            age,
            if_final,
            is_to_be_stored,
        } = stored;
        self.wake_lagging_chain_follower(&entry.entry_store_attributes().namespace);
        if let Some(if_final) = if_final {
            self.upgrade_if_final(key, Arc::clone(&entry), if_final);
        }
        let fleet = self.fleet.get();
        let is_to_be_shared = fleet.is_some_and(|fleet| fleet.record_fill(&key, &entry, age));
        if is_to_be_stored || is_to_be_shared {
            self.check_and_store_entry(key, entry, is_to_be_stored, is_to_be_shared);
        }
    }

    /// Purges entries. Returns when no process can send any of them; the purge continues if the
    /// caller stops waiting.
    ///
    /// # Errors
    /// [`OwnerExecutionError`]: the purge must be repeated.
    pub async fn purge_entries(
        self: &Arc<Self>,
        scope: PurgeScope,
    ) -> Result<CompletedPurge, OwnerExecutionError> {
        let engine = Arc::clone(self);
        tokio::spawn(async move { engine.purge_to_completion(scope).await }).await?
    }

    async fn purge_to_completion(
        &self,
        scope: PurgeScope,
    ) -> Result<CompletedPurge, OwnerExecutionError> {
        // entries of other scopes are not counted on the disk, which would have to be searched
        let stored = match scope {
            PurgeScope::Key(key) => {
                let has = |owner: &Owner, key: &CacheKey| {
                    owner.owner_store().read_entry(key, read_clocks()).is_some()
                };
                let count = move |owner: &Owner| {
                    let forms = [key, other_format_key(&key)];
                    forms.iter().filter(|key| has(owner, key)).count() as u64
                };
                self.run_blocking_write(count).await?
            }
            _ => 0,
        };
        let (purged, swept) = (scope.clone(), scope.clone());
        // first: a process that knows of the purge compares nothing with the old identity
        self.owner.clear_chain_identities(&scope);
        let generation = self
            .try_store_write(move |owner| owner.purge_entries(&scope, read_clocks))
            .await?;
        for chain in &self.chains {
            chain.mark_chain_record_purged(&purged);
        }
        self.wake_sessions();
        self.process_due_leases_and_purges();
        self.alarm.wake();
        // the purge is in effect already: this frees memory
        let sweep = move |owner: &Owner| owner.remove_purged_from_memory(&swept, generation);
        let swept = self.run_blocking_write(sweep).await?;
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            // enabled first: a notification between the two is not missed
            settled.as_mut().enable();
            if !self.owner.is_purge_incomplete(generation) {
                return Ok(CompletedPurge {
                    generation,
                    entries: swept.max(stored),
                });
            }
            settled.await;
        }
    }

    /// Wakes the follower of a chain if an entry has shown a head that the follower has not seen.
    fn wake_lagging_chain_follower(&self, namespace: &CacheNamespace) {
        let Some(chain) = self.find_followed_chain(namespace) else {
            return;
        };
        if self.owner.highest_head_of_chain(namespace) > chain.follow_status().head {
            chain.news.notify_one();
        }
    }

    pub(crate) fn find_followed_chain(
        &self,
        namespace: &CacheNamespace,
    ) -> Option<&Arc<FollowedChain>> {
        let mut chains = self.chains.iter();
        chains.find(|chain| chain.namespace == *namespace)
    }

    /// Ends the sessions, which have no end of their own.
    pub fn end_sessions(&self) {
        self.stopping.store(true, Ordering::Release);
        for waker in lock_ignoring_poison(&self.wakers).values() {
            waker.wake();
        }
    }

    /// Whether [`end_sessions`](Self::end_sessions) was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Wakes the sessions that have new events.
    pub(crate) fn wake_sessions(&self) {
        let woken = self.owner.take_notified_sessions();
        if woken.is_empty() {
            return;
        }
        let wakers = lock_ignoring_poison(&self.wakers);
        let wakers = woken.iter().filter_map(|session| wakers.get(session));
        wakers.for_each(|waker| waker.wake());
    }

    /// Expires leases and completes purges that are due, and wakes the tasks that wait for them.
    pub(crate) fn process_due_leases_and_purges(&self) {
        if !self
            .owner
            .end_leases_and_complete_purges(read_clocks())
            .is_empty()
        {
            self.settled.notify_waiters();
        }
        self.wake_sessions();
    }
}
