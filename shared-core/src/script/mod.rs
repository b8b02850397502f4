//! Script API: functions of the core for programs that run in a host (Lua in nginx), independent of
//! the host's exchanges.
//!
//! | module      | concern                                                         |
//! |-------------|-----------------------------------------------------------------|
//! | [`kept`]    | values that programs store, in the hot tier                     |
//! | [`stored`]  | cached responses of nodes                                       |
//! | [`calls`]   | calls of a request, as the cache and the policy parse them      |
//! | [`values`]  | JSON to SSZ and back, checks and roots of values in memory      |
//! | [`figures`] | metrics                                                         |
//!
//! Nothing here blocks: requests to the owner of a store are returned as texts, which the host
//! sends, and whose replies it passes back.

pub mod calls;
#[cfg(not(target_family = "wasm"))]
pub mod figures;
pub mod kept;
pub mod stored;
pub mod values;
