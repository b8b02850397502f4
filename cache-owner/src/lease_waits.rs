//! Lookups that wait for the end of another process's lease, without a thread.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use sszip_core::cache::CacheKey;
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::futures::Notified;
use tokio::sync::Notify;

/// Maximum number of waits: each has a connection, and other requests need some.
const MAX_WAITS: usize = 1_024;

/// The lookups that wait for another process to end its lease, by key.
#[derive(Debug, Default)]
pub struct LeaseWaits(Mutex<LeaseWaitTable>);

/// The waiting lookups by key, and their total number.
#[derive(Debug, Default)]
struct LeaseWaitTable {
    by_key: HashMap<CacheKey, KeyLeaseWaits>,
    count: usize,
}

/// The lookups that wait for one key.
#[derive(Debug, Default)]
struct KeyLeaseWaits {
    count: usize,
    ended: Arc<Notify>,
}

/// The registration of a lookup that waits for another process to end its lease. Dropping it ends
/// the wait.
#[derive(Debug)]
pub struct LeaseWait<'a> {
    waits: &'a LeaseWaits,
    key: CacheKey,
    ended: Arc<Notify>,
}

impl LeaseWaits {
    /// Registers a lookup that waits for the end of the lease of `key`. Returns `None` if too many
    /// lookups wait.
    pub fn start_lease_wait(&self, key: CacheKey) -> Option<LeaseWait<'_>> {
        let mut state = lock_ignoring_poison(&self.0);
        if state.count == MAX_WAITS {
            return None;
        }
        state.count += 1;
        let waiting = state.by_key.entry(key).or_default();
        waiting.count += 1;
        let ended = Arc::clone(&waiting.ended);
        Some(LeaseWait {
            waits: self,
            key,
            ended,
        })
    }

    /// Wakes the lookups that wait for these keys, whose leases have ended.
    pub fn wake_lease_waits(&self, keys: &[CacheKey]) {
        if keys.is_empty() {
            return;
        }
        let state = lock_ignoring_poison(&self.0);
        for waiting in keys.iter().filter_map(|key| state.by_key.get(key)) {
            waiting.ended.notify_waiters();
        }
    }

    /// Wakes all waiting lookups.
    pub fn wake_all_lease_waits(&self) {
        for waiting in lock_ignoring_poison(&self.0).by_key.values() {
            waiting.ended.notify_waiters();
        }
    }

    /// Returns the number of lookups that wait.
    pub fn waiting_lookup_count(&self) -> usize {
        lock_ignoring_poison(&self.0).count
    }
}

impl LeaseWait<'_> {
    /// Returns a future that is ready when the lease ends after this call.
    pub fn lease_end_notification(&self) -> Pin<Box<Notified<'_>>> {
        let mut ended = Box::pin(self.ended.notified());
        // so that an end before the first poll is not missed
        ended.as_mut().enable();
        ended
    }
}

impl Drop for LeaseWait<'_> {
    fn drop(&mut self) {
        let mut state = lock_ignoring_poison(&self.waits.0);
        state.count -= 1;
        if let Some(waiting) = state.by_key.get_mut(&self.key) {
            waiting.count -= 1;
            if waiting.count == 0 {
                state.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{LeaseWaits, MAX_WAITS};

    const SOON: Duration = Duration::from_millis(5);

    #[test]
    fn wait_ends_with_the_lease_of_its_own_key() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let waits = LeaseWaits::default();
            let (one, two, other) = (
                waits.start_lease_wait([1; 32]),
                waits.start_lease_wait([1; 32]),
                waits.start_lease_wait([2; 32]),
            );
            let [one, two, other] = [one, two, other].map(Option::unwrap);
            let ends = [&one, &two, &other].map(|wait| wait.lease_end_notification());
            waits.wake_lease_waits(&[[1; 32], [7; 32]]);
            let [one, two, mut other] = ends;
            assert!(timeout(SOON, one).await.is_ok());
            assert!(timeout(SOON, two).await.is_ok());
            assert!(timeout(SOON, &mut other).await.is_err());
            waits.wake_all_lease_waits();
            assert!(timeout(SOON, other).await.is_ok());
        });
    }

    #[test]
    fn number_of_waits_is_limited_and_dropped_waits_are_removed() {
        let waits = LeaseWaits::default();
        let all: Vec<_> = (0..MAX_WAITS)
            .map(|n| {
                waits
                    .start_lease_wait([u8::try_from(n % 7).unwrap(); 32])
                    .unwrap()
            })
            .collect();
        assert!(
            waits.start_lease_wait([0; 32]).is_none() && waits.waiting_lookup_count() == MAX_WAITS
        );
        drop(all);
        assert!(waits.0.lock().unwrap().by_key.is_empty() && waits.waiting_lookup_count() == 0);
    }
}
