//! Random mutations of a value.

#![allow(dead_code)]

use fastrand::Rng;

/// Mutates SSZ, mostly its offsets.
pub fn ssz(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(..=bytes.len());
    let few = rng.usize(1..9);
    match rng.u8(..8) {
        0 | 1 => add(bytes, at & !3, rng.u32(..9).wrapping_sub(4)),
        2 => add(bytes, at, rng.u32(..)),
        3 => {
            let len = bytes.len() as u32;
            set(bytes, at & !3, rng.u32(..=len));
        }
        4 => bytes.truncate(at),
        5 => bytes.extend((0..few).map(|_| rng.u8(..3))),
        6 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
        _ => {
            let end = (at + few).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}

fn add(bytes: &mut [u8], at: usize, addend: u32) {
    if let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        set(bytes, at, u32::from_le_bytes(*word).wrapping_add(addend));
    }
}

fn set(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(word) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *word = value.to_le_bytes();
    }
}

/// Mutates one character of JSON, or a few.
pub fn json(text: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(..text.len());
    let signs = b"\"\",:[]{}0123456789abcxfF- +.e\\tn\n";
    let sign = signs[rng.usize(..signs.len())];
    match rng.u8(..6) {
        0 => text.truncate(at),
        1 => text.insert(at, sign),
        2 => {
            text.remove(at);
        }
        3 => {
            let end = (at + rng.usize(1..40)).min(text.len());
            let again = text[at..end].to_vec();
            text.splice(at..at, again);
        }
        _ => text[at] = sign,
    }
}
