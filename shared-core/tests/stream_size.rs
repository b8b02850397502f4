//! Memory of a streaming encoder, compared with its reservation. The allocator counts the bytes
//! that the test's thread allocates.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use sszip_core::allocator::faulty::peak_allocation;
use sszip_core::allocator::ReserveAllocator;
use sszip_core::gzip::stream::{CodecLibraryKind, FlushMode};

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;

/// Returns a body of hexadecimal digits and incompressible bytes, so that the encoder emits both
/// kinds of blocks.
fn body() -> Vec<u8> {
    let mut state = 1u64;
    (0..400_000u32)
        .map(|n| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let random = (state >> 56) as u8;
            if n % 100_000 < 50_000 {
                b"0123456789abcdef"[usize::from(random & 15)]
            } else {
                random
            }
        })
        .collect()
}

#[test]
fn encoder_allocates_the_reserved_size() {
    let body = body();
    let mut output = vec![0; 4096];
    for coder in [CodecLibraryKind::Igzip, CodecLibraryKind::ZlibRs] {
        for level in 1..=3 {
            let most = peak_allocation(|| {
                // libisal.so.2 is installed by the setup
                let mut encoder = coder.new_encoder(level).unwrap();
                let last = body.len().div_ceil(16_384) - 1;
                for (n, piece) in body.chunks(16_384).enumerate() {
                    let flush = match n {
                        n if n == last => FlushMode::Finish,
                        n if n % 5 == 0 => FlushMode::Sync,
                        _ => FlushMode::None,
                    };
                    let mut rest = piece;
                    loop {
                        let progress = encoder.compress_input(rest, flush, &mut output).unwrap();
                        rest = &rest[progress.consumed..];
                        if progress.complete {
                            break;
                        }
                    }
                }
            });
            let size = coder.encoder_size(level);
            // the encoder's box and one alignment are not counted
            assert!(
                most <= size + 256 && most + 2048 > size,
                "{coder:?} {level} takes {most}, {size} are reserved"
            );
        }
    }
}
