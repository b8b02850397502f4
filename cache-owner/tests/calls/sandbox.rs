//! A sandbox with its link to the owner, its clients, and its requests to the node.

use std::collections::BTreeMap;
use std::sync::Arc;

use sszip_core::cache::chain::DispatchMark;
use sszip_core::cache::entry::CacheEntry;
use sszip_core::cache::link::OwnerLink;
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::process::flights::{
    CoalescingRole, FlightFollowerWakeup, FlightLeadership, FlightOutcome,
};
use sszip_core::cache::process::owner_client::{
    BatchLookupOptions, OwnerClient, OwnerLookup, OwnerLookupOptions,
};
use sszip_core::cache::process::wake::{EventLoopId, WaitingRequestId, WokenRequestQueue};
use sszip_core::cache::process::ProcessCacheState;

use crate::history::{EntrySource, EventHistory, Moment, ReceivedEntry, RequestedPurge};
use crate::keys::{cache_key, KEYS, NAMESPACE};
use crate::node_fetch::NodeFetch;
use crate::take_nth;

/// A client that waits for the response of its lookup.
struct WaitingClient {
    key_number: u8,
    began: Moment,
    source: EntrySource,
    generation: u64,
    mark: Option<DispatchMark>,
    /// Whether the sandbox had a send lease.
    had_lease: bool,
}

impl WaitingClient {
    /// Whether the client may receive an entry that it has waited for.
    fn may_receive(&self, shared: &ProcessCacheState, entry: &CacheEntry, now: Moment) -> bool {
        shared.may_send_from_memory(now.ms)
            && shared.purge_generation() == self.generation
            && match self.had_lease {
                true => entry.may_answer_dispatched_request(self.mark.as_ref()),
                false => entry.is_valid_on_chain(),
            }
    }
}

/// A simulated sandbox. Its clients, batches and purges have different names.
pub struct SimulatedSandbox {
    number: usize,
    pub shared: ProcessCacheState,
    queue: Arc<WokenRequestQueue>,
    pub link: Arc<OwnerLink>,
    clients: BTreeMap<usize, WaitingClient>,
    /// The moment at which each batch began.
    batches: BTreeMap<usize, Moment>,
    /// The step at which each client has requested a purge.
    purges: BTreeMap<usize, u64>,
    fetches: Vec<NodeFetch>,
}

fn waiter(name: usize) -> WaitingRequestId {
    EventLoopId::default().waiter_of_request(name)
}

impl SimulatedSandbox {
    pub fn new(number: usize) -> Self {
        let shared = ProcessCacheState::default();
        shared.start_hot_tier(8 << 20, 1 << 20, 1);
        let queue = Arc::new(WokenRequestQueue::default());
        shared.add_event_loop(queue.clone());
        let name = OwnerClientName::new(&format!("vm-{number}")).unwrap();
        let link = Arc::new(OwnerLink::new(name, 1 << 30));
        // replies overtake each other in this time
        link.set_lookup_timeout(100);
        shared.set_owner_client(link.clone());
        Self {
            number,
            shared,
            queue,
            link,
            clients: BTreeMap::new(),
            batches: BTreeMap::new(),
            purges: BTreeMap::new(),
            fetches: Vec::new(),
        }
    }

    pub fn has_waiting_requests(&self) -> bool {
        let waiting = self.clients.len() + self.batches.len() + self.purges.len();
        waiting + self.fetches.len() > 0 || self.shared.flights.flight_count() > 0
    }

    /// Number of requests in flight to the node.
    pub fn fetch_count(&self) -> usize {
        self.fetches.len()
    }

    /// Looks a key up for a client, as an exchange does.
    pub fn look_up_key(
        &mut self,
        name: usize,
        key_number: u8,
        now: Moment,
        history: &mut EventHistory,
    ) {
        let key = cache_key(key_number);
        let (link, shared) = (&self.link, &self.shared);
        link.start_callouts();
        let had_lease = shared.may_send_from_memory(now.ms);
        let hot = shared.hot_tier().filter(|_| had_lease);
        if let Some(entry) = hot.and_then(|hot| hot.get(&key, now.ms)) {
            let received = self.received_entry(key_number, now, &entry, EntrySource::HotTier);
            return history.check_received_entry(&received, now.step);
        }
        let mut client = WaitingClient {
            key_number,
            began: now,
            source: EntrySource::Flight,
            had_lease,
            generation: link.purge_generation(),
            mark: link.dispatch_mark(&NAMESPACE),
        };
        let coalesces = !name.is_multiple_of(5);
        let options = OwnerLookupOptions {
            leases: coalesces,
            skips_wait: name.is_multiple_of(7),
            ..OwnerLookupOptions::default()
        };
        if !coalesces && !link.is_owner_reachable() {
            return self.fetch_from_node(key_number, None, now);
        }
        match shared.flights.join_flight(key, waiter(name)).unwrap() {
            CoalescingRole::Follower => {}
            CoalescingRole::Leader(token) => {
                client.source = EntrySource::OwnLookup;
                let (flights, waiter) = (&shared.flights, waiter(name));
                match link.lookup_at_owner(flights, token, waiter, options, now.ms) {
                    OwnerLookup::Missing(token) if coalesces => {
                        return self.fetch_from_node(key_number, Some(token), now);
                    }
                    OwnerLookup::Missing(token) => {
                        shared.finish_flight_and_wake(token, FlightOutcome::NotShareable);
                        return self.fetch_from_node(key_number, None, now);
                    }
                    _ => {}
                }
            }
        }
        self.clients.insert(name, client);
    }

    /// Looks all keys up at the owner, as a batch does.
    pub fn look_up_all_keys(&mut self, name: usize, now: Moment) {
        let keys = (0..KEYS).map(cache_key).collect();
        self.link.start_callouts();
        if self.link.lookup_batch_at_owner(
            keys,
            BatchLookupOptions::default(),
            waiter(name),
            now.ms,
        ) {
            self.batches.insert(name, now);
        }
    }

    /// Requests a purge of everything, for a client.
    pub fn request_purge(&mut self, name: usize, now: Moment) {
        self.link.start_callouts();
        let scope = r#"{"everything":true}"#.to_owned();
        assert!(self.link.queue_purge(scope, waiter(name), now.ms));
        self.purges.insert(name, now.step);
    }

    pub fn evict_key(&self, key_number: u8) {
        let hot = self.shared.hot_tier().unwrap();
        hot.remove(&cache_key(key_number));
    }

    /// Ends a client or a batch that waits.
    pub fn disconnect_client(&mut self, which: usize) {
        let names = self.clients.keys().chain(self.batches.keys());
        let names: Vec<_> = names.copied().collect();
        let Some(name) = which.checked_rem(names.len()).map(|nth| names[nth]) else {
            return;
        };
        self.shared.forget_waiter(waiter(name));
        match self.clients.remove(&name) {
            Some(client) => {
                let key = cache_key(client.key_number);
                self.shared.leave_flight(&key, waiter(name));
            }
            None => {
                self.batches.remove(&name);
                self.link.take_batch_entries(waiter(name));
            }
        }
    }

    /// Handles a response of the node; [`NodeFetch::complete`] describes its outcomes.
    pub fn receive_node_response(&mut self, which: usize, outcome: u8, now: u64) {
        if let Some(fetch) = take_nth(&mut self.fetches, which) {
            fetch.complete(&self.shared, &self.link, outcome, now);
        }
    }

    /// Resumes the next woken client, as an exchange does. Returns whether there was one.
    pub fn resume_woken_client(&mut self, now: Moment, history: &mut EventHistory) -> bool {
        let Some(name) = self.queue.next_woken_id() else {
            return false;
        };
        if let Some(began) = self.batches.remove(&name) {
            self.finish_batch(name, began, now, history);
        } else if let Some(began) = self.purges.remove(&name) {
            self.finish_purge(name, began, history);
        } else if let Some(wakeup) = self.shared.flights.claim_wakeup(waiter(name)) {
            self.finish_lookup(name, wakeup, now, history);
        }
        true
    }

    fn finish_batch(&self, name: usize, began: Moment, now: Moment, history: &mut EventHistory) {
        let found = self.link.take_batch_entries(waiter(name));
        if !self.shared.may_send_from_memory(now.ms) {
            return;
        }
        for (key, entry) in found.iter().filter(|(_, entry)| entry.is_fresh(now.ms)) {
            let number = (0..KEYS).find(|number| cache_key(*number) == *key).unwrap();
            let received = self.received_entry(number, began, entry, EntrySource::OwnLookup);
            history.check_received_entry(&received, now.step);
        }
    }

    fn finish_purge(&self, name: usize, began: u64, history: &mut EventHistory) {
        let reply = self.link.claim_admin_reply(waiter(name));
        if reply.is_some_and(|(status, _)| status == 200) {
            history.record_purge_by_client(RequestedPurge {
                key_number: None,
                generation: self.link.purge_generation(),
                began,
            });
        }
    }

    fn finish_lookup(
        &mut self,
        name: usize,
        wakeup: FlightFollowerWakeup,
        now: Moment,
        history: &mut EventHistory,
    ) {
        let client = self.clients.remove(&name).unwrap();
        let token = match wakeup {
            FlightFollowerWakeup::Lead(token) => Some(token),
            FlightFollowerWakeup::Response(FlightOutcome::Answer(entry))
                if client.may_receive(&self.shared, &entry, now) =>
            {
                let received =
                    self.received_entry(client.key_number, client.began, &entry, client.source);
                return history.check_received_entry(&received, now.step);
            }
            FlightFollowerWakeup::Response(_) => None,
        };
        self.fetch_from_node(client.key_number, token, now);
    }

    fn received_entry<'a>(
        &self,
        key_number: u8,
        began: Moment,
        entry: &'a CacheEntry,
        source: EntrySource,
    ) -> ReceivedEntry<'a> {
        ReceivedEntry {
            sandbox: self.number,
            key_number,
            began,
            entry,
            source,
        }
    }

    fn fetch_from_node(&mut self, key_number: u8, token: Option<FlightLeadership>, now: Moment) {
        let fetch = NodeFetch::start(self.number, &self.link, key_number, token, now);
        self.fetches.push(fetch);
    }
}
