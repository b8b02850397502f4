//! An owner in the same process that replies on a thread of its own, after any delay, or within the
//! call.

use sszip_core::hash_keys::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use sszip_core::cache::chain::NamespaceChains;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::entry::wire::{decode_cache_entry, EncodedEntry};
use sszip_core::cache::entry::CacheEntry;
use sszip_core::cache::freshness::BlockAnchor;
use sszip_core::cache::process::flights::{CoalescedFlights, FlightLeadership, FlightOutcome};
use sszip_core::cache::process::owner_client::{
    BatchLookupOptions, OwnerAdminReply, OwnerClient, OwnerLookup, OwnerLookupOptions,
    OwnerStoreOptions,
};
use sszip_core::cache::process::wake::WaitingRequestId;
use sszip_core::cache::process::ProcessCacheState;
use sszip_core::cache::CacheKey;

/// The client of an owner that is a thread of the test.
#[derive(Debug)]
pub struct InProcessOwner {
    queries: Mutex<Option<Sender<OwnerQuery>>>,
    /// Entries that look-ups of several keys have found.
    found: Mutex<HashMap<WaitingRequestId, (u64, Entries)>>,
    stored: Mutex<HashMap<CacheKey, StoredEntry>>,
    /// Anchors of the entries, in the order of their storage.
    pub anchors: Mutex<Vec<Option<BlockAnchor>>>,
    purge_generation: AtomicU64,
    followed_chains: NamespaceChains,
    /// The process, if lookups are answered within the call.
    direct: Option<Weak<ProcessCacheState>>,
}

/// The entries that a lookup of several keys found.
type Entries = Vec<(CacheKey, Arc<CacheEntry>)>;

/// A request to the owner's thread.
#[derive(Debug)]
enum OwnerQuery {
    Lookup(CacheKey, FlightLeadership, bool, u64),
    BatchLookup(Vec<CacheKey>, WaitingRequestId, u64),
    Store(CacheKey, Arc<CacheEntry>, u64),
    /// The sender receives a message when the purge is in effect.
    Purge(Sender<()>),
}

/// The manner in which an owner replies to lookups of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerReplies {
    /// The owner's thread replies later.
    Later,
    /// The owner replies within the call.
    Direct,
}

/// The owner's thread with its client; it ends when this is dropped.
pub struct OwnerThread {
    pub owned: Arc<InProcessOwner>,
    thread: Option<JoinHandle<()>>,
}

impl OwnerThread {
    pub fn start(shared: &Arc<ProcessCacheState>, replies: OwnerReplies) -> Self {
        let (queries, receiver) = channel();
        let is_direct = replies == OwnerReplies::Direct;
        let owned = Arc::new(InProcessOwner {
            queries: Mutex::new(Some(queries)),
            found: Mutex::default(),
            stored: Mutex::default(),
            anchors: Mutex::default(),
            purge_generation: AtomicU64::new(1),
            followed_chains: NamespaceChains::default(),
            direct: is_direct.then(|| Arc::downgrade(shared)),
        });
        shared.set_owner_client(owned.clone());
        let (owner, shared) = (Arc::clone(&owned), Arc::downgrade(shared));
        let thread = std::thread::spawn(move || owner.serve_queries(&receiver, &shared));
        Self {
            owned,
            thread: Some(thread),
        }
    }
}

impl Drop for OwnerThread {
    fn drop(&mut self) {
        self.owned.queries.lock().unwrap().take();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// An entry in the owner's store: its bytes, its expiry time and the time of its storage.
#[derive(Debug)]
struct StoredEntry {
    bytes: Vec<u8>,
    expires_at: u64,
    requested_at: u64,
}

impl StoredEntry {
    fn decode_if_fresh(&self, now: u64) -> Option<CacheEntry> {
        let fresh = self
            .expires_at
            .checked_sub(now)
            .filter(|fresh| *fresh > 0)?;
        decode_cache_entry(
            &self.bytes,
            now,
            now.saturating_sub(self.requested_at),
            fresh,
        )
    }
}

impl InProcessOwner {
    fn send_query(&self, query: OwnerQuery) -> Result<(), OwnerQuery> {
        match &*self.queries.lock().unwrap() {
            Some(queries) => queries.send(query).map_err(|error| error.0),
            None => Err(query),
        }
    }

    /// Removes all entries, and returns when the purge is in effect.
    pub fn purge_at_owner(&self) {
        let (done, holds) = channel();
        self.send_query(OwnerQuery::Purge(done)).unwrap();
        holds.recv().unwrap();
    }

    fn serve_queries(&self, receiver: &Receiver<OwnerQuery>, shared: &Weak<ProcessCacheState>) {
        for query in receiver {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let mut stored = self.stored.lock().unwrap();
            match query {
                OwnerQuery::Lookup(key, token, leases, now) => match find(&stored, &key, now) {
                    Some(entry) => {
                        insert_into_hot_tier(&shared, key, &entry);
                        shared.finish_flight_and_wake(token, FlightOutcome::Answer(entry));
                    }
                    None if leases => shared.hand_over_flight(token),
                    None => shared.finish_flight_and_wake(token, FlightOutcome::NotShareable),
                },
                OwnerQuery::BatchLookup(keys, waiter, now) => {
                    let entries = keys.iter().filter_map(|key| {
                        let entry = find(&stored, key, now)?;
                        insert_into_hot_tier(&shared, *key, &entry);
                        Some((*key, entry))
                    });
                    let found = (self.purge_generation(), entries.collect());
                    self.found.lock().unwrap().insert(waiter, found);
                    shared.wake_waiters([waiter]);
                }
                OwnerQuery::Store(key, entry, generation) => {
                    let is_current = generation == self.purge_generation();
                    if let (Some(encoded), true) = (EncodedEntry::from_entry(&entry), is_current) {
                        let meta = entry.response_metadata();
                        let bytes = [&encoded.head[..], &encoded.payload].concat();
                        let (expires_at, requested_at) = (meta.expires_at, meta.requested_at);
                        stored.insert(
                            key,
                            StoredEntry {
                                bytes,
                                expires_at,
                                requested_at,
                            },
                        );
                    }
                }
                OwnerQuery::Purge(done) => {
                    stored.clear();
                    self.purge_generation.fetch_add(1, Ordering::AcqRel);
                    shared.purge_hot_tier(None);
                    done.send(()).unwrap();
                }
            }
        }
    }
}

fn find(
    stored: &HashMap<CacheKey, StoredEntry>,
    key: &CacheKey,
    now: u64,
) -> Option<Arc<CacheEntry>> {
    stored.get(key)?.decode_if_fresh(now).map(Arc::new)
}

fn insert_into_hot_tier(shared: &ProcessCacheState, key: CacheKey, entry: &Arc<CacheEntry>) {
    if let Some(hot) = shared.hot_tier() {
        hot.insert(key, Arc::clone(entry));
    }
}

impl OwnerClient for InProcessOwner {
    fn is_owner_reachable(&self) -> bool {
        true
    }

    fn lookup_at_owner(
        &self,
        flights: &CoalescedFlights,
        token: FlightLeadership,
        waiter: WaitingRequestId,
        options: OwnerLookupOptions,
        now: u64,
    ) -> OwnerLookup {
        let key = *token.flight_key();
        if let Some(shared) = self.direct.as_ref().and_then(Weak::upgrade) {
            // purges come into effect under this lock
            let stored = self.stored.lock().unwrap();
            if let Some(entry) = find(&stored, &key, now) {
                insert_into_hot_tier(&shared, key, &entry);
                let outcome = FlightOutcome::Answer(Arc::clone(&entry));
                shared.finish_flight_and_wake(token, outcome);
                return OwnerLookup::Found(entry);
            }
            // other lookups need the owner's thread
            if !key[0].is_multiple_of(2) {
                return OwnerLookup::Missing(token);
            }
        }
        flights.follow_own_flight(&token, waiter).unwrap();
        match self.send_query(OwnerQuery::Lookup(key, token, options.leases, now)) {
            Err(OwnerQuery::Lookup(_, token, ..)) => {
                drop(flights.remove_follower(&key, waiter));
                OwnerLookup::Missing(token)
            }
            _ => OwnerLookup::Pending,
        }
    }

    fn lookup_batch_at_owner(
        &self,
        keys: Vec<CacheKey>,
        _: BatchLookupOptions,
        waiter: WaitingRequestId,
        now: u64,
    ) -> bool {
        self.send_query(OwnerQuery::BatchLookup(keys, waiter, now))
            .is_ok()
    }

    fn take_batch_entries(&self, waiter: WaitingRequestId) -> Entries {
        match self.found.lock().unwrap().remove(&waiter) {
            Some((generation, entries)) if generation == self.purge_generation() => entries,
            _ => Vec::new(),
        }
    }

    fn store_at_owner(
        &self,
        key: CacheKey,
        entry: Arc<CacheEntry>,
        about: StoredEntryAttributes,
        options: OwnerStoreOptions,
        _: u64,
    ) {
        self.anchors.lock().unwrap().push(options.anchor);
        // after the end of the thread nothing is stored
        let _ = self.send_query(OwnerQuery::Store(key, entry, about.generation));
    }

    /// There are no other processes to return a lease to.
    fn release_lease(&self, _key: CacheKey) {}

    fn permits_sending_from_memory(&self, _monotonic: u64) -> bool {
        true
    }

    fn purge_generation(&self) -> u64 {
        self.purge_generation.load(Ordering::Acquire)
    }

    fn followed_chains(&self) -> &NamespaceChains {
        &self.followed_chains
    }

    /// No client sends a purge request.
    fn purge_at_owner(
        &self,
        _: &[u8],
        _: Option<&[u8]>,
        _: WaitingRequestId,
        _: u64,
    ) -> Option<OwnerAdminReply> {
        None
    }

    fn claim_admin_reply(&self, _: WaitingRequestId) -> Option<OwnerAdminReply> {
        None
    }
}
