//! Sessions of processes that send frames, next to HTTP requests.

use std::sync::Arc;

use arbitrary::Arbitrary;
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::owner::fleet_gate::FleetGate;
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::session::OwnerSession;
use sszip_core::cache::owner::session_tasks::{
    FleetBatchLookup, FleetLookup, OwnerTask, SessionLookup,
};
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::owner_protocol::frame::{
    split_first_frame, MAX_CALLOUT_FRAME_BYTES, MAX_CONNECTION_FRAME_BYTES,
};
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::{OwnerMessage, SessionEvent};
use sszip_core::cache::owner_protocol::process_message::{
    ProcessMessage, SessionRequest, StoreRequest,
};

/// A step of a process that sends frames, of few keys and processes, so that they coincide.
#[derive(Arbitrary, Debug)]
pub enum SessionStep {
    Join {
        process: u8,
        polls: bool,
    },
    LookUp {
        key: u8,
        lease: Option<u16>,
        fleet_wait: u8,
    },
    LookUpBatch {
        keys: Vec<u8>,
        fleet_wait: u8,
        shareable: u8,
    },
    Store {
        key: u8,
        older: u8,
        fresh: u16,
        first_part: u8,
    },
    Release {
        key: u8,
    },
    Acknowledge {
        back: u8,
    },
    /// A frame of any bytes.
    Frame(Vec<u8>),
    /// The oldest task is complete.
    Complete,
    /// A frame is taken, or a callout is answered.
    Take {
        is_poll: bool,
        back: u8,
    },
    Leave,
}

/// The gate of a fleet that has no entries and is reached for half of the time.
struct IntermittentGate;

impl FleetGate for IntermittentGate {
    fn is_open(&self, now: u64) -> bool {
        now.is_multiple_of(2)
    }

    // no entry is on disk
    fn offer_disk_entry(&self, _: &sszip_core::cache::CacheKey, _: &Arc<OwnerMemoryEntry>, _: u64) {
    }
}

/// Connects an owner to a fleet without entries.
pub fn connect_to_fleet(owner: &Owner) {
    owner.set_fleet_gate(Arc::new(IntermittentGate));
}

/// A process with a session.
struct SessionModel {
    session: OwnerSession,
    polls: bool,
    lookups: Vec<SessionLookup>,
    fleet_lookups: Vec<FleetLookup>,
    /// Batch lookups that wait for another machine.
    fleet_batches: Vec<FleetBatchLookup>,
    /// Number of the last event that was taken.
    taken: u64,
    next_id: u32,
}

/// The open sessions.
#[derive(Default)]
pub struct SessionModels {
    sessions: Vec<SessionModel>,
    attempt: u32,
}

impl SessionModels {
    /// Executes a step of one of the sessions.
    pub fn act(&mut self, owner: &Owner, index: u8, step: SessionStep, now: ClockReading) {
        if let SessionStep::Join { process, polls } = step {
            self.attempt += 1;
            let request = SessionRequest {
                process: OwnerClientName::new(&format!("p{}", process % 4)).unwrap(),
                attempt: self.attempt,
                clock: now.monotonic,
                polls,
            };
            if let Ok(session) = owner.open_session(&request, 64, now) {
                self.sessions.push(SessionModel {
                    session,
                    polls,
                    lookups: Vec::new(),
                    fleet_lookups: Vec::new(),
                    fleet_batches: Vec::new(),
                    taken: 0,
                    next_id: 1,
                });
            }
            return;
        }
        if self.sessions.is_empty() {
            return;
        }
        let index = usize::from(index) % self.sessions.len();
        if !self.sessions[index].act(owner, step, now) {
            let ended = self.sessions.swap_remove(index);
            owner.close_session(&ended.session, now);
        }
    }
}

impl SessionModel {
    /// Executes a step. Returns whether the session is still open.
    fn act(&mut self, owner: &Owner, step: SessionStep, now: ClockReading) -> bool {
        self.next_id += 1;
        let id = self.next_id;
        let key = |key: u8| [key % 8; 32];
        let generation = owner.owner_store().purge_generation();
        match step {
            SessionStep::Join { .. } => true,
            SessionStep::Leave => false,
            SessionStep::LookUp {
                key: n,
                lease,
                fleet_wait,
            } => {
                let lookup = ProcessMessage::Lookup {
                    id,
                    key: key(n),
                    lease: lease.map(u32::from),
                    fleet_wait: fleet_wait.into(),
                    call_kind: n.into(),
                };
                self.receive(owner, lookup, now)
            }
            SessionStep::LookUpBatch { keys, .. } if keys.is_empty() => true,
            SessionStep::LookUpBatch {
                keys,
                fleet_wait,
                shareable,
            } => {
                let batch = ProcessMessage::BatchLookup {
                    id,
                    call_kinds: vec![1; usize::from(shareable).min(keys.len())],
                    keys: keys.into_iter().map(key).collect(),
                    fleet_wait: fleet_wait.into(),
                    lease_wait: u32::from(fleet_wait) * 100,
                };
                self.receive(owner, batch, now)
            }
            SessionStep::Store {
                key: n,
                older,
                fresh,
                first_part,
            } => {
                // the body is the key
                let body = key(n).to_vec();
                let rest = body[usize::from(first_part % 33)..].to_vec();
                let store = ProcessMessage::Store(Box::new(StoreRequest {
                    id,
                    key: key(n),
                    about: StoredEntryAttributes {
                        class: LifetimeClass::Immutable,
                        namespace: [n % 2; 16],
                        generation: generation.saturating_sub(u64::from(older % 3)),
                        ..StoredEntryAttributes::default()
                    },
                    fresh: fresh.into(),
                    age: 0,
                    if_final: None,
                    is_shareable: true,
                    anchor: None,
                    total: body.len() as u64,
                    entry: body[..body.len() - rest.len()].to_vec().into(),
                }));
                self.receive(owner, store, now)
                    && (rest.is_empty() || {
                        let bytes = rest.into();
                        self.receive(owner, ProcessMessage::Chunk { id, bytes }, now)
                    })
            }
            SessionStep::Release { key: n } => {
                self.receive(owner, ProcessMessage::Release(key(n)), now)
            }
            SessionStep::Acknowledge { back } => {
                let event = self.taken.saturating_sub(u64::from(back % 4));
                let acknowledged = owner.acknowledge_session_events(&mut self.session, event);
                assert!(acknowledged.is_ok());
                true
            }
            SessionStep::Frame(bytes) => {
                let Ok(Some((messages, _))) = split_first_frame(&bytes, MAX_CONNECTION_FRAME_BYTES)
                else {
                    return true;
                };
                for message in messages {
                    let message = message.and_then(|raw| ProcessMessage::decode_message(&raw));
                    match message {
                        Err(_) => return false,
                        // the model knows the bodies of all entries
                        Ok(
                            None | Some(ProcessMessage::Store(_) | ProcessMessage::Chunk { .. }),
                        ) => {}
                        Ok(Some(message)) => {
                            if !self.receive(owner, message, now) {
                                return false;
                            }
                        }
                    }
                }
                true
            }
            SessionStep::Complete => {
                if !self.lookups.is_empty() {
                    let lookup = self.lookups.remove(0);
                    let hit = owner.lookup_in_store(&lookup.key, now);
                    let task = owner.complete_lookup(&mut self.session, lookup, hit, now);
                    self.run_tasks(owner, task.into_iter().collect(), now);
                }
                if !self.fleet_lookups.is_empty() {
                    let lookup = self.fleet_lookups.remove(0);
                    let session = &mut self.session;
                    let tasks = owner.complete_fleet_lookup(session, lookup, None, now);
                    self.run_tasks(owner, tasks, now);
                }
                if !self.fleet_batches.is_empty() {
                    let batch = self.fleet_batches.remove(0);
                    let session = &mut self.session;
                    let tasks = owner.complete_fleet_batch_wait(session, batch, Vec::new(), now);
                    self.run_tasks(owner, tasks, now);
                }
                true
            }
            SessionStep::Take { is_poll, back } => self.take(owner, is_poll, back, now),
        }
    }

    fn receive(&mut self, owner: &Owner, message: ProcessMessage, now: ClockReading) -> bool {
        match owner.receive_message(&mut self.session, message, now) {
            Err(_) => false,
            Ok(tasks) => {
                self.run_tasks(owner, tasks, now);
                true
            }
        }
    }

    fn run_tasks(&mut self, owner: &Owner, tasks: Vec<OwnerTask>, now: ClockReading) {
        for task in tasks {
            match task {
                OwnerTask::ReadStore(lookup) => self.lookups.push(lookup),
                OwnerTask::QueryFleet(lookup) => self.fleet_lookups.push(lookup),
                OwnerTask::QueryFleetBatch(batch) => {
                    let session = &mut self.session;
                    // another machine fetches every second key
                    let keys = batch.calls.iter().map(|call| call.key);
                    let awaited = keys.filter(|key| key[0].is_multiple_of(2)).collect();
                    let tasks =
                        owner.complete_fleet_batch_lookup(session, batch, Vec::new(), awaited, now);
                    self.run_tasks(owner, tasks, now);
                }
                OwnerTask::AwaitFleetBatch(batch, _) => self.fleet_batches.push(batch),
                OwnerTask::ReadStoreBatch {
                    batch,
                    keys,
                    mut found,
                } => {
                    let look_up = |key| Some((key, owner.lookup_in_store(&key, now)?));
                    found.extend(keys.into_iter().filter_map(look_up));
                    let session = &mut self.session;
                    let tasks = owner.complete_batch_lookup(session, batch, found, now);
                    self.run_tasks(owner, tasks, now);
                }
                OwnerTask::WriteEntry(key, entry) => {
                    owner.write_to_store(&key, &entry, now).unwrap();
                }
                OwnerTask::FinishStore(stored) => {
                    if stored.is_to_be_stored {
                        owner
                            .write_to_store(&stored.key, &stored.entry, now)
                            .unwrap();
                    }
                }
                OwnerTask::StoreLong(store, body) => {
                    let process = self.session.process().clone();
                    let _ = owner.store_fetched_entry(Some(&process), *store, body, now);
                }
                OwnerTask::Purge { id, .. } | OwnerTask::Status { id } => {
                    owner.complete_admin_request(&mut self.session, id, 200, vec![b' '; 9]);
                }
                OwnerTask::CheckEntry(..) => panic!("the entries are short"),
            }
        }
    }

    /// Takes a frame, and checks its messages. Returns whether the session is still open.
    fn take(&mut self, owner: &Owner, is_poll: bool, back: u8, now: ClockReading) -> bool {
        let session = &mut self.session;
        let from = self.taken.saturating_sub(u64::from(back % 4));
        let frame = match (self.polls, is_poll) {
            (true, true) => {
                let frame = OutgoingFrame::for_callout().unwrap();
                owner.take_poll_answer(session, from, frame, now)
            }
            (true, false) => {
                let frame = OutgoingFrame::for_callout().unwrap();
                owner.take_data_answer(session, frame, now)
            }
            (false, _) => {
                let frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
                let from = session.last_sent_event();
                owner.take_session_frame(session, from, is_poll, frame, now)
            }
        };
        let Ok(frame) = frame else {
            return false;
        };
        if frame.message_count() == 0 {
            return true;
        }
        let bytes = frame.try_join_pieces().unwrap();
        let (messages, rest) = split_first_frame(&bytes, MAX_CALLOUT_FRAME_BYTES)
            .unwrap()
            .unwrap();
        assert!(rest.is_empty());
        let mut last = None;
        let mut late = 0;
        for message in messages {
            match OwnerMessage::decode_message(&message.unwrap())
                .unwrap()
                .unwrap()
            {
                OwnerMessage::Event { number, event } => {
                    assert!(last.is_none_or(|last| number == last + 1) && late == 0);
                    last = Some(number);
                    self.taken = self.taken.max(number);
                    if let SessionEvent::LateReply { messages } = event {
                        late = messages;
                    }
                }
                OwnerMessage::SendLease { until, .. } => {
                    assert!(until <= now.monotonic + 1_000);
                }
                _ => late = late.saturating_sub(1),
            }
        }
        assert_eq!(late, 0);
        true
    }
}
