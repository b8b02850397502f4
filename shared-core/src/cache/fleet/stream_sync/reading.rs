//! The reading of the whole stream, and the comparison with the known records.

use std::collections::BTreeSet;

use super::record_pages::StreamReading;
use super::{
    is_ahead_of_clock, StreamEvent, StreamReply, StreamSync, SyncPhase, LEASE_MS, POLL_INTERVAL_MS,
    REFUSED_INTERVAL_MS,
};
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::PurgeScope;
use crate::cache::fleet::purge_log::FleetPurgeLog;
use crate::cache::fleet::stream_record::{PurgeRecordKind, StreamId, StreamMark, StreamRecord};

/// The result of the search for a known record in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownRecord {
    Found,
    /// The stream begins with a later record: earlier ones were trimmed.
    Trimmed,
    /// The stream is another one, or is in an earlier state.
    Lost,
}

impl StreamSync {
    pub(super) fn complete_page(&mut self, reply: StreamReply, now: ClockReading) {
        let StreamReply::Records(raw) = reply else {
            self.phase = SyncPhase::Reading(StreamReading::default());
            self.next_command = now.monotonic + POLL_INTERVAL_MS;
            return;
        };
        let (is_last, page) = (raw.len() < self.limits.page, self.parse_records(&raw));
        let SyncPhase::Reading(reading) = &mut self.phase else {
            return;
        };
        if !page.is_some_and(|page| reading.add_page(page)) {
            self.phase = SyncPhase::Reading(StreamReading::default());
            self.next_command = now.monotonic + POLL_INTERVAL_MS;
            return;
        }
        if is_last {
            let StreamReading { records, is_cut } = std::mem::take(reading);
            self.complete_reading(&Vec::from(records), is_cut, now);
        }
    }

    fn complete_reading(&mut self, records: &[StreamRecord], is_cut: bool, now: ClockReading) {
        if let Some(top) = records
            .last()
            .filter(|top| is_ahead_of_clock(top.mark.id, now))
        {
            self.events.push(StreamEvent::AheadOfClock(top.mark.id));
            self.next_command = now.monotonic + REFUSED_INTERVAL_MS;
            return;
        }
        if self
            .position
            .is_some_and(|mark| is_ahead_of_clock(mark.id, now))
        {
            // this machine's clock was wrong, or another one's
            (self.position, self.highest) = (None, StreamId::default());
        }
        let max_records = self.limits.max_records;
        let marks = [self.position, self.cursor].into_iter().flatten();
        let known: Vec<_> = marks
            .map(|mark| {
                (
                    mark.id,
                    find_known_record(records, mark, is_cut, max_records),
                )
            })
            .collect();
        let lost = known
            .iter()
            .filter(|(_, found)| *found == KnownRecord::Lost);
        let lost = lost.map(|(id, _)| *id).max();
        let is_fenced = |lost: StreamId| {
            let mut later = records.iter().filter(|record| record.mark.id > lost);
            later.any(StreamRecord::is_fence)
        };
        let Some(last) = records.last() else {
            self.phase = SyncPhase::Fencing(PurgeRecordKind::NewStream);
            return;
        };
        if lost.is_some_and(|lost| !is_fenced(lost)) {
            self.highest = self.highest.max(last.mark.id);
            self.phase = SyncPhase::Fencing(PurgeRecordKind::ValuesOnly);
            return;
        }
        if lost.is_some() {
            self.events.push(StreamEvent::StreamLost);
        }
        let mut known = known.into_iter();
        // an owner without a position can't know whether it has applied records that were trimmed
        let is_unknown = self.position.is_none() && self.log.is_none();
        let is_trimmed = known.any(|(_, found)| found == KnownRecord::Trimmed)
            || is_unknown && !is_whole_stream(records, is_cut, max_records);
        self.adopt_records(records, lost.is_some(), is_trimmed, now);
    }

    /// Takes the records of the stream as the known ones, and queues those that are not in effect.
    fn adopt_records(
        &mut self,
        records: &[StreamRecord],
        is_lost: bool,
        is_trimmed: bool,
        now: ClockReading,
    ) {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return;
        };
        let at = now.monotonic;
        let has = |mark: &StreamMark| records.iter().any(|record| record.mark == *mark);
        let position = self.position.filter(has);
        if is_lost {
            let names = records
                .iter()
                .filter_map(|record| Some(record.purge.as_ref()?.name));
            self.own
                .requeue_missing(&names.collect::<BTreeSet<_>>(), at);
        }
        if is_trimmed {
            self.events.push(StreamEvent::Trimmed);
            self.local.add_scope(&PurgeScope::Everything);
        }
        let before = self.log.take();
        let mut log = FleetPurgeLog::from_floor(first.mark.id.milliseconds);
        for record in records {
            log.add_record(record);
            let is_new = match (&before, position) {
                // the queue has those that were read and are not in effect
                (Some(before), _) => !before.has_record(&record.mark),
                (None, Some(position)) => record.mark.id > position.id,
                (None, None) => true,
            };
            self.queue_local_purge(record, is_new, at);
        }
        if self.position.is_none() && before.is_none() {
            // an owner that knows of lost records writes its fence meanwhile
            self.usable_from = at + LEASE_MS;
        }
        if is_lost {
            // after that, all owners that may use values know the fence
            self.confirm_from = at + LEASE_MS;
        }
        self.log = Some(log);
        self.is_position_known = position.is_some();
        self.cursor = Some(last.mark);
        self.highest = self.highest.max(last.mark.id);
        if self.position != Some(last.mark) {
            self.local.set_mark(last.mark);
        }
        self.publishes_first = self.own.next_queued().is_some();
        self.phase = SyncPhase::Following;
        self.next_command = at;
        self.events.push(StreamEvent::Synchronised);
    }
}

/// Whether no records of the stream were trimmed: it has the record that has begun it. Trimming
/// leaves `max_records` at least; the first may be another one of this kind then, as two owners may
/// begin a stream at the same time.
fn is_whole_stream(records: &[StreamRecord], is_cut: bool, max_records: usize) -> bool {
    let first = records.first().and_then(|first| first.purge.as_ref());
    let is_new = first.is_some_and(|purge| purge.kind == PurgeRecordKind::NewStream);
    is_new && records.len() < max_records && !is_cut
}

/// Searches a record that is known from before in the records of the stream.
fn find_known_record(
    records: &[StreamRecord],
    mark: StreamMark,
    is_cut: bool,
    max_records: usize,
) -> KnownRecord {
    let found = records.binary_search_by_key(&mark.id, |record| record.mark.id);
    if found.is_ok_and(|at| records[at].mark == mark) {
        return KnownRecord::Found;
    }
    let is_before = records.first().is_some_and(|first| mark.id < first.mark.id);
    match is_before && !is_whole_stream(records, is_cut, max_records) {
        true => KnownRecord::Trimmed,
        false => KnownRecord::Lost,
    }
}
