//! Streaming compression of a response body.

use sszip_core::exchange::drive::ExchangeDriver;
use sszip_core::gzip::stream::FlushMode;

/// Size in bytes by which the output buffer grows.
pub const OUTPUT_BUFFER: usize = 16 << 10;

/// Passes a piece of the body through the driver's encoder, and appends the output to `written`.
/// `None`: memory is refused, the encoder failed, or the body is not as long as its head announced.
pub fn append_encoded_piece(
    driver: &mut ExchangeDriver,
    piece: &[u8],
    flush: FlushMode,
    written: &mut Vec<u8>,
) -> Option<()> {
    let mut rest = piece;
    loop {
        let start = written.len();
        written.try_reserve(OUTPUT_BUFFER).ok()?;
        written.resize(start + OUTPUT_BUFFER, 0);
        let progress = driver
            .encode_body_piece(rest, flush, &mut written[start..])
            .ok()?;
        written.truncate(start + progress.written);
        rest = &rest[progress.consumed..];
        if progress.complete {
            return Some(());
        }
    }
}
