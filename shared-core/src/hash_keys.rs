//! Maps with the hash keys of the process.
//!
//! Maps of the standard library create keys of their own, which reads a thread-local variable. The
//! C library allocates the thread-local variables of a module that was opened with dlopen(3) when
//! a thread first uses one, and ends the process if the allocation fails. A thread of a pool must
//! survive that, so that this crate uses none there (`clippy.toml` disallows the standard maps).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, DefaultHasher};
use std::sync::LazyLock;

/// A map of the standard library, with the hash keys of the process.
#[allow(clippy::disallowed_types)] // the one use
pub type HashMap<K, V> = std::collections::HashMap<K, V, ProcessHashKeys>;

/// A set of the standard library, with the hash keys of the process.
#[allow(clippy::disallowed_types)] // the one use
pub type HashSet<T> = std::collections::HashSet<T, ProcessHashKeys>;

static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash keys of all maps of the process, chosen at random once.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessHashKeys;

impl BuildHasher for ProcessHashKeys {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        KEYS.build_hasher()
    }
}

/// Creates the keys, on a thread that may allocate thread-local variables.
pub(crate) fn create_hash_keys() {
    LazyLock::force(&KEYS);
}
