//! The digest from which all values derive: BLAKE3 of a purpose and some parts. No hash here is
//! the one that Ethereum would compute, and none can be distinguished from a real one.

use crate::sample::values::Word;
use crate::sample::world::SeededGenerator;

/// Returns a hash for one purpose. The lengths of the parts are hashed too, so that their
/// boundaries matter.
pub fn derive_hash(purpose: &str, parts: &[&[u8]]) -> Word {
    let mut hasher = blake3::Hasher::new();
    for part in [purpose.as_bytes()].iter().chain(parts) {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Word::from(*hasher.finalize().as_bytes())
}

/// Returns a random generator that is seeded by the purpose and the parts.
pub fn derive_generator(purpose: &str, parts: &[&[u8]]) -> SeededGenerator {
    let [a, b, c, d, e, f, g, h, ..] = derive_hash(purpose, parts).0;
    SeededGenerator::new(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_the_boundaries_of_parts() {
        let hashes = [
            derive_hash("a", &[b"bc"]),
            derive_hash("ab", &[b"c"]),
            derive_hash("a", &[b"b", b"c"]),
            derive_hash("a", &[b"", b"bc"]),
        ];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash));
        }
    }
}
