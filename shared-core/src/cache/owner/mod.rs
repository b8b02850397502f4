//! Rules of the owner, the one process of a machine that stores entries.
//!
//! Sans-I/O: no socket, no thread, no clock. `docs/owner-protocol.md` specifies the protocol;
//! crate `sszip-owner` carries the bytes. The modules:
//!
//! | module            | concern                                              |
//! |-------------------|------------------------------------------------------|
//! | [`leases`]        | the right to fetch a key that missed                 |
//! | [`processes`]     | events, send leases, purges                          |
//! | `event_queue`     | the numbered events of one process                   |
//! | [`session`]       | sessions: output, acknowledgements, long bodies      |
//! | `polled_replies`  | replies of sessions that poll, and late ones         |
//! | [`session_tasks`] | messages of a process, and the tasks they need       |
//! | `session_lookups` | the lookups among them                               |
//! | `session_polls`   | sessions whose processes poll for events             |
//! | [`direct_calls`]  | calls of the owner's process, in place of messages   |
//! | [`memory_tier`]   | entries in memory, within a number of bytes          |
//! | [`disk`]          | the store interface of the owner                     |
//! | [`chain_updates`] | publication of chain states to the processes         |
//! | [`entry_updates`] | replacement of an entry: read, final or recompressed |
//! | [`fleet_gate`]    | way from lookups to the fleet                        |
//! | [`fleet_lookups`] | lookups that continue in the fleet                   |
//! | [`store`]         | `cache::store` behind that interface                 |
//! | [`tracker`]       | tracking of a namespace's chain                      |
//! | [`state`]         | the owner that joins all of them                     |

pub mod chain_updates;
pub mod direct_calls;
pub mod disk;
pub mod entry_updates;
mod event_queue;
pub mod fleet_gate;
pub mod fleet_lookups;
pub mod leases;
pub mod memory_tier;
mod polled_replies;
pub mod processes;
mod record;
pub mod session;
mod session_lookups;
mod session_polls;
pub mod session_tasks;
pub mod state;
pub mod store;
pub mod tracker;

pub use super::clock::ClockReading;
pub use state::Owner;
