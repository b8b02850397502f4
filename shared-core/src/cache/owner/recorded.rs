//! What the owner keeps for those who follow its chains.

use super::disk::DiskError;
use super::state::Owner;
use super::tracker::{Identity, Mark, Record};
use crate::cache::Namespace;

impl Owner {
    /// What is recorded of a namespace's chain. Waits for a disk.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn chain(&self, namespace: &Namespace) -> Result<Record, DiskError> {
        self.disk.chain(namespace)
    }

    /// Records which chain a namespace has, and that none of its blocks is
    /// final yet. Waits for a disk.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn keep_identity(
        &self,
        namespace: &Namespace,
        identity: &Identity,
    ) -> Result<(), DiskError> {
        self.disk.keep_identity(namespace, identity)
    }

    /// Records the newest block that is final, before it is
    /// [told](Owner::moved): an entry must not outlive it. May wait for a disk.
    ///
    /// # Errors
    /// [`DiskError`]: it must not be told.
    pub fn keep_mark(&self, namespace: &Namespace, mark: Option<&Mark>) -> Result<(), DiskError> {
        self.disk.keep_mark(namespace, mark)
    }
}
