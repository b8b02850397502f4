//! The keys for which batches of this machine wait.

use std::collections::HashSet;
use std::sync::Mutex;

use sszip_core::cache::CacheKey;
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::Notify;

/// The keys for which batches of this machine wait. One task polls the value of each.
#[derive(Default)]
pub(super) struct AwaitedKeys {
    keys: Mutex<HashSet<CacheKey>>,
    /// Notified when a key is removed.
    ended: Notify,
}

impl AwaitedKeys {
    /// Adds a key. Returns `false` if it is awaited already.
    pub(super) fn add(&self, key: &CacheKey) -> bool {
        lock_ignoring_poison(&self.keys).insert(*key)
    }

    /// Whether any of the keys is awaited.
    pub(super) fn contains_any(&self, keys: &[CacheKey]) -> bool {
        let awaited = lock_ignoring_poison(&self.keys);
        keys.iter().any(|key| awaited.contains(key))
    }

    /// Removes a key whose wait has ended.
    pub(super) fn remove(&self, key: &CacheKey) {
        lock_ignoring_poison(&self.keys).remove(key);
        self.ended.notify_waiters();
    }

    /// Waits until none of the keys is awaited.
    pub(super) async fn wait_until_ended(&self, keys: &[CacheKey]) {
        loop {
            // created before the check, so that it notices an end after it
            let ended = self.ended.notified();
            if !self.contains_any(keys) {
                return;
            }
            ended.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::AwaitedKeys;

    #[tokio::test]
    async fn batch_waits_until_the_last_of_its_keys_is_removed() {
        let awaited = Arc::new(AwaitedKeys::default());
        let key = |number| [number; 32];
        assert!(awaited.add(&key(1)) && awaited.add(&key(2)) && awaited.add(&key(3)));
        assert!(!awaited.add(&key(1)));
        let batch = tokio::spawn({
            let awaited = Arc::clone(&awaited);
            async move { awaited.wait_until_ended(&[key(1), key(2)]).await }
        });
        awaited.remove(&key(1));
        tokio::task::yield_now().await;
        assert!(!batch.is_finished());
        awaited.remove(&key(2));
        batch.await.unwrap();
        assert!(awaited.contains_any(&[key(2), key(3)]));
        assert!(!awaited.contains_any(&[key(1), key(2)]));
    }

    #[tokio::test]
    async fn batch_does_not_wait_for_keys_that_are_not_awaited() {
        let awaited = AwaitedKeys::default();
        awaited.wait_until_ended(&[[1; 32]]).await;
    }
}
