//! Bindings of ISA-L's igzip that both of its users share: `igzip_lib.h` of ISA-L 2, opened at
//! run time.
#![allow(unsafe_code)]

use std::ffi::c_int;

use libloading::Library;

/// The public fields of igzip's stream: `struct isal_zstream` up to its `internal_state`.
#[repr(C)]
pub(super) struct IsalStreamState {
    pub(super) next_in: *const u8,
    pub(super) avail_in: u32,
    pub(super) total_in: u32,
    pub(super) next_out: *mut u8,
    pub(super) avail_out: u32,
    pub(super) total_out: u32,
    pub(super) hufftables: *mut u8,
    pub(super) level: u32,
    pub(super) level_buf_size: u32,
    pub(super) level_buf: *mut u8,
    pub(super) end_of_stream: u16,
    pub(super) flush: u16,
    pub(super) gzip_flag: u16,
    pub(super) hist_bits: u16,
}

pub(super) const COMP_OK: c_int = 0;

/// A C function of igzip that takes a stream and returns a `T`.
type IsalFunction<T> = unsafe extern "C" fn(*mut IsalStreamState) -> T;

/// The functions of igzip that begin and continue a stream.
pub(super) struct IsalFunctions {
    pub(super) init: IsalFunction<()>,
    pub(super) deflate: IsalFunction<c_int>,
}

/// Returns the library's functions of these names, which end with a NUL; the library stays
/// loaded. `None` if it is not installed.
pub(super) fn load_isal_functions(init: &[u8], deflate: &[u8]) -> Option<IsalFunctions> {
    // SAFETY: ISA-L's initialisers have no preconditions; the functions named
    // in this module have the types of igzip_lib.h.
    unsafe {
        let library = Library::new("libisal.so.2").ok()?;
        let functions = IsalFunctions {
            init: *library.get::<IsalFunction<()>>(init).ok()?,
            deflate: *library.get::<IsalFunction<c_int>>(deflate).ok()?,
        };
        std::mem::forget(library);
        Some(functions)
    }
}
