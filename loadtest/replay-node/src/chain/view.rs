//! A node's view of the chain: the whole chain, or the part that a lagging node knows.

use serde_json::Value;

use crate::rpc::Failure;
use crate::sample::chain::Block;
use crate::sample::values::Word;

use super::contents::{self, Contents};
use super::model::{self, Chain, Finality, Index};
use super::params::Reference;

/// The block to which a call's reference resolves: a created one, or the pending one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedBlock {
    Block(Index),
    Pending,
}

/// The part of the chain that a node knows: the whole chain, or less if the node lags.
#[derive(Debug)]
pub struct View<'a> {
    pub chain: &'a Chain,
    pub contents: &'a Contents,
    /// Newest canonical block.
    pub head: Index,
    /// Newest block that the node knows, canonical or not.
    newest: Index,
    /// Finality, unless the chain has none.
    pub finality: Option<Finality>,
    pub syncing: bool,
}

impl<'a> View<'a> {
    /// Creates the view of a node whose head is `lag` blocks behind. It contains no block that
    /// was created after its head, and the finality of that time.
    pub fn new(
        chain: &'a Chain,
        contents: &'a Contents,
        lag: u64,
        finality: bool,
        syncing: bool,
    ) -> Self {
        let number = chain.head_number().saturating_sub(lag);
        let (head, newest, known) = match lag {
            0 => (chain.head(), chain.blocks(), chain.finality()),
            _ => {
                let head = chain.canonical(number).unwrap_or_default();
                (head, head, chain.finality_at(number))
            }
        };
        Self {
            chain,
            contents,
            head,
            newest,
            finality: finality.then_some(known),
            syncing,
        }
    }

    pub fn head(&self) -> &'a model::Block {
        self.chain.block(self.head)
    }

    pub fn canonical(&self, number: u64) -> Option<Index> {
        let number = Some(number).filter(|number| *number <= self.head().number);
        self.chain.canonical(number?)
    }

    pub fn is_canonical(&self, index: Index) -> bool {
        self.canonical(self.chain.block(index).number) == Some(index)
    }

    pub fn by_hash(&self, hash: &Word) -> Option<Index> {
        self.chain
            .by_hash(hash)
            .filter(|index| *index <= self.newest)
    }

    pub fn by_root(&self, root: &Word) -> Option<Index> {
        self.chain
            .by_root(root)
            .filter(|index| *index <= self.newest)
    }

    /// Returns the position of a transaction in the canonical chain.
    pub fn place(&self, transaction: &Word) -> Option<(Index, usize)> {
        let mut places = self.chain.places(transaction).iter().copied();
        places.find(|(block, _)| self.is_canonical(*block))
    }

    /// Returns the block of a reference, if it exists; a hash that has to be canonical and is
    /// not, and a tag without meaning here, are errors.
    pub fn find(&self, reference: Reference) -> Result<Option<ResolvedBlock>, Failure> {
        let found = match reference {
            Reference::Number(number) => self.canonical(number),
            Reference::Earliest => self.canonical(0),
            Reference::Finalized => self.canonical(self.finality("finalized")?.finalized),
            Reference::Safe => self.canonical(self.finality("safe")?.safe),
            Reference::Latest => Some(self.head),
            Reference::Pending => return Ok(Some(ResolvedBlock::Pending)),
            Reference::Hash { hash, canonical } => {
                let found = self.by_hash(&hash);
                if canonical && found.is_some_and(|found| !self.is_canonical(found)) {
                    return Err(Failure::server("hash is not currently canonical"));
                }
                found
            }
        };
        Ok(found.map(ResolvedBlock::Block))
    }

    fn finality(&self, tag: &str) -> Result<Finality, Failure> {
        self.finality
            .ok_or_else(|| Failure::server(&format!("{tag} block not found")))
    }

    /// Returns the hash from which the state after a block derives; an unknown block is an error.
    pub fn state(&self, reference: Reference) -> Result<Word, Failure> {
        match self.find(reference)? {
            Some(ResolvedBlock::Block(index)) => Ok(self.chain.block(index).hash),
            Some(ResolvedBlock::Pending) => Ok(contents::pending_hash(self.head())),
            None => Err(Failure::server(match reference {
                Reference::Hash { .. } => "header for hash not found",
                _ => "header not found",
            })),
        }
    }

    /// Returns a block's contents.
    pub fn block(&self, at: ResolvedBlock) -> Block {
        match at {
            ResolvedBlock::Block(index) => self.contents.block(self.chain, self.chain.block(index)),
            ResolvedBlock::Pending => self.contents.pending(self.chain, self.head()),
        }
    }

    /// Returns the transactions of a block.
    pub fn transactions(&self, at: ResolvedBlock) -> &'a [Word] {
        match at {
            ResolvedBlock::Block(index) => &self.chain.block(index).transactions,
            ResolvedBlock::Pending => self.chain.pool(),
        }
    }

    /// Returns the header of a block in the format of `newHeads`.
    pub fn header(&self, index: Index) -> Value {
        contents::header(&self.block(ResolvedBlock::Block(index)))
    }
}
