//! The chain model: its blocks, the canonical ones, the positions of transactions, and finality.
//!
//! Blocks are never removed, not even orphaned ones. A block's hash derives from the seed, its
//! parent and the number of blocks created before it, so that the same sequence of commands
//! results in the same chain, and two branches have only their re-included transactions in
//! common.

use std::collections::{HashMap, HashSet};

use crate::sample::values::Word;

use super::digest::derive_hash;

/// Slots of an epoch, and the number of slots after which an epoch becomes final.
pub const EPOCH_SLOTS: u64 = 32;
pub const FINALITY_DELAY: u64 = 2 * EPOCH_SLOTS;
/// Maximum number of transactions in the pool; the oldest ones are dropped.
const POOL_LIMIT: usize = 64;
/// Number of draws out of 256 that include a transaction of the pool in a block.
const POOL_INCLUSION_DRAWS: u8 = 96;

/// The index of a block among all blocks that a chain ever had.
pub type BlockIndex = usize;

/// The stored part of a block; [`ExecutionBlockGenerator`](super::contents::ExecutionBlockGenerator) derives the rest.
#[derive(Debug)]
pub struct SimulatedBlock {
    pub parent: Option<BlockIndex>,
    pub number: u64,
    pub slot: u64,
    pub hash: Word,
    /// Root of the beacon block that contains it.
    pub root: Word,
    pub transactions: Vec<Word>,
}

/// The numbers of the safe and the finalized block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinalityNumbers {
    pub safe: u64,
    pub finalized: u64,
}

/// Returns the root of the beacon state after the block with this hash.
pub fn beacon_state_root(hash: &Word) -> Word {
    derive_hash("beacon state", &[&hash.0])
}

/// The parameters from which a simulated chain is created.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedChainParameters {
    pub seed: u64,
    pub chain_id: u64,
    /// Start of slot 0, in Unix seconds.
    pub time: u64,
    /// Number of the first head.
    pub length: u64,
    /// Maximum number of fresh transactions of a block.
    pub transactions: u64,
}

/// The reason why a change of the chain is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulatedChainChangeError {
    #[error("{requested} blocks back from block {head} is before the genesis")]
    TooDeep { requested: u64, head: u64 },
    #[error("a reorg requires a new branch of 1 or more blocks; use rollback for none")]
    NoBranch,
    #[error("block {requested} is above the head, {head}")]
    AboveHead { requested: u64, head: u64 },
    #[error("block {requested} is not above the finalized block {finalized}; use unfinalize")]
    NotAboveFinalized { requested: u64, finalized: u64 },
    #[error("block {requested} is not below the finalized block {finalized}; use finalize")]
    NotBelowFinalized { requested: u64, finalized: u64 },
    #[error("block {0} does not exist")]
    UnknownBlock(String),
}

/// The simulated chain: all blocks that it ever had, the canonical ones, and finality.
#[derive(Debug)]
pub struct SimulatedChain {
    pub genesis: SimulatedChainParameters,
    block_count: Vec<SimulatedBlock>,
    by_hash: HashMap<Word, BlockIndex>,
    by_root: HashMap<Word, BlockIndex>,
    /// Blocks, canonical or not, that contain each transaction, and its index there.
    transaction_positions: HashMap<Word, Vec<(BlockIndex, usize)>>,
    canonical_at_number: Vec<BlockIndex>,
    /// Pending transactions, the oldest first.
    pool_transactions: Vec<Word>,
    finality_numbers: FinalityNumbers,
    /// Finality of a node whose head has this number.
    finality_at: Vec<(u64, FinalityNumbers)>,
    /// Number of missed slots after the head.
    missed: u64,
}

impl SimulatedChain {
    /// Creates a chain of the length in `genesis`, final up to two epochs below its head.
    pub fn new(genesis: SimulatedChainParameters) -> Self {
        let length = genesis.length;
        let mut chain = Self {
            genesis,
            block_count: Vec::new(),
            by_hash: HashMap::new(),
            by_root: HashMap::new(),
            transaction_positions: HashMap::new(),
            canonical_at_number: Vec::new(),
            pool_transactions: Vec::new(),
            finality_numbers: FinalityNumbers::default(),
            finality_at: vec![(0, FinalityNumbers::default())],
            missed: 0,
        };
        chain.add_block(Vec::new());
        for _ in 0..length {
            chain.add_block(Vec::new());
            chain.update_finality_by_slots();
        }
        chain
    }

    /// Returns a block by an index that the chain has returned.
    pub fn block_by_index(&self, index: BlockIndex) -> &SimulatedBlock {
        &self.block_count[index]
    }

    pub fn block_count(&self) -> usize {
        self.block_count.len()
    }

    pub fn head_index(&self) -> BlockIndex {
        // The genesis is never removed.
        self.canonical_at_number[self.canonical_at_number.len() - 1]
    }

    pub fn head_number(&self) -> u64 {
        self.canonical_at_number.len() as u64 - 1
    }

    /// Returns the current slot: the head's slot plus the missed ones.
    pub fn simulated_current_slot(&self) -> u64 {
        self.block_by_index(self.head_index()).slot + self.missed
    }

    pub fn canonical_at_number(&self, number: u64) -> Option<BlockIndex> {
        let number = usize::try_from(number).ok()?;
        self.canonical_at_number.get(number).copied()
    }

    pub fn by_hash(&self, hash: &Word) -> Option<BlockIndex> {
        self.by_hash.get(hash).copied()
    }

    /// Returns a block by the root of its beacon block or of the state after it.
    pub fn by_root(&self, root: &Word) -> Option<BlockIndex> {
        self.by_root.get(root).copied()
    }

    /// Returns every block that ever contained a transaction, and its index there.
    pub fn positions_of_transaction(&self, transaction: &Word) -> &[(BlockIndex, usize)] {
        self.transaction_positions
            .get(transaction)
            .map_or(&[], Vec::as_slice)
    }

    pub fn pool_transactions(&self) -> &[Word] {
        &self.pool_transactions
    }

    pub fn finality_numbers(&self) -> FinalityNumbers {
        self.finality_numbers
    }

    /// Returns the finality that was known when the head had this number, for a lagging node.
    pub fn finality_at_head(&self, head: u64) -> FinalityNumbers {
        let known = self.finality_at.iter().rev().find(|(at, _)| *at <= head);
        known.map_or_else(FinalityNumbers::default, |(_, finality)| FinalityNumbers {
            safe: finality.safe.min(head),
            finalized: finality.finalized.min(head),
        })
    }

    /// Returns the last common block of two branches.
    pub fn common_ancestor(&self, mut one: BlockIndex, mut other: BlockIndex) -> BlockIndex {
        while one != other {
            // A parent has a lower index than its children.
            let later = if one > other { &mut one } else { &mut other };
            *later = self.block_count[*later].parent.unwrap_or_default();
        }
        one
    }

    /// Returns the blocks above `ancestor` up to `head`, the lowest first.
    pub fn branch_blocks(&self, ancestor: BlockIndex, head: BlockIndex) -> Vec<BlockIndex> {
        let mut branch = Vec::new();
        let mut at = Some(head);
        while let Some(index) = at.filter(|index| *index != ancestor) {
            branch.push(index);
            at = self.block_count[index].parent;
        }
        branch.reverse();
        branch
    }

    /// Adds blocks on top of the head.
    pub fn add_blocks(&mut self, blocks: u64) {
        for _ in 0..blocks {
            self.add_block(Vec::new());
        }
    }

    /// Lets slots pass without a block.
    pub fn miss_slots(&mut self, slots: u64) {
        self.missed += slots;
    }

    /// Replaces the last `depth` blocks by `length` others. The orphaned transactions are, in
    /// turn, included again, returned to the pool, or dropped.
    pub fn reorg_blocks(
        &mut self,
        depth: u64,
        length: u64,
    ) -> Result<(), SimulatedChainChangeError> {
        if length == 0 {
            return Err(SimulatedChainChangeError::NoBranch);
        }
        let orphaned = self.remove_last_blocks(depth)?;
        let mut again = vec![Vec::new(); usize::try_from(length).unwrap_or(1)];
        let mut waiting = Vec::new();
        let branch = again.len();
        for (turn, transaction) in orphaned.into_iter().enumerate() {
            match turn % 3 {
                0 => again[turn / 3 % branch].push(transaction),
                1 => waiting.push(transaction),
                _ => (),
            }
        }
        for mut transactions in again {
            transactions.reverse();
            self.add_block(transactions);
        }
        self.return_to_pool(waiting);
        self.limit_finality_to_head();
        Ok(())
    }

    /// Removes `depth` blocks from the head, as `debug_setHead` does, except that the blocks are
    /// still found by hash. Every other transaction returns to the pool, the rest are dropped.
    pub fn rollback_blocks(&mut self, depth: u64) -> Result<(), SimulatedChainChangeError> {
        let orphaned = self.remove_last_blocks(depth)?;
        self.return_to_pool(orphaned.into_iter().step_by(2));
        self.limit_finality_to_head();
        Ok(())
    }

    /// Makes an existing block the head: one of a former branch, or an ancestor. Every other
    /// orphaned transaction returns to the pool, the rest are dropped.
    pub fn adopt_existing_head(&mut self, hash: &Word) -> Result<(), SimulatedChainChangeError> {
        let unknown = || SimulatedChainChangeError::UnknownBlock(hash.to_string());
        let head = self.by_hash(hash).ok_or_else(unknown)?;
        let ancestor = self.common_ancestor(self.head_index(), head);
        let orphaned =
            self.remove_last_blocks(self.head_number() - self.block_by_index(ancestor).number)?;
        let branch = self.branch_blocks(ancestor, head);
        let mut included = HashSet::new();
        for index in &branch {
            included.extend(self.block_count[*index].transactions.iter().copied());
        }
        self.canonical_at_number.extend(branch);
        self.pool_transactions
            .retain(|waiting| !included.contains(waiting));
        let waiting = orphaned.into_iter().filter(|tx| !included.contains(tx));
        self.return_to_pool(waiting.step_by(2));
        self.limit_finality_to_head();
        Ok(())
    }

    /// Makes the block `number` final, or the one 32 below the head; the block half way to the
    /// head becomes safe.
    pub fn finalize_block(&mut self, number: Option<u64>) -> Result<(), SimulatedChainChangeError> {
        let head = self.head_number();
        let finalized = self.finality_numbers.finalized;
        let requested = number.unwrap_or_else(|| head.saturating_sub(EPOCH_SLOTS).max(finalized));
        if requested > head {
            return Err(SimulatedChainChangeError::AboveHead { requested, head });
        }
        if requested < finalized {
            return Err(SimulatedChainChangeError::NotAboveFinalized {
                requested,
                finalized,
            });
        }
        self.set_finality(requested);
        Ok(())
    }

    /// Moves finality back to block `number`.
    pub fn move_finality_back(&mut self, number: u64) -> Result<(), SimulatedChainChangeError> {
        let finalized = self.finality_numbers.finalized;
        if number >= finalized {
            let requested = number;
            return Err(SimulatedChainChangeError::NotBelowFinalized {
                requested,
                finalized,
            });
        }
        self.set_finality(number);
        Ok(())
    }

    /// Updates finality by slots: with each epoch that begins, the epoch two before becomes
    /// final, and the one before it safe.
    pub fn update_finality_by_slots(&mut self) {
        let epoch_start = self.simulated_current_slot() / EPOCH_SLOTS * EPOCH_SLOTS;
        let at = |delay| self.number_at_slot(epoch_start.saturating_sub(delay));
        let finality = FinalityNumbers {
            safe: at(EPOCH_SLOTS),
            finalized: at(FINALITY_DELAY),
        };
        if finality.finalized > self.finality_numbers.finalized
            || finality.safe > self.finality_numbers.safe
        {
            self.finality_numbers = FinalityNumbers {
                safe: finality.safe.max(self.finality_numbers.safe),
                finalized: finality.finalized.max(self.finality_numbers.finalized),
            };
            self.record_finality();
        }
    }

    /// Returns the number of the last canonical block at or before a slot.
    fn number_at_slot(&self, slot: u64) -> u64 {
        let above = self
            .canonical_at_number
            .partition_point(|index| self.block_count[*index].slot <= slot);
        above.saturating_sub(1) as u64
    }

    /// Returns the canonical block in exactly this slot.
    pub fn block_at_slot(&self, slot: u64) -> Option<BlockIndex> {
        let index = self.canonical_at_number(self.number_at_slot(slot))?;
        (self.block_by_index(index).slot == slot).then_some(index)
    }

    fn set_finality(&mut self, finalized: u64) {
        self.finality_numbers = FinalityNumbers {
            safe: finalized.midpoint(self.head_number()),
            finalized,
        };
        self.record_finality();
    }

    /// Limits the safe and the finalized block to the head.
    fn limit_finality_to_head(&mut self) {
        let head = self.head_number();
        let settled = FinalityNumbers {
            safe: self.finality_numbers.safe.min(head),
            finalized: self.finality_numbers.finalized.min(head),
        };
        let outdated = self.finality_at.last().is_some_and(|(at, _)| *at > head);
        if settled != self.finality_numbers || outdated {
            self.finality_numbers = settled;
            self.record_finality();
        }
    }

    fn record_finality(&mut self) {
        let head = self.head_number();
        while self.finality_at.last().is_some_and(|(at, _)| *at >= head) {
            self.finality_at.pop();
        }
        self.finality_at.push((head, self.finality_numbers));
    }

    /// Removes the last `depth` blocks; returns their transactions in order.
    fn remove_last_blocks(&mut self, depth: u64) -> Result<Vec<Word>, SimulatedChainChangeError> {
        let head = self.head_number();
        if depth > head {
            return Err(SimulatedChainChangeError::TooDeep {
                requested: depth,
                head,
            });
        }
        let remaining = self.canonical_at_number.len() - usize::try_from(depth).unwrap_or_default();
        let orphans = self.canonical_at_number.split_off(remaining);
        self.missed = 0;
        let transactions = orphans
            .iter()
            .map(|index| &self.block_count[*index].transactions);
        Ok(transactions.flatten().copied().collect())
    }

    fn return_to_pool(&mut self, transactions: impl IntoIterator<Item = Word>) {
        self.pool_transactions.extend(transactions);
        let excess = self.pool_transactions.len().saturating_sub(POOL_LIMIT);
        self.pool_transactions.drain(..excess);
    }

    /// Adds one block on top of the head; `again` follows its fresh transactions.
    fn add_block(&mut self, again: Vec<Word>) {
        let index = self.block_count.len();
        let parent = self.canonical_at_number.last().copied();
        let (number, slot, parent_hash) = match parent.map(|parent| &self.block_count[parent]) {
            Some(parent) => (
                parent.number + 1,
                parent.slot + 1 + self.missed,
                parent.hash,
            ),
            None => (0, 0, Word::default()),
        };
        self.missed = 0;
        let hash = derive_hash(
            "block",
            &[
                &self.genesis.seed.to_be_bytes(),
                &self.genesis.chain_id.to_be_bytes(),
                &parent_hash.0,
                &(index as u64).to_be_bytes(),
            ],
        );
        let mut transactions = self.fresh_transactions(number, &hash);
        transactions.extend(again);
        for waiting in std::mem::take(&mut self.pool_transactions) {
            if number > 0
                && derive_hash("included", &[&hash.0, &waiting.0]).0[0] < POOL_INCLUSION_DRAWS
            {
                transactions.push(waiting);
            } else {
                self.pool_transactions.push(waiting);
            }
        }
        if number > 0 {
            self.return_to_pool([derive_hash("waiting", &[&hash.0])]);
        }
        for (at, transaction) in transactions.iter().enumerate() {
            self.transaction_positions
                .entry(*transaction)
                .or_default()
                .push((index, at));
        }
        let root = derive_hash("beacon block", &[&hash.0]);
        self.by_hash.insert(hash, index);
        self.by_root.insert(root, index);
        self.by_root.insert(beacon_state_root(&hash), index);
        self.canonical_at_number.push(index);
        self.block_count.push(SimulatedBlock {
            parent,
            number,
            slot,
            hash,
            root,
            transactions,
        });
    }

    /// Returns a block's own transactions; some blocks have none.
    fn fresh_transactions(&self, number: u64, hash: &Word) -> Vec<Word> {
        let most = self.genesis.transactions;
        let least = most.div_ceil(4);
        let draw = u64::from(u16::from_be_bytes([hash.0[0], hash.0[1]]));
        let count = match (number, hash.0[2] % 32) {
            (0, _) | (_, 0) => 0,
            _ => least + draw % (most - least + 1),
        };
        let transaction = |at: u64| derive_hash("transaction", &[&hash.0, &at.to_be_bytes()]);
        (0..count).map(transaction).collect()
    }
}
