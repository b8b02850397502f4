//! Responses to `eth_getLogs` that are assembled from other entries.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | the pieces of a wide range, and the call of each piece |
//! | `split` | the lookup of a wide call: its pieces in memory, at the owner, at the node |
//! | `split_state` | the split of a call, between its lookups |
//! | `piece_state` | the pieces of one call, with their entries |
//! | `join` | the list of all logs from the lists of the pieces |
//! | `receipts` | the lookup of the stored receipts of the only block of a call |
//! | `receipts_state` | the search for receipts, between its lookups |
//! | `assembly_input` | the entries from which a response is assembled |
//! | `assembly` | the entry of the client's call, and the response from it |

mod assembly;
pub(in crate::exchange) mod assembly_input;
mod join;
mod piece_state;
mod plan;
mod receipts;
pub(in crate::exchange) mod receipts_state;
pub(in crate::exchange) mod split;
pub(in crate::exchange) mod split_state;

/// The method whose responses are assembled.
pub(in crate::exchange) const LOGS_METHOD: &[u8] = b"eth_getLogs";
