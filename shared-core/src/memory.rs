//! How much memory held bodies may take, over all exchanges of a process.
//!
//! A limit per connection alone does not bound a process: a thousand clients
//! within their limits still exhaust it. Beyond the budget an answer passes
//! through as it came, which costs size and never an answer.

use std::alloc::{realloc, Layout};
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

/// Memory was refused to an allocation that can't fail.
static SHORT: AtomicBool = AtomicBool::new(false);

/// Whether the system has no memory left, not even for small things: nothing
/// is held, looked up or stored then, but passed through.
///
/// Only the process's allocator finds that out (feature `ffi`); under another
/// one it never is.
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed)
}

/// For the process's allocator: what [`is_short`] says from now on.
pub fn set_short(short: bool) {
    SHORT.store(short, Ordering::Relaxed);
}

/// Whether so many bytes could be allocated now. For what is about to allocate
/// them in a way that can't be refused: others may take them meanwhile.
pub fn is_there(bytes: usize) -> bool {
    let mut room = Vec::<u8>::new();
    // or the compiler, which may, leaves both out
    black_box(&mut room).try_reserve_exact(bytes).is_ok()
}

/// Gives back what a body does not use of its memory. An allocator that moves what becomes
/// shorter may refuse that: it stays as long as it is then.
#[allow(unsafe_code)]
pub fn fit(body: &mut Vec<u8>) {
    let (length, room) = (body.len(), body.capacity());
    let Ok(layout) = Layout::array::<u8>(room) else {
        return;
    };
    if length == room || length == 0 {
        return body.shrink_to_fit();
    }
    let mut longer = ManuallyDrop::new(std::mem::take(body));
    // SAFETY: it has that layout, and the length is neither 0 nor more than that.
    let memory = unsafe { realloc(longer.as_mut_ptr(), layout, length) };
    *body = match memory.is_null() {
        true => ManuallyDrop::into_inner(longer),
        // SAFETY: so many bytes are there, which nobody else has.
        false => unsafe { Vec::from_raw_parts(memory, length, length) },
    };
}

/// From so many bytes on a body's memory goes back to the system while it is copied.
pub(crate) const LONG: usize = 8 << 20;

/// In pieces of so many.
const PIECE: usize = 1 << 20;

/// Gives out a long body, or a part of one, to somebody who copies it. Its memory goes
/// back to the system on the way, so that little of it is there twice: what its bytes are
/// from then on is not known.
pub(crate) fn give_out(bytes: &mut [u8], mut to: impl FnMut(&[u8])) {
    for piece in bytes.chunks_mut(PIECE) {
        to(piece);
        give_back(piece);
    }
}

/// Gives back the memory of bytes that nobody will read, but for the pages at both ends
/// that others have a part of. They can be written again.
///
/// What becomes shorter stays where it is with most allocators, or is copied: so it is not
/// made shorter.
#[allow(unsafe_code)]
pub(crate) fn give_back(bytes: &mut [u8]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{madvise, Advice};
        let page = rustix::param::page_size();
        let all = bytes.as_mut_ptr_range();
        let before = all.start.align_offset(page).min(bytes.len());
        let whole = (bytes.len() - before) / page * page;
        // SAFETY: nobody else has these bytes, which are zero after it, or, where it is
        // refused, as they were.
        let _ = unsafe {
            let start = all.start.add(before);
            madvise(start.cast(), whole, Advice::LinuxDontNeed)
        };
    }
    let _ = bytes;
}

/// Bytes held by the exchanges that share it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    bytes: AtomicUsize,
    /// How many have some of them.
    holders: AtomicUsize,
}

impl Budget {
    /// An empty budget.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes reserved now.
    pub fn used(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// How many reservations they are in.
    pub fn holders(&self) -> usize {
        self.0.holders.load(Ordering::Relaxed)
    }

    /// Reserves `bytes`, unless more than `limit` would then be in use.
    pub fn reserve(&self, bytes: usize, limit: usize) -> Option<Reservation> {
        self.take(bytes, limit).then(|| {
            self.0.holders.fetch_add(1, Ordering::Relaxed);
            Reservation {
                budget: self.clone(),
                bytes,
            }
        })
    }

    fn take(&self, bytes: usize, limit: usize) -> bool {
        self.take_leaving(bytes, limit, 0)
    }

    /// Takes `bytes`, unless less than `left` of `limit` would then be free.
    fn take_leaving(&self, bytes: usize, limit: usize, left: usize) -> bool {
        let limit = limit.saturating_sub(left);
        let more = |used: usize| used.checked_add(bytes).filter(|total| *total <= limit);
        let used = &self.0.bytes;
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}

/// Bytes of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: usize,
}

impl Reservation {
    /// The budget that they are taken from.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// How many they are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes as much as makes it `bytes`, unless more than `limit` would then
    /// be in use. `false` if not. Never gives back.
    pub fn grow_to(&mut self, bytes: usize, limit: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grows = self.budget.take(more, limit);
        if grows {
            self.bytes += more;
        }
        grows
    }

    /// Grows as [`grow_to`](Self::grow_to) does, unless less than `bytes` would then be
    /// free for all others: one holder gets half of the memory at most, and each of `n`
    /// equal holders one part of `n + 1`.
    pub fn grow_to_share(&mut self, bytes: usize, limit: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grows = more == 0 || self.budget.take_leaving(more, limit, bytes);
        if grows {
            self.bytes += more;
        }
        grows
    }

    /// Gives back all but `bytes`. Never takes more.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            let given = self.bytes - bytes;
            self.budget.0.bytes.fetch_sub(given, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
        self.budget.0.holders.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_not_used_is_given_back() {
        for length in [0, 1, 1000, 1 << 20] {
            let mut body = Vec::with_capacity(1 << 20);
            body.extend((0..length).map(|at| at as u8));
            let before = body.clone();
            super::fit(&mut body);
            assert!(body == before && body.capacity() == length);
        }
    }

    #[test]
    fn what_is_given_out_goes_back() {
        let all: Vec<u8> = (0..5 << 20).map(|at| (at >> 8) as u8 | 1).collect();
        for part in [
            0..0,
            0..3,
            0..all.len(),
            4095..4 << 20,
            5000..5001,
            5000..9000,
        ] {
            let (mut body, mut copy) = (all.clone(), Vec::new());
            super::give_out(&mut body[part.clone()], |piece| {
                copy.extend_from_slice(piece);
            });
            assert!(copy == all[part.clone()]);
            // what is beside it stays
            assert!(body[..part.start] == all[..part.start] && body[part.end..] == all[part.end..]);
            let left = body[part.clone()].iter().filter(|byte| **byte != 0).count();
            if cfg!(target_os = "linux") {
                assert!(
                    left <= 12 * rustix::param::page_size(),
                    "{left} of {part:?}"
                );
            }
        }
    }

    use super::Budget;

    #[test]
    fn a_budget_is_never_exceeded_and_returns_to_zero() {
        let budget = Budget::new();
        let mut first = budget.reserve(60, 100).unwrap();
        assert!(budget.reserve(41, 100).is_none());
        let second = budget.reserve(40, 100).unwrap();
        assert_eq!(budget.used(), 100);
        first.shrink_to(10);
        assert_eq!(budget.used(), 50);
        first.shrink_to(90);
        assert_eq!(budget.used(), 50);
        assert_eq!(budget.holders(), 2);
        drop(first);
        drop(second);
        assert_eq!((budget.used(), budget.holders()), (0, 0));
    }

    #[test]
    fn a_reservation_grows_only_within_the_limit() {
        let budget = Budget::new();
        let mut held = budget.reserve(10, 100).unwrap();
        assert!(held.grow_to(100, 100) && !held.grow_to(101, 100));
        assert!(held.grow_to(50, 100));
        assert_eq!(budget.used(), 100);
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn holders_with_a_share_always_leave_as_much_as_each_has() {
        let budget = Budget::new();
        let mut holders: Vec<_> = (0..17).map(|_| budget.reserve(0, 1800).unwrap()).collect();
        assert!(holders[0].grow_to_share(900, 1800) && !holders[0].grow_to_share(901, 1800));
        holders[0].shrink_to(0);
        for bytes in 1..=1000 {
            for holder in &mut holders {
                holder.grow_to_share(bytes, 1800);
            }
        }
        assert!(holders.iter().all(|holder| holder.bytes() == 100));
        assert_eq!(budget.used(), 1700);
    }

    #[test]
    fn a_sum_beyond_the_address_space_is_refused() {
        let budget = Budget::new();
        let _held = budget.reserve(1, usize::MAX).unwrap();
        assert!(budget.reserve(usize::MAX, usize::MAX).is_none());
    }
}
