//! Rust's allocator as libdeflate wants one: in a sandbox there is no C
//! library that had another.
#![allow(unsafe_code)]

use std::alloc::{alloc, dealloc, Layout};
use std::ffi::c_void;
use std::ptr::null_mut;

/// In front of each allocation: its length. libdeflate aligns on its own.
const HEADER: usize = 16;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(HEADER)?, HEADER).ok()
}

/// As C's `malloc`.
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

/// As C's `free`.
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
