//! The part of an exchange that concerns the cache.
//!
//! | file | contents |
//! |---|---|
//! | `lookup_request`, `lookup_result` | input and result of a lookup |
//! | `lookup`, `find_entry`, `batch`, `resource` | lookup of a request, response, batch, GET |
//! | `compressed_lookup` | lookup of a compressed body |
//! | `call_keys`, `request_vary_key` | keys and vary keys |
//! | `waiting` | waiting for the owner and for other requests' fetches |
//! | `hit`, `serve_stale` | responses from fresh and from stale entries |
//! | `ssz_result` | the result of a call as SSZ |
//! | `split_batch`, `merge` | split batches: their parts, and the node's response |
//! | `batch_assembly`, `pairing` | the merged body, the pairing of calls and responses |
//! | `fetch`, `copy_response`, `store_plan` | fetches for the cache, and copies of responses |
//! | `fill` | the fetch of a response that is to be stored |
//! | `format_pair` | one resource in two formats |
//! | `invalidation` | requests that invalidate stored responses |
//! | `chain_identity` | chain identity |
//! | `observe_blocks`, `block_observer` | blocks that responses show to clients |
//! | `purge_request`, `status_request` | purge requests and status requests |

mod batch;
mod batch_assembly;
pub(super) mod block_observer;
mod call_keys;
mod chain_identity;
mod compressed_lookup;
mod copy_response;
mod fetch;
pub(super) mod fill;
mod find_entry;
mod format_pair;
mod hit;
mod invalidation;
pub(super) mod lookup;
pub(super) mod lookup_request;
pub(super) mod lookup_result;
mod merge;
mod observe_blocks;
mod pairing;
pub(super) mod purge_request;
mod request_vary_key;
mod resource;
mod serve_stale;
pub(super) mod split_batch;
mod ssz_result;
#[cfg(not(target_family = "wasm"))]
pub(super) mod status_request;
pub(super) mod store_plan;
pub(super) mod waiting;
