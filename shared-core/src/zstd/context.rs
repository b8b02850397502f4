//! Calls of the C library that compress, and that read the header of a frame: functions that
//! `zstd-safe` does not have, and contexts that report refused memory.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use zstd_safe::zstd_sys as sys;

use super::limits::ZstdLevel;
use crate::gzip::stream::{EncodeProgress, FlushMode, StreamEncoderError, StreamLevel};

extern "C" {
    /// Removes the repeated offsets that precede the first block, so that no block refers to
    /// them. `zstd.h` has no declaration of it: it is what the library calls itself when several
    /// threads compress the parts of one frame.
    fn ZSTD_invalidateRepCodes(context: *mut sys::ZSTD_CCtx);
}

/// The error of a context that must not be used again. Memory was refused: all parameters are
/// valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContextError;

/// Maximum memory of a context that compresses complete bodies, in bytes: two tables of 4 MiB at
/// most, and the state of one block.
pub(super) const MAX_CONTEXT_BYTES: usize = 10 << 20;

/// Maximum logarithm of the number of entries of a table, which have four bytes each. The levels
/// from 9 on would use up to 64 MiB for bodies of several MiB.
const MAX_TABLE_LOG: u32 = 20;

/// An owning handle of a compression context. Its memory depends on the level and on the length of
/// the input, and grows with them up to [`MAX_CONTEXT_BYTES`].
///
/// At levels 4 to 12 a context that was used before may write other bytes than a new one for the
/// same input: the library salts the hashes of its tables so that it need not clear them.
pub(super) struct ZstdContext(NonNull<sys::ZSTD_CCtx>);

// SAFETY: zstd.h: a context is usable by one thread at a time, and nothing in it belongs to the
// thread that made it.
unsafe impl Send for ZstdContext {}

impl ZstdContext {
    /// Allocates a context; `None` if memory is refused.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: no preconditions.
        NonNull::new(unsafe { sys::ZSTD_createCCtx() }).map(Self)
    }

    /// Returns the memory that the context has allocated, in bytes.
    pub(super) fn context_size(&self) -> usize {
        // SAFETY: the context is ours.
        unsafe { sys::ZSTD_sizeof_CCtx(self.0.as_ptr()) }
    }

    /// Writes one frame, whose header has the length of `plain`, into the spare capacity of
    /// `output`, after its contents. `false`, with unchanged `output`, if it does not fit.
    pub(super) fn compress_frame(
        &mut self,
        plain: &[u8],
        level: ZstdLevel,
        output: &mut Vec<u8>,
    ) -> Result<bool, ContextError> {
        let tables = bounded_parameters(level, plain.len()).cParams;
        self.reset_with_parameters(&[
            (
                sys::ZSTD_cParameter::ZSTD_c_compressionLevel,
                i32::from(level),
            ),
            (sys::ZSTD_cParameter::ZSTD_c_hashLog, tables.hashLog as i32),
            (
                sys::ZSTD_cParameter::ZSTD_c_chainLog,
                tables.chainLog as i32,
            ),
        ])?;
        let spare = output.spare_capacity_mut();
        // SAFETY: both ranges are valid for their lengths; `&mut self` and the borrows of Rust
        // rule out aliasing.
        let result = unsafe {
            sys::ZSTD_compress2(
                self.0.as_ptr(),
                spare.as_mut_ptr().cast(),
                spare.len(),
                plain.as_ptr().cast(),
                plain.len(),
            )
        };
        let Some(written) = written_bytes(result)? else {
            return Ok(false);
        };
        // SAFETY: the library has written that many bytes, at most spare.len().
        unsafe { output.set_len(output.len() + written) };
        Ok(true)
    }

    /// Writes blocks that can follow any blocks of a frame, and be followed by any, into the spare
    /// capacity of `output`, after its contents. Returns the logarithm of the window that a
    /// decoder needs, or `None`, with unchanged `output`, if they do not fit.
    pub(super) fn compress_open_blocks(
        &mut self,
        plain: &[u8],
        level: ZstdLevel,
        output: &mut Vec<u8>,
    ) -> Result<Option<u32>, ContextError> {
        let context = self.0.as_ptr();
        let length = plain.len() as u64;
        let mut parameters = bounded_parameters(level, plain.len());
        parameters.fParams = sys::ZSTD_frameParameters {
            contentSizeFlag: 1,
            checksumFlag: 0,
            noDictIDFlag: 1,
        };
        // SAFETY: the context is ours, and there is no dictionary.
        let result = unsafe {
            sys::ZSTD_compressBegin_advanced(context, ptr::null(), 0, parameters, length)
        };
        check_result(result).map_err(|_| ContextError)?;
        // the header of the frame, which the caller has already
        let mut header = [0_u8; sys::ZSTD_FRAMEHEADERSIZE_MAX as usize];
        // SAFETY: the output is valid for its length, and the input is empty.
        let result = unsafe {
            sys::ZSTD_compressContinue(
                context,
                header.as_mut_ptr().cast(),
                header.len(),
                plain.as_ptr().cast(),
                0,
            )
        };
        check_result(result).map_err(|_| ContextError)?;
        // SAFETY: the context is ours, and has allocated the state of its blocks; it has no
        // external dictionary.
        unsafe { ZSTD_invalidateRepCodes(context) };
        let spare = output.spare_capacity_mut();
        // SAFETY: as in `compress_frame`; the input is all that the context has seen.
        let result = unsafe {
            sys::ZSTD_compressContinue(
                context,
                spare.as_mut_ptr().cast(),
                spare.len(),
                plain.as_ptr().cast(),
                plain.len(),
            )
        };
        let Some(written) = written_bytes(result)? else {
            return Ok(None);
        };
        // SAFETY: the library has written that many bytes, at most spare.len().
        unsafe { output.set_len(output.len() + written) };
        Ok(Some(parameters.cParams.windowLog))
    }

    /// Begins a frame of unknown length, and allocates the memory of the whole stream.
    pub(super) fn start_stream(
        &mut self,
        level: StreamLevel,
        window_log: u32,
    ) -> Result<(), ContextError> {
        self.reset_with_parameters(&[
            (
                sys::ZSTD_cParameter::ZSTD_c_compressionLevel,
                i32::from(level),
            ),
            (sys::ZSTD_cParameter::ZSTD_c_windowLog, window_log as i32),
        ])?;
        // the first call allocates, also without input and room
        self.compress_stream(&[], FlushMode::None, &mut [])
            .map(|_| ())
            .map_err(|StreamEncoderError| ContextError)
    }

    /// Compresses `input` into `output`, as
    /// [`StreamEncoder::compress_input`](crate::gzip::stream::StreamEncoder::compress_input).
    pub(super) fn compress_stream(
        &mut self,
        input: &[u8],
        flush: FlushMode,
        output: &mut [u8],
    ) -> Result<EncodeProgress, StreamEncoderError> {
        let mut from = sys::ZSTD_inBuffer {
            src: input.as_ptr().cast(),
            size: input.len(),
            pos: 0,
        };
        let mut to = sys::ZSTD_outBuffer {
            dst: output.as_mut_ptr().cast(),
            size: output.len(),
            pos: 0,
        };
        let directive = match flush {
            FlushMode::None => sys::ZSTD_EndDirective::ZSTD_e_continue,
            FlushMode::Sync => sys::ZSTD_EndDirective::ZSTD_e_flush,
            FlushMode::Finish => sys::ZSTD_EndDirective::ZSTD_e_end,
        };
        // SAFETY: the context is ours; both buffers are passed with their own lengths and not
        // kept: the library copies the input that it needs.
        let result =
            unsafe { sys::ZSTD_compressStream2(self.0.as_ptr(), &mut to, &mut from, directive) };
        let pending = check_result(result).map_err(|_| StreamEncoderError)?;
        Ok(EncodeProgress {
            consumed: from.pos,
            written: to.pos,
            complete: from.pos == input.len() && (flush == FlushMode::None || pending == 0),
        })
    }

    /// Forgets the frame and all parameters, and sets these.
    fn reset_with_parameters(
        &mut self,
        parameters: &[(sys::ZSTD_cParameter, i32)],
    ) -> Result<(), ContextError> {
        let context = self.0.as_ptr();
        let all = sys::ZSTD_ResetDirective::ZSTD_reset_session_and_parameters;
        // SAFETY: the context is ours.
        let result = unsafe { sys::ZSTD_CCtx_reset(context, all) };
        check_result(result).map_err(|_| ContextError)?;
        for (parameter, value) in parameters {
            // SAFETY: the context is ours; any value may be passed.
            let result = unsafe { sys::ZSTD_CCtx_setParameter(context, *parameter, *value) };
            check_result(result).map_err(|_| ContextError)?;
        }
        Ok(())
    }
}

impl Drop for ZstdContext {
    fn drop(&mut self) {
        // SAFETY: ours since `new`, freed once.
        unsafe { sys::ZSTD_freeCCtx(self.0.as_ptr()) };
    }
}

/// Returns the parameters of a level for an input of `length` bytes, with tables of at most
/// [`MAX_TABLE_LOG`].
fn bounded_parameters(level: ZstdLevel, length: usize) -> sys::ZSTD_parameters {
    // the library takes 0 for an unknown length
    let length = length.max(1) as u64;
    // SAFETY: no preconditions.
    let mut parameters = unsafe { sys::ZSTD_getParams(i32::from(level), length, 0) };
    let tables = &mut parameters.cParams;
    tables.hashLog = tables.hashLog.min(MAX_TABLE_LOG);
    tables.chainLog = tables.chainLog.min(MAX_TABLE_LOG);
    parameters
}

/// Returns the memory that a context takes for a stream, in bytes.
pub(super) fn stream_context_size(level: StreamLevel, window_log: u32) -> usize {
    // SAFETY: no preconditions.
    unsafe {
        let mut parameters = sys::ZSTD_getCParams(i32::from(level), 0, 0);
        parameters.windowLog = window_log;
        sys::ZSTD_estimateCStreamSize_usingCParams(parameters)
    }
}

/// The header of a frame, or of a skippable frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHeader {
    pub(super) is_skippable: bool,
    /// Length in bytes of the window that a decoder needs; 0 for a skippable frame.
    pub(super) window_length: u64,
}

/// Reads the header at the start of `compressed`. `None` if it is truncated or damaged.
pub(super) fn read_frame_header(compressed: &[u8]) -> Option<FrameHeader> {
    let mut header = sys::ZSTD_FrameHeader {
        frameContentSize: 0,
        windowSize: 0,
        blockSizeMax: 0,
        frameType: sys::ZSTD_FrameType_e::ZSTD_frame,
        headerSize: 0,
        dictID: 0,
        checksumFlag: 0,
        _reserved1: 0,
        _reserved2: 0,
    };
    // SAFETY: the header is ours, and the input is passed with its length.
    let missing = unsafe {
        sys::ZSTD_getFrameHeader(&mut header, compressed.as_ptr().cast(), compressed.len())
    };
    // an error is not 0, as is a number of missing bytes
    (missing == 0).then_some(FrameHeader {
        is_skippable: header.frameType == sys::ZSTD_FrameType_e::ZSTD_skippableFrame,
        window_length: header.windowSize,
    })
}

/// Returns the number of written bytes, or `None` if the output has no room for them.
fn written_bytes(result: usize) -> Result<Option<usize>, ContextError> {
    match check_result(result) {
        Ok(written) => Ok(Some(written)),
        Err(code) if code == sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize => Ok(None),
        Err(_) => Err(ContextError),
    }
}

/// Returns the result of a call, or the number of its error.
fn check_result(result: usize) -> Result<usize, usize> {
    // SAFETY: no preconditions.
    match unsafe { sys::ZSTD_isError(result) } {
        0 => Ok(result),
        _ => Err(result.wrapping_neg()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ZstdContext, MAX_CONTEXT_BYTES};
    use crate::zstd::oneshot::zstd_compressed_bound;
    use crate::zstd::{decompress_zstd, MAX_ZSTD_LEVEL};

    #[test]
    fn memory_of_a_context_is_bounded_at_every_level() {
        // the library's parameters grow up to 4 MiB and a byte
        for length in [1 << 10, 100 << 10, 200 << 10, 1 << 20, (4 << 20) + 1] {
            let body = vec![b'0'; length];
            for level in 1..=MAX_ZSTD_LEVEL {
                let mut context = ZstdContext::new().unwrap();
                let mut frame = Vec::with_capacity(zstd_compressed_bound(length));
                assert_eq!(context.compress_frame(&body, level, &mut frame), Ok(true));
                assert!(decompress_zstd(&frame, length, |_| true).as_ref() == Ok(&body));
                let of_frames = context.context_size();

                let mut context = ZstdContext::new().unwrap();
                let blocks = context.compress_open_blocks(&body, level, &mut frame);
                assert!(matches!(blocks, Ok(Some(_))));
                for size in [of_frames, context.context_size()] {
                    assert!(
                        size <= MAX_CONTEXT_BYTES,
                        "{size} for {length} bytes at level {level}"
                    );
                }
            }
        }
    }
}
