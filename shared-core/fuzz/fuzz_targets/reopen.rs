//! `convert_to_open_stream` compared with zlib-rs: it accepts exactly the streams that zlib-rs
//! decompresses, and they have the same content afterwards.
#![no_main]

use std::io::Read;

use flate2::bufread::DeflateDecoder;
use libfuzzer_sys::fuzz_target;
use sszip_core::gzip::oneshot::{compressed_bound, gzip_oneshot};
use sszip_core::gzip::open_stream::convert_to_open_stream;

const MOST: u64 = 1 << 20;

fuzz_target!(|input: (Option<u8>, &[u8])| {
    let (level, bytes) = input;
    match level {
        // unchanged: zlib-rs decides whether it is valid
        None => check(bytes),
        // a valid stream, which a fuzzer would rarely find
        Some(level) => {
            let member =
                gzip_oneshot(bytes, level % 13, compressed_bound(bytes.len())).expect("it codes");
            let stream = &member[10..member.len() - 8];
            assert!(convert_to_open_stream(stream.to_vec()).is_some());
            check(stream);
        }
    }
});

fn check(stream: &[u8]) {
    let mut plain = Vec::new();
    let mut decoder = DeflateDecoder::new(stream);
    let read = decoder.by_ref().take(MOST).read_to_end(&mut plain);
    if plain.len() as u64 == MOST {
        return;
    }
    let is_whole = read.is_ok() && decoder.total_in() == stream.len() as u64;
    match convert_to_open_stream(stream.to_vec()) {
        None => assert!(!is_whole, "refused"),
        Some(mut opened) => {
            assert!(is_whole, "taken");
            // an empty final block
            opened.extend_from_slice(&[0x03, 0x00]);
            let mut again = Vec::new();
            let mut decoder = DeflateDecoder::new(&opened[..]);
            decoder.read_to_end(&mut again).expect("open");
            assert!(again == plain);
            assert_eq!(decoder.total_in(), opened.len() as u64);
        }
    }
}
