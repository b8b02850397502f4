//! Comparison of blocks with lists of their receipts.

use super::target::FillCall;
use super::CacheFill;
use crate::cache::vary_key::truncated_blake3;
use crate::jsonrpc::plausible::{
    block_counted_by_result, block_transaction_count, shows_fewer_transactions,
};

impl CacheFill {
    /// Records the number of transactions of a block, if the result is one.
    pub(super) fn record_block_transactions(&self, wanted: &FillCall, result: &[u8]) {
        if let Some(size) = block_transaction_count(wanted.prospect.call_method_row(), result) {
            let within = truncated_blake3(self.scope.vary_key_bytes());
            self.shared
                .block_sizes
                .record_transaction_count(&within, size);
        }
    }

    /// Whether the result has fewer transactions than the block that was seen before.
    pub(super) fn is_missing_transactions(&self, wanted: &FillCall, result: &[u8]) -> bool {
        let method = wanted.prospect.call_method_row();
        let Some(block) = block_counted_by_result(method, wanted.params.as_deref(), result) else {
            return false;
        };
        let within = truncated_blake3(self.scope.vary_key_bytes());
        let known = self.shared.block_sizes.transaction_count(&within, block);
        known.is_some_and(|known| shows_fewer_transactions(method, result, known))
    }
}
