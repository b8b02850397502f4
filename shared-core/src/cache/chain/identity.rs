//! Identity of a chain.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The chain id and the first block of a chain, which together identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ChainIdentity {
    /// Chain id of EIP-155; `None` if the node's API has none.
    pub chain_id: Option<u64>,
    /// Hash of the first block (Beacon API: `genesis_validators_root`).
    pub genesis: [u8; 32],
}
impl ChainIdentity {
    /// Whether both identities may be of one chain: equal genesis, and no two different chain ids.
    pub fn matches_identity(&self, other: &Self) -> bool {
        let ids = self.chain_id.zip(other.chain_id);
        self.genesis == other.genesis && ids.is_none_or(|(one, other)| one == other)
    }
}

impl fmt::Display for ChainIdentity {
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
