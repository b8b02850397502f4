//! Whether this is the chain that it was.

use std::fmt;

/// Of a block: whatever tells it from all others.
pub type Hash = [u8; 32];

/// What tells a chain from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
