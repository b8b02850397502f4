//! The digest from which all values derive: BLAKE3 of a purpose and some parts. No hash here is
//! the one that Ethereum would compute, and none can be distinguished from a real one.

use crate::sample::values::Word;
use crate::sample::world::Dice;

/// Returns a hash for one purpose. The lengths of the parts are hashed too, so that their
/// boundaries matter.
pub fn digest(purpose: &str, parts: &[&[u8]]) -> Word {
    let mut hasher = blake3::Hasher::new();
    for part in [purpose.as_bytes()].iter().chain(parts) {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Word::from(*hasher.finalize().as_bytes())
}

/// Returns a random generator that is seeded by the purpose and the parts.
pub fn dice(purpose: &str, parts: &[&[u8]]) -> Dice {
    let [a, b, c, d, e, f, g, h, ..] = digest(purpose, parts).0;
    Dice::new(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_the_boundaries_of_parts() {
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
