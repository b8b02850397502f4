//! The allocator of a native host's process, in which small allocations don't fail.
//!
//! A Rust program whose allocation is refused terminates, and aborts all requests of an nginx
//! worker. Allocations as long as a body are therefore made in ways that report a refusal. For the
//! rest there is a reserve that the process owns since it was loaded: if the system refuses up to
//! [`MAX_RESERVE_ALLOCATION`] bytes, they are taken from the reserve. [`memory::is_memory_short`] is `true` from
//! then on, and no new work is begun until [`has_memory_for_new_work`]. nginx's own allocations are made by
//! the C library, and can't use up the reserve.
//!
//! The reserve is in the library's zeroed data: it takes address space and commit charge from
//! the start, and memory only when it is used. docs/decisions/013 has the reasons.

#[cfg(feature = "faults")]
pub mod faulty;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
#[cfg(target_env = "gnu")]
use std::ffi::c_int;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use linked_list_allocator::Heap;

use crate::lock::lock_ignoring_poison;
use crate::memory;

pub use crate::memory::MAX_RESERVE_ALLOCATION;

#[cfg(not(feature = "faults"))]
use std::alloc::System;

#[cfg(feature = "faults")]
use faulty::FaultInjectingAllocator as System;

/// Length of the reserve in bytes: the small allocations of some thousand exchanges in flight,
/// which are passed unchanged from then on.
pub const RESERVE_BYTES: usize = 4 << 20;

/// Bytes that must be available for the shortage to end.
const RECOVERY_BYTES: usize = 1 << 20;

/// Alignment of the reserve. Only encoders, which may be refused, need more.
const RESERVE_ALIGNMENT: usize = 16;

/// Length of the header before an allocation in the reserve: it contains the allocation's length
/// there, whatever `realloc` has made of it since.
const RESERVE_HEADER_BYTES: usize = RESERVE_ALIGNMENT;

/// Bytes of freed memory at the heap's end that the process keeps.
#[cfg(target_env = "gnu")]
const KEPT_FREE_BYTES: c_int = 16 << 20;

/// Length in bytes from which each allocation is mapped on its own. Shorter ones are kept when
/// they are freed.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: c_int = 8 << 20;

/// Configures the C library to keep freed memory in this process.
///
/// By default the C library adapts to the longest allocation that it has mapped so far: free
/// memory at the heap's end beyond twice that length is returned to the system. A body and its
/// compressed form are about as long, so that the pages of each response may be returned and
/// faulted in again: 68 for a request of 300 KB, a third of all CPU.
pub fn configure_malloc() {
    #[cfg(target_env = "gnu")]
    {
        const M_TRIM_THRESHOLD: c_int = -1;
        const M_MMAP_THRESHOLD: c_int = -3;
        extern "C" {
            fn mallopt(option: c_int, value: c_int) -> c_int;
        }
        // SAFETY: malloc.h's function; any thread may call it at any time, and a setting that it
        // rejects stays unchanged.
        unsafe {
            mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
            mallopt(M_TRIM_THRESHOLD, KEPT_FREE_BYTES);
        }
    }
}

/// Memory of the reserve, aligned for the heap, which is its only user.
#[repr(C, align(16))]
struct AllocatorReserveMemory(UnsafeCell<[u8; RESERVE_BYTES]>);

// SAFETY: only the heap accesses it, behind its lock, and the owners of its allocations.
unsafe impl Sync for AllocatorReserveMemory {}

static RESERVE_MEMORY: AllocatorReserveMemory =
    AllocatorReserveMemory(UnsafeCell::new([0; RESERVE_BYTES]));

/// Heap in the reserve; `None` until it is needed.
static RESERVE_HEAP: Mutex<Option<Heap>> = Mutex::new(None);

/// The global allocator of the static library for nginx (`nginx-module/library`), which takes small
/// allocations from the reserve when the system refuses them.
#[derive(Debug)]
pub struct ReserveAllocator;

// SAFETY: all memory is the system's, under its own contract, or a part of the reserve that has
// no other owner.
unsafe impl GlobalAlloc for ReserveAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the contract of the caller.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            return allocate_after_refusal(layout);
        }
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the contract of the caller.
        let mut memory = unsafe { System.alloc_zeroed(layout) };
        if memory.is_null() {
            memory = allocate_after_refusal(layout);
            if !memory.is_null() {
                // SAFETY: ours, and that long; it may have been used before.
                unsafe { memory.write_bytes(0, layout.size()) };
            }
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_in_reserve(memory) {
            // SAFETY: the contract of the caller.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the contract of the caller.
        unsafe { self.reallocate_by_copy(memory, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if is_in_reserve(memory) {
            // SAFETY: it came from `allocate_from_reserve` and is not used any more.
            unsafe { free_reserve_allocation(memory) };
        } else {
            // SAFETY: the contract of the caller.
            unsafe { System.dealloc(memory, layout) };
        }
    }
}

impl ReserveAllocator {
    /// Moves an allocation to a longer one, for memory of the reserve and where the system's
    /// `realloc` is refused; a shorter one stays in place. NULL if memory is refused.
    ///
    /// # Safety
    /// The contract of `realloc`.
    #[cold]
    unsafe fn reallocate_by_copy(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size <= layout.size() {
            // the system frees by address, the reserve by its header: neither needs to know that
            // the allocation is shorter now
            return memory;
        }
        let Ok(longer) = Layout::from_size_align(size, layout.align()) else {
            return null_mut();
        };
        // SAFETY: the size is not zero: it is more than another.
        let moved = unsafe { self.alloc(longer) };
        if !moved.is_null() {
            // SAFETY: both are that long, the new one has no other owner, and the old one is not
            // used any more.
            unsafe {
                moved.copy_from_nonoverlapping(memory, layout.size());
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

/// Allocates from the reserve what the system has refused, and records the shortage; an allocation
/// longer than [`MAX_RESERVE_ALLOCATION`] gets a spare of the thread. NULL if there is none.
#[cold]
fn allocate_after_refusal(layout: Layout) -> *mut u8 {
    if layout.size() <= MAX_RESERVE_ALLOCATION {
        memory::set_memory_short(true);
        return allocate_from_reserve(layout);
    }
    take_spare_of_thread(layout)
}

/// Whether an allocation is in the reserve, by its address.
#[inline]
fn is_in_reserve(memory: *mut u8) -> bool {
    (memory as usize).wrapping_sub(RESERVE_MEMORY.0.get() as usize) < RESERVE_BYTES
}

/// Allocates from the reserve; NULL if it is used up.
fn allocate_from_reserve(layout: Layout) -> *mut u8 {
    let Some(inner) =
        layout_with_header(layout.size()).filter(|_| layout.align() <= RESERVE_ALIGNMENT)
    else {
        return null_mut();
    };
    let mut heap = lock_reserve_heap();
    let heap = heap.get_or_insert_with(|| {
        // SAFETY: the memory is static, and has no other user.
        unsafe { Heap::new(RESERVE_MEMORY.0.get().cast(), RESERVE_BYTES) }
    });
    let Ok(start) = heap.allocate_first_fit(inner) else {
        return null_mut();
    };
    // SAFETY: it is longer than the header, aligned to more than a `usize`, and the rest after
    // the header is as long as the layout.
    unsafe {
        start.cast::<usize>().as_ptr().write(layout.size());
        start.as_ptr().add(RESERVE_HEADER_BYTES)
    }
}

/// Frees an allocation of the reserve.
///
/// # Safety
/// `memory` is from `allocate_from_reserve`, and is not used any more.
#[cold]
unsafe fn free_reserve_allocation(memory: *mut u8) {
    // SAFETY: the header precedes the memory that `allocate_from_reserve` returns.
    let (start, size) = unsafe {
        let start = memory.sub(RESERVE_HEADER_BYTES);
        (start, start.cast::<usize>().read())
    };
    let (Some(start), Some(inner)) = (NonNull::new(start), layout_with_header(size)) else {
        return;
    };
    if let Some(heap) = &mut *lock_reserve_heap() {
        // SAFETY: the heap allocated it, with this layout.
        unsafe { heap.deallocate(start, inner) };
    }
}

/// Returns the layout of an allocation of `size` bytes and its header; `None` if it is too long.
fn layout_with_header(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(RESERVE_HEADER_BYTES)?, RESERVE_ALIGNMENT).ok()
}

/// Locks the heap. No code behind the lock allocates or panics.
fn lock_reserve_heap() -> MutexGuard<'static, Option<Heap>> {
    lock_ignoring_poison(&RESERVE_HEAP)
}

/// Number of bytes of the reserve that are in use.
pub fn reserve_bytes_in_use() -> usize {
    lock_reserve_heap().as_ref().map_or(0, Heap::used)
}

/// Whether new work may be begun: there is no shortage, or no longer.
///
/// `make_room` must free memory that was kept for later: some of it may be in the reserve, which
/// must be free for the next shortage.
pub fn has_memory_for_new_work(make_room: impl FnOnce()) -> bool {
    if !memory::is_memory_short() {
        return true;
    }
    if !memory::can_allocate_now(RECOVERY_BYTES) {
        return false;
    }
    if reserve_bytes_in_use() > RESERVE_BYTES / 2 {
        make_room();
    }
    if reserve_bytes_in_use() > RESERVE_BYTES / 2 {
        return false;
    }
    memory::set_memory_short(false);
    true
}

/// Long allocations for a thread whose next ones can't report a refusal.
static SPARE_ALLOCATIONS: Mutex<[Option<SpareAllocation>; 2]> = Mutex::new([None, None]);

/// Thread that owns the spares; 0 if there is none.
static SPARES_OWNER_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Lock for the thread that owns the spares.
static SPARES_LOCK: Mutex<()> = Mutex::new(());

/// An allocation that was made in advance, for a later one that can't report a refusal.
struct SpareAllocation {
    memory: *mut u8,
    layout: Layout,
}

// SAFETY: the caller that takes it out of `SPARES` is its only owner.
unsafe impl Send for SpareAllocation {}

extern "C" {
    /// pthread_self(3): not a thread-local variable of ours, whose first use in
    /// a thread would allocate.
    fn pthread_self() -> usize;
}

/// Runs `run`, which may allocate each of `lengths` bytes at most once without a refusal.
/// `None`, without running it, if memory is refused. For libraries that allocate long tables.
pub fn run_with_guaranteed_allocations<T>(
    lengths: [usize; 2],
    run: impl FnOnce() -> T,
) -> Option<T> {
    if lengths
        .iter()
        .all(|length| *length <= MAX_RESERVE_ALLOCATION)
    {
        return Some(run());
    }
    let _turn = lock_ignoring_poison(&SPARES_LOCK);
    // freed however `run` ends
    let _end = ThreadSparesGuard;
    for (place, length) in lengths.into_iter().enumerate() {
        if length <= MAX_RESERVE_ALLOCATION {
            continue;
        }
        let layout = Layout::from_size_align(length, RESERVE_ALIGNMENT).ok()?;
        // SAFETY: the size is not zero.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            return None;
        }
        lock_spare_allocations()[place] = Some(SpareAllocation { memory, layout });
    }
    // SAFETY: it has no preconditions.
    SPARES_OWNER_THREAD.store(unsafe { pthread_self() }, Ordering::Relaxed);
    Some(run())
}

/// The guard of a thread's spares, which frees them when it is dropped.
struct ThreadSparesGuard;

impl Drop for ThreadSparesGuard {
    fn drop(&mut self) {
        SPARES_OWNER_THREAD.store(0, Ordering::Relaxed);
        for spare in lock_spare_allocations().iter_mut().filter_map(Option::take) {
            // SAFETY: of this layout, without another owner.
            unsafe { System.dealloc(spare.memory, spare.layout) };
        }
    }
}

fn lock_spare_allocations() -> MutexGuard<'static, [Option<SpareAllocation>; 2]> {
    lock_ignoring_poison(&SPARE_ALLOCATIONS)
}

/// Returns the calling thread's spare for an allocation; NULL if there is none. It is freed by
/// its address, as an allocation of the system.
fn take_spare_of_thread(layout: Layout) -> *mut u8 {
    let owner = SPARES_OWNER_THREAD.load(Ordering::Relaxed);
    // SAFETY: it has no preconditions.
    if owner == 0 || owner != unsafe { pthread_self() } || layout.align() > RESERVE_ALIGNMENT {
        return null_mut();
    }
    let mut spares = lock_spare_allocations();
    let smallest = spares
        .iter_mut()
        .filter(|spare| matches!(spare, Some(spare) if spare.layout.size() >= layout.size()))
        .min_by_key(|spare| spare.as_ref().map(|spare| spare.layout.size()));
    smallest
        .and_then(Option::take)
        .map_or(null_mut(), |spare| spare.memory)
}
