//! The polls of a stream whose records are known, and the publication of purges.

use std::collections::BTreeSet;

use super::commands::{StreamCommand, StreamEvent};
use super::{is_ahead_of_clock, PendingCommand, StreamSync, LEASE_MS, POLL_INTERVAL_MS};
use crate::cache::clock::ClockReading;
use crate::cache::entry::store_attributes::PurgeScope;
use crate::cache::fleet::stream_record::{
    encode_record, PublishedPurge, PurgeRecordKind, RawStreamRecord, StreamId, StreamRecord,
};

impl StreamSync {
    pub(super) fn next_following_command(
        &mut self,
        now: ClockReading,
    ) -> Option<(PendingCommand, StreamCommand)> {
        let at = now.monotonic;
        if at >= self.next_command {
            let after = self.cursor?.id.predecessor();
            let poll = PendingCommand::Poll { sent: at };
            // one more: the record that is known
            let count = self.limits.page + 1;
            return Some((poll, StreamCommand::ReadAfter { after, count }));
        }
        if at >= self.next_append {
            if let Some(purge) = self.own.next_queued() {
                let id = self.next_id(now);
                let publish = PendingCommand::Publish {
                    name: purge.name,
                    id,
                };
                let append = StreamCommand::Append {
                    id,
                    fields: encode_record(purge, &self.owner, id, &self.keyring),
                    creates_stream: false,
                };
                return Some((publish, append));
            }
        }
        let position = self.position()?;
        let is_due = self.confirmed != Some(position) || at >= self.next_confirm;
        if !is_due || at < self.confirm_from || at >= self.fresh_until {
            return None;
        }
        self.counter = self.counter.wrapping_add(1);
        let confirm = StreamCommand::Confirm {
            position,
            counter: self.counter,
        };
        Some((PendingCommand::Confirm { position }, confirm))
    }

    pub(super) fn complete_poll(&mut self, raw: &[RawStreamRecord], sent: u64, now: ClockReading) {
        let Some(records) = self.parse_records(raw) else {
            self.next_command = now.monotonic + POLL_INTERVAL_MS;
            return;
        };
        let (cursor, records) = match records.split_first() {
            Some((first, rest)) if Some(first.mark) == self.cursor => (first.mark, rest),
            _ => {
                self.restart_reading(now.monotonic);
                return;
            }
        };
        let last = records.last().map_or(cursor, |record| record.mark);
        if is_ahead_of_clock(last.id, now) {
            self.events.push(StreamEvent::AheadOfClock(last.id));
            self.restart_reading(now.monotonic);
            return;
        }
        let mut names = BTreeSet::new();
        for record in records {
            names.extend(record.purge.as_ref().map(|purge| purge.name));
            if let Some(log) = &mut self.log {
                log.add_record(record);
            }
            self.queue_local_purge(record, true, now.monotonic);
        }
        if last != cursor {
            self.cursor = Some(last);
            self.highest = self.highest.max(last.id);
            self.local.set_mark(last);
        }
        if records.len() >= self.limits.page {
            // there may be more
            self.next_command = now.monotonic;
            return;
        }
        // the server has accepted these before this poll
        self.own.requeue_unread(sent, &names);
        self.next_command = sent + POLL_INTERVAL_MS;
        self.fresh_until = sent + LEASE_MS;
        self.last_poll = Some(sent);
        self.publishes_first &= self.own.next_queued().is_some();
        if !self.publishes_first {
            self.current_until = sent + LEASE_MS;
        }
    }

    /// Parses the records of a reply; `None` if they are not in ascending order.
    pub(super) fn parse_records(&self, raw: &[RawStreamRecord]) -> Option<Vec<StreamRecord>> {
        if !raw.is_sorted_by(|before, after| before.id < after.id) {
            return None;
        }
        let records = raw.iter();
        let records = records.map(|record| StreamRecord::parse(record, &self.keyring));
        Some(records.collect())
    }

    /// Queues the local purge of a record, if the record is not in effect yet.
    pub(super) fn queue_local_purge(&mut self, record: &StreamRecord, is_new: bool, now: u64) {
        let id = record.mark.id;
        let Some(purge) = &record.purge else {
            if is_new {
                self.counters.unreadable += 1;
                self.events.push(StreamEvent::Unreadable(id));
                self.local.add_unreadable(now);
                self.heal_foreign_id(id);
            }
            return;
        };
        let is_own = self.own.observe_record(&purge.name, id, now);
        if is_new && !is_own && purge.kind == PurgeRecordKind::Purge {
            self.counters.received += 1;
            self.local.add_scope(&purge.scope);
        }
    }

    /// Publishes a fence after a foreign record, whose position may be the one of the record before:
    /// no value could be used until the next record.
    fn heal_foreign_id(&mut self, id: StreamId) {
        if id.sequence == 0 || self.own.has_pending_fence() {
            return;
        }
        let fence = PublishedPurge {
            kind: PurgeRecordKind::ValuesOnly,
            name: self.next_fence_name(),
            scope: PurgeScope::Everything,
        };
        self.own.restore(vec![fence]);
    }
}
