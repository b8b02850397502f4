//! The streaming encoders of this process: any pieces, flushes and buffer lengths make one member
//! or frame with their content, which is complete at each flush.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sszip_core::gzip::stream::{new_fastest_encoder, FlushMode, StreamEncoder};
use sszip_core::request_coding::SupportedContentCoding;
use sszip_core::zstd::stream::ZstdEncoder;
use sszip_fuzz::{compress_piece_as_host, DecompressingClient, FuzzBodyPiece};

/// The gzip encoder to test, if `scripts/fuzz` names one.
static FUZZ_ENCODER: LazyLock<Option<String>> =
    LazyLock::new(|| std::env::var("FUZZ_ENCODER").ok());

fuzz_target!(|input: (u8, Vec<FuzzBodyPiece>, u16)| {
    let (level, pieces, last_room) = input;
    let level = level % 3 + 1;
    let mut gzip = new_fastest_encoder(level).expect("memory");
    if let Some(name) = FUZZ_ENCODER.as_deref() {
        assert!(format!("{gzip:?}").starts_with(name), "{gzip:?}");
    }
    let mut zstd = ZstdEncoder::new(level).expect("memory");
    check_encoder(&mut *gzip, SupportedContentCoding::Gzip, &pieces, last_room);
    check_encoder(&mut zstd, SupportedContentCoding::Zstd, &pieces, last_room);
});

fn check_encoder(
    encoder: &mut dyn StreamEncoder,
    coding: SupportedContentCoding,
    pieces: &[FuzzBodyPiece],
    last_room: u16,
) {
    let mut encode = |input: &[u8], flush, output: &mut [u8]| {
        encoder
            .compress_input(input, flush, output)
            .expect("it codes")
    };
    let mut client = DecompressingClient::new(coding);
    let mut body = Vec::new();
    for piece in pieces {
        let bytes = piece.piece_bytes();
        body.extend_from_slice(&bytes);
        compress_piece_as_host(
            &bytes,
            piece.flush_mode(),
            piece.room,
            &mut client,
            &mut encode,
        );
        if piece.flush {
            assert!(client.decoded == body, "after a flush");
        }
    }
    compress_piece_as_host(b"", FlushMode::Finish, last_room, &mut client, &mut encode);
    assert!(client.is_body_complete() && client.decoded == body);
}
