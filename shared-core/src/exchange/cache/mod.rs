//! The part of an exchange that concerns the cache.
//!
//! | file | contents |
//! |---|---|
//! | `asked`, `found` | input and result of a lookup |
//! | `look_up`, `seek`, `batch`, `resource` | lookup of a request, of one response, of a batch, of a GET |
//! | `decoded` | lookup of a compressed body |
//! | `calls`, `scope` | keys and vary keys |
//! | `waits` | waiting for the owner and for other requests' fetches |
//! | `hit`, `stand_in` | responses from fresh and from stale entries |
//! | `result` | the result of a call as SSZ |
//! | `part`, `merge`, `assembly`, `pairing` | split batches: their parts, the node's response, the merged body, the pairing of calls and responses |
//! | `fetch`, `keep`, `storing` | fetches for the cache, and copies of responses |
//! | `fill` | the fetch of a response that is to be stored |
//! | `forms` | one resource in two formats |
//! | `changing` | requests that invalidate stored responses |
//! | `identity` | chain identity |
//! | `shown`, `watch` | blocks that responses show to clients |
//! | `purging`, `telling` | purge requests and status requests |

pub(super) mod asked;
mod assembly;
mod batch;
mod calls;
mod changing;
mod decoded;
mod fetch;
pub(super) mod fill;
mod forms;
pub(super) mod found;
mod hit;
mod identity;
mod keep;
pub(super) mod look_up;
mod merge;
mod pairing;
pub(super) mod part;
pub(super) mod purging;
mod resource;
mod result;
mod scope;
mod seek;
mod shown;
mod stand_in;
pub(super) mod storing;
#[cfg(not(target_family = "wasm"))]
pub(super) mod telling;
pub(super) mod waits;
pub(super) mod watch;
