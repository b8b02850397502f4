//! Requests that a client of HTTP/1 sends before it has its answers. Envoy closes a
//! connection when a request begins while two answers are unsent, and what a hook answers
//! is unsent until Envoy has read all that has come. Where a node's answer ends with an
//! empty piece its end counts as unsent, too, until there is more to send.
//!
//! So every second answer of ours on a connection, and the first one after a node's, has
//! an event of its own: what was answered before is sent by then.

use std::cell::Cell;

use super::{Act, Exchange, State, ANSWER};
use crate::envoy::Stream;

/// So many connections of a worker are told apart for certain.
const CONNECTIONS: usize = 1024;

thread_local! {
    /// Connections that may have an answer unsent, each at its place; 0: none.
    static UNSENT: [Cell<u64>; CONNECTIONS] = const { [const { Cell::new(0) }; CONNECTIONS] };
}

/// Sets what is known at a connection's place, and returns what was.
fn replace(connection: u64, known: u64) -> u64 {
    UNSENT.with(|all| all[connection as usize % CONNECTIONS].replace(known))
}

impl Exchange {
    /// A request has come, and will be answered, by whomever.
    pub(super) fn comes(&mut self, stream: Stream) {
        let connection = stream.connection();
        self.follows_unsent = replace(connection, connection) == connection && connection != 0;
        self.connection = connection;
    }

    /// Gives the driver's answer to Envoy, now or in an event of its own.
    pub(super) fn answer(&mut self, stream: Stream) -> Act {
        if self.follows_unsent && stream.protocol().starts_with(b"HTTP/1") {
            replace(self.connection, 0);
            self.becomes(State::Answering);
            self.scheduler(stream).commit(ANSWER);
            return Act::Stop;
        }
        self.answered()
    }

    /// The event has come.
    pub(super) fn answered(&mut self) -> Act {
        self.becomes(State::Passing);
        let driver = self.driver.take();
        driver.map_or(Act::Continue, |driver| Act::Respond(Box::new(driver)))
    }
}
