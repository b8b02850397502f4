//! Rust's allocator with the interface that libdeflate needs, because a sandbox has no C library
//! with another one.
#![allow(unsafe_code)]

use std::alloc::{alloc, dealloc, Layout};
use std::ffi::c_void;
use std::ptr::null_mut;

/// Length of the header before each allocation, which contains its length. libdeflate aligns on
/// its own.
const HEADER: usize = 16;

/// Returns the layout of an allocation with its header, or `None` if its size overflows.
fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(HEADER)?, HEADER).ok()
}

/// Allocates as C's `malloc`.
pub(super) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    let Some(layout) = layout(size) else {
        return null_mut();
    };
    // SAFETY: the size is not zero; what is written is inside, and aligned.
    unsafe {
        let memory = alloc(layout);
        if memory.is_null() {
            return null_mut();
        }
        memory.cast::<usize>().write(size);
        memory.add(HEADER).cast()
    }
}

/// Frees as C's `free`.
pub(super) unsafe extern "C" fn free(memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: of `malloc` above, which put the length there.
    unsafe {
        let memory = memory.cast::<u8>().sub(HEADER);
        if let Some(layout) = layout(memory.cast::<usize>().read()) {
            dealloc(memory, layout);
        }
    }
}
