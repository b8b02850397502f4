//! Long answers are stored at a glance (see `cache::check`), and somebody has to
//! read them before anybody gets them. Of what several processes ask for that
//! is the owner: at the first hit, once, for all of them, and before the entry
//! goes to the disk.

use std::sync::{Arc, PoisonError};

use super::memory::Kept;
use super::Owner;
use crate::cache::{check, Key};

impl Owner {
    /// Reads an entry that is [unread](Kept::unread), and puts what it is then
    /// in its place, unless that was purged or filled anew. `None`: it is no
    /// answer, or memory is refused; it is not in memory any more. Takes
    /// milliseconds for each megabyte.
    pub fn read(&self, key: &Key, kept: &Arc<Kept>) -> Option<Arc<Kept>> {
        let Some(body) = check::read(kept.body()) else {
            self.memory.remove_this(key, kept);
            return None;
        };
        let read = Arc::new(kept.with_body(body));
        // alone: no fill comes in between; a purge is judged by the generation,
        // which stays
        let _effect = self.effect.write().unwrap_or_else(PoisonError::into_inner);
        if !self.disk.refuses(key, kept.about()) {
            self.memory.replace(key, kept, &read);
        }
        Some(read)
    }
}
