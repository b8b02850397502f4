//! Bodies that are ready to send, and entries that must be decompressed first.

use std::sync::Arc;

use crate::cache::entry::batch::BatchCoding;
use crate::cache::entry::CacheEntry;
use crate::cache::CacheKey;
use crate::exchange::cache::logs::assembly_input::LogAssembly;
use crate::exchange::response::pipeline::{BufferedBody, EntryReservations};
use crate::gzip::splice::SlicedBody;
use crate::memory::MemoryReservation;

/// A response that is decided and ready to send: its body, the status if it is not the upstream's,
/// and the memory of the body.
#[derive(Debug, Default)]
pub(in crate::exchange) struct ReadyResponse {
    /// Status of a stored response; 0 if the upstream's status is sent.
    pub(in crate::exchange) status: u16,
    /// Whether sszip made the response, without a request to the node.
    pub(in crate::exchange) is_ours: bool,
    /// Body that the upstream sent, or that was made from it.
    pub(in crate::exchange) body: Vec<u8>,
    /// Body of an entry that was stored, or was made to be stored.
    pub(in crate::exchange) stored: Option<SlicedBody>,
    /// Memory of the body, until it was sent.
    pub(in crate::exchange) _reservation: Option<MemoryReservation>,
    pub(in crate::exchange) borrowed: EntryReservations,
}

impl ReadyResponse {
    pub(in crate::exchange) fn from_buffered_body(buffered: BufferedBody) -> Box<Self> {
        Box::new(Self {
            body: buffered.body,
            _reservation: buffered.reservation,
            borrowed: buffered.borrowed,
            ..Self::default()
        })
    }
}

/// A stored response that a job must decompress, check or convert before it is sent, with its
/// reserved memory.
#[derive(Debug, Default)]
pub(in crate::exchange) enum StoredResponseToDecode {
    /// A single entry with its key and the id of its response; the id is `None` for a resource.
    One(
        CacheKey,
        Arc<CacheEntry>,
        Option<Vec<u8>>,
        EntryReservations,
    ),
    /// The entries of a batch, with their keys and ids. A key is `None` for a denied call.
    Batch {
        answers: Vec<(Option<CacheKey>, Arc<CacheEntry>, Vec<u8>)>,
        coding: BatchCoding,
        borrowed: EntryReservations,
    },
    /// A list of logs that is assembled from other entries.
    Logs(Box<LogAssembly>),
    /// A list of logs for a call of a batch, which is looked up again after the assembly.
    LogsOfBatch(Box<LogAssembly>),
    /// The decompression has begun.
    #[default]
    Running,
}
