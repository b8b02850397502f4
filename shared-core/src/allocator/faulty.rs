//! A system allocator that refuses memory on demand, and counts. Test builds only.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::AddAssign;
use std::ptr::null_mut;

use crate::memory::MAX_RESERVE_ALLOCATION;

thread_local! {
    static ALLOCATED_BYTES: Cell<usize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<usize> = const { Cell::new(0) };
    static REFUSAL_THRESHOLD: Cell<(usize, usize)> = const { Cell::new((usize::MAX, 0)) };
    static REFUSALS: Cell<RefusedAllocationCounts> = const { Cell::new(RefusedAllocationCounts { all: 0, small: 0 }) };
}

/// Counts of the allocations that were refused to a thread during [`run_with_refused_allocations`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedAllocationCounts {
    /// Refusals of any length.
    pub all: usize,
    /// Refusals of at most [`MAX_RESERVE_ALLOCATION`] bytes.
    pub small: usize,
}

impl AddAssign for RefusedAllocationCounts {
    fn add_assign(&mut self, more: Self) {
        self.all += more.all;
        self.small += more.small;
    }
}

/// Test allocator that passes requests to the system's, counts the bytes of each thread, and
/// refuses allocations during [`run_with_refused_allocations`].
#[derive(Debug)]
pub struct FaultInjectingAllocator;

// SAFETY: the system's allocator does the work, under its own contract.
unsafe impl GlobalAlloc for FaultInjectingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (from, passed) = REFUSAL_THRESHOLD.get();
        if layout.size() >= from {
            if passed == 0 {
                let mut refusals = REFUSALS.get();
                refusals += RefusedAllocationCounts {
                    all: 1,
                    small: usize::from(layout.size() <= MAX_RESERVE_ALLOCATION),
                };
                REFUSALS.set(refusals);
                return null_mut();
            }
            REFUSAL_THRESHOLD.set((from, passed - 1));
        }
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get() + layout.size());
        PEAK_BYTES.set(PEAK_BYTES.get().max(ALLOCATED_BYTES.get()));
        // SAFETY: the contract of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get().saturating_sub(layout.size()));
        // SAFETY: the contract of the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Returns the maximum number of bytes that the calling thread had allocated at once during `run`,
/// in addition to those before. Panics if `run` does not free everything.
pub fn peak_allocation(run: impl FnOnce()) -> usize {
    let before = ALLOCATED_BYTES.get();
    PEAK_BYTES.set(before);
    run();
    assert_eq!(ALLOCATED_BYTES.get(), before, "it gives everything back");
    PEAK_BYTES.get() - before
}

/// Runs `run` on the calling thread, while this allocator refuses to that thread all allocations of
/// `from` bytes and more, after the first `passed` ones. Returns the result of `run` and the
/// refusals.
pub fn run_with_refused_allocations<T>(
    from: usize,
    passed: usize,
    run: impl FnOnce() -> T,
) -> (T, RefusedAllocationCounts) {
    struct ResetRefusals;
    impl Drop for ResetRefusals {
        fn drop(&mut self) {
            REFUSAL_THRESHOLD.set((usize::MAX, 0));
        }
    }
    REFUSALS.set(RefusedAllocationCounts::default());
    REFUSAL_THRESHOLD.set((from, passed));
    let restored = ResetRefusals;
    let done = run();
    drop(restored);
    (done, REFUSALS.get())
}

/// Number of allocations that [`run_with_refused_allocations`] will still pass to the calling thread
/// before it refuses one.
pub fn remaining_allocations() -> usize {
    REFUSAL_THRESHOLD.get().1
}
