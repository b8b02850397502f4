use super::*;
use crate::cache::fleet::stream_record::{RawStreamRecord, RecordFields, StreamRecord};

const KEY: CacheKey = [1; 32];
const OWNER: FleetOwnerId = [7; 8];

/// A state under test with a simulated stream, whose commands succeed at once.
struct Bench {
    sync: StreamSync,
    keyring: Arc<FleetKeyring>,
    stream: Vec<RawStreamRecord>,
    highest: StreamId,
    now: u64,
    confirmed: Vec<u64>,
    applied: Vec<PurgeScope>,
}

const START: u64 = 1_700_000_000_000;

fn about() -> StoredEntryAttributes {
    StoredEntryAttributes::default()
}

fn key_purge(name: u8) -> PublishedPurge {
    PublishedPurge {
        kind: PurgeRecordKind::Purge,
        name: [name; 16],
        scope: PurgeScope::Key(KEY),
    }
}

impl Bench {
    fn new(position: Option<StreamMark>, outbox: Vec<PublishedPurge>) -> Self {
        let keyring = Arc::new(FleetKeyring::unkeyed());
        let limits = StreamLimits {
            max_records: 8,
            page: 4,
        };
        let sync = StreamSync::new(Arc::clone(&keyring), OWNER, limits, position, outbox, 0);
        Self {
            sync,
            keyring,
            stream: Vec::new(),
            highest: StreamId::default(),
            now: 10_000,
            confirmed: Vec::new(),
            applied: Vec::new(),
        }
    }

    fn clocks(&self) -> ClockReading {
        ClockReading {
            monotonic: self.now,
            unix: START + self.now,
        }
    }

    /// Adds a record of another owner, and returns its position.
    fn add_foreign(&mut self, purge: &PublishedPurge) -> u64 {
        let position = self.highest.milliseconds.max(START + self.now) + 1;
        let id = StreamId::from_position(position);
        let fields = encode_record(purge, &[9; 8], id, &self.keyring);
        self.add_raw(id, fields);
        position
    }

    fn add_raw(&mut self, id: StreamId, fields: RecordFields) {
        let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value));
        self.stream.push(RawStreamRecord {
            id,
            fields: fields.to_vec(),
        });
        self.highest = id;
    }

    fn read(&self, from: StreamId, count: usize) -> StreamReply {
        let records = self.stream.iter().filter(|record| record.id >= from);
        StreamReply::Records(records.take(count).cloned().collect())
    }

    fn execute(&mut self, command: StreamCommand) -> StreamReply {
        match command {
            StreamCommand::ReadRange { from, count } => self.read(from.unwrap_or_default(), count),
            StreamCommand::ReadAfter { after, count } => {
                let records = self.stream.iter().filter(|record| record.id > after);
                StreamReply::Records(records.take(count).cloned().collect())
            }
            StreamCommand::Append {
                id,
                fields,
                creates_stream,
            } => {
                if self.stream.is_empty() && !creates_stream {
                    return StreamReply::NoStream;
                }
                if id <= self.highest {
                    return StreamReply::IdTooLow;
                }
                self.add_raw(id, fields);
                StreamReply::Done
            }
            StreamCommand::Confirm { position, .. } => {
                self.confirmed.push(position);
                StreamReply::Done
            }
        }
    }

    /// Executes one command; returns `false` if none is due.
    fn step(&mut self) -> bool {
        let Some(command) = self.sync.next_command(self.clocks()) else {
            return false;
        };
        let reply = self.execute(command);
        self.sync.complete_command(reply, self.clocks());
        true
    }

    fn apply_local(&mut self) {
        while let Some(job) = self.sync.take_local_purges(self.now) {
            self.applied.extend(job.scopes);
            self.sync.complete_local_purges(true, self.now);
        }
    }

    /// Executes all commands and jobs during a number of milliseconds.
    fn run(&mut self, milliseconds: u64) {
        for _ in 0..=milliseconds / 50 {
            while self.step() {}
            self.apply_local();
            while self.step() {}
            self.now += 50;
        }
    }

    fn is_current(&self) -> bool {
        self.sync.is_current(self.now)
    }

    fn mark(&self, at: usize) -> StreamMark {
        StreamRecord::parse(&self.stream[at], &self.keyring).mark
    }
}

#[test]
fn new_stream_begins_with_a_fence() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    assert_eq!(bench.stream.len(), 1);
    let record = StreamRecord::parse(&bench.stream[0], &bench.keyring);
    assert!(record.is_fence());
    let position = record.mark.id.milliseconds;
    assert!(bench.is_current());
    assert_eq!(bench.sync.position(), Some(position));
    assert_eq!(bench.applied, [], "a fence purges values only");
    assert!(bench.sync.covers(position - 1, &KEY, &about()));
    assert!(!bench.sync.covers(position, &KEY, &about()));
    assert_eq!(bench.confirmed.last(), Some(&position));
}

#[test]
fn purge_of_another_owner_is_applied_before_the_position_moves() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let before = bench.sync.position().unwrap();
    let position = bench.add_foreign(&key_purge(1));
    bench.now += POLL_INTERVAL_MS;
    while bench.step() {}
    assert!(bench.sync.covers(before, &KEY, &about()));
    assert_eq!(bench.sync.position(), Some(before));
    assert!(!bench.confirmed.contains(&position));
    bench.apply_local();
    while bench.step() {}
    assert_eq!(bench.applied, [PurgeScope::Key(KEY)]);
    assert_eq!(bench.sync.position(), Some(position));
    assert!(bench.confirmed.contains(&position));
    assert!(
        !bench.sync.covers(before, &[2; 32], &about()),
        "of another key"
    );
}

#[test]
fn own_purge_covers_values_at_once_and_is_not_applied_twice() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let before = bench.sync.position().unwrap();
    bench.sync.begin_purge(key_purge(5));
    assert!(bench.sync.covers(before, &KEY, &about()));
    bench.sync.queue_purge(&[5; 16]);
    bench.run(300);
    let position = bench.sync.published_position(&[5; 16]).unwrap();
    assert_eq!(bench.sync.position(), Some(position));
    assert_eq!(bench.applied, []);
    assert!(bench.sync.covers(before, &KEY, &about()));
    assert!(!bench.sync.covers(position, &KEY, &about()));
}

#[test]
fn values_are_used_for_the_lease_after_the_last_poll() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let polled = bench.sync.last_poll_time().unwrap();
    assert!(bench.sync.is_current(polled + LEASE_MS - 1));
    assert!(!bench.sync.is_current(polled + LEASE_MS));
    // failed polls extend nothing
    bench.now += POLL_INTERVAL_MS;
    bench.sync.next_command(bench.clocks()).unwrap();
    bench
        .sync
        .complete_command(StreamReply::Failed, bench.clocks());
    assert!(!bench.sync.is_current(polled + LEASE_MS));
    bench.run(500);
    assert!(bench.is_current());
}

#[test]
fn flushed_stream_is_replaced_by_a_fence_and_local_entries_stay() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let before = bench.sync.position().unwrap();
    bench.stream.clear();
    bench.highest = StreamId::default();
    bench.run(1_500);
    assert!(bench.is_current());
    assert!(bench.sync.take_events().contains(&StreamEvent::StreamLost));
    assert!(bench.sync.position().unwrap() > before);
    assert!(bench.sync.covers(before, &KEY, &about()));
    assert_eq!(bench.applied, []);
    // the table of owners may be lost, too
    assert!(bench.sync.owners_known_from() > bench.clocks().monotonic);
    bench.run(2 * LEASE_MS);
    assert!(bench.sync.owners_known_from() <= bench.clocks().monotonic);
}

#[test]
fn stream_in_an_earlier_state_is_fenced_and_unconfirmed_purges_are_repeated() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let (before, records) = (bench.sync.position().unwrap(), bench.stream.clone());
    bench.sync.begin_purge(key_purge(5));
    bench.sync.queue_purge(&[5; 16]);
    bench.run(300);
    let lost = bench.sync.published_position(&[5; 16]).unwrap();
    bench.highest = records[0].id;
    bench.stream = records;
    bench.run(1_500);
    assert!(bench.is_current());
    let again = bench.sync.published_position(&[5; 16]).unwrap();
    assert!(again > lost);
    for position in [before, lost] {
        assert!(
            bench.sync.covers(position, &[2; 32], &about()),
            "{position}"
        );
    }
    assert_eq!(bench.stream.len(), 3, "a fence and the purge were added");
    // a confirmed one is not repeated
    bench.sync.record_purge_confirmed(&[5; 16]);
    bench.stream.clear();
    bench.run(1_500);
    assert_eq!(bench.stream.len(), 1);
}

#[test]
fn trimmed_stream_purges_everything_after_a_restart() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let mark = bench.mark(0);
    for name in 1..=3 {
        bench.add_foreign(&key_purge(name));
    }
    let mut restarted = Bench::new(Some(mark), Vec::new());
    restarted.now = bench.now;
    restarted.stream = bench.stream[2..].to_vec();
    restarted.highest = bench.highest;
    restarted.run(500);
    assert_eq!(restarted.applied, [PurgeScope::Everything]);
    assert!(restarted.sync.take_events().contains(&StreamEvent::Trimmed));
    assert!(restarted.is_current(), "{:?}", restarted.stream.len());
    let floor = restarted.stream[0].id.milliseconds;
    assert!(restarted.sync.covers(floor - 1, &[2; 32], &about()));
    // without a gap only the new records are applied
    let mut restarted = Bench::new(Some(bench.mark(1)), Vec::new());
    restarted.now = bench.now;
    restarted.stream = bench.stream;
    restarted.highest = bench.highest;
    restarted.run(500);
    assert_eq!(restarted.applied, [PurgeScope::Key(KEY)]);
}

#[test]
fn outbox_is_published_before_values_are_used() {
    let mut first = Bench::new(None, Vec::new());
    first.run(LEASE_MS + 500);
    let mut bench = Bench::new(Some(first.mark(0)), vec![key_purge(5)]);
    bench.now = first.now;
    bench.stream = first.stream;
    bench.highest = first.highest;
    while bench.sync.published_position(&[5; 16]).is_none() {
        assert!(!bench.is_current());
        assert!(bench.step());
    }
    bench.run(200);
    assert!(bench.is_current());
    assert_eq!(bench.applied, [], "the local purge was complete");
}

#[test]
fn stream_that_is_ahead_of_the_clock_is_not_used() {
    let mut bench = Bench::new(None, Vec::new());
    bench.highest = StreamId::from_position(START + bench.now + 2 * MAX_AHEAD_MS);
    bench.add_foreign(&key_purge(1));
    bench.run(12_000);
    assert!(!bench.is_current() && bench.sync.position().is_none());
    assert_eq!(bench.stream.len(), 1);
    let events = bench.sync.take_events();
    assert!(
        matches!(events[..], [StreamEvent::AheadOfClock(_), ..]),
        "{events:?}"
    );
    // removed by an operator
    bench.stream.clear();
    bench.highest = StreamId::default();
    bench.run(12_000);
    assert!(bench.is_current());
}

#[test]
fn unreadable_record_purges_everything() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let before = bench.sync.position().unwrap();
    let position = bench.add_foreign(&key_purge(1));
    let record = bench.stream.last_mut().unwrap();
    record.fields[4].1[0] ^= 1;
    bench.run(500);
    assert_eq!(bench.applied, [PurgeScope::Everything]);
    assert!(bench.sync.covers(before, &[2; 32], &about()));
    assert_eq!(bench.sync.position(), Some(position));
    assert_eq!(bench.sync.counters().unreadable, 1);
    // a record with the milliseconds of another one: a fence follows, so that values can be used
    let mut foreign = bench.stream.last().unwrap().clone();
    foreign.id.sequence = 3;
    bench.highest = foreign.id;
    bench.stream.push(foreign);
    bench.run(2_000);
    assert!(bench.sync.covers(position, &[2; 32], &about()));
    let present = bench.sync.position().unwrap();
    assert!(present > position && !bench.sync.covers(present, &KEY, &about()));
}

#[test]
fn id_below_the_top_is_raised() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    // the server remembers the id of a record that was removed
    bench.highest = StreamId::from_position(START + bench.now + 60_000);
    bench.sync.begin_purge(key_purge(5));
    bench.sync.queue_purge(&[5; 16]);
    bench.run(2_000);
    assert!(bench.sync.published_position(&[5; 16]).is_some());
    assert!(bench.is_current());
}

#[test]
fn failed_local_purge_keeps_the_position() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let before = bench.sync.position();
    let position = bench.add_foreign(&key_purge(1));
    bench.now += POLL_INTERVAL_MS;
    while bench.step() {}
    bench.sync.take_local_purges(bench.now).unwrap();
    bench.sync.complete_local_purges(false, bench.now);
    while bench.step() {}
    assert_eq!(bench.sync.position(), before);
    bench.run(1_500);
    assert_eq!(bench.sync.position(), Some(position));
    assert_eq!(bench.applied, [PurgeScope::Key(KEY)]);
}

#[test]
fn owner_with_another_id_confirms_its_position_at_once() {
    let mut bench = Bench::new(None, Vec::new());
    bench.run(LEASE_MS + 500);
    let counter = bench.sync.confirmed_counter().unwrap();
    let confirmations = bench.confirmed.len();
    bench.sync.replace_owner_id([8; 8]);
    assert_eq!(bench.sync.confirmed_counter(), None);
    while bench.step() {}
    assert_eq!(bench.confirmed.len(), confirmations + 1);
    assert!(bench.sync.confirmed_counter().unwrap() > counter);
    assert!(bench.is_current());
    bench.sync.begin_purge(key_purge(5));
    bench.sync.queue_purge(&[5; 16]);
    bench.run(300);
    let record = bench.stream.last().unwrap();
    let owner = record.fields.iter().find(|(name, _)| name == b"o");
    assert_eq!(owner.unwrap().1, b"0808080808080808");
}
