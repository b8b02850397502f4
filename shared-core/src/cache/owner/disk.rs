//! What the owner needs of a store: of `cache::store` in a product, of a model
//! in tests.

use std::fmt;

use super::{About, Now, Scope};
use crate::cache::Key;

/// An entry as the store gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What was said of it.
    pub about: About,
    /// When it was stored, in milliseconds since 1970.
    pub stored_at: u64,
    /// From when on it is not fresh, in milliseconds since 1970.
    pub expires_at: u64,
    /// Opaque.
    pub body: Vec<u8>,
    /// It will be evicted soon: being asked for, it should be put again.
    pub is_old: bool,
}

/// Why the store did not do something. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError(pub String);

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DiskError {}

/// A store. Every call but [`refuses`](Self::refuses),
/// [`admits`](Self::admits) and [`generation`](Self::generation) may wait for
/// a disk.
pub trait Disk: Send + Sync {
    /// How many purges there have been.
    fn generation(&self) -> u64;

    /// What is under `key`, fresh or not, unless it was purged. What can't be
    /// read isn't there.
    fn get(&self, key: &Key, now: Now) -> Option<Stored>;

    /// Keeps an entry. It need not survive a crash.
    ///
    /// # Errors
    /// [`DiskError`]: storing is off.
    fn put(
        &self,
        key: &Key,
        about: &About,
        stored_at: u64,
        expires_at: u64,
        body: &[u8],
    ) -> Result<(), DiskError>;

    /// Removes entries: [`get`](Self::get) and [`refuses`](Self::refuses) know
    /// it afterwards, also after a crash or a power loss. Gives the new
    /// generation.
    ///
    /// # Errors
    /// [`DiskError`]: it does not hold.
    fn purge(&self, scope: &Scope) -> Result<u64, DiskError>;

    /// Whether an entry was purged after the node was asked for it.
    fn refuses(&self, key: &Key, about: &About) -> bool;

    /// Notes that `key` was filled, and tells whether it had been before: then
    /// it is worth its place.
    fn admits(&self, key: &Key) -> bool;

    /// Writes down what lies in memory, so that a crash does not lose it.
    ///
    /// # Errors
    /// [`DiskError`].
    fn flush(&self) -> Result<(), DiskError>;

    /// What it knows of itself, as one JSON object.
    fn status(&self) -> String;
}
