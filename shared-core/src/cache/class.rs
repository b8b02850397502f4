//! Classes of responses: the kind of dependency that limits the lifetime of an entry, and whether
//! it may be on disk.

use serde::{Deserialize, Serialize};

named_enum! {
    /// The kind of dependency that limits the lifetime of a response: a hash, a block number, the
    /// head, the node's configuration, or its own headers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
    LifetimeClass
    /// The response never changes: it depends on a hash, or on the chain alone.
    Immutable "immutable",
    /// The response depends on a block number, and may change until that block is finalized.
    Unfinalized "unfinalized",
    /// The response depends on the head of the chain, and changes with every block.
    Tip "tip",
    /// The response describes the node's configuration, and changes when the node is upgraded.
    Config "config",
    /// The result is empty: `null`, `[]` at the head, or a reverted call. Each block may change it.
    Nothing "nothing",
    /// The response specifies its own lifetime (RFC 9111).
    #[default]
    Resource "resource",
}

impl LifetimeClass {
    /// Returns the class that configurations and logs call `name`, or `None` if there is none.
    pub fn from_class_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|class| class.name().as_bytes() == name)
    }

    /// Whether entries of this class may be on disk. Entries that depend on unfinalized blocks may
    /// not, so that a reorganisation needs no deletes there.
    pub const fn is_storable_on_disk(self) -> bool {
        matches!(self, Self::Immutable | Self::Resource)
    }

    /// Default lifetime in milliseconds. A slot takes 12 s on mainnet and 2 s on most other chains;
    /// the lifetimes of responses that may change are shorter.
    pub(crate) const fn default_lifetime_ms(self) -> u64 {
        match self {
            LifetimeClass::Immutable => 3_600_000,
            LifetimeClass::Unfinalized => 2_000,
            LifetimeClass::Tip => 1_000,
            LifetimeClass::Config => 60_000,
            LifetimeClass::Nothing => 500,
            LifetimeClass::Resource => 0,
        }
    }
}
