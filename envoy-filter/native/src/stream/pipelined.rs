//! Pipelined requests of an HTTP/1 client. Envoy closes a connection when a
//! request begins while two responses are unsent, and a response from a hook is
//! unsent until Envoy has read all input. If a node's response ends with an
//! empty piece, its end counts as unsent as well, until there is more to send.
//!
//! Every second response of the filter on a connection, and its first one after
//! a node's response, is therefore sent in an event of its own, by which time
//! the previous response is sent.

use std::cell::Cell;

use super::{Exchange, State, StreamAction, ANSWER};
use crate::envoy::Stream;

/// Number of connections of a worker that are distinguished for certain.
const CONNECTIONS: usize = 1024;

thread_local! {
    /// Connections that may have an unsent response, by id modulo the length;
    /// 0: none.
    static UNSENT: [Cell<u64>; CONNECTIONS] = const { [const { Cell::new(0) }; CONNECTIONS] };
}

/// Replaces the entry of a connection, and returns the previous one.
fn replace(connection: u64, known: u64) -> u64 {
    UNSENT.with(|all| all[connection as usize % CONNECTIONS].replace(known))
}

impl Exchange {
    /// Records that a request arrived, to which the filter or the node will
    /// respond.
    pub(super) fn request_arrived(&mut self, stream: Stream) {
        let connection = stream.connection();
        self.follows_unsent = replace(connection, connection) == connection && connection != 0;
        self.connection = connection;
    }

    /// Sends the driver's response, now or in an event of its own.
    pub(super) fn answer(&mut self, stream: Stream) -> StreamAction {
        if self.follows_unsent && stream.protocol().starts_with(b"HTTP/1") {
            replace(self.connection, 0);
            self.set_state(State::Answering);
            self.scheduler(stream).commit(ANSWER);
            return StreamAction::Stop;
        }
        self.answered()
    }

    /// Sends the driver's response when its event arrives.
    pub(super) fn answered(&mut self) -> StreamAction {
        self.set_state(State::Passing);
        let driver = self.driver.take();
        driver.map_or(StreamAction::Continue, |driver| {
            StreamAction::Respond(Box::new(driver))
        })
    }
}
