//! The owner of the cache: the process that stores a machine's entries.
//!
//! `docs/owner-protocol.md` specifies its protocol; the rules are in the core
//! (`sszip_core::cache::owner`), and this crate carries the bytes. It is a library for a host that
//! provides a process, and a daemon, `sszip-cached`.
//!
//! | module        | concern                                             |
//! |---------------|-----------------------------------------------------|
//! | [`run`]       | the lifecycle of an owner, from election to end     |
//! | [`open`]      | the opening of the store                            |
//! | [`config`]    | the configuration                                   |
//! | [`socket`]    | the Unix socket                                     |
//! | [`server`]    | connections                                         |
//! | [`service`]   | HTTP requests as calls of the engine                |
//! | [`engine`]    | the rules, with threads for calls that wait         |
//! | [`waits`]     | lookups that wait for another process's lease       |
//! | [`peer`]      | the client of a connection                          |
//! | [`bodies`]    | request bodies, within limits                       |
//! | [`request`]   | decoding of requests                                |
//! | [`answer`]    | heads and bodies of responses                       |
//! | [`events`]    | the event stream                                    |
//! | [`coder`]     | recompression of entries on their way to the disk   |
//! | [`asked`]     | query of the status of a running daemon             |
//! | [`follow`]    | the followed chains                                 |
//! | [`clock`]     | the clocks of the machine                           |

pub mod answer;
pub mod asked;
pub mod bodies;
pub mod clock;
pub mod coder;
pub mod config;
pub mod engine;
pub mod events;
#[allow(unsafe_code)]
pub mod ffi;
pub mod files;
pub mod follow;
mod follows;
pub mod gate;
pub mod log;
pub mod open;
pub mod peer;
pub mod request;
pub mod run;
pub mod server;
pub mod service;
pub mod socket;
mod storing;
mod timers;
mod units;
pub mod waits;
