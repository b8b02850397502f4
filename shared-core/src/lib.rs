//! The sans-I/O core of sszip: every decision about an HTTP exchange.
//!
//! A proxy ("host") carries bytes; this crate decides what to do with them.
//! It opens no socket, starts no thread and reads no clock (the store on disk,
//! feature `store`, is for the process that owns it). [`exchange`] is
//! the state machine a host drives, one per request; everything else serves
//! it:
//!
//! | module        | concern                                               |
//! |---------------|-------------------------------------------------------|
//! | [`exchange`]  | the state machine, its transition table               |
//! | [`negotiate`] | Accept-Encoding, media types, Vary, ETag (RFC 9110)   |
//! | [`gzip`]      | coding at once and by pieces, decoding (RFC 1952)     |
//! | [`zstd`]      | decoding (RFC 8878)                                   |
//! | [`coded`]     | bodies that clients have coded                        |
//! | [`json`]      | telling a whole text from one cut short (RFC 8259)    |
//! | [`jsonrpc`]   | calls, answers, the method table, keys (JSON-RPC 2.0) |
//! | [`beacon`]    | routes of the Beacon API, and how long they may be kept |
//! | [`ssz`]       | types as tables, and what walks them                  |
//! | [`transcode`] | JSON of the Beacon API as SSZ, and back               |
//! | [`cache`]     | answers kept, and sent without coding them again      |
//! | [`config`]    | directives as operators write them, checked once      |
//! | [`memory`]    | how much a process may hold, and whether there is any |
//! | [`bytes`]     | copies that may be refused                            |
//! | [`lock`]      | locks that outlive a panic                            |
//! | [`log`]       | text of others in a line of a log                     |
//! | [`metrics`]   | what is counted of an exchange                        |
//! | [`mode`]      | what happened to an answer, for logs and metrics      |
//! | [`times`]     | times that no directive sets                          |
//! | [`variable`]  | what logs may say of an exchange, in words            |
//! | [`script`]    | what programs in a host may use: Lua in nginx         |
//! | `allocator`   | small allocations that don't fail (feature `ffi`)     |
//! | `ffi`         | the C ABI of `include/sszip.h` (feature `ffi`)        |

#[cfg(feature = "ffi")]
#[allow(unsafe_code)]
pub mod allocator;
pub mod beacon;
pub mod bytes;
pub mod cache;
pub mod coded;
pub mod config;
pub mod exchange;
mod faults;
#[cfg(feature = "ffi")]
#[allow(unsafe_code)]
pub mod ffi;
pub mod gzip;
pub mod json;
pub mod jsonrpc;
pub mod lock;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod mode;
pub mod negotiate;
mod panics;
pub mod script;
pub mod ssz;
#[cfg(not(target_family = "wasm"))]
pub mod status;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
pub mod times;
pub mod transcode;
pub mod variable;
pub mod zstd;

#[cfg(all(test, feature = "ffi"))]
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;
