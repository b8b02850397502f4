//! Owning wrappers of libdeflate's two handles. They report a refused allocation, unlike the
//! `libdeflater` crate, which panics.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::NonNull;

use libdeflate_sys as sys;

#[cfg(any(test, target_family = "wasm"))]
use super::crc::RunningCrc;
#[cfg(any(test, target_family = "wasm"))]
use super::format::{member_trailer, MEMBER_HEADER, TRAILER_LENGTH};

/// Highest level of libdeflate.
pub(super) const MAX_LEVEL: u8 = 12;

/// The C library's allocator.
#[cfg(not(target_family = "wasm"))]
const ALLOCATOR: (MallocFunction, FreeFunction) = (None, None);

/// Rust's allocator, because a sandbox has no C library.
#[cfg(target_family = "wasm")]
const ALLOCATOR: (MallocFunction, FreeFunction) = (
    Some(super::wasm_memory::malloc),
    Some(super::wasm_memory::free),
);

/// A `malloc` for libdeflate; `None` selects the C library's.
type MallocFunction = Option<unsafe extern "C" fn(usize) -> *mut c_void>;
/// A `free` for libdeflate; `None` selects the C library's.
type FreeFunction = Option<unsafe extern "C" fn(*mut c_void)>;

const LIBDEFLATE_OPTIONS: sys::libdeflate_options = sys::libdeflate_options {
    sizeof_options: size_of::<sys::libdeflate_options>(),
    malloc_func: ALLOCATOR.0,
    free_func: ALLOCATOR.1,
};

/// An owning handle of a libdeflate compressor of one level. It takes 200 KiB to 8.8 MiB, depending
/// on the level.
pub(super) struct LibdeflateCompressor(NonNull<sys::libdeflate_compressor>);

// SAFETY: libdeflate.h: a compressor is usable by one thread at a time, and
// nothing in it belongs to the thread that made it.
unsafe impl Send for LibdeflateCompressor {}

impl LibdeflateCompressor {
    /// Allocates a compressor; `None` for a level that doesn't exist, or if memory is refused.
    pub(super) fn new(level: u8) -> Option<Self> {
        // SAFETY: any level may be passed; a bad one gives NULL. The options
        // are not kept.
        NonNull::new(unsafe {
            sys::libdeflate_alloc_compressor_ex(i32::from(level), &LIBDEFLATE_OPTIONS)
        })
        .map(Self)
    }

    /// Writes a gzip member into the spare capacity of `output`, after its contents. `false`,
    /// with unchanged `output`, if it does not fit.
    #[cfg(target_family = "wasm")]
    pub(super) fn compress_gzip_member(&mut self, input: &[u8], output: &mut Vec<u8>) -> bool {
        self.compress_and_frame_member(input, output)
    }

    /// Writes a gzip member as `compress_gzip_member` does, with crc32fast's checksum: on a target
    /// without instructions for checksums crc32fast reads 16 bytes at a time, and libdeflate 8.
    #[cfg(any(test, target_family = "wasm"))]
    fn compress_and_frame_member(&mut self, input: &[u8], output: &mut Vec<u8>) -> bool {
        let start = output.len();
        if output.capacity() - start <= MEMBER_HEADER.len() + TRAILER_LENGTH {
            return false;
        }
        output.extend_from_slice(&MEMBER_HEADER);
        let spare = output.spare_capacity_mut();
        // SAFETY: both ranges are valid for their lengths, and the second one is longer than a
        // trailer; `&mut self` and the borrows of Rust rule out aliasing.
        let written = unsafe {
            sys::libdeflate_deflate_compress(
                self.0.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                spare.as_mut_ptr().cast(),
                spare.len() - TRAILER_LENGTH,
            )
        };
        if written == 0 {
            output.truncate(start);
            return false;
        }
        // SAFETY: libdeflate has written that many bytes, and left room for a trailer.
        unsafe { output.set_len(output.len() + written) };
        let mut crc = RunningCrc::new();
        crc.update_checksum(input);
        output.extend_from_slice(&member_trailer(&crc));
        true
    }

    /// Writes a gzip member into the spare capacity of `output`, after its contents. `false`,
    /// with unchanged `output`, if it does not fit.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn compress_gzip_member(&mut self, input: &[u8], output: &mut Vec<u8>) -> bool {
        let spare = output.spare_capacity_mut();
        // SAFETY: both ranges are valid for their lengths; `&mut self` and
        // the borrows of Rust rule out aliasing.
        let written = unsafe {
            sys::libdeflate_gzip_compress(
                self.0.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                spare.as_mut_ptr().cast(),
                spare.len(),
            )
        };
        // SAFETY: libdeflate has written that many bytes, at most spare.len().
        unsafe { output.set_len(output.len() + written) };
        written > 0
    }
}

impl Drop for LibdeflateCompressor {
    fn drop(&mut self) {
        // SAFETY: ours since `new`, freed once.
        unsafe { sys::libdeflate_free_compressor(self.0.as_ptr()) }
    }
}

/// The result of decompressing one gzip member.
pub(super) enum GunzipResult {
    /// One member was decompressed; with the number of input bytes.
    Member(usize),
    /// The output does not fit into the spare capacity.
    NoRoom,
    /// The input is damaged or ends early.
    Bad,
}

/// An owning handle of a libdeflate decompressor. It takes 11 KiB.
pub(super) struct LibdeflateDecompressor(NonNull<sys::libdeflate_decompressor>);

// SAFETY: as for `LibdeflateCompressor`.
unsafe impl Send for LibdeflateDecompressor {}

impl LibdeflateDecompressor {
    /// Allocates a decompressor; `None` if memory is refused.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: no preconditions; the options are not kept.
        NonNull::new(unsafe { sys::libdeflate_alloc_decompressor_ex(&LIBDEFLATE_OPTIONS) })
            .map(Self)
    }

    /// Decompresses the gzip member at the start of `input` into the spare capacity of `output`.
    pub(super) fn decompress_member(&mut self, input: &[u8], output: &mut Vec<u8>) -> GunzipResult {
        let spare = output.spare_capacity_mut();
        let (mut taken, mut written) = (0, 0);
        // SAFETY: both ranges are valid for their lengths, the two counters
        // are ours; `&mut self` and the borrows of Rust rule out aliasing.
        let result = unsafe {
            sys::libdeflate_gzip_decompress_ex(
                self.0.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                spare.as_mut_ptr().cast(),
                spare.len(),
                &mut taken,
                &mut written,
            )
        };
        match result {
            sys::libdeflate_result_LIBDEFLATE_SUCCESS => {
                // SAFETY: on success `written` bytes, at most spare.len(),
                // are initialised.
                unsafe { output.set_len(output.len() + written) };
                GunzipResult::Member(taken)
            }
            sys::libdeflate_result_LIBDEFLATE_INSUFFICIENT_SPACE => GunzipResult::NoRoom,
            _ => GunzipResult::Bad,
        }
    }

    /// Decompresses `input`, which is exactly one finished deflate stream of at most `length`
    /// bytes, into the spare capacity of `output`. `false`, with unchanged `output`, for other
    /// bytes, or if the capacity is less than `length`.
    pub(super) fn decompress_stream(
        &mut self,
        input: &[u8],
        length: usize,
        output: &mut Vec<u8>,
    ) -> bool {
        let Some(spare) = output.spare_capacity_mut().get_mut(..length) else {
            return false;
        };
        let (mut taken, mut written) = (0, 0);
        // SAFETY: as in `decompress_member`.
        let result = unsafe {
            sys::libdeflate_deflate_decompress_ex(
                self.0.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                spare.as_mut_ptr().cast(),
                spare.len(),
                &mut taken,
                &mut written,
            )
        };
        if result != sys::libdeflate_result_LIBDEFLATE_SUCCESS || taken != input.len() {
            return false;
        }
        // SAFETY: on success `written` bytes, at most spare.len(), are initialised.
        unsafe { output.set_len(output.len() + written) };
        true
    }
}

impl Drop for LibdeflateDecompressor {
    fn drop(&mut self) {
        // SAFETY: ours since `new`, freed once.
        unsafe { sys::libdeflate_free_decompressor(self.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{LibdeflateCompressor, MEMBER_HEADER};

    #[test]
    fn framed_member_differs_from_libdeflates_in_the_header_alone() {
        let body = b"{\"a\":[1,2,3]}".repeat(300);
        let mut compressor = LibdeflateCompressor::new(1).expect("there is memory");
        let (mut member, mut framed) = (Vec::with_capacity(5000), Vec::with_capacity(5000));
        assert!(compressor.compress_gzip_member(&body, &mut member));
        assert!(compressor.compress_and_frame_member(&body, &mut framed));
        let start = MEMBER_HEADER.len();
        assert_eq!(framed[..start], MEMBER_HEADER);
        assert_eq!(framed[start..], member[start..]);
        let mut short = Vec::with_capacity(framed.len() - 1);
        assert!(!compressor.compress_and_frame_member(&body, &mut short));
        assert!(short.is_empty());
    }
}
