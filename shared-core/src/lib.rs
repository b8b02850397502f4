//! The sans-I/O core of sszip: every decision about an HTTP exchange.
//!
//! A proxy ("host") carries bytes; this crate decides what to do with them. It opens no socket,
//! starts no thread and reads no clock (the store on disk, feature `store`, is for the process
//! that owns it). [`exchange`] is the state machine that a host drives, one per request; the other
//! modules serve it:
//!
//! | module              | contents                                                     |
//! |---------------------|--------------------------------------------------------------|
//! | [`exchange`]        | the state machine, its transition table                      |
//! | [`negotiate`]       | Accept-Encoding, media types, Vary, ETag (RFC 9110)          |
//! | [`gzip`]            | one-shot and streaming compression, decompression (RFC 1952) |
//! | [`zstd`]            | one-shot and streaming compression, decompression (RFC 8878) |
//! | [`body_compressor`] | compression in the coding that a client receives             |
//! | [`content_coding`]  | the content codings gzip and zstd                            |
//! | [`request_coding`]  | content coding of a body, decompression                      |
//! | [`json`]            | detection of truncated JSON (RFC 8259)                       |
//! | [`jsonrpc`]         | calls, responses, the method table, keys (JSON-RPC 2.0)      |
//! | [`beacon`]          | routes of the Beacon API, lifetime of their responses        |
//! | [`ssz`]             | type tables, and the walkers of their values                 |
//! | [`transcode`]       | conversion between JSON and SSZ of the Beacon API            |
//! | [`cache`]           | entries, which are sent without another compression          |
//! | [`config`]          | directives as operators write them, validated once           |
//! | [`memory`]          | the memory budget of a process, shortage of memory           |
//! | [`bytes`]           | copies that report a refused allocation                      |
//! | [`hash_keys`]       | maps with the hash keys of the process                       |
//! | [`lock`]            | locks that ignore poisoning                                  |
//! | [`log`]             | escapes for foreign text in log lines                        |
//! | [`metrics`]         | counters, gauges and histograms                              |
//! | [`response_mode`]   | treatment of a response's body, for logs and metrics         |
//! | [`time_constants`]  | times that no directive sets                                 |
//! | [`log_variable`]    | log variables of an exchange                                 |
//! | [`script`]          | the script API for programs in a host: Lua in nginx          |
//! | `allocator`         | small allocations that don't fail (feature `ffi`)            |
//! | `ffi`               | the C ABI of `include/sszip.h` (feature `ffi`)               |

// the name under which tests/support/ imports this crate, which unit tests share
#[cfg(all(test, feature = "store"))]
extern crate self as sszip_core;

#[cfg(feature = "ffi")]
#[allow(unsafe_code)]
pub mod allocator;
pub mod beacon;
pub mod body_compressor;
pub mod bytes;
pub mod cache;
pub mod config;
pub mod content_coding;
pub mod exchange;
mod faults;
#[cfg(feature = "ffi")]
#[allow(unsafe_code)]
pub mod ffi;
pub mod gzip;
pub mod hash_keys;
mod idle_pool;
pub mod json;
pub mod jsonrpc;
pub mod lock;
pub mod log;
pub mod log_variable;
pub mod memory;
pub mod metrics;
pub mod negotiate;
mod panics;
pub mod request_coding;
pub mod response_mode;
pub mod script;
pub mod ssz;
#[cfg(not(target_family = "wasm"))]
pub mod status;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
#[cfg(test)]
#[path = "../tests/support/tier.rs"]
mod tier;
pub mod time_constants;
pub mod transcode;
pub mod zstd;

#[cfg(all(test, feature = "ffi"))]
#[global_allocator]
static ALLOCATOR: allocator::ReserveAllocator = allocator::ReserveAllocator;
