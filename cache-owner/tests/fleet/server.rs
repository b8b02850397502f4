//! The simulated server of a fleet: values, and the stream of purges.

use std::collections::BTreeMap;

use sszip_core::cache::fleet::stream_record::{RawStreamRecord, StreamId};
use sszip_core::cache::fleet::stream_sync::{StreamCommand, StreamLimits, StreamReply};
use sszip_core::cache::CacheKey;

use crate::blocks::Random;

pub const MACHINES: usize = 3;

/// Position and number of confirmations, by machine.
pub type Confirmations = [Option<(u64, u64)>; MACHINES];

pub const LIMITS: StreamLimits = StreamLimits {
    max_records: 64,
    page: 16,
};

/// The state of the server.
#[derive(Default)]
pub struct FleetServer {
    records: Vec<RawStreamRecord>,
    highest: StreamId,
    pub confirmations: Confirmations,
    /// All values that were written, the newest last.
    values: BTreeMap<CacheKey, Vec<Vec<u8>>>,
}

impl FleetServer {
    /// Executes a command about the stream.
    pub fn execute(&mut self, machine: usize, command: &StreamCommand) -> StreamReply {
        let records = self.records.iter();
        match command {
            StreamCommand::ReadRange { from, count } => {
                let from = from.unwrap_or_default();
                let range = records.filter(|record| record.id >= from);
                StreamReply::Records(range.take(*count).cloned().collect())
            }
            StreamCommand::ReadAfter { after, count } => {
                let range = records.filter(|record| record.id > *after);
                StreamReply::Records(range.take(*count).cloned().collect())
            }
            StreamCommand::Append {
                id,
                fields,
                creates_stream,
            } => {
                if self.records.is_empty() && !creates_stream {
                    return StreamReply::NoStream;
                }
                if *id <= self.highest {
                    return StreamReply::IdTooLow;
                }
                let fields = fields.clone();
                let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value));
                self.highest = *id;
                self.records.push(RawStreamRecord {
                    id: *id,
                    fields: fields.to_vec(),
                });
                StreamReply::Done
            }
            StreamCommand::Confirm { position, counter } => {
                self.confirmations[machine] = Some((*position, *counter));
                StreamReply::Done
            }
        }
    }

    pub fn write_value(&mut self, key: CacheKey, value: Vec<u8>) {
        self.values.entry(key).or_default().push(value);
    }

    /// Returns the value of a key; sometimes an older one, or one of another key.
    pub fn read_value(&self, key: &CacheKey, random: &mut Random) -> Option<&Vec<u8>> {
        if random.happens_once_in(64) {
            let other = random.below(self.values.len().max(1) as u64);
            return self.values.values().nth(other as usize)?.last();
        }
        let values = self.values.get(key)?;
        match random.happens_once_in(6) {
            true => values.get(random.below(values.len() as u64) as usize),
            false => values.last(),
        }
    }

    /// Evicts some of the values.
    pub fn evict_values(&mut self, random: &mut Random) {
        self.values.retain(|_, _| !random.happens_once_in(4));
    }

    /// Removes the stream, as a flush or an eviction does. Values stay, which is the worst case.
    pub fn lose_stream(&mut self) {
        self.records.clear();
    }
}
