//! Hash tree roots of values (ssz/simple-serialize.md, "Merkleization"; EIP-7495, EIP-7916,
//! EIP-8016), from their bytes.
//!
//! Processors hash many pairs of nodes in parallel in half the time of hashing them one after
//! another ([`pairs`], docs/decisions/024), so values are hashed together where possible: [`walk`]
//! computes the roots of several values of one type together, one field of all of them, then the
//! next field.
//!
//! | module         | concern                                |
//! |----------------|----------------------------------------|
//! | [`walk`]       | traversal of nested values             |
//! | [`sequences`]  | lists, vectors, bytes and bits         |
//! | [`forest`]     | many small trees, level by level       |
//! | [`tree`]       | a tree of any size, from left to right |
//! | [`pairs`]      | SHA-256                                |
//! | [`zero_roots`] | roots of empty trees                   |
//!
//! Memory use is some hundred kilobytes, independent of the value. All memory is allocated in
//! vectors that are used as stacks.

// Circle of imports: walk.rs, sequences.rs. A container has sequences, and the elements of a
// sequence may be containers.
mod forest;
mod grow_stack;
mod pair_hash;
mod sequences;
mod tree;
mod walk;
mod zero_roots;

use self::walk::RootWalker;
use super::check::check_ssz;
use super::error::SszError;
use super::schema::{Schema, TypeId};

/// Computes the hash tree root of a value, `ssz`.
///
/// # Errors
/// The position and the reason if `ssz` is not a value of the type, as [`check_ssz`] returns them;
/// or memory was refused.
pub fn hash_tree_root(schema: &Schema, ty: TypeId, ssz: &[u8]) -> Result<[u8; 32], SszError> {
    check_ssz(schema, ty, ssz)?;
    RootWalker::new(schema, ssz).value_root(ty)
}
