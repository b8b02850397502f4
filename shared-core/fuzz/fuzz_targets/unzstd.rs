//! `unzstd` beside the C library, under a cap.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_core::gzip::inflate::InflateError;
use sszip_core::zstd::unzstd;

/// What a frame is coded of: copies of what came before, and bytes.
const MOST: usize = 1 << 18;

fuzz_target!(|input: (u16, i8, Option<(u16, u8)>, &[u8])| {
    let (cap, level, edit, bytes) = input;
    let cap = usize::from(cap) * 4;
    check(bytes, cap);
    // frames that a fuzzer would never guess, damaged in one place
    let Ok(mut coded) = zstd::bulk::compress(bytes, i32::from(level).clamp(-5, 19)) else {
        return;
    };
    if let Some((at, byte)) = edit {
        let at = usize::from(at) % coded.len();
        coded[at] = byte;
    }
    check(&coded, cap);
});

fn check(coded: &[u8], cap: usize) {
    let mut taken = 0;
    let ours = unzstd(coded, cap, |bytes| {
        taken = taken.max(bytes);
        true
    });
    // and the literals of a block
    assert!(taken <= cap + (128 << 10), "{taken} of {cap}");
    if let Ok(body) = &ours {
        assert!(body.len() <= cap, "{} of {cap}", body.len());
    }
    let theirs = zstd::bulk::decompress(coded, MOST);
    match (&ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert!(*ours == theirs),
        (Err(InflateError::TooLarge), Ok(theirs)) => assert!(theirs.len() > cap),
        _ => {}
    }
}
