//! An owner that answers callouts (docs/owner-protocol.md, Callouts), without sockets and threads.

use std::collections::BTreeMap;

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::owner::session::OwnerSession;
use sszip_core::cache::owner::session_tasks::{OwnerTask, SessionEnd, SessionLookup};
use sszip_core::cache::owner::state::OwnerHit;
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::owner_protocol::callout_envelope::{
    CalloutAnswer, CalloutEnvelope, CalloutRole,
};
use sszip_core::cache::owner_protocol::frame::FrameMessages;
use sszip_core::cache::owner_protocol::message_body::MessageBody;
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::RefusalReason;
use sszip_core::cache::owner_protocol::process_message::ProcessMessage;
use sszip_core::cache::CacheKey;
use sszip_core::time_constants::memory_lease;

/// Maximum length of an entry in bytes.
const MAX_ENTRY: u64 = 31 << 20;

/// Identity of a callout.
pub type CalloutNumber = u64;

/// The response to a callout: its status and its body.
pub type CalloutResponse = (u16, Vec<u8>);

/// An owner, and the sessions of processes that poll.
pub struct CalloutOwner {
    pub owner: Owner,
    /// Sessions by their numbers.
    sessions: BTreeMap<u64, PolledSession>,
    /// Responses that were not taken.
    responses: Vec<(CalloutNumber, CalloutResponse)>,
}

/// A session of a process that polls.
struct PolledSession {
    session: OwnerSession,
    /// Number of the last data callout that was handled.
    last_data: u32,
    poll: Option<WaitingPoll>,
    tasks: Vec<OwnerTask>,
    /// Generations of the purges that are not complete, by the numbers of their requests.
    purges: Vec<(u32, u64)>,
    /// Time of the end of the last callout, in monotonic milliseconds.
    idle_since: u64,
}

/// A poll that was not answered.
struct WaitingPoll {
    callout: CalloutNumber,
    applied: u64,
    until: u64,
}

impl CalloutOwner {
    pub fn new(owner: Owner) -> Self {
        Self {
            owner,
            sessions: BTreeMap::new(),
            responses: Vec::new(),
        }
    }

    /// Handles a callout. [`take_responses`](Self::take_responses) returns its response; the
    /// response to a poll may be returned by a later call.
    pub fn receive_callout(&mut self, callout: CalloutNumber, body: &[u8], now: ClockReading) {
        let Ok(envelope) = CalloutEnvelope::decode_body(body) else {
            return self.responses.push((callout, (400, Vec::new())));
        };
        match envelope.role {
            CalloutRole::Data { number } if envelope.session == 0 => {
                self.open_session(callout, envelope, number, now);
            }
            CalloutRole::Poll { wait } => self.receive_poll(callout, &envelope, wait, now),
            CalloutRole::Data { number } => self.receive_data(callout, envelope, number, now),
        }
    }

    /// Drops a poll whose client has disconnected.
    #[allow(dead_code)] // no callout of the parity table fails
    pub fn abandon_callout(&mut self, callout: CalloutNumber, now: ClockReading) {
        for polled in self.sessions.values_mut() {
            let poll = polled.poll.take_if(|poll| poll.callout == callout);
            if poll.is_some() {
                polled.idle_since = now.monotonic;
            }
        }
    }

    /// Completes tasks, purges and polls, and ends silent sessions. Returns the responses that are
    /// known.
    pub fn take_responses(&mut self, now: ClockReading) -> Vec<(CalloutNumber, CalloutResponse)> {
        let owner = &self.owner;
        for polled in self.sessions.values_mut() {
            polled.run_tasks(owner, now);
        }
        owner.end_leases_and_complete_purges(now);
        owner.take_notified_sessions();
        for polled in self.sessions.values_mut() {
            polled.complete_purges(owner);
            let is_due = |poll: &mut WaitingPoll| {
                poll.until <= now.monotonic || owner.has_output_after(&polled.session, poll.applied)
            };
            if let Some(poll) = polled.poll.take_if(is_due) {
                let answer = polled.answer_poll(owner, poll.applied, now);
                self.responses.push((poll.callout, respond(&answer)));
            }
        }
        self.sessions.retain(|_, polled| {
            let is_silent =
                polled.poll.is_none() && polled.idle_since + memory_lease() <= now.monotonic;
            if is_silent {
                owner.close_session(&polled.session, now);
            }
            !is_silent
        });
        std::mem::take(&mut self.responses)
    }

    fn open_session(
        &mut self,
        callout: CalloutNumber,
        mut envelope: CalloutEnvelope<'_>,
        number: u32,
        now: ClockReading,
    ) {
        let request = envelope.take_session_request().unwrap();
        match self.owner.open_session(&request, MAX_ENTRY, now) {
            Ok(session) => {
                envelope.session = self.owner.session_number(session.id());
                assert_eq!(envelope.applied, 0);
                let polled = PolledSession {
                    session,
                    last_data: number - 1,
                    poll: None,
                    tasks: Vec::new(),
                    purges: Vec::new(),
                    idle_since: now.monotonic,
                };
                self.sessions.insert(envelope.session, polled);
                self.receive_data(callout, envelope, number, now);
            }
            Err(reason) => {
                let answer = CalloutAnswer::Refused(reason);
                self.responses.push((callout, respond(&answer)));
            }
        }
    }

    /// Handles the messages of a callout.
    fn receive_data(
        &mut self,
        callout: CalloutNumber,
        envelope: CalloutEnvelope<'_>,
        number: u32,
        now: ClockReading,
    ) {
        let answer = match self.find_session(&envelope) {
            None => refusal(),
            Some((_, polled)) if number <= polled.last_data => CalloutAnswer::Empty,
            Some((owner, polled)) => {
                polled.last_data = number;
                polled.idle_since = now.monotonic;
                let messages = envelope.messages.unwrap();
                polled.answer_messages(owner, envelope.applied, messages, now)
            }
        };
        if matches!(answer, CalloutAnswer::Refused(_)) {
            self.end_session(envelope.session, now);
        }
        self.responses.push((callout, respond(&answer)));
    }

    fn receive_poll(
        &mut self,
        callout: CalloutNumber,
        envelope: &CalloutEnvelope<'_>,
        wait: u32,
        now: ClockReading,
    ) {
        let Some((owner, polled)) = self.find_session(envelope) else {
            return self.responses.push((callout, respond(&refusal())));
        };
        owner
            .acknowledge_session_events(&mut polled.session, envelope.applied)
            .unwrap();
        let poll = WaitingPoll {
            callout,
            applied: envelope.applied,
            until: now.monotonic + u64::from(wait),
        };
        if let Some(former) = polled.poll.replace(poll) {
            let answer = polled.answer_poll(owner, former.applied, now);
            self.responses.push((former.callout, respond(&answer)));
        }
    }

    fn find_session(
        &mut self,
        envelope: &CalloutEnvelope<'_>,
    ) -> Option<(&Owner, &mut PolledSession)> {
        let polled = self.sessions.get_mut(&envelope.session)?;
        let is_its_process = *polled.session.process() == envelope.process;
        is_its_process.then_some((&self.owner, polled))
    }

    fn end_session(&mut self, number: u64, now: ClockReading) {
        if let Some(polled) = self.sessions.remove(&number) {
            self.owner.close_session(&polled.session, now);
            if let Some(poll) = polled.poll {
                self.responses.push((poll.callout, respond(&refusal())));
            }
        }
    }
}

impl PolledSession {
    fn answer_messages(
        &mut self,
        owner: &Owner,
        applied: u64,
        messages: FrameMessages<'_>,
        now: ClockReading,
    ) -> CalloutAnswer {
        if let Err(end) = self.receive_messages(owner, applied, messages, now) {
            // the link follows the protocol, and never ends its session
            panic!("{end:?}");
        }
        let frame = OutgoingFrame::for_callout().unwrap();
        let answer = owner.take_data_answer(&mut self.session, frame, now);
        answer.map_or_else(|_| refusal(), CalloutAnswer::Frame)
    }

    fn receive_messages(
        &mut self,
        owner: &Owner,
        applied: u64,
        messages: FrameMessages<'_>,
        now: ClockReading,
    ) -> Result<(), SessionEnd> {
        owner.acknowledge_session_events(&mut self.session, applied)?;
        for message in messages {
            let message = ProcessMessage::decode_message(&message.unwrap()).unwrap();
            let tasks = owner.receive_message(&mut self.session, message.unwrap(), now)?;
            self.tasks.extend(tasks);
        }
        Ok(())
    }

    fn answer_poll(&mut self, owner: &Owner, applied: u64, now: ClockReading) -> CalloutAnswer {
        self.idle_since = now.monotonic;
        let frame = OutgoingFrame::for_callout().unwrap();
        let answer = owner.take_poll_answer(&mut self.session, applied, frame, now);
        answer.map_or_else(|_| refusal(), CalloutAnswer::Frame)
    }

    /// Runs the tasks, and those that follow them.
    fn run_tasks(&mut self, owner: &Owner, now: ClockReading) {
        while !self.tasks.is_empty() {
            for task in std::mem::take(&mut self.tasks) {
                self.run_task(owner, task, now);
            }
        }
    }

    fn run_task(&mut self, owner: &Owner, task: OwnerTask, now: ClockReading) {
        let check = |key: &CacheKey, hit: OwnerHit| {
            let kept = match hit.kept.length_if_unchecked() {
                Some(_) => owner.check_entry_strictly(key, &hit.kept)?,
                None => hit.kept,
            };
            Some(OwnerHit { kept, ..hit })
        };
        let read = |key: &CacheKey| check(key, owner.lookup_in_store(key, now)?);
        let session = &mut self.session;
        let mut complete = |lookup: SessionLookup, hit| {
            let task = owner.complete_lookup(session, lookup, hit, now);
            task.into_iter().collect()
        };
        let next: Vec<OwnerTask> = match task {
            OwnerTask::ReadStore(lookup) => complete(lookup, read(&lookup.key)),
            OwnerTask::CheckEntry(lookup, hit) => complete(lookup, check(&lookup.key, hit)),
            OwnerTask::QueryFleet(_)
            | OwnerTask::QueryFleetBatch(_)
            | OwnerTask::AwaitFleetBatch(..) => panic!("the owner has no fleet"),
            OwnerTask::ReadStoreBatch { batch, keys, found } => {
                let found = found.into_iter();
                let found = found.filter_map(|(key, hit)| Some((key, check(&key, hit)?)));
                let read = keys.into_iter().filter_map(|key| Some((key, read(&key)?)));
                let found = found.chain(read).collect();
                owner.complete_batch_lookup(session, batch, found, now)
            }
            OwnerTask::StoreLong(store, body) => {
                let process = session.process().clone();
                // a refused entry has ended its lease
                let stored = owner.store_fetched_entry(Some(&process), *store, body, now);
                stored.into_iter().map(OwnerTask::FinishStore).collect()
            }
            OwnerTask::FinishStore(stored) if stored.is_to_be_stored => {
                vec![OwnerTask::WriteEntry(stored.key, stored.entry)]
            }
            OwnerTask::FinishStore(_) => Vec::new(),
            OwnerTask::WriteEntry(key, entry) => {
                let checked = match entry.length_if_unchecked() {
                    Some(_) => owner.check_entry_strictly(&key, &entry),
                    None => Some(entry),
                };
                if let Some(entry) = checked {
                    owner.write_to_store(&key, &entry, now).unwrap();
                }
                Vec::new()
            }
            OwnerTask::Purge { id, scope } => {
                let generation = purge_entries(owner, scope, now);
                self.purges.push((id, generation));
                Vec::new()
            }
            OwnerTask::Status { id } => {
                let status = owner.owner_status_json().to_string();
                owner.complete_admin_request(session, id, 200, status.into_bytes());
                Vec::new()
            }
        };
        self.tasks.extend(next);
    }

    /// Replies to the purges that no process can send entries of any more.
    fn complete_purges(&mut self, owner: &Owner) {
        let complete = self.purges.extract_if(.., |(_, generation)| {
            !owner.is_purge_incomplete(*generation)
        });
        for (id, _) in complete {
            owner.complete_admin_request(&mut self.session, id, 200, b"{}".to_vec());
        }
    }
}

/// Purges everything, or a namespace whose node is on another chain. Returns the generation.
fn purge_entries(owner: &Owner, scope: MessageBody, now: ClockReading) -> u64 {
    let scope = scope.into_joined_bytes().unwrap();
    let scope: serde_json::Value = serde_json::from_slice(&scope).unwrap();
    let scope = match scope["wrong-chain"].as_str() {
        Some(namespace) => {
            let namespace = u128::from_str_radix(namespace, 16).unwrap().to_be_bytes();
            owner.suspend_namespace(namespace, now);
            PurgeScope::Namespace(namespace)
        }
        None => {
            assert_eq!(scope["everything"], true);
            PurgeScope::Everything
        }
    };
    owner.purge_entries(&scope, || now).unwrap()
}

fn refusal() -> CalloutAnswer {
    CalloutAnswer::Refused(RefusalReason::UnknownSession)
}

fn respond(answer: &CalloutAnswer) -> CalloutResponse {
    (200, answer.encode().unwrap())
}
