//! What the owner has to know of an entry that it can't read, and which
//! entries a purge is about.

use crate::cache::chain::{Chains, Stamp};
use crate::cache::{freshness, Key};

/// The first half of the BLAKE3 hash of what a namespace is made of.
pub type Namespace = [u8; 16];

/// How long an entry may live, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It never changes.
    Immutable,
    /// It may change until its block is final: memory only.
    Unfinalized,
    /// It changes with the head of the chain: memory only.
    Tip,
    /// It changes when the node is upgraded: memory only.
    Config,
    /// It says its own lifetime (RFC 9111).
    Resource,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Immutable,
        Self::Unfinalized,
        Self::Tip,
        Self::Resource,
        Self::Config,
    ];

    /// The name that the protocol uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Immutable => "immutable",
            Self::Unfinalized => "unfinalized",
            Self::Tip => "tip",
            Self::Config => "config",
            Self::Resource => "resource",
        }
    }

    /// The class of that name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|class| class.name().as_bytes() == name)
    }

    /// Whether it may lie on disk. What is not final yet does not, so that a
    /// reorganisation of the chain needs no deletes there.
    pub const fn may_be_stored(self) -> bool {
        matches!(self, Self::Immutable | Self::Resource)
    }
}

/// What the owner knows of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// How long it may live, and where.
    pub class: Class,
    /// Whose answers it is among.
    pub namespace: Namespace,
    /// The JSON-RPC method; `None` for other requests.
    pub method: Option<Box<str>>,
    /// The number of the block that it belongs to.
    pub block: Option<u64>,
    /// How many purges there had been when the node was asked.
    pub generation: u64,
    /// The reorganisations of its chain that were known then
    /// ([`State::epoch`](crate::cache::chain::State::epoch)); 0: none, or what
    /// lies on disk.
    pub epoch: u64,
    /// The highest block that it depends on, or the head that it tells of.
    pub height: Option<u64>,
}

impl About {
    /// What an entry of its kind has to hold against its chain, if that is one
    /// of `chains`.
    pub fn stamp(&self, chains: &Chains) -> Option<Stamp> {
        let class = match self.class {
            Class::Immutable => Some(freshness::Class::Immutable),
            Class::Unfinalized => Some(freshness::Class::Unfinalized),
            Class::Tip => Some(freshness::Class::Tip),
            Class::Config => Some(freshness::Class::Config),
            Class::Resource => None,
        };
        let chain = chains.get(&self.namespace)?;
        Some(Stamp::new(chain, class, self.epoch, self.height))
    }
}

/// Which entries a purge removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All.
    Everything,
    /// A namespace's.
    Namespace(Namespace),
    /// A method's, in one namespace or in all.
    Method {
        /// `None`: in all.
        namespace: Option<Namespace>,
        /// As requests spell it.
        method: Box<str>,
    },
    /// Those of a namespace that belong to one of these blocks, or to none that
    /// is known: an answer about many blocks does not name them.
    Blocks {
        /// Whose.
        namespace: Namespace,
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// One.
    Key(Key),
}

impl Scope {
    /// Whether an entry is among them.
    pub fn covers(&self, key: &Key, about: &About) -> bool {
        match self {
            Self::Everything => true,
            Self::Namespace(namespace) => about.namespace == *namespace,
            Self::Method { namespace, method } => {
                about.method.as_ref() == Some(method)
                    && namespace.is_none_or(|namespace| about.namespace == namespace)
            }
            Self::Blocks {
                namespace,
                from,
                to,
            } => {
                about.namespace == *namespace
                    && about
                        .block
                        .is_none_or(|block| (*from..=*to).contains(&block))
            }
            Self::Key(purged) => key == purged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About {
            class: Class::Immutable,
            namespace: [1; 16],
            method: Some("eth_call".into()),
            block: Some(10),
            generation: 0,
            epoch: 0,
            height: None,
        }
    }

    #[test]
    fn a_scope_covers_what_it_says_and_nothing_else() {
        let key = [7; 32];
        let method = |namespace, method: &str| Scope::Method {
            namespace,
            method: method.into(),
        };
        let blocks = |namespace, from, to| Scope::Blocks {
            namespace,
            from,
            to,
        };
        for (scope, covers) in [
            (Scope::Everything, true),
            (Scope::Namespace([1; 16]), true),
            (Scope::Namespace([2; 16]), false),
            (method(None, "eth_call"), true),
            (method(None, "eth_calls"), false),
            (method(Some([1; 16]), "eth_call"), true),
            (method(Some([2; 16]), "eth_call"), false),
            (blocks([1; 16], 10, 10), true),
            (blocks([1; 16], 0, 9), false),
            (blocks([1; 16], 11, u64::MAX), false),
            (blocks([2; 16], 0, u64::MAX), false),
            (Scope::Key(key), true),
            (Scope::Key([8; 32]), false),
        ] {
            assert_eq!(scope.covers(&key, &about()), covers, "{scope:?}");
        }
        let page = About {
            method: None,
            block: None,
            ..about()
        };
        assert!(!method(None, "eth_call").covers(&key, &page));
        assert!(blocks([1; 16], 5, 5).covers(&key, &page));
        assert!(!blocks([2; 16], 5, 5).covers(&key, &page));
    }
}
