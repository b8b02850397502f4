//! Blocks and lists of receipts that are compared with each other.

use super::wanted::Wanted;
use super::Fill;
use crate::cache::scope::name_of;
use crate::jsonrpc::plausible::{block_size, counted_block, shows_fewer};

impl Fill {
    /// Remembers how many transactions a block has, if the result is one.
    pub(super) fn record_block_size(&self, wanted: &Wanted, result: &[u8]) {
        if let Some(size) = block_size(wanted.prospect.method(), result) {
            let within = name_of(self.scope.bytes());
            self.shared.block_sizes.record(&within, size);
        }
    }

    /// Whether the result counts fewer transactions than a block has that was seen.
    pub(super) fn lacks_transactions(&self, wanted: &Wanted, result: &[u8]) -> bool {
        let method = wanted.prospect.method();
        let Some(block) = counted_block(method, wanted.params.as_deref(), result) else {
            return false;
        };
        let within = name_of(self.scope.bytes());
        let known = self.shared.block_sizes.transactions(&within, block);
        known.is_some_and(|known| shows_fewer(method, result, known))
    }
}
