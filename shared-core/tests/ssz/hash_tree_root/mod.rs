//! Hash tree roots, compared with vectors of the specs' library and with a slow reference
//! implementation.

mod corpus;
mod large;
mod random;
mod vectors;
