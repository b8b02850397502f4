//! What has to be known of an entry by those who don't read it: the owner, the
//! store and the link between them; and which entries a purge is about.

use serde::{Deserialize, Serialize};

use super::Entry;
use crate::cache::class::Class;
use crate::cache::resource::other_form;
use crate::cache::{Key, Namespace};

/// The longest name of a method, in bytes.
pub const MAX_METHOD: usize = 255;

/// What an entry is, by its class, its place and its time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
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
    /// ([`State::epoch`](crate::cache::chain::State::epoch)); 0: none, or what lies on
    /// disk.
    pub epoch: u64,
    /// The highest block that it depends on, or the head that it tells of.
    pub height: Option<u64>,
}

impl About {
    /// Of an entry that a process has made. `None`: its method is one that
    /// nobody is told of, since it would not be a word.
    pub fn of(
        entry: &Entry,
        namespace: Namespace,
        method: Option<&[u8]>,
        generation: u64,
    ) -> Option<Self> {
        let meta = entry.meta();
        let method = match method {
            Some(method) if !method.iter().all(u8::is_ascii_graphic) => return None,
            Some(method) => Some(std::str::from_utf8(method).ok()?.into()),
            None => None,
        };
        Some(Self {
            class: match meta.class {
                // it ends as that does
                Class::Nothing => Class::Tip,
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

/// Which entries a purge removes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
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
    /// One, and the same resource in its [other format](other_form).
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
            Self::Key(purged) => key == purged || other_form(key) == *purged,
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
            ..About::default()
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
            (Scope::Key(other_form(&key)), true),
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
