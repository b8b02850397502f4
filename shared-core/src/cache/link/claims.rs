//! Replies and entries until their waiters claim them.

use std::collections::HashMap;
use std::sync::Arc;

use super::purge::Said;
use crate::cache::entry::Entry;
use crate::cache::process::wake::Waiter;
use crate::cache::Key;

/// Entries, and what they are under.
pub(super) type Entries = Vec<(Key, Arc<Entry>)>;

#[derive(Debug, Default)]
pub(super) struct Claims {
    said: HashMap<Waiter, Said>,
    /// And purges up to which one were known then.
    found: HashMap<Waiter, (Entries, u64)>,
}

impl Claims {
    /// What came of a purge, say; where memory is refused nothing is known of it.
    pub(super) fn said(&mut self, waiter: Waiter, said: Said) {
        if self.said.try_reserve(1).is_ok() {
            self.said.insert(waiter, said);
        }
    }

    /// What a look-up of several keys has found when that was the last purge.
    pub(super) fn found(&mut self, waiter: Waiter, entries: Entries, generation: u64) {
        if self.found.try_reserve(1).is_ok() {
            self.found.insert(waiter, (entries, generation));
        }
    }

    pub(super) fn claim_said(&mut self, waiter: Waiter) -> Option<Said> {
        self.said.remove(&waiter)
    }

    /// As long as that is the last purge still. `None`: nothing has come yet.
    pub(super) fn claim_found(&mut self, waiter: Waiter, generation: u64) -> Option<Entries> {
        let (entries, known) = self.found.remove(&waiter)?;
        let is_current = known == generation;
        Some(if is_current { entries } else { Vec::new() })
    }
}
