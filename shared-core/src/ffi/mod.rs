//! The C ABI. `include/sszip.h` is generated from these files and from
//! `cbindgen.toml`; a test compares the two, and lists which file belongs to
//! which section of the header. `cbindgen.toml` contains the conventions.
//!
//! Macros and types enforce the conventions:
//! - a function that can fail returns a [`sszip_status`]; `check_results!` comes
//!   first, so that a call without memory for a result has no effect;
//! - objects are opaque; `const` means that the object is not changed;
//! - strings are pointer and length, and not NUL-terminated; a pointer may be
//!   NULL if the length is 0;
//! - no panic crosses the boundary: if a response can still be sent, the
//!   exchange stops its work and sends the original;
//! - any thread may use an object, but only one at a time: the types inside
//!   are `Send`.
#![allow(non_camel_case_types)]

mod cache;
mod config;
mod exchange;
mod exchange_types;
mod job;
mod known_header;
mod link;
mod panic;
mod process;
mod script;
mod ssz;
mod status;
mod types;
mod validated_config;
mod variable;

pub use cache::*;
pub use config::*;
pub use exchange::*;
pub use exchange_types::*;
pub use job::*;
pub use known_header::*;
pub use link::*;
pub use process::*;
pub use script::*;
pub use ssz::*;
pub use status::*;
pub use types::*;
pub use validated_config::*;
pub use variable::*;

// The header promises that objects may be used on any thread, and a
// `sszip_config` on several at a time.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_sync<T: Sync>() {}
    is_send::<crate::exchange::drive::ExchangeDriver>();
    is_send::<sszip_job>();
    is_send::<sszip_validated_config>();
    is_send::<sszip_config>();
    is_sync::<sszip_config>();
};
