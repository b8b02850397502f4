//! The lifecycle of an owner from its election to its end.
//!
//! ```text
//!  waiting ──▶ serving ──▶ closing ──▶ ended
//!   │  ▲ another owner has the store, or it cannot be opened: retried
//!   └──┘
//! ```
//!
//! An owner runs on threads of its own, which take no signals; the host's threads keep theirs.
//! One of the owner's threads opens the store, after any fork.

use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use sszip_core::cache::chain::HeightUnit;
use sszip_core::cache::owner::disk::OwnerStore;
use sszip_core::cache::owner::Owner;
use sszip_core::cache::vary_key::named_cache_namespace;
use sszip_core::config::head_source::{HeadSource, NodeApi};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::read_clocks;
use crate::config::OwnerConfig;
use crate::direct_calls::DirectCalls;
use crate::engine::{OwnerRequestExecutor, MAX_READS, MAX_WRITES};
use crate::file_limit::raise_file_limit;
use crate::fleet::start::start_fleet_tier;
use crate::follow::{chain::FollowedChain, follower};
use crate::log::{LogFunction, LogLevel};
use crate::open_store::{OpenStoreError, StoreOpener};
use crate::recompressor::Recompressor;
use crate::request_bodies::RequestBodyLimits;
use crate::server;
use crate::service::OwnerHttpService;
use crate::socket::SocketFile;
use crate::stop;

/// Interval between attempts to open another owner's store, in milliseconds.
const LOCKED_RETRY_MS: u64 = 25;

/// Interval between checks whether the host permits an attempt, in milliseconds.
const PERMIT_RETRY_MS: u64 = 2;

/// Pause after another failure to open the store, in milliseconds.
const FAILED_RETRY_MS: u64 = 1_000;

/// Number of threads that may wait for the disk at a time, and a few to spare: without a free one
/// a read would block the thread that serves. Each node takes one more while the system resolves
/// its name.
const DISK_THREADS: usize = MAX_READS + MAX_WRITES + 4;

/// The stage of an owner's lifecycle, from waiting for the store to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerLifecycleStage {
    /// Another owner has the store, or it cannot be opened.
    Waiting,
    /// The owner serves requests.
    Serving,
    /// The owner writes its memory to the store.
    Closing,
    /// The owner has ended.
    Ended,
}

/// The handle of an owner that runs on its own threads. Dropping it does not end the owner.
#[derive(Debug)]
pub struct RunningOwnerHandle {
    stop: watch::Sender<bool>,
    owner_state: watch::Receiver<OwnerLifecycleStage>,
    direct_calls: Arc<DirectCalls>,
    thread: Option<JoinHandle<()>>,
    ended: mpsc::Receiver<()>,
}

impl RunningOwnerHandle {
    /// Starts an owner on threads of its own; it serves once `open` has opened the store.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start_owner_threads(
        config: OwnerConfig,
        open: StoreOpener,
        log: LogFunction,
    ) -> Result<Self, std::io::Error> {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = mpsc::channel();
        let (entered, state) = watch::channel(OwnerLifecycleStage::Waiting);
        let direct_calls = Arc::<DirectCalls>::default();
        let life = OwnerMainThread {
            config,
            log,
            stop: stopped,
            state: entered,
            direct_calls: Arc::clone(&direct_calls),
        };
        let thread = start_with_signals_blocked(|| {
            std::thread::Builder::new()
                .name("sszip-owner".into())
                .spawn(move || {
                    life.run_owner(open);
                    // the receiver may be gone
                    let _ = end.send(());
                })
        })?;
        Ok(Self {
            stop,
            owner_state: state,
            direct_calls,
            thread: Some(thread),
            ended,
        })
    }

    /// Returns the present state of the owner.
    pub fn owner_lifecycle_state(&self) -> OwnerLifecycleStage {
        *self.owner_state.borrow()
    }

    /// Returns the direct calls of the owner, which are handled while it serves.
    pub fn direct_calls(&self) -> &Arc<DirectCalls> {
        &self.direct_calls
    }

    /// Waits until the owner serves or has ended, for `limit` at most.
    pub fn wait_until_owner_serves(&self, limit: Duration) {
        let since = std::time::Instant::now();
        while self.owner_lifecycle_state() == OwnerLifecycleStage::Waiting
            && since.elapsed() < limit
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns a function that stops the owner, from any thread.
    pub fn create_owner_stop_function(&self) -> impl Fn() + Send + 'static {
        let stop = self.stop.clone();
        move || {
            // no receiver: the owner has ended
            let _ = stop.send(true);
        }
    }

    /// Waits until the owner has ended, which without a stop happens only if it cannot serve.
    pub fn wait_until_owner_ended(&mut self) {
        self.wait_for_end(Duration::MAX);
    }

    /// Stops the owner, and waits for `limit` at most. Returns whether it has ended.
    pub fn stop_owner_within(&mut self, limit: Duration) -> bool {
        self.create_owner_stop_function()();
        self.wait_for_end(limit)
    }

    fn wait_for_end(&mut self, limit: Duration) -> bool {
        let timeout = Err(mpsc::RecvTimeoutError::Timeout);
        if self.owner_lifecycle_state() != OwnerLifecycleStage::Ended
            && self.ended.recv_timeout(limit) == timeout
        {
            return false;
        }
        if let Some(thread) = self.thread.take() {
            // its panic is logged already
            let _ = thread.join();
        }
        true
    }
}

/// Waits until no other thread uses the store: one that waits for the disk, or for a core, may outlive
/// the runtime. The exit of the process destroys RocksDB's static objects, so that an owner whose store
/// is in use has not ended.
fn wait_until_unshared(owner: &Arc<Owner>) {
    while Arc::strong_count(owner) > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Calls `start` with all signals blocked, which threads that it starts inherit.
fn start_with_signals_blocked<T>(
    start: impl FnOnce() -> Result<T, std::io::Error>,
) -> Result<T, std::io::Error> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = start();
    before.thread_set_mask()?;
    started
}

/// The part of an owner that runs on its own thread: it waits for the store, serves, and stores
/// what its memory has at the end.
struct OwnerMainThread {
    config: OwnerConfig,
    log: LogFunction,
    stop: watch::Receiver<bool>,
    state: watch::Sender<OwnerLifecycleStage>,
    direct_calls: Arc<DirectCalls>,
}

impl OwnerMainThread {
    fn run_owner(&self, open: StoreOpener) {
        if let Err(error) = self.open_and_serve(open) {
            (self.log)(LogLevel::Error, &error.to_string());
        }
        self.state.send_replace(OwnerLifecycleStage::Ended);
    }

    fn open_and_serve(&self, mut open: StoreOpener) -> Result<(), std::io::Error> {
        raise_file_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.config.threads)
            .max_blocking_threads(DISK_THREADS + self.config.threads + self.config.follows.len())
            .thread_name("sszip-serving")
            .enable_all()
            .build()?;
        let Some(disk) = runtime.block_on(self.open_store_with_retry(&mut open)) else {
            return Ok(());
        };
        // no other owner has granted send leases since: the store is open here
        let owner = Owner::new(disk, self.config.memory, read_clocks());
        let owner = Arc::new(owner.with_inactivity_period(self.config.inactive));
        let coder = match self.config.recompress {
            true => Some(Recompressor::start_recompressor()?),
            false => None,
        };
        let served = runtime.block_on(self.serve_requests(Arc::clone(&owner), coder));
        self.state.send_replace(OwnerLifecycleStage::Closing);
        // ends the remaining connections and the calls that wait for the disk
        runtime.shutdown_timeout(Duration::from_millis(500));
        if let Err(error) = owner.write_memory_to_store(read_clocks()) {
            (self.log)(
                LogLevel::Error,
                &format!("cannot write all entries to the store before the end: {error}"),
            );
        }
        wait_until_unshared(&owner);
        served
    }

    /// Opens the store, and tries again until it succeeds. Returns `None` when the owner is stopped
    /// before.
    async fn open_store_with_retry(&self, open: &mut StoreOpener) -> Option<Box<dyn OwnerStore>> {
        let mut stop = self.stop.clone();
        let mut logged = None;
        loop {
            let why = match open(read_clocks()) {
                Ok(disk) => return Some(disk),
                Err(why) => why,
            };
            let wait = match &why {
                OpenStoreError::NotYet => PERMIT_RETRY_MS,
                OpenStoreError::Locked => LOCKED_RETRY_MS,
                OpenStoreError::Failed(_) => FAILED_RETRY_MS,
            };
            // logged once, not at each attempt
            if why != OpenStoreError::NotYet && logged.as_ref() != Some(&why) {
                match &why {
                    OpenStoreError::Locked => (self.log)(
                        LogLevel::Notice,
                        "another owner has the store; waiting for it to end",
                    ),
                    OpenStoreError::Failed(text) => (self.log)(LogLevel::Error, text),
                    OpenStoreError::NotYet => {}
                }
                logged = Some(why);
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
                () = stop::wait_for_stop(&mut stop) => return None,
            }
        }
    }

    async fn serve_requests(
        &self,
        owner: Arc<Owner>,
        coder: Option<Recompressor>,
    ) -> Result<(), std::io::Error> {
        let config = &self.config;
        let idle = Duration::from_millis(config.idle_timeout);
        let limits = RequestBodyLimits {
            max_entry: usize::try_from(config.max_entry).unwrap_or(usize::MAX),
            body_timeout: idle,
        };
        let path = config.socket.display();
        let (socket, listener) = SocketFile::bind_socket(&config.socket, config.socket_user)
            .map_err(|error| {
                std::io::Error::new(error.kind(), format!("cannot listen on {path}: {error}"))
            })?;
        owner.record_owner_listening_start(read_clocks());
        // before any request is served: no block is final until it is known to be
        let follow = |(name, follow): &(String, HeadSource)| {
            let namespace = named_cache_namespace(name.as_bytes());
            let heights = match follow.api {
                NodeApi::Execution => HeightUnit::Blocks,
                NodeApi::Beacon => HeightUnit::Slots,
            };
            owner.start_following_chain(namespace, heights, read_clocks());
            owner.set_identity_check_pending(&namespace, true);
            Arc::new(FollowedChain::new(namespace, name))
        };
        let chains: Vec<_> = config.follows.iter().map(follow).collect();
        let engine = Arc::new(OwnerRequestExecutor::new(owner, chains.clone(), coder));
        let service = Arc::new(OwnerHttpService::new(Arc::clone(&engine), limits));
        // all of them end with this set
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let engine = Arc::clone(&engine);
            async move { engine.run_lease_and_purge_timer().await }
        });
        tasks.spawn({
            let (engine, log) = (Arc::clone(&engine), Arc::clone(&self.log));
            let every = Duration::from_millis(config.flush_interval);
            async move { engine.run_store_flushes(every, &log).await }
        });
        if let Some(inactive) = config.inactive {
            let engine = Arc::clone(&engine);
            tasks.spawn(async move { engine.run_inactivity_expiry(inactive).await });
        }
        self.direct_calls
            .begin(&service.operations, Handle::current());
        self.state.send_replace(OwnerLifecycleStage::Serving);
        (self.log)(LogLevel::Notice, &format!("serving on {path}"));
        if let Some(settings) = &config.fleet {
            let started = start_fleet_tier(
                settings,
                &config.path,
                &engine,
                &mut tasks,
                Arc::clone(&self.log),
            );
            // the owner serves without it
            if let Err(error) = started {
                (self.log)(LogLevel::Error, &format!("no fleet is used: {error}"));
            }
        }
        for (chain, (name, follow)) in chains.into_iter().zip(&config.follows) {
            let line = format!("follows {name} at {}", follow.url_origin());
            (self.log)(LogLevel::Notice, &line);
            let (engine, log) = (Arc::clone(&engine), Arc::clone(&self.log));
            tasks.spawn(follower::follow_chain(follow.clone(), chain, engine, log));
        }
        // on the pool: this thread would do nothing but accept
        let served = tokio::spawn(server::serve_connections(
            listener,
            service,
            idle,
            self.stop.clone(),
            Arc::clone(&self.log),
        ));
        let served = served.await;
        // what they have stored is written to the disk afterwards
        self.direct_calls.end();
        tasks.shutdown().await;
        drop(socket);
        served.map_err(std::io::Error::other)?
    }
}
