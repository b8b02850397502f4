//! An open session of the owner: its messages, its waker, and its end.

use std::fmt;
use std::sync::Arc;

use sszip_core::cache::owner::session::OwnerSession;
use sszip_core::cache::owner::session_tasks::{OwnerTask, SessionEnd};
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::owner_protocol::owner_message::RefusalReason;
use sszip_core::cache::owner_protocol::process_message::{ProcessMessage, SessionRequest};
use sszip_core::lock::lock_ignoring_poison;

use super::tasks::{CompletedTask, SessionTasks};
use crate::clock::read_clocks;
use crate::event_waker::EventWaker;
use crate::operations::OwnerOperations;

/// A session of one process. Dropping it closes the session, and releases the leases of the
/// process.
pub(super) struct OpenSession {
    operations: Arc<OwnerOperations>,
    pub(super) session: OwnerSession,
    /// Woken when the session has new events.
    pub(super) waker: Arc<EventWaker>,
    /// Tasks that were not started yet.
    tasks: Vec<OwnerTask>,
    /// The earliest end of the leases that were requested since the timer task was notified.
    earliest_lease_end: u64,
    has_acknowledged: bool,
}

impl OpenSession {
    /// Opens a session for a process.
    ///
    /// # Errors
    /// [`RefusalReason`].
    pub(super) fn open(
        operations: &Arc<OwnerOperations>,
        request: &SessionRequest,
        now: ClockReading,
    ) -> Result<Self, RefusalReason> {
        let engine = &operations.engine;
        if engine.is_stopping() {
            return Err(RefusalReason::Stopping);
        }
        let waker = Arc::<EventWaker>::default();
        let session = {
            // locked first: no event of the session comes before its waker
            let mut wakers = lock_ignoring_poison(&engine.wakers);
            let session = engine
                .owner
                .open_session(request, operations.max_entry(), now)?;
            wakers.insert(session.id(), Arc::clone(&waker));
            session
        };
        engine.wake_sessions();
        Ok(Self {
            operations: Arc::clone(operations),
            session,
            waker,
            tasks: Vec::new(),
            earliest_lease_end: u64::MAX,
            has_acknowledged: false,
        })
    }

    /// Handles a message of the process. Call [`finish_messages`](Self::finish_messages) after the
    /// last one.
    ///
    /// # Errors
    /// [`SessionEnd`].
    pub(super) fn receive_message(
        &mut self,
        message: ProcessMessage,
        now: ClockReading,
    ) -> Result<(), SessionEnd> {
        match &message {
            ProcessMessage::Lookup {
                lease: Some(time), ..
            } => self.record_lease_request(u64::from(*time), now),
            ProcessMessage::Applied { .. } => self.has_acknowledged = true,
            _ => {}
        }
        let owner = &self.operations.engine.owner;
        let tasks = owner.receive_message(&mut self.session, message, now)?;
        self.tasks.extend(tasks);
        Ok(())
    }

    /// Records that the events up to a number are in effect in the process. Call
    /// [`finish_messages`](Self::finish_messages) afterwards.
    ///
    /// # Errors
    /// [`SessionEnd`].
    pub(super) fn acknowledge_events(&mut self, event: u64) -> Result<(), SessionEnd> {
        self.has_acknowledged = true;
        let owner = &self.operations.engine.owner;
        owner.acknowledge_session_events(&mut self.session, event)
    }

    /// Replies to the requests whose tasks are complete. Call
    /// [`finish_messages`](Self::finish_messages) afterwards.
    pub(super) fn complete_tasks(&mut self, completed: Vec<CompletedTask>, now: ClockReading) {
        for task in completed {
            if let CompletedTask::Lookup(lookup, None) = &task {
                if let Some(time) = lookup.lease {
                    self.record_lease_request(time, now);
                }
            }
            let owner = &self.operations.engine.owner;
            self.tasks
                .extend(task.complete_request(owner, &mut self.session, now));
        }
    }

    fn record_lease_request(&mut self, time: u64, now: ClockReading) {
        let end = now.monotonic.saturating_add(time);
        self.earliest_lease_end = self.earliest_lease_end.min(end);
    }

    /// Starts the tasks of the messages that were handled, and notifies all that wait for their
    /// effects.
    pub(super) fn finish_messages(&mut self, tasks: &mut SessionTasks) {
        let engine = &self.operations.engine;
        if !self.tasks.is_empty() {
            let new = std::mem::take(&mut self.tasks);
            tasks.start_tasks(&self.operations, self.session.process(), new);
        }
        let lease_end = std::mem::replace(&mut self.earliest_lease_end, u64::MAX);
        engine.alarm.wake_if_later_than(lease_end);
        match std::mem::take(&mut self.has_acknowledged) {
            true => engine.process_due_leases_and_purges(),
            false => engine.wake_sessions(),
        }
    }
}

impl fmt::Debug for OpenSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.session.fmt(f)
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let engine = &self.operations.engine;
        lock_ignoring_poison(&engine.wakers).remove(&self.session.id());
        engine.owner.close_session(&self.session, read_clocks());
        engine.wake_sessions();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use sszip_core::cache::owner::processes::OwnerClientName;
    use sszip_core::cache::owner::Owner;
    use tokio::task::yield_now;
    use tokio::time::Instant;

    use super::*;
    use crate::deadline_alarm::MAX_TICK_MS;
    use crate::engine::OwnerRequestExecutor;
    use crate::log::LogFunction;
    use crate::open_store::create_store_opener;

    /// Looks a key up that nothing has, so that the session gets its lease.
    fn request_lease(open: &mut OpenSession, number: u32, lease: u32) {
        let mut key = [7; 32];
        key[..4].copy_from_slice(&number.to_le_bytes());
        let lookup = ProcessMessage::Lookup {
            id: number,
            key,
            lease: Some(lease),
            fleet_wait: 0,
            call_kind: 0,
        };
        open.receive_message(lookup, read_clocks()).unwrap();
        open.finish_messages(&mut SessionTasks::default());
    }

    #[test]
    fn timer_task_waits_on_while_leases_with_later_ends_are_granted() {
        let folder = tempfile::tempdir().unwrap();
        let log: LogFunction = Arc::new(|_, _| {});
        let mut open = create_store_opener(&folder.path().join("store"), 64 << 20, log);
        let owner = Owner::new(open(read_clocks()).unwrap(), 1 << 20, read_clocks());
        let engine = Arc::new(OwnerRequestExecutor::new(Arc::new(owner), Vec::new(), None));
        let operations = Arc::new(OwnerOperations::new(Arc::clone(&engine), 1 << 20));
        let request = SessionRequest {
            process: OwnerClientName::new("a").unwrap(),
            attempt: 1,
            clock: read_clocks().monotonic,
            polls: false,
        };
        let mut open = OpenSession::open(&operations, &request, read_clocks()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let timed = Arc::clone(&engine);
            tokio::spawn(async move { timed.run_lease_and_purge_timer().await });
            yield_now().await;
            let started = Instant::now();
            for number in 0..1_000 {
                request_lease(&mut open, number, 60_000);
                yield_now().await;
            }
            assert_eq!(engine.owner.owner_status_json()["leases"], 1_000);
            let ticks = started.elapsed().as_millis() / u128::from(MAX_TICK_MS) + 1;
            let waits = engine.alarm.wait_count.load(Ordering::Relaxed);
            assert!(u128::from(waits) <= 1 + ticks, "{waits} waits");
            // an earlier end wakes the task
            request_lease(&mut open, 1_000, 1);
            yield_now().await;
            assert!(engine.alarm.wait_count.load(Ordering::Relaxed) > waits);
        });
    }
}
