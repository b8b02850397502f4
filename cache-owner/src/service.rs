//! Requests become answers: the owner's rules, and where they wait.
//!
//! What memory or the page cache knows is answered where the request was read.
//! What may wait for a disk must make nobody else wait. A read of the disk is
//! done in place, while another thread takes over the connections: that costs 19
//! to 30 us of CPU a look-up, handing it to a pool 30 to 114. Writes go to a
//! pool. Both are bounded, so that a disk that hangs leaves threads for what does
//! not need it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::{Request as HttpRequest, Response, StatusCode};
use sszip_core::cache::freshness::IfFinal;
use sszip_core::cache::owner::about::Namespace;
use sszip_core::cache::owner::disk::DiskError;
use sszip_core::cache::owner::memory::Kept;
use sszip_core::cache::owner::processes::{Name, Stream};
use sszip_core::cache::owner::state::{Found, Leased, LookUp, Refused};
use sszip_core::cache::owner::{About, Owner, Scope};
use sszip_core::cache::Key;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::{sleep, timeout, Instant};

use crate::answer::{self, Answer};
use crate::bodies::Bodies;
use crate::clock::now;
use crate::coder::Coder;
use crate::events::EventStream;
use crate::follow::chain::Chain;
use crate::request::{self, Problem, Request};
use crate::run::{Level, Log};

/// Reads of the store at a time.
pub const MOST_READS: usize = 16;

/// Its writes at a time: entries, purges, flushes.
pub const MOST_WRITES: usize = 16;

/// Questions to nodes at a time, for entries that may be final.
const MOST_QUESTIONS: usize = 32;

/// Entries that wait to be stored. Those beyond are not, for now.
const MOST_STORING: usize = 256;

/// Entries of so many plain bytes in all are read, if they have to be (see
/// [`Kept::unread`]), while a request waits; others are sent for the client to
/// read, and read here when there is time.
const READ_AT_ONCE: u64 = 256 << 10;

/// The owner's timer looks at least this often, in milliseconds.
const TICK: u64 = 1_000;

/// How often the store is asked whether it has something to say.
const LOOK: Duration = Duration::from_secs(1);

/// How often the owner looks for what nobody has asked for: a sixteenth of
/// that time, but neither more often nor more seldom than this. Milliseconds.
const FORGET_OFTEN: u64 = 50;
const FORGET_SELDOM: u64 = 60_000;

/// How requests are treated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest entry, in bytes.
    pub max_entry: usize,
    /// How long a request's body may take.
    pub body_timeout: Duration,
}

/// What all connections share.
pub struct Service {
    /// The rules.
    pub owner: Arc<Owner>,
    limits: Limits,
    bodies: Bodies,
    reads: Semaphore,
    writes: Arc<Semaphore>,
    storing: Arc<Semaphore>,
    streams: Mutex<HashMap<Stream, Arc<AtomicWaker>>>,
    /// Purges may be over.
    settled: Notify,
    /// The timer's time may have changed.
    stirred: Notify,
    /// Event streams end.
    stopping: AtomicBool,
    started: u64,
    /// Open connections.
    pub connections: AtomicUsize,
    /// Makes what goes to the disk smaller, where that is wanted.
    coder: Option<Coder>,
    chains: Vec<Arc<Chain>>,
    questions: Arc<Semaphore>,
}

/// An entry that is to be kept.
struct Put {
    key: Key,
    about: About,
    fresh: u64,
    process: Option<Name>,
    if_final: Option<IfFinal>,
}

/// An entry that goes to the disk in the background; if it does not come that
/// far, it goes with the next who asks for it, or at the end.
struct Waits {
    kept: Arc<Kept>,
    is_to_be_stored: bool,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if self.is_to_be_stored {
            self.kept.is_not_stored();
        }
    }
}

impl Service {
    /// For an owner that has started.
    pub fn new(owner: Arc<Owner>, limits: Limits, coder: Option<Coder>) -> Self {
        Self {
            owner,
            limits,
            bodies: Bodies::new(limits),
            reads: Semaphore::new(MOST_READS),
            writes: Arc::new(Semaphore::new(MOST_WRITES)),
            storing: Arc::new(Semaphore::new(MOST_STORING)),
            streams: Mutex::default(),
            settled: Notify::new(),
            stirred: Notify::new(),
            stopping: AtomicBool::new(false),
            started: now().monotonic,
            connections: AtomicUsize::new(0),
            coder,
            chains: Vec::new(),
            questions: Arc::new(Semaphore::new(MOST_QUESTIONS)),
        }
    }

    /// These chains are followed.
    pub fn following(mut self, chains: Vec<Arc<Chain>>) -> Self {
        self.chains = chains;
        self
    }

    /// Answers a request.
    ///
    /// # Errors
    /// None.
    pub async fn answer(
        self: Arc<Self>,
        request: HttpRequest<Incoming>,
    ) -> Result<Response<Answer>, Infallible> {
        let (head, mut body) = request.into_parts();
        let answer = match request::read(&head) {
            Ok(request) => self.act(request, &mut body).await,
            Err(problem) => Err(problem),
        };
        Ok(match answer {
            Ok(answer) => answer,
            Err(problem) => {
                // who waits to be told to go on is told not to
                if !head.headers.contains_key(EXPECT) {
                    self.bodies.discard(&mut body).await;
                }
                answer::problem(&problem)
            }
        })
    }

    async fn act(
        self: &Arc<Self>,
        request: Request,
        body: &mut Incoming,
    ) -> Result<Response<Answer>, Problem> {
        match request {
            Request::LookUp { key, lease } => self.look_up(key, lease).await,
            Request::LookUps => {
                let body = self.bodies.whole(body, request::LONGEST_BODY).await?;
                self.look_ups(request::keys(&body)?).await
            }
            Request::Put {
                key,
                about,
                fresh,
                process,
                if_final,
            } => {
                let put = Put {
                    key,
                    about,
                    fresh,
                    process,
                    if_final,
                };
                self.put(put, body).await
            }
            Request::GiveBack { key, process } => {
                self.owner.give_back(&key, &process, now());
                self.wake();
                Ok(answer::empty(StatusCode::NO_CONTENT))
            }
            Request::Purge => {
                let body = self.bodies.whole(body, request::LONGEST_BODY).await?;
                let scope = request::scope(&body)?;
                // whoever asked for it may go, it holds all the same
                let service = Arc::clone(self);
                tokio::spawn(async move { service.purge_and_count(scope).await })
                    .await
                    .map_err(broken)?
            }
            Request::Acknowledge(process) => {
                let body = self.bodies.whole(body, request::LONGEST_BODY).await?;
                let generation = request::generation(&body)?;
                self.owner.acknowledge(&process, generation).map_err(|_| {
                    Problem::new(StatusCode::CONFLICT, "there was no such purge yet")
                })?;
                self.tick();
                Ok(answer::empty(StatusCode::NO_CONTENT))
            }
            Request::Events(process) => self.events(&process),
            Request::Status => {
                // figures that lie in memory: a disk that hangs can be seen
                let status = self.owner.status();
                let uptime = now().monotonic.saturating_sub(self.started);
                let connections = self.connections.load(Ordering::Relaxed);
                Ok(answer::status(&status, &self.chains, uptime, connections))
            }
        }
    }

    async fn look_up(
        self: &Arc<Self>,
        key: Key,
        lease: Option<(Name, u64)>,
    ) -> Result<Response<Answer>, Problem> {
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
            return Ok(answer::entry(found, now()));
        }
        let Some((process, time)) = lease else {
            return Ok(answer::missing(None));
        };
        let leased = self.owner.lease(&key, &process, time, now());
        self.stirred.notify_one();
        self.wake();
        Ok(match leased {
            Leased::Found(found) => match self.found(key, found, &mut room) {
                Some(found) => answer::entry(found, now()),
                // whoever asks next gets the lease
                None => answer::missing(None),
            },
            Leased::Lease(lease) => answer::missing(Some(lease)),
        })
    }

    /// What of an entry may be sent, if anything. It is stored in the
    /// background if it should be. `room` is for what is
    /// [read](READ_AT_ONCE).
    fn found(self: &Arc<Self>, key: Key, mut found: Found, room: &mut u64) -> Option<Found> {
        if let Some(length) = found.kept.unread() {
            if length <= *room {
                *room -= length;
                found.kept = self.owner.read(&key, &found.kept)?;
            }
        }
        if found.is_to_be_stored || found.kept.unread().is_some() {
            self.read_and_store(key, Arc::clone(&found.kept), found.is_to_be_stored);
        }
        Some(found)
    }

    /// Reads an entry, if nobody did yet, and puts it on the disk if that is
    /// wanted, in the background.
    fn read_and_store(self: &Arc<Self>, key: Key, kept: Arc<Kept>, is_to_be_stored: bool) {
        let Ok(place) = Arc::clone(&self.storing).try_acquire_owned() else {
            // when it is asked for again
            if is_to_be_stored {
                kept.is_not_stored();
            }
            return;
        };
        let waits = Waits {
            kept,
            is_to_be_stored,
        };
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            service.read_then_store(key, waits).await
        });
    }

    /// `None`: it is no answer, or was purged or filled anew meanwhile.
    async fn read_then_store(&self, key: Key, mut waits: Waits) -> Option<()> {
        if waits.kept.unread().is_some() {
            let read = move |owner: &Owner| {
                waits.kept = owner.read(&key, &waits.kept)?;
                Some(waits)
            };
            waits = self.writing(read).await.ok()??;
        }
        if !waits.is_to_be_stored {
            return Some(());
        }
        if let Some(coder) = &self.coder {
            if let Some(body) = coder.recompress(&waits.kept).await {
                waits.kept = self.owner.recompressed(&key, &waits.kept, body)?;
            }
        }
        let store = move |owner: &Owner| {
            waits.is_to_be_stored = false;
            // a failure is counted, and the store says once why
            drop(owner.store(&key, &waits.kept, now()));
        };
        self.writing(store).await.ok()
    }

    /// Does what may wait for a disk to be read.
    async fn reading<T>(&self, work: impl FnOnce() -> T) -> Result<T, Problem> {
        let _permit = self.reads.acquire().await.map_err(closed)?;
        Ok(block_in_place(work))
    }

    /// Does what may wait for a disk to be written.
    async fn writing<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Owner) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let _permit = self.writes.acquire().await.map_err(closed)?;
        let owner = Arc::clone(&self.owner);
        spawn_blocking(move || work(&owner)).await.map_err(broken)
    }

    async fn look_ups(self: &Arc<Self>, keys: Vec<Key>) -> Result<Response<Answer>, Problem> {
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
        Ok(answer::entries(found, now()))
    }

    async fn put(
        self: &Arc<Self>,
        put: Put,
        body: &mut Incoming,
    ) -> Result<Response<Answer>, Problem> {
        let Put {
            key,
            about,
            fresh,
            process,
            if_final,
        } = put;
        let body = match self.bodies.whole(body, self.limits.max_entry).await {
            Ok(body) => body,
            Err(problem) => {
                // the fetch has ended, even if this can't be kept
                if let Some(process) = process {
                    self.owner.give_back(&key, &process, now());
                    self.wake();
                }
                return Err(problem);
            }
        };
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
        match put {
            Ok(is_to_be_stored) => {
                self.look_for_news(&kept.about().namespace);
                if let Some(if_final) = if_final {
                    self.find_out(key, Arc::clone(&kept), if_final);
                }
                if is_to_be_stored {
                    self.read_and_store(key, kept, true);
                }
                Ok(answer::empty(StatusCode::CREATED))
            }
            Err(Refused::Purged) => Err(Problem::new(
                StatusCode::CONFLICT,
                "what it belongs to was purged since that generation, or there was none such yet",
            )),
            Err(Refused::Replaced) => Err(Problem::new(
                StatusCode::CONFLICT,
                "there is a newer head, or what it depends on was replaced since that epoch",
            )),
            Err(Refused::TooLong) => Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too long for memory, and its class is not stored",
            )),
            Err(Refused::Off(text)) => Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, text)),
        }
    }

    /// Asks the node whether an entry is of a final block.
    fn find_out(self: &Arc<Self>, key: Key, kept: Arc<Kept>, if_final: IfFinal) {
        let namespace = kept.about().namespace;
        let mut chains = self.chains.iter();
        let chain = chains.find(|chain| chain.namespace == namespace);
        let Some(node) = chain.and_then(|chain| chain.node()) else {
            return;
        };
        // it is short-lived then
        let Ok(place) = Arc::clone(&self.questions).try_acquire_owned() else {
            return;
        };
        let owner = Arc::clone(&self.owner);
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Some(block)) = node.place_of(&if_final.transaction).await {
                if block <= if_final.last {
                    owner.make_final(&key, &kept, block, if_final.valid, now());
                }
            }
        });
    }

    async fn purge_and_count(self: Arc<Self>, scope: Scope) -> Result<Response<Answer>, Problem> {
        // of others nothing is counted on the disk: it would have to be searched
        let is_stored = match scope {
            Scope::Key(key) => {
                let has_stored = move |owner: &Owner| owner.has_stored(&key, now());
                self.writing(has_stored).await?
            }
            _ => false,
        };
        let (generation, swept) = self.purge(scope).await?;
        Ok(answer::purged(generation, swept.max(is_stored.into())))
    }

    /// The generation, and how many entries were in memory.
    async fn purge(self: &Arc<Self>, scope: Scope) -> Result<(u64, u64), Problem> {
        let purged = scope.clone();
        let swept = scope.clone();
        let generation = self
            .writing(move |owner| owner.purge(&scope, now))
            .await?
            .map_err(|error| Problem::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string()))?;
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
                return Ok((generation, swept));
            }
            settled.await;
        }
    }

    /// Purges blocks that were replaced; over when no process has any of it.
    ///
    /// # Errors
    /// Why it is to be tried again. For people.
    pub async fn purge_blocks(self: &Arc<Self>, blocks: Scope) -> Result<(), String> {
        let purged = self.purge(blocks).await;
        purged.map(drop).map_err(|problem| problem.detail)
    }

    /// Does what may wait for a disk, and says why it failed.
    ///
    /// # Errors
    /// The disk's, for people.
    pub async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Owner) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, String> {
        let done = self.writing(work).await;
        done.map_err(|problem| problem.detail)?
            .map_err(|error| error.to_string())
    }

    /// Processes may have something to be told.
    pub fn tell_processes(&self) {
        self.wake();
    }

    /// There may be a new head in a namespace: its node is asked soon.
    pub fn nudge(&self, namespace: &Namespace) {
        if let Some(chain) = self.chain(namespace) {
            chain.news.notify_one();
        }
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

    fn chain(&self, namespace: &Namespace) -> Option<&Arc<Chain>> {
        let mut chains = self.chains.iter();
        chains.find(|chain| chain.namespace == *namespace)
    }

    fn events(self: &Arc<Self>, process: &Name) -> Result<Response<Answer>, Problem> {
        let waker = Arc::new(AtomicWaker::new());
        let stream = {
            let mut streams = self.streams();
            let stream = self.owner.arrive(process, now()).map_err(|_| {
                Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "there are too many processes",
                )
            })?;
            streams.insert(stream, Arc::clone(&waker));
            stream
        };
        self.wake();
        let stream = EventStream::new(Arc::clone(self), stream, waker);
        Ok(answer::events(stream))
    }

    /// Ends the event streams, which don't by themselves.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for waker in self.streams().values() {
            waker.wake();
        }
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A stream has ended.
    pub fn leave(&self, stream: Stream) {
        self.streams().remove(&stream);
        self.owner.leave(stream, now());
        self.wake();
    }

    /// Wakes the streams that have something to be told.
    fn wake(&self) {
        let woken = self.owner.take_woken();
        if woken.is_empty() {
            return;
        }
        let streams = self.streams();
        for waker in woken.iter().filter_map(|stream| streams.get(stream)) {
            waker.wake();
        }
    }

    fn tick(&self) {
        if !self.owner.tick(now()).is_empty() {
            self.settled.notify_waiters();
        }
        self.wake();
    }

    /// Ends what ends with time. Never returns.
    pub async fn run_timer(&self) {
        loop {
            let now = now().monotonic;
            let next = self.owner.next_tick().unwrap_or(u64::MAX);
            let wait = next.saturating_sub(now).min(TICK);
            // sooner, if there is something new to wait for
            let _ = timeout(Duration::from_millis(wait), self.stirred.notified()).await;
            self.tick();
        }
    }

    /// Writes down at intervals what lies in the store's memory, and what it
    /// has to say into the log. Never returns.
    pub async fn run_flushes(&self, every: Duration, log: &Log) {
        let mut flush_at = Instant::now() + every;
        loop {
            sleep(every.min(LOOK)).await;
            if Instant::now() >= flush_at {
                flush_at = Instant::now() + every;
                // an event says why, and the next flush tries again
                drop(self.writing(Owner::flush).await);
            }
            while let Some(event) = self.owner.next_event() {
                log(Level::Error, &event);
            }
        }
    }

    /// Lets go of what nobody has asked for in so many milliseconds. Never
    /// returns.
    pub async fn run_forgetting(&self, inactive: u64) {
        let every = Duration::from_millis((inactive / 16).clamp(FORGET_OFTEN, FORGET_SELDOM));
        loop {
            sleep(every).await;
            // it is tried again
            drop(self.writing(|owner| owner.forget_inactive(now())).await);
        }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<Stream, Arc<AtomicWaker>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

/// A task of ours has panicked.
fn broken(error: tokio::task::JoinError) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// A semaphore that is never closed was.
fn closed(error: tokio::sync::AcquireError) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}
