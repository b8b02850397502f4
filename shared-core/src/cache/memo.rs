//! The keys of calls that were hits, by their very bytes.
//!
//! Whoever asks for what many ask for writes it in the same way each time, but
//! for the id. To compare some hundred bytes is far cheaper than to put them
//! into canonical form, hash them and find the block that they are about. A
//! call that is remembered has the same scope, method and params, byte for
//! byte, and is judged by the same lifetimes: it can have no other key.
//!
//! Only hits are remembered, so that asking for what is not stored costs
//! nothing more; in a table of fixed size, where the newer of two takes the
//! place.

use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use foldhash::fast::RandomState;

use super::freshness::{Prospect, Valid};
use super::Key;

/// Calls that are remembered; a power of two.
const SLOTS: usize = 1024;

/// The longest that is, in bytes of scope, method and params. With [`SLOTS`]
/// it bounds the table to some 600 KiB.
const MOST: usize = 512;

/// The [bytes of a scope](super::scope::Scope::bytes), hashed once for all the
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
    /// The method's name.
    pub method: &'a [u8],
    /// As they were written; `None`: there are none.
    pub params: Option<&'a [u8]>,
}

impl Spelling<'_> {
    fn length(&self) -> usize {
        self.scope.bytes.len() + self.method.len() + self.params.map_or(0, <[u8]>::len)
    }
}

#[derive(Debug)]
struct Slot {
    /// Kept from being freed, so that its address stays its own.
    valid: Weak<Valid>,
    /// Scope, method, params.
    text: Box<[u8]>,
    scope: usize,
    method: usize,
    has_params: bool,
    found: (Key, Prospect),
}

impl Slot {
    fn is(&self, valid: &Arc<Valid>, call: &Spelling<'_>) -> bool {
        let (scope, rest) = self.text.split_at(self.scope);
        let (method, params) = rest.split_at(self.method);
        self.valid.as_ptr() == Arc::as_ptr(valid)
            && method == call.method
            && params == call.params.unwrap_or_default()
            && self.has_params == call.params.is_some()
            && scope == call.scope.bytes
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Memo {
    slots: Mutex<Vec<Option<Slot>>>,
    hasher: RandomState,
}

impl Memo {
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
            // a slot is never half-written
            slots: self.slots.lock().unwrap_or_else(PoisonError::into_inner),
            hasher: &self.hasher,
        }
    }
}

/// The table, to be looked at and changed.
#[derive(Debug)]
pub struct Locked<'a> {
    slots: MutexGuard<'a, Vec<Option<Slot>>>,
    hasher: &'a RandomState,
}

impl Locked<'_> {
    fn place(&self, call: &Spelling<'_>) -> usize {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(call.method);
        hasher.write(call.params.unwrap_or_default());
        hasher.write_u64(call.scope.hash);
        // far below 2^32 slots
        hasher.finish() as usize % SLOTS
    }

    /// The key and the prospect of a call, if it is remembered. `valid` are
    /// the lifetimes it is judged by.
    pub fn find(&self, valid: &Arc<Valid>, call: &Spelling<'_>) -> Option<(Key, Prospect)> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slots.get(self.place(call))?.as_ref()?;
        slot.is(valid, call).then_some(slot.found)
    }

    /// Remembers a call, unless it is too long or there is no memory.
    pub fn keep(&mut self, valid: &Arc<Valid>, call: &Spelling<'_>, found: (Key, Prospect)) {
        let length = call.length();
        let mut text = Vec::new();
        if length > MOST || text.try_reserve_exact(length).is_err() {
            return;
        }
        if self.slots.is_empty() {
            if self.slots.try_reserve_exact(SLOTS).is_err() {
                return;
            }
            self.slots.resize_with(SLOTS, || None);
        }
        for part in [
            call.scope.bytes,
            call.method,
            call.params.unwrap_or_default(),
        ] {
            text.extend_from_slice(part);
        }
        let place = self.place(call);
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Some(Slot {
                valid: Arc::downgrade(valid),
                text: text.into(),
                scope: call.scope.bytes.len(),
                method: call.method.len(),
                has_params: call.params.is_some(),
                found,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Memo, Spelling, MOST, SLOTS};
    use crate::cache::freshness::{Class, Prospect, Valid};

    fn spelling<'a>(
        memo: &Memo,
        scope: &'a str,
        method: &'a str,
        params: Option<&'a str>,
    ) -> Spelling<'a> {
        Spelling {
            scope: memo.hashed(scope.as_bytes()),
            method: method.as_bytes(),
            params: params.map(str::as_bytes),
        }
    }

    fn prospect() -> Prospect {
        Prospect::of(b"eth_chainId", None, &Valid::default()).unwrap()
    }

    #[test]
    fn only_the_very_same_call_is_found() {
        let memo = Memo::default();
        let valid = Arc::new(Valid::default());
        let kept = spelling(&memo, "scope", "eth_chainId", Some("[]"));
        assert!(memo.lock().find(&valid, &kept).is_none());
        memo.lock().keep(&valid, &kept, ([7; 32], prospect()));
        assert_eq!(memo.lock().find(&valid, &kept).unwrap().0, [7; 32]);
        for other in [
            spelling(&memo, "scope", "eth_chainId", Some("[ ]")),
            spelling(&memo, "scope", "eth_chainId", Some("")),
            spelling(&memo, "scope", "eth_chainId", None),
            spelling(&memo, "scope", "eth_chainI", Some("d[]")),
            spelling(&memo, "scop", "eeth_chainId", Some("[]")),
            spelling(&memo, "other", "eth_chainId", Some("[]")),
        ] {
            // wherever it would be: the table is full of it
            let mut memo = memo.lock();
            for slot in memo.slots.iter_mut() {
                *slot = None;
            }
            memo.keep(&valid, &kept, ([7; 32], prospect()));
            let place = memo.place(&kept);
            let slot = memo.slots[place].as_ref().unwrap();
            assert!(
                slot.is(&valid, &kept) && !slot.is(&valid, &other),
                "{other:?}"
            );
        }
    }

    #[test]
    fn absent_params_are_not_empty_ones() {
        let memo = Memo::default();
        let valid = Arc::new(Valid::default());
        let absent = spelling(&memo, "", "eth_chainId", None);
        memo.lock().keep(&valid, &absent, ([1; 32], prospect()));
        let empty = spelling(&memo, "", "eth_chainId", Some(""));
        assert!(memo.lock().find(&valid, &empty).is_none());
    }

    #[test]
    fn other_lifetimes_are_another_judgement() {
        let memo = Memo::default();
        let mut valid = Arc::new(Valid::default());
        let call = spelling(&memo, "", "eth_chainId", None);
        memo.lock().keep(&valid, &call, ([1; 32], prospect()));
        assert!(memo
            .lock()
            .find(&Arc::new(Valid::default()), &call)
            .is_none());
        assert!(memo.lock().find(&valid, &call).is_some());
        // changed: what is remembered was not judged by it
        let _ = Arc::make_mut(&mut valid).set_class(Class::Immutable, 0);
        assert!(memo.lock().find(&valid, &call).is_none());
        // freed: nothing new can come to lie where it was
        drop(valid);
        for _ in 0..1000 {
            let next = Arc::new(Valid::default());
            assert!(memo.lock().find(&next, &call).is_none());
        }
    }

    #[test]
    fn the_table_does_not_grow() {
        let memo = Memo::default();
        let valid = Arc::new(Valid::default());
        for n in 0..4 * SLOTS {
            let params = format!("[{n}]");
            let call = spelling(&memo, "scope", "eth_call", Some(&params));
            memo.lock().keep(&valid, &call, ([2; 32], prospect()));
            assert!(memo.lock().find(&valid, &call).is_some());
        }
        assert_eq!(memo.lock().slots.len(), SLOTS);
        let long = "1".repeat(MOST);
        let call = spelling(&memo, "", "m", Some(&long));
        memo.lock().keep(&valid, &call, ([3; 32], prospect()));
        assert!(memo.lock().find(&valid, &call).is_none());
    }
}
