//! The fleet: a server of the Redis protocol through which the owners of several machines share
//! entries.
//!
//! The rules are in the core (`sszip_core::cache::fleet`); this module has the connections and the
//! tasks. Nothing waits for the fleet: until it is connected, and whenever it fails, the owner
//! serves as it does without one.
//!
//! ```text
//!  FleetTier ─┬─ lookups ──────▶ FleetClient ─┬─ lookup connection ─▶ server
//!             ├─ StoreQueue ───▶              └─ store connection ──▶
//!             └─ FleetPurges ──▶
//! ```
//!
//! | module                  | concern                                             |
//! |-------------------------|-----------------------------------------------------|
//! | [`start`]               | start of an owner's fleet                           |
//! | [`tier`]                | lookups, with the checks of values                  |
//! | [`offers`]              | entries that are shared                             |
//! | [`lease_table`]         | leases of this owner, and node times                |
//! | [`leases`]              | waits for a response that another machine fetches   |
//! | [`batch_leases`]        | leases and waits of batches                         |
//! | [`store_queue`]         | queue of entries to store                           |
//! | [`purge`]               | purges of this owner                                |
//! | [`purge_report`]        | reports about purges                                |
//! | `owner_identity`        | id of this owner, which no other owner has          |
//! | `owner_table`           | owners of the fleet, and the purges they confirm    |
//! | [`stream`]              | purges of all owners, in their order                |
//! | `stream_replies`        | replies to commands of the purge stream             |
//! | [`position_file`]       | files of the position and of unpublished purges     |
//! | [`client`]              | commands, with timeouts and circuit breakers        |
//! | [`connect`]             | TCP and TLS                                         |
//! | [`reply_limit_stream`]  | limit of replies, before they are buffered          |
//! | [`ping`]                | measurement of the latency                          |
//! | [`status`]              | the fleet in the owner's status                     |

use std::hash::{BuildHasher, Hasher, RandomState};

mod awaited_keys;
pub(crate) mod batch_leases;
pub mod client;
pub mod connect;
mod lease_table;
mod leases;
pub mod offers;
mod owner_identity;
mod owner_table;
pub mod ping;
pub mod position_file;
pub mod purge;
pub mod purge_report;
pub mod reply_limit_stream;
pub mod start;
pub mod status;
pub mod store_queue;
pub mod stream;
mod stream_replies;
pub mod tier;

/// Returns a random number, for jitter and names: not for keys.
pub(crate) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns a random name.
fn random_name() -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&random_number().to_be_bytes());
    name[8..].copy_from_slice(&random_number().to_be_bytes());
    name
}
