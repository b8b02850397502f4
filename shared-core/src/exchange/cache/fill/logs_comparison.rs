//! The receipts of a block whose logs are compared with the node's response to a call for them.

use std::cell::Cell;
use std::sync::Arc;

use crate::cache::entry::CacheEntry;
use crate::gzip::oneshot::off_loop_min_length;

/// The stored receipts of a block with whose logs the node's response to a call is compared.
#[derive(Debug)]
pub(in crate::exchange) struct PendingLogsComparison {
    pub(super) receipts: Arc<CacheEntry>,
    /// Hash of the node's result, once it was received.
    pub(super) result: Cell<Option<[u8; 32]>>,
}

impl PendingLogsComparison {
    pub(in crate::exchange) fn new(receipts: Arc<CacheEntry>) -> Box<Self> {
        Box::new(Self {
            receipts,
            result: Cell::new(None),
        })
    }

    /// Whether the receipts take too long to be read on an event loop.
    pub(super) fn needs_job(&self, level: u8) -> bool {
        self.receipts.response_length(b"") > off_loop_min_length(level) as u64
    }
}

/// Number of bytes that `CacheFill::derive_logs_entry` takes for these receipts: their text, and
/// a list of logs and its compressed form, which are not longer.
pub(in crate::exchange) fn derived_logs_memory(receipts: &CacheEntry) -> usize {
    let decoded = receipts.decode_memory_bytes();
    decoded.saturating_mul(3)
}
