//! Decompression of zstd bodies as a strict client does it.

use std::io::{Error, ErrorKind, Read, Result};

use zstd::stream::read::Decoder;

/// Logarithm of the longest window in bytes that RFC 9659 allows in a content coding.
const MAX_WINDOW_LOG: u32 = 23;

/// Decodes one zstd frame and not a byte more.
pub fn unzstd(coded: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut decoder = Decoder::with_buffer(coded)?.single_frame();
    decoder.window_log_max(MAX_WINDOW_LOG)?;
    decoder.read_to_end(&mut body)?;
    match decoder.finish() {
        [] => Ok(body),
        rest => Err(Error::new(
            ErrorKind::InvalidData,
            format!("{} bytes after the frame", rest.len()),
        )),
    }
}
