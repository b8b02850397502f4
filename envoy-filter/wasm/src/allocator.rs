//! The allocator of a sandbox: Rust's allocator behind lists of free short blocks.
//!
//! A request allocates and frees dozens of short blocks. Rust's allocator searches for each one, and
//! joins it with free neighbours later; from a list a block is taken in a few instructions. The
//! number of blocks in a list is limited, so that other lengths can use the memory.

#![allow(unsafe_code)] // an allocator handles raw memory

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::{copy_nonoverlapping, null_mut};

/// Difference between the lengths of the blocks of two adjacent lists, in bytes.
const LENGTH_STEP: usize = 16;

/// Number of lists, for blocks of up to 1 KiB.
const LISTS: usize = 64;

/// Alignment of the blocks in lists, the alignment of all blocks of Rust's allocator.
const BLOCK_ALIGNMENT: usize = 8;

/// Maximum number of blocks in a list: 2 MiB in all lists.
const MAX_FREE_BLOCKS: u32 = 64;

#[global_allocator]
static ALLOCATOR: ShortBlockAllocator =
    ShortBlockAllocator(UnsafeCell::new([const { FreeList::EMPTY }; LISTS]));

/// Rust's allocator with lists of free blocks, one for each length.
struct ShortBlockAllocator(UnsafeCell<[FreeList; LISTS]>);

// SAFETY: a sandbox has one thread.
unsafe impl Sync for ShortBlockAllocator {}

/// Free blocks of one length: the first one, each with the address of the next one at its start.
struct FreeList {
    first: *mut u8,
    count: u32,
}

impl FreeList {
    const EMPTY: Self = Self {
        first: null_mut(),
        count: 0,
    };
}

/// Returns the list for allocations of a layout; `None` if Rust's allocator serves them directly.
fn list_number(layout: Layout) -> Option<usize> {
    let is_short = layout.size() <= LISTS * LENGTH_STEP && layout.align() <= BLOCK_ALIGNMENT;
    is_short.then(|| layout.size().saturating_sub(1) / LENGTH_STEP)
}

/// Returns the layout of the blocks of a list.
fn block_layout(list: usize) -> Layout {
    // SAFETY: the alignment is a power of two, and no length is near the end of the address space.
    unsafe { Layout::from_size_align_unchecked((list + 1) * LENGTH_STEP, BLOCK_ALIGNMENT) }
}

impl ShortBlockAllocator {
    /// Takes a block from a list; NULL if it is empty.
    fn take_free_block(&self, list: usize) -> *mut u8 {
        // SAFETY: there is one thread, and no call returns a reference to a list.
        let free = unsafe { &mut (*self.0.get())[list] };
        let block = free.first;
        if !block.is_null() {
            // SAFETY: a free block has the address of the next one at its start.
            free.first = unsafe { block.cast::<*mut u8>().read() };
            free.count -= 1;
        }
        block
    }

    /// Appends a block to a list. `false` if the list is full.
    ///
    /// # Safety
    /// The block has the layout of the list's blocks, and is not used any more.
    unsafe fn keep_free_block(&self, list: usize, block: *mut u8) -> bool {
        // SAFETY: there is one thread, and no call returns a reference to a list.
        let free = unsafe { &mut (*self.0.get())[list] };
        if free.count == MAX_FREE_BLOCKS {
            return false;
        }
        // SAFETY: a block is longer than an address, and aligned for one.
        unsafe { block.cast::<*mut u8>().write(free.first) };
        free.first = block;
        free.count += 1;
        true
    }
}

// SAFETY: a block in a list is not in use, and all blocks of a list have its layout, which fits each
// layout that the list serves. All others are Rust's allocator's.
unsafe impl GlobalAlloc for ShortBlockAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(list) = list_number(layout) else {
            // SAFETY: the caller's contract.
            return unsafe { System.alloc(layout) };
        };
        let block = self.take_free_block(list);
        match block.is_null() {
            // SAFETY: the length of a block is not 0.
            true => unsafe { System.alloc(block_layout(list)) },
            false => block,
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(list) = list_number(layout) else {
            // SAFETY: the caller's contract.
            return unsafe { System.dealloc(block, layout) };
        };
        // SAFETY: `alloc` returned the block with the layout of this list, and the caller does not use
        // it any more.
        unsafe {
            if !self.keep_free_block(list, block) {
                System.dealloc(block, block_layout(list));
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if list_number(layout).is_none() {
            // SAFETY: the caller's contract.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's contract; the block has at least this length.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, length: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        let wanted = unsafe { Layout::from_size_align_unchecked(length, layout.align()) };
        match (list_number(layout), list_number(wanted)) {
            // SAFETY: the caller's contract.
            (None, None) => unsafe { System.realloc(block, layout, length) },
            (present, next) if present == next => block,
            // SAFETY: the caller's contract; both blocks have at least the bytes that are copied.
            _ => unsafe {
                let moved = self.alloc(wanted);
                if !moved.is_null() {
                    copy_nonoverlapping(block, moved, layout.size().min(length));
                    self.dealloc(block, layout);
                }
                moved
            },
        }
    }
}
