//! The keys of calls that were hits, by their very bytes.
//!
//! Whoever asks for what many ask for writes it in the same way each time, but
//! for the id. To compare some hundred bytes is far cheaper than to read a
//! call, put it into canonical form, hash it and find the block that it is
//! about. A call that is remembered stands in the same scope, has the same text
//! around its id, byte for byte, and is judged by the same lifetimes: it is the
//! same call, and can have no other key.
//!
//! Only hits are remembered, so that asking for what is not stored costs
//! little more; in a table of fixed size, where two share each place and the
//! newer one drives out the older.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::{Arc, MutexGuard, Weak};

use foldhash::fast::RandomState;

use super::own::Own;
use crate::cache::freshness::{Prospect, Valid};
use crate::cache::Key;

/// Places; a power of two.
const PLACES: usize = 512;

/// Calls that share a place: with one, a tenth of a hundred calls would drive
/// one another out.
const SHARE: usize = 2;

/// The longest call that is remembered, in bytes of scope and text. It bounds
/// the table to some 800 KiB. Nothing so short is nested too deep to be read.
pub const MOST: usize = 640;

/// The [bytes of a scope](crate::cache::scope::Scope::bytes), hashed once for all the
/// calls of a request: see [`Memo::hashed`].
#[derive(Clone, Copy, Debug)]
pub struct Hashed<'a> {
    bytes: &'a [u8],
    hash: u64,
}

/// What decides a call's key and prospect, as it came.
#[derive(Clone, Copy, Debug)]
pub struct Spelling<'a> {
    /// What tells places apart.
    pub scope: Hashed<'a>,
    /// The call's text up to its id.
    pub before: &'a [u8],
    /// The text after it.
    pub after: &'a [u8],
}

impl Spelling<'_> {
    fn length(&self) -> usize {
        self.scope.bytes.len() + self.before.len() + self.after.len()
    }
}

/// What is known of a call. Ranges are of its text without the id.
#[derive(Clone, Debug)]
pub struct Remembered {
    /// What its answer is stored under.
    pub key: Key,
    /// For how long.
    pub prospect: Prospect,
    /// Where the method's name is.
    pub method: Range<usize>,
    /// Where the params are, if there are any.
    pub params: Option<Range<usize>>,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    /// Kept from being freed, so that its address stays its own.
    valid: Weak<Valid>,
    /// What is before the id, what is after it, the scope.
    text: Box<[u8]>,
    before: usize,
    after: usize,
    known: Remembered,
}

impl Slot {
    fn is(&self, valid: &Arc<Valid>, call: &Spelling<'_>) -> bool {
        let (before, rest) = self.text.split_at(self.before);
        let (after, scope) = rest.split_at(self.after);
        self.valid.as_ptr() == Arc::as_ptr(valid)
            && before == call.before
            && after == call.after
            && scope == call.scope.bytes
    }
}

/// The table; with several event loops each has one, and learns for itself.
#[derive(Debug, Default)]
pub struct Memo {
    slots: Own<Vec<[Option<Slot>; SHARE]>>,
    hasher: RandomState,
}

impl Memo {
    /// There are so many event loops. A second call changes nothing.
    pub fn spread(&self, event_loops: usize) {
        self.slots.spread(event_loops);
    }

    /// A scope, for this table.
    pub fn hashed<'a>(&self, scope: &'a [u8]) -> Hashed<'a> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(scope);
        Hashed {
            bytes: scope,
            hash: hasher.finish(),
        }
    }

    /// The table, for as long as nobody else needs it.
    pub fn lock(&self) -> Locked<'_> {
        Locked {
            slots: self.slots.lock(),
            hasher: &self.hasher,
        }
    }
}

/// The table, to be looked at and changed.
#[derive(Debug)]
pub struct Locked<'a> {
    slots: MutexGuard<'a, Vec<[Option<Slot>; SHARE]>>,
    hasher: &'a RandomState,
}

impl Locked<'_> {
    fn hash(&self, call: &Spelling<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(call.before);
        hasher.write(call.after);
        hasher.write_u64(call.scope.hash);
        hasher.finish()
    }

    /// What is known of a call, if it is remembered. `valid` are the lifetimes
    /// it is judged by.
    pub fn find(&self, valid: &Arc<Valid>, call: &Spelling<'_>) -> Option<&Remembered> {
        if self.slots.is_empty() {
            return None;
        }
        let hash = self.hash(call);
        let slots = self.slots.get(place(hash))?.iter().flatten();
        slots
            .filter(|slot| slot.hash == hash)
            .find(|slot| slot.is(valid, call))
            .map(|slot| &slot.known)
    }

    /// Remembers a call, unless it is too long or there is no memory.
    pub fn keep(&mut self, valid: &Arc<Valid>, call: &Spelling<'_>, known: Remembered) {
        let length = call.length();
        let mut text = Vec::new();
        if length > MOST || text.try_reserve_exact(length).is_err() {
            return;
        }
        if self.slots.is_empty() {
            if self.slots.try_reserve_exact(PLACES).is_err() {
                return;
            }
            self.slots.resize_with(PLACES, || [None, None]);
        }
        for part in [call.before, call.after, call.scope.bytes] {
            text.extend_from_slice(part);
        }
        let hash = self.hash(call);
        if let Some([newer, older]) = self.slots.get_mut(place(hash)) {
            let slot = Slot {
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

fn place(hash: u64) -> usize {
    // far below 2^32 places
    hash as usize % PLACES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Locked, Memo, Remembered, Spelling, MOST, PLACES, SHARE};
    use crate::cache::class::Class;
    use crate::cache::freshness::{Prospect, Valid};

    fn spelling<'a>(memo: &Memo, scope: &'a str, before: &'a str, after: &'a str) -> Spelling<'a> {
        Spelling {
            scope: memo.hashed(scope.as_bytes()),
            before: before.as_bytes(),
            after: after.as_bytes(),
        }
    }

    fn known(n: u8) -> Remembered {
        Remembered {
            key: [n; 32],
            prospect: Prospect::of(b"eth_chainId", None, &Valid::default()).unwrap(),
            method: 0..0,
            params: None,
        }
    }

    fn found(memo: &Locked<'_>, valid: &Arc<Valid>, call: &Spelling<'_>) -> Option<u8> {
        memo.find(valid, call).map(|known| known.key[0])
    }

    #[test]
    fn only_the_very_same_call_is_found() {
        let memo = Memo::default();
        let valid = Arc::new(Valid::default());
        let kept = spelling(&memo, "scope", "before", "after");
        assert_eq!(found(&memo.lock(), &valid, &kept), None);
        memo.lock().keep(&valid, &kept, known(7));
        assert_eq!(found(&memo.lock(), &valid, &kept), Some(7));
        for other in [
            spelling(&memo, "scope", "before", "after "),
            spelling(&memo, "scope", "before", ""),
            spelling(&memo, "scope", "befor", "eafter"),
            spelling(&memo, "scope", "", "beforeafter"),
            spelling(&memo, "rscope", "before", "afte"),
            spelling(&memo, "", "before", "afterscope"),
            spelling(&memo, "other", "before", "after"),
        ] {
            let memo = memo.lock();
            assert_eq!(found(&memo, &valid, &other), None, "{other:?}");
            // whatever the hash is
            let mut slots = memo.slots.iter().flatten().flatten();
            assert!(slots.all(|slot| !slot.is(&valid, &other)), "{other:?}");
        }
    }

    #[test]
    fn two_share_a_place_and_the_newer_drives_out_the_older() {
        let memo = Memo::default();
        let valid = Arc::new(Valid::default());
        let texts: Vec<String> = (0..PLACES * 20).map(|n| n.to_string()).collect();
        let calls: Vec<_> = texts
            .iter()
            .map(|text| spelling(&memo, "", text, ""))
            .collect();
        let mut memo = memo.lock();
        let place = super::place(memo.hash(&calls[0]));
        let others = calls[1..]
            .iter()
            .filter(|call| super::place(memo.hash(call)) == place);
        let others: Vec<_> = others.copied().take(SHARE).collect();
        memo.keep(&valid, &calls[0], known(0));
        memo.keep(&valid, &others[0], known(1));
        assert_eq!(found(&memo, &valid, &calls[0]), Some(0));
        assert_eq!(found(&memo, &valid, &others[0]), Some(1));
        memo.keep(&valid, &others[1], known(2));
        assert_eq!(found(&memo, &valid, &calls[0]), None);
        assert_eq!(found(&memo, &valid, &others[0]), Some(1));
        assert_eq!(found(&memo, &valid, &others[1]), Some(2));
    }

    #[test]
    fn other_lifetimes_are_another_judgement() {
        let memo = Memo::default();
        let mut valid = Arc::new(Valid::default());
        let call = spelling(&memo, "", "a", "b");
        memo.lock().keep(&valid, &call, known(1));
        let other = Arc::new(Valid::default());
        assert_eq!(found(&memo.lock(), &other, &call), None);
        assert_eq!(found(&memo.lock(), &valid, &call), Some(1));
        // changed: what is remembered was not judged by it
        let _ = Arc::make_mut(&mut valid).set_class(Class::Immutable, 0);
        assert_eq!(found(&memo.lock(), &valid, &call), None);
        // freed: nothing new can come to lie where it was
        drop(valid);
        for _ in 0..1000 {
            let next = Arc::new(Valid::default());
            assert_eq!(found(&memo.lock(), &next, &call), None);
        }
    }

    #[test]
    fn the_table_does_not_grow() {
        let memo = Memo::default();
        let valid = Arc::new(Valid::default());
        for n in 0..4 * PLACES {
            let after = format!("[{n}]");
            let call = spelling(&memo, "scope", "eth_call", &after);
            memo.lock().keep(&valid, &call, known(2));
            assert_eq!(found(&memo.lock(), &valid, &call), Some(2));
        }
        assert_eq!(memo.lock().slots.len(), PLACES);
        let long = "1".repeat(MOST);
        let call = spelling(&memo, "", "m", &long);
        memo.lock().keep(&valid, &call, known(3));
        assert_eq!(found(&memo.lock(), &valid, &call), None);
    }
}
