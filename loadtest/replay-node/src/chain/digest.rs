//! What everything derives from: BLAKE3 of a purpose and some parts. No hash
//! here is the one Ethereum would compute; none can be told from one.

use crate::sample::values::Word;
use crate::sample::world::Dice;

/// A hash for one purpose. Parts are told apart by their lengths.
pub fn digest(purpose: &str, parts: &[&[u8]]) -> Word {
    let mut hasher = blake3::Hasher::new();
    for part in [purpose.as_bytes()].iter().chain(parts) {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Word::from(*hasher.finalize().as_bytes())
}

/// Dice that fall the same way for the same purpose and parts.
pub fn dice(purpose: &str, parts: &[&[u8]]) -> Dice {
    let [a, b, c, d, e, f, g, h, ..] = digest(purpose, parts).0;
    Dice::new(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        let hashes = [
            digest("a", &[b"bc"]),
            digest("ab", &[b"c"]),
            digest("a", &[b"b", b"c"]),
            digest("a", &[b"", b"bc"]),
        ];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash));
        }
    }
}
