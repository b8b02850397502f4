//! Transaction counts of the blocks that were seen; lists of receipts are compared with them.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::cache::Namespace;
use crate::jsonrpc::plausible::{BlockName, BlockSize};
use crate::lock::locked;

/// Maximum number of blocks; the table takes 80 KiB.
const MOST: usize = 1024;

/// A bounded table of the transaction counts of the blocks that responses have shown, by namespace
/// and block. Any number of threads may use it.
#[derive(Debug, Default)]
pub struct BlockSizes(Mutex<VecDeque<(Namespace, BlockSize)>>);

impl BlockSizes {
    /// Records the transaction count of a block in a namespace. If it was recorded before, the
    /// larger size is kept.
    pub fn record(&self, namespace: &Namespace, size: BlockSize) {
        let mut blocks = locked(&self.0);
        let is_it = |known: &&mut (Namespace, BlockSize)| {
            (&known.0, &known.1.hash) == (namespace, &size.hash)
        };
        if let Some((_, known)) = blocks.iter_mut().rfind(is_it) {
            known.transactions = known.transactions.max(size.transactions);
            return;
        }
        if blocks.len() >= MOST {
            blocks.pop_front();
        }
        if blocks.try_reserve(1).is_ok() {
            blocks.push_back((*namespace, size));
        }
    }

    /// Returns the transaction count of a block in a namespace, or `None` if it was not recorded or
    /// has been dropped. Of several blocks with one number the latest one counts.
    pub fn transactions(&self, namespace: &Namespace, block: BlockName) -> Option<u64> {
        let blocks = locked(&self.0);
        let is_it = |known: &&(Namespace, BlockSize)| {
            known.0 == *namespace
                && match block {
                    BlockName::Hash(hash) => known.1.hash == hash,
                    BlockName::Number(number) => known.1.number == number,
                }
        };
        let found = blocks.iter().rfind(is_it);
        found.map(|(_, size)| size.transactions)
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockName, BlockSize, BlockSizes, MOST};

    const MAIN: [u8; 16] = [1; 16];
    const OTHER: [u8; 16] = [2; 16];

    fn size(number: u64, hash: u64, transactions: u64) -> BlockSize {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&hash.to_le_bytes());
        BlockSize {
            number,
            hash: bytes,
            transactions,
        }
    }

    #[test]
    fn block_is_found_by_hash_and_by_number_in_its_namespace() {
        let sizes = BlockSizes::default();
        sizes.record(&MAIN, size(7, 1, 3));
        sizes.record(&MAIN, size(7, 2, 5));
        sizes.record(&MAIN, size(7, 2, 4));
        let of = |namespace, block| sizes.transactions(&namespace, block);
        assert_eq!(of(MAIN, BlockName::Hash(size(0, 1, 0).hash)), Some(3));
        assert_eq!(of(MAIN, BlockName::Hash(size(0, 2, 0).hash)), Some(5));
        assert_eq!(of(MAIN, BlockName::Number(7)), Some(5));
        assert_eq!(of(MAIN, BlockName::Number(8)), None);
        assert_eq!(of(OTHER, BlockName::Number(7)), None);
    }

    #[test]
    fn oldest_block_is_forgotten() {
        let sizes = BlockSizes::default();
        for number in 0..=MOST as u64 {
            sizes.record(&MAIN, size(number, number, 1));
        }
        assert_eq!(sizes.transactions(&MAIN, BlockName::Number(0)), None);
        assert_eq!(sizes.transactions(&MAIN, BlockName::Number(1)), Some(1));
    }
}
