//! The memory budget of buffered bodies, over all exchanges of a process.
//!
//! A limit per connection does not bound a process: a thousand clients within their limits can
//! still exhaust it. Beyond the budget a response is passed unchanged, which costs compression
//! and never a response.

use std::alloc::{realloc, Layout};
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

/// Whether memory was refused to an allocation that can't fail.
static MEMORY_IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Whether the system has no memory left, not even for small allocations: nothing is buffered,
/// looked up or stored then, and responses are passed unchanged.
///
/// Only the allocator of the process detects this (feature `ffi`); with another allocator the
/// result is always `false`.
pub fn is_memory_short() -> bool {
    MEMORY_IS_SHORT.load(Ordering::Relaxed)
}

/// Sets the result of [`is_memory_short`]. Called by the allocator of the process.
pub fn set_memory_short(short: bool) {
    MEMORY_IS_SHORT.store(short, Ordering::Relaxed);
}

/// Whether `bytes` could be allocated now. For callers that are about to allocate them in a way
/// that can't report a refusal; another thread may allocate them meanwhile.
pub fn can_allocate_now(bytes: usize) -> bool {
    let mut room = Vec::<u8>::new();
    // the compiler may otherwise remove the allocation
    black_box(&mut room).try_reserve_exact(bytes).is_ok()
}

/// Releases the unused capacity of a body. An allocator that would have to move the block may
/// refuse; the capacity stays as it is then.
#[allow(unsafe_code)]
pub fn release_unused_capacity(body: &mut Vec<u8>) {
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
        // SAFETY: the memory has that many bytes, and no other owner.
        false => unsafe { Vec::from_raw_parts(memory, length, length) },
    };
}

/// Maximum length in bytes of an allocation that an allocator may take from its reserve. Longer
/// ones are made in ways that may be refused.
pub const MAX_RESERVE_ALLOCATION: usize = 64 << 10;

/// Length in bytes from which the memory of a body is released while it is drained.
pub(crate) const DRAINED_BODY_BYTES: usize = 8 << 20;

/// Length in bytes of the pieces in which a body is drained.
const DRAIN_PIECE_BYTES: usize = 1 << 20;

/// Passes a long body, or a part of one, to a host that copies it. Its memory is released piece
/// by piece, so that little of it exists twice; the contents of `bytes` are undefined
/// afterwards.
pub(crate) fn drain_body_to_host(bytes: &mut [u8], mut to: impl FnMut(&[u8])) {
    for piece in bytes.chunks_mut(DRAIN_PIECE_BYTES) {
        to(piece);
        release_pages(piece);
    }
}

/// Releases the memory of bytes that are not read any more, except the pages at both ends that
/// are shared with other data. The bytes can be written again.
///
/// A vector is not shrunk instead, because most allocators leave it in place or copy it.
#[allow(unsafe_code)]
pub(crate) fn release_pages(bytes: &mut [u8]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{madvise, Advice};
        let page = rustix::param::page_size();
        let all = bytes.as_mut_ptr_range();
        let before = all.start.align_offset(page).min(bytes.len());
        let whole = (bytes.len() - before) / page * page;
        // SAFETY: these bytes have no other owner; they are zero afterwards or, if the call
        // fails, unchanged.
        let _ = unsafe {
            let start = all.start.add(before);
            madvise(start.cast(), whole, Advice::LinuxDontNeed)
        };
    }
    let _ = bytes;
}

/// The bytes that the exchanges of a process have reserved for bodies and encoders; each
/// reservation states the limit that it respects. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct MemoryBudget(Arc<BudgetState>);

/// The counts that all clones of a budget share.
#[derive(Debug, Default)]
struct BudgetState {
    bytes: AtomicUsize,
    /// Number of reservations.
    holders: AtomicUsize,
}

impl MemoryBudget {
    /// Returns a budget without reservations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of bytes that are reserved now.
    pub fn reserved_bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Number of reservations.
    pub fn reservation_count(&self) -> usize {
        self.0.holders.load(Ordering::Relaxed)
    }

    /// Reserves `bytes`, unless more than `limit` would then be in use.
    pub fn reserve_bytes(&self, bytes: usize, limit: usize) -> Option<MemoryReservation> {
        self.take_budget_bytes(bytes, limit).then(|| {
            self.0.holders.fetch_add(1, Ordering::Relaxed);
            MemoryReservation {
                memory_budget: self.clone(),
                reserved_bytes: bytes,
            }
        })
    }

    /// Adds `bytes` to those in use, unless more than `limit` would then be in use.
    fn take_budget_bytes(&self, bytes: usize, limit: usize) -> bool {
        self.take_budget_bytes_leaving(bytes, limit, 0)
    }

    /// Adds `bytes` to those in use, unless less than `left` of `limit` would then be free.
    fn take_budget_bytes_leaving(&self, bytes: usize, limit: usize, left: usize) -> bool {
        let limit = limit.saturating_sub(left);
        let more = |used: usize| used.checked_add(bytes).filter(|total| *total <= limit);
        let used = &self.0.bytes;
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}

/// Bytes of a [`MemoryBudget`] that are reserved until this value is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    memory_budget: MemoryBudget,
    reserved_bytes: usize,
}

impl MemoryReservation {
    /// Budget that the bytes are returned to.
    pub fn memory_budget(&self) -> &MemoryBudget {
        &self.memory_budget
    }

    /// Number of reserved bytes.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    /// Grows the reservation to `bytes`, unless more than `limit` would then be in use: `false`.
    /// Never shrinks it.
    pub fn grow_reservation_to(&mut self, bytes: usize, limit: usize) -> bool {
        let more = bytes.saturating_sub(self.reserved_bytes);
        let grows = self.memory_budget.take_budget_bytes(more, limit);
        if grows {
            self.reserved_bytes += more;
        }
        grows
    }

    /// Grows the reservation as [`grow_reservation_to`](Self::grow_reservation_to) does, unless
    /// less than `bytes` would then be free for all others: one holder gets half of the memory at
    /// most, and each of `n` equal holders one part of `n + 1`.
    pub fn grow_within_share(&mut self, bytes: usize, limit: usize) -> bool {
        let more = bytes.saturating_sub(self.reserved_bytes);
        let grows = more == 0
            || self
                .memory_budget
                .take_budget_bytes_leaving(more, limit, bytes);
        if grows {
            self.reserved_bytes += more;
        }
        grows
    }

    /// Shrinks the reservation to `bytes`. Never grows it.
    pub fn shrink_reservation_to(&mut self, bytes: usize) {
        if bytes < self.reserved_bytes {
            let released = self.reserved_bytes - bytes;
            self.memory_budget
                .0
                .bytes
                .fetch_sub(released, Ordering::Relaxed);
            self.reserved_bytes = bytes;
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.shrink_reservation_to(0);
        self.memory_budget.0.holders.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn unused_capacity_is_released() {
        for length in [0, 1, 1000, 1 << 20] {
            let mut body = Vec::with_capacity(1 << 20);
            body.extend((0..length).map(|at| at as u8));
            let before = body.clone();
            super::release_unused_capacity(&mut body);
            assert!(body == before && body.capacity() == length);
        }
    }

    #[test]
    fn memory_of_a_drained_body_is_released() {
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
            super::drain_body_to_host(&mut body[part.clone()], |piece| {
                copy.extend_from_slice(piece);
            });
            assert!(copy == all[part.clone()]);
            // bytes outside of the part are unchanged
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

    use super::MemoryBudget;

    #[test]
    fn budget_is_never_exceeded_and_returns_to_zero() {
        let budget = MemoryBudget::new();
        let mut first = budget.reserve_bytes(60, 100).unwrap();
        assert!(budget.reserve_bytes(41, 100).is_none());
        let second = budget.reserve_bytes(40, 100).unwrap();
        assert_eq!(budget.reserved_bytes(), 100);
        first.shrink_reservation_to(10);
        assert_eq!(budget.reserved_bytes(), 50);
        first.shrink_reservation_to(90);
        assert_eq!(budget.reserved_bytes(), 50);
        assert_eq!(budget.reservation_count(), 2);
        drop(first);
        drop(second);
        assert_eq!(
            (budget.reserved_bytes(), budget.reservation_count()),
            (0, 0)
        );
    }

    #[test]
    fn reservation_grows_within_the_limit_only() {
        let budget = MemoryBudget::new();
        let mut reservation = budget.reserve_bytes(10, 100).unwrap();
        assert!(
            reservation.grow_reservation_to(100, 100) && !reservation.grow_reservation_to(101, 100)
        );
        assert!(reservation.grow_reservation_to(50, 100));
        assert_eq!(budget.reserved_bytes(), 100);
        drop(reservation);
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[test]
    fn holders_with_a_share_leave_as_much_free_as_each_has() {
        let budget = MemoryBudget::new();
        let mut holders: Vec<_> = (0..17)
            .map(|_| budget.reserve_bytes(0, 1800).unwrap())
            .collect();
        assert!(
            holders[0].grow_within_share(900, 1800) && !holders[0].grow_within_share(901, 1800)
        );
        holders[0].shrink_reservation_to(0);
        for bytes in 1..=1000 {
            for holder in &mut holders {
                holder.grow_within_share(bytes, 1800);
            }
        }
        assert!(holders.iter().all(|holder| holder.reserved_bytes() == 100));
        assert_eq!(budget.reserved_bytes(), 1700);
    }

    #[test]
    fn sum_beyond_the_address_space_is_refused() {
        let budget = MemoryBudget::new();
        let _reservation = budget.reserve_bytes(1, usize::MAX).unwrap();
        assert!(budget.reserve_bytes(usize::MAX, usize::MAX).is_none());
    }
}
