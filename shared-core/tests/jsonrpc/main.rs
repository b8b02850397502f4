//! The JSON-RPC modules: the traps that real proxies fell into, by name, and
//! properties beside slow oracles.

mod block;
mod key;
mod oracle;
mod request;
mod response;
mod scan;
