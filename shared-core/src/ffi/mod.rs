//! The C ABI. `include/sszip.h` is generated from these files and is its
//! manual; a test compares the two.
//!
//! Conventions, held by macros and types rather than by care:
//! - a function that can fail returns a [`sszip_status`]; results are its last
//!   parameters and written only on `SSZIP_STATUS_OK`;
//! - objects are opaque, `_new` makes and `_free` ends them, `_free(NULL)` does
//!   nothing; `const` means that nothing changes;
//! - strings are pointer and length, never NUL-terminated; a pointer may be
//!   NULL where the length is 0;
//! - no panic crosses the boundary. Where the answer can be saved it is: the
//!   exchange gives up and the original is sent;
//! - an object is used by one thread at a time; any thread may do so.
#![allow(non_camel_case_types)]

mod cache;
mod config;
mod exchange;
mod job;
mod known_field;
mod link;
mod panic;
mod plan;
mod script;
mod status;
mod types;
mod variable;

pub use cache::*;
pub use config::*;
pub use exchange::*;
pub use job::*;
pub use known_field::*;
pub use link::*;
pub use plan::*;
pub use script::*;
pub use status::*;
pub use types::*;
pub use variable::*;
