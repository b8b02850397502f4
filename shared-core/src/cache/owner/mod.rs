//! The one process that keeps the entries of a machine: its rules.
//!
//! Sans-I/O: no socket, no thread, no clock. `docs/owner-protocol.md` is what
//! the outside sees; crate `sszip-owner` carries the bytes. The parts:
//!
//! | module        | concern                                              |
//! |---------------|------------------------------------------------------|
//! | [`leases`]    | who fetches what nobody has                          |
//! | [`processes`] | events, the time each may use its memory, purges     |
//! | [`memory`]    | entries in memory, within a number of bytes          |
//! | [`disk`]      | what the owner needs of a store                      |
//! | [`following`] | what is known of chains goes to the processes         |
//! | [`forms`]     | an entry in another form: read, final, or smaller    |
//! | [`store`]     | that store                                           |
//! | [`tracker`]   | what becomes of a namespace's chain                  |
//! | [`state`]     | all of it together                                   |

pub mod disk;
pub mod following;
pub mod forms;
pub mod leases;
pub mod memory;
mod now;
pub mod processes;
mod record;
pub mod state;
pub mod store;
pub mod tracker;

pub use now::Now;
pub use state::Owner;
