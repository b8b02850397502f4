//! Leases: the first process that misses a key leads, and the others are notified when the entry
//! is present or the leader has given up.
//!
//! ```text
//!          request: granted             fill, release, expiry, disconnect
//!  (none) ──────────────▶ leased ──────────────────────────────────▶ (none)
//!                          │  ▲                      processes that received
//!                          └──┘ request: pending     "pending" are returned
//! ```
//!
//! No function waits: the caller sends the events.

use crate::hash_keys::HashMap;
use std::collections::hash_map::Entry;
use std::collections::BTreeSet;

use super::processes::OwnerClientName;
use crate::cache::owner_protocol::owner_message::LeaseReply;
use crate::cache::CacheKey;

/// The key of a lease that has ended, and the processes to notify because they wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedLease {
    /// The key of the lease.
    pub key: CacheKey,
    /// Processes that received "pending", in that order.
    pub waiters: Vec<OwnerClientName>,
}

/// The table of the leases that the owner has granted and that have not ended, by key, with the
/// processes that wait for them.
#[derive(Debug)]
pub struct LeaseTable {
    leases: HashMap<CacheKey, GrantedLease>,
    /// End of each lease in milliseconds.
    ends: BTreeSet<(u64, CacheKey)>,
    most: usize,
}

/// The lease of one key, with its holder and the processes that wait for it.
#[derive(Debug)]
struct GrantedLease {
    holder: OwnerClientName,
    ends: u64,
    waiters: Vec<OwnerClientName>,
}

impl LeaseTable {
    /// Creates a table that grants at most `most` leases at a time.
    pub fn new(most: usize) -> Self {
        Self {
            leases: HashMap::default(),
            ends: BTreeSet::new(),
            most,
        }
    }

    /// Grants the lease of `key` to `process`, or adds `process` to those that wait for the present
    /// holder. A granted lease lasts until `ends` at most; its holder may request it again, and
    /// then has it until the new `ends`. Call [`expire_leases`](Self::expire_leases) first.
    pub fn acquire_lease(
        &mut self,
        key: CacheKey,
        process: &OwnerClientName,
        ends: u64,
    ) -> LeaseReply {
        let most = self.most;
        let count = self.leases.len();
        match self.leases.entry(key) {
            Entry::Vacant(_) if count >= most => return LeaseReply::Full,
            Entry::Vacant(vacant) => {
                vacant.insert(GrantedLease {
                    holder: process.clone(),
                    ends,
                    waiters: Vec::new(),
                });
            }
            Entry::Occupied(mut occupied) => {
                let lease = occupied.get_mut();
                if lease.holder != *process {
                    if !lease.waiters.contains(process) {
                        lease.waiters.push(process.clone());
                    }
                    return LeaseReply::Pending;
                }
                self.ends.remove(&(lease.ends, key));
                lease.ends = ends;
            }
        }
        self.ends.insert((ends, key));
        LeaseReply::Granted
    }

    /// Passes the lease of `key` from `process`, which waits for it from now on, to `successor`.
    /// Returns `false` if `process` does not have it.
    pub fn pass_lease(
        &mut self,
        key: &CacheKey,
        process: &OwnerClientName,
        successor: OwnerClientName,
    ) -> bool {
        let Some(lease) = self
            .leases
            .get_mut(key)
            .filter(|lease| lease.holder == *process)
        else {
            return false;
        };
        lease.holder = successor;
        lease.waiters.insert(0, process.clone());
        true
    }

    /// Ends the lease of `key` if `process` has it, and returns the processes to notify.
    pub fn release_key_lease(
        &mut self,
        key: &CacheKey,
        process: &OwnerClientName,
    ) -> Option<EndedLease> {
        (self.leases.get(key)?.holder == *process)
            .then(|| self.end_lease(key))
            .flatten()
    }

    /// Ends the leases whose holders have not finished by `now`, and returns the processes to
    /// notify.
    pub fn expire_leases(&mut self, now: u64) -> Vec<EndedLease> {
        let mut ended = Vec::new();
        while let Some((ends, key)) = self.ends.first().copied() {
            if ends > now {
                break;
            }
            // without this the loop would not end
            self.ends.remove(&(ends, key));
            ended.extend(self.end_lease(&key));
        }
        ended
    }

    /// Ends the leases of `process`, which has disconnected.
    pub fn release_process_leases(&mut self, process: &OwnerClientName) -> Vec<EndedLease> {
        let keys: Vec<CacheKey> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.holder == *process)
            .map(|(key, _)| *key)
            .collect();
        keys.iter().filter_map(|key| self.end_lease(key)).collect()
    }

    /// End of the lease that ends next, in milliseconds.
    pub fn next_lease_end(&self) -> Option<u64> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    /// Number of keys that are leased at present.
    pub fn lease_count(&self) -> usize {
        self.leases.len()
    }

    /// Ends the lease of `key`, regardless of its holder, because the entry is present.
    pub fn end_lease(&mut self, key: &CacheKey) -> Option<EndedLease> {
        let lease = self.leases.remove(key)?;
        self.ends.remove(&(lease.ends, *key));
        Some(EndedLease {
            key: *key,
            waiters: lease.waiters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CacheKey = [7; 32];

    fn name(name: &str) -> OwnerClientName {
        OwnerClientName::new(name).unwrap()
    }

    #[test]
    fn number_of_leases_is_limited() {
        let mut leases = LeaseTable::new(1);
        assert_eq!(
            leases.acquire_lease(KEY, &name("a"), 100),
            LeaseReply::Granted
        );
        assert_eq!(
            leases.acquire_lease([8; 32], &name("a"), 100),
            LeaseReply::Full
        );
        assert_eq!(
            leases.acquire_lease(KEY, &name("b"), 100),
            LeaseReply::Pending
        );
    }

    mod sequences {
        use std::collections::BTreeMap;

        use proptest::prelude::*;

        use super::*;

        #[derive(Clone, Debug)]
        enum LeaseStep {
            Acquire(u8, u8, u64),
            Fill(u8),
            Release(u8, u8),
            Pass(u64),
            Disconnect(u8),
            /// A process passes its lease to the fifth one.
            PassTo(u8, u8),
        }

        fn step() -> impl Strategy<Value = LeaseStep> {
            let key = 0..3u8;
            let process = 0..4u8;
            prop_oneof![
                6 => (key.clone(), process.clone(), 1..50u64)
                    .prop_map(|(key, process, time)| LeaseStep::Acquire(key, process, time)),
                1 => key.clone().prop_map(LeaseStep::Fill),
                1 => (key, process.clone()).prop_map(|(key, process)| LeaseStep::Release(key, process)),
                2 => (1..40u64).prop_map(LeaseStep::Pass),
                1 => process.clone().prop_map(LeaseStep::Disconnect),
                1 => (0..3u8, process).prop_map(|(key, process)| LeaseStep::PassTo(key, process)),
            ]
        }

        proptest! {
            /// Each process that received "pending" is notified of the end of just that lease,
            /// once; and no key has two holders.
            #[test]
            fn waiters_are_notified_once_of_the_end_of_their_lease(steps in prop::collection::vec(step(), 0..80)) {
                let mut leases = LeaseTable::new(100);
                let mut now = 0;
                // key -> (holder, end, waiters), the slow way
                let mut model: BTreeMap<u8, (u8, u64, Vec<u8>)> = BTreeMap::new();
                let process = |n: u8| name(&format!("p{n}"));
                for step in steps {
                    let (over, expected): (Vec<EndedLease>, Vec<u8>) = match step {
                        LeaseStep::Acquire(key, index, time) => {
                            let lease = leases.acquire_lease([key; 32], &process(index), now + time);
                            match model.get_mut(&key) {
                                None => {
                                    prop_assert_eq!(lease, LeaseReply::Granted);
                                    model.insert(key, (index, now + time, vec![]));
                                }
                                Some((holder, ends, _)) if *holder == index => {
                                    prop_assert_eq!(lease, LeaseReply::Granted);
                                    *ends = now + time;
                                }
                                Some((_, _, waiters)) => {
                                    prop_assert_eq!(lease, LeaseReply::Pending);
                                    if !waiters.contains(&index) {
                                        waiters.push(index);
                                    }
                                }
                            }
                            continue;
                        }
                        LeaseStep::PassTo(key, index) => {
                            let passes = leases.pass_lease(&[key; 32], &process(index), process(4));
                            let lease = model.get_mut(&key).filter(|entry| entry.0 == index);
                            prop_assert_eq!(passes, lease.is_some());
                            if let Some((holder, _, waiters)) = lease {
                                *holder = 4;
                                waiters.insert(0, index);
                            }
                            continue;
                        }
                        LeaseStep::Fill(key) => (leases.end_lease(&[key; 32]).into_iter().collect(), vec![key]),
                        LeaseStep::Release(key, index) => {
                            let is_holder = model.get(&key).is_some_and(|entry| entry.0 == index);
                            (
                                leases.release_key_lease(&[key; 32], &process(index)).into_iter().collect(),
                                if is_holder { vec![key] } else { vec![] },
                            )
                        }
                        LeaseStep::Pass(time) => {
                            now += time;
                            (
                                leases.expire_leases(now),
                                model.iter().filter(|(_, entry)| entry.1 <= now).map(|(key, _)| *key).collect(),
                            )
                        }
                        LeaseStep::Disconnect(index) => (
                            leases.release_process_leases(&process(index)),
                            model.iter().filter(|(_, entry)| entry.0 == index).map(|(key, _)| *key).collect(),
                        ),
                    };
                    let notified: BTreeMap<u8, Vec<OwnerClientName>> =
                        over.into_iter().map(|ended| (ended.key[0], ended.waiters)).collect();
                    let mut wanted = BTreeMap::new();
                    for key in expected {
                        if let Some((_, _, waiters)) = model.remove(&key) {
                            let waiters: Vec<OwnerClientName> = waiters.into_iter().map(process).collect();
                            wanted.insert(key, waiters);
                        }
                    }
                    prop_assert_eq!(notified, wanted);
                    prop_assert_eq!(leases.lease_count(), model.len());
                    prop_assert_eq!(leases.next_lease_end(), model.values().map(|entry| entry.1).min());
                }
            }
        }
    }
}
