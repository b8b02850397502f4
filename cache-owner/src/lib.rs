//! The owner of the cache: the process that stores a machine's entries.
//!
//! `docs/owner-protocol.md` specifies its protocol; the rules are in the core
//! (`sszip_core::cache::owner`), and this crate carries the bytes. It is a library for a host that
//! provides a process, and a daemon, `sszip-cached`.
//!
//! | module              | concern                                           |
//! |---------------------|---------------------------------------------------|
//! | [`owner_lifecycle`] | the lifecycle of an owner, from election to end   |
//! | [`open_store`]      | the opening of the store                          |
//! | [`config`]          | the configuration                                 |
//! | [`socket`]          | the Unix socket                                   |
//! | [`server`]          | connections                                       |
//! | [`service`]         | HTTP requests as calls of the engine              |
//! | [`engine`]          | the rules, with threads for calls that wait       |
//! | [`operations`]      | engine, purges and status for all interfaces      |
//! | [`direct_calls`]    | calls of the owner's process, in place of frames  |
//! | [`request_bodies`]  | request bodies, within limits                     |
//! | [`request`]         | decoding of requests                              |
//! | [`response`]        | heads and bodies of responses                     |
//! | [`event_waker`]     | the waker of a task that sends events             |
//! | [`frames`]          | sessions of processes that send frames            |
//! | [`recompressor`]    | recompression of entries on their way to the disk |
//! | [`status_client`]   | query of the status of a running daemon           |
//! | [`follow`]          | the followed chains                               |
//! | [`fleet`]           | entries that several machines share               |
//! | [`clock`]           | the clocks of the machine                         |

pub mod clock;
pub mod config;
mod config_values;
mod deadline_alarm;
pub mod direct_calls;
pub mod engine;
pub mod event_waker;
#[allow(unsafe_code)]
pub mod ffi;
pub mod file_limit;
pub mod fleet;
mod fleet_config;
pub mod follow;
pub mod frames;
mod head_config;
pub mod log;
pub mod open_gate;
pub mod open_store;
pub mod operations;
pub mod owner_lifecycle;
pub mod recompressor;
pub mod request;
pub mod request_bodies;
pub mod response;
pub mod server;
pub mod service;
pub mod socket;
pub mod status_client;
mod stop;
mod store_entry;
mod timers;
