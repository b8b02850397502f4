//! The binary as tests and proxies meet it: over sockets, byte for byte.

mod corpus;
mod faults;
mod framing;
mod process;
mod recordings;
mod rpc;
mod stats;
mod support;
