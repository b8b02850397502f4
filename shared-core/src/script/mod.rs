//! Script API: functions of the core for programs that run in a host (Lua in nginx), independent of
//! the host's exchanges.
//!
//! | module               | concern                                                    |
//! |----------------------|------------------------------------------------------------|
//! | [`stored_values`]    | values that programs store, in the hot tier                |
//! | [`cached_responses`] | cached responses of nodes                                  |
//! | [`request_calls`]    | calls of a request, as the cache and the policy parse them |
//! | [`owner_http`]       | requests to the owner as HTTP/1.1 text                     |
//! | [`ssz_values`]       | JSON to SSZ and back, checks and roots of values in memory |
//! | [`metrics`]          | the metrics of this host, as names and values              |
//!
//! Nothing here blocks: requests to the owner of a store are returned as texts, which the host
//! sends, and whose replies it passes back.

pub mod cached_responses;
#[cfg(not(target_family = "wasm"))]
pub mod metrics;
pub mod owner_http;
pub mod request_calls;
pub mod ssz_values;
pub mod stored_values;
