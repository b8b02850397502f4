//! hash_tree_root: against vectors of the specs' library, and against a slow
//! one that is easily seen to be right.

mod corpus;
mod large;
mod random;
mod vectors;
