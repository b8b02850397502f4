//! Two sandboxes, an owner, a node, and the messages between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sszip_core::cache::chain::{ChainChange, DispatchMark};
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::entry::wire::EncodedEntry;
use sszip_core::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use sszip_core::cache::link::callout::{
    CalloutId, CalloutLimits, OwnerCallout, OwnerCalloutClient,
};
use sszip_core::cache::link::{OwnerReply, OwnerRequest};
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::process::flights::{
    CoalescingRole, FlightFollowerWakeup, FlightLeadership, FlightOutcome,
};
use sszip_core::cache::process::owner_client::{OwnerClient, PendingFlightResponse};
use sszip_core::cache::process::wake::{EventLoopId, WaitingRequestId, WokenRequestQueue};
use sszip_core::cache::process::ProcessCacheState;
use sszip_core::cache::{CacheKey, CacheNamespace};

use crate::daemon::{RequestId, SimulatedDaemon, StoreContents};

const SPACE: CacheNamespace = [0xab; 16];

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
    /// A request arrives at the owner.
    Deliver(usize),
    /// A reply arrives.
    Reply(usize),
    /// A call fails.
    Lose(usize),
    /// A call is lost without a failure.
    Silence(usize),
    /// Another server than the owner responds.
    Garbage(usize),
    NodeAnswers(usize, usize, u8),
    /// A purge of a key, or of everything.
    Purge(u8),
    Head,
    /// A number of blocks are replaced, and one is added.
    Reorg(u64),
    Pass(u64),
    /// The owner ends; another one starts now or later.
    Restart(bool),
}

/// A change that invalidates the entries that were fetched before it.
#[derive(Clone, Copy, Debug)]
enum InvalidatingChange {
    Purged(Option<u8>),
    Reorg(u64),
    Head(u64),
}

/// A client that waits for the response of its lookup.
struct WaitingClient {
    key: u8,
    began: u64,
    generation: u64,
    mark: Option<DispatchMark>,
}

/// A request in flight to the node, with the entry that its response will be.
struct NodeFetch {
    token: Option<FlightLeadership>,
    key: u8,
    entry: CacheEntry,
    generation: u64,
}

/// A simulated sandbox with its callout client, its clients and its fetches.
struct SimulatedSandbox {
    shared: ProcessCacheState,
    queue: Arc<WokenRequestQueue>,
    calls: Arc<OwnerCalloutClient>,
    clients: BTreeMap<usize, WaitingClient>,
    /// The step at which each batch began.
    batches: BTreeMap<usize, u64>,
    fetches: Vec<NodeFetch>,
}

/// The simulated machine: sandboxes, an owner, a node, and the messages in flight between them.
pub struct SimulatedWorld {
    step: u64,
    now: u64,
    names: usize,
    ids: RequestId,
    shelf: Arc<StoreContents>,
    daemon: Option<SimulatedDaemon>,
    vms: Vec<SimulatedSandbox>,
    /// Messages in flight to the owner, and back.
    requests: Vec<(RequestId, OwnerRequest)>,
    replies: Vec<(RequestId, OwnerReply)>,
    /// The sandbox and ticket of each call.
    calls: HashMap<RequestId, (usize, CalloutId)>,
    /// The sandbox and client on whose behalf a call was sent, and with which it ends.
    own: HashMap<RequestId, (usize, usize)>,
    head: u64,
    happened: Vec<(u64, InvalidatingChange)>,
    /// Number of entries received from a shared fetch, and of those that another sandbox fetched.
    pub shared: usize,
    pub from_others: usize,
}

/// Sends a call to the owner.
fn send_callout(
    calls: &mut HashMap<RequestId, (usize, CalloutId)>,
    requests: &mut Vec<(RequestId, OwnerRequest)>,
    (id, at): (RequestId, usize),
    call: OwnerCallout,
) {
    assert!(call.timeout > 0 && call.timeout <= 10_000);
    calls.insert(id, (at, call.ticket));
    requests.push((id, call.message));
}

fn waiter(id: usize) -> WaitingRequestId {
    EventLoopId::default().waiter_of_request(id)
}

impl SimulatedWorld {
    pub fn new() -> Self {
        let mut world = Self {
            step: 0,
            now: 10_000,
            names: 0,
            ids: 0,
            shelf: Arc::default(),
            daemon: None,
            vms: Vec::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            calls: HashMap::new(),
            own: HashMap::new(),
            head: 10,
            happened: Vec::new(),
            shared: 0,
            from_others: 0,
        };
        for n in 0..2 {
            let shared = ProcessCacheState::default();
            let queue = Arc::new(WokenRequestQueue::default());
            shared.add_event_loop(queue.clone());
            let bounds = CalloutLimits {
                most: 8,
                most_waits: 2,
                ..CalloutLimits::default()
            };
            let calls = Arc::new(OwnerCalloutClient::new(format!("vm-{n}"), bounds));
            shared.set_owner_client(calls.clone());
            world.vms.push(SimulatedSandbox {
                shared,
                queue,
                calls,
                clients: BTreeMap::new(),
                batches: BTreeMap::new(),
                fetches: Vec::new(),
            });
        }
        world.start();
        world
    }

    fn time(&self) -> ClockReading {
        ClockReading {
            monotonic: self.now,
            unix: 1_700_000_000_000 + self.now,
        }
    }

    fn start(&mut self) {
        let daemon = SimulatedDaemon::start(&self.shelf, SPACE, self.time());
        let last = ChainChange::Final(Some(self.head - 5));
        daemon.apply_chain_changes(
            &SPACE,
            &[
                ChainChange::ChainVerified(true),
                ChainChange::Head(self.head),
                last,
            ],
        );
        self.daemon = Some(daemon);
    }

    fn moves(&mut self, moves: &[ChainChange], happened: &[InvalidatingChange]) {
        if let Some(daemon) = &self.daemon {
            daemon.apply_chain_changes(&SPACE, moves);
        }
        let step = self.step;
        self.happened.extend(happened.iter().map(|it| (step, *it)));
    }

    pub fn run_step(&mut self, step: WorldStep) {
        self.step += 1;
        // no step ends before the next begins
        self.now += 1;
        match step {
            WorldStep::Want(vm, key) => self.look_up_key(vm, key),
            WorldStep::WantAll(at) => {
                let name = self.next_client_name();
                let keys = (0..4).map(key).collect();
                let (step, now) = (self.step, self.now);
                let vm = &mut self.vms[at];
                if vm
                    .calls
                    .lookup_batch_at_owner(keys, &SPACE, waiter(name), now)
                {
                    vm.batches.insert(name, step);
                    self.send_client_calls(at, name);
                }
            }
            WorldStep::Leave(at, which) => {
                let vm = &mut self.vms[at];
                let gone = vm
                    .clients
                    .keys()
                    .nth(which % vm.clients.len().max(1))
                    .copied();
                if let Some((gone, client)) = gone.and_then(|gone| vm.clients.remove_entry(&gone)) {
                    vm.shared.forget_waiter(waiter(gone));
                    vm.shared.leave_flight(&key(client.key), waiter(gone));
                    self.end_client(at, gone);
                }
            }
            WorldStep::Deliver(which) => {
                if let Some((id, message)) = take_nth(&mut self.requests, which) {
                    self.deliver_to_owner(id, message);
                }
            }
            WorldStep::Reply(which) => {
                if let Some((id, answer)) = take_nth(&mut self.replies, which) {
                    self.deliver_reply(id, Some(answer));
                }
            }
            WorldStep::Lose(which) => {
                if let Some((id, _)) = take_nth(&mut self.requests, which) {
                    self.deliver_reply(id, None);
                } else if let Some((id, _)) = take_nth(&mut self.replies, which) {
                    self.deliver_reply(id, None);
                } else if let Some(id) = self.calls.keys().min().copied() {
                    // the client's timeout has passed
                    self.daemon
                        .iter_mut()
                        .for_each(|daemon| daemon.drop_lookup(id));
                    self.deliver_reply(id, None);
                }
            }
            WorldStep::Silence(which) => {
                if take_nth(&mut self.replies, which).is_none() {
                    take_nth(&mut self.requests, which);
                }
            }
            WorldStep::Garbage(which) => {
                if let Some((id, _)) = take_nth(&mut self.replies, which) {
                    let status = if which % 2 == 0 { 503 } else { 404 };
                    let answer = OwnerReply {
                        status,
                        ..OwnerReply::default()
                    };
                    self.deliver_reply(id, Some(answer));
                }
            }
            WorldStep::NodeAnswers(vm, which, how) => self.node_answers(vm, which, how),
            WorldStep::Purge(of) => self.purge(of),
            WorldStep::Head => {
                self.head += 1;
                let last = ChainChange::Final(Some(self.head - 5));
                let head = self.head;
                self.moves(
                    &[ChainChange::Head(head), last],
                    &[InvalidatingChange::Head(head)],
                );
            }
            WorldStep::Reorg(depth) => {
                let from = self.head - depth;
                self.head += 1;
                let head = self.head;
                self.moves(
                    &[ChainChange::Reorg { from }, ChainChange::Head(head)],
                    &[
                        InvalidatingChange::Reorg(from),
                        InvalidatingChange::Head(head),
                    ],
                );
            }
            WorldStep::Pass(milliseconds) => {
                self.now += milliseconds;
                if self.daemon.is_none() {
                    self.start();
                }
            }
            WorldStep::Restart(at_once) => {
                // requests that wait there get no reply
                self.daemon = None;
                if at_once {
                    self.start();
                }
            }
        }
        self.send_and_resume();
    }

    fn next_client_name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    /// Looks a key up for a client, as an exchange does.
    fn look_up_key(&mut self, at: usize, of: u8) {
        let (name, key) = (self.next_client_name(), key(of));
        let (step, now) = (self.step, self.now);
        let vm = &mut self.vms[at];
        let client = WaitingClient {
            key: of,
            began: step,
            generation: vm.calls.purge_generation(),
            mark: vm.calls.dispatch_mark(&SPACE, now),
        };
        let coalesces = vm.calls.may_follow_flights();
        if !coalesces && !vm.calls.is_owner_reachable() {
            return self.fetch_from_node(at, of, None);
        }
        match vm.shared.flights.join_flight(key, waiter(name)).unwrap() {
            CoalescingRole::Follower => {}
            CoalescingRole::Leader(token) => {
                vm.shared
                    .flights
                    .follow_own_flight(&token, waiter(name))
                    .unwrap();
                let in_vain = name % 7 == 0;
                match vm
                    .calls
                    .lookup_at_owner(key, token, &SPACE, coalesces, in_vain, now)
                {
                    Ok(()) => {}
                    Err(token) => {
                        vm.shared.flights.remove_follower(&key, waiter(name));
                        return match coalesces {
                            true => self.fetch_from_node(at, of, Some(token)),
                            false => vm
                                .shared
                                .finish_flight_and_wake(token, FlightOutcome::NotShareable),
                        };
                    }
                }
            }
        }
        vm.clients.insert(name, client);
        self.send_client_calls(at, name);
    }

    /// Fetches a key from the node, as an exchange does after a miss.
    fn fetch_from_node(&mut self, at: usize, of: u8, token: Option<FlightLeadership>) {
        let vm = &mut self.vms[at];
        let mark = vm.calls.dispatch_mark(&SPACE, self.now);
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
        let text = format!("{at} {of} {} {}", self.step, self.head);
        let payload = EntryPayload::Raw(text.into_bytes().into());
        let entry = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, meta);
        vm.fetches.push(NodeFetch {
            token,
            key: of,
            entry: entry.with_stored_time_and_ttl(self.now, 60_000),
            generation: vm.calls.purge_generation(),
        });
    }

    /// Handles a response of the node, which is published as by a fill, or is not shareable, or
    /// whose client has gone.
    fn node_answers(&mut self, at: usize, which: usize, how: u8) {
        let vm = &mut self.vms[at];
        let Some(NodeFetch {
            token,
            key: of,
            entry,
            generation,
        }) = take_nth(&mut vm.fetches, which)
        else {
            return;
        };
        let key = key(of);
        match (how, token) {
            (0, Some(token)) => vm.shared.hand_over_flight(token),
            (1, Some(token)) => vm
                .shared
                .finish_flight_and_wake(token, FlightOutcome::NotShareable),
            (0 | 1, None) => {}
            (2, token) => {
                // a response that must not be stored
                vm.calls.release_lease(key);
                if let Some(token) = token {
                    self.publish_response(at, token, entry, generation);
                }
            }
            (_, token) => {
                let entry = entry.with_chain_dependency(vm.calls.followed_chains());
                if let Some(stamp) = entry.chain_dependency() {
                    stamp.record_newer_entry_head();
                }
                let entry = Arc::new(entry);
                let about =
                    StoredEntryAttributes::attributes_for_entry(&entry, SPACE, None, generation)
                        .unwrap();
                vm.calls
                    .store_at_owner(key, Arc::clone(&entry), about, None);
                if let Some(token) = token {
                    vm.shared.publish_to_followers(PendingFlightResponse {
                        token,
                        entry,
                        generation,
                    });
                }
            }
        }
    }

    fn publish_response(
        &mut self,
        at: usize,
        token: FlightLeadership,
        entry: CacheEntry,
        generation: u64,
    ) {
        self.vms[at]
            .shared
            .publish_to_followers(PendingFlightResponse {
                token,
                entry: Arc::new(entry),
                generation,
            });
    }

    fn purge(&mut self, of: u8) {
        let Some(daemon) = &self.daemon else {
            return;
        };
        let (scope, of) = match of {
            0..4 => (PurgeScope::Key(key(of)), Some(of)),
            _ => (PurgeScope::Everything, None),
        };
        let time = self.time();
        daemon.owner.purge_entries(&scope, || time).unwrap();
        self.happened
            .push((self.step, InvalidatingChange::Purged(of)));
    }

    fn deliver_to_owner(&mut self, id: RequestId, message: OwnerRequest) {
        let time = self.time();
        let answer = match &mut self.daemon {
            Some(daemon) => daemon.handle_request(id, message, time),
            // Envoy's local reply
            None => Some(OwnerReply {
                status: 503,
                ..OwnerReply::default()
            }),
        };
        self.replies.extend(answer.map(|answer| (id, answer)));
    }

    fn deliver_reply(&mut self, id: RequestId, answer: Option<OwnerReply>) {
        let Some((at, ticket)) = self.calls.remove(&id) else {
            return;
        };
        let vm = &self.vms[at];
        match answer {
            Some(answer) => vm
                .calls
                .callout_answered(&vm.shared, ticket, answer, self.now),
            None => vm.calls.callout_failed(&vm.shared, ticket, self.now),
        }
    }

    /// Sends the calls of the hosts, and resumes the woken clients.
    fn send_and_resume(&mut self) {
        let time = self.time();
        if let Some(daemon) = &mut self.daemon {
            self.replies.extend(daemon.ended_lookups(time));
        }
        for at in 0..2 {
            while {
                self.send_root_calls(at);
                let woken = self.vms[at].queue.next_woken_id();
                woken.map(|name| self.resume_client(at, name)).is_some()
            } {}
        }
    }

    fn send_root_calls(&mut self, at: usize) {
        let vm = &self.vms[at];
        while let Some(call) = vm.calls.next_callout(&vm.shared, self.now) {
            self.ids += 1;
            send_callout(&mut self.calls, &mut self.requests, (self.ids, at), call);
        }
    }

    /// Sends the calls on behalf of a client.
    fn send_client_calls(&mut self, at: usize, name: usize) {
        let vm = &self.vms[at];
        while let Some(call) = vm
            .calls
            .next_callout_for_stream(&vm.shared, waiter(name), self.now)
        {
            self.ids += 1;
            self.own.insert(self.ids, (at, name));
            send_callout(&mut self.calls, &mut self.requests, (self.ids, at), call);
        }
    }

    /// Ends a client, with the calls on its behalf.
    fn end_client(&mut self, at: usize, name: usize) {
        let mut ids: Vec<RequestId> = self
            .own
            .extract_if(|_, of| *of == (at, name))
            .map(|(id, _)| id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            if let Some((_, ticket)) = self.calls.remove(&id) {
                self.daemon
                    .iter_mut()
                    .for_each(|daemon| daemon.drop_lookup(id));
                let vm = &self.vms[at];
                vm.calls.abandon_callout(&vm.shared, ticket, self.now);
            }
        }
    }

    /// Resumes a woken client, as an exchange does.
    fn resume_client(&mut self, at: usize, name: usize) {
        let vm = &mut self.vms[at];
        if let Some(began) = vm.batches.remove(&name) {
            for (found, entry) in vm.calls.take_batch_entries(waiter(name)) {
                let of = (0..4).find(|of| key(*of) == found).unwrap();
                self.assert_valid(at, of, began, &entry);
            }
            return self.end_client(at, name);
        }
        let Some(turn) = vm.shared.flights.claim_wakeup(waiter(name)) else {
            return;
        };
        let Some(client) = vm.clients.remove(&name) else {
            panic!("it has gone");
        };
        match turn {
            FlightFollowerWakeup::Lead(token) => self.fetch_from_node(at, client.key, Some(token)),
            FlightFollowerWakeup::Response(FlightOutcome::Answer(entry)) => {
                let is_current = vm.calls.purge_generation() == client.generation;
                if is_current && entry.may_answer_dispatched_request(client.mark.as_ref()) {
                    self.assert_valid(at, client.key, client.began, &entry);
                }
            }
            FlightFollowerWakeup::Response(FlightOutcome::NotShareable) => {}
        }
        self.end_client(at, name);
    }

    /// Asserts that a client whose lookup began at `began` may receive the entry.
    fn assert_valid(&mut self, at: usize, of: u8, began: u64, entry: &CacheEntry) {
        let bytes = EncodedEntry::from_entry(entry).unwrap().payload.to_vec();
        let text = String::from_utf8(bytes).unwrap();
        let mut words = text.split(' ').map(|word| word.parse::<u64>().unwrap());
        let mut word = || words.next().unwrap();
        let (by, key, fetched, head) = (word(), word(), word(), word());
        assert_eq!(key, u64::from(of));
        self.shared += 1;
        self.from_others += usize::from(by != at as u64);
        let since = self
            .happened
            .iter()
            .filter(|(step, _)| (fetched + 1..began).contains(step));
        for (step, happened) in since {
            let is_over = match (happened, entry_kind(of)) {
                (InvalidatingChange::Purged(purged), _) => purged.is_none_or(|purged| purged == of),
                (InvalidatingChange::Reorg(_), EntryKind::Tip) => true,
                (InvalidatingChange::Reorg(from), EntryKind::Block(height)) => *from <= height,
                (InvalidatingChange::Head(new), EntryKind::Tip) => *new > head,
                _ => false,
            };
            assert!(
                !is_over,
                "{text:?}, fetched at {fetched}, was over at {step} ({happened:?}) and was given \
                 to one that asked at {began}"
            );
        }
    }

    /// Completes all that is in flight, after which no client waits.
    pub fn finish_all(&mut self) {
        if self.daemon.is_none() {
            self.start();
        }
        for _ in 0..1_000 {
            let is_quiet = self.requests.is_empty()
                && self.replies.is_empty()
                && self.vms.iter().all(|vm| {
                    vm.fetches.is_empty()
                        && vm.clients.is_empty()
                        && vm.batches.is_empty()
                        && vm.shared.flights.flight_count() == 0
                });
            if is_quiet {
                break;
            }
            for _ in 0..self.requests.len() {
                self.run_step(WorldStep::Deliver(0));
            }
            for _ in 0..self.replies.len() {
                self.run_step(WorldStep::Reply(0));
            }
            for at in 0..2 {
                for _ in 0..self.vms[at].fetches.len() {
                    self.run_step(WorldStep::NodeAnswers(at, 0, 7));
                }
            }
            self.run_step(WorldStep::Pass(100));
        }
        for vm in &self.vms {
            assert!(vm.clients.is_empty(), "{} wait for ever", vm.clients.len());
            assert!(vm.batches.is_empty());
            assert_eq!(vm.shared.flights.flight_count(), 0);
        }
        // lost messages time out
        for _ in 0..3 {
            self.run_step(WorldStep::Pass(10_000));
            while !self.requests.is_empty() || !self.replies.is_empty() {
                self.run_step(WorldStep::Deliver(0));
                self.run_step(WorldStep::Reply(0));
            }
        }
        for vm in &self.vms {
            assert_eq!(vm.calls.ms_until_next_tick(self.now), None);
        }
        let leases = self.daemon.as_ref().unwrap().owner.owner_status_json()["leases"].clone();
        assert_eq!(leases, 0);
    }
}

fn take_nth<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    let at = which.checked_rem(from.len())?;
    Some(from.remove(at))
}
