//! What an exchange has to do with the cache.
//!
//! | file | what it holds |
//! |---|---|
//! | `asked`, `found` | what is looked for, and what comes of that |
//! | `look_up`, `seek`, `batch`, `resource` | looking for it: of any request, of one answer, of a batch, of a GET |
//! | `decoded` | the same of a body that is coded |
//! | `calls`, `scope` | where it would be |
//! | `waits` | waiting for what others fetch |
//! | `hit`, `stand_in` | giving it out: fresh, and when it has expired |
//! | `result` | the same as SSZ, of a call |
//! | `part`, `merge`, `assembly`, `pairing` | a batch of which the node gets a part: what it is, how the node's response comes, what the client gets, which answer is whose |
//! | `fetch`, `keep`, `storing` | having it fetched, and keeping a copy |
//! | `fill` | the copy on its way into the cache |
//! | `forms` | one resource in two formats |
//! | `changing` | requests that make what is stored out of date |
//! | `identity` | telling chains apart |
//! | `purging`, `telling` | requests that purge, and that ask how it all goes |

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
