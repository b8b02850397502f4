//! Sessions of processes that poll, between their callouts.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use sszip_core::cache::owner::processes::OwnerClientName;
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::owner_protocol::owner_message::RefusalReason;
use sszip_core::cache::owner_protocol::process_message::SessionRequest;
use sszip_core::lock::lock_ignoring_poison;
use sszip_core::time_constants::memory_lease;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::open_session::OpenSession;
use super::tasks::SessionTasks;
use crate::clock::read_clocks;
use crate::event_waker::EventWaker;
use crate::operations::OwnerOperations;

/// The sessions of the processes that poll, by number. A session lives as long as its task.
#[derive(Debug, Default)]
pub struct PolledSessions(Arc<Mutex<HashMap<u64, Weak<PolledSession>>>>);

/// A session of a process that polls.
#[derive(Debug)]
pub(super) struct PolledSession {
    process: OwnerClientName,
    pub(super) state: Mutex<PolledSessionState>,
    /// Wakes the polls that wait, after the state has changed.
    pub(super) changed: Notify,
    /// Wakes the task of the session, which then continues.
    work: Notify,
}

/// The state of a session between callouts.
#[derive(Debug)]
pub(super) struct PolledSessionState {
    /// The session; `None` after its end.
    pub(super) open: Option<OpenSession>,
    tasks: SessionTasks,
    /// Number of the last data callout that was handled.
    pub(super) last_data: u32,
    /// Number of polls: only the last one waits.
    pub(super) poll_count: u64,
    /// Number of callouts that are being answered.
    active: usize,
    /// Time of the end of the last callout, in monotonic milliseconds.
    idle_since: u64,
}

/// A callout that is being answered: its session does not end for silence.
pub(super) struct ActiveCallout(pub(super) Arc<PolledSession>);

impl Drop for ActiveCallout {
    fn drop(&mut self) {
        let mut state = lock_ignoring_poison(&self.0.state);
        state.active = state.active.saturating_sub(1);
        state.idle_since = read_clocks().monotonic;
    }
}

impl PolledSessions {
    /// Opens a session, whose first callout has the number `data`.
    ///
    /// # Errors
    /// [`RefusalReason`].
    pub(super) fn open_session(
        &self,
        operations: &Arc<OwnerOperations>,
        request: &SessionRequest,
        data: u32,
        now: ClockReading,
    ) -> Result<ActiveCallout, RefusalReason> {
        let open = OpenSession::open(operations, request, now)?;
        let number = operations.engine.owner.session_number(open.session.id());
        let session = Arc::new(PolledSession {
            process: request.process.clone(),
            state: Mutex::new(PolledSessionState {
                open: Some(open),
                tasks: SessionTasks::default(),
                last_data: data,
                poll_count: 0,
                active: 1,
                idle_since: now.monotonic,
            }),
            changed: Notify::new(),
            work: Notify::new(),
        });
        lock_ignoring_poison(&self.0).insert(number, Arc::downgrade(&session));
        let (operations, running) = (Arc::clone(operations), Arc::clone(&session));
        let sessions = Arc::clone(&self.0);
        tokio::spawn(async move {
            running.run_session(&operations).await;
            lock_ignoring_poison(&sessions).remove(&number);
        });
        Ok(ActiveCallout(session))
    }

    /// Finds the session of a process by its number.
    pub(super) fn find_session(
        &self,
        number: u64,
        process: &OwnerClientName,
    ) -> Option<ActiveCallout> {
        let session = lock_ignoring_poison(&self.0).get(&number)?.upgrade()?;
        if session.process != *process {
            return None;
        }
        lock_ignoring_poison(&session.state).active += 1;
        Some(ActiveCallout(session))
    }
}

impl PolledSession {
    /// Completes tasks and wakes polls until the session has ended: by its process, by a newer
    /// session, by the owner's end, or because no callout has come for the time of a send lease.
    async fn run_session(&self, operations: &OwnerOperations) {
        let engine = &operations.engine;
        let Some(waker) = lock_ignoring_poison(&self.state).waker() else {
            return;
        };
        loop {
            let now = read_clocks().monotonic;
            let Some(wait) = lock_ignoring_poison(&self.state).time_until_silence(now) else {
                break;
            };
            let completed = poll_fn(|context| {
                let tasks = &mut lock_ignoring_poison(&self.state).tasks;
                match tasks.poll_completed_tasks(context) {
                    // `work` reports the next tasks
                    Poll::Ready(None) => Poll::Pending,
                    Poll::Ready(Some(completed)) => Poll::Ready(completed),
                    Poll::Pending => Poll::Pending,
                }
            });
            tokio::select! {
                completed = completed => {
                    let Ok(completed) = completed else {
                        break;
                    };
                    let state = &mut *lock_ignoring_poison(&self.state);
                    if let Some(open) = &mut state.open {
                        open.complete_tasks(completed, read_clocks());
                        open.finish_messages(&mut state.tasks);
                    }
                }
                () = poll_fn(|context| waker.poll_woken(context)) => {
                    if engine.is_stopping() {
                        break;
                    }
                    self.changed.notify_waiters();
                }
                () = self.work.notified() => {}
                () = sleep(Duration::from_millis(wait)) => {}
            }
        }
        self.end_locked_session(&mut lock_ignoring_poison(&self.state));
    }

    /// Ends the session, whose state is locked: callouts that wait are answered, and the leases of
    /// the process are released.
    pub(super) fn end_locked_session(&self, state: &mut PolledSessionState) {
        state.open = None;
        self.changed.notify_waiters();
        self.work.notify_one();
    }

    /// Starts the tasks of the messages that a callout had.
    pub(super) fn finish_messages(&self, state: &mut PolledSessionState) {
        if let Some(open) = &mut state.open {
            open.finish_messages(&mut state.tasks);
        }
        if !state.tasks.is_empty() {
            self.work.notify_one();
        }
    }
}

impl PolledSessionState {
    fn waker(&self) -> Option<Arc<EventWaker>> {
        self.open.as_ref().map(|open| Arc::clone(&open.waker))
    }

    /// Milliseconds until the session ends if no further callout comes; `None`: it has ended.
    fn time_until_silence(&self, now: u64) -> Option<u64> {
        self.open.as_ref()?;
        let since = match self.active {
            0 => self.idle_since,
            _ => now,
        };
        let end = since.saturating_add(memory_lease());
        end.checked_sub(now).filter(|wait| *wait > 0)
    }
}
