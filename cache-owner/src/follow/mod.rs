//! Followed chains: the owner polls the node of each configured namespace for its chain.
//!
//! The core evaluates the results (`sszip_core::cache::owner::tracker`); this module sends the
//! queries and carries out the steps. Each chain has tasks of its own: a chain that waits or
//! fails does not affect the others, nor the clients.
//!
//! ```text
//!  Follower ── query ─▶ Node ─┬─ Execution ─┬─ http ──────┬─ connect ─▶ node
//!     │                       │             └─ websocket ─┤
//!     ▼ steps                 └─ Beacon ──────── http ────┘
//!   owner, store, log                 └─ events: trigger a poll
//! ```
//!
//! | module          | concern                                  |
//! |-----------------|------------------------------------------|
//! | [`http`]        | requests, within limits                  |
//! | [`websocket`]   | calls and notifications over a WebSocket |
//! | [`execution`]   | queries in JSON-RPC                      |
//! | [`beacon`]      | queries over the Beacon API              |
//! | [`node`]        | a node with any of these protocols       |
//! | [`follower`]    | the polls of a node                      |
//! | [`apply_steps`] | the execution of steps                   |
//! | [`chain`]       | the state that the follower shares       |

pub mod apply_steps;
pub mod beacon;
pub mod chain;
pub mod execution;
pub mod follower;
pub mod http;
pub mod node;
pub mod websocket;
