//! The binary as tests and proxies meet it: over sockets, byte for byte.

mod chain;
mod chain_calls;
mod chain_control;
mod chain_feed;
mod corpus;
mod faults;
mod framing;
mod process;
mod recordings;
mod rpc;
mod stats;
mod support;
