//! Two sandboxes, an owner, a node, and the messages between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sszip_core::cache::chain::{ChainChange, DispatchMark};
use sszip_core::cache::class::Class;
use sszip_core::cache::entry::store_attributes::{PurgeScope, StoreAttributes};
use sszip_core::cache::entry::wire::EncodedEntry;
use sszip_core::cache::entry::{CacheEntry, EntryMeta, EntryPayload, EnvelopeBytes};
use sszip_core::cache::link::callout::{Callout, CalloutClient, CalloutId, CalloutLimits};
use sszip_core::cache::link::{OwnerReply, OwnerRequest};
use sszip_core::cache::owner::CallTime;
use sszip_core::cache::process::flights::{
    CoalescingRole, FlightOutcome, FollowerWakeup, Leadership,
};
use sszip_core::cache::process::owner_client::{OwnerClient, PendingPublish};
use sszip_core::cache::process::wake::{EventLoop, Waiter, WakeQueue};
use sszip_core::cache::process::ProcessState;
use sszip_core::cache::{Key, Namespace};

use crate::daemon::{Daemon, Id, Model};

const SPACE: Namespace = [0xab; 16];

/// The kind of response under a key of the test, which determines when it becomes invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The configuration of the node.
    Config,
    /// The head.
    Tip,
    /// A block by its number.
    Block(u64),
}

fn kind(key: u8) -> Kind {
    match key {
        0 => Kind::Config,
        1 => Kind::Tip,
        // the first of these blocks is final from the start
        2 => Kind::Block(3),
        _ => Kind::Block(12),
    }
}

/// Returns a key that looks like a hash, on which the owner relies.
fn key(n: u8) -> Key {
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
pub enum Step {
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
enum Happened {
    Purged(Option<u8>),
    Reorg(u64),
    Head(u64),
}

/// A client that waits for the response of its lookup.
struct Client {
    key: u8,
    began: u64,
    generation: u64,
    mark: Option<DispatchMark>,
}

/// A request in flight to the node, with the entry that its response will be.
struct Fetch {
    token: Option<Leadership>,
    key: u8,
    entry: CacheEntry,
    generation: u64,
}

/// A simulated sandbox with its callout client, its clients and its fetches.
struct Vm {
    shared: ProcessState,
    queue: Arc<WakeQueue>,
    calls: Arc<CalloutClient>,
    clients: BTreeMap<usize, Client>,
    /// The step at which each batch began.
    batches: BTreeMap<usize, u64>,
    fetches: Vec<Fetch>,
}

/// The simulated machine: sandboxes, an owner, a node, and the messages in flight between them.
pub struct World {
    step: u64,
    now: u64,
    names: usize,
    ids: Id,
    shelf: Arc<Model>,
    daemon: Option<Daemon>,
    vms: Vec<Vm>,
    /// Messages in flight to the owner, and back.
    requests: Vec<(Id, OwnerRequest)>,
    replies: Vec<(Id, OwnerReply)>,
    /// The sandbox and ticket of each call.
    calls: HashMap<Id, (usize, CalloutId)>,
    /// The sandbox and client on whose behalf a call was sent, and with which it ends.
    own: HashMap<Id, (usize, usize)>,
    head: u64,
    happened: Vec<(u64, Happened)>,
    /// Number of entries received from a shared fetch, and of those that another sandbox fetched.
    pub shared: usize,
    pub from_others: usize,
}

/// Sends a call to the owner.
fn send(
    calls: &mut HashMap<Id, (usize, CalloutId)>,
    requests: &mut Vec<(Id, OwnerRequest)>,
    (id, at): (Id, usize),
    call: Callout,
) {
    assert!(call.timeout > 0 && call.timeout <= 10_000);
    calls.insert(id, (at, call.ticket));
    requests.push((id, call.message));
}

fn waiter(id: usize) -> Waiter {
    EventLoop::default().waiter_with_id(id)
}

impl World {
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
            let shared = ProcessState::default();
            let queue = Arc::new(WakeQueue::default());
            shared.add_event_loop(queue.clone());
            let bounds = CalloutLimits {
                most: 8,
                most_waits: 2,
                ..CalloutLimits::default()
            };
            let calls = Arc::new(CalloutClient::new(format!("vm-{n}"), bounds));
            shared.join_owner(calls.clone());
            world.vms.push(Vm {
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

    fn time(&self) -> CallTime {
        CallTime {
            monotonic: self.now,
            unix: 1_700_000_000_000 + self.now,
        }
    }

    fn start(&mut self) {
        let daemon = Daemon::start(&self.shelf, SPACE, self.time());
        let last = ChainChange::Final(Some(self.head - 5));
        daemon.moved(
            &SPACE,
            &[
                ChainChange::ChainVerified(true),
                ChainChange::Head(self.head),
                last,
            ],
        );
        self.daemon = Some(daemon);
    }

    fn moves(&mut self, moves: &[ChainChange], happened: &[Happened]) {
        if let Some(daemon) = &self.daemon {
            daemon.moved(&SPACE, moves);
        }
        let step = self.step;
        self.happened.extend(happened.iter().map(|it| (step, *it)));
    }

    pub fn act(&mut self, step: Step) {
        self.step += 1;
        // no step ends before the next begins
        self.now += 1;
        match step {
            Step::Want(vm, key) => self.want(vm, key),
            Step::WantAll(at) => {
                let name = self.name();
                let keys = (0..4).map(key).collect();
                let (step, now) = (self.step, self.now);
                let vm = &mut self.vms[at];
                if vm.calls.lookup_all(keys, &SPACE, waiter(name), now) {
                    vm.batches.insert(name, step);
                    self.call_own(at, name);
                }
            }
            Step::Leave(at, which) => {
                let vm = &mut self.vms[at];
                let gone = vm
                    .clients
                    .keys()
                    .nth(which % vm.clients.len().max(1))
                    .copied();
                if let Some((gone, client)) = gone.and_then(|gone| vm.clients.remove_entry(&gone)) {
                    vm.shared.forget_waiter(waiter(gone));
                    vm.shared.leave_flight(&key(client.key), waiter(gone));
                    self.ends(at, gone);
                }
            }
            Step::Deliver(which) => {
                if let Some((id, message)) = take(&mut self.requests, which) {
                    self.deliver(id, message);
                }
            }
            Step::Reply(which) => {
                if let Some((id, answer)) = take(&mut self.replies, which) {
                    self.reply(id, Some(answer));
                }
            }
            Step::Lose(which) => {
                if let Some((id, _)) = take(&mut self.requests, which) {
                    self.reply(id, None);
                } else if let Some((id, _)) = take(&mut self.replies, which) {
                    self.reply(id, None);
                } else if let Some(id) = self.calls.keys().min().copied() {
                    // the client's timeout has passed
                    self.daemon.iter_mut().for_each(|daemon| daemon.forget(id));
                    self.reply(id, None);
                }
            }
            Step::Silence(which) => {
                if take(&mut self.replies, which).is_none() {
                    take(&mut self.requests, which);
                }
            }
            Step::Garbage(which) => {
                if let Some((id, _)) = take(&mut self.replies, which) {
                    let status = if which % 2 == 0 { 503 } else { 404 };
                    let answer = OwnerReply {
                        status,
                        ..OwnerReply::default()
                    };
                    self.reply(id, Some(answer));
                }
            }
            Step::NodeAnswers(vm, which, how) => self.node_answers(vm, which, how),
            Step::Purge(of) => self.purge(of),
            Step::Head => {
                self.head += 1;
                let last = ChainChange::Final(Some(self.head - 5));
                let head = self.head;
                self.moves(&[ChainChange::Head(head), last], &[Happened::Head(head)]);
            }
            Step::Reorg(depth) => {
                let from = self.head - depth;
                self.head += 1;
                let head = self.head;
                self.moves(
                    &[ChainChange::Reorg { from }, ChainChange::Head(head)],
                    &[Happened::Reorg(from), Happened::Head(head)],
                );
            }
            Step::Pass(milliseconds) => {
                self.now += milliseconds;
                if self.daemon.is_none() {
                    self.start();
                }
            }
            Step::Restart(at_once) => {
                // requests that wait there get no reply
                self.daemon = None;
                if at_once {
                    self.start();
                }
            }
        }
        self.settle();
    }

    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    /// Looks a key up for a client, as an exchange does.
    fn want(&mut self, at: usize, of: u8) {
        let (name, key) = (self.name(), key(of));
        let (step, now) = (self.step, self.now);
        let vm = &mut self.vms[at];
        let client = Client {
            key: of,
            began: step,
            generation: vm.calls.purge_generation(),
            mark: vm.calls.dispatch_mark(&SPACE, now),
        };
        let coalesces = vm.calls.may_follow_flights();
        if !coalesces && !vm.calls.is_up() {
            return self.fetch(at, of, None);
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
                            true => self.fetch(at, of, Some(token)),
                            false => vm.shared.end_flight(token, FlightOutcome::NotShareable),
                        };
                    }
                }
            }
        }
        vm.clients.insert(name, client);
        self.call_own(at, name);
    }

    /// Fetches a key from the node, as an exchange does after a miss.
    fn fetch(&mut self, at: usize, of: u8, token: Option<Leadership>) {
        let vm = &mut self.vms[at];
        let mark = vm.calls.dispatch_mark(&SPACE, self.now);
        let is_known = mark.is_some_and(|mark| mark.is_known);
        let (class, height) = match kind(of) {
            Kind::Config => (Class::Config, None),
            // a response about the head shows the known one
            Kind::Tip => (Class::Tip, mark.map(|mark| mark.seen)),
            Kind::Block(height) => {
                let is_final = is_known && mark.is_some_and(|mark| mark.is_final(height));
                let class = [Class::Unfinalized, Class::Immutable][usize::from(is_final)];
                (class, Some(height))
            }
        };
        let meta = EntryMeta {
            class,
            height,
            block_number: height.filter(|_| class != Class::Tip),
            follows: mark.map(|mark| (SPACE, mark.epoch)),
            ..EntryMeta::default()
        };
        let text = format!("{at} {of} {} {}", self.step, self.head);
        let payload = EntryPayload::Raw(text.into_bytes().into());
        let entry = CacheEntry::new(EnvelopeBytes::for_whole_body(), payload, meta);
        vm.fetches.push(Fetch {
            token,
            key: of,
            entry: entry.with_lifetime(self.now, 60_000),
            generation: vm.calls.purge_generation(),
        });
    }

    /// Handles a response of the node, which is published as by a fill, or is not shareable, or
    /// whose client has gone.
    fn node_answers(&mut self, at: usize, which: usize, how: u8) {
        let vm = &mut self.vms[at];
        let Some(Fetch {
            token,
            key: of,
            entry,
            generation,
        }) = take(&mut vm.fetches, which)
        else {
            return;
        };
        let key = key(of);
        match (how, token) {
            (0, Some(token)) => vm.shared.hand_over_flight(token),
            (1, Some(token)) => vm.shared.end_flight(token, FlightOutcome::NotShareable),
            (0 | 1, None) => {}
            (2, token) => {
                // a response that must not be stored
                vm.calls.release_lease(key);
                if let Some(token) = token {
                    self.land(at, token, entry, generation);
                }
            }
            (_, token) => {
                let entry = entry.with_chain_dependency(vm.calls.followed_chains());
                if let Some(stamp) = entry.chain_dependency() {
                    stamp.observe_dependency();
                }
                let entry = Arc::new(entry);
                let about = StoreAttributes::for_entry(&entry, SPACE, None, generation).unwrap();
                vm.calls.store_entry(key, Arc::clone(&entry), about, None);
                if let Some(token) = token {
                    vm.shared.publish_to_followers(PendingPublish {
                        token,
                        entry,
                        generation,
                    });
                }
            }
        }
    }

    fn land(&mut self, at: usize, token: Leadership, entry: CacheEntry, generation: u64) {
        self.vms[at].shared.publish_to_followers(PendingPublish {
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
        self.happened.push((self.step, Happened::Purged(of)));
    }

    fn deliver(&mut self, id: Id, message: OwnerRequest) {
        let time = self.time();
        let answer = match &mut self.daemon {
            Some(daemon) => daemon.serve(id, message, time),
            // Envoy's local reply
            None => Some(OwnerReply {
                status: 503,
                ..OwnerReply::default()
            }),
        };
        self.replies.extend(answer.map(|answer| (id, answer)));
    }

    fn reply(&mut self, id: Id, answer: Option<OwnerReply>) {
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
    fn settle(&mut self) {
        let time = self.time();
        if let Some(daemon) = &mut self.daemon {
            self.replies.extend(daemon.waited(time));
        }
        for at in 0..2 {
            while {
                self.call(at);
                let woken = self.vms[at].queue.next_woken();
                woken.map(|name| self.resume(at, name)).is_some()
            } {}
        }
    }

    fn call(&mut self, at: usize) {
        let vm = &self.vms[at];
        while let Some(call) = vm.calls.next_callout(&vm.shared, self.now) {
            self.ids += 1;
            send(&mut self.calls, &mut self.requests, (self.ids, at), call);
        }
    }

    /// Sends the calls on behalf of a client.
    fn call_own(&mut self, at: usize, name: usize) {
        let vm = &self.vms[at];
        while let Some(call) = vm.calls.next_for_stream(&vm.shared, waiter(name), self.now) {
            self.ids += 1;
            self.own.insert(self.ids, (at, name));
            send(&mut self.calls, &mut self.requests, (self.ids, at), call);
        }
    }

    /// Ends a client, with the calls on its behalf.
    fn ends(&mut self, at: usize, name: usize) {
        let mut ids: Vec<Id> = self
            .own
            .extract_if(|_, of| *of == (at, name))
            .map(|(id, _)| id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            if let Some((_, ticket)) = self.calls.remove(&id) {
                self.daemon.iter_mut().for_each(|daemon| daemon.forget(id));
                let vm = &self.vms[at];
                vm.calls.callout_ended(&vm.shared, ticket, self.now);
            }
        }
    }

    /// Resumes a woken client, as an exchange does.
    fn resume(&mut self, at: usize, name: usize) {
        let vm = &mut self.vms[at];
        if let Some(began) = vm.batches.remove(&name) {
            for (found, entry) in vm.calls.claim_entries(waiter(name)) {
                let of = (0..4).find(|of| key(*of) == found).unwrap();
                self.assert_valid(at, of, began, &entry);
            }
            return self.ends(at, name);
        }
        let Some(turn) = vm.shared.flights.claim_wakeup(waiter(name)) else {
            return;
        };
        let Some(client) = vm.clients.remove(&name) else {
            panic!("it has gone");
        };
        match turn {
            FollowerWakeup::Lead(token) => self.fetch(at, client.key, Some(token)),
            FollowerWakeup::Response(FlightOutcome::Answer(entry)) => {
                let is_current = vm.calls.purge_generation() == client.generation;
                if is_current && entry.answers_request(client.mark.as_ref()) {
                    self.assert_valid(at, client.key, client.began, &entry);
                }
            }
            FollowerWakeup::Response(FlightOutcome::NotShareable) => {}
        }
        self.ends(at, name);
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
            let is_over = match (happened, kind(of)) {
                (Happened::Purged(purged), _) => purged.is_none_or(|purged| purged == of),
                (Happened::Reorg(_), Kind::Tip) => true,
                (Happened::Reorg(from), Kind::Block(height)) => *from <= height,
                (Happened::Head(new), Kind::Tip) => *new > head,
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
    pub fn end(&mut self) {
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
                self.act(Step::Deliver(0));
            }
            for _ in 0..self.replies.len() {
                self.act(Step::Reply(0));
            }
            for at in 0..2 {
                for _ in 0..self.vms[at].fetches.len() {
                    self.act(Step::NodeAnswers(at, 0, 7));
                }
            }
            self.act(Step::Pass(100));
        }
        for vm in &self.vms {
            assert!(vm.clients.is_empty(), "{} wait for ever", vm.clients.len());
            assert!(vm.batches.is_empty());
            assert_eq!(vm.shared.flights.flight_count(), 0);
        }
        // lost messages time out
        for _ in 0..3 {
            self.act(Step::Pass(10_000));
            while !self.requests.is_empty() || !self.replies.is_empty() {
                self.act(Step::Deliver(0));
                self.act(Step::Reply(0));
            }
        }
        for vm in &self.vms {
            assert_eq!(vm.calls.next_tick(self.now), None);
        }
        let leases = self.daemon.as_ref().unwrap().owner.status_json()["leases"].clone();
        assert_eq!(leases, 0);
    }
}

fn take<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    let at = which.checked_rem(from.len())?;
    Some(from.remove(at))
}
