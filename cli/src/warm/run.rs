//! The loop of `warm`: requests are in flight until the source ends, failures repeat, or a signal
//! arrives.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{interval, interval_at, sleep_until, Instant, MissedTickBehavior};

use super::block_range::BlockNumbers;
use super::fetch::Warmer;
use super::item::{SourceEvent, WarmItem};
use super::outcome::{ItemResult, Outcome, Summary};
use super::progress::{Progress, UPDATE_INTERVAL};
use super::resume::ResumeFile;
use super::tracker::{FailureStreaks, PositionTracker};
use crate::server_text::printable;
use crate::signals::StopSignals;
use crate::CommandError;

/// Time between two writes of the resume file.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// Time for requests in flight after a stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of invalid lines that are reported.
const REPORTED_LINES: u64 = 3;

/// The limits of a run.
pub struct RunLimits {
    /// Number of requests in flight.
    pub concurrency: usize,
    /// Number of failures, or of invalid lines, in a row after which a run stops.
    pub max_errors: u32,
}

/// The state of a run.
pub struct WarmRun<'a> {
    warmer: Arc<Warmer>,
    limits: RunLimits,
    source_name: String,
    resume: Option<(&'a ResumeFile<'a>, Option<BlockNumbers>)>,
    tracker: PositionTracker,
    streaks: FailureStreaks,
    bad_lines_in_row: u32,
    summary: Summary,
    progress: Progress,
    /// The cause for which no more requests are sent.
    ending: Option<CommandError>,
    /// The end of the time for requests in flight after `ending`.
    deadline: Option<Instant>,
}

/// The end of a request.
type EndedItem = (u64, &'static str, Result<ItemResult, CommandError>);

impl<'a> WarmRun<'a> {
    /// Creates a run that continues with the positions of `tracker`.
    pub fn new(
        warmer: Warmer,
        limits: RunLimits,
        source_name: String,
        tracker: PositionTracker,
        total: Option<u64>,
    ) -> Self {
        Self {
            warmer: Arc::new(warmer),
            streaks: FailureStreaks::new(limits.max_errors),
            limits,
            source_name,
            resume: None,
            progress: Progress::start(total, tracker.count()),
            tracker,
            bad_lines_in_row: 0,
            summary: Summary::default(),
            ending: None,
            deadline: None,
        }
    }

    /// Records the progress in a file, with the blocks of the source.
    pub fn with_resume_file(
        mut self,
        file: &'a ResumeFile<'a>,
        blocks: Option<BlockNumbers>,
    ) -> Self {
        self.resume = Some((file, blocks));
        self
    }

    /// Sends the requests of a source; returns the summary, and the cause of an early end.
    ///
    /// # Errors
    /// No request can succeed, the resume file cannot be written, or a second signal has arrived.
    pub async fn run(
        mut self,
        mut events: mpsc::Receiver<SourceEvent>,
    ) -> Result<(Summary, Option<CommandError>), CommandError> {
        let begun = Instant::now();
        let mut signals = StopSignals::listen()
            .map_err(|error| CommandError::Data(format!("cannot listen to signals: {error}")))?;
        // a file that cannot be written is reported before the first request
        self.save(false)?;
        let mut saves = interval_at(begun + SAVE_INTERVAL, SAVE_INTERVAL);
        let mut updates = interval(UPDATE_INTERVAL);
        saves.set_missed_tick_behavior(MissedTickBehavior::Delay);
        updates.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tasks: JoinSet<EndedItem> = JoinSet::new();
        let mut is_source_ended = false;
        loop {
            let is_ended = is_source_ended || self.ending.is_some();
            if is_ended && tasks.is_empty() {
                break;
            }
            tokio::select! {
                signal = signals.next() => match self.ending {
                    Some(_) => return Err(CommandError::Interrupted(signal)),
                    None => self.end(CommandError::Interrupted(signal)),
                },
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    self.end_item(ended).or_else(|error| self.save(false).and(Err(error)))?;
                }
                event = events.recv(), if !is_ended && tasks.len() < self.limits.concurrency => {
                    match event {
                        Some(SourceEvent::Item(item)) => self.start_item(item, &mut tasks),
                        Some(SourceEvent::Skipped) => {
                            self.bad_lines_in_row = 0;
                            self.summary.skipped += 1;
                        }
                        Some(SourceEvent::BadLine { line, cause }) => self.add_bad_line(line, &cause),
                        Some(SourceEvent::Failed(cause)) => {
                            let text = format!("cannot read {}: {cause}", self.source_name);
                            self.end(CommandError::Data(text));
                        }
                        None => is_source_ended = true,
                    }
                }
                _ = saves.tick() => self.save(false)?,
                _ = updates.tick() => {
                    let outcomes = self.summary.totals_text();
                    self.progress.update(self.tracker.count(), outcomes);
                }
                () = sleep_until(self.deadline.unwrap_or(begun)), if self.deadline.is_some() => break,
            }
        }
        // requests after the deadline are repeated by the next run
        tasks.shutdown().await;
        self.summary.elapsed = begun.elapsed();
        let warmer = Arc::clone(&self.warmer);
        if let Some(writes) = warmer.writes() {
            if self.ending.is_none() {
                tokio::select! {
                    () = writes.write_waiting() => {}
                    signal = signals.next() => self.end(CommandError::Interrupted(signal)),
                }
            }
            self.summary.disk = Some(writes.counts());
        }
        let is_complete = self.ending.is_none();
        if is_complete {
            self.tracker.finish(self.streaks.drain());
        }
        self.save(is_complete)?;
        Ok((self.summary, self.ending))
    }

    fn start_item(&mut self, item: WarmItem, tasks: &mut JoinSet<EndedItem>) {
        self.bad_lines_in_row = 0;
        if !self.tracker.start(item.position) {
            return;
        }
        let warmer = Arc::clone(&self.warmer);
        tasks.spawn(async move {
            let result = warmer.warm(&item.request).await;
            (item.position, item.request.name, result)
        });
    }

    /// Records the end of a request. Errors: no request can succeed.
    fn end_item(&mut self, ended: Result<EndedItem, JoinError>) -> Result<(), CommandError> {
        let (position, name, result) = ended.map_err(|error| {
            let text = format!("a request has ended unexpectedly: {error}; report this error");
            CommandError::Data(text)
        })?;
        let result = result?;
        self.summary.add(name, &result);
        let Outcome::Failed(cause) = &result.outcome else {
            let failed = match self.ending {
                // the failures that have led to the end are repeated by the next run
                Some(_) => Vec::new(),
                None => self.streaks.succeed(name),
            };
            self.tracker.finish(failed.into_iter().chain([position]));
            if self.tracker.is_full() {
                self.tracker.finish(self.streaks.drain());
            }
            return Ok(());
        };
        if let Some(count) = self.streaks.fail(name, position) {
            let resume = self.describe_resume();
            self.end(CommandError::Stopped(format!(
                "stopped: {count} requests in a row failed, the last ({name}): {cause}; {resume}"
            )));
        }
        Ok(())
    }

    fn add_bad_line(&mut self, line: u64, cause: &str) {
        let cause = printable(cause);
        self.summary.bad_lines += 1;
        self.bad_lines_in_row += 1;
        let name = &self.source_name;
        if self.summary.bad_lines <= REPORTED_LINES {
            self.progress
                .report(&format!("sszip: {name}:{line}: {cause}"));
        }
        if self.bad_lines_in_row >= self.limits.max_errors {
            let text = format!(
                "stopped: {} lines in a row of {name} are invalid, the last ({line}): {cause}; \
                 check the format of the file, or allow more by --max-errors",
                self.bad_lines_in_row
            );
            self.end(CommandError::Stopped(text));
        }
    }

    fn describe_resume(&self) -> &'static str {
        match self.resume {
            Some(_) => "repeat the command to continue from the resume file",
            None => "repeat the command: the cached ones are not sent to the node again",
        }
    }

    /// Sends no more requests. The first cause is the one that is reported.
    fn end(&mut self, cause: CommandError) {
        if self.ending.is_none() {
            self.ending = Some(cause);
            self.deadline = Some(Instant::now() + STOP_TIMEOUT);
        }
    }

    fn save(&self, is_finished: bool) -> Result<(), CommandError> {
        match &self.resume {
            Some((file, blocks)) => file.write(*blocks, &self.tracker, is_finished),
            None => Ok(()),
        }
    }
}
