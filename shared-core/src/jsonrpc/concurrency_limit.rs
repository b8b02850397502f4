//! Concurrency limits of methods.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The maximum number of concurrent calls that one rule permits in this process, and their present
/// number.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    most: usize,
    under_way: AtomicUsize,
}

/// A slot of a concurrency limit, which a call holds until it ends: dropping it releases the slot.
#[derive(Debug)]
pub struct ConcurrencyPermit(Arc<ConcurrencyLimit>);

impl ConcurrencyLimit {
    /// Creates a limit of `most` concurrent calls.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            under_way: AtomicUsize::new(0),
        })
    }

    /// Takes a slot for a call; `None` if all are in use.
    pub fn try_acquire(self: &Arc<Self>) -> Option<ConcurrencyPermit> {
        let more = |now: usize| (now < self.most).then_some(now + 1);
        let taken = self
            .under_way
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| ConcurrencyPermit(Arc::clone(self)))
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::ConcurrencyLimit;

    #[test]
    fn limit_issues_no_more_permits_than_its_maximum() {
        let limit = ConcurrencyLimit::new(2);
        let (one, two) = (limit.try_acquire(), limit.try_acquire());
        assert!(one.is_some() && two.is_some() && limit.try_acquire().is_none());
        drop(one);
        assert!(limit.try_acquire().is_some());
        assert!(limit.try_acquire().is_some());
        let three = limit.try_acquire();
        assert!(three.is_some() && limit.try_acquire().is_none());
    }

    #[test]
    fn limit_is_not_exceeded_by_concurrent_threads() {
        let limit = ConcurrencyLimit::new(3);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let Some(permit) = limit.try_acquire() else {
                            continue;
                        };
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        now.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        let all: Vec<_> = (0..4).map_while(|_| limit.try_acquire()).collect();
        assert_eq!(all.len(), 3);
    }
}
