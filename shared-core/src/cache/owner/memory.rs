//! The owner's own memory tier.
//!
//! What is not final lives here only, and so does the first fill of what is:
//! most answers are asked for once, and a disk is not there for those.
//! Eviction is `quick_cache`'s, as in the hot tier (`cache::process::hot`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use foldhash::fast::RandomState;
use quick_cache::sync::Cache;
use quick_cache::Weighter;

use super::disk::{Body, Header, Stored};
use super::now::Now;
use crate::cache::chain::{Chain, Chains, Stamp};
use crate::cache::entry::about::About;
use crate::cache::entry::wire;
use crate::cache::process::hot::{bounded, Evictions};
use crate::cache::Key;

/// An entry in memory.
#[derive(Debug)]
pub struct Kept {
    about: About,
    body: Body,
    /// What it has to hold against, if that is followed.
    chain: Option<Arc<Chain>>,
    /// How old it was at `since`, and then for how long still fresh.
    age: u64,
    fresh: u64,
    /// Monotonic milliseconds.
    since: u64,
    /// Which of all entries it is, whatever its form.
    number: u64,
    is_stored: AtomicBool,
    /// When it went to the store, or was found there. Monotonic milliseconds.
    placed: AtomicU64,
    /// When it was last asked for. Monotonic milliseconds.
    asked: AtomicU64,
    /// No purge up to this one is about it.
    outlived: AtomicU64,
}

/// Entries that there were.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Kept {
    /// One that is fresh for so many milliseconds from now on.
    pub fn new(about: About, body: Vec<u8>, fresh: u64, now: Now) -> Self {
        Self::begun(about, Body::Owned(body), fresh, now)
    }

    fn begun(about: About, body: Body, fresh: u64, now: Now) -> Self {
        Self {
            outlived: AtomicU64::new(about.generation),
            about,
            body,
            chain: None,
            age: 0,
            fresh,
            since: now.monotonic,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            is_stored: AtomicBool::new(false),
            placed: AtomicU64::new(now.monotonic),
            asked: AtomicU64::new(now.monotonic),
        }
    }

    /// One that the store gave. A wall clock that was put back makes it no
    /// fresher than it was at first.
    pub fn from_store(stored: Stored, now: Now) -> Self {
        let Header {
            about,
            stored_at,
            expires_at,
        } = stored.header;
        let left = expires_at.saturating_sub(now.unix.max(stored_at));
        Self {
            age: now.unix.saturating_sub(stored_at),
            is_stored: AtomicBool::new(!stored.is_old),
            ..Self::begun(about, stored.body, left, now)
        }
    }

    /// The same entry in another form, which goes on from here: what happens to
    /// the one that is in memory counts.
    pub fn with_body(&self, body: Vec<u8>) -> Self {
        let same = |number: &AtomicU64| number.load(Ordering::Relaxed).into();
        Self {
            about: self.about.clone(),
            body: Body::Owned(body),
            chain: self.chain.clone(),
            is_stored: self.is_stored.load(Ordering::Relaxed).into(),
            placed: same(&self.placed),
            asked: same(&self.asked),
            outlived: same(&self.outlived),
            ..*self
        }
    }

    /// Whether they are forms of one entry.
    pub fn is_form_of(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// The same; if its chain is one of `chains`, it has to hold against that.
    #[must_use]
    pub fn among(mut self, chains: &Chains) -> Self {
        self.chain = chains.get(&self.about.namespace);
        self
    }

    fn stamp(&self) -> Option<Stamp<'_>> {
        let About {
            class,
            epoch,
            height,
            ..
        } = self.about;
        Some(Stamp::new(self.chain.as_ref()?, class, epoch, height))
    }

    /// Whether it is as true as when it was asked for, but for the time.
    pub fn holds(&self) -> bool {
        self.stamp().is_none_or(|stamp| stamp.holds())
    }

    /// Whether its chain is known to be the one that it was when it was stored,
    /// or nobody can tell.
    pub fn is_checked(&self) -> bool {
        self.stamp().is_none_or(|stamp| stamp.is_checked())
    }

    /// If it hangs on the head: what was true of an older one is over. Whether
    /// that is news.
    pub fn tell(&self) -> bool {
        self.stamp().is_some_and(|stamp| stamp.tell())
    }

    /// What was said of it.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Opaque.
    pub fn body(&self) -> &[u8] {
        self.body.as_ref()
    }

    /// If it was stored at a glance and nobody has read it yet: how long it
    /// is, in plain bytes.
    pub fn unread(&self) -> Option<u64> {
        wire::unread_length(self.body())
    }

    /// For how many milliseconds it is still fresh; 0: it is not.
    pub fn fresh(&self, now: Now) -> u64 {
        match self.holds() {
            true => self.fresh.saturating_sub(self.passed(now)),
            false => 0,
        }
    }

    /// How many milliseconds ago it was stored.
    pub fn age(&self, now: Now) -> u64 {
        self.age.saturating_add(self.passed(now))
    }

    /// Whether it should go to the store now that it is asked for. Says so
    /// once.
    pub fn is_to_be_stored(&self) -> bool {
        self.about.class.may_be_stored()
            && !self.is_stored.load(Ordering::Relaxed)
            && !self.is_stored.swap(true, Ordering::Relaxed)
    }

    /// The store has refused it: it may be asked to again.
    pub fn is_not_stored(&self) {
        self.is_stored.store(false, Ordering::Relaxed);
    }

    /// The store has got it.
    pub fn is_placed(&self, now: Now) {
        self.placed.store(now.monotonic, Ordering::Relaxed);
    }

    /// It [is to be stored](Self::is_to_be_stored) again if the store got it
    /// so many milliseconds ago, or longer.
    pub fn renew(&self, after: u64, now: Now) {
        let placed = self.placed.load(Ordering::Relaxed);
        if now.monotonic.saturating_sub(placed) >= after {
            // one of those who ask at the same time
            let renews = self.placed.compare_exchange(
                placed,
                now.monotonic,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if renews.is_ok() {
                self.is_not_stored();
            }
        }
    }

    /// When it was last asked for, in monotonic milliseconds.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether a purge up to `newest` is about it, as `judge` knows; it is asked
    /// once for each purge that there was.
    pub fn is_purged(&self, newest: u64, judge: impl FnOnce(&About) -> bool) -> bool {
        if self.outlived.load(Ordering::Relaxed) >= newest {
            return false;
        }
        let is_purged = judge(&self.about);
        if !is_purged {
            self.outlived.fetch_max(newest, Ordering::Relaxed);
        }
        is_purged
    }

    fn passed(&self, now: Now) -> u64 {
        now.monotonic.saturating_sub(self.since)
    }

    fn weight(&self) -> u64 {
        let length = match &self.body {
            Body::Owned(bytes) => bytes.capacity(),
            Body::Lent(lent) => (**lent).as_ref().len(),
        };
        length as u64 + OVERHEAD
    }
}

/// What an entry takes besides its body, with its place in the cache. Bytes.
const OVERHEAD: u64 = 256;

#[derive(Clone)]
struct ByWeight;

impl Weighter<Key, Arc<Kept>> for ByWeight {
    fn weight(&self, _: &Key, entry: &Arc<Kept>) -> u64 {
        entry.weight()
    }
}

/// Entries by key.
pub struct Memory {
    cache: Cache<Key, Arc<Kept>, ByWeight, RandomState, Evictions>,
    evictions: Evictions,
    max_entry: u64,
}

impl Memory {
    /// A tier of at most `capacity` bytes. An entry takes nine tenths of it at
    /// most.
    pub fn new(capacity: u64) -> Self {
        let evictions = Evictions::default();
        Self {
            cache: bounded(capacity, 1, ByWeight, evictions.clone()),
            evictions,
            max_entry: capacity / 10 * 9,
        }
    }

    /// Whether it takes an entry of that many bytes.
    pub fn takes(&self, length: usize) -> bool {
        length as u64 + OVERHEAD <= self.max_entry
    }

    /// What is under `key`, if it is fresh.
    pub fn get(&self, key: &Key, now: Now) -> Option<Arc<Kept>> {
        let kept = self.cache.get(key)?;
        if kept.fresh(now) == 0 {
            self.remove_this(key, &kept);
            return None;
        }
        kept.asked.store(now.monotonic, Ordering::Relaxed);
        Some(kept)
    }

    /// As [`get`](Self::get), but not counted as being asked for.
    pub fn peek(&self, key: &Key, now: Now) -> Option<Arc<Kept>> {
        self.cache.peek(key).filter(|kept| kept.fresh(now) > 0)
    }

    /// Puts an entry under `key`, in place of what was there. `false` if it
    /// is too large, or [lent](Body::Lent); nothing is then under that key.
    pub fn insert(&self, key: Key, kept: &Arc<Kept>) -> bool {
        if kept.weight() > self.max_entry || matches!(kept.body, Body::Lent(_)) {
            self.cache.remove(&key);
            return false;
        }
        self.cache.insert(key, Arc::clone(kept));
        true
    }

    /// Whether another entry than `kept`, in whichever form, is under that key.
    pub fn has_other(&self, key: &Key, kept: &Kept) -> bool {
        let there = self.cache.peek(key);
        there.is_some_and(|there| !there.is_form_of(kept))
    }

    /// The form of `kept` that somebody has read, if it is under that key.
    pub fn read_form_of(&self, key: &Key, kept: &Kept) -> Option<Arc<Kept>> {
        let there = self.cache.peek(key)?;
        (there.is_form_of(kept) && there.unread().is_none()).then_some(there)
    }

    /// Puts another entry, or another form of one, in the place of that which is
    /// there, if it is the one. Nothing else may be put under that key meanwhile.
    pub fn replace(&self, key: &Key, is_it: impl Fn(&Arc<Kept>) -> bool, by: &Arc<Kept>) -> bool {
        let is_there = self.cache.peek(key).is_some_and(|there| is_it(&there));
        is_there && self.cache.replace(*key, Arc::clone(by), true).is_ok()
    }

    /// Takes out `kept`, unless it was replaced.
    pub fn remove_this(&self, key: &Key, kept: &Arc<Kept>) {
        self.cache.remove_if(key, |other| Arc::ptr_eq(other, kept));
    }

    /// Takes out what was last asked for before then, in monotonic
    /// milliseconds.
    pub fn forget(&self, asked_before: u64) {
        self.sweep(|_, kept| kept.asked() < asked_before);
    }

    /// Takes out what is under `key`, if it goes. Whether it did.
    pub fn take_out(&self, key: &Key, goes: impl Fn(&Key, &Kept) -> bool) -> bool {
        let taken = self.cache.remove_if(key, |kept| goes(key, kept));
        taken.is_some()
    }

    /// Takes out what goes, one entry after the other: nobody waits for more
    /// than one of them. How many there were.
    pub fn sweep(&self, goes: impl Fn(&Key, &Kept) -> bool) -> u64 {
        let mut swept = 0;
        for (key, kept) in self.cache.iter() {
            if goes(&key, &kept) {
                self.remove_this(&key, &kept);
                swept += 1;
            }
        }
        swept
    }

    /// Those that are fresh, and belong to the store, but are not there.
    pub fn not_stored(&self, now: Now) -> Vec<(Key, Arc<Kept>)> {
        self.cache
            .iter()
            .filter(|(_, kept)| kept.fresh(now) > 0 && kept.is_to_be_stored())
            .collect()
    }

    /// What the entries weigh, in bytes. Never more than the capacity.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// How much they may weigh, in bytes.
    pub fn capacity(&self) -> u64 {
        self.cache.capacity()
    }

    /// How many have left because others needed their room.
    pub fn evictions(&self) -> u64 {
        self.evictions.count()
    }

    /// How many there are, stale ones too.
    pub fn count(&self) -> usize {
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::class::Class;

    const KEY: Key = [7; 32];

    fn at(monotonic: u64) -> Now {
        Now {
            monotonic,
            unix: 1_000_000 + monotonic,
        }
    }

    fn about(class: Class) -> About {
        About {
            class,
            namespace: [1; 16],
            ..About::default()
        }
    }

    fn kept(class: Class, fresh: u64) -> Arc<Kept> {
        Arc::new(Kept::new(about(class), vec![1; 100], fresh, at(0)))
    }

    #[test]
    fn an_entry_is_there_while_it_is_fresh() {
        let memory = Memory::new(10_000);
        assert!(memory.insert(KEY, &kept(Class::Tip, 1_500)));
        let entry = memory.get(&KEY, at(1_499)).unwrap();
        assert_eq!((entry.fresh(at(1_499)), entry.age(at(1_499))), (1, 1_499));
        assert!(memory.peek(&KEY, at(1_499)).is_some());
        assert!(memory.get(&KEY, at(1_500)).is_none());
        assert!(memory.count() == 0);
    }

    #[test]
    fn it_is_bounded() {
        let memory = Memory::new(10_000);
        let large = Kept::new(about(Class::Immutable), vec![0; 9_000], 1_000, at(0));
        assert!(memory.insert(KEY, &kept(Class::Immutable, 1_000)));
        assert!(!memory.insert(KEY, &Arc::new(large)));
        assert!(memory.get(&KEY, at(0)).is_none());
        for n in 0..200u8 {
            assert!(memory.insert([n; 32], &kept(Class::Immutable, 1_000)));
            assert!(memory.bytes() <= memory.capacity());
        }
        assert!(memory.count() > 20);
        assert_eq!(memory.evictions(), 200 - memory.count() as u64);
    }

    #[test]
    fn what_is_lent_is_not_kept() {
        let memory = Memory::new(100_000);
        for is_lent in [false, true] {
            let body = match is_lent {
                true => Body::Lent(Arc::new([2; 10])),
                false => Body::Lent(Arc::new([2; 10])).into_owned(),
            };
            let stored = Stored {
                header: Header {
                    about: about(Class::Resource),
                    stored_at: at(0).unix,
                    expires_at: at(1_000).unix,
                },
                body,
                is_old: false,
            };
            let kept = Arc::new(Kept::from_store(stored, at(0)));
            assert_eq!(kept.body(), [2; 10]);
            assert_eq!(memory.insert(KEY, &kept), !is_lent);
            assert_eq!(memory.peek(&KEY, at(0)).is_some(), !is_lent);
        }
    }

    #[test]
    fn what_comes_from_the_store_keeps_its_age() {
        let stored = |is_old| Stored {
            header: Header {
                about: about(Class::Resource),
                stored_at: 1_000_000,
                expires_at: 1_010_000,
            },
            body: Body::Owned(vec![2; 10]),
            is_old,
        };
        let entry = Kept::from_store(stored(false), at(4_000));
        assert_eq!(
            (entry.age(at(5_000)), entry.fresh(at(5_000))),
            (5_000, 5_000)
        );
        assert!(!entry.is_to_be_stored());
        assert!(Kept::from_store(stored(true), at(0)).is_to_be_stored());
        // the wall clock was put back by an hour
        let early = Now {
            monotonic: 0,
            unix: 0,
        };
        let entry = Kept::from_store(stored(false), early);
        assert_eq!((entry.age(early), entry.fresh(early)), (0, 10_000));
    }

    #[test]
    fn another_form_takes_only_its_own_entrys_place() {
        let memory = Memory::new(10_000);
        let (old, newer) = (kept(Class::Immutable, 1_000), kept(Class::Immutable, 1_000));
        let form = Arc::new(old.with_body(vec![2; 10]));
        assert!(form.is_form_of(&old) && !newer.is_form_of(&old));
        let put = |kept: &Arc<Kept>, by| memory.replace(&KEY, |there| Arc::ptr_eq(there, kept), by);
        assert!(!put(&old, &form));
        assert!(memory.count() == 0 && !memory.has_other(&KEY, &old));
        memory.insert(KEY, &old);
        let before = memory.bytes();
        assert!(put(&old, &form));
        assert!(!memory.has_other(&KEY, &old) && memory.has_other(&KEY, &newer));
        assert_eq!(memory.peek(&KEY, at(0)).unwrap().body(), [2; 10]);
        assert_eq!(memory.bytes(), before - 90);
        assert_eq!(form.fresh(at(400)), old.fresh(at(400)));
        // it goes on from where the other was
        assert!(form.is_to_be_stored() && !form.with_body(vec![3]).is_to_be_stored());
        memory.insert(KEY, &newer);
        assert!(!put(&form, &old));
        assert!(Arc::ptr_eq(&memory.peek(&KEY, at(0)).unwrap(), &newer));
    }

    #[test]
    fn what_the_store_has_is_put_there_again_in_time_and_once() {
        let entry = kept(Class::Immutable, 10_000);
        assert!(entry.is_to_be_stored());
        entry.is_placed(at(100));
        entry.renew(50, at(149));
        assert!(!entry.is_to_be_stored());
        entry.renew(50, at(150));
        assert!(entry.is_to_be_stored());
        entry.renew(50, at(199));
        assert!(!entry.is_to_be_stored());
    }

    #[test]
    fn a_sweep_takes_out_what_goes_and_nothing_else() {
        let memory = Memory::new(1 << 20);
        for n in 0..200u8 {
            memory.insert([n; 32], &kept(Class::Immutable, 1_000));
            if n % 3 == 0 {
                // they lie in another part of the cache
                memory.get(&[n; 32], at(1)).unwrap();
            }
        }
        assert_eq!(memory.sweep(|key, _| key[0] % 2 == 0), 100);
        assert_eq!(memory.count(), 100);
        assert!((0..200u8).all(|n| memory.peek(&[n; 32], at(1)).is_some() == (n % 2 == 1)));
        assert_eq!(memory.sweep(|_, _| true), 100);
        assert_eq!((memory.count(), memory.bytes()), (0, 0));
    }

    #[test]
    fn a_purge_is_judged_once() {
        let entry = kept(Class::Immutable, 1_000);
        let never = |_: &About| panic!("there was none since");
        assert!(!entry.is_purged(0, never));
        assert!(!entry.is_purged(1, |_| false));
        assert!(!entry.is_purged(1, never));
        assert!(entry.is_purged(2, |_| true));
        assert!(entry.is_purged(2, |_| true));
        let other = entry.with_body(vec![1]);
        assert!(!other.is_purged(1, never) && other.is_purged(2, |_| true));
    }
}
