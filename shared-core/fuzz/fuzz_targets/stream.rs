//! The streaming encoder of this process: any pieces, flushes and buffer lengths make one member
//! with their content, which is complete at each flush.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sszip_core::gzip::stream::{new_fastest_encoder, FlushMode};
use sszip_fuzz::{compress_piece_as_host, DecompressingClient, FuzzBodyPiece};

/// The encoder to test, if `scripts/fuzz` names one.
static FUZZ_ENCODER: LazyLock<Option<String>> =
    LazyLock::new(|| std::env::var("FUZZ_ENCODER").ok());

fuzz_target!(|input: (u8, Vec<FuzzBodyPiece>, u16)| {
    let (level, pieces, last_room) = input;
    let Some(mut encoder) = new_fastest_encoder(level % 3 + 1) else {
        panic!("no memory");
    };
    if let Some(name) = FUZZ_ENCODER.as_deref() {
        assert!(format!("{encoder:?}").starts_with(name), "{encoder:?}");
    }
    let mut encode = |input: &[u8], flush, output: &mut [u8]| {
        encoder
            .compress_input(input, flush, output)
            .expect("it codes")
    };
    let mut client = DecompressingClient::default();
    let mut body = Vec::new();
    for piece in &pieces {
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
    assert!(client.is_member_complete() && client.decoded == body);
});
