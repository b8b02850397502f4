//! The C ABI. `include/sszip.h` is generated from these files and from
//! `cbindgen.toml`; a test compares the two. Its beginning states the
//! conventions.
//!
//! Macros and types enforce the conventions:
//! - a function that can fail returns a [`sszip_status`]; its results are its
//!   last parameters and are written on `SSZIP_STATUS_OK` only, except texts
//!   for the operator;
//! - objects are opaque; a `_free` function ends them, and has no effect on
//!   NULL; `const` means that the object is not changed;
//! - strings are pointer and length, and not NUL-terminated; a pointer may be
//!   NULL if the length is 0;
//! - no panic crosses the boundary: if a response can still be sent, the
//!   exchange stops its work and sends the original;
//! - any thread may use an object, but only one at a time.
#![allow(non_camel_case_types)]

mod cache;
mod config;
mod exchange;
mod job;
mod known_header;
mod link;
mod panic;
mod script;
mod status;
mod types;
mod validated_config;
mod variable;

pub use cache::*;
pub use config::*;
pub use exchange::*;
pub use job::*;
pub use known_header::*;
pub use link::*;
pub use script::*;
pub use status::*;
pub use types::*;
pub use validated_config::*;
pub use variable::*;
