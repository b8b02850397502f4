//! Transaction counts of the blocks that were seen; lists of receipts are compared with them.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::cache::CacheNamespace;
use crate::jsonrpc::plausible::{BlockHashOrNumber, BlockTransactionCount};
use crate::lock::lock_ignoring_poison;

/// Maximum number of blocks; the table takes 80 KiB.
const MAX_RECORDED_BLOCKS: usize = 1024;

/// A bounded table of the transaction counts of the blocks that responses have shown, by namespace
/// and block. Any number of threads may use it.
#[derive(Debug, Default)]
pub struct BlockTransactionCounts(Mutex<VecDeque<(CacheNamespace, BlockTransactionCount)>>);

impl BlockTransactionCounts {
    /// Records the transaction count of a block in a namespace. If it was recorded before, the
    /// larger size is kept.
    pub fn record_transaction_count(
        &self,
        namespace: &CacheNamespace,
        size: BlockTransactionCount,
    ) {
        let mut blocks = lock_ignoring_poison(&self.0);
        let is_it = |known: &&mut (CacheNamespace, BlockTransactionCount)| {
            (&known.0, &known.1.hash) == (namespace, &size.hash)
        };
        if let Some((_, known)) = blocks.iter_mut().rfind(is_it) {
            known.transactions = known.transactions.max(size.transactions);
            return;
        }
        if blocks.len() >= MAX_RECORDED_BLOCKS {
            blocks.pop_front();
        }
        if blocks.try_reserve(1).is_ok() {
            blocks.push_back((*namespace, size));
        }
    }

    /// Returns the transaction count of a block in a namespace, or `None` if it was not recorded or
    /// has been dropped. Of several blocks with one number the latest one counts.
    pub fn transaction_count(
        &self,
        namespace: &CacheNamespace,
        block: BlockHashOrNumber,
    ) -> Option<u64> {
        let blocks = lock_ignoring_poison(&self.0);
        let is_it = |known: &&(CacheNamespace, BlockTransactionCount)| {
            known.0 == *namespace
                && match block {
                    BlockHashOrNumber::Hash(hash) => known.1.hash == hash,
                    BlockHashOrNumber::Number(number) => known.1.number == number,
                }
        };
        let found = blocks.iter().rfind(is_it);
        found.map(|(_, size)| size.transactions)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BlockHashOrNumber, BlockTransactionCount, BlockTransactionCounts, MAX_RECORDED_BLOCKS,
    };

    const MAIN: [u8; 16] = [1; 16];
    const OTHER: [u8; 16] = [2; 16];

    fn size(number: u64, hash: u64, transactions: u64) -> BlockTransactionCount {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&hash.to_le_bytes());
        BlockTransactionCount {
            number,
            hash: bytes,
            transactions,
        }
    }

    #[test]
    fn block_is_found_by_hash_and_by_number_in_its_namespace() {
        let sizes = BlockTransactionCounts::default();
        sizes.record_transaction_count(&MAIN, size(7, 1, 3));
        sizes.record_transaction_count(&MAIN, size(7, 2, 5));
        sizes.record_transaction_count(&MAIN, size(7, 2, 4));
        let of = |namespace, block| sizes.transaction_count(&namespace, block);
        assert_eq!(
            of(MAIN, BlockHashOrNumber::Hash(size(0, 1, 0).hash)),
            Some(3)
        );
        assert_eq!(
            of(MAIN, BlockHashOrNumber::Hash(size(0, 2, 0).hash)),
            Some(5)
        );
        assert_eq!(of(MAIN, BlockHashOrNumber::Number(7)), Some(5));
        assert_eq!(of(MAIN, BlockHashOrNumber::Number(8)), None);
        assert_eq!(of(OTHER, BlockHashOrNumber::Number(7)), None);
    }

    #[test]
    fn oldest_block_is_forgotten() {
        let sizes = BlockTransactionCounts::default();
        for number in 0..=MAX_RECORDED_BLOCKS as u64 {
            sizes.record_transaction_count(&MAIN, size(number, number, 1));
        }
        assert_eq!(
            sizes.transaction_count(&MAIN, BlockHashOrNumber::Number(0)),
            None
        );
        assert_eq!(
            sizes.transaction_count(&MAIN, BlockHashOrNumber::Number(1)),
            Some(1)
        );
    }
}
