//! The processes with a session: their queued events, their send leases, and the completion of
//! purges.
//!
//! A send lease starts when its message is *taken* for sending: a process that reads nothing
//! receives no lease, so a purge waits for it for at most [`memory_lease`], whatever is queued in
//! between.

use crate::hash_keys::HashMap;
use std::collections::BTreeMap;

use super::event_queue::OwnerEventQueue;
pub use crate::cache::owner_protocol::client_name::OwnerClientName;
use crate::cache::owner_protocol::owner_message::{PurgeEventScope, SessionEvent};
use crate::time_constants::{memory_lease, memory_lease_renewal, predecessor_lease};

/// Maximum number of events of a session that are not acknowledged. Beyond it the session is closed.
const MAX_QUEUED_EVENTS: usize = 16_384;

/// Maximum number of processes at a time.
const MAX_PROCESSES: usize = 1_024;

/// The identity of a session of the owner; identities are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerSessionId(u64);

impl OwnerSessionId {
    /// Number of the session among all sessions of this owner, from 0 on.
    pub(super) fn index(self) -> u64 {
        self.0
    }
}

/// A send lease of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedSendLease {
    /// Time until which the process may send entries from its memory, in monotonic milliseconds.
    pub until: u64,
    /// Number of the last event that was queued before the lease was granted.
    pub after: u64,
    /// Generation of the newest purge.
    pub generation: u64,
}

/// The error of a session that is refused because too many processes are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyProcesses;

/// The error of an acknowledgement of a purge that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchPurge;

/// The owner's table of the processes that are connected or have a send lease, and of the purges
/// that wait for them.
#[derive(Debug, Default)]
pub struct ProcessTable {
    by_name: HashMap<OwnerClientName, KnownProcess>,
    sessions: HashMap<OwnerSessionId, OwnerClientName>,
    next_session: u64,
    woken: Vec<OwnerSessionId>,
    purge_generation: u64,
    /// End of the time in which processes may have a send lease of an earlier owner.
    grace: u64,
    purges: BTreeMap<u64, PendingPurge>,
}

/// A connected or recently connected process: its session, its queued events and its send lease.
#[derive(Debug, Default)]
struct KnownProcess {
    session: Option<OwnerSessionId>,
    /// Number of the last session request.
    attempt: u32,
    queue: OwnerEventQueue,
    /// Time at which the next send lease is due.
    due: u64,
    /// End of the last send lease.
    until: u64,
}

/// A purge that waits until no process can send an entry that it covers.
#[derive(Debug)]
struct PendingPurge {
    /// End of the minimum wait.
    grace: u64,
    /// End of the send lease of each process that has not acknowledged.
    untils: HashMap<OwnerClientName, u64>,
}

impl PendingPurge {
    /// Returns the last millisecond at which the purge is not complete.
    fn purge_completion_deadline(&self) -> u64 {
        self.untils.values().copied().fold(self.grace, u64::max)
    }
}

impl ProcessTable {
    /// Creates the table of an owner that starts at `now`, with no known processes; purges wait for
    /// those with a send lease of an earlier owner.
    pub fn new(generation: u64, now: u64) -> Self {
        Self {
            purge_generation: generation,
            grace: now.saturating_add(predecessor_lease()),
            ..Self::default()
        }
    }

    /// Records that the owner listens from `now` on: a process that found no owner before may
    /// assume that there was none for [`predecessor_lease`].
    pub fn record_owner_listening_start(&mut self, now: u64) {
        self.grace = now.saturating_add(predecessor_lease());
    }

    /// Number of purges that were put into effect, which is the generation of a request that is
    /// sent to the node now.
    pub fn purge_generation(&self) -> u64 {
        self.purge_generation
    }

    /// Opens a session for a process with the number of its request, and closes its present one.
    ///
    /// # Errors
    /// [`TooManyProcesses`].
    pub fn open_session(
        &mut self,
        name: &OwnerClientName,
        attempt: u32,
        now: u64,
    ) -> Result<OwnerSessionId, TooManyProcesses> {
        self.remove_processes_past_lease(now);
        if self.by_name.len() >= MAX_PROCESSES && !self.by_name.contains_key(name) {
            return Err(TooManyProcesses);
        }
        let session = OwnerSessionId(self.next_session);
        self.next_session += 1;
        let process = self.by_name.entry(name.clone()).or_insert(KnownProcess {
            due: now,
            ..KnownProcess::default()
        });
        let former = process.session.replace(session);
        process.attempt = attempt;
        process.queue = OwnerEventQueue::default();
        if let Some(former) = former {
            self.sessions.remove(&former);
            self.woken.push(former);
        }
        self.sessions.insert(session, name.clone());
        Ok(session)
    }

    /// Whether a process is connected: it has an open session.
    pub fn is_process_connected(&self, name: &OwnerClientName) -> bool {
        self.by_name
            .get(name)
            .is_some_and(|process| process.session.is_some())
    }

    /// Closes a session that has ended, and returns its process unless that has a newer session.
    /// The send lease continues: the process may not have noticed.
    pub fn close_session(&mut self, session: OwnerSessionId) -> Option<OwnerClientName> {
        let name = self.sessions.remove(&session)?;
        if let Some(process) = self.by_name.get_mut(&name) {
            process.session = None;
            process.queue = OwnerEventQueue::default();
        }
        Some(name)
    }

    /// Whether a session request of a process is newer than the last one that was accepted. An
    /// older one was delayed, and must not end the present session.
    pub fn is_newer_attempt(&self, name: &OwnerClientName, attempt: u32) -> bool {
        self.by_name
            .get(name)
            .is_none_or(|process| attempt > process.attempt)
    }

    /// Whether a session is open: no newer one has replaced it, and its process acknowledges its
    /// events.
    pub fn is_session_open(&self, session: OwnerSessionId) -> bool {
        self.process_of_session(session)
            .is_some_and(|process| process.queue.event_count() <= MAX_QUEUED_EVENTS)
    }

    /// Returns the name of the process whose open session has this index.
    pub(super) fn process_of_open_session(&self, index: u64) -> Option<OwnerClientName> {
        let session = OwnerSessionId(index);
        let name = self.sessions.get(&session)?;
        self.is_session_open(session).then(|| name.clone())
    }

    /// Returns the event of a session after that number, or the first one that is not acknowledged,
    /// with its number.
    pub fn session_event_after(
        &self,
        session: OwnerSessionId,
        number: u64,
    ) -> Option<(u64, SessionEvent)> {
        let (number, event) = self
            .process_of_session(session)?
            .queue
            .event_after(number)?;
        Some((number, event.clone()))
    }

    /// Whether a session has events after that number.
    pub fn has_event_after(&self, session: OwnerSessionId, number: u64) -> bool {
        self.process_of_session(session)
            .is_some_and(|process| process.queue.last_number() > number)
    }

    /// Removes the events of a session up to `number`, which are in effect in its process, and
    /// acknowledges the purges among them. Returns `false` if there was no such event.
    pub fn acknowledge_session_events(&mut self, session: OwnerSessionId, number: u64) -> bool {
        let Some(name) = self.sessions.get(&session) else {
            return true;
        };
        let Some(process) = self.by_name.get_mut(name) else {
            return true;
        };
        let Some(generation) = process.queue.remove_through(number) else {
            return false;
        };
        if generation > 0 {
            remove_from_purges(&mut self.purges, name, generation);
        }
        true
    }

    /// Queues a late reply that consists of `messages` messages among the events of a session, and
    /// returns its number; `None` if the session was closed or is too far behind.
    pub fn queue_late_reply(&mut self, session: OwnerSessionId, messages: usize) -> Option<u64> {
        let process = self.process_of_session_mut(session)?;
        if process.queue.event_count() > MAX_QUEUED_EVENTS {
            return None;
        }
        let messages = u16::try_from(messages).unwrap_or(u16::MAX);
        process
            .queue
            .push_event(SessionEvent::LateReply { messages });
        let number = process.queue.last_number();
        self.woken.push(session);
        Some(number)
    }

    /// Time at which the next send lease of a session is due, in monotonic milliseconds.
    pub fn next_send_lease_due(&self, session: OwnerSessionId) -> Option<u64> {
        Some(self.process_of_session(session)?.due)
    }

    /// Grants a send lease to the process of a session, which begins now. The lease names the last
    /// event of the session, which has to be in effect before the process uses the lease.
    pub fn grant_send_lease(
        &mut self,
        session: OwnerSessionId,
        now: u64,
    ) -> Option<GrantedSendLease> {
        let generation = self.purge_generation;
        let process = self.process_of_session_mut(session)?;
        process.until = now.saturating_add(memory_lease());
        process.due = now.saturating_add(memory_lease_renewal());
        Some(GrantedSendLease {
            until: process.until,
            after: process.queue.last_number(),
            generation,
        })
    }

    fn process_of_session(&self, session: OwnerSessionId) -> Option<&KnownProcess> {
        self.by_name.get(self.sessions.get(&session)?)
    }

    fn process_of_session_mut(&mut self, session: OwnerSessionId) -> Option<&mut KnownProcess> {
        self.by_name.get_mut(self.sessions.get(&session)?)
    }

    /// Queues an event for one process, if it has a session.
    pub fn queue_event_for_process(&mut self, name: &OwnerClientName, event: SessionEvent) {
        let Some(process) = self.by_name.get_mut(name) else {
            return;
        };
        let Some(session) = process.session else {
            return;
        };
        // one event more than allowed marks the excess
        if process.queue.event_count() <= MAX_QUEUED_EVENTS {
            process.queue.push_event(event);
            self.woken.push(session);
        }
    }

    /// Puts a purge into effect at `now`: notifies all processes, and waits for them.
    /// [`take_completed_purges`](Self::take_completed_purges) returns it when it is complete.
    pub fn begin_purge(&mut self, generation: u64, scope: PurgeEventScope, now: u64) {
        self.purge_generation = self.purge_generation.max(generation);
        self.remove_processes_past_lease(now);
        let untils = self
            .by_name
            .iter()
            .map(|(name, process)| (name.clone(), process.until))
            .collect();
        self.purges.insert(
            generation,
            PendingPurge {
                grace: self.grace,
                untils,
            },
        );
        self.publish_event_to_all(&SessionEvent::Purge { generation, scope });
    }

    /// Queues an event for every process that has a session.
    pub fn publish_event_to_all(&mut self, event: &SessionEvent) {
        let names: Vec<OwnerClientName> = self.sessions.values().cloned().collect();
        for name in names {
            self.queue_event_for_process(&name, event.clone());
        }
    }

    /// Records that a process sends no entries any more that purges up to `generation` cover.
    ///
    /// # Errors
    /// [`NoSuchPurge`].
    pub fn acknowledge_purges(
        &mut self,
        name: &OwnerClientName,
        generation: u64,
    ) -> Result<(), NoSuchPurge> {
        if generation > self.purge_generation {
            return Err(NoSuchPurge);
        }
        remove_from_purges(&mut self.purges, name, generation);
        Ok(())
    }

    /// Removes and returns the purges that are complete at `now`: no process can send an entry that
    /// they removed any more.
    pub fn take_completed_purges(&mut self, now: u64) -> Vec<u64> {
        let over: Vec<u64> = self
            .purges
            .iter()
            .filter(|(_, waiting)| now > waiting.purge_completion_deadline())
            .map(|(generation, _)| *generation)
            .collect();
        for generation in &over {
            self.purges.remove(generation);
        }
        over
    }

    /// Time at which [`take_completed_purges`](Self::take_completed_purges) will return a purge without an
    /// acknowledgement, in monotonic milliseconds.
    pub fn next_purge_deadline(&self) -> Option<u64> {
        self.purges
            .values()
            .map(|waiting| waiting.purge_completion_deadline().saturating_add(1))
            .min()
    }

    /// Takes the sessions for which events were queued since the last call, so that the server wakes
    /// them.
    pub fn take_notified_sessions(&mut self) -> Vec<OwnerSessionId> {
        std::mem::take(&mut self.woken)
    }

    /// Returns the names of the processes that have a session, in no order.
    pub fn connected_process_names(&self) -> impl Iterator<Item = &OwnerClientName> {
        self.sessions.values()
    }

    /// Whether some process may still send entries that a purge covers, as of the last
    /// [`take_completed_purges`](Self::take_completed_purges).
    pub fn is_purge_pending(&self, generation: u64) -> bool {
        self.purges.contains_key(&generation)
    }

    /// Number of purges that some process may not have in effect yet.
    pub fn pending_purge_count(&self) -> usize {
        self.purges.len()
    }

    /// Removes processes without a session whose send lease has ended.
    fn remove_processes_past_lease(&mut self, now: u64) {
        self.by_name
            .retain(|_, process| process.session.is_some() || process.until >= now);
    }
}

/// Ends the wait of purges up to `generation` for a process.
fn remove_from_purges(
    purges: &mut BTreeMap<u64, PendingPurge>,
    name: &OwnerClientName,
    generation: u64,
) {
    for (_, waiting) in purges.range_mut(..=generation) {
        waiting.untils.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> OwnerClientName {
        OwnerClientName::new(name).unwrap()
    }

    const TIME: u64 = 1_000;

    /// A time after the grace period of the start.
    const START: u64 = 10_000;

    fn started() -> ProcessTable {
        ProcessTable::new(5, START - TIME - 1)
    }

    #[test]
    fn purge_after_the_start_waits_for_send_leases_of_an_earlier_owner() {
        let mut processes = ProcessTable::new(5, 0);
        processes.begin_purge(6, PurgeEventScope::Everything, TIME / 2);
        assert!(processes.take_completed_purges(TIME).is_empty());
        assert_eq!(processes.take_completed_purges(TIME + 1), [6]);
    }

    #[test]
    fn purge_after_the_start_waits_for_processes_that_found_no_owner() {
        let mut processes = ProcessTable::new(5, 0);
        processes.record_owner_listening_start(300);
        processes.begin_purge(6, PurgeEventScope::Everything, TIME);
        assert!(processes.take_completed_purges(300 + TIME).is_empty());
        assert_eq!(processes.take_completed_purges(301 + TIME), [6]);
    }

    #[test]
    fn session_that_acknowledges_nothing_is_closed_when_its_queue_is_full() {
        let mut processes = started();
        let session = processes.open_session(&name("a"), 1, START).unwrap();
        for _ in 0..MAX_QUEUED_EVENTS {
            processes.queue_event_for_process(&name("a"), SessionEvent::Filled([1; 32]));
        }
        assert!(processes.is_session_open(session));
        processes.queue_event_for_process(&name("a"), SessionEvent::Filled([1; 32]));
        assert!(!processes.is_session_open(session));
        assert_eq!(processes.queue_late_reply(session, 1), None);
        assert_eq!(processes.take_notified_sessions().last(), Some(&session));
    }

    #[test]
    fn number_of_processes_is_limited() {
        let mut processes = started();
        for n in 0..MAX_PROCESSES {
            let process = name(&format!("p{n}"));
            processes.open_session(&process, 1, START).unwrap();
        }
        let refused = processes.open_session(&name("q"), 1, START);
        assert_eq!(refused, Err(TooManyProcesses));
        assert!(processes.open_session(&name("p7"), 2, START).is_ok());
    }

    mod sequences {
        use proptest::prelude::*;

        use super::*;

        #[derive(Clone, Debug)]
        enum ProcessStep {
            Arrive(u8),
            Leave(u8),
            /// The process reads one event and applies it, or a send lease.
            Read(u8),
            /// The process acknowledges its last event, or a generation.
            Acknowledge(u8, bool),
            Purge,
            Pass(u64),
        }

        fn step() -> impl Strategy<Value = ProcessStep> {
            let process = 0..3u8;
            prop_oneof![
                2 => process.clone().prop_map(ProcessStep::Arrive),
                1 => process.clone().prop_map(ProcessStep::Leave),
                6 => process.clone().prop_map(ProcessStep::Read),
                4 => (process, any::<bool>()).prop_map(|(process, by_event)| ProcessStep::Acknowledge(process, by_event)),
                2 => Just(ProcessStep::Purge),
                4 => (1..400u64).prop_map(ProcessStep::Pass),
            ]
        }

        /// A process that follows the protocol: it may send its entries during its send lease, and
        /// removes them at a purge.
        #[derive(Clone, Copy, Default)]
        struct ProcessModel {
            session: Option<OwnerSessionId>,
            /// Number of the last event that is in effect.
            applied: u64,
            until: u64,
            knows: u64,
        }

        proptest! {
            /// When a purge is complete, no process may send entries from before it; and it is
            /// complete as soon as that is true, whatever the processes do.
            #[test]
            fn purge_is_complete_exactly_when_no_process_can_send_purged_entries(steps in prop::collection::vec(step(), 0..120)) {
                let mut processes = started();
                let mut now = START;
                let mut models: [ProcessModel; 3] = Default::default();
                // purges that are not complete, and the end of each process's send lease
                let mut begun: Vec<(u64, [u64; 3])> = Vec::new();
                let mut generation = 5;
                let mut attempt = 0;
                for step in steps {
                    match step {
                        ProcessStep::Arrive(n) => {
                            attempt += 1;
                            let session = processes.open_session(&name(&format!("p{n}")), attempt, now).unwrap();
                            let model = &mut models[n as usize];
                            model.session = Some(session);
                            model.applied = 0;
                            // as of the message that the session is open
                            model.knows = generation;
                        }
                        ProcessStep::Leave(n) => {
                            if let Some(session) = models[n as usize].session.take() {
                                processes.close_session(session);
                            }
                        }
                        ProcessStep::Read(n) => {
                            let model = &mut models[n as usize];
                            let Some(session) = model.session else { continue };
                            match processes.session_event_after(session, model.applied) {
                                Some((number, SessionEvent::Purge { generation, .. })) => {
                                    prop_assert!(generation > model.knows && number == model.applied + 1);
                                    model.knows = generation;
                                    model.applied = number;
                                }
                                Some(other) => prop_assert!(false, "{other:?}"),
                                None => {
                                    let lease = processes.grant_send_lease(session, now).unwrap();
                                    prop_assert_eq!((lease.after, lease.generation), (model.applied, model.knows));
                                    model.until = lease.until;
                                }
                            }
                        }
                        ProcessStep::Acknowledge(n, by_event) => {
                            let process = name(&format!("p{n}"));
                            let ProcessModel { session, applied, knows, .. } = models[n as usize];
                            prop_assert_eq!(processes.acknowledge_purges(&process, generation + 1), Err(NoSuchPurge));
                            match session {
                                Some(session) if by_event => {
                                    prop_assert!(!processes.acknowledge_session_events(session, applied + 1000));
                                    prop_assert!(processes.acknowledge_session_events(session, applied));
                                    // purges of before the session have no events in it
                                    if applied == 0 { continue }
                                }
                                _ => processes.acknowledge_purges(&process, knows).unwrap(),
                            }
                            for (_, untils) in begun.iter_mut().filter(|(purge, _)| *purge <= knows) {
                                untils[n as usize] = 0;
                            }
                        }
                        ProcessStep::Purge => {
                            generation += 1;
                            processes.begin_purge(generation, PurgeEventScope::Everything, now);
                            begun.push((generation, models.each_ref().map(|model| model.until)));
                        }
                        ProcessStep::Pass(time) => now += time,
                    }
                    let over = processes.take_completed_purges(now);
                    for generation in &over {
                        for model in &models {
                            prop_assert!(model.knows >= *generation || now > model.until);
                        }
                    }
                    let last = |untils: &[u64; 3]| untils.iter().copied().max().unwrap_or(0);
                    let ended = begun.iter().filter(|(_, untils)| now > last(untils));
                    prop_assert_eq!(over, ended.map(|(purge, _)| *purge).collect::<Vec<_>>());
                    begun.retain(|(_, untils)| now <= last(untils));
                    let next = begun.iter().map(|(_, untils)| last(untils) + 1).min();
                    prop_assert_eq!(processes.next_purge_deadline(), next);
                }
            }
        }
    }
}
