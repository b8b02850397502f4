//! Commands for the server, their replies, and the events of the synchronisation.

use crate::cache::fleet::stream_record::{RawStreamRecord, RecordFields, StreamId};

/// Sizes of a stream and its replies, in records.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Number of records that the stream keeps at least when it is trimmed.
    pub max_records: usize,
    /// Number of records of one reply.
    pub page: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            max_records: 16_384,
            page: 512,
        }
    }
}

/// A command for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamCommand {
    /// `XRANGE` from an id on, which is included, or from the beginning.
    ReadRange {
        /// First id; `None` for the beginning of the stream.
        from: Option<StreamId>,
        /// Maximum number of records.
        count: usize,
    },
    /// `XREAD` without waiting.
    ReadAfter {
        /// The id before the first record that is returned.
        after: StreamId,
        /// Maximum number of records.
        count: usize,
    },
    /// `XADD` with this id.
    Append {
        /// Id of the record.
        id: StreamId,
        /// Fields of the record.
        fields: RecordFields,
        /// Whether the stream is created if there is none; otherwise nothing is written then.
        creates_stream: bool,
    },
    /// `HSET` of this owner's position.
    Confirm {
        /// Position of the owner.
        position: u64,
        /// Number of confirmations; another one shows that the owner is alive.
        counter: u64,
    },
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamReply {
    /// Records in ascending order.
    Records(Vec<RawStreamRecord>),
    /// The command was executed.
    Done,
    /// The server has no stream, and the command has created none.
    NoStream,
    /// The id is not above the highest id of the stream.
    IdTooLow,
    /// The command failed, or its reply was invalid: it may have been executed.
    Failed,
}

/// A change that is worth a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The owner knows all purges.
    Synchronised,
    /// Records were lost, or there was no stream: values that were stored before are not used.
    StreamLost,
    /// Records were trimmed before this owner has read them: all of its entries are purged.
    Trimmed,
    /// The newest record is more than a day ahead of the clock: the fleet is not used.
    AheadOfClock(StreamId),
    /// A record cannot be read: all entries are purged.
    Unreadable(StreamId),
}

/// Counts for the owner's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Purges that this owner has published.
    pub published: u64,
    /// Purges of other owners that were applied.
    pub received: u64,
    /// Fences that this owner has written.
    pub fences: u64,
    /// Records that could not be read.
    pub unreadable: u64,
}
