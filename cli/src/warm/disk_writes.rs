//! The second request for each entry, at the owner: it writes the entry to disk.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use sszip_core::lock::lock_ignoring_poison;
use tokio::time::sleep;

use super::outcome::DiskCounts;
use crate::inspect::owner_entry::{OwnerEntries, OwnerFailure};
use crate::CommandError;

/// Number of entries that wait for another request: meanwhile the writes before them end.
const WAITING_ENTRIES: usize = 64;

/// Times before the last requests for entries that wait: processes send their entries to the owner
/// in the background.
const LAST_WAITS: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
];

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
        match self.is_on_disk(key).await? {
            true => lock_ignoring_poison(&self.counts).on_disk += 1,
            false => lock_ignoring_poison(&self.waiting).push_back(key.into()),
        }
        if let Some(earlier) = self.take_waiting(WAITING_ENTRIES) {
            // the next entry shows a failure, too
            let is_on_disk = self.is_on_disk(&earlier).await.unwrap_or(false);
            let mut counts = lock_ignoring_poison(&self.counts);
            match is_on_disk {
                true => counts.on_disk += 1,
                false => counts.not_on_disk += 1,
            }
        }
        Ok(())
    }

    /// Requests the entries that still wait, until they are on disk or a second has passed.
    pub async fn write_waiting(&self) {
        for wait in LAST_WAITS {
            let count = lock_ignoring_poison(&self.waiting).len();
            if count == 0 {
                return;
            }
            sleep(wait).await;
            for _ in 0..count {
                let Some(key) = self.take_waiting(0) else {
                    return;
                };
                let is_on_disk = self.is_on_disk(&key).await;
                match is_on_disk {
                    Ok(true) => lock_ignoring_poison(&self.counts).on_disk += 1,
                    Ok(false) => lock_ignoring_poison(&self.waiting).push_back(key),
                    Err(_) => {
                        lock_ignoring_poison(&self.waiting).push_back(key);
                        return;
                    }
                }
            }
        }
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

    async fn is_on_disk(&self, key: &str) -> Result<bool, OwnerFailure> {
        let entry = self.owner.find(key).await?;
        Ok(entry.is_some_and(|entry| entry.is_on_disk()))
    }
}
