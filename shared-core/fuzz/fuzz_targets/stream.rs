//! The stream encoder of this machine: any pieces, flushes and rooms make one
//! member that decodes to them, at each flush as far as was given.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_core::gzip::stream::{encoder, Flush};
use sszip_fuzz::{feed, Client, Piece};

fuzz_target!(|input: (u8, Vec<Piece>, u16)| {
    let (level, pieces, last_room) = input;
    let Some(mut encoder) = encoder(level % 3 + 1) else {
        panic!("no memory");
    };
    let mut encode = |input: &[u8], flush, output: &mut [u8]| {
        encoder.encode(input, flush, output).expect("it codes")
    };
    let mut client = Client::default();
    let mut body = Vec::new();
    for piece in &pieces {
        let bytes = piece.body();
        body.extend_from_slice(&bytes);
        feed(&bytes, piece.flush(), piece.room, &mut client, &mut encode);
        if piece.flush {
            assert!(client.decoded == body, "after a flush");
        }
    }
    feed(b"", Flush::Finish, last_room, &mut client, &mut encode);
    assert!(client.is_whole() && client.decoded == body);
});
