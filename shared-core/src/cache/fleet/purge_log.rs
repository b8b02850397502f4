//! The purges of all owners of a fleet, compared with the positions of values.
//!
//! A value has a position: the id of the last record of the purge stream that was in effect in the
//! owner that has stored the value. It may be used if no later record covers it. So the records are
//! compared with values as the purges of a store are with entries ([`PurgeRecords`]), by positions
//! in place of generations.

use std::collections::BTreeMap;

use super::stream_record::{PublishedPurge, StreamMark, StreamRecord};
use crate::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use crate::cache::store::PurgeRecords;
use crate::cache::CacheKey;

/// Maximum number of records whose positions are known. Values with older positions are not used.
pub const MAX_POSITIONS: usize = 32_768;

/// The records of a purge stream, from its first one.
#[derive(Clone, Debug)]
pub struct FleetPurgeLog {
    purges: PurgeRecords,
    floor: u64,
    /// Fingerprints of the records by position.
    positions: BTreeMap<u64, [u8; 16]>,
}

impl FleetPurgeLog {
    /// Creates the log of a stream that begins with a record at this position. Earlier records were
    /// trimmed: values with earlier positions are not used.
    pub fn from_floor(floor: u64) -> Self {
        Self {
            purges: PurgeRecords::new(floor),
            floor,
            positions: BTreeMap::new(),
        }
    }

    /// Adds a record of the stream. An unreadable one purges everything.
    pub fn add_record(&mut self, record: &StreamRecord) {
        let StreamMark { id, fingerprint } = record.mark;
        let everything = PurgeScope::Everything;
        match &record.purge {
            Some(PublishedPurge { scope, .. }) => {
                self.purges.add_purge_at(scope, id.milliseconds);
            }
            // a foreign record has the milliseconds of the record before it, maybe: values that
            // were stored after that one are purged as well
            None if id.sequence > 0 => {
                let after = id.milliseconds.saturating_add(1);
                self.purges.add_purge_at(&everything, after);
            }
            None => {
                self.purges.add_purge_at(&everything, id.milliseconds);
            }
        }
        self.positions.insert(id.milliseconds, fingerprint);
        if self.positions.len() > MAX_POSITIONS {
            self.positions.pop_first();
        }
    }

    /// Returns the position of the newest record; `None` if there is none.
    pub fn position(&self) -> Option<u64> {
        self.positions.keys().next_back().copied()
    }

    /// Returns the lowest position that values may have.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the number of records whose positions are known.
    pub fn record_count(&self) -> usize {
        self.positions.len()
    }

    /// Whether the log has this very record.
    pub fn has_record(&self, mark: &StreamMark) -> bool {
        self.positions.get(&mark.id.milliseconds) == Some(&mark.fingerprint)
    }

    /// Whether a value must not be used: a record after its position covers it, or its position is
    /// of no known record. Such a position is of another stream, which the server has lost, or of a
    /// record that is not read yet.
    pub fn covers(&self, position: u64, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        let about = StoredEntryAttributes {
            generation: position,
            ..about.clone()
        };
        !self.positions.contains_key(&position) || self.purges.is_entry_purged(key, &about)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream_record::{PurgeRecordKind, StreamId};
    use super::*;

    const KEY: CacheKey = [1; 32];

    fn about() -> StoredEntryAttributes {
        StoredEntryAttributes {
            namespace: [5; 16],
            method: Some("eth_call".into()),
            block: Some(10),
            // of the owner that has the entry: it has no meaning here
            generation: 1 << 60,
            ..StoredEntryAttributes::default()
        }
    }

    fn record(position: u64, scope: Option<PurgeScope>) -> StreamRecord {
        let purge = scope.map(|scope| PublishedPurge {
            kind: PurgeRecordKind::Purge,
            name: [0; 16],
            scope,
        });
        StreamRecord {
            mark: StreamMark {
                id: StreamId::from_position(position),
                fingerprint: position.to_le_bytes().repeat(2).try_into().unwrap(),
            },
            purge,
        }
    }

    #[test]
    fn value_is_covered_by_later_records_of_its_scope_only() {
        let mut log = FleetPurgeLog::from_floor(100);
        let other = Some(PurgeScope::Namespace([6; 16]));
        log.add_record(&record(100, other.clone()));
        log.add_record(&record(110, Some(PurgeScope::Key(KEY))));
        log.add_record(&record(120, other));
        for (position, is_covered) in [(99, true), (100, true), (110, false), (120, false)] {
            assert_eq!(
                log.covers(position, &KEY, &about()),
                is_covered,
                "{position}"
            );
        }
        assert!(!log.covers(100, &[2; 32], &about()));
        assert_eq!(
            (log.position(), log.floor(), log.record_count()),
            (Some(120), 100, 3)
        );
    }

    #[test]
    fn value_with_the_position_of_no_known_record_is_covered() {
        let mut log = FleetPurgeLog::from_floor(100);
        assert!(log.covers(100, &KEY, &about()));
        log.add_record(&record(100, Some(PurgeScope::Key([2; 32]))));
        for position in [0, 99, 101, u64::MAX] {
            assert!(log.covers(position, &KEY, &about()), "{position}");
        }
        assert!(!log.covers(100, &KEY, &about()));
    }

    #[test]
    fn unreadable_record_covers_all_values_before_it() {
        let mut log = FleetPurgeLog::from_floor(100);
        log.add_record(&record(100, Some(PurgeScope::Key([2; 32]))));
        log.add_record(&record(110, None));
        assert!(log.covers(100, &KEY, &about()));
        assert!(!log.covers(110, &KEY, &about()));
        let mut foreign = record(110, None);
        foreign.mark.id.sequence = 1;
        log.add_record(&foreign);
        assert!(log.covers(110, &KEY, &about()));
        log.add_record(&record(111, Some(PurgeScope::Key([2; 32]))));
        assert!(!log.covers(111, &KEY, &about()));
    }

    #[test]
    fn record_is_known_by_its_position_and_fingerprint() {
        let mut log = FleetPurgeLog::from_floor(100);
        let first = record(100, Some(PurgeScope::Everything));
        log.add_record(&first);
        assert!(log.has_record(&first.mark));
        let other = StreamMark {
            fingerprint: [9; 16],
            ..first.mark
        };
        assert!(!log.has_record(&other));
    }
}
