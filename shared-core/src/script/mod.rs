//! What programs that run in a host (Lua in nginx) may use of the core, beside what their
//! host's exchanges do.
//!
//! | module      | concern                                                         |
//! |-------------|-----------------------------------------------------------------|
//! | [`kept`]    | values of their own, in the memory that answers share           |
//! | [`stored`]  | answers of nodes that are stored                                |
//! | [`calls`]   | what a request calls, as the cache and the policy read it       |
//! | [`values`]  | JSON as SSZ and back, checks and roots, of what is in memory    |
//! | [`figures`] | what was counted                                                |
//!
//! Nothing here waits: what the owner of a store is to be asked is a text that the host
//! sends, and gives the answer to.

pub mod calls;
#[cfg(not(target_family = "wasm"))]
pub mod figures;
pub mod kept;
pub mod stored;
pub mod values;
