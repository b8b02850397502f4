//! hash_tree_root: against vectors of the specs' library, and against a slow
//! one that is easily seen to be right.

#![allow(clippy::unwrap_used, clippy::panic)]

mod corpus;
mod large;
mod naive;
mod random;
mod vectors;
