use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::{LinkAction, OwnerLink};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::wire::EncodedEntry;
use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use crate::cache::owner_protocol::client_name::OwnerClientName;
use crate::cache::owner_protocol::frame::{FrameDecoder, MAX_CONNECTION_FRAME_BYTES, PREFACE};
use crate::cache::owner_protocol::message_body::MessageBody;
use crate::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use crate::cache::owner_protocol::owner_message::{
    FoundEntry, LeaseReply, OwnerMessage, PurgeEventScope, SessionEvent,
};
use crate::cache::owner_protocol::process_message::ProcessMessage;
use crate::cache::process::flights::{
    CoalescingRole, FlightFollowerWakeup, FlightLeadership, FlightOutcome,
};
use crate::cache::process::owner_client::{
    BatchLookupOptions, OwnerClient, OwnerLookup, OwnerLookupOptions, OwnerStoreOptions,
};
use crate::cache::process::wake::{EventLoopId, WaitingRequestId, WokenRequestQueue};
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;

use self::chains::SPACE;

mod batch_lookups;
mod callouts;
mod chains;
mod direct;
mod fleet_wait;
mod frames;
mod lookups;
mod purging;
#[cfg(all(feature = "ffi", feature = "faults"))]
mod refused;
mod sequences;
mod sessions;

const KEY: CacheKey = [7; 32];

/// Time after which a connection is retried.
const RETRY: u64 = 20;

/// Returns a waiter of the only event loop.
fn test_waiter(id: usize) -> WaitingRequestId {
    EventLoopId::default().waiter_of_request(id)
}

/// A process with a hot tier and a link, without a transport.
struct LinkTestProcess {
    shared: Arc<ProcessCacheState>,
    queue: Arc<WokenRequestQueue>,
    link: Arc<OwnerLink>,
    now: u64,
}

impl LinkTestProcess {
    /// Creates a process without a hot tier, with the link that `attach` returns.
    fn new_attached(attach: impl FnOnce(OwnerLink, &Arc<ProcessCacheState>) -> OwnerLink) -> Self {
        let shared = Arc::<ProcessCacheState>::default();
        let queue = Arc::new(WokenRequestQueue::default());
        shared.add_event_loop(queue.clone());
        let name = OwnerClientName::new("w-1").unwrap();
        let link = Arc::new(attach(OwnerLink::new(name, 1 << 20), &shared));
        link.set_lookup_timeout(20);
        shared.set_owner_client(link.clone());
        Self {
            shared,
            queue,
            link,
            now: 1000,
        }
    }

    fn link(&self) -> &OwnerLink {
        &self.link
    }

    fn start_hot_tier(&self) {
        self.shared.start_hot_tier(1 << 20, 1 << 20, 1);
    }

    /// Stores an entry in the memory of the process.
    fn insert_into_hot_tier(&self, key: CacheKey, entry: CacheEntry) {
        self.shared.hot_tier().unwrap().insert(key, Arc::new(entry));
    }

    /// Stores an entry that is fresh in the memory of the process.
    fn insert_fresh_entry(&self, key: CacheKey) {
        self.insert_into_hot_tier(key, entry().with_lifetime(self.now, 10_000));
    }

    fn is_hot(&self, key: CacheKey) -> bool {
        self.shared
            .hot_tier()
            .unwrap()
            .get(&key, self.now)
            .is_some()
    }

    /// Stores an entry at the owner.
    fn store_at_owner(&self, key: u8, payload: Vec<u8>) {
        let entry = entry_with_payload(payload).with_lifetime(self.now, 10_000);
        let about = StoredEntryAttributes::attributes_for_entry(&entry, [0; 16], None, 0).unwrap();
        self.link().store_at_owner(
            [key; 32],
            Arc::new(entry),
            about,
            OwnerStoreOptions::default(),
            self.now,
        );
    }

    /// Looks a key up for a waiter, which leads if the owner is not queried.
    fn look_up_key(&self, key: CacheKey, waiter: usize, leases: bool) {
        let options = OwnerLookupOptions {
            leases,
            ..OwnerLookupOptions::default()
        };
        self.look_up_key_with_options(key, waiter, options);
    }

    fn look_up_key_with_options(&self, key: CacheKey, waiter: usize, options: OwnerLookupOptions) {
        let (shared, waiter) = (&self.shared, test_waiter(waiter));
        if let CoalescingRole::Leader(token) = shared.flights.join_flight(key, waiter).unwrap() {
            let link = self.link();
            let flights = &shared.flights;
            match link.lookup_at_owner(flights, token, waiter, options, self.now) {
                OwnerLookup::Missing(token) => {
                    shared.flights.follow_own_flight(&token, waiter).unwrap();
                    shared.hand_over_flight(token);
                }
                OwnerLookup::Pending => {}
                OwnerLookup::Found(_) => panic!("the owner is in another process"),
            }
        }
    }

    fn claim_wakeup(&self, waiter: usize) -> Option<FlightFollowerWakeup> {
        self.shared.flights.claim_wakeup(test_waiter(waiter))
    }

    fn lead(&self, waiter: usize) -> Option<FlightLeadership> {
        match self.claim_wakeup(waiter) {
            Some(FlightFollowerWakeup::Lead(token)) => Some(token),
            _ => None,
        }
    }

    fn answer(&self, waiter: usize) -> Option<Arc<CacheEntry>> {
        match self.claim_wakeup(waiter) {
            Some(FlightFollowerWakeup::Response(FlightOutcome::Answer(entry))) => Some(entry),
            _ => None,
        }
    }

    fn woken(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.queue.next_woken_id()).collect()
    }
}

/// A host that carries bytes between a link and a script of the owner.
struct LinkTestHost {
    process: LinkTestProcess,
    is_open: bool,
    /// Whether the owner's side of the connection has sent the preface.
    has_greeted: bool,
    decoder: FrameDecoder,
    /// Messages that the owner has received, by frames.
    frames: Vec<Vec<ProcessMessage>>,
    /// Number of the last event that was sent.
    last_event: u64,
    refuses: bool,
}

impl Deref for LinkTestHost {
    type Target = LinkTestProcess;

    fn deref(&self) -> &LinkTestProcess {
        &self.process
    }
}

impl DerefMut for LinkTestHost {
    fn deref_mut(&mut self) -> &mut LinkTestProcess {
        &mut self.process
    }
}

impl LinkTestHost {
    fn new() -> Self {
        let host = Self::without_memory();
        host.start_hot_tier();
        host
    }

    fn without_memory() -> Self {
        Self::new_attached(|link, _| link)
    }

    /// Creates a host without memory, with the link that `attach` returns.
    fn new_attached(attach: impl FnOnce(OwnerLink, &Arc<ProcessCacheState>) -> OwnerLink) -> Self {
        Self {
            process: LinkTestProcess::new_attached(attach),
            is_open: false,
            has_greeted: false,
            decoder: FrameDecoder::new(MAX_CONNECTION_FRAME_BYTES),
            frames: Vec::new(),
            last_event: 0,
            refuses: false,
        }
    }

    /// Creates a host whose owner has opened a session.
    fn connected() -> Self {
        let mut host = Self::new();
        host.open_session(0, 5000);
        host
    }

    /// Opens the session that the link has requested.
    fn open_session(&mut self, generation: u64, until: u64) {
        self.run();
        let requests = self.take_messages();
        assert!(
            matches!(requests[0], ProcessMessage::Hello(_)),
            "{requests:?}"
        );
        self.last_event = 0;
        self.send_together(&[welcome(1, generation), send_lease(until, 0)]);
    }

    /// Breaks the connection.
    fn break_connection(&mut self) {
        self.is_open = false;
        self.link().handle_connection_closed(&self.shared, self.now);
        self.run();
    }

    /// Breaks the connection, and opens it again.
    fn reconnect(&mut self) {
        self.break_connection();
        self.pass(RETRY);
    }

    fn run(&mut self) {
        for _ in 0..1000 {
            match self.link().next_action() {
                None => return,
                Some(LinkAction::Tick) => {
                    self.link().tick(&self.shared, self.now);
                }
                Some(LinkAction::Close) => self.is_open = false,
                Some(LinkAction::Connect) => self.connect(),
                Some(LinkAction::Write) => {
                    let bytes = self.written_bytes();
                    self.receive_from_link(&bytes);
                }
            }
        }
        panic!("the link never rests");
    }

    fn connect(&mut self) {
        if !self.refuses {
            assert!(!self.is_open);
            self.is_open = true;
            self.has_greeted = false;
            self.decoder = FrameDecoder::new(MAX_CONNECTION_FRAME_BYTES);
        }
        self.link()
            .handle_connection_opened(&self.shared, !self.refuses, self.now);
    }

    /// Takes what the link has to write, in pieces of few bytes.
    fn written_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut more = true;
        while more {
            self.link()
                .pass_unwritten_pieces(&self.shared, self.now, |pieces| {
                    let before = bytes.len();
                    bytes.extend(pieces.flatten().take(4_999));
                    more = bytes.len() > before;
                    bytes.len() - before
                });
        }
        bytes
    }

    /// Decodes what the link has written.
    fn receive_from_link(&mut self, bytes: &[u8]) {
        self.decoder.receive_bytes(bytes).unwrap();
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            let messages = frame.map(|raw| ProcessMessage::decode_message(&raw.unwrap()));
            self.frames
                .push(messages.map(|message| message.unwrap().unwrap()).collect());
        }
    }

    /// Passes bytes of the owner to the link, and performs its actions.
    fn receive(&mut self, bytes: &[u8]) {
        self.pass_bytes_to_link(bytes);
        self.run();
    }

    /// Passes bytes of the owner to the link, few at a time. Returns `false` if the connection has to
    /// be closed.
    fn pass_bytes_to_link(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let mut taken = 0;
            let is_open = self.link().pass_read_buffer(|room| {
                taken = room.len().min(bytes.len()).min(7_001);
                room[..taken].copy_from_slice(&bytes[..taken]);
            });
            if !is_open {
                return false;
            }
            self.link().report_read_bytes(&self.shared, taken, self.now);
            bytes = &bytes[taken..];
        }
        true
    }

    fn send(&mut self, message: OwnerMessage) {
        self.send_together(&[message]);
    }

    /// Sends messages of the owner in one frame.
    fn send_together(&mut self, messages: &[OwnerMessage]) {
        let bytes = self.frame_of(messages);
        self.receive(&bytes);
    }

    fn frame_of(&mut self, messages: &[OwnerMessage]) -> Vec<u8> {
        let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
        for message in messages {
            message.append_to_frame(&mut frame).unwrap();
        }
        let mut bytes = Vec::new();
        if !std::mem::replace(&mut self.has_greeted, true) {
            bytes.extend_from_slice(&PREFACE);
        }
        bytes.extend(frame.try_join_pieces().unwrap());
        bytes
    }

    /// Sends the next event.
    fn event(&mut self, event: SessionEvent) {
        self.last_event += 1;
        let number = self.last_event;
        self.send(OwnerMessage::Event { number, event });
    }

    fn purge_event(&mut self, generation: u64, scope: PurgeEventScope) {
        self.event(SessionEvent::Purge { generation, scope });
    }

    fn send_lease(&mut self, until: u64) {
        self.send(send_lease(until, self.last_event));
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.link().tick(&self.shared, self.now);
        self.run();
    }

    /// Looks `KEY` up for a waiter.
    fn look_up_for_waiter(&mut self, waiter: usize, leases: bool) {
        self.look_up_key(KEY, waiter, leases);
        self.run();
    }

    /// Looks keys up at the same time, for waiters with their numbers.
    fn look_up_keys(&mut self, keys: std::ops::Range<u8>) {
        for n in keys {
            self.look_up_key([n; 32], usize::from(n), true);
        }
        self.run();
    }

    fn look_up_batch(&mut self, keys: &[CacheKey], waiter: usize) {
        self.look_up_shareable_batch(keys, 0, waiter);
    }

    /// Looks several keys up; the first ones may be shared between machines.
    fn look_up_shareable_batch(&mut self, keys: &[CacheKey], shareable: usize, waiter: usize) {
        self.look_up_batch_with_options(keys, shareable_batch(shareable), waiter);
    }

    fn look_up_batch_with_options(
        &mut self,
        keys: &[CacheKey],
        options: BatchLookupOptions,
        waiter: usize,
    ) {
        let (keys, waiter) = (keys.to_vec(), test_waiter(waiter));
        let link = self.link();
        assert!(link.lookup_batch_at_owner(keys, options, waiter, self.now));
        self.run();
    }

    /// Ends the fetch of a leader without a response for the others.
    fn finish_without_response(&mut self, token: FlightLeadership) {
        self.shared
            .finish_flight_and_wake(token, FlightOutcome::NotShareable);
        self.run();
    }

    /// Returns the messages that the owner has received since the last call.
    fn take_messages(&mut self) -> Vec<ProcessMessage> {
        std::mem::take(&mut self.frames).concat()
    }

    /// Returns the lookups among them: number, key and whether a lease is requested.
    fn take_lookups(&mut self) -> Vec<(u32, CacheKey, bool)> {
        let messages = self.take_messages().into_iter();
        let lookups = messages.filter_map(|message| match message {
            ProcessMessage::Lookup { id, key, lease, .. } => Some((id, key, lease.is_some())),
            _ => None,
        });
        lookups.collect()
    }

    /// Returns the number of the only lookup, or batch lookup, or purge that the owner has received.
    fn take_id(&mut self) -> u32 {
        let messages = self.take_messages();
        let ids: Vec<u32> = messages.iter().filter_map(request_id).collect();
        assert_eq!(ids.len(), 1, "{messages:?}");
        ids[0]
    }
}

/// The options of a batch lookup whose first keys may be shared between machines.
fn shareable_batch(shareable: usize) -> BatchLookupOptions {
    BatchLookupOptions {
        call_kinds: vec![7; shareable],
        max_lease_wait_ms: 0,
    }
}

/// Returns the number of a request that has a reply.
fn request_id(message: &ProcessMessage) -> Option<u32> {
    match message {
        ProcessMessage::Lookup { id, .. }
        | ProcessMessage::BatchLookup { id, .. }
        | ProcessMessage::Purge { id, .. }
        | ProcessMessage::Status { id } => Some(*id),
        _ => None,
    }
}

fn entry() -> CacheEntry {
    entry_with_payload(b"true".to_vec())
}

fn entry_with_payload(payload: Vec<u8>) -> CacheEntry {
    CacheEntry::new(
        EnvelopeBytes::envelope_without_bytes(),
        EntryPayload::Raw(payload.into()),
        EntryMetadata::default(),
    )
}

fn bytes_of(entry: &CacheEntry) -> Vec<u8> {
    EncodedEntry::from_entry(entry).unwrap().to_vec()
}

fn found_entry(entry: &CacheEntry) -> FoundEntry {
    let bytes = bytes_of(entry);
    FoundEntry {
        fresh: 500,
        age: 200,
        total: bytes.len() as u64,
        bytes: MessageBody::from(bytes),
    }
}

/// Returns the reply to a lookup that has found an entry.
fn found(id: u32) -> OwnerMessage {
    found_under(id, 0, &entry())
}

/// Returns the reply to a lookup that has found an entry under a purge generation.
fn found_under(id: u32, generation: u64, entry: &CacheEntry) -> OwnerMessage {
    OwnerMessage::Found {
        id,
        generation,
        entry: found_entry(entry),
    }
}

fn welcome(session: u64, generation: u64) -> OwnerMessage {
    OwnerMessage::Welcome {
        session,
        generation,
        event: 0,
    }
}

fn send_lease(until: u64, after: u64) -> OwnerMessage {
    OwnerMessage::SendLease {
        until,
        after,
        generation: 0,
    }
}

fn purge_event(number: u64, generation: u64, scope: PurgeEventScope) -> OwnerMessage {
    let event = SessionEvent::Purge { generation, scope };
    OwnerMessage::Event { number, event }
}

/// Returns the replies to a lookup of several keys, with an entry of one key.
fn batch_replies(id: u32, key: CacheKey) -> [OwnerMessage; 2] {
    let found = OwnerMessage::BatchFound {
        id,
        generation: 0,
        key,
        entry: found_entry(&entry()),
    };
    [found, OwnerMessage::BatchEnd { id, generation: 0 }]
}

fn missing(id: u32, lease: LeaseReply) -> OwnerMessage {
    OwnerMessage::Missing {
        id,
        generation: 0,
        lease,
    }
}
