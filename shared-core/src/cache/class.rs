//! The classes of answers: why one may be kept, and where.

use serde::{Deserialize, Serialize};

named! {
    /// Why an answer may be kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
    Class
    /// It will never change: it hangs on a hash, or on the chain alone.
    Immutable "immutable",
    /// It hangs on a block's number and may change until that block is final.
    Unfinalized "unfinalized",
    /// It hangs on the head of the chain and changes with every block.
    Tip "tip",
    /// It says how the node is set up, and changes when that is upgraded.
    Config "config",
    /// There was nothing to keep: `null`, `[]` at the head, a call that
    /// reverted. Each block may change that.
    Nothing "nothing",
    /// It says its own lifetime (RFC 9111).
    #[default]
    Resource "resource",
}

impl Class {
    /// The class of that name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|class| class.name().as_bytes() == name)
    }

    /// Whether it may lie on disk. What is not final yet does not, so that a
    /// reorganisation of the chain needs no deletes there.
    pub const fn may_be_stored(self) -> bool {
        matches!(self, Self::Immutable | Self::Resource)
    }

    /// Milliseconds where nothing is configured. A slot is 12 s on mainnet and
    /// 2 s on most other chains: what may change is kept for less.
    pub(crate) const fn default_valid(self) -> u64 {
        match self {
            Class::Immutable => 3_600_000,
            Class::Unfinalized => 2_000,
            Class::Tip => 1_000,
            Class::Config => 60_000,
            Class::Nothing => 500,
            Class::Resource => 0,
        }
    }
}
