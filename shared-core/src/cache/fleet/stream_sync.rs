//! Synchronisation of an owner with the purge stream of its fleet.
//!
//! ```text
//!  Reading ── all records are read ─┬──────────────────▶ Following ── polls every 200 ms
//!   ▲  ▲                            ▼ records were lost     │
//!   │  └── its fence is written ── Fencing                  │
//!   └───────── the record of the last poll is not there any more
//! ```
//!
//! The server may lose the stream, or return to an earlier state of it. So each poll reads the last
//! known record again: if it is missing or is another one, the whole stream is read. If records are
//! missing, a fence is written, unless another owner has written one: values that were stored
//! before a fence are not used. Without a stream a fence begins it. A lost stream costs a cold
//! fleet, and never leads to a wrong response.
//!
//! Values may be used for [`LEASE_MS`] after the beginning of the last poll that has returned all
//! records. So a purge is in effect in the fleet that long after its publication, even for owners
//! that are cut off.
//!
//! The position of an owner is the last record up to which all local purges are complete: no
//! process of the machine can send an entry that they cover. It is stored, and then serves two uses:
//! the owner stamps values with it, and confirms it to others. For stamps the beginning of the local
//! purge would do, which differs by milliseconds.
//!
//! Sans-I/O: [`next_command`](StreamSync::next_command) returns the next command for the server, and
//! [`complete_command`](StreamSync::complete_command) receives its reply.

mod commands;
mod following;
mod reading;
mod record_pages;
mod replies;

use std::sync::Arc;

use super::keyring::FleetKeyring;
use super::local_purges::{LocalPurgeJob, LocalPurgeQueue};
use super::own_purges::OwnPurges;
use super::purge_log::FleetPurgeLog;
use super::stream_record::{
    encode_record, FleetOwnerId, PublishedPurge, PurgeName, PurgeRecordKind, StreamId, StreamMark,
};
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use crate::cache::CacheKey;
pub use commands::{StreamCommand, StreamCounters, StreamEvent, StreamLimits, StreamReply};
use record_pages::StreamReading;

/// Time after the beginning of a poll during which values may be used, in milliseconds.
pub const LEASE_MS: u64 = 2_000;

/// Interval between polls, and between attempts after an error, in milliseconds.
pub const POLL_INTERVAL_MS: u64 = 200;

/// Interval between confirmations of an unchanged position, in milliseconds.
const CONFIRM_INTERVAL_MS: u64 = 1_000;

/// Minimum interval between fences of this owner, in milliseconds.
const FENCE_INTERVAL_MS: u64 = 1_000;

/// Interval between attempts to read a stream that cannot be used, in milliseconds.
const REFUSED_INTERVAL_MS: u64 = 5_000;

/// Maximum time that a record may be ahead of this machine's clock, in milliseconds. Records with
/// ids near the highest one would leave none for later records.
const MAX_AHEAD_MS: u64 = 86_400_000;

/// Step by which an id is raised that the server has refused twice, in milliseconds; doubled each
/// time. The server remembers the highest id of records that were removed.
const RAISE_STEP_MS: u64 = 1_000;

/// The command whose reply is awaited.
#[derive(Clone, Debug)]
enum PendingCommand {
    Page,
    Fence { id: StreamId },
    Poll { sent: u64 },
    Publish { name: PurgeName, id: StreamId },
    Confirm { position: u64 },
}

/// The phase of the synchronisation.
#[derive(Debug)]
enum SyncPhase {
    Reading(StreamReading),
    Fencing(PurgeRecordKind),
    Following,
}

/// The state of the synchronisation.
pub struct StreamSync {
    keyring: Arc<FleetKeyring>,
    owner: FleetOwnerId,
    limits: StreamLimits,
    phase: SyncPhase,
    pending: Option<PendingCommand>,
    log: Option<FleetPurgeLog>,
    /// The last record that was read.
    cursor: Option<StreamMark>,
    /// The last record in effect, as it is stored.
    position: Option<StreamMark>,
    /// Whether the position is of a record of the present stream.
    is_position_known: bool,
    /// The highest id that was seen or written.
    highest: StreamId,
    /// Lowest milliseconds of the next id, after refused ones.
    raised: u64,
    refusals: u32,
    local: LocalPurgeQueue,
    own: OwnPurges,
    /// Whether purges of the outbox are published before values may be used.
    publishes_first: bool,
    usable_from: u64,
    current_until: u64,
    next_command: u64,
    next_append: u64,
    next_fence: u64,
    fresh_until: u64,
    last_poll: Option<u64>,
    confirm_from: u64,
    next_confirm: u64,
    confirmed: Option<u64>,
    /// The counter of the last confirmation that the server has accepted.
    confirmed_counter: Option<u64>,
    counter: u64,
    events: Vec<StreamEvent>,
    counters: StreamCounters,
}

impl StreamSync {
    /// Creates the synchronisation of a started owner, with its stored position, and the purges
    /// that were not published before its restart. `counter` differs from the one before.
    pub fn new(
        keyring: Arc<FleetKeyring>,
        owner: FleetOwnerId,
        limits: StreamLimits,
        position: Option<StreamMark>,
        outbox: Vec<PublishedPurge>,
        counter: u64,
    ) -> Self {
        let mut own = OwnPurges::default();
        own.restore(outbox);
        Self {
            keyring,
            owner,
            limits,
            phase: SyncPhase::Reading(StreamReading::default()),
            pending: None,
            log: None,
            cursor: None,
            position,
            is_position_known: false,
            highest: position.map_or(StreamId::default(), |mark| mark.id),
            raised: 0,
            refusals: 0,
            local: LocalPurgeQueue::default(),
            own,
            publishes_first: true,
            usable_from: 0,
            current_until: 0,
            next_command: 0,
            next_append: 0,
            next_fence: 0,
            fresh_until: 0,
            last_poll: None,
            confirm_from: 0,
            next_confirm: 0,
            confirmed: None,
            confirmed_counter: None,
            counter,
            events: Vec::new(),
            counters: StreamCounters::default(),
        }
    }

    /// Whether values may be used at `now`, in monotonic milliseconds.
    pub fn is_current(&self, now: u64) -> bool {
        (self.usable_from..self.current_until).contains(&now)
    }

    /// Returns the position for a value that is stored now; `None` if none may be stored. It is read
    /// before the purges of the owner's store are compared with the entry.
    pub fn position(&self) -> Option<u64> {
        let is_following = matches!(self.phase, SyncPhase::Following);
        let mark = self
            .position
            .filter(|_| is_following && self.is_position_known)?;
        Some(mark.id.milliseconds)
    }

    /// Whether a value must not be used. An entry that is made of a usable value gets the purge
    /// generation of the owner's store before this call: a purge of the stream is in this log
    /// before it is applied to the store.
    pub fn covers(&self, position: u64, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        let Some(log) = &self.log else {
            return true;
        };
        self.own.covers(key, about) || log.covers(position, key, about)
    }

    /// Returns the command that is to be sent at `now`, if any and if none is pending.
    pub fn next_command(&mut self, now: ClockReading) -> Option<StreamCommand> {
        if self.pending.is_some() {
            return None;
        }
        let (pending, command) = match &self.phase {
            SyncPhase::Reading(reading) if now.monotonic >= self.next_command => {
                let (from, count) = (reading.next_page(), self.limits.page);
                (
                    PendingCommand::Page,
                    StreamCommand::ReadRange { from, count },
                )
            }
            SyncPhase::Fencing(kind) if now.monotonic >= self.next_command.max(self.next_fence) => {
                let kind = *kind;
                self.append_fence(kind, now)
            }
            SyncPhase::Following => self.next_following_command(now)?,
            SyncPhase::Reading(_) | SyncPhase::Fencing(_) => return None,
        };
        self.pending = Some(pending);
        Some(command)
    }

    fn append_fence(
        &mut self,
        kind: PurgeRecordKind,
        now: ClockReading,
    ) -> (PendingCommand, StreamCommand) {
        let id = self.next_id(now);
        let fence = PublishedPurge {
            kind,
            name: self.next_fence_name(),
            scope: PurgeScope::Everything,
        };
        let command = StreamCommand::Append {
            id,
            fields: encode_record(&fence, &self.owner, id, &self.keyring),
            creates_stream: kind == PurgeRecordKind::NewStream,
        };
        (PendingCommand::Fence { id }, command)
    }

    /// Returns the name of a fence, which no other record has.
    fn next_fence_name(&mut self) -> PurgeName {
        self.counter = self.counter.wrapping_add(1);
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.owner);
        name[8..].copy_from_slice(&self.counter.to_be_bytes());
        name
    }

    /// Returns the id of a record that is written now.
    fn next_id(&self, now: ClockReading) -> StreamId {
        let after = self.highest.milliseconds.saturating_add(1);
        StreamId::from_position(now.unix.max(after).max(self.raised))
    }

    /// Records that a local purge begins: values in its scope are not used from now on.
    pub fn begin_purge(&mut self, purge: PublishedPurge) {
        self.own.begin(purge);
    }

    /// Records that a local purge has failed.
    pub fn cancel_purge(&mut self, name: &PurgeName) {
        self.own.cancel(name);
    }

    /// Queues a purge for publication: its local part is complete.
    pub fn queue_purge(&mut self, name: &PurgeName) {
        self.own.queue(name);
    }

    /// Records that all owners have applied a purge.
    pub fn record_purge_confirmed(&mut self, name: &PurgeName) {
        self.own.confirm(name);
    }

    /// Returns the position of a purge's record, if the server has accepted it.
    pub fn published_position(&self, name: &PurgeName) -> Option<u64> {
        self.own.published_id(name).map(|id| id.milliseconds)
    }

    /// Returns the purges that are to be published.
    pub fn outbox(&self) -> Vec<PublishedPurge> {
        self.own.outbox()
    }

    /// Returns the next job of local purges, if none is executed.
    pub fn take_local_purges(&mut self, now: u64) -> Option<LocalPurgeJob> {
        match self.phase {
            SyncPhase::Following => self.local.take_job(now),
            SyncPhase::Reading(_) | SyncPhase::Fencing(_) => None,
        }
    }

    /// Ends the present job. It is tried again if it was not done: if a purge or the write of the
    /// position has failed.
    pub fn complete_local_purges(&mut self, is_done: bool, now: u64) {
        if let Some(mark) = self.local.complete_job(is_done, now) {
            self.position = Some(mark);
            self.is_position_known = true;
        }
    }

    /// Returns the monotonic time at which a command or a job is due at the latest.
    pub fn next_time(&self) -> u64 {
        let mut times = vec![self.next_command.max(match self.phase {
            SyncPhase::Fencing(_) => self.next_fence,
            SyncPhase::Reading(_) | SyncPhase::Following => 0,
        })];
        if matches!(self.phase, SyncPhase::Following) {
            times.extend(self.local.next_job_time());
            times.extend(self.own.next_queued().map(|_| self.next_append));
        }
        times.into_iter().min().unwrap_or_default()
    }

    /// Returns the time from which on the table of owners has all live ones again, in monotonic
    /// milliseconds: a server that loses the stream may lose the table, too, and owners confirm
    /// nothing for a while then.
    pub fn owners_known_from(&self) -> u64 {
        self.confirm_from.saturating_add(LEASE_MS)
    }

    /// Gives the owner another id, as another owner has its present one. The position is confirmed
    /// under the new id at once.
    pub fn replace_owner_id(&mut self, owner: FleetOwnerId) {
        self.owner = owner;
        (self.confirmed, self.confirmed_counter) = (None, None);
    }

    /// Returns the counter of the last confirmation under the present id that the server has
    /// accepted.
    pub fn confirmed_counter(&self) -> Option<u64> {
        self.confirmed_counter
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<StreamEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns the log of the stream, if it was read.
    pub fn purge_log(&self) -> Option<&FleetPurgeLog> {
        self.log.as_ref()
    }

    /// Returns the monotonic time at the beginning of the last poll that has returned all records.
    pub fn last_poll_time(&self) -> Option<u64> {
        self.last_poll
    }

    /// Returns the counters.
    pub fn counters(&self) -> StreamCounters {
        self.counters
    }
}

/// Whether a record is too far ahead of this machine's clock.
fn is_ahead_of_clock(id: StreamId, now: ClockReading) -> bool {
    id.milliseconds > now.unix.saturating_add(MAX_AHEAD_MS)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod tests;
