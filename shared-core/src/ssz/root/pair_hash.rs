//! SHA-256 of pairs of nodes, with as many in parallel as the processor supports
//! (docs/decisions/024).

use std::sync::OnceLock;

use sha2::block_api::compress256;

/// A node of a Merkle tree: a SHA-256 hash, or 32 bytes of a leaf.
pub(super) type MerkleNode = [u8; 32];

/// The implementation of SHA-256 that hashes pairs of nodes in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairHasher {
    /// An implementation of hashtree.
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    Hashtree(hashtree::HashtreeImplementation),
    /// The crate `sha2`, which hashes one pair after another, with instructions for SHA-256 where
    /// it supports them.
    Portable,
}

/// Selects the fastest implementation for this processor, on first use.
fn pair_hasher() -> PairHasher {
    static PAIR_HASHER: OnceLock<PairHasher> = OnceLock::new();
    *PAIR_HASHER.get_or_init(|| {
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        if let Some(hasher) = hashtree::HashtreeImplementation::fastest_supported() {
            return PairHasher::Hashtree(hasher);
        }
        PairHasher::Portable
    })
}

/// Hashes `pairs`, of 64 bytes each, into `out`.
pub(super) fn hash_node_pairs(pairs: &[u8], out: &mut [MerkleNode]) {
    hash_node_pairs_with(pair_hasher(), pairs, out);
}

/// Hashes all pairs of nodes, and writes the hashes to the front of `nodes`.
pub(super) fn hash_one_level_in_place(nodes: &mut [MerkleNode]) {
    hash_nodes_in_place_with(pair_hasher(), nodes);
}

/// Returns the hash of two sibling nodes, which is their parent.
pub(super) fn hash_parent_node(left: &MerkleNode, right: &MerkleNode) -> MerkleNode {
    let mut parent = [MerkleNode::default()];
    hash_node_pairs([*left, *right].as_flattened(), &mut parent);
    parent[0]
}

/// Hashes each 64 bytes of `pairs` to one node of `out`.
fn hash_node_pairs_with(hasher: PairHasher, pairs: &[u8], out: &mut [MerkleNode]) {
    let (pairs, _) = pairs.as_chunks::<64>();
    match hasher {
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        PairHasher::Hashtree(hasher) => hasher.hash_pairs(pairs, out),
        PairHasher::Portable => {
            for (pair, out) in pairs.iter().zip(out) {
                *out = hash_pair_portable(pair);
            }
        }
    }
}

/// Hashes each pair of nodes; the results are in the first half of `nodes`.
fn hash_nodes_in_place_with(hasher: PairHasher, nodes: &mut [MerkleNode]) {
    match hasher {
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        PairHasher::Hashtree(hasher) => hasher.hash_pairs_in_place(nodes),
        PairHasher::Portable => {
            for n in 0..nodes.len() / 2 {
                let mut pair = [0; 64];
                pair.copy_from_slice(nodes[2 * n..2 * n + 2].as_flattened());
                nodes[n] = hash_pair_portable(&pair);
            }
        }
    }
}

/// Hashes one pair of nodes with the crate `sha2`.
fn hash_pair_portable(pair: &[u8; 64]) -> MerkleNode {
    // FIPS 180-4: the initial hash value, and the padding of 512 bits
    let mut state = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    const SHA256_PADDING: [u8; 64] = {
        let mut padding = [0; 64];
        padding[0] = 0x80;
        padding[62] = 2;
        padding
    };
    compress256(&mut state, &[*pair, SHA256_PADDING]);
    let mut node = MerkleNode::default();
    for (bytes, word) in node.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    node
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[path = "hashtree.rs"]
#[allow(unsafe_code)]
mod hashtree;

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn all_pair_hashers() -> Vec<PairHasher> {
        let mut hashers = vec![PairHasher::Portable];
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        hashers.extend(hashtree::HashtreeImplementation::supported().map(PairHasher::Hashtree));
        hashers
    }

    #[test]
    fn pair_hashers_return_sha_256() {
        let nodes: Vec<MerkleNode> = (0..140)
            .map(|n: u32| Sha256::digest(n.to_le_bytes()).into())
            .collect();
        let expected: Vec<MerkleNode> = nodes
            .chunks_exact(2)
            .map(|pair| Sha256::digest(pair.as_flattened()).into())
            .collect();
        for hasher in all_pair_hashers() {
            for count in 0..=nodes.len() / 2 {
                // at an odd address; the element after the output must not change
                let mut odd = vec![0];
                odd.extend_from_slice(nodes[..2 * count].as_flattened());
                let mut out = vec![[0xaa; 32]; count + 1];
                hash_node_pairs_with(hasher, &odd[1..], &mut out[..count]);
                assert_eq!(out[..count], expected[..count], "{hasher:?}, {count}");
                assert_eq!(out[count], [0xaa; 32], "{hasher:?}, {count}");

                let mut out = nodes.clone();
                hash_nodes_in_place_with(hasher, &mut out[..2 * count]);
                assert_eq!(out[..count], expected[..count], "{hasher:?}, {count}");
                assert_eq!(out[2 * count..], nodes[2 * count..], "{hasher:?}, {count}");
            }
        }
    }
}
