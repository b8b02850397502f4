//! The binary as tests and proxies use it: over sockets, byte by byte.

mod beacon;
mod chain;
mod chain_calls;
mod chain_control;
mod chain_feed;
mod corpus;
mod faults;
mod framing;
mod process;
mod publishes;
mod recordings;
mod rpc;
mod stats;
mod support;
mod witnesses;
