//! The owner at work: its rules, and where they wait.
//!
//! What memory or the page cache knows is told where it is asked. What may wait
//! for a disk must make nobody else wait. A read of the disk is done in place,
//! while another thread takes over the connections: that costs 19 to 30 us of CPU
//! a look-up, handing it to a pool 30 to 114. Writes go to a pool. Both are
//! bounded, so that a disk that hangs leaves threads for what does not need it.
//!
//! How it is asked, and answers, is the service's business.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use sszip_core::cache::chain::Sighting;
use sszip_core::cache::entry::about::Scope;
use sszip_core::cache::owner::leases::Lease;
use sszip_core::cache::owner::processes::{Name, NoSuchPurge, Stream, TooMany};
use sszip_core::cache::owner::state::{Found, LookUp, Refused};
use sszip_core::cache::owner::Owner;
use sszip_core::cache::resource::other_form;
use sszip_core::cache::store::StoreError;
use sszip_core::cache::{Key, Namespace};
use sszip_core::lock::locked;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::timeout;

use crate::clock::now;
use crate::coder::Coder;
use crate::follow::chain::Chain;
use crate::request::{Put, Wanted};
use crate::waits::Waits;

/// Reads of the store at a time.
pub const MOST_READS: usize = 16;

/// Its writes at a time: entries, purges, flushes.
pub const MOST_WRITES: usize = 16;

/// Questions to nodes at a time, for entries that may be final.
const MOST_QUESTIONS: usize = 32;

/// Entries that wait to be stored. Those beyond are not, for now.
const MOST_STORING: usize = 256;

/// Entries of so many plain bytes in all are read, if they are
/// [unread](sszip_core::cache::owner::memory::Kept::unread), while a request
/// waits; others are sent for the client to read, and read here when there is time.
pub(crate) const READ_AT_ONCE: u64 = 256 << 10;

/// What all who ask share.
pub struct Engine {
    /// The rules.
    pub owner: Arc<Owner>,
    reads: Semaphore,
    writes: Semaphore,
    pub(crate) storing: Arc<Semaphore>,
    pub(crate) questions: Arc<Semaphore>,
    /// Makes what goes to the disk smaller, where that is wanted.
    pub(crate) coder: Option<Coder>,
    /// Those that are followed.
    pub chains: Vec<Arc<Chain>>,
    streams: Mutex<HashMap<Stream, Arc<AtomicWaker>>>,
    /// And those who wait without one.
    pub waits: Waits,
    /// Purges may be over.
    settled: Notify,
    /// The timer's time may have changed.
    pub(crate) stirred: Notify,
    /// Event streams end.
    stopping: AtomicBool,
}

/// What came of a look-up: it is there; or it is not, and who fetches it, if that
/// was asked.
pub type LookedUp = Result<Found, Option<Lease>>;

/// What came of a purge that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purged {
    /// Its generation.
    pub generation: u64,
    /// How many entries it removed, as far as they were counted.
    pub entries: u64,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The disk's reason.
    #[error("{0}")]
    Disk(#[from] StoreError),
    /// It is ours: a task has panicked.
    #[error("{0}")]
    Broken(#[from] tokio::task::JoinError),
    /// A semaphore that is never closed was.
    #[error("{0}")]
    Closed(#[from] tokio::sync::AcquireError),
}

impl Engine {
    /// For an owner that has started, and follows these chains.
    pub fn new(owner: Arc<Owner>, chains: Vec<Arc<Chain>>, coder: Option<Coder>) -> Self {
        Self {
            owner,
            reads: Semaphore::new(MOST_READS),
            writes: Semaphore::new(MOST_WRITES),
            storing: Arc::new(Semaphore::new(MOST_STORING)),
            questions: Arc::new(Semaphore::new(MOST_QUESTIONS)),
            coder,
            chains,
            streams: Mutex::default(),
            waits: Waits::default(),
            settled: Notify::new(),
            stirred: Notify::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// The last purge.
    pub fn generation(&self) -> u64 {
        self.owner.disk().generation()
    }

    /// Looks a key up; a process that misses it may want its lease, and wait for the
    /// end of another's. What came of it, and the last purge before it was looked
    /// for.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn look_up(
        self: &Arc<Self>,
        key: Key,
        lease: Option<&Wanted>,
    ) -> Result<(u64, LookedUp), Failure> {
        let wait = lease.map_or(0, |lease| lease.wait);
        if wait > 0 && !self.is_stopping() {
            if let Some(waits) = self.waits.on(key) {
                let ended = waits.ended();
                let generation = self.generation();
                let found = self.look_up_now(key, lease).await?;
                if !matches!(found, Err(Some(Lease::Pending))) {
                    return Ok((generation, found));
                }
                // whichever it is, what there is then is what there is
                let _ = timeout(Duration::from_millis(wait), ended).await;
            }
        }
        let generation = self.generation();
        Ok((generation, self.look_up_now(key, lease).await?))
    }

    async fn look_up_now(
        self: &Arc<Self>,
        key: Key,
        lease: Option<&Wanted>,
    ) -> Result<LookedUp, Failure> {
        let found = match self.owner.look_up(&key, now()) {
            LookUp::Found(found) => Some(found),
            LookUp::Missing => None,
            LookUp::AskStore => {
                self.reading(|| self.owner.look_up_store(&key, now()))
                    .await?
            }
        };
        let mut room = READ_AT_ONCE;
        if let Some(found) = found.and_then(|found| self.found(key, found, &mut room)) {
            return Ok(Ok(found));
        }
        let Some(Wanted { process, time, .. }) = lease else {
            return Ok(Err(None));
        };
        let leased = self.owner.lease(&key, process, *time, now());
        self.stirred.notify_one();
        self.wake();
        Ok(match leased {
            // if it is no answer, whoever asks next gets the lease
            Err(found) => self.found(key, found, &mut room).ok_or(None),
            Ok(lease) => Err(Some(lease)),
        })
    }

    /// What there is of several keys.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn look_ups(self: &Arc<Self>, keys: Vec<Key>) -> Result<Vec<(Key, Found)>, Failure> {
        let mut found = Vec::new();
        let mut unknown = Vec::new();
        for key in keys {
            match self.owner.look_up(&key, now()) {
                LookUp::Found(entry) => found.push((key, entry)),
                LookUp::Missing => {}
                LookUp::AskStore => unknown.push(key),
            }
        }
        if !unknown.is_empty() {
            let look_up = |key| Some((key, self.owner.look_up_store(&key, now())?));
            let stored = self.reading(|| unknown.into_iter().filter_map(look_up).collect());
            let stored: Vec<_> = stored.await?;
            found.extend(stored);
        }
        let mut room = READ_AT_ONCE;
        let found = found
            .into_iter()
            .filter_map(|(key, found)| Some((key, self.found(key, found, &mut room)?)))
            .collect();
        Ok(found)
    }

    /// Does what may wait for a disk to be read.
    async fn reading<T>(&self, work: impl FnOnce() -> T) -> Result<T, Failure> {
        let _permit = self.reads.acquire().await?;
        Ok(block_in_place(work))
    }

    /// Does what may wait for a disk to be written.
    pub(crate) async fn writing<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Owner) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let _permit = self.writes.acquire().await?;
        let owner = Arc::clone(&self.owner);
        Ok(spawn_blocking(move || work(&owner)).await?)
    }

    /// Does what may wait for a disk and fail at it.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Owner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Failure> {
        Ok(self.writing(work).await??)
    }

    /// Keeps an entry, whose `body` is opaque; or says why it does not.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn put(
        self: &Arc<Self>,
        put: Put,
        body: Vec<u8>,
    ) -> Result<Result<(), Refused>, Failure> {
        let Put {
            key,
            about,
            fresh,
            process,
            if_final,
        } = put;
        let has_room = self.owner.has_room_for(body.len());
        let kept = Arc::new(self.owner.kept(about, body, fresh, now()));
        let put = if has_room {
            self.owner.put(&key, &kept, process.as_ref(), now())
        } else {
            let kept = Arc::clone(&kept);
            self.writing(move |owner| {
                // it will come from the disk each time, and nobody waits now
                let kept = match kept.unread() {
                    Some(_) => owner.read(&key, &kept).unwrap_or(kept),
                    None => kept,
                };
                owner.put(&key, &kept, process.as_ref(), now())
            })
            .await?
        };
        self.wake();
        let is_to_be_stored = match put {
            Ok(is_to_be_stored) => is_to_be_stored,
            Err(refused) => return Ok(Err(refused)),
        };
        self.look_for_news(&kept.about().namespace);
        if let Some(if_final) = if_final {
            self.find_out(key, Arc::clone(&kept), if_final);
        }
        if is_to_be_stored {
            self.read_and_store(key, kept, true);
        }
        Ok(Ok(()))
    }

    /// `process` gives its lease back.
    pub fn give_back(&self, key: &Key, process: &Name) {
        self.owner.give_back(key, process, now());
        self.wake();
    }

    /// A block was shown to a client.
    pub fn shows(&self, namespace: &Namespace, sighting: Sighting) {
        self.owner.shows(namespace, sighting);
        self.wake();
    }

    /// Purges; over when no process has any of it, and goes on when nobody waits
    /// for that.
    ///
    /// # Errors
    /// [`Failure`]: it is to be tried again.
    pub async fn purge(self: &Arc<Self>, scope: Scope) -> Result<Purged, Failure> {
        let engine = Arc::clone(self);
        tokio::spawn(async move { engine.purge_here(scope).await }).await?
    }

    async fn purge_here(&self, scope: Scope) -> Result<Purged, Failure> {
        // of others nothing is counted on the disk: it would have to be searched
        let stored = match scope {
            Scope::Key(key) => {
                let has = |owner: &Owner, key: &Key| owner.disk().get(key, now()).is_some();
                let count = move |owner: &Owner| {
                    let forms = [key, other_form(&key)];
                    forms.iter().filter(|key| has(owner, key)).count() as u64
                };
                self.writing(count).await?
            }
            _ => 0,
        };
        let (purged, swept) = (scope.clone(), scope.clone());
        // first: who knows of the purge compares nothing with the chain of before
        self.owner.forget_identities(&scope);
        let generation = self.on_disk(move |owner| owner.purge(&scope, now)).await?;
        for chain in &self.chains {
            chain.purged(&purged);
        }
        self.wake();
        self.tick();
        self.stirred.notify_one();
        // it holds already: this gives room
        let sweep = move |owner: &Owner| owner.sweep(&swept, generation);
        let swept = self.writing(sweep).await?;
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            // enabled first: what ends between the two is not missed
            settled.as_mut().enable();
            if !self.owner.is_waiting(generation) {
                return Ok(Purged {
                    generation,
                    entries: swept.max(stored),
                });
            }
            settled.await;
        }
    }

    /// All purges up to `generation` hold in a process.
    ///
    /// # Errors
    /// [`NoSuchPurge`].
    pub fn acknowledge(&self, process: &Name, generation: u64) -> Result<(), NoSuchPurge> {
        self.owner.acknowledge(process, generation)?;
        self.tick();
        Ok(())
    }

    /// An entry may have told of a head that its follower has not seen yet.
    fn look_for_news(&self, namespace: &Namespace) {
        let Some(chain) = self.chain(namespace) else {
            return;
        };
        if self.owner.seen(namespace) > chain.status().head {
            chain.news.notify_one();
        }
    }

    pub(crate) fn chain(&self, namespace: &Namespace) -> Option<&Arc<Chain>> {
        let mut chains = self.chains.iter();
        chains.find(|chain| chain.namespace == *namespace)
    }

    /// A process has opened an event stream: its name here, and what is woken
    /// when there is something to be sent.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn arrive(&self, process: &Name) -> Result<(Stream, Arc<AtomicWaker>), TooMany> {
        let waker = Arc::new(AtomicWaker::new());
        let stream = {
            let mut streams = locked(&self.streams);
            let stream = self.owner.arrive(process, now())?;
            streams.insert(stream, Arc::clone(&waker));
            stream
        };
        self.wake();
        Ok((stream, waker))
    }

    /// A stream has ended.
    pub fn leave(&self, stream: Stream) {
        locked(&self.streams).remove(&stream);
        self.owner.leave(stream, now());
        self.wake();
    }

    /// Ends the event streams, which don't by themselves.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for waker in locked(&self.streams).values() {
            waker.wake();
        }
        self.waits.end_all();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Wakes those who have something to be told.
    pub(crate) fn wake(&self) {
        let woken = self.owner.take_woken();
        self.waits.end(&woken.leases);
        if woken.streams.is_empty() {
            return;
        }
        let streams = locked(&self.streams);
        let wakers = woken.streams.iter().filter_map(|it| streams.get(it));
        wakers.for_each(|waker| waker.wake());
    }

    pub(crate) fn tick(&self) {
        if !self.owner.tick(now()).is_empty() {
            self.settled.notify_waiters();
        }
        self.wake();
    }
}
