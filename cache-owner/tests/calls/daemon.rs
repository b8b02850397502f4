//! An owner without sockets. Requests are decoded and responses are built by the code that does so
//! for sockets.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use hyper::http::request::Builder;
use hyper::{Response, StatusCode};
use sszip_core::cache::chain::{ChainChange, HeightUnit};
use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::link::{OwnerReply, OwnerRequest};
use sszip_core::cache::owner::disk::{
    DiskEntry, EntryBytes, EntryRecordAttributes, OwnerStore, ReadWouldBlock, StoreStatus,
    StoreWriteRejection,
};
use sszip_core::cache::owner::leases::LeaseDecision;
use sszip_core::cache::owner::state::{EntryRejection, OwnerMemoryLookupResult};
use sszip_core::cache::owner::tracker::{ChainIdentity, ChainRecord, FinalityMark};
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::{CacheKey, CacheNamespace};
use sszip_owner::request::{self, OwnerHttpRequest, ProblemDetails};
use sszip_owner::response;

/// The contents of a store without limits, which outlives the owners that use it.
#[derive(Default)]
pub struct StoreContents {
    entries: Mutex<HashMap<CacheKey, DiskEntry>>,
    purges: Mutex<Vec<(u64, PurgeScope)>>,
}

/// The store of a simulated owner, over contents that outlive the owner.
pub struct ContentsStore(pub Arc<StoreContents>);

impl OwnerStore for ContentsStore {
    fn purge_generation(&self) -> u64 {
        5 + self.0.purges.lock().unwrap().len() as u64
    }

    fn read_entry(&self, key: &CacheKey, _: ClockReading) -> Option<DiskEntry> {
        let stored = self.0.entries.lock().unwrap().get(key).cloned()?;
        (!self.is_entry_purged(key, &stored.header.about)).then_some(stored)
    }

    fn read_entry_nonblocking(
        &self,
        key: &CacheKey,
        now: ClockReading,
    ) -> Result<Option<DiskEntry>, ReadWouldBlock> {
        Ok(self.read_entry(key, now))
    }

    fn may_contain_key(&self, key: &CacheKey) -> bool {
        self.0.entries.lock().unwrap().contains_key(key)
    }

    fn put_entry(
        &self,
        key: &CacheKey,
        header: &EntryRecordAttributes,
        body: &[u8],
    ) -> Result<(), StoreWriteRejection> {
        assert!(header.about.class.is_storable_on_disk());
        let stored = DiskEntry {
            header: header.clone(),
            body: EntryBytes::Pinned(Arc::new(body.to_vec())),
            is_old: false,
        };
        self.0.entries.lock().unwrap().insert(*key, stored);
        Ok(())
    }

    fn purge_entries(&self, scope: &PurgeScope) -> Result<u64, StoreWriteRejection> {
        let generation = self.purge_generation() + 1;
        let mut purges = self.0.purges.lock().unwrap();
        purges.push((generation, scope.clone()));
        Ok(generation)
    }

    fn read_chain_record(&self, _: &CacheNamespace) -> Result<ChainRecord, StoreWriteRejection> {
        Ok(ChainRecord::default())
    }

    fn record_chain_identity(
        &self,
        _: &CacheNamespace,
        _: &ChainIdentity,
    ) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn record_finality_mark(
        &self,
        _: &CacheNamespace,
        _: Option<&FinalityMark>,
    ) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn is_entry_purged(&self, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        let purges = self.0.purges.lock().unwrap();
        let mut purges = purges.iter();
        purges.any(|(generation, scope)| {
            about.generation < *generation && scope.covers_entry(key, about)
        })
    }

    fn record_fill_for_admission(&self, _: &CacheKey, _: ClockReading) -> bool {
        true
    }

    fn flush_memtables(&self) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn drop_entries_older_than(&self, _: u64, _: u64, _: ClockReading) {}

    fn next_log_line(&self) -> Option<String> {
        None
    }

    fn store_status(&self) -> StoreStatus {
        StoreStatus::default()
    }
}

/// The identity of a request to the owner.
pub type RequestId = u64;

/// A lookup that waits at the owner for the end of a lease.
struct WaitingLookup {
    message: OwnerRequest,
    key: CacheKey,
    until: u64,
}

/// A simulated daemon: the rules of an owner without sockets and threads.
pub struct SimulatedDaemon {
    pub owner: Owner,
    waiting: BTreeMap<RequestId, WaitingLookup>,
}

/// The outcome of a request: a response now, or a wait for the end of a lease.
enum RequestOutcome {
    Answer(Response<response::OwnerResponseBody>),
    Waits(CacheKey, u64),
}

impl SimulatedDaemon {
    /// Starts an owner that follows the chain and knows nothing of it.
    pub fn start(shelf: &Arc<StoreContents>, namespace: CacheNamespace, now: ClockReading) -> Self {
        let owner = Owner::new(Box::new(ContentsStore(Arc::clone(shelf))), 1 << 20, now);
        owner.start_following_chain(namespace, HeightUnit::Blocks, now);
        Self {
            owner,
            waiting: BTreeMap::new(),
        }
    }

    pub fn apply_chain_changes(&self, namespace: &CacheNamespace, moves: &[ChainChange]) {
        for step in moves {
            self.owner.apply_chain_change(namespace, *step);
        }
    }

    /// Handles a request. Returns `None` if the response comes later.
    pub fn handle_request(
        &mut self,
        id: RequestId,
        message: OwnerRequest,
        now: ClockReading,
    ) -> Option<OwnerReply> {
        match self.respond_to_message(&message, true, now) {
            Ok(answer) => Some(answer),
            Err((key, until)) => {
                let waiting = WaitingLookup {
                    message,
                    key,
                    until,
                };
                self.waiting.insert(id, waiting);
                None
            }
        }
    }

    /// Returns the responses to the lookups whose wait has ended.
    pub fn ended_lookups(&mut self, now: ClockReading) -> Vec<(RequestId, OwnerReply)> {
        self.owner.end_leases_and_complete_purges(now);
        let ended = self.owner.take_notifications().leases;
        let is_over = |_: &RequestId, it: &mut WaitingLookup| {
            it.until <= now.monotonic || ended.contains(&it.key)
        };
        let over: Vec<_> = extract_matching(&mut self.waiting, is_over);
        over.into_iter()
            .filter_map(|(id, it)| {
                Some((id, self.respond_to_message(&it.message, false, now).ok()?))
            })
            .collect()
    }

    /// Drops a waiting lookup whose client has gone.
    pub fn drop_lookup(&mut self, id: RequestId) {
        self.waiting.remove(&id);
    }

    fn respond_to_message(
        &self,
        message: &OwnerRequest,
        waits: bool,
        now: ClockReading,
    ) -> Result<OwnerReply, (CacheKey, u64)> {
        let builder = Builder::new().method(message.method).uri(&message.target);
        let fields = message.fields.iter();
        let builder = fields.fold(builder, |builder, (name, value)| {
            builder.header(*name, value)
        });
        let (head, ()) = builder.body(()).unwrap().into_parts();
        let body = message.whole_body().unwrap();
        let generation = self.owner.owner_store().purge_generation();
        let about = request::decode_chain_query(&head.headers).unwrap();
        let request = request::decode_owner_request(&head).unwrap();
        let handled = self.execute_request(request, &body, waits, now);
        let mut response = match handled {
            Ok(RequestOutcome::Waits(key, until)) => return Err((key, until)),
            Ok(RequestOutcome::Answer(response)) => response,
            Err(problem) => response::problem_response(&problem),
        };
        let with_state = |about: request::ChainStateRequest| {
            (about, self.owner.published_chain_state(&about.namespace))
        };
        response::set_owner_reply_headers(
            response.headers_mut(),
            generation,
            about.map(with_state),
        );
        Ok(to_owner_reply(response))
    }

    fn execute_request(
        &self,
        request: OwnerHttpRequest,
        body: &[u8],
        waits: bool,
        now: ClockReading,
    ) -> Result<RequestOutcome, ProblemDetails> {
        let owner = &self.owner;
        Ok(RequestOutcome::Answer(match request {
            OwnerHttpRequest::LookUp { key, lease } => {
                let found = match (owner.lookup_without_disk_wait(&key, now), lease) {
                    (OwnerMemoryLookupResult::Found(found), _) => Ok(found),
                    (_, None) => Err(None),
                    (_, Some(wanted)) => {
                        let leased = owner.acquire_lease(&key, &wanted.process, wanted.time, now);
                        if let (Ok(LeaseDecision::Pending), true) =
                            (&leased, waits && wanted.wait > 0)
                        {
                            return Ok(RequestOutcome::Waits(key, now.monotonic + wanted.wait));
                        }
                        match leased {
                            Ok(lease) => Err(Some(lease)),
                            Err(found) => Ok(found),
                        }
                    }
                };
                match found {
                    Ok(found) => response::entry_response(found, now),
                    Err(lease) => response::lookup_miss_response(lease),
                }
            }
            OwnerHttpRequest::LookUps => {
                let keys = request::parse_keys(body)?;
                let found = keys.into_iter().filter_map(|key| {
                    match owner.lookup_without_disk_wait(&key, now) {
                        OwnerMemoryLookupResult::Found(found) => Some((key, found)),
                        _ => None,
                    }
                });
                response::entries_response(found.collect(), now)
            }
            OwnerHttpRequest::Put(put) => {
                let entry =
                    Arc::new(owner.new_memory_entry(put.about, body.to_vec(), put.fresh, now));
                let process = put.process.as_ref();
                let outcome = match owner.put_fetched_entry(&put.key, &entry, process, now) {
                    Ok(true) => {
                        owner.write_to_store(&put.key, &entry, now).unwrap();
                        Ok(())
                    }
                    Ok(false) => Ok(()),
                    Err(refused) => Err(refused),
                };
                match outcome {
                    Ok(()) => response::empty_response(StatusCode::CREATED),
                    Err(EntryRejection::Purged | EntryRejection::Replaced) => {
                        response::empty_response(StatusCode::CONFLICT)
                    }
                    Err(refused) => panic!("{refused:?}"),
                }
            }
            OwnerHttpRequest::ReleaseLease { key, process } => {
                owner.release_lease(&key, &process, now);
                response::empty_response(StatusCode::NO_CONTENT)
            }
            other => panic!("{other:?}"),
        }))
    }
}

fn extract_matching<K: Ord + Copy, V>(
    from: &mut BTreeMap<K, V>,
    mut is_it: impl FnMut(&K, &mut V) -> bool,
) -> Vec<(K, V)> {
    let keys: Vec<K> = from
        .iter_mut()
        .filter_map(|(key, value)| is_it(key, value).then_some(*key))
        .collect();
    let taken = keys.iter().filter_map(|key| from.remove_entry(key));
    taken.collect()
}

/// Converts a response to the reply that a host passes to the core.
fn to_owner_reply(response: Response<response::OwnerResponseBody>) -> OwnerReply {
    let (head, body) = response.into_parts();
    let response::OwnerResponseBody::Whole(pieces) = body else {
        panic!("a stream");
    };
    let mut answer = OwnerReply {
        status: head.status.as_u16(),
        body: pieces.into_iter().flatten().collect(),
        ..OwnerReply::default()
    };
    let mut length = 0;
    for (name, value) in &head.headers {
        length += name.as_str().len() + value.len() + 4;
        answer
            .parse_reply_header(name.as_str(), value.as_bytes())
            .unwrap();
    }
    assert!(length < 3_000, "{length}");
    answer
}
