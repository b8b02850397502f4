//! Two processes share one owner, which runs in the first one: this process makes direct calls, the
//! other one sends messages. Purges, and the end of the owner, come at any time. No request receives an entry that was purged before the request, and each request ends.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::collections::HashSet;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use sszip_core::cache::link::direct_owner::{DirectOwner, DirectReply};
use sszip_core::cache::link::{LinkAction, OwnerLink};
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::owner_protocol::outgoing_frame::MAX_SENT_HEAD_BYTES;
use sszip_core::cache::owner_protocol::process_message::StoreRequest;
use sszip_core::cache::process::flights::{
    CoalescingRole, FlightFollowerWakeup, FlightLeadership, FlightOutcome,
};
use sszip_core::cache::process::owner_client::{
    OwnerClient, OwnerLookup, OwnerLookupOptions, OwnerStoreOptions,
};
use sszip_core::cache::process::wake::{EventLoopId, EventLoopWaker};
use sszip_core::cache::process::ProcessCacheState;
use sszip_core::cache::CacheKey;
use sszip_owner::clock::read_clocks;
use sszip_owner::config::OwnerConfig;
use sszip_owner::direct_calls::DirectCalls;
use sszip_owner::log::LogFunction;
use sszip_owner::open_store::create_store_opener;
use sszip_owner::owner_lifecycle::{OwnerLifecycleStage, RunningOwnerHandle};

/// Longer than any request takes: a request that waits so long was never woken.
const LIMIT: Duration = Duration::from_secs(120);

/// Number of different keys.
const KEYS: u64 = 6;

const SPACE: [u8; 16] = [3; 16];

fn now() -> u64 {
    read_clocks().monotonic
}

/// Starts an owner with its store in a folder.
fn start_owner(folder: &Path) -> RunningOwnerHandle {
    let mut config =
        OwnerConfig::from_socket_and_store_paths(folder.join("socket"), folder.join("store"));
    config.max_size = 64 << 20;
    config.memory = 1 << 20;
    let log: LogFunction = Arc::new(|_, _| {});
    let open = create_store_opener(&config.path, config.max_size, Arc::clone(&log));
    let running = RunningOwnerHandle::start_owner_threads(config, open, log).unwrap();
    running.wait_until_owner_serves(LIMIT);
    assert_eq!(
        running.owner_lifecycle_state(),
        OwnerLifecycleStage::Serving
    );
    running
}

/// The owner of this process, which may be replaced, and the numbers of handled calls.
#[derive(Debug, Default)]
struct OwnerOfProcess {
    calls: Mutex<Arc<DirectCalls>>,
    found: AtomicUsize,
    missing: AtomicUsize,
    stored: AtomicUsize,
    not_handled: AtomicUsize,
}

impl OwnerOfProcess {
    fn calls(&self) -> Arc<DirectCalls> {
        Arc::clone(&self.calls.lock().unwrap())
    }
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl DirectOwner for OwnerOfProcess {
    fn lookup(
        &self,
        session: u64,
        key: &CacheKey,
        lease: Option<u32>,
        fleet_wait: u16,
    ) -> Option<DirectReply> {
        let lease = lease.unwrap_or(0);
        let reply = self
            .calls()
            .lookup(session, key, lease, fleet_wait, |entry| {
                DirectReply::Found {
                    generation: entry.generation,
                    fresh: entry.fresh,
                    age: entry.age,
                    bytes: entry.bytes.to_vec(),
                }
            });
        // another thread runs before the reply is used
        std::thread::yield_now();
        match reply {
            Some(Ok(found)) => {
                count(&self.found);
                Some(found)
            }
            Some(Err(lease)) => {
                count(&self.missing);
                Some(DirectReply::Missing(lease))
            }
            None => {
                count(&self.not_handled);
                None
            }
        }
    }

    fn store(&self, session: u64, store: &StoreRequest) -> bool {
        let mut buffer = [0; MAX_SENT_HEAD_BYTES];
        let head = store.serialize_head(&mut buffer).unwrap();
        let is_stored = self.calls().store(session, head, store.entry.parts());
        if is_stored {
            count(&self.stored);
        }
        is_stored
    }

    fn release(&self, session: u64, key: &CacheKey) -> bool {
        self.calls().release(session, key)
    }
}

/// The waker of one thread, with the ids that were woken.
#[derive(Debug, Default)]
struct ThreadWaker {
    woken: Mutex<HashSet<usize>>,
    changed: Condvar,
}

impl ThreadWaker {
    fn wait_for(&self, id: usize) {
        let woken = self.woken.lock().unwrap();
        let (mut woken, timeout) = self
            .changed
            .wait_timeout_while(woken, LIMIT, |woken| !woken.contains(&id))
            .unwrap();
        assert!(!timeout.timed_out(), "request {id} was not woken");
        woken.remove(&id);
    }
}

impl EventLoopWaker for ThreadWaker {
    fn wake(&self, id: usize) {
        self.woken.lock().unwrap().insert(id);
        self.changed.notify_all();
    }

    fn cancel_wakeup(&self, _id: usize) {}
}

/// A process: its shared state, and its link, which a thread drives.
struct Process {
    shared: Arc<ProcessCacheState>,
    link: Arc<OwnerLink>,
    has_ended: AtomicBool,
}

impl Process {
    fn new(name: &str, direct: Option<Arc<OwnerOfProcess>>) -> Self {
        let shared = Arc::<ProcessCacheState>::default();
        shared.start_hot_tier(1 << 20, 1 << 20, 4);
        let mut link = OwnerLink::new(OwnerClientName::new(name).unwrap(), 1 << 20);
        link.set_lookup_timeout(10_000);
        if let Some(direct) = direct {
            link = link.attach_direct_owner(direct, &shared);
        }
        let link = Arc::new(link);
        shared.set_owner_client(link.clone());
        Self {
            shared,
            link,
            has_ended: AtomicBool::new(false),
        }
    }

    /// Carries the bytes of the link until the process ends.
    fn drive_link(&self, socket: &PathBuf) {
        let mut stream: Option<UnixStream> = None;
        let mut tick_at = 0;
        while !self.has_ended.load(Ordering::Acquire) {
            while let Some(action) = self.link.next_action() {
                match action {
                    LinkAction::Tick => tick_at = now() + self.link.tick(&self.shared, now()),
                    LinkAction::Close => stream = None,
                    LinkAction::Connect => {
                        let before = now();
                        let opened = UnixStream::connect(socket);
                        let is_absent = |error: &std::io::Error| {
                            matches!(
                                error.kind(),
                                ErrorKind::ConnectionRefused | ErrorKind::NotFound
                            )
                        };
                        if opened.as_ref().is_err_and(is_absent) {
                            self.link.handle_connection_refused(&self.shared, before);
                        }
                        stream = opened.ok();
                        if let Some(stream) = &stream {
                            let patience = Duration::from_millis(1);
                            stream.set_read_timeout(Some(patience)).unwrap();
                        }
                        let is_open = stream.is_some();
                        self.link
                            .handle_connection_opened(&self.shared, is_open, now());
                    }
                    LinkAction::Write => self.write(stream.as_mut().unwrap()),
                }
            }
            match &mut stream {
                Some(open) => {
                    if !self.read(open) {
                        stream = None;
                        self.link.handle_connection_closed(&self.shared, now());
                    }
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
            if now() >= tick_at {
                tick_at = now() + self.link.tick(&self.shared, now());
            }
        }
    }

    fn write(&self, stream: &mut UnixStream) {
        let mut written = 1;
        while written > 0 {
            self.link
                .pass_unwritten_pieces(&self.shared, now(), |pieces| {
                    let slices: Vec<_> = pieces.take(16).map(IoSlice::new).collect();
                    // the read reports a connection that was closed
                    written = match slices.is_empty() {
                        true => 0,
                        false => stream.write_vectored(&slices).unwrap_or(0),
                    };
                    written
                });
        }
    }

    /// Returns whether the connection is open.
    fn read(&self, stream: &mut UnixStream) -> bool {
        let mut result = Ok(0);
        let is_open = self
            .link
            .pass_read_buffer(|room| result = stream.read(room));
        match result {
            Err(error) => matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ),
            Ok(bytes) if is_open && bytes > 0 => {
                self.link.report_read_bytes(&self.shared, bytes, now());
                true
            }
            Ok(_) => false,
        }
    }
}

/// The node, whose responses have its version, and the newest version before which all are purged.
#[derive(Default)]
struct Node {
    version: AtomicU64,
    purged: AtomicU64,
}

fn entry_of_version(version: u64) -> CacheEntry {
    let metadata = EntryMetadata {
        class: LifetimeClass::Immutable,
        ..EntryMetadata::default()
    };
    let payload = EntryPayload::Raw(version.to_le_bytes().to_vec().into());
    let entry = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, metadata);
    entry.with_lifetime(now(), 600_000)
}

fn check_version(entry: &CacheEntry, oldest: u64) {
    let EntryPayload::Raw(bytes) = entry.stored_payload() else {
        panic!()
    };
    let version = u64::from_le_bytes(bytes[..].try_into().unwrap());
    assert!(version >= oldest, "{version} is older than {oldest}");
}

/// A client of a process, on a thread of its own.
struct Client<'a> {
    process: &'a Process,
    node: &'a Node,
    waker: Arc<ThreadWaker>,
    event_loop: EventLoopId,
    random: u64,
}

impl Client<'_> {
    fn number_below(&mut self, most: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % most
    }

    fn run(&mut self, requests: usize) {
        for id in 1..=requests {
            match self.number_below(60) {
                0 => self.purge(id),
                _ => self.request(id),
            }
        }
    }

    /// Purges all that was fetched before.
    fn purge(&mut self, id: usize) {
        let link = &self.process.link;
        let waiter = self.event_loop.waiter_of_request(id);
        let version = self.node.version.fetch_add(1, Ordering::SeqCst) + 1;
        let scope = "{\"everything\":true}".to_owned();
        if !link.queue_purge(scope, waiter, now()) {
            return;
        }
        self.waker.wait_for(id);
        // it fails while the owner is restarted
        if let Some((200, _)) = link.claim_admin_reply(waiter) {
            self.node.purged.fetch_max(version, Ordering::SeqCst);
        }
    }

    fn request(&mut self, id: usize) {
        let (shared, link) = (&self.process.shared, &self.process.link);
        let oldest = self.node.purged.load(Ordering::SeqCst);
        let since = shared.purge_generation();
        let key = [u8::try_from(self.number_below(KEYS)).unwrap(); 32];
        let hot = self.process.shared.hot_tier().unwrap();
        if shared.may_send_from_memory(now()) {
            if let Some(entry) = hot.get(&key, now()) {
                check_version(&entry, oldest);
                if self.number_below(2) == 0 {
                    hot.remove(&key);
                }
                return;
            }
        }
        let (shared, link) = (Arc::clone(shared), Arc::clone(link));
        let waiter = self.event_loop.waiter_of_request(id);
        let may_send = || shared.may_send_from_memory(now()) && shared.is_unpurged_since(since);
        match shared.flights.join_flight(key, waiter).unwrap() {
            CoalescingRole::Follower => {}
            CoalescingRole::Leader(token) => {
                let options = OwnerLookupOptions {
                    leases: true,
                    ..OwnerLookupOptions::default()
                };
                match link.lookup_at_owner(&shared.flights, token, waiter, options, now()) {
                    OwnerLookup::Found(entry) => {
                        if may_send() {
                            check_version(&entry, oldest);
                        }
                        return;
                    }
                    OwnerLookup::Missing(token) => return self.fetch(token),
                    OwnerLookup::Pending => {}
                }
            }
        }
        self.waker.wait_for(id);
        match shared.flights.claim_wakeup(waiter) {
            Some(FlightFollowerWakeup::Lead(token)) => self.fetch(token),
            Some(FlightFollowerWakeup::Response(FlightOutcome::Answer(entry))) => {
                if may_send() {
                    check_version(&entry, oldest);
                }
            }
            Some(FlightFollowerWakeup::Response(FlightOutcome::NotShareable)) => {}
            None => panic!("request {id} was woken without a reason"),
        }
    }

    /// Fetches a response from the node, and stores it; or fails.
    fn fetch(&mut self, token: FlightLeadership) {
        let (shared, link) = (&self.process.shared, &self.process.link);
        let generation = shared.purge_generation();
        let entry = Arc::new(entry_of_version(self.node.version.load(Ordering::SeqCst)));
        std::thread::yield_now();
        let key = *token.flight_key();
        let fate = {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005) | 1;
            self.random >> 60
        };
        match fate {
            0 => shared.hand_over_flight(token),
            1 => shared.finish_flight_and_wake(token, FlightOutcome::NotShareable),
            _ => {
                let about =
                    StoredEntryAttributes::attributes_for_entry(&entry, SPACE, None, generation);
                let is_current = || shared.purge_generation() == generation;
                let hot = shared.hot_tier().unwrap();
                if fate % 2 == 0 {
                    // the next requests look up the other entries at the owner
                    hot.insert_newest_if(key, &entry, is_current);
                }
                link.store_at_owner(
                    key,
                    Arc::clone(&entry),
                    about.unwrap(),
                    OwnerStoreOptions::default(),
                    now(),
                );
                shared.publish_to_followers(token, entry, generation);
            }
        }
    }
}

/// Ends the threads of the links when it is dropped, after a panic, too.
struct EndOfProcesses<'a>(&'a [Process]);

impl Drop for EndOfProcesses<'_> {
    fn drop(&mut self) {
        for process in self.0 {
            process.has_ended.store(true, Ordering::Release);
        }
    }
}

#[test]
fn direct_calls_and_messages_obey_the_same_purges_and_leases() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let owner = Arc::<OwnerOfProcess>::default();
    let mut running = start_owner(folder.path());
    *owner.calls.lock().unwrap() = Arc::clone(running.direct_calls());
    let processes = [
        Process::new("direct", Some(Arc::clone(&owner))),
        Process::new("distant", None),
    ];
    let node = Node::default();
    std::thread::scope(|scope| {
        let end = EndOfProcesses(&processes);
        for process in &processes {
            let socket = &socket;
            scope.spawn(move || process.drive_link(socket));
        }
        let mut clients = Vec::new();
        for number in 0..6_u64 {
            let process = &processes[usize::from(number >= 4)];
            let waker = Arc::<ThreadWaker>::default();
            let mut client = Client {
                process,
                node: &node,
                event_loop: process.shared.add_event_loop(waker.clone()),
                waker,
                random: number + 1,
            };
            let requests = if number < 4 { 800 } else { 200 };
            clients.push(scope.spawn(move || client.run(requests)));
        }
        // the owner ends and starts while the clients run
        for _ in 0..3 {
            let handled = owner.found.load(Ordering::Relaxed);
            let is_idle = || owner.found.load(Ordering::Relaxed) < handled + 50;
            while is_idle() && !clients.iter().all(|client| client.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(running.stop_owner_within(LIMIT));
            running = start_owner(folder.path());
            *owner.calls.lock().unwrap() = Arc::clone(running.direct_calls());
        }
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        drop(end);
        for result in results {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
    for process in &processes {
        assert_eq!(process.shared.flights.flight_count(), 0);
    }
    let counts = [&owner.found, &owner.missing, &owner.stored];
    let counts = counts.map(|counter| counter.load(Ordering::Relaxed));
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    assert!(node.purged.load(Ordering::SeqCst) > 10);
    assert!(running.stop_owner_within(LIMIT));
    // an owner that has ended handles no call
    let calls = running.direct_calls();
    assert!(calls.lookup(1, &[0; 32], 1, 0, |_| ()).is_none());
    assert!(!calls.release(1, &[0; 32]));
}
