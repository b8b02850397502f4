//! Two sandboxes, an owner, a node, and the messages between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sszip_core::cache::chain::{ChainChange, DispatchMark, HeightUnit};
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::entry::wire::EncodedEntry;
use sszip_core::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use sszip_core::cache::link::callouts::{CalloutId, CalloutResult};
use sszip_core::cache::link::{OwnerLink, OwnerLinkLimits};
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::process::flights::{
    CoalescingRole, FlightFollowerWakeup, FlightLeadership, FlightOutcome,
};
use sszip_core::cache::process::owner_client::{OwnerClient, OwnerLookup};
use sszip_core::cache::process::wake::{EventLoopId, WaitingRequestId, WokenRequestQueue};
use sszip_core::cache::process::ProcessCacheState;
use sszip_core::cache::{CacheKey, CacheNamespace};
use sszip_core::time_constants::memory_lease;

use crate::callout_owner::{CalloutNumber, CalloutOwner, CalloutResponse};
use crate::memory_store::{MemoryStore, StoreContents};

const SPACE: CacheNamespace = [0xab; 16];

/// Number of the keys.
const KEYS: u8 = 4;

/// The kind of response under a key of the test, which determines when it becomes invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EntryKind {
    /// The configuration of the node.
    Config,
    /// The head.
    Tip,
    /// A block by its number.
    Block(u64),
}

fn entry_kind(key: u8) -> EntryKind {
    match key {
        0 => EntryKind::Config,
        1 => EntryKind::Tip,
        // the first of these blocks is final from the start
        2 => EntryKind::Block(3),
        _ => EntryKind::Block(12),
    }
}

/// Returns a key that looks like a hash, on which the owner relies.
fn key(n: u8) -> CacheKey {
    let mut state = u64::from(n) + 1;
    [(); 32].map(|()| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    })
}

/// A step of the test: an event at a client, the owner, the node or the network.
#[derive(Clone, Debug)]
pub enum WorldStep {
    Want(usize, u8),
    /// All keys at once, as in a batch.
    WantAll(usize),
    Leave(usize, usize),
    /// A sandbox evicts a key from its memory.
    Evict(usize, u8),
    /// A callout arrives at the owner.
    Deliver(usize),
    /// A response arrives.
    Reply(usize),
    /// A callout fails.
    Lose(usize),
    /// A callout is lost without a failure, before its timeout.
    Silence(usize),
    /// Another server than the owner responds, or the response is damaged.
    Garbage(usize),
    NodeAnswers(usize, usize, u8),
    /// The operator purges a key, or everything.
    Purge(u8),
    /// A client of a sandbox purges everything.
    PurgeByClient(usize),
    Head,
    /// A number of blocks are replaced, and one is added.
    Reorg(u64),
    Pass(u64),
    /// The owner ends; another one starts now or later.
    Restart(bool),
}

/// A change of the chain that invalidates the entries that were fetched before it.
#[derive(Clone, Copy, Debug)]
enum ChainEvent {
    Reorg(u64),
    Head(u64),
}

/// A purge of one key, or of all.
#[derive(Clone, Copy, Debug)]
struct RequestedPurge {
    key: Option<u8>,
    generation: u64,
    /// Step at which the owner has received it.
    began: u64,
}

/// The way by which a client receives an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EntrySource {
    HotTier,
    /// A lookup or fetch of another client.
    Flight,
    /// A lookup at the owner that began with the client.
    OwnLookup,
}

/// A step and its time in milliseconds.
#[derive(Clone, Copy, Debug)]
struct StepTime {
    step: u64,
    ms: u64,
}

/// A client that waits for the response of its lookup.
struct WaitingClient {
    key: u8,
    began: StepTime,
    source: EntrySource,
    generation: u64,
    mark: Option<DispatchMark>,
    /// Whether the sandbox had a send lease.
    had_lease: bool,
}

/// A request in flight to the node, with the entry that its response will be.
struct NodeFetch {
    token: Option<FlightLeadership>,
    key: u8,
    entry: CacheEntry,
    /// Whether enough is known of the chain to store the response.
    is_storable: bool,
    generation: u64,
}

/// A simulated sandbox with its link, its clients and its fetches.
struct SimulatedSandbox {
    shared: ProcessCacheState,
    queue: Arc<WokenRequestQueue>,
    link: Arc<OwnerLink>,
    clients: BTreeMap<usize, WaitingClient>,
    /// The step at which each batch began.
    batches: BTreeMap<usize, StepTime>,
    /// The step at which each client has requested a purge.
    purges: BTreeMap<usize, u64>,
    fetches: Vec<NodeFetch>,
}

/// A callout without a result.
struct OpenCallout {
    sandbox: usize,
    id: CalloutId,
    timeout_at: u64,
}

/// Numbers of what the clients have received, without which the test would find no fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage {
    pub from_memory: usize,
    pub from_flights: usize,
    pub from_own_lookups: usize,
    /// Entries that another sandbox has fetched.
    pub from_other_sandboxes: usize,
    /// Entries that were sent after the purge of another key, or of older entries.
    pub after_purges: usize,
    pub purges_by_operator: usize,
    pub purges_by_clients: usize,
    pub long_entries: usize,
}

/// The simulated machine: sandboxes, an owner, a node, and the messages in flight between them.
pub struct SimulatedWorld {
    step: u64,
    now: u64,
    names: usize,
    last_callout: CalloutNumber,
    contents: Arc<StoreContents>,
    owner: Option<CalloutOwner>,
    sandboxes: Vec<SimulatedSandbox>,
    /// Messages in flight to the owner, and back.
    requests: Vec<(CalloutNumber, Vec<u8>)>,
    responses: Vec<(CalloutNumber, CalloutResponse)>,
    callouts: BTreeMap<CalloutNumber, OpenCallout>,
    head: u64,
    /// Changes of the chain.
    chain_events: Vec<(StepTime, ChainEvent)>,
    pending_purges: Vec<RequestedPurge>,
    complete_purges: Vec<RequestedPurge>,
    pub coverage: Coverage,
}

fn waiter(id: usize) -> WaitingRequestId {
    EventLoopId::default().waiter_of_request(id)
}

impl SimulatedSandbox {
    fn new(n: usize) -> Self {
        let shared = ProcessCacheState::default();
        shared.start_hot_tier(8 << 20, 1 << 20, 1);
        let queue = Arc::new(WokenRequestQueue::default());
        shared.add_event_loop(queue.clone());
        let name = OwnerClientName::new(&format!("vm-{n}")).unwrap();
        let limits = OwnerLinkLimits {
            // replies overtake each other in this time
            deadline: 100,
            ..OwnerLinkLimits::default()
        };
        let link = Arc::new(OwnerLink::new(name, limits));
        shared.set_owner_client(link.clone());
        Self {
            shared,
            queue,
            link,
            clients: BTreeMap::new(),
            batches: BTreeMap::new(),
            purges: BTreeMap::new(),
            fetches: Vec::new(),
        }
    }

    fn has_waiting_requests(&self) -> bool {
        let waiting = self.clients.len() + self.batches.len() + self.purges.len();
        waiting + self.fetches.len() > 0 || self.shared.flights.flight_count() > 0
    }
}

impl SimulatedWorld {
    pub fn new() -> Self {
        let mut world = Self {
            step: 0,
            now: 10_000,
            names: 0,
            last_callout: 0,
            contents: Arc::default(),
            owner: None,
            sandboxes: (0..2).map(SimulatedSandbox::new).collect(),
            requests: Vec::new(),
            responses: Vec::new(),
            callouts: BTreeMap::new(),
            head: 10,
            chain_events: Vec::new(),
            pending_purges: Vec::new(),
            complete_purges: Vec::new(),
            coverage: Coverage::default(),
        };
        world.start_owner();
        // its purges wait no longer for processes of an earlier owner
        world.now += 2 * memory_lease();
        world
    }

    fn step_time(&self) -> StepTime {
        StepTime {
            step: self.step,
            ms: self.now,
        }
    }

    fn clocks(&self) -> ClockReading {
        ClockReading {
            monotonic: self.now,
            unix: 1_700_000_000_000 + self.now,
        }
    }

    /// Starts an owner that follows the chain and knows nothing of it.
    fn start_owner(&mut self) {
        let now = self.clocks();
        let store = MemoryStore {
            contents: Arc::clone(&self.contents),
            // replies to lookups of some keys are late
            read_waits: |of| of[0] & 1 == 0,
        };
        let owner = Owner::new(Box::new(store), 16 << 20, now);
        owner.start_following_chain(SPACE, HeightUnit::Blocks, now);
        self.owner = Some(CalloutOwner::new(owner));
        let is_final = ChainChange::Final(Some(self.head - 5));
        let head = ChainChange::Head(self.head);
        self.change_chain(&[ChainChange::ChainVerified(true), head, is_final]);
        // the operator repeats those that were not reported as complete
        for purge in std::mem::take(&mut self.pending_purges) {
            self.purge(purge.key);
        }
    }

    /// Reports changes of the chain to the owner.
    fn change_chain(&self, changes: &[ChainChange]) {
        for change in changes {
            if let Some(CalloutOwner { owner, .. }) = &self.owner {
                owner.apply_chain_change(&SPACE, *change);
            }
        }
    }

    fn record_chain_event(&mut self, event: ChainEvent) {
        self.chain_events.push((self.step_time(), event));
    }

    pub fn run_step(&mut self, step: WorldStep) {
        self.step += 1;
        // no step ends before the next begins
        self.now += 1;
        match step {
            WorldStep::Want(at, key) => self.look_up_key(at, key),
            WorldStep::WantAll(at) => {
                let name = self.next_client_name();
                let keys = (0..KEYS).map(key).collect();
                let began = self.step_time();
                let sandbox = &mut self.sandboxes[at];
                sandbox.link.start_callouts();
                if sandbox
                    .link
                    .lookup_batch_at_owner(keys, waiter(name), self.now)
                {
                    sandbox.batches.insert(name, began);
                }
            }
            WorldStep::Leave(at, which) => self.remove_client(at, which),
            WorldStep::Evict(at, of) => {
                let hot = self.sandboxes[at].shared.hot_tier().unwrap();
                hot.remove(&key(of));
            }
            WorldStep::Deliver(which) => {
                if let Some((number, body)) = take_nth(&mut self.requests, which) {
                    self.deliver_to_owner(number, &body);
                }
            }
            WorldStep::Reply(which) => {
                if let Some((number, response)) = take_nth(&mut self.responses, which) {
                    self.deliver_response(number, Some(response));
                }
            }
            WorldStep::Lose(which) => {
                if let Some((number, _)) = take_nth(&mut self.requests, which) {
                    self.deliver_response(number, None);
                } else if let Some((number, _)) = take_nth(&mut self.responses, which) {
                    self.deliver_response(number, None);
                } else if let Some(number) = self.callouts.keys().next().copied() {
                    self.fail_callout(number);
                }
            }
            WorldStep::Silence(which) => {
                if take_nth(&mut self.responses, which).is_none() {
                    take_nth(&mut self.requests, which);
                }
            }
            WorldStep::Garbage(which) => {
                if let Some((number, (_, mut body))) = take_nth(&mut self.responses, which) {
                    let cut = which / 8 % body.len().max(1);
                    let response = match which % 4 {
                        0 => (503, b"no healthy upstream".to_vec()),
                        1 => (404, Vec::new()),
                        2 => (200, b"garbage".to_vec()),
                        _ => (200, body.drain(..cut).collect()),
                    };
                    self.deliver_response(number, Some(response));
                }
            }
            WorldStep::NodeAnswers(at, which, how) => self.node_answers(at, which, how),
            WorldStep::Purge(of) => self.purge(Some(of).filter(|of| *of < KEYS)),
            WorldStep::PurgeByClient(at) => {
                let name = self.next_client_name();
                let sandbox = &mut self.sandboxes[at];
                sandbox.link.start_callouts();
                let waits = sandbox.link.queue_purge(
                    r#"{"everything":true}"#.to_owned(),
                    waiter(name),
                    self.now,
                );
                assert!(waits);
                sandbox.purges.insert(name, self.step);
            }
            WorldStep::Head => {
                self.head += 1;
                let is_final = ChainChange::Final(Some(self.head - 5));
                self.change_chain(&[ChainChange::Head(self.head), is_final]);
                self.record_chain_event(ChainEvent::Head(self.head));
            }
            WorldStep::Reorg(depth) => {
                let from = self.head - depth;
                self.head += 1;
                self.change_chain(&[ChainChange::Reorg { from }, ChainChange::Head(self.head)]);
                self.record_chain_event(ChainEvent::Reorg(from));
                self.record_chain_event(ChainEvent::Head(self.head));
            }
            WorldStep::Pass(milliseconds) => {
                self.now += milliseconds;
                if self.owner.is_none() {
                    self.start_owner();
                }
            }
            WorldStep::Restart(at_once) => {
                // polls that wait there get no response
                self.owner = None;
                if at_once {
                    self.start_owner();
                }
            }
        }
        self.make_progress();
    }

    fn next_client_name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    /// Looks a key up for a client, as an exchange does.
    fn look_up_key(&mut self, at: usize, of: u8) {
        let (name, key) = (self.next_client_name(), key(of));
        let (began, now) = (self.step_time(), self.now);
        let sandbox = &mut self.sandboxes[at];
        let (link, shared) = (&sandbox.link, &sandbox.shared);
        link.start_callouts();
        let had_lease = shared.may_send_from_memory(now);
        let hot = shared.hot_tier().filter(|_| had_lease);
        if let Some(entry) = hot.and_then(|hot| hot.get(&key, now)) {
            return self.receive_entry(at, of, began, &entry, EntrySource::HotTier);
        }
        let mut client = WaitingClient {
            key: of,
            began,
            source: EntrySource::Flight,
            had_lease,
            generation: link.purge_generation(),
            mark: link.dispatch_mark(&SPACE),
        };
        let (coalesces, in_vain) = (name % 5 > 0, name % 7 == 0);
        if !coalesces && !link.is_owner_reachable() {
            return self.fetch_from_node(at, of, None);
        }
        match shared.flights.join_flight(key, waiter(name)).unwrap() {
            CoalescingRole::Follower => {}
            CoalescingRole::Leader(token) => {
                client.source = EntrySource::OwnLookup;
                let (flights, waiter) = (&shared.flights, waiter(name));
                match link.lookup_at_owner(flights, token, waiter, coalesces, in_vain, now) {
                    OwnerLookup::Missing(token) if coalesces => {
                        return self.fetch_from_node(at, of, Some(token));
                    }
                    OwnerLookup::Missing(token) => {
                        shared.finish_flight_and_wake(token, FlightOutcome::NotShareable);
                        return self.fetch_from_node(at, of, None);
                    }
                    _ => {}
                }
            }
        }
        sandbox.clients.insert(name, client);
    }

    /// Ends a client or a batch that waits.
    fn remove_client(&mut self, at: usize, which: usize) {
        let sandbox = &mut self.sandboxes[at];
        let names = sandbox.clients.keys().chain(sandbox.batches.keys());
        let names: Vec<_> = names.copied().collect();
        let Some(name) = which.checked_rem(names.len()).map(|nth| names[nth]) else {
            return;
        };
        sandbox.shared.forget_waiter(waiter(name));
        match sandbox.clients.remove(&name) {
            Some(client) => {
                let key = key(client.key);
                sandbox.shared.leave_flight(&key, waiter(name));
            }
            None => {
                sandbox.batches.remove(&name);
                sandbox.link.take_batch_entries(waiter(name));
            }
        }
    }

    /// Fetches a key from the node, as an exchange does after a miss.
    fn fetch_from_node(&mut self, at: usize, of: u8, token: Option<FlightLeadership>) {
        let sandbox = &mut self.sandboxes[at];
        let mark = sandbox.link.dispatch_mark(&SPACE);
        let is_known = mark.is_some_and(|mark| mark.is_known);
        let (class, height) = match entry_kind(of) {
            EntryKind::Config => (LifetimeClass::Config, None),
            // a response about the head shows the known one
            EntryKind::Tip => (LifetimeClass::Tip, mark.map(|mark| mark.seen)),
            EntryKind::Block(height) => {
                let is_final = is_known && mark.is_some_and(|mark| mark.is_height_final(height));
                let class =
                    [LifetimeClass::Unfinalized, LifetimeClass::Immutable][usize::from(is_final)];
                (class, Some(height))
            }
        };
        let meta = EntryMetadata {
            class,
            height,
            block_number: height.filter(|_| class != LifetimeClass::Tip),
            follows: mark.map(|mark| (SPACE, mark.epoch)),
            ..EntryMetadata::default()
        };
        let mut text = format!("{at} {of} {} {} ", self.step, self.head);
        if self.step.is_multiple_of(8) {
            text += &"x".repeat(300_000);
        }
        let payload = EntryPayload::Raw(text.into_bytes().into());
        let entry = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, meta);
        sandbox.fetches.push(NodeFetch {
            token,
            key: of,
            entry: entry.with_lifetime(self.now, 60_000),
            is_storable: is_known || class == LifetimeClass::Config,
            generation: sandbox.link.purge_generation(),
        });
    }

    /// Handles a response of the node, which is stored and published as by a fill, or is not
    /// shareable, or whose client has gone.
    fn node_answers(&mut self, at: usize, which: usize, how: u8) {
        let sandbox = &mut self.sandboxes[at];
        let Some(fetch) = take_nth(&mut sandbox.fetches, which) else {
            return;
        };
        let (link, shared) = (&sandbox.link, &sandbox.shared);
        let NodeFetch {
            token, generation, ..
        } = fetch;
        let key = key(fetch.key);
        let entry = fetch.entry.with_chain_dependency(link.followed_chains());
        let entry = Arc::new(entry);
        match how {
            0 => {
                if let Some(token) = token {
                    shared.hand_over_flight(token);
                }
                return;
            }
            1 => {}
            // a response that must not be stored
            2 => link.release_lease(key),
            _ if !fetch.is_storable => {}
            _ => {
                if let Some(stamp) = entry.chain_dependency() {
                    stamp.record_newer_entry_head();
                }
                let is_current = shared.purge_generation() == generation;
                if is_current && entry.is_unaffected_by_reorgs() {
                    shared.hot_tier().unwrap().insert_newest(key, &entry);
                }
                let about =
                    StoredEntryAttributes::attributes_for_entry(&entry, SPACE, None, generation);
                link.store_at_owner(key, Arc::clone(&entry), about.unwrap(), None, self.now);
            }
        }
        let is_current = shared.purge_generation() == generation;
        let outcome = match how > 1 && fetch.is_storable && is_current {
            true => FlightOutcome::Answer(entry),
            false => FlightOutcome::NotShareable,
        };
        if let Some(token) = token {
            shared.finish_flight_and_wake(token, outcome);
        }
    }

    fn purge(&mut self, key_number: Option<u8>) {
        let Some(CalloutOwner { owner, .. }) = &self.owner else {
            return;
        };
        let scope = match key_number {
            Some(of) => PurgeScope::Key(key(of)),
            None => PurgeScope::Everything,
        };
        let now = self.clocks();
        self.pending_purges.push(RequestedPurge {
            key: key_number,
            generation: owner.purge_entries(&scope, || now).unwrap(),
            began: self.step,
        });
    }

    fn deliver_to_owner(&mut self, number: CalloutNumber, body: &[u8]) {
        let now = self.clocks();
        match &mut self.owner {
            Some(owner) => owner.receive_callout(number, body, now),
            // Envoy's local response
            None => self.responses.push((number, (503, Vec::new()))),
        }
    }

    /// Delivers the response to a callout; without a response, it has failed.
    fn deliver_response(&mut self, number: CalloutNumber, response: Option<CalloutResponse>) {
        // it may have timed out
        let Some(callout) = self.callouts.remove(&number) else {
            return;
        };
        let result = match &response {
            Some((status, body)) => CalloutResult::Response {
                status: *status,
                body,
            },
            None => CalloutResult::Failed,
        };
        let sandbox = &self.sandboxes[callout.sandbox];
        sandbox
            .link
            .handle_callout_result(&sandbox.shared, callout.id, result, self.now);
    }

    /// Fails a callout, whose connection is closed.
    fn fail_callout(&mut self, number: CalloutNumber) {
        let now = self.clocks();
        if let Some(owner) = &mut self.owner {
            owner.abandon_callout(number, now);
        }
        self.deliver_response(number, None);
    }

    /// Has the owner respond, ends callouts that have timed out, and resumes the sandboxes.
    fn make_progress(&mut self) {
        let now = self.clocks();
        if let Some(owner) = &mut self.owner {
            self.responses.extend(owner.take_responses(now));
            let is_complete =
                |purge: &mut RequestedPurge| !owner.owner.is_purge_incomplete(purge.generation);
            let before = self.complete_purges.len();
            let complete = self.pending_purges.extract_if(.., is_complete);
            self.complete_purges.extend(complete);
            self.coverage.purges_by_operator += self.complete_purges.len() - before;
        }
        let timed_out = self.callouts.iter();
        let timed_out = timed_out.filter(|(_, callout)| callout.timeout_at <= self.now);
        let timed_out: Vec<_> = timed_out.map(|(number, _)| *number).collect();
        for number in timed_out {
            self.fail_callout(number);
        }
        for at in 0..self.sandboxes.len() {
            self.send_callouts(at);
            // a sandbox resumes few of them in each of its calls
            if let Some(name) = self.sandboxes[at].queue.next_woken_id() {
                self.resume_client(at, name);
                self.send_callouts(at);
            }
        }
    }

    fn send_callouts(&mut self, at: usize) {
        let sandbox = &self.sandboxes[at];
        while let Some(callout) = sandbox.link.next_callout(&sandbox.shared, self.now) {
            self.last_callout += 1;
            assert!(callout.timeout > 0 && callout.timeout <= 10_000);
            let open = OpenCallout {
                sandbox: at,
                id: callout.id,
                timeout_at: self.now + callout.timeout,
            };
            self.callouts.insert(self.last_callout, open);
            self.requests.push((self.last_callout, callout.body));
        }
        assert_ne!(sandbox.link.ms_until_next_callout(self.now), Some(0));
    }

    /// Resumes a woken client, as an exchange does.
    fn resume_client(&mut self, at: usize, name: usize) {
        let now = self.now;
        let sandbox = &mut self.sandboxes[at];
        let shared = &sandbox.shared;
        if let Some(began) = sandbox.batches.remove(&name) {
            let found = sandbox.link.take_batch_entries(waiter(name));
            if !shared.may_send_from_memory(now) {
                return;
            }
            for (found, entry) in found.into_iter().filter(|(_, entry)| entry.is_fresh(now)) {
                let of = (0..KEYS).find(|of| key(*of) == found).unwrap();
                self.receive_entry(at, of, began, &entry, EntrySource::OwnLookup);
            }
            return;
        }
        if let Some(began) = sandbox.purges.remove(&name) {
            let reply = sandbox.link.claim_admin_reply(waiter(name));
            if reply.is_some_and(|(status, _)| status == 200) {
                self.coverage.purges_by_clients += 1;
                self.complete_purges.push(RequestedPurge {
                    key: None,
                    generation: sandbox.link.purge_generation(),
                    began,
                });
            }
            return;
        }
        let Some(wakeup) = shared.flights.claim_wakeup(waiter(name)) else {
            return;
        };
        let client = sandbox.clients.remove(&name).unwrap();
        match wakeup {
            FlightFollowerWakeup::Lead(token) => {
                return self.fetch_from_node(at, client.key, Some(token));
            }
            FlightFollowerWakeup::Response(FlightOutcome::Answer(entry)) => {
                let may_receive = shared.may_send_from_memory(now)
                    && shared.purge_generation() == client.generation
                    && match client.had_lease {
                        true => entry.may_answer_dispatched_request(client.mark.as_ref()),
                        false => entry.is_valid_on_chain(),
                    };
                if may_receive {
                    let WaitingClient {
                        key, began, source, ..
                    } = client;
                    return self.receive_entry(at, key, began, &entry, source);
                }
            }
            FlightFollowerWakeup::Response(FlightOutcome::NotShareable) => {}
        }
        self.fetch_from_node(at, client.key, None);
    }

    /// Asserts that a client whose lookup began at `began` may receive the entry now.
    fn receive_entry(
        &mut self,
        at: usize,
        of: u8,
        began: StepTime,
        entry: &CacheEntry,
        source: EntrySource,
    ) {
        let bytes = EncodedEntry::from_entry(entry).unwrap().payload.to_vec();
        let text = String::from_utf8(bytes).unwrap();
        let mut words = text.split(' ').map_while(|word| word.parse::<u64>().ok());
        let mut word = || words.next().unwrap();
        let (by, key, fetched, head) = (word(), word(), word(), word());
        assert_eq!(key, u64::from(of));
        let coverage = &mut self.coverage;
        match source {
            EntrySource::HotTier => coverage.from_memory += 1,
            EntrySource::Flight => coverage.from_flights += 1,
            EntrySource::OwnLookup => coverage.from_own_lookups += 1,
        }
        coverage.from_other_sandboxes += usize::from(by != at as u64);
        coverage.after_purges += usize::from(!self.complete_purges.is_empty());
        coverage.long_entries += usize::from(text.len() > 300_000);
        let about = format!(
            "the entry {of}, fetched at {fetched} by {by}, was sent by {at} at {}",
            self.step
        );
        for purge in &self.complete_purges {
            let is_covered = purge.key.is_none_or(|key| key == of) && fetched < purge.began;
            assert!(!is_covered, "{about} after {purge:?}");
        }
        for (at, event) in &self.chain_events {
            let is_over = match (event, entry_kind(of)) {
                (ChainEvent::Reorg(_), EntryKind::Tip) => true,
                (ChainEvent::Reorg(from), EntryKind::Block(height)) => *from <= height,
                (ChainEvent::Head(new), EntryKind::Tip) => *new > head,
                _ => false,
            };
            let was_known = match source {
                EntrySource::OwnLookup => at.step < began.step,
                // send leases of before the event had ended
                EntrySource::HotTier | EntrySource::Flight => at.ms + memory_lease() <= began.ms,
            };
            assert!(
                !(is_over && at.step > fetched && was_known),
                "{about} to a client of {began:?} by {source:?} after {event:?} at {at:?}"
            );
        }
    }

    /// Completes all that is in flight, after which no client waits.
    pub fn finish_all(&mut self) {
        for _ in 0..1_000 {
            self.deliver_everything();
            let mut sandboxes = self.sandboxes.iter();
            if !sandboxes.any(SimulatedSandbox::has_waiting_requests) {
                break;
            }
        }
        for sandbox in &self.sandboxes {
            assert!(!sandbox.has_waiting_requests());
        }
        // lost messages time out
        for _ in 0..150 {
            self.deliver_everything();
        }
        assert!(self.pending_purges.is_empty());
        for sandbox in &self.sandboxes {
            assert_eq!(sandbox.link.ms_until_next_callout(self.now), None);
            let may_send = sandbox.shared.may_send_from_memory(self.now);
            assert_eq!(may_send, sandbox.link.has_started_callouts());
        }
        let owner = &self.owner.as_ref().unwrap().owner;
        assert_eq!(owner.owner_status_json()["leases"], 0);
    }

    fn deliver_everything(&mut self) {
        for _ in 0..self.requests.len() {
            self.run_step(WorldStep::Deliver(0));
        }
        for _ in 0..self.responses.len() {
            self.run_step(WorldStep::Reply(0));
        }
        for at in 0..self.sandboxes.len() {
            for _ in 0..self.sandboxes[at].fetches.len() {
                self.run_step(WorldStep::NodeAnswers(at, 0, 7));
            }
        }
        self.run_step(WorldStep::Pass(100));
    }
}

fn take_nth<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    let at = which.checked_rem(from.len())?;
    Some(from.remove(at))
}
