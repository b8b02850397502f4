//! sszip as a dynamic module of Envoy: an HTTP filter, the last before the router.
//!
//! Envoy calls the hooks of a stream on the thread of its worker. No panic
//! leaves a hook: the stream continues as if there were no filter, or is reset
//! where that is impossible.

pub mod abi;
mod background;
mod clock;
mod config;
mod config_hooks;
mod envoy;
mod hooks;
mod metrics;
mod process;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
mod status;
mod store;
mod stream;
mod thread_pool;
mod timers;
mod wakeups;
