//! A model of a fleet: owners with local entries, and a server with a stream and values, which loses
//! records, commands and replies.
//!
//! The stream may be flushed, trimmed, or return to an earlier state; values always stay, as this
//! is the worst case. An entry has the time at which it was fetched: a purge covers the entries
//! that were fetched before it began.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::cache::fleet::stream_record::{RawStreamRecord, StreamRecord};

pub(super) const OWNERS: usize = 3;
pub(super) const KEYS: u8 = 4;
const START: u64 = 1_700_000_000_000;

/// Random numbers that are the same in each run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        // SplitMix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn happens_once_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// A value on the server.
#[derive(Clone, Copy)]
pub(super) struct ModelValue {
    position: u64,
    fetched_at: u64,
}

/// The part of the server's state that a failover may reset.
#[derive(Clone, Default)]
pub(super) struct StreamState {
    pub(super) records: Vec<RawStreamRecord>,
    pub(super) highest: StreamId,
    /// Position and number of confirmations, by owner.
    pub(super) confirmations: [Option<(u64, u64)>; OWNERS],
}

/// A purge, from its beginning.
pub(super) struct ModelPurge {
    pub(super) owner: usize,
    pub(super) name: PurgeName,
    pub(super) scope: PurgeScope,
    pub(super) begun_at: u64,
    /// Confirmations when it was queued, or published again.
    pub(super) baseline: [Option<(u64, u64)>; OWNERS],
    pub(super) position: Option<u64>,
    pub(super) is_confirmed: bool,
    /// Owners that have lost their position since.
    pub(super) forgotten: BTreeSet<usize>,
    /// Whether its owner has restarted since.
    pub(super) is_abandoned: bool,
}

#[derive(Default)]
pub(super) struct ModelOwner {
    pub(super) is_up: bool,
    /// The command in flight; its reply once the server has executed it.
    pub(super) command: Option<(StreamCommand, Option<StreamReply>)>,
    pub(super) job: Option<LocalPurgeJob>,
    pub(super) stored_position: Option<StreamMark>,
    /// Times at which the local entries were fetched, by key.
    pub(super) entries: BTreeMap<u8, u64>,
    /// Values that are being written.
    pub(super) writes: Vec<(u8, ModelValue)>,
    /// Purges whose local part is running.
    pub(super) begun: Vec<usize>,
}

pub(super) struct ModelFleet {
    pub(super) seed: u64,
    pub(super) random: Random,
    pub(super) keyring: Arc<FleetKeyring>,
    pub(super) syncs: Vec<StreamSync>,
    pub(super) owners: Vec<ModelOwner>,
    pub(super) skews: [u64; OWNERS],
    pub(super) server: StreamState,
    pub(super) snapshot: StreamState,
    pub(super) values: BTreeMap<u8, ModelValue>,
    pub(super) purges: Vec<ModelPurge>,
    /// Records by id: an id may be used twice after a failover.
    pub(super) ids: BTreeMap<u64, Vec<u8>>,
    pub(super) ambiguous: BTreeSet<u64>,
    pub(super) now: u64,
    /// Order of fetches and purges.
    pub(super) time: u64,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) confirmed: u64,
}

fn limits() -> StreamLimits {
    StreamLimits {
        max_records: 8,
        page: 3,
    }
}

pub(super) fn key_bytes(key: u8) -> CacheKey {
    [key; 32]
}

/// Returns the attributes of the entry of a key: two keys are in a namespace.
pub(super) fn about(key: u8) -> StoredEntryAttributes {
    StoredEntryAttributes {
        namespace: [key / 2; 16],
        ..StoredEntryAttributes::default()
    }
}

fn covers(scope: &PurgeScope, key: u8) -> bool {
    scope.covers_entry(&key_bytes(key), &about(key))
}

impl ModelFleet {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let keyring = Arc::new(FleetKeyring::unkeyed());
        let skews = [0; OWNERS].map(|_| random.next() % 3_000);
        let mut fleet = Self {
            seed,
            random,
            syncs: Vec::new(),
            owners: Vec::new(),
            skews,
            keyring,
            server: StreamState::default(),
            snapshot: StreamState::default(),
            values: BTreeMap::new(),
            purges: Vec::new(),
            ids: BTreeMap::new(),
            ambiguous: BTreeSet::new(),
            now: 1_000,
            time: 0,
            accepted: 0,
            refused: 0,
            confirmed: 0,
        };
        for owner in 0..OWNERS {
            let sync = fleet.new_sync(owner, None, Vec::new());
            fleet.syncs.push(sync);
            fleet.owners.push(ModelOwner {
                is_up: true,
                ..ModelOwner::default()
            });
        }
        fleet
    }

    fn new_sync(
        &self,
        owner: usize,
        position: Option<StreamMark>,
        outbox: Vec<PublishedPurge>,
    ) -> StreamSync {
        let keyring = Arc::clone(&self.keyring);
        let id = [owner as u8; 8];
        StreamSync::new(keyring, id, limits(), position, outbox, self.now)
    }

    /// Returns the clocks of an owner, whose system clocks differ.
    fn clocks(&self, owner: usize) -> ClockReading {
        ClockReading {
            monotonic: self.now,
            unix: START + (self.now + self.skews[owner]) * OWNERS as u64 + owner as u64,
        }
    }

    fn next_time(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// Executes a command on the server.
    pub(super) fn execute(&mut self, owner: usize, command: &StreamCommand) -> StreamReply {
        let records = &self.server.records;
        match command {
            StreamCommand::ReadRange { from, count } => {
                let from = from.unwrap_or_default();
                let range = records.iter().filter(|record| record.id >= from);
                StreamReply::Records(range.take(*count).cloned().collect())
            }
            StreamCommand::ReadAfter { after, count } => {
                let range = records.iter().filter(|record| record.id > *after);
                StreamReply::Records(range.take(*count).cloned().collect())
            }
            StreamCommand::Append {
                id,
                fields,
                creates_stream,
            } => {
                if records.is_empty() && !creates_stream {
                    return StreamReply::NoStream;
                }
                if *id <= self.server.highest {
                    return StreamReply::IdTooLow;
                }
                let fields = fields.clone();
                let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value));
                // its tag depends on the whole record
                let tag = fields[4].1.clone();
                let first = self
                    .ids
                    .entry(id.milliseconds)
                    .or_insert_with(|| tag.clone());
                if *first != tag {
                    self.ambiguous.insert(id.milliseconds);
                }
                self.server.highest = *id;
                self.server.records.push(RawStreamRecord {
                    id: *id,
                    fields: fields.to_vec(),
                });
                if self.server.records.len() > limits().max_records + 2 {
                    self.server.records.drain(..2);
                }
                StreamReply::Done
            }
            StreamCommand::Confirm { position, counter } => {
                self.server.confirmations[owner] = Some((*position, *counter));
                StreamReply::Done
            }
        }
    }

    /// Sends a command, executes it, or delivers its reply. Returns whether there was one.
    pub(super) fn advance_command(&mut self, owner: usize) -> bool {
        let clocks = self.clocks(owner);
        match self.owners[owner].command.take() {
            None => {
                let command = self.syncs[owner].next_command(clocks);
                self.owners[owner].command = command.map(|command| (command, None));
                return self.owners[owner].command.is_some();
            }
            Some((_, None)) if !self.owners[owner].is_up => {
                self.syncs[owner].complete_command(StreamReply::Failed, clocks);
            }
            Some((command, None)) => {
                let reply = self.execute(owner, &command);
                self.owners[owner].command = Some((command, Some(reply)));
            }
            Some((_, Some(reply))) => {
                let is_lost = !self.owners[owner].is_up;
                let reply = if is_lost { StreamReply::Failed } else { reply };
                self.syncs[owner].complete_command(reply, clocks);
            }
        }
        self.update_confirmations();
        true
    }

    /// Begins or completes a job of local purges.
    pub(super) fn advance_job(&mut self, owner: usize, is_done: bool) {
        let Some(job) = self.owners[owner].job.take() else {
            self.owners[owner].job = self.syncs[owner].take_local_purges(self.now);
            return;
        };
        if is_done {
            for scope in &job.scopes {
                self.remove_entries(owner, scope);
            }
            if job.mark.is_some() {
                self.owners[owner].stored_position = job.mark;
            }
        }
        self.syncs[owner].complete_local_purges(is_done, self.now);
    }

    fn remove_entries(&mut self, owner: usize, scope: &PurgeScope) {
        let entries = &mut self.owners[owner].entries;
        entries.retain(|key, _| !covers(scope, *key));
    }

    pub(super) fn begin_purge(&mut self, owner: usize, scope: PurgeScope) {
        let begun_at = self.next_time();
        let purge = PublishedPurge {
            kind: PurgeRecordKind::Purge,
            name: u128::from(begun_at).to_be_bytes(),
            scope: scope.clone(),
        };
        let name = purge.name;
        self.syncs[owner].begin_purge(purge);
        self.owners[owner].begun.push(self.purges.len());
        self.purges.push(ModelPurge {
            owner,
            name,
            scope,
            begun_at,
            baseline: self.server.confirmations,
            position: None,
            is_confirmed: false,
            forgotten: BTreeSet::new(),
            is_abandoned: false,
        });
    }

    /// Completes the local part of a purge, and queues it.
    pub(super) fn queue_purge(&mut self, owner: usize) {
        let Some(at) = self.owners[owner].begun.pop() else {
            return;
        };
        let (name, scope) = (self.purges[at].name, self.purges[at].scope.clone());
        self.remove_entries(owner, &scope);
        self.purges[at].baseline = self.server.confirmations;
        self.syncs[owner].queue_purge(&name);
    }

    /// Records the purges that all owners have confirmed, as their publisher does.
    fn update_confirmations(&mut self) {
        for purge in &mut self.purges {
            let present = self.syncs[purge.owner].published_position(&purge.name);
            let (false, Some(position)) = (purge.is_confirmed, present) else {
                continue;
            };
            if purge.position != Some(position) {
                if purge.position.is_some() {
                    purge.baseline = self.server.confirmations;
                }
                purge.position = Some(position);
            }
            let mut owners = self.server.confirmations.iter().zip(&purge.baseline);
            let is_confirmed = owners.all(|(present, before)| {
                present.is_some_and(|(confirmed, _)| confirmed >= position) && present != before
            });
            if is_confirmed {
                purge.is_confirmed = true;
                purge.forgotten.clear();
                self.confirmed += 1;
                self.syncs[purge.owner].record_purge_confirmed(&purge.name);
            }
        }
    }

    /// Begins to write an entry to the fleet: a new one, or the present local one.
    pub(super) fn store(&mut self, owner: usize, key: u8, is_new: bool) {
        if is_new {
            let fetched_at = self.next_time();
            self.owners[owner].entries.insert(key, fetched_at);
        }
        // first the position, then the comparison with the local purges
        let Some(position) = self.syncs[owner].position() else {
            return;
        };
        if let Some(fetched_at) = self.owners[owner].entries.get(&key).copied() {
            let value = ModelValue {
                position,
                fetched_at,
            };
            self.owners[owner].writes.push((key, value));
        }
    }

    pub(super) fn write(&mut self, owner: usize) {
        let count = self.owners[owner].writes.len();
        if count > 0 && self.owners[owner].is_up {
            let at = self.random.below(count);
            let (key, value) = self.owners[owner].writes.swap_remove(at);
            self.values.insert(key, value);
        }
    }

    /// Looks a key up in the fleet, also without a connection to the stream. Returns whether the
    /// value was used.
    pub(super) fn look_up(&mut self, owner: usize, key: u8) -> bool {
        let Some(value) = self.values.get(&key).copied() else {
            return false;
        };
        let sync = &self.syncs[owner];
        let is_refused =
            !sync.is_current(self.now) || sync.covers(value.position, &key_bytes(key), &about(key));
        if is_refused {
            self.refused += 1;
            return false;
        }
        self.accepted += 1;
        let is_exempt = self.check_accepted(owner, key, value);
        let is_newer = |present: &u64| *present < value.fetched_at;
        if !is_exempt && self.owners[owner].entries.get(&key).is_none_or(is_newer) {
            self.owners[owner].entries.insert(key, value.fetched_at);
        }
        true
    }

    /// Checks a value that an owner has accepted. Returns whether a purge covers it that the owner
    /// cannot know.
    fn check_accepted(&self, owner: usize, key: u8, value: ModelValue) -> bool {
        let mut is_exempt = false;
        for purge in &self.purges {
            if purge.begun_at < value.fetched_at || !covers(&purge.scope, key) {
                continue;
            }
            let is_ambiguous = self.ambiguous.contains(&value.position);
            let is_own = purge.owner == owner && !purge.is_abandoned && !is_ambiguous;
            let log = self.syncs[owner].purge_log();
            let is_known = purge.position.is_some_and(|position| {
                let record = self.server.records.iter();
                let mut record = record.filter(|record| record.id.milliseconds == position);
                let mark = record
                    .next()
                    .map(|raw| StreamRecord::parse(raw, &self.keyring));
                let is_read = mark.zip(log).is_some_and(|(record, log)| {
                    let purge_name = record.purge.as_ref().map(|read| read.name);
                    log.has_record(&record.mark) && purge_name == Some(purge.name)
                });
                is_read && !is_ambiguous
            });
            let has_forgotten = purge.forgotten.contains(&owner);
            let is_promised = is_known || is_own || purge.is_confirmed && !has_forgotten;
            assert!(
                !is_promised,
                "seed {}: owner {owner} accepts key {key} of position {} fetched at {}, purged at {}: \
                 position {:?}, confirmed {}, known {is_known}, own {is_own}",
                self.seed,
                value.position,
                value.fetched_at,
                purge.begun_at,
                purge.position,
                purge.is_confirmed
            );
            is_exempt |= purge.is_confirmed;
        }
        is_exempt
    }

    pub(super) fn restart(&mut self, owner: usize, has_file: bool) {
        for purge in self.purges.iter_mut().filter(|purge| purge.owner == owner) {
            purge.is_abandoned = true;
        }
        // unfinished purges of the owner were not acknowledged
        self.owners[owner].begun.clear();
        let outbox = self.syncs[owner].outbox();
        if !has_file {
            self.owners[owner].stored_position = None;
            for purge in &mut self.purges {
                purge.forgotten.insert(owner);
            }
        }
        self.owners[owner].command = None;
        self.owners[owner].job = None;
        let position = self.owners[owner].stored_position;
        self.syncs[owner] = self.new_sync(owner, position, outbox);
    }

    pub(super) fn failover(&mut self) {
        self.server = self.snapshot.clone();
        self.end_commands();
    }

    /// Removes the records of the stream, and its highest id unless `keeps_highest`.
    pub(super) fn flush(&mut self, keeps_highest: bool) {
        self.server.records.clear();
        if !keeps_highest {
            self.server.highest = StreamId::default();
        }
        self.end_commands();
    }

    /// Ends the commands in flight: none takes longer than an owner needs to begin a new stream.
    fn end_commands(&mut self) {
        for owner in 0..OWNERS {
            if self.owners[owner].command.take().is_some() {
                let clocks = self.clocks(owner);
                self.syncs[owner].complete_command(StreamReply::Failed, clocks);
            }
        }
    }
}
