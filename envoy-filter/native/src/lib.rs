//! sszip as a dynamic module of Envoy: an HTTP filter, the last before the router.
//!
//! The hooks are called by Envoy, a stream's on the thread of its worker. No panic
//! leaves one: the stream goes on as if there were no filter, or, where that can't
//! be, is broken off.

pub mod abi;
mod background;
mod clock;
mod config;
mod config_hooks;
mod envoy;
mod hooks;
mod metrics;
mod pool;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
mod status;
mod store;
mod stream;
mod timers;
mod wakes;
