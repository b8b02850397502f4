//! The root of the Merkle tree of a value (ssz/simple-serialize.md,
//! "Merkleization"; EIP-7495, EIP-7916, EIP-8016), from its bytes.
//!
//! Processors hash many pairs of nodes side by side in half the time that one
//! after the other takes ([`pairs`], docs/decisions/024), so nothing here hashes
//! one value if it can hash many: [`walk`] finds the roots of several values of
//! one type together, a field of all of them, then the next field of all.
//!
//! | module     | concern                                                     |
//! |------------|-------------------------------------------------------------|
//! | [`walk`]   | the values inside of values                                 |
//! | [`series`] | lists, vectors, bytes and bits                              |
//! | [`forest`] | many small trees, level by level                            |
//! | [`tree`]   | a tree of any size, from left to right                      |
//! | [`pairs`]  | SHA-256                                                     |
//! | [`zeros`]  | roots of nothing                                            |
//!
//! Memory: some hundred kilobytes, whatever the value. All is taken from
//! vectors that are used as stacks.

mod forest;
mod pairs;
mod series;
mod tree;
mod walk;
mod zeros;

use self::walk::Walk;
use super::check::check;
use super::error::{Error, Problem};
use super::schema::{Schema, TypeId};

/// The root of a value, `ssz`.
///
/// # Errors
/// Where `ssz` is no value of the type, and why, as [`check`] says; or memory
/// was refused.
pub fn hash_tree_root(schema: &Schema, ty: TypeId, ssz: &[u8]) -> Result<[u8; 32], Error> {
    check(schema, ty, ssz)?;
    Walk::new(schema, ssz).root(ty)
}

/// Makes a stack as high as `len`.
fn grow<T: Clone>(stack: &mut Vec<T>, len: usize, with: T) -> Result<(), Error> {
    let more = len.saturating_sub(stack.len());
    match stack.try_reserve(more) {
        Ok(()) => {
            stack.resize(stack.len() + more, with);
            Ok(())
        }
        Err(_) => Err(Error::new(0, Problem::NoMemory(more * size_of::<T>()))),
    }
}
