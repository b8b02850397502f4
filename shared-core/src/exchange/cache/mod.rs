//! The part of an exchange that concerns the cache.
//!
//! | file | contents |
//! |---|---|
//! | `lookup` | lookup of a request, of one response, of a GET; its input and result |
//! | `batch` | lookup of a batch: its split into stored and missing calls, and the merge |
//! | `call_keys`, `request_vary_key` | keys and vary keys |
//! | `waiting` | waiting for the owner and for other requests' fetches |
//! | `hit`, `serve_stale` | responses from fresh and from stale entries |
//! | `hit_coding` | the content coding of these responses |
//! | `only_if_cached` | requests that the node must not receive |
//! | `ssz_result` | the result of a call as SSZ |
//! | `fetch`, `copy_response`, `store_plan` | fetches for the cache, and copies of responses |
//! | `fill` | the fetch of a response that is to be stored |
//! | `logs` | responses to `eth_getLogs` that are assembled from other entries |
//! | `format_pair` | one resource in two formats |
//! | `invalidation` | requests that invalidate stored responses |
//! | `chain_identity` | chain identity |
//! | `observed_blocks` | blocks that responses show to clients |
//! | `purge_request`, `status_request` | purge requests and status requests |

pub(super) mod batch;
mod call_keys;
mod chain_identity;
mod copy_response;
mod fetch;
pub(super) mod fill;
mod format_pair;
mod hit;
mod hit_coding;
mod invalidation;
pub(super) mod logs;
pub(super) mod lookup;
pub(super) mod observed_blocks;
mod only_if_cached;
pub(super) mod purge_request;
mod request_vary_key;
mod serve_stale;
mod ssz_result;
#[cfg(not(target_family = "wasm"))]
pub(super) mod status_request;
pub(super) mod store_plan;
pub(super) mod waiting;
