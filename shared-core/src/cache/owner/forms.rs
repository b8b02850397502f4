//! An entry takes on another form: it was read, it turns out to be final, or it
//! was made smaller.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::memory::Kept;
use super::now::Now;
use super::state::Owner;
use crate::cache::class::Class;
use crate::cache::entry::about::About;
use crate::cache::entry::check;
use crate::cache::entry::wire::as_final;
use crate::cache::Key;
use crate::lock::write;

impl Owner {
    /// Reads an entry that is [unread](Kept::unread): one that was stored at a
    /// glance (see `cache::entry::check`), which somebody has to read before anybody gets
    /// it. Of what several processes ask for that is the owner, at the first hit,
    /// once for all of them. `None`: it is no answer, or memory is refused; it is
    /// not in memory any more. Takes milliseconds for each megabyte.
    pub fn read(&self, key: &Key, kept: &Arc<Kept>) -> Option<Arc<Kept>> {
        let Some(body) = check::read(kept.body()) else {
            self.memory.remove_this(key, kept);
            return None;
        };
        let read = Arc::new(kept.with_body(body));
        if self.replace(key, kept, &read) {
            return Some(read);
        }
        // somebody else has done the same; what was purged or filled anew is read
        // all the same
        Some(self.memory.read_form_of(key, kept).unwrap_or(read))
    }

    /// An entry turns out to be of a block that was final when the node was
    /// asked: from now on it may be given out for `fresh` milliseconds more.
    /// `None`: it was purged, or filled anew; or it is none that this can be
    /// done with, or memory is refused.
    pub fn make_final(
        &self,
        key: &Key,
        kept: &Arc<Kept>,
        block: u64,
        fresh: u64,
        now: Now,
    ) -> Option<Arc<Kept>> {
        let about = About {
            class: Class::Immutable,
            block: Some(block),
            height: Some(block),
            ..kept.about().clone()
        };
        let body = as_final(kept.body(), block)?;
        let made = Arc::new(self.kept(about, body, fresh, now));
        self.replace(key, kept, &made).then_some(made)
    }

    /// An entry that is to be stored was [made
    /// smaller](crate::cache::entry::recompress::recompress): what is to be stored in its
    /// place. `None`: nothing is, it was purged or filled anew meanwhile.
    pub fn recompressed(&self, key: &Key, kept: &Arc<Kept>, body: Vec<u8>) -> Option<Arc<Kept>> {
        let saved = kept.body().len().saturating_sub(body.len()) as u64;
        let other = Arc::new(kept.with_body(body));
        {
            // alone, as below
            let _effect = write(&self.effect);
            if self.disk.refuses(key, kept.about()) || self.memory.has_other(key, kept) {
                return None;
            }
            // somebody else may have read it; and one that has left memory for
            // want of room is stored as well
            self.memory
                .replace(key, |there| there.is_form_of(kept), &other);
        }
        if saved > 0 {
            let counters = &self.counters;
            counters.recompressed.fetch_add(1, Ordering::Relaxed);
            counters.saved.fetch_add(saved, Ordering::Relaxed);
        }
        Some(other)
    }

    /// Puts `by` in the place of `kept` in memory, unless that was purged or
    /// something else was put there. Whether it did.
    fn replace(&self, key: &Key, kept: &Arc<Kept>, by: &Arc<Kept>) -> bool {
        // alone: no fill comes in between; a purge is judged by the generation,
        // which stays
        let _effect = write(&self.effect);
        let is_it = |there: &Arc<Kept>| Arc::ptr_eq(there, kept);
        !self.disk.refuses(key, by.about()) && self.memory.replace(key, is_it, by)
    }
}
