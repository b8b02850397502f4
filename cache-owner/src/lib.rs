//! The cache's owner: the process that keeps a machine's entries.
//!
//! `docs/owner-protocol.md` is what it speaks; the rules are the core's
//! (`sszip_core::cache::owner`), this crate carries the bytes. It is a library
//! for a host that has a process for it, and a daemon, `sszip-cached`.
//!
//! | module      | concern                                        |
//! |-------------|------------------------------------------------|
//! | [`run`]     | from the election to the end                   |
//! | [`open`]      | its store                                      |
//! | [`config`]    | what the daemon's file says                    |
//! | [`socket`]  | the Unix socket                                |
//! | [`server`]  | connections                                    |
//! | [`service`] | requests become calls, and what comes of them answers |
//! | [`engine`]  | the rules at work, and where they wait         |
//! | [`waits`]     | look-ups that wait for another's lease         |
//! | [`peer`]      | who is at the end of a connection              |
//! | [`bodies`]    | bodies of requests, within limits              |
//! | [`request`] | what a request asks for                        |
//! | [`answer`]  | heads and bodies that go back                  |
//! | [`events`]  | the event stream                               |
//! | [`coder`]     | what goes to the disk is made smaller          |
//! | [`asked`]   | what a daemon that runs says of itself         |
//! | [`follow`]    | what became of the chains of nodes             |
//! | [`clock`]   | the machine's clocks                           |

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
