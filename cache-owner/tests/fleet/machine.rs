//! A machine of the fleet: an owner over a store in memory, the state of its purge stream, and the
//! view that its node has of the chain.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

use sszip_core::cache::chain::{ChainChange, HeightUnit};
use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::fleet::keyring::FleetKeyring;
use sszip_core::cache::fleet::local_purges::LocalPurgeJob;
use sszip_core::cache::fleet::sharing::ServableValue;
use sszip_core::cache::fleet::stream_record::{PublishedPurge, StreamMark};
use sszip_core::cache::fleet::stream_sync::{StreamCommand, StreamReply, StreamSync};
use sszip_core::cache::owner::fleet_gate::FleetGate;
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::session::OwnerSession;
use sszip_core::cache::owner::session_tasks::FleetLookup;
use sszip_core::cache::owner::tracker::ChainIdentity;
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::owner_protocol::frame::{
    split_first_frame, MAX_CALLOUT_FRAME_BYTES, MAX_CONNECTION_FRAME_BYTES,
};
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::OwnerMessage;
use sszip_core::cache::owner_protocol::process_message::SessionRequest;
use sszip_core::cache::CacheKey;

use crate::blocks::BlockPath;
use crate::calls::{ModelCall, NAMESPACE};
use crate::memory_store::{MemoryStore, StoreContents};
use crate::server::{FleetServer, LIMITS};

/// Bytes of an owner's memory: some entries, so that others are looked up in the fleet again.
const MEMORY_BYTES: u64 = 8_000;

/// Number of blocks that a follower reads at a poll to complete its window after a start.
const BACKFILL_BLOCKS: u64 = 4;

pub const IDENTITY: ChainIdentity = ChainIdentity {
    chain_id: Some(1),
    genesis: [9; 32],
};

/// The gate of the fleet, which the model opens and closes.
#[derive(Default)]
struct ModelGate(AtomicBool);

impl FleetGate for ModelGate {
    fn is_open(&self, _: u64) -> bool {
        self.0.load(Relaxed)
    }

    // entries are not on disk in this model
    fn offer_disk_entry(&self, _: &CacheKey, _: &Arc<OwnerMemoryEntry>, _: u64) {}
}

/// The stages of a lookup in the fleet. Blocks may be replaced between them.
pub enum LookupStage {
    /// The server has replied.
    Received(Option<Vec<u8>>),
    /// The value was checked against the chain and the purges. With its kind for the coverage.
    Checked(Option<(ServableValue, &'static str)>),
}

/// A lookup for which the fleet is queried.
pub struct PendingLookup {
    pub lookup: FleetLookup,
    pub call: ModelCall,
    pub stage: LookupStage,
}

/// A machine of the fleet.
pub struct Machine {
    number: usize,
    contents: Arc<StoreContents>,
    pub owner: Owner,
    pub session: OwnerSession,
    gate: Arc<ModelGate>,
    keyring: Arc<FleetKeyring>,
    /// The chain of its node, and the last final block of that chain.
    pub path: BlockPath,
    pub last_final: Option<u64>,
    /// The highest block that was final, also while finality is not known.
    pub final_mark: u64,
    /// The lowest block that the owner knows by its hash.
    pub known_from: u64,
    pub sync: StreamSync,
    pub is_up: bool,
    command: Option<(StreamCommand, Option<StreamReply>)>,
    job: Option<LocalPurgeJob>,
    stored_position: Option<StreamMark>,
    /// Values that are being written.
    pub writes: Vec<(CacheKey, Vec<u8>)>,
    pub pending: Vec<PendingLookup>,
    /// Calls of the lookups without a reply, by their numbers.
    pub calls: BTreeMap<u32, ModelCall>,
}

impl Machine {
    pub fn new(
        number: usize,
        path: BlockPath,
        last_final: u64,
        keyring: &Arc<FleetKeyring>,
        now: ClockReading,
    ) -> Self {
        let contents = Arc::default();
        let gate = Arc::<ModelGate>::default();
        let (owner, session) = start_owner(&contents, &gate, now);
        let sync = start_sync(number, keyring, None, Vec::new(), now);
        let machine = Self {
            number,
            contents,
            owner,
            session,
            gate,
            keyring: Arc::clone(keyring),
            path,
            last_final: Some(last_final),
            final_mark: last_final,
            known_from: 0,
            sync,
            is_up: true,
            command: None,
            job: None,
            stored_position: None,
            writes: Vec::new(),
            pending: Vec::new(),
            calls: BTreeMap::new(),
        };
        machine.publish_blocks();
        machine
    }

    /// Ends the owner, and starts another one over its store and its files.
    pub fn restart(&mut self, now: ClockReading) {
        let outbox = self.sync.outbox();
        (self.owner, self.session) = start_owner(&self.contents, &self.gate, now);
        let position = self.stored_position;
        self.sync = start_sync(self.number, &self.keyring, position, outbox, now);
        (self.command, self.job) = (None, None);
        self.writes.clear();
        self.pending.clear();
        self.calls.clear();
        self.known_from = self.path.head();
        self.publish_blocks();
    }

    /// Publishes the head and the finality of a started owner's chain.
    fn publish_blocks(&self) {
        self.owner
            .set_recent_blocks(&NAMESPACE, self.path.hashes_from(self.known_from));
        self.apply(ChainChange::Head(self.path.head()));
        self.apply(ChainChange::Final(self.last_final));
    }

    fn apply(&self, change: ChainChange) {
        self.owner.apply_chain_change(&NAMESPACE, change);
    }

    /// Returns the lowest block that was final and is not on this chain.
    pub fn reverted_block(&self, path: &BlockPath) -> Option<u64> {
        let common = self.path.common_height(path);
        (common < self.final_mark).then_some(common + 1)
    }

    /// Moves the node to another head. The owner is notified as its follower does it: first the
    /// blocks, then the changes.
    pub fn follow(&mut self, path: BlockPath) {
        let common = self.path.common_height(&path);
        let is_reorg = common < self.path.head();
        self.path = path;
        let from = self.known_from.saturating_sub(BACKFILL_BLOCKS);
        self.known_from = from.max(self.final_mark).min(self.known_from);
        self.owner
            .set_recent_blocks(&NAMESPACE, self.path.hashes_from(self.known_from));
        if common < self.final_mark {
            self.final_mark = common;
            self.last_final = self.last_final.map(|_| common);
            self.apply(ChainChange::FinalityReverted { from: common + 1 });
            self.apply(ChainChange::Final(self.last_final));
        }
        if is_reorg {
            self.apply(ChainChange::Reorg { from: common + 1 });
        }
        self.apply(ChainChange::Head(self.path.head()));
    }

    pub fn set_final(&mut self, last_final: Option<u64>) {
        if self.last_final != last_final {
            self.last_final = last_final;
            self.final_mark = self.final_mark.max(last_final.unwrap_or(0));
            self.apply(ChainChange::Final(last_final));
        }
    }

    pub fn set_identity_known(&self, is_known: bool) {
        let identity = is_known.then_some(IDENTITY);
        self.owner.set_chain_identity(&NAMESPACE, identity);
    }

    /// Purges entries of this machine.
    pub fn purge_locally(&self, scope: &PurgeScope, now: ClockReading) {
        self.owner.purge_entries(scope, || now).unwrap();
    }

    /// Opens the gate of the fleet while its values may be used.
    pub fn update_gate(&self, now: ClockReading) {
        let is_open = self.is_up && self.sync.is_current(now.monotonic);
        self.gate.0.store(is_open, Relaxed);
    }

    /// Sends a command about the stream, executes it, or receives its reply. Returns whether there
    /// was one.
    pub fn advance_command(&mut self, server: &mut FleetServer, now: ClockReading) -> bool {
        match self.command.take() {
            None => {
                let command = self.sync.next_command(now);
                self.command = command.map(|command| (command, None));
                return self.command.is_some();
            }
            Some((_, None)) if !self.is_up => {
                self.sync.complete_command(StreamReply::Failed, now);
            }
            Some((command, None)) => {
                let reply = server.execute(self.number, &command);
                self.command = Some((command, Some(reply)));
            }
            Some((_, Some(reply))) => {
                let reply = if self.is_up {
                    reply
                } else {
                    StreamReply::Failed
                };
                self.sync.complete_command(reply, now);
            }
        }
        true
    }

    /// Ends the command in flight without a reply.
    pub fn end_command(&mut self, now: ClockReading) {
        if self.command.take().is_some() {
            self.sync.complete_command(StreamReply::Failed, now);
        }
    }

    /// Begins or completes a job of local purges.
    pub fn advance_job(&mut self, now: ClockReading) {
        let Some(job) = self.job.take() else {
            self.job = self.sync.take_local_purges(now.monotonic);
            return;
        };
        for scope in &job.scopes {
            self.purge_locally(scope, now);
        }
        if job.mark.is_some() {
            self.stored_position = job.mark;
        }
        self.sync.complete_local_purges(true, now.monotonic);
    }

    /// Takes the messages of the owner, and acknowledges its events.
    pub fn take_messages(&mut self, now: ClockReading) -> Vec<OwnerMessage> {
        let mut messages = Vec::new();
        loop {
            let from = self.session.last_sent_event();
            let frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
            let session = &mut self.session;
            let frame = self
                .owner
                .take_session_frame(session, from, false, frame, now);
            let frame = frame.unwrap();
            if frame.message_count() == 0 {
                break;
            }
            let bytes = frame.try_join_pieces().unwrap();
            let (raw, _) = split_first_frame(&bytes, MAX_CALLOUT_FRAME_BYTES)
                .unwrap()
                .unwrap();
            let decoded = raw.map(|raw| OwnerMessage::decode_message(&raw.unwrap()));
            messages.extend(decoded.filter_map(|message| message.unwrap()));
        }
        let numbers = messages.iter().filter_map(|message| match message {
            OwnerMessage::Event { number, .. } => Some(*number),
            _ => None,
        });
        if let Some(last) = numbers.max() {
            self.owner
                .acknowledge_session_events(&mut self.session, last)
                .unwrap();
        }
        messages
    }
}

fn start_owner(
    contents: &Arc<StoreContents>,
    gate: &Arc<ModelGate>,
    now: ClockReading,
) -> (Owner, OwnerSession) {
    let store = MemoryStore {
        contents: Arc::clone(contents),
        disk: Box::new(|_: &CacheKey| false),
    };
    let owner = Owner::new(Box::new(store), MEMORY_BYTES, now);
    let gate: Arc<dyn FleetGate> = Arc::clone(gate) as _;
    owner.set_fleet_gate(gate);
    owner.start_following_chain(NAMESPACE, HeightUnit::Blocks, now);
    owner.set_chain_identity(&NAMESPACE, Some(IDENTITY));
    let request = SessionRequest {
        process: OwnerClientName::new("process").unwrap(),
        attempt: 1,
        clock: now.monotonic,
        polls: false,
    };
    let session = owner.open_session(&request, 1 << 20, now).unwrap();
    (owner, session)
}

fn start_sync(
    number: usize,
    keyring: &Arc<FleetKeyring>,
    position: Option<StreamMark>,
    outbox: Vec<PublishedPurge>,
    now: ClockReading,
) -> StreamSync {
    let id = [number as u8; 8];
    StreamSync::new(Arc::clone(keyring), id, LIMITS, position, outbox, now.unix)
}
