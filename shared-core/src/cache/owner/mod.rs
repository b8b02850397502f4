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
//! | [`inactive`]  | what nobody asks for                                 |
//! | [`forms`]     | an entry in another form: read, final, or smaller    |
//! | [`store`]     | that store                                           |
//! | [`tracker`]   | what becomes of a namespace's chain                  |
//! | [`state`]     | all of it together                                   |

pub mod disk;
pub mod following;
pub mod forms;
pub mod inactive;
pub mod leases;
pub mod memory;
pub mod processes;
mod record;
mod recorded;
pub mod state;
pub mod store;
pub mod tracker;

pub use crate::cache::class::Class;
pub use crate::cache::entry::about::{About, Scope};
pub use state::Owner;

/// The time of a call, in milliseconds of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Of the machine's monotonic clock, the same in all its processes:
    /// leases and the lives of entries in memory.
    pub monotonic: u64,
    /// Since 1970: the lives of entries on disk.
    pub unix: u64,
}
