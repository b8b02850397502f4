//! The key cache: keys of calls that were hits, by the raw bytes of the call.
//!
//! Clients write a popular call with the same bytes each time, except for the id. Comparing some
//! hundred bytes is far cheaper than parsing a call, canonicalising and hashing it, and finding the
//! block that it refers to. A cached call has the same vary key, the same bytes around its id, and
//! the same lifetimes: it is the same call, and can have no other key.
//!
//! Only hits are cached, so that misses cost little more. The table has a fixed size: two calls
//! share each bucket, and the newer one replaces the older.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::{Arc, MutexGuard, Weak};

use foldhash::fast::RandomState;

use super::per_loop::PerEventLoopTable;
use crate::cache::freshness::{CacheLifetimes, CallLifetimeRules};
use crate::cache::CacheKey;

/// Number of buckets; a power of two.
const BUCKETS: usize = 512;

/// Number of calls in a bucket. With one, a tenth of a hundred calls would replace one another.
const BUCKET_SIZE: usize = 2;

/// Maximum length of a cached call, in bytes of vary key and text. It bounds the table to about 800
/// KiB. No text of this length is nested too deeply to be parsed.
pub const MAX_CALL_LENGTH: usize = 640;

/// The [encoded parts](crate::cache::vary_key::VaryKey::vary_key_bytes) of a vary key, hashed once
/// for all calls of a request by [`CallKeyCache::hash_vary_key_for_table`].
#[derive(Clone, Copy, Debug)]
pub struct HashedVaryKey<'a> {
    bytes: &'a [u8],
    hash: u64,
}

/// The raw bytes of a call and its vary key, which together determine the call's key and prospect.
#[derive(Clone, Copy, Debug)]
pub struct RawCallKey<'a> {
    /// Vary key of the request.
    pub scope: HashedVaryKey<'a>,
    /// Text of the call before its id.
    pub before: &'a [u8],
    /// Text of the call after its id.
    pub after: &'a [u8],
}

impl RawCallKey<'_> {
    fn raw_call_length(&self) -> usize {
        self.scope.bytes.len() + self.before.len() + self.after.len()
    }
}

/// The facts about a call that the key cache remembers: its key, its prospect, and the ranges of
/// method and params in the call's text without its id.
#[derive(Clone, Debug)]
pub struct CallKeyFacts {
    /// Key of the call.
    pub key: CacheKey,
    /// Lifetime rules of the response.
    pub prospect: CallLifetimeRules,
    /// Range of the method's name.
    pub method: Range<usize>,
    /// Range of the params, if there are any.
    pub params: Option<Range<usize>>,
}

/// A cached call with the bytes that identify it.
#[derive(Debug)]
struct KeyCacheSlot {
    hash: u64,
    /// Lifetimes that the prospect was made with. The weak reference keeps their address from being
    /// reused.
    valid: Weak<CacheLifetimes>,
    /// Text before the id, text after it, and vary key.
    text: Box<[u8]>,
    before: usize,
    after: usize,
    known: CallKeyFacts,
}

impl KeyCacheSlot {
    /// Whether the slot was filled for the same bytes of a call, scope and lifetime configuration.
    fn matches_call(&self, valid: &Arc<CacheLifetimes>, call: &RawCallKey<'_>) -> bool {
        let (before, rest) = self.text.split_at(self.before);
        let (after, scope) = rest.split_at(self.after);
        self.valid.as_ptr() == Arc::as_ptr(valid)
            && before == call.before
            && after == call.after
            && scope == call.scope.bytes
    }
}

/// A table from the raw bytes of calls that were cache hits to their cache keys, so that they are
/// not parsed again.
#[derive(Debug, Default)]
pub struct CallKeyCache {
    slots: PerEventLoopTable<Vec<[Option<KeyCacheSlot>; BUCKET_SIZE]>>,
    hasher: RandomState,
}

impl CallKeyCache {
    /// Creates a table for each of `event_loops` event loops, instead of one that all share. Only
    /// the first call has an effect.
    pub fn create_loop_tables(&self, event_loops: usize) {
        self.slots.create_loop_tables(event_loops);
    }

    /// Returns a vary key with its hash for this table.
    pub fn hash_vary_key_for_table<'a>(&self, scope: &'a [u8]) -> HashedVaryKey<'a> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(scope);
        HashedVaryKey {
            bytes: scope,
            hash: hasher.finish(),
        }
    }

    /// Locks this event loop's table.
    pub fn lock_own_loop_table(&self) -> CallKeyCacheGuard<'_> {
        CallKeyCacheGuard {
            slots: self.slots.lock_own_loop_table(),
            hasher: &self.hasher,
        }
    }
}

/// The key cache of one event loop, locked for the calls of one request.
#[derive(Debug)]
pub struct CallKeyCacheGuard<'a> {
    slots: MutexGuard<'a, Vec<[Option<KeyCacheSlot>; BUCKET_SIZE]>>,
    hasher: &'a RandomState,
}

impl CallKeyCacheGuard<'_> {
    fn hash_call(&self, call: &RawCallKey<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(call.before);
        hasher.write(call.after);
        hasher.write_u64(call.scope.hash);
        hasher.finish()
    }

    /// Returns the cached facts of a call, or `None` if it is not cached or was cached under other
    /// `valid` lifetimes.
    pub fn find_call_facts(
        &self,
        valid: &Arc<CacheLifetimes>,
        call: &RawCallKey<'_>,
    ) -> Option<&CallKeyFacts> {
        if self.slots.is_empty() {
            return None;
        }
        let hash = self.hash_call(call);
        let slots = self.slots.get(call_bucket_index(hash))?.iter().flatten();
        slots
            .filter(|slot| slot.hash == hash)
            .find(|slot| slot.matches_call(valid, call))
            .map(|slot| &slot.known)
    }

    /// Caches the facts of a call that was a hit, in place of an older call, unless it is too long
    /// or memory is refused.
    pub fn cache_call_facts(
        &mut self,
        valid: &Arc<CacheLifetimes>,
        call: &RawCallKey<'_>,
        known: CallKeyFacts,
    ) {
        let length = call.raw_call_length();
        let mut text = Vec::new();
        if length > MAX_CALL_LENGTH || text.try_reserve_exact(length).is_err() {
            return;
        }
        if self.slots.is_empty() {
            if self.slots.try_reserve_exact(BUCKETS).is_err() {
                return;
            }
            self.slots.resize_with(BUCKETS, || [None, None]);
        }
        for part in [call.before, call.after, call.scope.bytes] {
            text.extend_from_slice(part);
        }
        let hash = self.hash_call(call);
        if let Some([newer, older]) = self.slots.get_mut(call_bucket_index(hash)) {
            let slot = KeyCacheSlot {
                hash,
                valid: Arc::downgrade(valid),
                text: text.into(),
                before: call.before.len(),
                after: call.after.len(),
                known,
            };
            *older = newer.replace(slot);
        }
    }
}

fn call_bucket_index(hash: u64) -> usize {
    // far below 2^32 buckets
    hash as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        CallKeyCache, CallKeyCacheGuard, CallKeyFacts, RawCallKey, BUCKETS, BUCKET_SIZE,
        MAX_CALL_LENGTH,
    };
    use crate::cache::class::LifetimeClass;
    use crate::cache::freshness::{CacheLifetimes, CallLifetimeRules};

    fn raw_call<'a>(
        memo: &CallKeyCache,
        scope: &'a str,
        before: &'a str,
        after: &'a str,
    ) -> RawCallKey<'a> {
        RawCallKey {
            scope: memo.hash_vary_key_for_table(scope.as_bytes()),
            before: before.as_bytes(),
            after: after.as_bytes(),
        }
    }

    fn known(n: u8) -> CallKeyFacts {
        CallKeyFacts {
            key: [n; 32],
            prospect: CallLifetimeRules::lifetime_rules_for_call(
                b"eth_chainId",
                None,
                &CacheLifetimes::default(),
            )
            .unwrap(),
            method: 0..0,
            params: None,
        }
    }

    fn found(
        memo: &CallKeyCacheGuard<'_>,
        valid: &Arc<CacheLifetimes>,
        call: &RawCallKey<'_>,
    ) -> Option<u8> {
        memo.find_call_facts(valid, call).map(|known| known.key[0])
    }

    #[test]
    fn call_is_found_only_by_identical_bytes() {
        let memo = CallKeyCache::default();
        let valid = Arc::new(CacheLifetimes::default());
        let call = raw_call(&memo, "scope", "before", "after");
        assert_eq!(found(&memo.lock_own_loop_table(), &valid, &call), None);
        memo.lock_own_loop_table()
            .cache_call_facts(&valid, &call, known(7));
        assert_eq!(found(&memo.lock_own_loop_table(), &valid, &call), Some(7));
        for other in [
            raw_call(&memo, "scope", "before", "after "),
            raw_call(&memo, "scope", "before", ""),
            raw_call(&memo, "scope", "befor", "eafter"),
            raw_call(&memo, "scope", "", "beforeafter"),
            raw_call(&memo, "rscope", "before", "afte"),
            raw_call(&memo, "", "before", "afterscope"),
            raw_call(&memo, "other", "before", "after"),
        ] {
            let memo = memo.lock_own_loop_table();
            assert_eq!(found(&memo, &valid, &other), None, "{other:?}");
            // regardless of the hash
            let mut slots = memo.slots.iter().flatten().flatten();
            assert!(
                slots.all(|slot| !slot.matches_call(&valid, &other)),
                "{other:?}"
            );
        }
    }

    #[test]
    fn newer_calls_replace_the_oldest_of_their_bucket() {
        let memo = CallKeyCache::default();
        let valid = Arc::new(CacheLifetimes::default());
        let texts: Vec<String> = (0..BUCKETS * 20).map(|n| n.to_string()).collect();
        let calls: Vec<_> = texts
            .iter()
            .map(|text| raw_call(&memo, "", text, ""))
            .collect();
        let mut memo = memo.lock_own_loop_table();
        let place = super::call_bucket_index(memo.hash_call(&calls[0]));
        let others = calls[1..]
            .iter()
            .filter(|call| super::call_bucket_index(memo.hash_call(call)) == place);
        let others: Vec<_> = others.copied().take(BUCKET_SIZE).collect();
        memo.cache_call_facts(&valid, &calls[0], known(0));
        memo.cache_call_facts(&valid, &others[0], known(1));
        assert_eq!(found(&memo, &valid, &calls[0]), Some(0));
        assert_eq!(found(&memo, &valid, &others[0]), Some(1));
        memo.cache_call_facts(&valid, &others[1], known(2));
        assert_eq!(found(&memo, &valid, &calls[0]), None);
        assert_eq!(found(&memo, &valid, &others[0]), Some(1));
        assert_eq!(found(&memo, &valid, &others[1]), Some(2));
    }

    #[test]
    fn call_is_not_found_with_other_lifetimes() {
        let memo = CallKeyCache::default();
        let mut valid = Arc::new(CacheLifetimes::default());
        let call = raw_call(&memo, "", "a", "b");
        memo.lock_own_loop_table()
            .cache_call_facts(&valid, &call, known(1));
        let other = Arc::new(CacheLifetimes::default());
        assert_eq!(found(&memo.lock_own_loop_table(), &other, &call), None);
        assert_eq!(found(&memo.lock_own_loop_table(), &valid, &call), Some(1));
        // changed in place: the cached prospect was made with the old lifetimes
        let _ = Arc::make_mut(&mut valid).set_class_lifetime(LifetimeClass::Immutable, 0);
        assert_eq!(found(&memo.lock_own_loop_table(), &valid, &call), None);
        // freed: no new lifetimes can be allocated at the same address
        drop(valid);
        for _ in 0..1000 {
            let next = Arc::new(CacheLifetimes::default());
            assert_eq!(found(&memo.lock_own_loop_table(), &next, &call), None);
        }
    }

    #[test]
    fn table_does_not_grow_with_more_calls() {
        let memo = CallKeyCache::default();
        let valid = Arc::new(CacheLifetimes::default());
        for n in 0..4 * BUCKETS {
            let after = format!("[{n}]");
            let call = raw_call(&memo, "scope", "eth_call", &after);
            memo.lock_own_loop_table()
                .cache_call_facts(&valid, &call, known(2));
            assert_eq!(found(&memo.lock_own_loop_table(), &valid, &call), Some(2));
        }
        assert_eq!(memo.lock_own_loop_table().slots.len(), BUCKETS);
        let long = "1".repeat(MAX_CALL_LENGTH);
        let call = raw_call(&memo, "", "m", &long);
        memo.lock_own_loop_table()
            .cache_call_facts(&valid, &call, known(3));
        assert_eq!(found(&memo.lock_own_loop_table(), &valid, &call), None);
    }
}
