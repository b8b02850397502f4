//! Streaming compression with ISA-L's igzip, opened at run time: `igzip_lib.h` of ISA-L 2.
#![allow(unsafe_code)]

use std::alloc::{alloc, dealloc, Layout};
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::gzip::isal::{self, IsalFunctions, IsalStreamState, COMP_OK};

use super::encoder::{EncodeProgress, FlushMode, StreamEncoder, StreamEncoderError, StreamLevel};

/// Size in bytes of `struct isal_zstream`, rounded up to a cache line: it is 82,384 in 2.30 and
/// 2.31. Callers allocate it, so it can't grow within a soname.
const STREAM_SIZE: usize = 82_432;

/// Number of bytes of the stream that must be zero: the public fields and the fields of the
/// state before its arrays, fewer than this. igzip fills the arrays. One array of 16 KiB is for
/// level 0 only: zeroes would make it resident in each stream.
const ZEROED_BYTES: usize = 1 << 10;

const NO_FLUSH: u16 = 0;
const SYNC_FLUSH: u16 = 1;
const IGZIP_GZIP: u16 = 1;

/// Sizes in bytes of the level buffers, `ISAL_DEF_LVL1_MIN`, `ISAL_DEF_LVL2_MIN`,
/// `ISAL_DEF_LVL3_MIN`: hash tables and room for 1,024 tokens.
const LEVEL_BUFFERS: [usize; 3] = [24 << 10, 72 << 10, 88 << 10];

/// Returns the functions of the library, which is opened on first use; `None` if it is not
/// installed.
fn igzip_stream_functions() -> Option<&'static IsalFunctions> {
    static FUNCTIONS: OnceLock<Option<IsalFunctions>> = OnceLock::new();
    FUNCTIONS
        .get_or_init(|| isal::load_isal_functions(b"isal_deflate_init\0", b"isal_deflate\0"))
        .as_ref()
}

/// Whether this machine has the library.
pub(super) fn is_igzip_stream_available() -> bool {
    igzip_stream_functions().is_some()
}

/// Returns the memory that an encoder of the level takes, in bytes.
pub(super) fn igzip_encoder_size(level: StreamLevel) -> usize {
    let level = usize::from(level).clamp(1, LEVEL_BUFFERS.len());
    STREAM_SIZE + LEVEL_BUFFERS[level - 1]
}

/// A streaming encoder of igzip: its stream and its level buffer, in one allocation.
pub(super) struct IgzipEncoder {
    functions: &'static IsalFunctions,
    stream: NonNull<IsalStreamState>,
    layout: Layout,
}

// SAFETY: igzip_lib.h keeps all state in the stream; nothing in it belongs to
// the thread that made it.
unsafe impl Send for IgzipEncoder {}

impl IgzipEncoder {
    /// Allocates an encoder; `None` without the library or the memory.
    pub(super) fn new(level: StreamLevel) -> Option<Self> {
        let functions = igzip_stream_functions()?;
        let size = igzip_encoder_size(level);
        let layout = Layout::from_size_align(size, 64).ok()?;
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc(layout) })?;
        let stream = memory.cast::<IsalStreamState>();
        // SAFETY: the memory is ours, aligned, and larger than the stream by
        // the level buffer that follows it.
        unsafe {
            memory.as_ptr().write_bytes(0, ZEROED_BYTES);
            (functions.init)(stream.as_ptr());
            let state = &mut *stream.as_ptr();
            state.level = u32::from(level).clamp(1, 3);
            state.level_buf = memory.as_ptr().add(STREAM_SIZE);
            state.level_buf_size = (size - STREAM_SIZE) as u32;
            state.gzip_flag = IGZIP_GZIP;
        }
        Some(Self {
            functions,
            stream,
            layout,
        })
    }
}

impl StreamEncoder for IgzipEncoder {
    fn compress_input(
        &mut self,
        input: &[u8],
        flush: FlushMode,
        output: &mut [u8],
    ) -> Result<EncodeProgress, StreamEncoderError> {
        // lengths have 32 bits; the rest is passed by the next call
        let chunk = &input[..input.len().min(1 << 30)];
        let output = {
            let most = output.len().min(1 << 30);
            &mut output[..most]
        };
        let is_last_chunk = chunk.len() == input.len();
        // SAFETY: the stream is ours and initialised; both buffers are passed with their own
        // lengths and not kept: igzip copies the input that it needs.
        let (result, state) = unsafe {
            let state = &mut *self.stream.as_ptr();
            state.next_in = chunk.as_ptr();
            state.avail_in = chunk.len() as u32;
            state.next_out = output.as_mut_ptr();
            state.avail_out = output.len() as u32;
            state.end_of_stream = u16::from(flush == FlushMode::Finish && is_last_chunk);
            state.flush = if flush == FlushMode::Sync && is_last_chunk {
                SYNC_FLUSH
            } else {
                NO_FLUSH
            };
            ((self.functions.deflate)(state), state)
        };
        if result != COMP_OK {
            return Err(StreamEncoderError);
        }
        let (left, room) = (state.avail_in as usize, state.avail_out as usize);
        Ok(EncodeProgress {
            consumed: chunk.len() - left,
            written: output.len() - room,
            // it stops only if the input or the room is used up
            complete: is_last_chunk && left == 0 && room > 0,
        })
    }
}

impl Drop for IgzipEncoder {
    fn drop(&mut self) {
        // SAFETY: ours since `new`, of that layout, freed once.
        unsafe { dealloc(self.stream.as_ptr().cast(), self.layout) }
    }
}

impl fmt::Debug for IgzipEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Igzip")
    }
}
