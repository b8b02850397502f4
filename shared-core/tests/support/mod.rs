//! Functions that several test binaries use.

use std::io::{Error, ErrorKind, Read, Result};

/// Decodes one gzip member and not a byte more.
pub fn gunzip(coded: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(coded);
    decoder.read_to_end(&mut body)?;
    match decoder.into_inner() {
        [] => Ok(body),
        rest => Err(Error::new(
            ErrorKind::InvalidData,
            format!("{} bytes after the member", rest.len()),
        )),
    }
}
