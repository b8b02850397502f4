//! The second request for each entry, at the owner: it writes the entry to disk.

use std::collections::VecDeque;
use std::sync::Mutex;

use sszip_core::lock::lock_ignoring_poison;

use super::outcome::DiskCounts;
use crate::inspect::owner_entry::{OwnerEntries, OwnerFailure};
use crate::CommandError;

/// Number of entries that wait for another request: meanwhile the writes before them end.
const WAITING_ENTRIES: usize = 64;

/// The requests for entries at the owner.
pub struct DiskWrites {
    owner: OwnerEntries,
    /// Entries that were not written at their second request: too many writes were waiting, or the
    /// entry had not arrived yet.
    waiting: Mutex<VecDeque<String>>,
    counts: Mutex<DiskCounts>,
}

impl DiskWrites {
    /// Writes entries by requests to this owner.
    pub fn new(owner: OwnerEntries) -> Self {
        Self {
            owner,
            waiting: Mutex::new(VecDeque::new()),
            counts: Mutex::new(DiskCounts::default()),
        }
    }

    /// Checks that the owner responds.
    pub async fn check_owner(&self) -> Result<(), CommandError> {
        let absent = "0".repeat(64);
        let found = self.owner.find(&absent).await;
        found.map_err(|failure| self.owner.command_error(&failure))?;
        Ok(())
    }

    /// Requests the entry of a key, and once more an earlier one that was not written.
    pub async fn write(&self, key: &str) -> Result<(), OwnerFailure> {
        if self.is_on_disk(key).await? {
            lock_ignoring_poison(&self.counts).on_disk += 1;
        } else {
            lock_ignoring_poison(&self.waiting).push_back(key.into());
        }
        match self.take_waiting(WAITING_ENTRIES) {
            Some(key) => self.write_again(&key).await,
            None => Ok(()),
        }
    }

    /// Requests the entries that still wait.
    pub async fn write_waiting(&self) -> Result<(), OwnerFailure> {
        while let Some(key) = self.take_waiting(0) {
            self.write_again(&key).await?;
        }
        Ok(())
    }

    /// Returns the number of entries on disk and of others; those that wait are others.
    pub fn counts(&self) -> DiskCounts {
        let waiting = lock_ignoring_poison(&self.waiting).len() as u64;
        let mut counts = *lock_ignoring_poison(&self.counts);
        counts.not_on_disk += waiting;
        counts
    }

    fn take_waiting(&self, keep: usize) -> Option<String> {
        let mut waiting = lock_ignoring_poison(&self.waiting);
        match waiting.len() > keep {
            true => waiting.pop_front(),
            false => None,
        }
    }

    async fn write_again(&self, key: &str) -> Result<(), OwnerFailure> {
        let is_on_disk = self.is_on_disk(key).await?;
        let mut counts = lock_ignoring_poison(&self.counts);
        match is_on_disk {
            true => counts.on_disk += 1,
            false => counts.not_on_disk += 1,
        }
        Ok(())
    }

    async fn is_on_disk(&self, key: &str) -> Result<bool, OwnerFailure> {
        let entry = self.owner.find(key).await?;
        Ok(entry.is_some_and(|entry| entry.is_on_disk()))
    }
}
