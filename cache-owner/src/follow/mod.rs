//! Each configured namespace's node is asked what became of its chain.
//!
//! What follows from its answers is the core's
//! (`sszip_core::cache::owner::tracker`); here the questions go out, and what
//! came of them is done. Each chain has tasks of its own: what one of them
//! waits for, or fails at, is nothing to the others, nor to who is served.
//!
//! ```text
//!  Follower ── asks ──▶ Node ─┬─ Execution ─┬─ http ──────┬─ connect ─▶ node
//!     │                       │             └─ websocket ─┤
//!     ▼ steps                 └─ Beacon ──────── http ────┘
//!   owner, store, log                 └─ events: asks at once
//! ```
//!
//! | module       | concern                                             |
//! |--------------|-----------------------------------------------------|
//! | [`connect`]  | TCP, TLS, Unix sockets                              |
//! | [`http`]     | requests, within limits                             |
//! | [`websocket`]| calls over a WebSocket, and what comes unasked      |
//! | [`execution`]| questions in JSON-RPC                               |
//! | [`beacon`]   | questions to the Beacon API                         |
//! | [`node`]     | whichever of them it is                             |
//! | [`follower`] | when it is asked                                    |
//! | [`steps`]    | what is done                                        |
//! | [`chain`]    | what others see of it, and may tell it              |

pub mod beacon;
pub mod chain;
pub mod connect;
pub mod execution;
pub mod follower;
pub mod http;
pub mod node;
pub mod steps;
pub mod websocket;

use std::error::Error;
use std::fmt::Write;

/// An error with its causes, on one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            // a String takes all
            let _ = write!(text, ": {more}");
        }
        cause = error.source();
    }
    text
}
