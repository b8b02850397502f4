//! Store attributes: the properties of an entry that the owner, the store and the link need without
//! parsing the entry; and purge scopes.

use serde::{Deserialize, Serialize};

use super::CacheEntry;
use crate::cache::class::LifetimeClass;
use crate::cache::resource::other_format_key;
use crate::cache::{CacheKey, CacheNamespace};

/// Maximum length of a method name in bytes.
pub const MAX_METHOD_LENGTH: usize = 255;

/// The properties of an entry that the owner and the store read, as they do not parse its bytes:
/// class, namespace, method, block, generation and epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct StoredEntryAttributes {
    /// Class, which limits the lifetime and decides whether the entry may be on disk.
    pub class: LifetimeClass,
    /// Namespace of the entry.
    pub namespace: CacheNamespace,
    /// JSON-RPC method; `None` for other requests.
    pub method: Option<Box<str>>,
    /// Number of the block to which the entry belongs.
    pub block: Option<u64>,
    /// Purge generation when the request was sent to the node.
    pub generation: u64,
    /// Epoch of the chain at that time ([`State::epoch`](crate::cache::chain::ChainState::epoch));
    /// 0 if the chain is not followed, or for entries on disk.
    pub epoch: u64,
    /// The highest block on which the entry depends, or the head that it reports.
    pub height: Option<u64>,
}

impl StoredEntryAttributes {
    /// Returns the attributes with which a process sends an entry to the owner. Returns `None` if
    /// the owner protocol can't carry the method name, as it has spaces or is not printable ASCII.
    pub fn attributes_for_entry(
        entry: &CacheEntry,
        namespace: CacheNamespace,
        method: Option<&[u8]>,
        generation: u64,
    ) -> Option<Self> {
        let meta = entry.response_metadata();
        let method = match method {
            Some(method) if !method.iter().all(u8::is_ascii_graphic) => return None,
            Some(method) => Some(std::str::from_utf8(method).ok()?.into()),
            None => None,
        };
        Some(Self {
            class: match meta.class {
                // an empty result expires as the tip does
                LifetimeClass::Nothing => LifetimeClass::Tip,
                class => class,
            },
            namespace,
            method,
            block: meta.block_number,
            generation,
            epoch: meta.follows.map_or(0, |(_, epoch)| epoch),
            height: meta.follows.and(meta.height),
        })
    }
}

/// The entries that a purge removes: all entries, or the entries of one namespace, method, range of
/// blocks or key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub enum PurgeScope {
    /// All entries.
    Everything,
    /// The entries of a namespace.
    Namespace(CacheNamespace),
    /// The entries of a method, in one namespace or in all.
    Method {
        /// Namespace; `None` for all.
        namespace: Option<CacheNamespace>,
        /// Method name as in requests.
        method: Box<str>,
    },
    /// The entries of a namespace that belong to a block of the range, or to no known block: a
    /// response about many blocks does not name them.
    Blocks {
        /// Namespace.
        namespace: CacheNamespace,
        /// First block.
        from: u64,
        /// Last block.
        to: u64,
    },
    /// One entry, and the same resource in its [other format](other_format_key).
    Key(CacheKey),
}

impl PurgeScope {
    /// Whether a purge of this scope removes the entry. Entries without a block are covered by all
    /// block ranges of their namespace, and a key covers both formats of a resource.
    pub fn covers_entry(&self, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
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
            Self::Key(purged) => key == purged || other_format_key(key) == *purged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> StoredEntryAttributes {
        StoredEntryAttributes {
            class: LifetimeClass::Immutable,
            namespace: [1; 16],
            method: Some("eth_call".into()),
            block: Some(10),
            ..StoredEntryAttributes::default()
        }
    }

    #[test]
    fn purge_scope_covers_only_its_own_entries() {
        let key = [7; 32];
        let method = |namespace, method: &str| PurgeScope::Method {
            namespace,
            method: method.into(),
        };
        let blocks = |namespace, from, to| PurgeScope::Blocks {
            namespace,
            from,
            to,
        };
        for (scope, covers) in [
            (PurgeScope::Everything, true),
            (PurgeScope::Namespace([1; 16]), true),
            (PurgeScope::Namespace([2; 16]), false),
            (method(None, "eth_call"), true),
            (method(None, "eth_calls"), false),
            (method(Some([1; 16]), "eth_call"), true),
            (method(Some([2; 16]), "eth_call"), false),
            (blocks([1; 16], 10, 10), true),
            (blocks([1; 16], 0, 9), false),
            (blocks([1; 16], 11, u64::MAX), false),
            (blocks([2; 16], 0, u64::MAX), false),
            (PurgeScope::Key(key), true),
            (PurgeScope::Key(other_format_key(&key)), true),
            (PurgeScope::Key([8; 32]), false),
        ] {
            assert_eq!(scope.covers_entry(&key, &about()), covers, "{scope:?}");
        }
        let page = StoredEntryAttributes {
            method: None,
            block: None,
            ..about()
        };
        assert!(!method(None, "eth_call").covers_entry(&key, &page));
        assert!(blocks([1; 16], 5, 5).covers_entry(&key, &page));
        assert!(!blocks([2; 16], 5, 5).covers_entry(&key, &page));
    }
}
