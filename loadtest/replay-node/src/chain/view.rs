//! A node's view of the chain: the whole chain, or the part that a lagging node knows.

use serde_json::Value;

use crate::rpc::RpcError;
use crate::sample::chain::GeneratedBlock;
use crate::sample::values::Word;

use super::contents::{self, ExecutionBlockGenerator};
use super::model::{self, BlockIndex, FinalityNumbers, SimulatedChain};
use super::params::ParsedBlockParam;

/// The block to which a call's param resolves: a created one, or the pending one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedBlock {
    Block(BlockIndex),
    Pending,
}

/// The part of the simulated chain that a node knows: all of it, or less if the node lags.
#[derive(Debug)]
pub struct SimulatedNodeView<'a> {
    pub chain: &'a SimulatedChain,
    pub contents: &'a ExecutionBlockGenerator,
    /// Newest canonical block.
    pub head_block: BlockIndex,
    /// Newest block that the node knows, canonical or not.
    newest: BlockIndex,
    /// Finality, unless the chain has none.
    pub finality_for_tag: Option<FinalityNumbers>,
    pub syncing: bool,
}

impl<'a> SimulatedNodeView<'a> {
    /// Creates the view of a node whose head is `lag` blocks behind. It contains no block that
    /// was created after its head, and the finality of that time.
    pub fn new(
        chain: &'a SimulatedChain,
        contents: &'a ExecutionBlockGenerator,
        lag: u64,
        finality: bool,
        syncing: bool,
    ) -> Self {
        let number = chain.head_number().saturating_sub(lag);
        let (head, newest, known) = match lag {
            0 => (
                chain.head_index(),
                chain.block_count(),
                chain.finality_numbers(),
            ),
            _ => {
                let head = chain.canonical_at_number(number).unwrap_or_default();
                (head, head, chain.finality_at_head(number))
            }
        };
        Self {
            chain,
            contents,
            head_block: head,
            newest,
            finality_for_tag: finality.then_some(known),
            syncing,
        }
    }

    pub fn head_block(&self) -> &'a model::SimulatedBlock {
        self.chain.block_by_index(self.head_block)
    }

    /// Returns the canonical block at this height; `None` above the head of the view.
    pub fn canonical_at_number(&self, number: u64) -> Option<BlockIndex> {
        let number = Some(number).filter(|number| *number <= self.head_block().number);
        self.chain.canonical_at_number(number?)
    }

    pub fn is_canonical(&self, index: BlockIndex) -> bool {
        self.canonical_at_number(self.chain.block_by_index(index).number) == Some(index)
    }

    /// Returns a block with this hash that the node knows, canonical or not.
    pub fn by_hash(&self, hash: &Word) -> Option<BlockIndex> {
        self.chain
            .by_hash(hash)
            .filter(|index| *index <= self.newest)
    }

    /// Returns a block with this beacon root that the node knows, canonical or not.
    pub fn by_root(&self, root: &Word) -> Option<BlockIndex> {
        self.chain
            .by_root(root)
            .filter(|index| *index <= self.newest)
    }

    /// Returns the canonical block of a transaction, and the index in it; `None` if it is in none.
    pub fn canonical_transaction_position(
        &self,
        transaction: &Word,
    ) -> Option<(BlockIndex, usize)> {
        let mut places = self
            .chain
            .positions_of_transaction(transaction)
            .iter()
            .copied();
        places.find(|(block, _)| self.is_canonical(*block))
    }

    /// Resolves a block param, to `None` if there is no such block; a hash that has to be canonical
    /// and is not, and a tag without meaning here, are errors.
    pub fn resolve_block(
        &self,
        reference: ParsedBlockParam,
    ) -> Result<Option<ResolvedBlock>, RpcError> {
        let found = match reference {
            ParsedBlockParam::Number(number) => self.canonical_at_number(number),
            ParsedBlockParam::Earliest => self.canonical_at_number(0),
            ParsedBlockParam::Finalized => {
                self.canonical_at_number(self.finality_for_tag("finalized")?.finalized)
            }
            ParsedBlockParam::Safe => self.canonical_at_number(self.finality_for_tag("safe")?.safe),
            ParsedBlockParam::Latest => Some(self.head_block),
            ParsedBlockParam::Pending => return Ok(Some(ResolvedBlock::Pending)),
            ParsedBlockParam::Hash { hash, canonical } => {
                let found = self.by_hash(&hash);
                if canonical && found.is_some_and(|found| !self.is_canonical(found)) {
                    return Err(RpcError::server_error("hash is not currently canonical"));
                }
                found
            }
        };
        Ok(found.map(ResolvedBlock::Block))
    }

    /// Returns the finality, or an error that names `tag` if the chain has none.
    fn finality_for_tag(&self, tag: &str) -> Result<FinalityNumbers, RpcError> {
        self.finality_for_tag
            .ok_or_else(|| RpcError::server_error(&format!("{tag} block not found")))
    }

    /// Returns the hash from which the state after a block derives; an unknown block is an error.
    pub fn state_seed_hash(&self, reference: ParsedBlockParam) -> Result<Word, RpcError> {
        match self.resolve_block(reference)? {
            Some(ResolvedBlock::Block(index)) => Ok(self.chain.block_by_index(index).hash),
            Some(ResolvedBlock::Pending) => Ok(contents::pending_block_hash(self.head_block())),
            None => Err(RpcError::server_error(match reference {
                ParsedBlockParam::Hash { .. } => "header for hash not found",
                _ => "header not found",
            })),
        }
    }

    /// Generates a block with its transactions and receipts; the pending block contains the pool.
    pub fn generated_block_contents(&self, at: ResolvedBlock) -> GeneratedBlock {
        match at {
            ResolvedBlock::Block(index) => self
                .contents
                .block_with_receipts(self.chain, self.chain.block_by_index(index)),
            ResolvedBlock::Pending => self.contents.pending_block(self.chain, self.head_block()),
        }
    }

    /// Returns the hashes of a block's transactions; the pending block has all of the pool.
    pub fn block_transactions(&self, at: ResolvedBlock) -> &'a [Word] {
        match at {
            ResolvedBlock::Block(index) => &self.chain.block_by_index(index).transactions,
            ResolvedBlock::Pending => self.chain.pool_transactions(),
        }
    }

    /// Returns the header of a block in the format of `newHeads`.
    pub fn new_heads_header(&self, index: BlockIndex) -> Value {
        contents::new_heads_header(&self.generated_block_contents(ResolvedBlock::Block(index)))
    }
}
