//! Queries to a node, their results, and the steps of the tracker.

use serde::{Deserialize, Serialize};

use crate::cache::chain::ChainChange;
pub use crate::cache::chain::{BlockHash, ChainIdentity};

/// The number, hash, parent and time of a block of the node's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeBlock {
    /// Block number (Beacon API: slot). A parent has a lower one.
    pub number: u64,
    /// Hash of the block.
    pub hash: BlockHash,
    /// Hash of the parent.
    pub parent: BlockHash,
    /// Time of the block in Unix seconds; `None` if the node's API does not report it.
    pub timestamp: Option<u64>,
}

impl NodeBlock {
    /// Returns the number and hash of the block, as the tracker remembers it.
    pub(super) fn as_finality_mark(&self) -> FinalityMark {
        FinalityMark {
            number: self.number,
            hash: self.hash,
        }
    }
}

/// Returns the number and hash of a block that was considered final, recorded to be compared with
/// the node's chain after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct FinalityMark {
    /// Number of the block.
    pub number: u64,
    /// Hash of the block.
    pub hash: BlockHash,
}

/// The identity and the finality mark of a namespace's chain as the store has recorded them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainRecord {
    /// The chain identity; `None` if any chain is accepted.
    pub identity: Option<ChainIdentity>,
    /// The newest block that was considered final.
    pub mark: Option<FinalityMark>,
}

/// A query that the tracker needs the host to send to the followed node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeQuery {
    /// Query for the head: [`NodeResult::Block`].
    Latest,
    /// Query for the newest block that the node reports as final: [`NodeResult::Block`].
    Finalized,
    /// Query whether the node reports that it lags: [`NodeResult::Syncing`].
    Syncing,
    /// Query for a block of any branch: [`NodeResult::Block`].
    ByHash(BlockHash),
    /// Query for the block of the node's chain with exactly this number: [`NodeResult::Block`].
    ByNumber(u64),
    /// Query for the block with this number at the end of the poll, to check that it is still
    /// there: [`NodeResult::Block`].
    Recheck(u64),
    /// Query for the chain id: [`NodeResult::ChainId`].
    ChainId,
    /// Query for the first block: [`NodeResult::Genesis`].
    Genesis,
}

/// The node's result of a [`NodeQuery`], parsed by the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeResult {
    /// A block, or `None` if the node does not have it.
    Block(Option<NodeBlock>),
    /// Whether the node lags.
    Syncing(bool),
    /// Chain id; `None` if the node's API has none.
    ChainId(Option<u64>),
    /// Hash of the first block, or another value that identifies the chain.
    Genesis(BlockHash),
    /// An error, or a malformed response. The message is for operators.
    Failed(String),
}

/// An action that the tracker requires of the host; the host carries out all steps in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerAction {
    /// Report a change of the chain to the owner.
    ChainChange(ChainChange),
    /// Record the identity durably; no block is recorded as final then.
    RecordIdentity(ChainIdentity),
    /// Record the finality mark before the [`ChainChange::Final`] that follows is reported: an
    /// entry must not outlive the mark that made it final. `None`: no block is final any more,
    /// which must be recorded durably, and not before the purge of the
    /// [broken](ChainChange::FinalityReverted) blocks.
    RecordMark(Option<FinalityMark>),
    /// Write a log line.
    Log {
        /// Whether an operator should look at it.
        is_error: bool,
        /// The line without the name of the namespace.
        text: String,
    },
}

named_enum! {
    /// The condition of the followed node and its chain, as the status and the log report it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    State
    /// The node has not responded yet.
    #[default]
    Starting "starting",
    /// The chain is followed.
    Following "following",
    /// The node reports that it lags.
    Syncing "syncing",
    /// The node's head went back, and may return.
    Lagging "lagging",
    /// The node has not responded for some time.
    Unreachable "unreachable",
    /// The node has another chain than the recorded one.
    WrongChain "wrong-chain",
}
