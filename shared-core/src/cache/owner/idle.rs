//! What an owner does while nobody asks it for anything: entries that are
//! asked for often get smaller.
//!
//! ```text
//! look_up ──▶ candidates ──▶ next_candidate ─ recompress ─▶ replace ──▶ store
//!  a hit       a few keys     by a thread of the host's, which waits for
//!                             nothing to be asked
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::memory::Kept;
use super::{Class, Now, Owner};
use crate::cache::recompress::Recompressed;
use crate::cache::Key;

/// How often an entry is asked for, while it is in memory, until it is worth
/// some milliseconds. Workers have memories of their own: what the owner sees
/// of many clients is one request of each worker, again when that has
/// forgotten it.
const HOT: u32 = 3;

/// Keys that wait. Those beyond come again with their next hit.
const MOST_CANDIDATES: usize = 1_024;

/// How many times as old as an inactive entry a table is that goes, in
/// quarters; and after how many quarters what is asked for is put again. Two
/// of the latter may pass between a table's making and a hit that does not
/// renew an entry in it: one that it was old when it was read, and one since.
pub(super) const GOES: u64 = 6;
pub(super) const RENEWS: u64 = 1;

/// What has been done with them.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    keys: Mutex<VecDeque<Key>>,
    /// How many keys there are: read at every request.
    waiting: AtomicUsize,
    recompressed: AtomicU64,
    saved: AtomicU64,
    no_smaller: AtomicU64,
    failed: AtomicU64,
}

/// What an owner has recompressed since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecompressedStatus {
    /// Entries that became smaller.
    pub entries: u64,
    /// By how many bytes, all together.
    pub saved: u64,
    /// Entries that did not.
    pub no_smaller: u64,
    /// Entries that could not be read, or for which there was no memory.
    pub failed: u64,
}

impl Candidates {
    /// An entry was asked for.
    pub(super) fn hit(&self, key: &Key, kept: &Kept) {
        // what may change soon is not worth it
        if kept.about().class != Class::Immutable || !kept.is_to_be_considered(HOT) {
            return;
        }
        let mut keys = self.keys();
        if keys.len() >= MOST_CANDIDATES {
            kept.is_not_considered();
            return;
        }
        keys.push_back(*key);
        self.waiting.store(keys.len(), Ordering::Relaxed);
    }

    fn next(&self) -> Option<Key> {
        let mut keys = self.keys();
        let next = keys.pop_front();
        self.waiting.store(keys.len(), Ordering::Relaxed);
        next
    }

    pub(super) fn status(&self) -> RecompressedStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RecompressedStatus {
            entries: load(&self.recompressed),
            saved: load(&self.saved),
            no_smaller: load(&self.no_smaller),
            failed: load(&self.failed),
        }
    }

    /// A list of keys is never half-changed.
    fn keys(&self) -> MutexGuard<'_, VecDeque<Key>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner {
    /// Whether [`next_candidate`](Self::next_candidate) may have one.
    pub fn has_candidates(&self) -> bool {
        self.candidates.waiting.load(Ordering::Relaxed) > 0
    }

    /// The next entry that is to be given to
    /// [`recompress`](crate::cache::recompress::recompress).
    pub fn next_candidate(&self, now: Now) -> Option<(Key, Arc<Kept>)> {
        // what has left memory since is not asked for that often
        std::iter::from_fn(|| self.candidates.next())
            .find_map(|key| Some((key, self.memory.peek(&key, now)?)))
    }

    /// What came of it: the entry's other form takes its place in memory and,
    /// if it was there, in the store. It keeps its generation and its times.
    /// One that was purged or filled anew meanwhile stays as it is. `true`: it
    /// was replaced. May wait for a disk.
    pub fn replace(&self, key: &Key, kept: &Arc<Kept>, by: Recompressed, now: Now) -> bool {
        let body = match by {
            Recompressed::As(body) => body,
            Recompressed::Unsuitable => return false,
            Recompressed::Failed => {
                self.candidates.failed.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        };
        let saved = kept.body().len().saturating_sub(body.len()) as u64;
        let other = Arc::new(kept.with_body(body));
        other.is_not_stored();
        let was_stored = {
            // alone: no fill comes in between; a purge is judged by the generation,
            // which stays
            let _effect = self.effect.write().unwrap_or_else(PoisonError::into_inner);
            if self.disk.refuses(key, kept.about()) || !self.memory.replace(key, kept, &other) {
                return false;
            }
            kept.is_stored()
        };
        if saved > 0 {
            self.candidates.recompressed.fetch_add(1, Ordering::Relaxed);
            self.candidates.saved.fetch_add(saved, Ordering::Relaxed);
        } else {
            self.candidates.no_smaller.fetch_add(1, Ordering::Relaxed);
        }
        // a purge that passes it here is known to the store: it carries the
        // generation that it was asked in
        if was_stored && other.is_to_be_stored() {
            // a failure is counted, and it is tried again when it is asked for
            drop(self.store(key, &other, now));
        }
        true
    }

    /// Forgets what nobody has asked for in so many milliseconds, in memory
    /// and, more coarsely, on the disk. Does nothing unless that was said to
    /// [`inactive`](Self::inactive). Waits for a disk.
    pub fn forget_inactive(&self, now: Now) {
        let Some(inactive) = self.inactive else {
            return;
        };
        self.memory.forget(now.monotonic.saturating_sub(inactive));
        self.disk
            .forget(quarters(inactive, GOES), quarters(inactive, RENEWS), now);
    }
}

/// Of a time, without overflow.
pub(super) fn quarters(time: u64, count: u64) -> u64 {
    (time / 4).saturating_mul(count).max(1)
}
