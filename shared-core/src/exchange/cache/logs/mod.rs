//! Responses to `eth_getLogs` that are assembled from other entries.
//!
//! | file | contents |
//! |---|---|
//! | `search` | the search for these entries, from the first lookup of the call to its response |
//! | `search_state` | the state of this search |
//! | `receipts` | the stored receipts of the only block of a call |
//! | `split` | the pieces of a wide call: in memory, at the owner, at the node |
//! | `plan` | the pieces of a wide range, and the call of each piece |
//! | `piece_state` | the pieces of one call, with their entries |
//! | `join` | the list of all logs from the lists of the pieces |
//! | `assembly_input` | the entries from which a response is assembled |
//! | `assembly` | the entry of the client's call, and the response from it |

mod assembly;
pub(in crate::exchange) mod assembly_input;
mod join;
mod piece_state;
pub(in crate::exchange) mod plan;
mod receipts;
pub(in crate::exchange) mod search;
pub(in crate::exchange) mod search_state;
mod split;

/// The method whose responses are assembled.
pub(in crate::exchange) const LOGS_METHOD: &[u8] = b"eth_getLogs";
