//! The task that reads the purge stream, applies its purges, and publishes this owner's.
//!
//! The core decides about each command (`sszip_core::cache::fleet::stream_sync`). One command is in
//! flight at a time; local purges run meanwhile.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sszip_core::cache::fleet::local_purges::LocalPurgeJob;
use sszip_core::cache::fleet::stream_sync::{StreamCommand, StreamEvent, StreamReply};
use sszip_core::lock::lock_ignoring_poison;
use tokio::task::{spawn_blocking, JoinSet};
use tokio::time::{sleep, Instant};

use super::owner_identity::OwnerIdentity;
use super::position_file::random_owner_id;
use super::purge::{FleetPurges, STREAM_TIMEOUT};
use super::random_number;
use super::stream_replies::{append_reply, confirm_reply, range_reply, read_reply};
use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;
use crate::log::{LogFunction, LogLevel};

/// Number of records that the stream keeps at least.
const STREAM_LENGTH: usize = 16_384;

/// Number of local purges that run at a time; each writes to the store.
const MAX_LOCAL_PURGES: usize = 8;

/// Interval between reads of the table of owners.
const OWNERS_INTERVAL_MS: u64 = 60_000;

/// Interval between these reads while the table seems to have another owner with the id of this one.
const DUPLICATE_INTERVAL_MS: u64 = 500;

/// Minimum interval between reads of the table that are due because owners are not counted yet.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum random time that is added to these intervals, so that a read is not always just after a
/// confirmation of this owner.
const MAX_INTERVAL_JITTER_MS: u64 = 1_500;

/// Maximum time until the state is looked at again.
const MAX_WAIT_MS: u64 = 200;

/// Minimum interval between log lines of one kind.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Starts the task of the purge stream, which ends with the set.
pub(crate) fn start(
    tasks: &mut JoinSet<()>,
    purges: Arc<FleetPurges>,
    engine: Arc<OwnerRequestExecutor>,
    log: LogFunction,
) {
    // a stream has one task
    let _ = purges.log.set(log);
    tasks.spawn(run_purge_stream(purges, engine));
}

async fn run_purge_stream(purges: Arc<FleetPurges>, engine: Arc<OwnerRequestExecutor>) {
    let mut jobs = JoinSet::new();
    let mut events = StreamEventLog::default();
    let mut owners_due = Instant::now();
    let mut count_due = owners_due;
    loop {
        while let Some(done) = jobs.try_join_next() {
            complete_job(&purges, done.unwrap_or(false));
        }
        let now = read_clocks();
        let (job, command, new_events) = {
            let mut sync = purges.lock_sync();
            let job = sync.take_local_purges(now.monotonic);
            (job, sync.next_command(now), sync.take_events())
        };
        events.log_events(&purges, new_events);
        if let Some(job) = job {
            let (purges, engine) = (Arc::clone(&purges), Arc::clone(&engine));
            jobs.spawn(async move { apply_local_purges(&purges, &engine, job).await });
        }
        if let Some(command) = command {
            run_command(&purges, &command).await;
            continue;
        }
        let is_duplicate = lock_ignoring_poison(&purges.identity).is_duplicate();
        let is_count_due = Instant::now() >= count_due && purges.is_owner_count_due();
        if is_duplicate || is_count_due || Instant::now() >= owners_due {
            update_owner_table(&purges).await;
            owners_due = Instant::now() + owners_interval(&purges);
            count_due = Instant::now() + COUNT_INTERVAL;
            continue;
        }
        let due = purges.lock_sync().next_time();
        let wait = due.saturating_sub(read_clocks().monotonic);
        tokio::select! {
            () = sleep(Duration::from_millis(wait.clamp(1, MAX_WAIT_MS))) => {}
            () = purges.wake.notified() => {}
            Some(done) = jobs.join_next(), if !jobs.is_empty() => {
                complete_job(&purges, done.unwrap_or(false));
            }
        }
    }
}

fn complete_job(purges: &FleetPurges, is_done: bool) {
    let now = read_clocks().monotonic;
    purges.lock_sync().complete_local_purges(is_done, now);
}

/// Purges the scopes of a job on this machine, then stores the position. Returns whether all of it is
/// done.
async fn apply_local_purges(
    purges: &FleetPurges,
    engine: &Arc<OwnerRequestExecutor>,
    job: LocalPurgeJob,
) -> bool {
    for scopes in job.scopes.chunks(MAX_LOCAL_PURGES) {
        let purged = scopes
            .iter()
            .map(|scope| engine.purge_entries(scope.clone()));
        for purged in join_all(purged).await {
            if let Err(error) = purged {
                let text = format!("cannot apply a purge of another machine: {error}; retrying");
                purges.log_line(LogLevel::Error, &text);
                return false;
            }
        }
    }
    let Some(mark) = job.mark else {
        return true;
    };
    let files = purges.files.clone();
    match spawn_blocking(move || files.write_position(&mark)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            let text = format!("cannot write the position in the purge stream: {error}; retrying");
            purges.log_line(LogLevel::Error, &text);
            false
        }
        Err(_) => false,
    }
}

/// Sends a command, and passes its reply to the state.
async fn run_command(purges: &FleetPurges, command: &StreamCommand) {
    let reply = send_command(purges, command).await;
    let is_failed = reply == StreamReply::Failed;
    purges.is_unreachable.store(is_failed, Ordering::Relaxed);
    let is_append = matches!(command, StreamCommand::Append { .. });
    purges.lock_sync().complete_command(reply, read_clocks());
    purges.published.notify_waiters();
    if is_append && !is_failed {
        purges.update_outbox_file().await;
    }
}

async fn send_command(purges: &FleetPurges, command: &StreamCommand) -> StreamReply {
    let send = |command| purges.client.command(command, STREAM_TIMEOUT);
    match command {
        StreamCommand::ReadRange { from, count } => {
            let from = from.map_or_else(|| "-".to_owned(), |id| id.to_string());
            let mut range = redis::cmd("XRANGE");
            range.arg(&purges.stream).arg(from).arg("+");
            range.arg("COUNT").arg(*count);
            range_reply(send(range).await, *count)
        }
        StreamCommand::ReadAfter { after, count } => {
            let mut read = redis::cmd("XREAD");
            read.arg("COUNT").arg(*count).arg("STREAMS");
            read.arg(&purges.stream).arg(after.to_string());
            read_reply(send(read).await, *count)
        }
        StreamCommand::Append {
            id,
            fields,
            creates_stream,
        } => {
            let mut append = redis::cmd("XADD");
            append.arg(&purges.stream);
            if !creates_stream {
                append.arg("NOMKSTREAM");
            }
            // without "~", which Kvrocks does not know; purges are rare
            append.arg("MAXLEN").arg(STREAM_LENGTH);
            append.arg(id.to_string());
            for (name, value) in fields {
                append.arg(*name).arg(value.as_slice());
            }
            append_reply(send(append).await)
        }
        StreamCommand::Confirm { position, counter } => {
            let mut confirm = redis::cmd("HSET");
            let owner = lock_ignoring_poison(&purges.identity).name().to_owned();
            confirm.arg(&purges.owner_table).arg(owner);
            confirm.arg(format!("{position}:{counter}"));
            confirm_reply(send(confirm).await)
        }
    }
}

/// Returns the time until the table of owners is read again.
fn owners_interval(purges: &FleetPurges) -> Duration {
    let now = read_clocks().monotonic;
    let interval = match lock_ignoring_poison(&purges.identity).is_suspected(now) {
        true => DUPLICATE_INTERVAL_MS,
        false => OWNERS_INTERVAL_MS,
    };
    Duration::from_millis(interval + random_number() % MAX_INTERVAL_JITTER_MS)
}

/// Gives this owner another id, as another live owner has its present one.
async fn replace_duplicate_id(purges: &FleetPurges) {
    let id = random_owner_id();
    let before = {
        let mut identity = lock_ignoring_poison(&purges.identity);
        let former = std::mem::replace(&mut *identity, OwnerIdentity::new(id));
        former.name().to_owned()
    };
    purges.lock_sync().replace_owner_id(id);
    let text = format!(
        "another machine has this owner's id {before}, as the folder of its store is a copy: this \
         owner has the id {} from now on",
        hex::encode(id)
    );
    purges.log_line(LogLevel::Notice, &text);
    let files = purges.files.clone();
    let written = spawn_blocking(move || files.write_owner_id(&id)).await;
    if let Ok(Err(error)) = written {
        let text = format!("cannot write the owner's id: {error}; it changes with the next start");
        purges.log_line(LogLevel::Error, &text);
    }
}

/// Reads the table of owners, and removes the owners that have ended.
async fn update_owner_table(purges: &FleetPurges) {
    purges.read_owner_table().await;
    let is_duplicate = lock_ignoring_poison(&purges.identity).is_duplicate();
    if is_duplicate {
        replace_duplicate_id(purges).await;
    }
    let now = read_clocks().monotonic;
    let absent = lock_ignoring_poison(&purges.owners).take_absent_owners(now);
    if absent.is_empty() {
        return;
    }
    let mut remove = redis::cmd("HDEL");
    remove.arg(&purges.owner_table).arg(absent);
    // tried again by an owner that sees them for an hour
    let _ = purges.client.command(remove, STREAM_TIMEOUT).await;
}

/// The log lines about the stream, of each kind at most one per minute.
#[derive(Default)]
struct StreamEventLog {
    lines: Vec<(std::mem::Discriminant<StreamEvent>, Instant)>,
}

impl StreamEventLog {
    fn log_events(&mut self, purges: &FleetPurges, events: Vec<StreamEvent>) {
        for event in events {
            let kind = std::mem::discriminant(&event);
            self.lines.retain(|(_, at)| at.elapsed() < LOG_INTERVAL);
            if self.lines.iter().any(|(logged, _)| *logged == kind) {
                continue;
            }
            self.lines.push((kind, Instant::now()));
            let (level, text) = format_event(purges, event);
            purges.log_line(level, &text);
        }
    }
}

fn format_event(purges: &FleetPurges, event: StreamEvent) -> (LogLevel, String) {
    let stream = &purges.stream;
    match event {
        StreamEvent::Synchronised => (LogLevel::Notice, "purges of all machines are known".into()),
        StreamEvent::StreamLost => (
            LogLevel::Notice,
            "purge stream lost records; values that were stored before are not used".into(),
        ),
        StreamEvent::Trimmed => (
            LogLevel::Error,
            "purge stream was trimmed before this machine has read it; all entries of this machine \
             are purged"
                .into(),
        ),
        StreamEvent::AheadOfClock(id) => (
            LogLevel::Error,
            format!(
                "newest purge record {id} is more than a day ahead of the clock: the fleet is not \
                 used; correct the clock, or delete {stream} on the server"
            ),
        ),
        StreamEvent::Unreadable(id) => (
            LogLevel::Error,
            format!(
                "purge record {id} cannot be read: all entries are purged; check that all machines \
                 have one key file and compatible versions"
            ),
        ),
    }
}
