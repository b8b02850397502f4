use std::collections::BTreeSet;
use std::sync::Arc;

use super::{LinkConnectionAction, OwnerLink, OwnerLinkLimits, RETRY};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::wire::EncodedEntry;
use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use crate::cache::process::flights::{
    CoalescingRole, FlightFollowerWakeup, FlightLeadership, FlightOutcome,
};
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::wake::{EventLoopId, WaitingRequestId, WokenRequestQueue};
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;

use self::chains::SPACE;

mod batches;
mod chains;
mod lookups;
mod purging;
#[cfg(all(feature = "ffi", feature = "faults"))]
mod refused;
mod sequences;
mod together;

const KEY: CacheKey = [7; 32];

/// Returns a waiter of the only event loop.
fn test_waiter(id: usize) -> WaitingRequestId {
    EventLoopId::default().waiter_of_request(id)
}

/// A host that carries bytes between a link and a script.
struct LinkTestHost {
    shared: ProcessCacheState,
    queue: Arc<WokenRequestQueue>,
    link: Arc<OwnerLink>,
    now: u64,
    open: BTreeSet<usize>,
    /// Requests that were written, and their connections.
    sent: Vec<(usize, String)>,
    refuses: bool,
}

impl LinkTestHost {
    fn new() -> Self {
        let host = Self::without_memory();
        host.shared.start_hot_tier(1 << 20, 1 << 20, 1);
        host
    }

    fn without_memory() -> Self {
        Self::with_connections(2)
    }

    fn with_connections(connections: usize) -> Self {
        let shared = ProcessCacheState::default();
        let queue = Arc::new(WokenRequestQueue::default());
        shared.add_event_loop(queue.clone());
        let bounds = OwnerLinkLimits {
            connections,
            deadline: 20,
            max_body: 10_000,
        };
        let link = Arc::new(OwnerLink::new("w-1".into(), bounds));
        shared.set_owner_client(link.clone());
        Self {
            shared,
            queue,
            link,
            now: 1000,
            open: BTreeSet::new(),
            sent: Vec::new(),
            refuses: false,
        }
    }

    /// Creates a host whose owner has sent `hello`.
    fn with_greeted_owner() -> Self {
        let mut host = Self::new();
        host.greet();
        host
    }

    fn greet(&mut self) {
        self.run();
        self.receive_hello_event(0, 5000);
        self.sent.clear();
    }

    /// Begins an event stream.
    fn receive_hello_event(&mut self, generation: u64, until: u64) {
        self.receive(0, b"HTTP/1.0 200 OK\r\n\r\n");
        let data = format!("{{\"version\":1,\"generation\":{generation},\"until\":{until}}}");
        self.event("hello", &data);
    }

    /// Breaks a connection.
    fn break_connection(&mut self, slot: usize) {
        self.open.remove(&slot);
        self.link().connection_closed(&self.shared, slot, self.now);
    }

    /// Stores an entry in the memory of the process.
    fn insert_into_hot_tier(&self, key: CacheKey, entry: CacheEntry) {
        self.shared.hot_tier().unwrap().insert(key, Arc::new(entry));
    }

    fn is_hot(&self, key: CacheKey) -> bool {
        self.shared
            .hot_tier()
            .unwrap()
            .get(&key, self.now)
            .is_some()
    }

    /// Stores entries at the owner.
    fn store_entries_at_owner(&mut self, keys: std::ops::Range<u8>) {
        for key in keys {
            let entry = Arc::new(entry().with_stored_time_and_ttl(self.now, 10_000));
            let about =
                StoredEntryAttributes::attributes_for_entry(&entry, [0; 16], None, 0).unwrap();
            self.link().store_at_owner([key; 32], entry, about, None);
        }
        self.run();
    }

    fn link(&self) -> &OwnerLink {
        &self.link
    }

    fn run(&mut self) {
        for _ in 0..1000 {
            match self.link().next_connection_action() {
                None => return,
                Some(LinkConnectionAction::Tick) => {
                    self.link().send_and_expire_requests(&self.shared, self.now);
                }
                Some(LinkConnectionAction::Close(slot)) => {
                    self.open.remove(&slot);
                }
                Some(LinkConnectionAction::Connect(slot)) => {
                    if !self.refuses {
                        assert!(self.open.insert(slot), "{slot} is open");
                    }
                    self.link().handle_connection_opened(
                        &self.shared,
                        slot,
                        !self.refuses,
                        self.now,
                    );
                }
                Some(LinkConnectionAction::Write(slot)) => {
                    let mut bytes = Vec::new();
                    let mut more = true;
                    while more {
                        self.link().pass_unwritten_pieces(slot, |pieces| {
                            let before = bytes.len();
                            bytes.extend(pieces.flatten().take(30));
                            more = bytes.len() > before;
                            bytes.len() - before
                        });
                    }
                    if !bytes.is_empty() {
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        self.sent.push((slot, text));
                    }
                }
            }
        }
        panic!("the link never rests");
    }

    #[allow(unsafe_code)]
    fn receive(&mut self, slot: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut taken = 0;
            let is_open = self.link().pass_read_buffer(slot, |room| {
                taken = room.len().min(bytes.len()).min(70);
                for (to, from) in room.iter_mut().zip(&bytes[..taken]) {
                    to.write(*from);
                }
            });
            if !is_open {
                break;
            }
            // SAFETY: just written.
            unsafe {
                self.link()
                    .report_bytes_read(&self.shared, slot, taken, self.now);
            };
            bytes = &bytes[taken..];
        }
        self.run();
    }

    fn event(&mut self, name: &str, data: &str) {
        let event = format!("event: {name}\ndata: {data}\n\n");
        self.receive(0, event.as_bytes());
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.link().send_and_expire_requests(&self.shared, self.now);
        self.run();
    }

    /// Looks `KEY` up for a waiter.
    fn look_up_for_waiter(&mut self, waiter: usize, leases: bool) {
        match self
            .shared
            .flights
            .join_flight(KEY, test_waiter(waiter))
            .unwrap()
        {
            CoalescingRole::Follower => {}
            CoalescingRole::Leader(token) => {
                self.shared
                    .flights
                    .follow_own_flight(&token, test_waiter(waiter))
                    .unwrap();
                if let Err(token) = self
                    .link()
                    .lookup_at_owner(KEY, token, &SPACE, leases, false, self.now)
                {
                    self.shared.hand_over_flight(token);
                }
            }
        }
        self.run();
    }

    fn lead(&self, waiter: usize) -> Option<FlightLeadership> {
        match self.shared.flights.claim_wakeup(test_waiter(waiter)) {
            Some(FlightFollowerWakeup::Lead(token)) => Some(token),
            _ => None,
        }
    }

    fn woken(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.queue.next_woken_id()).collect()
    }

    fn answer(&self, waiter: usize) -> Option<Arc<CacheEntry>> {
        match self.shared.flights.claim_wakeup(test_waiter(waiter)) {
            Some(FlightFollowerWakeup::Response(FlightOutcome::Answer(entry))) => Some(entry),
            _ => None,
        }
    }

    /// Returns the requests since the last call.
    fn take_sent_requests(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.sent)
            .into_iter()
            .flat_map(|(slot, text)| {
                let lines = text.lines().filter(|line| line.contains(" HTTP/1."));
                let lines: Vec<String> = lines.map(Into::into).collect();
                lines.into_iter().map(move |line| (slot, line))
            })
            .collect()
    }
}

fn entry() -> CacheEntry {
    CacheEntry::new(
        EnvelopeBytes::envelope_without_bytes(),
        EntryPayload::Raw(b"true".to_vec().into()),
        EntryMetadata::default(),
    )
}

fn bytes_of(entry: &CacheEntry) -> Vec<u8> {
    EncodedEntry::from_entry(entry).unwrap().to_vec()
}

fn found() -> Vec<u8> {
    let body = bytes_of(&entry());
    let head = format!(
        "HTTP/1.1 200 OK\r\nsszip-fresh: 500\r\nage: 2\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// Returns the owner's reply to a lookup of several keys, with an entry of one key.
fn batch_lookup_reply(key: CacheKey) -> Vec<u8> {
    let one = bytes_of(&entry());
    let mut body = key.to_vec();
    body.extend_from_slice(&500u64.to_be_bytes());
    body.extend_from_slice(&(one.len() as u64).to_be_bytes());
    body.extend_from_slice(&one);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

fn missing(lease: &str) -> Vec<u8> {
    format!("HTTP/1.1 404 Not Found\r\nsszip-lease: {lease}\r\ncontent-length: 0\r\n\r\n").into()
}

const DONE: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

fn path() -> String {
    format!("/v1/entries/{}", "07".repeat(32))
}

/// Looks these keys up at the same time.
fn look_up_all_keys(host: &mut LinkTestHost, keys: std::ops::Range<u8>) {
    for n in keys {
        let Some(CoalescingRole::Leader(token)) =
            host.shared.flights.join_flight([n; 32], test_waiter(10))
        else {
            panic!()
        };
        host.shared
            .flights
            .follow_own_flight(&token, test_waiter(usize::from(n)))
            .unwrap();
        host.link()
            .lookup_at_owner([n; 32], token, &SPACE, true, false, host.now)
            .unwrap();
    }
    host.run();
}
