//! The JSON-RPC modules: edge cases in which real proxies have failed, and properties in
//! comparison with slow oracles.

mod block;
mod block_anchors;
mod key;
mod oracle;
mod request;
mod response;
mod scan;
