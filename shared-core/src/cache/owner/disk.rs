//! What the owner needs of a store: of `cache::store` in a product, of a model
//! in tests.

use std::fmt;
use std::sync::Arc;

use super::now::Now;
use super::tracker::{Identity, Mark, Record};
use crate::bytes::copy_of;
use crate::cache::entry::about::{About, Scope};
pub use crate::cache::store::{Header, Status, StoreError, Waits};
use crate::cache::{Key, Namespace};

/// An entry as the store gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What was said of it.
    pub header: Header,
    /// Opaque.
    pub body: Body,
    /// It will be evicted soon: being asked for, it should be put again.
    pub is_old: bool,
}

/// An entry's bytes.
#[derive(Clone)]
pub enum Body {
    /// On their own.
    Owned(Vec<u8>),
    /// Where the store has them, which keeps them until then.
    Lent(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl Body {
    /// On their own from now on; as they were when memory is refused.
    #[must_use]
    pub fn into_owned(self) -> Self {
        match &self {
            Self::Owned(_) => self,
            Self::Lent(lent) => copy_of((**lent).as_ref()).map_or(self, Self::Owned),
        }
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Lent(lent) => (**lent).as_ref(),
        }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_lent = matches!(self, Self::Lent(_));
        f.debug_struct("Body")
            .field("length", &self.as_ref().len())
            .field("is_lent", &is_lent)
            .finish()
    }
}

/// A store. Every call may wait for a disk, unless it says that it never does.
pub trait Disk: Send + Sync {
    /// How many purges there have been. Never waits.
    fn generation(&self) -> u64;

    /// What is under `key`, fresh or not, unless it was purged. What can't be
    /// read isn't there.
    fn get(&self, key: &Key, now: Now) -> Option<Stored>;

    /// The same, if it can be told at once. Never waits.
    ///
    /// # Errors
    /// [`Waits`]: [`get`](Self::get) has to.
    fn get_ready(&self, key: &Key, now: Now) -> Result<Option<Stored>, Waits>;

    /// `false`: [`get`](Self::get) would find nothing. Never waits.
    fn may_have(&self, key: &Key) -> bool;

    /// Keeps an entry. It need not survive a crash.
    ///
    /// # Errors
    /// [`StoreError`].
    fn put(&self, key: &Key, header: &Header, body: &[u8]) -> Result<(), StoreError>;

    /// Removes entries: [`get`](Self::get) and [`refuses`](Self::refuses) know
    /// it afterwards, also after a crash or a power loss. Gives the new
    /// generation. A purge of a namespace, or of everything, takes what is
    /// [recorded](Self::chain) of its chain with it.
    ///
    /// # Errors
    /// [`StoreError`]: it holds in this process only, and is to be tried again.
    fn purge(&self, scope: &Scope) -> Result<u64, StoreError>;

    /// What is recorded of a namespace's chain.
    ///
    /// # Errors
    /// [`StoreError`]: it can't be told.
    fn chain(&self, namespace: &Namespace) -> Result<Record, StoreError>;

    /// Records which chain a namespace has, and that none of its blocks is
    /// final: as lasting as a purge.
    ///
    /// # Errors
    /// [`StoreError`].
    fn keep_identity(&self, namespace: &Namespace, identity: &Identity) -> Result<(), StoreError>;

    /// Records the newest block that is final, or that none is. It need not
    /// survive a crash, but an entry that is put later must not survive without
    /// it.
    ///
    /// # Errors
    /// [`StoreError`].
    fn keep_mark(&self, namespace: &Namespace, mark: Option<&Mark>) -> Result<(), StoreError>;

    /// Whether an entry was purged after the node was asked for it. Never
    /// waits.
    fn refuses(&self, key: &Key, about: &About) -> bool;

    /// Notes that `key` was filled, and tells whether it had been before: then
    /// it is worth its place. Never waits.
    fn admits(&self, key: &Key, now: Now) -> bool;

    /// Writes down what lies in memory, so that a crash does not lose it.
    ///
    /// # Errors
    /// [`StoreError`].
    fn flush(&self) -> Result<(), StoreError>;

    /// Lets go of what was written more than `goes` milliseconds ago, or later,
    /// in large pieces. From then on what was written more than `renews`
    /// milliseconds ago [is old](Stored::is_old).
    fn forget(&self, goes: u64, renews: u64, now: Now);

    /// Something for the log, once.
    fn next_event(&self) -> Option<String>;

    /// What it knows of itself.
    fn status(&self) -> Status;
}
