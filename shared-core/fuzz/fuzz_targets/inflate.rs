//! `gunzip` compared with flate2, under a limit of the length.
#![no_main]

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder};
use flate2::Crc;
use libfuzzer_sys::fuzz_target;
use sszip_core::gzip::inflate::gunzip_reserved;

const MOST: u64 = 1 << 18;

fuzz_target!(|input: (u16, bool, &[u8])| {
    let (cap, is_deflate, bytes) = input;
    let cap = usize::from(cap) * 4;
    if is_deflate {
        if let Some(member) = gzip_member_around(bytes) {
            check(&member, cap);
            check(&[&member[..], &member].concat(), cap);
        }
    } else {
        check(bytes, cap);
    }
});

fn check(coded: &[u8], cap: usize) {
    let ours = gunzip_reserved(coded, cap);
    if let Ok(body) = &ours {
        assert!(body.len() <= cap, "{} of {cap}", body.len());
    }
    let mut body = Vec::new();
    let theirs = MultiGzDecoder::new(coded)
        .take(cap as u64 + 1)
        .read_to_end(&mut body);
    if theirs.is_ok() && body.len() <= cap {
        assert!(ours.as_ref() == Ok(&body), "{ours:?}");
    }
}

/// Returns a member around deflated bytes, with the checksum that a fuzzer would never find.
fn gzip_member_around(deflated: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let mut decoder = DeflateDecoder::new(deflated);
    decoder.by_ref().take(MOST).read_to_end(&mut body).ok()?;
    let taken = usize::try_from(decoder.total_in()).ok()?;
    let mut crc = Crc::new();
    crc.update(&body);
    let header = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];
    Some(
        [
            &header[..],
            &deflated[..taken],
            &crc.sum().to_le_bytes(),
            &crc.amount().to_le_bytes(),
        ]
        .concat(),
    )
}
