//! The allocator of a native host's process: small allocations don't fail.
//!
//! A Rust program whose allocation is refused ends, and takes all requests of
//! an nginx worker with it. What is as long as a body is therefore allocated in
//! ways that report a refusal, and for the rest there is this: when the system
//! refuses up to [`SMALL`] bytes, they come from a reserve that the process has
//! had since it was loaded. [`memory::is_short`] then says so, and nothing new
//! is begun until [`is_over`]. nginx's own allocations are C's, and can't take
//! the reserve away.
//!
//! The reserve is in the library's zeroed data: address space and commit
//! charge from the start, memory only when it is used. docs/decisions/013 has
//! the reasons.

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

use crate::lock::locked;
use crate::memory;

#[cfg(not(feature = "faults"))]
use std::alloc::System;

#[cfg(feature = "faults")]
use faulty::Faulty as System;

/// Allocations up to so many bytes come from the reserve if need be. Longer
/// ones are asked for in ways that may be refused.
pub const SMALL: usize = 64 << 10;

/// The reserve, in bytes: what is small of some thousand exchanges on their
/// way, which are let through from then on.
pub const RESERVE: usize = 4 << 20;

/// What there must be again for the shortage to be over, in bytes.
const ENOUGH: usize = 1 << 20;

/// Nothing in the core is aligned to more, but coders, which may be refused.
const ALIGN: usize = 16;

/// In front of an allocation in the reserve: how long it is there, whatever
/// `realloc` has made of it since.
const HEADER: usize = ALIGN;

/// Freed memory at the heap's end that the process keeps, in bytes.
#[cfg(target_env = "gnu")]
const KEPT: c_int = 16 << 20;

/// Allocations from this many bytes on are mapped, each on its own: what is shorter
/// is kept when it is freed.
#[cfg(target_env = "gnu")]
const MAPPED: c_int = 8 << 20;

/// Sets how the C library keeps what is freed, in this process.
///
/// By itself it goes by the longest allocation that it has mapped so far: what
/// lies free at the heap's end beyond twice its length goes back to the system.
/// A body and its coded form are about that, so that each answer's pages may be
/// given back and faulted in again: 68 a request of 300 KB, a third of all CPU.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    {
        const M_TRIM_THRESHOLD: c_int = -1;
        const M_MMAP_THRESHOLD: c_int = -3;
        extern "C" {
            fn mallopt(option: c_int, value: c_int) -> c_int;
        }
        // SAFETY: malloc.h's function; any thread may call it at any time, and
        // what it refuses stays as it is.
        unsafe {
            mallopt(M_MMAP_THRESHOLD, MAPPED);
            mallopt(M_TRIM_THRESHOLD, KEPT);
        }
    }
}

#[repr(C, align(16))]
struct Reserve(UnsafeCell<[u8; RESERVE]>);

// SAFETY: only the heap touches it, behind its lock, and those to whom it has
// given a part of it.
unsafe impl Sync for Reserve {}

static MEMORY: Reserve = Reserve(UnsafeCell::new([0; RESERVE]));

/// `None` until it is needed.
static HEAP: Mutex<Option<Heap>> = Mutex::new(None);

/// The static library for nginx (`nginx-module/library`) makes it the global one.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: all memory is the system's, under its own contract, or a part of the
// reserve that nobody else has.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            return refused(layout);
        }
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let mut memory = unsafe { System.alloc_zeroed(layout) };
        if memory.is_null() {
            memory = refused(layout);
            if !memory.is_null() {
                // SAFETY: ours, and that long; it was used before.
                unsafe { memory.write_bytes(0, layout.size()) };
            }
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_of_reserve(memory) {
            // SAFETY: the caller's promise.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.moved(memory, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if is_of_reserve(memory) {
            // SAFETY: it came from `take` and is not used any more.
            unsafe { give_back(memory) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(memory, layout) };
        }
    }
}

impl Allocator {
    /// What `realloc` does where the system can't.
    ///
    /// # Safety
    /// As for `realloc`.
    #[cold]
    unsafe fn moved(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size <= layout.size() {
            // the system frees by address, the reserve by its header: neither
            // is told that it is shorter now
            return memory;
        }
        let Ok(longer) = Layout::from_size_align(size, layout.align()) else {
            return null_mut();
        };
        // SAFETY: the size is not zero: it is more than another.
        let moved = unsafe { self.alloc(longer) };
        if !moved.is_null() {
            // SAFETY: both are that long, the new one belongs to nobody else,
            // and the old one is not used any more.
            unsafe {
                moved.copy_from_nonoverlapping(memory, layout.size());
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

/// The system has refused it.
#[cold]
fn refused(layout: Layout) -> *mut u8 {
    if layout.size() <= SMALL {
        memory::set_short(true);
        return take(layout);
    }
    spare(layout)
}

#[inline]
fn is_of_reserve(memory: *mut u8) -> bool {
    (memory as usize).wrapping_sub(MEMORY.0.get() as usize) < RESERVE
}

/// A part of the reserve; NULL if it is used up.
fn take(layout: Layout) -> *mut u8 {
    let Some(inner) = with_header(layout.size()).filter(|_| layout.align() <= ALIGN) else {
        return null_mut();
    };
    let mut heap = heap();
    let heap = heap.get_or_insert_with(|| {
        // SAFETY: the memory is there for ever, and nobody else uses it.
        unsafe { Heap::new(MEMORY.0.get().cast(), RESERVE) }
    });
    let Ok(start) = heap.allocate_first_fit(inner) else {
        return null_mut();
    };
    // SAFETY: it is longer than the header, aligned to more than a `usize`,
    // and what follows the header is as long as was asked for.
    unsafe {
        start.cast::<usize>().as_ptr().write(layout.size());
        start.as_ptr().add(HEADER)
    }
}

/// # Safety
/// `memory` is from `take`, and nobody uses it any more.
#[cold]
unsafe fn give_back(memory: *mut u8) {
    // SAFETY: the header is in front of what `take` gives out.
    let (start, size) = unsafe {
        let start = memory.sub(HEADER);
        (start, start.cast::<usize>().read())
    };
    let (Some(start), Some(inner)) = (NonNull::new(start), with_header(size)) else {
        return;
    };
    if let Some(heap) = &mut *heap() {
        // SAFETY: the heap gave it out, with this layout.
        unsafe { heap.deallocate(start, inner) };
    }
}

fn with_header(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(HEADER)?, ALIGN).ok()
}

/// Nothing that happens behind the lock allocates, or panics.
fn heap() -> MutexGuard<'static, Option<Heap>> {
    locked(&HEAP)
}

/// What of the reserve is in use, in bytes.
pub fn in_use() -> usize {
    heap().as_ref().map_or(0, Heap::used)
}

/// Whether something new may be begun: there is no shortage, or no longer.
///
/// `make_room` is to free what was kept for later: some of it may have been
/// made of the reserve, which has to be there for the next shortage.
pub fn is_over(make_room: impl FnOnce()) -> bool {
    if !memory::is_short() {
        return true;
    }
    if !memory::is_there(ENOUGH) {
        return false;
    }
    if in_use() > RESERVE / 2 {
        make_room();
    }
    if in_use() > RESERVE / 2 {
        return false;
    }
    memory::set_short(false);
    true
}

/// Long allocations for a thread whose next ones can't report a refusal.
static SPARES: Mutex<[Option<Spare>; 2]> = Mutex::new([None, None]);

/// Whose they are; 0: nobody's.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// One thread at a time has spares.
static TURN: Mutex<()> = Mutex::new(());

struct Spare {
    memory: *mut u8,
    layout: Layout,
}

// SAFETY: whoever takes it out of `SPARES` is its only owner.
unsafe impl Send for Spare {}

extern "C" {
    /// pthread_self(3): not a thread-local variable of ours, whose first use in
    /// a thread would allocate.
    fn pthread_self() -> usize;
}

/// Runs `run`, which may allocate each of `lengths` bytes at most once, and is
/// not refused it. `None`, and it has not run, when memory is refused. For
/// libraries that allocate long tables.
pub fn with_spares<T>(lengths: [usize; 2], run: impl FnOnce() -> T) -> Option<T> {
    if lengths.iter().all(|length| *length <= SMALL) {
        return Some(run());
    }
    let _turn = locked(&TURN);
    // given back however `run` ends
    let _end = End;
    for (place, length) in lengths.into_iter().enumerate() {
        if length <= SMALL {
            continue;
        }
        let layout = Layout::from_size_align(length, ALIGN).ok()?;
        // SAFETY: the size is not zero.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            return None;
        }
        spares()[place] = Some(Spare { memory, layout });
    }
    // SAFETY: it has no preconditions.
    OWNER.store(unsafe { pthread_self() }, Ordering::Relaxed);
    Some(run())
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        OWNER.store(0, Ordering::Relaxed);
        for spare in spares().iter_mut().filter_map(Option::take) {
            // SAFETY: of this layout; nobody has it.
            unsafe { System.dealloc(spare.memory, spare.layout) };
        }
    }
}

fn spares() -> MutexGuard<'static, [Option<Spare>; 2]> {
    locked(&SPARES)
}

/// The calling thread's spare for it; NULL if there is none. It is freed as
/// what the system gives out is: by its address.
fn spare(layout: Layout) -> *mut u8 {
    let owner = OWNER.load(Ordering::Relaxed);
    // SAFETY: it has no preconditions.
    if owner == 0 || owner != unsafe { pthread_self() } || layout.align() > ALIGN {
        return null_mut();
    }
    let mut spares = spares();
    let smallest = spares
        .iter_mut()
        .filter(|spare| matches!(spare, Some(spare) if spare.layout.size() >= layout.size()))
        .min_by_key(|spare| spare.as_ref().map(|spare| spare.layout.size()));
    smallest
        .and_then(Option::take)
        .map_or(null_mut(), |spare| spare.memory)
}
