//! Selection among the assembly functions of the crate `hashtree-rs`. The crate's own selection is
//! not used: it prefers SHA-NI to AVX-512, which takes half the time for 16 pairs or more, does not
//! check that the system saves AVX's registers, and its Rust function checks no length
//! (docs/decisions/024).

use std::arch::is_x86_feature_detected;

// linked for its library of assembly
use hashtree_rs as _;

use super::MerkleNode;

// Functions of hashtree.h. Each reads `64 * count` bytes at `input` and writes `32 * count` to
// `output`, of any alignment. Pairs are read before their hashes are written, in ascending order:
// `output` may be `input`.
extern "C" {
    fn hashtree_sha256_avx512_x16(output: *mut u8, input: *const u8, count: u64);
    fn hashtree_sha256_avx2_x8(output: *mut u8, input: *const u8, count: u64);
    fn hashtree_sha256_avx_x4(output: *mut u8, input: *const u8, count: u64);
    fn hashtree_sha256_shani_x2(output: *mut u8, input: *const u8, count: u64);
}

/// Number of pairs that AVX-512 hashes in parallel.
const AVX512_PAIRS: usize = 16;

/// Number of pairs from which on AVX-512 is faster than SHA-NI, although the other lanes are empty.
const MIN_AVX512_PAIRS: usize = 10;

/// An implementation of SHA-256 by the library hashtree, named by the instructions that it uses.
/// Only those that [`supported`](Self::supported) returns may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashtreeImplementation {
    /// AVX-512 for 16 pairs at a time, and SHA-NI for the rest.
    Avx512AndSha,
    Avx512,
    Sha,
    Avx2,
    Avx,
}

impl HashtreeImplementation {
    /// Returns the fastest implementation, or `None` if the processor lacks AVX.
    pub(super) fn fastest_supported() -> Option<Self> {
        Self::supported().next()
    }

    /// Iterates over the implementations that this processor supports, the fastest first.
    pub(super) fn supported() -> impl Iterator<Item = Self> {
        use HashtreeImplementation::*;
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw");
        let has_sha = is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1");
        let has_avx2 = is_x86_feature_detected!("avx2");
        let has_avx = is_x86_feature_detected!("avx");
        let ways = [
            (Avx512AndSha, has_avx512 && has_sha),
            (Sha, has_sha),
            (Avx512, has_avx512),
            (Avx2, has_avx2),
            (Avx, has_avx),
        ];
        ways.into_iter().filter(|(_, has)| *has).map(|(way, _)| way)
    }

    /// Hashes each pair of nodes into the node of `out` with the same index.
    pub(super) fn hash_pairs(self, pairs: &[[u8; 64]], out: &mut [MerkleNode]) {
        let count = pairs.len().min(out.len());
        // SAFETY: both slices have at least `count` elements, and `self` is one of `supported`.
        unsafe { self.hash_raw_pairs(out.as_mut_ptr().cast(), pairs.as_ptr().cast(), count) }
    }

    /// Hashes all pairs of `nodes`, and writes the hashes to the front of `nodes`.
    pub(super) fn hash_pairs_in_place(self, nodes: &mut [MerkleNode]) {
        let count = nodes.len() / 2;
        let at = nodes.as_mut_ptr().cast();
        // SAFETY: `nodes` is twice as long, `self` is one of `supported`, and the output may be the
        // input.
        unsafe { self.hash_raw_pairs(at, at, count) }
    }

    /// # Safety
    /// - `output` must be writable for `32 * count` bytes;
    /// - `input` must be readable for `64 * count` bytes; it is `output`, or doesn't overlap it;
    /// - the processor must support `self`.
    unsafe fn hash_raw_pairs(self, output: *mut u8, input: *const u8, count: usize) {
        // SAFETY: guaranteed by the caller; no call exceeds `count`.
        unsafe {
            match self {
                Self::Avx512AndSha => {
                    let mut wide = count - count % AVX512_PAIRS;
                    if wide > 0 {
                        hashtree_sha256_avx512_x16(output, input, wide as u64);
                    }
                    let left = count - wide;
                    if left >= MIN_AVX512_PAIRS {
                        let mut pairs = [0; 64 * AVX512_PAIRS];
                        let mut nodes = [0; 32 * AVX512_PAIRS];
                        pairs
                            .as_mut_ptr()
                            .copy_from_nonoverlapping(input.add(64 * wide), 64 * left);
                        hashtree_sha256_avx512_x16(
                            nodes.as_mut_ptr(),
                            pairs.as_ptr(),
                            AVX512_PAIRS as u64,
                        );
                        output
                            .add(32 * wide)
                            .copy_from_nonoverlapping(nodes.as_ptr(), 32 * left);
                        wide = count;
                    }
                    if count >= MIN_AVX512_PAIRS {
                        clear_avx_upper_halves();
                    }
                    if wide < count {
                        hashtree_sha256_shani_x2(
                            output.add(32 * wide),
                            input.add(64 * wide),
                            (count - wide) as u64,
                        );
                    }
                }
                Self::Avx512 => {
                    hashtree_sha256_avx512_x16(output, input, count as u64);
                    clear_avx_upper_halves();
                }
                Self::Sha => hashtree_sha256_shani_x2(output, input, count as u64),
                Self::Avx2 => {
                    hashtree_sha256_avx2_x8(output, input, count as u64);
                    clear_avx_upper_halves();
                }
                Self::Avx => hashtree_sha256_avx_x4(output, input, count as u64),
            }
        }
    }
}

/// Clears the upper halves of AVX's registers. hashtree leaves them dirty, which delays SSE
/// instructions, including SHA-NI, on Intel's processors.
#[target_feature(enable = "avx")]
fn clear_avx_upper_halves() {
    std::arch::x86_64::_mm256_zeroupper();
}
