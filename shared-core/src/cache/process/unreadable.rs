//! Keys of answers that were stored at a glance, and were no answers when they were read.
//!
//! What the node says next is read strictly before it is stored: it may be the same.

use super::unkept::{Keys, Unkept};
use crate::cache::Key;

/// For how long they are remembered. Milliseconds.
const FOR: u32 = 600_000;

/// The keys. Any number of threads may use it.
#[derive(Debug)]
pub struct Unreadable(Keys);

impl Default for Unreadable {
    fn default() -> Self {
        Self(Keys::lasting(FOR))
    }
}

impl Unreadable {
    /// An answer under `key` could not be read, at `now`, in milliseconds of the look-ups'
    /// clock.
    pub fn remember(&self, key: &Key, now: u64) {
        self.0.saw(now);
        self.0.remember(key, Unkept::One);
    }

    /// Whether that was so some time ago.
    pub fn contains(&self, key: &Key, now: u64) -> bool {
        self.0.get(key, now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Unreadable, FOR};

    #[test]
    fn key_is_forgotten_after_some_time() {
        let unreadable = Unreadable::default();
        let now = 5_000;
        unreadable.remember(&[1; 32], now);
        let last = now + u64::from(FOR);
        assert!(unreadable.contains(&[1; 32], now) && unreadable.contains(&[1; 32], last - 1));
        assert!(!unreadable.contains(&[1; 32], last) && !unreadable.contains(&[2; 32], now));
    }
}
