//! What is asked of a node, what it answers, and what is told.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cache::chain::Move;

/// Of a block: whatever tells it from all others.
pub type Hash = [u8; 32];

/// What tells a chain from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Identity {
    /// EIP-155's number; `None` where the node's API does not say.
    pub chain_id: Option<u64>,
    /// Of its first block (Beacon: `genesis_validators_root`).
    pub genesis: Hash,
}

impl Identity {
    /// Whether both may be of one chain.
    pub fn agrees(&self, other: &Self) -> bool {
        let ids = self.chain_id.zip(other.chain_id);
        self.genesis == other.genesis && ids.is_none_or(|(one, other)| one == other)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = self.chain_id {
            write!(f, "chain {id}, ")?;
        }
        f.write_str("genesis 0x")?;
        self.genesis
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What is to be known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its place in the chain (Beacon: its slot). A parent's is lower.
    pub number: u64,
    /// Which one it is.
    pub hash: Hash,
    /// The one that it follows.
    pub parent: Hash,
}

impl Block {
    /// What tells it from others.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            number: self.number,
            hash: self.hash,
        }
    }
}

/// A block that was taken for final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Mark {
    /// Its number.
    pub number: u64,
    /// Which one it was.
    pub hash: Hash,
}

/// What is known of a namespace's chain from before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Which chain it is; `None`: any.
    pub identity: Option<Identity>,
    /// The newest block that was taken for final.
    pub mark: Option<Mark>,
}

/// A question to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Its head: [`Answer::Block`].
    Latest,
    /// The newest block that it calls final: [`Answer::Block`].
    Finalized,
    /// Whether it is behind and knows it: [`Answer::Syncing`].
    Syncing,
    /// A block of any branch: [`Answer::Block`].
    ByHash(Hash),
    /// The block of its chain with exactly that number: [`Answer::Block`].
    ByNumber(u64),
    /// The same, asked last: whether it is still there.
    Again(u64),
    /// [`Answer::ChainId`].
    ChainId,
    /// [`Answer::Genesis`].
    Genesis,
}

/// What the node said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A block; `None`: it has none such.
    Block(Option<Block>),
    /// It is behind.
    Syncing(bool),
    /// `None`: its API does not say.
    ChainId(Option<u64>),
    /// What tells its first block from those of other chains.
    Genesis(Hash),
    /// An error, or nothing that can be understood. For people.
    Failed(String),
}

/// What the host is to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// To be told to the owner.
    Move(Move),
    /// To be recorded so that it lasts; no block is recorded as final then.
    KeepIdentity(Identity),
    /// To be recorded before the [`Move::Final`] that follows is told: an entry
    /// must not outlive what made it final. `None`: none is any more, which has
    /// to last, and must not come before the purge of what is
    /// [broken](Move::Broken).
    KeepMark(Option<Mark>),
    /// To be logged.
    Say {
        /// Somebody should look at it.
        is_error: bool,
        /// Without the name of the namespace.
        text: String,
    },
}

named! {
    /// How the following goes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    State
    /// The node has not answered yet.
    #[default]
    Starting "starting",
    /// All is well.
    Following "following",
    /// The node says that it is behind.
    Syncing "syncing",
    /// Its head went back, and may come again.
    Lagging "lagging",
    /// It has not answered for some time.
    Unreachable "unreachable",
    /// It has another chain than the one recorded.
    WrongChain "wrong-chain",
}
