//! Comparison of blocks with lists of their receipts.

use super::target::FillCall;
use super::Fill;
use crate::cache::vary_key::short_hash;
use crate::jsonrpc::plausible::{block_size, counted_block, shows_fewer};

impl Fill {
    /// Records the number of transactions of a block, if the result is one.
    pub(super) fn record_block_size(&self, wanted: &FillCall, result: &[u8]) {
        if let Some(size) = block_size(wanted.prospect.method(), result) {
            let within = short_hash(self.scope.encoding());
            self.shared.block_sizes.record(&within, size);
        }
    }

    /// Whether the result has fewer transactions than the block that was seen before.
    pub(super) fn is_missing_transactions(&self, wanted: &FillCall, result: &[u8]) -> bool {
        let method = wanted.prospect.method();
        let Some(block) = counted_block(method, wanted.params.as_deref(), result) else {
            return false;
        };
        let within = short_hash(self.scope.encoding());
        let known = self.shared.block_sizes.transactions(&within, block);
        known.is_some_and(|known| shows_fewer(method, result, known))
    }
}
